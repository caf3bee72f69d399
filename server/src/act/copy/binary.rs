//! COPY's binary format: a header, then per row the number of values and each value's length and bytes.

use millpond_planner::{pg_text::TextSettings, types::SqlType};

use crate::{
    act::copy::fields::{Fields, ROW_BYTES_LIMIT, RowDecoder},
    error::{Result, SqlError},
};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Decodes binary rows. Values become their text form, which the common way types.
pub(crate) struct BinaryDecoder {
    types: Vec<SqlType>,
    settings: TextSettings,
    pending: Vec<u8>,
    in_header: bool,
    ended: bool,
    row: u64,
}

impl BinaryDecoder {
    pub(crate) fn new(types: Vec<SqlType>, settings: TextSettings) -> Self {
        Self { types, settings, pending: Vec::new(), in_header: true, ended: false, row: 1 }
    }

    /// Bytes of the header, if it is there in full.
    fn header(&self) -> Result<Option<usize>> {
        let bytes = &self.pending;
        if bytes.len() < SIGNATURE.len() + 8 {
            return Ok(None);
        }
        if &bytes[..SIGNATURE.len()] != SIGNATURE {
            return Err(SqlError::new("22P04", "COPY file signature not recognized"));
        }
        let number = |at: usize| bytes.get(at..at + 4).map(|bytes| i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let extension = number(SIGNATURE.len() + 4).unwrap_or_default();
        let extension = usize::try_from(extension).map_err(|_| SqlError::new("22P04", "invalid COPY file header (missing length)"))?;
        let length = SIGNATURE.len() + 8 + extension;
        Ok((bytes.len() >= length).then_some(length))
    }

    /// One row from the beginning of `bytes`; answers how many bytes it took, or nothing if it is not there in full.
    fn row(&self, bytes: &[u8], fields: &mut Fields) -> Result<Option<usize>> {
        let Some(values) = row_values(bytes, self.types.len())? else { return Ok(None) };
        let Some((values, length)) = values else { return Ok(Some(0)) };
        for (value, sql_type) in values.into_iter().zip(&self.types) {
            match value {
                None => fields.push(None)?,
                Some(bytes) => fields.push(Some(&self.text(bytes, sql_type)?))?,
            }
        }
        fields.end_row(self.row, &[])?;
        Ok(Some(length))
    }

    fn text(&self, bytes: &[u8], sql_type: &SqlType) -> Result<Vec<u8>> {
        let value = crate::pgwire::read_binary(bytes, &sql_type.arrow(), sql_type.oid())?;
        let array = value.to_array()?;
        let mut text = Vec::new();
        millpond_planner::pg_text::write_text(&array, 0, &self.settings, &mut text)
            .map_err(|error| SqlError::new(error.sqlstate, error.message))?;
        Ok(text)
    }
}

type Values<'a> = (Vec<Option<&'a [u8]>>, usize);

/// The values of a row and its length; `Some(None)` is the end of the data, `None` a row that is not there in full.
fn row_values(bytes: &[u8], width: usize) -> Result<Option<Option<Values<'_>>>> {
    let Some(count) = bytes.get(..2) else { return Ok(None) };
    let count = i16::from_be_bytes([count[0], count[1]]);
    if count == -1 {
        return Ok(Some(None));
    }
    if usize::try_from(count).ok() != Some(width) {
        return Err(SqlError::new("22P04", format!("row field count is {count}, expected {width}")));
    }
    let (mut values, mut at) = (Vec::with_capacity(width), 2);
    for _ in 0..width {
        let Some(length) = bytes.get(at..at + 4) else { return Ok(None) };
        let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        at += 4;
        if length == -1 {
            values.push(None);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| SqlError::new("22P04", "invalid field size"))?;
        if length > ROW_BYTES_LIMIT {
            return Err(SqlError::new("54000", "COPY row is too long"));
        }
        let Some(value) = bytes.get(at..at + length) else { return Ok(None) };
        values.push(Some(value));
        at += length;
    }
    Ok(Some(Some((values, at))))
}

impl RowDecoder for BinaryDecoder {
    fn push(&mut self, bytes: &[u8], fields: &mut Fields) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        if self.in_header {
            let Some(length) = self.header()? else { return Ok(()) };
            (self.in_header, at) = (false, length);
        }
        while let Some(length) = self.row(&self.pending[at..], fields)? {
            if length == 0 {
                self.ended = true;
                break;
            }
            at += length;
            self.row += 1;
        }
        self.pending.drain(..at);
        Ok(())
    }

    fn finish(&mut self, _fields: &mut Fields) -> Result<()> {
        if self.ended || (self.pending.is_empty() && !self.in_header) {
            return Ok(());
        }
        Err(SqlError::new("22P04", "unexpected EOF in COPY data"))
    }

    fn place(&self) -> (u64, Option<&[u8]>) {
        (self.row, None)
    }
}
