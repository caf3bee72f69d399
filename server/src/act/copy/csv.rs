//! COPY's CSV format: values between delimiters, quoted where they hold one, rows that may go over lines.

use crate::{
    act::copy::fields::{Fields, KEPT_BYTES, ROW_BYTES_LIMIT, RowDecoder},
    error::{Result, SqlError},
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the beginning of a value or in an unquoted one.
    Plain,
    /// Between quotes.
    Quoted,
    /// After the escape character, between quotes.
    Escape,
    /// After a quote that may be the closing one.
    QuoteInQuoted,
}

/// Decodes CSV rows.
pub(crate) struct CsvDecoder {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: Vec<u8>,
    skip_header: bool,
    line: u64,
    place: Place,
    value: Vec<u8>,
    /// Some part of the value was quoted: it is not NULL.
    was_quoted: bool,
    /// Something of the row has been read.
    in_row: bool,
    /// Values of the row so far, which the header line only counts.
    values: usize,
    after_return: bool,
    row_bytes: usize,
    /// How the row begins.
    start: Vec<u8>,
    ended: bool,
    /// By column: an unquoted NULL text is a value.
    force_not_null: Vec<bool>,
    /// By column: a quoted NULL text is NULL.
    force_null: Vec<bool>,
}

impl CsvDecoder {
    pub(crate) fn new(delimiter: u8, quote: u8, escape: u8, null: &str, header: bool) -> Self {
        Self {
            delimiter,
            quote,
            escape,
            null: null.as_bytes().to_vec(),
            skip_header: header,
            line: 1,
            place: Place::Plain,
            value: Vec::new(),
            was_quoted: false,
            in_row: false,
            values: 0,
            after_return: false,
            row_bytes: 0,
            start: Vec::new(),
            ended: false,
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }

    /// The same with columns of FORCE_NOT_NULL and FORCE_NULL.
    pub(crate) fn with_forced(mut self, force_not_null: Vec<bool>, force_null: Vec<bool>) -> Self {
        (self.force_not_null, self.force_null) = (force_not_null, force_null);
        self
    }

    fn end_value(&mut self, fields: &mut Fields) -> Result<()> {
        self.values += 1;
        if !self.skip_header {
            let forced = |columns: &[bool]| columns.get(self.values - 1).copied().unwrap_or(false);
            let may_be_null = if self.was_quoted { forced(&self.force_null) } else { !forced(&self.force_not_null) };
            let is_null = may_be_null && self.value == self.null;
            fields.push((!is_null).then_some(&self.value))?;
        }
        self.value.clear();
        self.was_quoted = false;
        Ok(())
    }

    fn end_row(&mut self, fields: &mut Fields) -> Result<()> {
        if self.values == 0 && !self.was_quoted && self.value == b"\\." {
            self.ended = true;
            return Ok(());
        }
        self.end_value(fields)?;
        if !std::mem::take(&mut self.skip_header) {
            fields.end_row(self.line, &self.start)?;
        }
        (self.values, self.row_bytes, self.in_row) = (0, 0, false);
        self.start.clear();
        self.line += 1;
        Ok(())
    }

    fn take(&mut self, byte: u8, fields: &mut Fields) -> Result<()> {
        if std::mem::take(&mut self.after_return) && byte == b'\n' && self.place == Place::Plain {
            return Ok(());
        }
        self.in_row = true;
        self.row_bytes += 1;
        let ends_row = matches!(self.place, Place::Plain | Place::QuoteInQuoted) && (byte == b'\n' || byte == b'\r');
        if self.start.len() < KEPT_BYTES && !ends_row {
            self.start.push(byte);
        }
        match self.place {
            Place::Quoted if byte == self.escape && self.escape != self.quote => self.place = Place::Escape,
            Place::Quoted if byte == self.quote => self.place = Place::QuoteInQuoted,
            Place::Quoted => {
                if byte == b'\n' {
                    self.line += 1;
                }
                self.value.push(byte);
            }
            Place::Escape => {
                if byte != self.quote && byte != self.escape {
                    self.value.push(self.escape);
                }
                self.value.push(byte);
                self.place = Place::Quoted;
            }
            Place::QuoteInQuoted if byte == self.quote && self.escape == self.quote => {
                self.value.push(byte);
                self.place = Place::Quoted;
            }
            Place::Plain | Place::QuoteInQuoted => {
                self.place = Place::Plain;
                if byte == self.delimiter {
                    self.end_value(fields)?;
                } else if byte == b'\n' || byte == b'\r' {
                    self.after_return = byte == b'\r';
                    self.end_row(fields)?;
                } else if byte == self.quote {
                    self.was_quoted = true;
                    self.place = Place::Quoted;
                } else {
                    self.value.push(byte);
                }
            }
        }
        Ok(())
    }
}

impl RowDecoder for CsvDecoder {
    fn push(&mut self, bytes: &[u8], fields: &mut Fields) -> Result<()> {
        for byte in bytes {
            if self.ended {
                return Ok(());
            }
            self.take(*byte, fields)?;
        }
        if self.row_bytes > ROW_BYTES_LIMIT {
            return Err(SqlError::new("54000", "COPY row is too long"));
        }
        Ok(())
    }

    fn finish(&mut self, fields: &mut Fields) -> Result<()> {
        match self.place {
            Place::Quoted | Place::Escape => Err(SqlError::new("22P04", "unterminated CSV quoted field")),
            Place::Plain | Place::QuoteInQuoted if self.in_row && !self.ended => self.end_row(fields),
            Place::Plain | Place::QuoteInQuoted => Ok(()),
        }
    }

    fn place(&self) -> (u64, Option<&[u8]>) {
        (self.line, Some(&self.start))
    }
}
