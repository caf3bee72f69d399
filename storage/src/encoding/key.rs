//! The key codec: bytes of a tuple of columns that sort (as bytes) as the columns do. Version 1.
//!
//! Every column is a marker byte (NULL or not) and, unless NULL, its value:
//!
//! | type | value |
//! |---|---|
//! | boolean | 0 or 1 |
//! | integers, date, time, timestamp | big-endian, sign bit flipped |
//! | real, double | IEEE bits made ordered; -0.0 is written as 0.0, every NaN as one NaN above infinity |
//! | numeric | sign and length in one byte, then the significant bytes |
//! | interval | its length in nanoseconds (a month is 30 days, a day 24 hours) as a numeric |
//! | text, jsonb, bytea | the bytes, 00 as 01 01 and 01 as 01 02, then 00 |
//! | uuid | its bytes |
//! | array | each element as a column with NULLs last, then 00 |
//!
//! In a descending column the bytes of the value are inverted. So an encoded tuple is no prefix of another one, tuples can be appended to each other,
//! and the first columns of a key are a prefix of it. Floats and intervals decode to a normalised form ([`is_lossy`]).

mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod value;

use arrow::{array::ArrayRef, datatypes::DataType};

pub(super) use self::value::KeyValue;
use super::{
    EncodedRows,
    data_type::{check_columns, check_supported},
};
use crate::error::Result;

/// Version of the encoding. Whoever stores keys stores this beside them.
pub const KEY_CODEC_VERSION: u8 = 1;

/// Marker of a value that is not NULL.
const PRESENT: u8 = 1;
/// Marker of a NULL that sorts before all values.
const NULL_FIRST: u8 = 0;
/// Marker of a NULL that sorts after all values.
const NULL_LAST: u8 = 2;
/// Ends byte strings and arrays.
const END: u8 = 0;
/// Stands before a byte of a string that is `END` or itself: the byte follows, plus one.
const ESCAPE: u8 = 1;

/// How one column of a key sorts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SortColumn {
    /// Type of the column.
    pub data_type: DataType,
    /// Larger values first.
    pub descending: bool,
    /// NULLs before all values, whatever the direction.
    pub nulls_first: bool,
}

impl SortColumn {
    /// Smaller values first, NULLs last: Postgres' default.
    pub fn ascending(data_type: DataType) -> Self {
        Self { data_type, descending: false, nulls_first: false }
    }

    fn null_marker(&self) -> u8 {
        if self.nulls_first { NULL_FIRST } else { NULL_LAST }
    }

    /// What bytes of values are combined with by exclusive or.
    fn mask(&self) -> u8 {
        if self.descending { 0xFF } else { 0 }
    }
}

/// Whether values of the type that differ may have one encoding (-0.0 and 0.0, `1 mon` and `30 days`): who must give back
/// exactly what it got keeps such columns beside the key.
pub fn is_lossy(data_type: &DataType) -> bool {
    match data_type {
        DataType::Float32 | DataType::Float64 | DataType::Interval(_) => true,
        DataType::List(element) => is_lossy(element.data_type()),
        _ => false,
    }
}

/// Encodes and decodes keys of given columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyCodec {
    columns: Vec<SortColumn>,
}

impl KeyCodec {
    /// A codec for these columns; an error names a type that cannot be a key.
    pub fn new(columns: Vec<SortColumn>) -> Result<Self> {
        columns.iter().try_for_each(|column| check_supported(&column.data_type))?;
        Ok(Self { columns })
    }

    /// A codec for columns that all sort ascending with NULLs last.
    pub fn ascending(types: &[DataType]) -> Result<Self> {
        Self::new(types.iter().cloned().map(SortColumn::ascending).collect())
    }

    /// The columns of the key.
    pub fn columns(&self) -> &[SortColumn] {
        &self.columns
    }

    /// The keys of all rows. Text and bytes may come in any of their layouts.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<EncodedRows> {
        let mut rows = EncodedRows::new();
        self.encode_into(columns, &mut rows)?;
        Ok(rows)
    }

    /// Appends the keys of all rows to `out`. A codec without columns appends nothing.
    pub fn encode_into(&self, columns: &[ArrayRef], out: &mut EncodedRows) -> Result<()> {
        let rows = check_columns(self.columns.iter().map(|column| &column.data_type), columns)?;
        encode::encode(&self.columns, columns, rows, out)
    }

    /// The columns of encoded keys, in their declared types. Each row may go on behind its key. Damaged bytes are an error.
    pub fn decode<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        self.decode_wanted(rows, &(0..self.columns.len()).collect::<Vec<_>>())
    }

    /// The columns `wanted` (indexes, ascending) of encoded keys.
    pub fn decode_wanted<'a>(&self, rows: impl Iterator<Item = &'a [u8]>, wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        let mut rows = rows.collect();
        let mut decoded = Vec::with_capacity(wanted.len());
        let last = wanted.last().map_or(0, |last| last + 1);
        for (index, column) in self.columns[..last].iter().enumerate() {
            if wanted.contains(&index) {
                decoded.push(decode::decode_column(column, &mut rows)?);
            } else {
                decode::skip_column(column, &mut rows)?;
            }
        }
        Ok(decoded)
    }

    /// Bytes that the key at the start of `row` takes.
    pub fn key_length(&self, row: &[u8]) -> Result<usize> {
        let mut length = 0;
        for column in &self.columns {
            length += decode::column_length(column, &row[length..])?;
        }
        Ok(length)
    }
}
