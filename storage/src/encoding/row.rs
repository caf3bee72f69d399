//! The row codec: a whole row as bytes, every column at a place that is known without reading the others. Version 1.
//!
//! ```text
//! version (1 byte) | NULL bits (1 per column, 1 = NULL) | fixed part | tail
//! ```
//!
//! The fixed part holds each column at a fixed offset: numbers little-endian, booleans as a byte, uuids as they are. Columns of varying length (text, jsonb, bytea,
//! arrays, and numerics above 38 digits, cut to their significant bytes) have there the end (u32) of their bytes in the tail; they begin where the
//! varying column before them ends. An array is a count (u32), the length of each element (u32, all ones for NULL), and the elements.
//! Unlike a key, a row gives back exactly what was encoded.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType},
    datatypes::DataType,
};

use super::{
    EncodedRows,
    data_type::{check_columns, check_supported, is_bytes},
    primitive::{FixedValue, PrimitiveVisitor, visit_primitive},
};
use crate::error::Result;

/// Version of the encoding, the first byte of every row.
pub const ROW_CODEC_VERSION: u8 = 1;

/// Length of an array element that is NULL.
const NULL_ELEMENT: u32 = u32::MAX;

/// Bytes of the end of a varying column.
const END_WIDTH: usize = 4;

/// Where a column is.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    data_type: DataType,
    /// Offset of its fixed part in the row.
    offset: usize,
    /// For a varying column: the offset of the end of the varying column before it, if there is one.
    varying_before: Option<usize>,
}

/// Encodes and decodes rows of given columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowCodec {
    places: Vec<Place>,
    /// Where the tail begins: the length of a row whose varying columns are all empty.
    fixed_length: usize,
}

impl RowCodec {
    /// A codec for columns of these types; an error names a type that cannot be stored.
    pub fn new(types: &[DataType]) -> Result<Self> {
        types.iter().try_for_each(check_supported)?;
        let mut offset = 1 + types.len().div_ceil(8);
        let mut varying_before = None;
        let mut places = Vec::with_capacity(types.len());
        for data_type in types {
            places.push(Place { data_type: data_type.clone(), offset, varying_before });
            if is_varying(data_type) {
                varying_before = Some(offset);
            }
            offset += fixed_width(data_type);
        }
        Ok(Self { places, fixed_length: offset })
    }

    /// The types of the columns.
    pub fn types(&self) -> impl ExactSizeIterator<Item = &DataType> {
        self.places.iter().map(|place| &place.data_type)
    }

    /// All rows. Text and bytes may come in any of their layouts. A codec without columns gives no rows.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<EncodedRows> {
        let mut rows = EncodedRows::new();
        self.encode_into(columns, &mut rows)?;
        Ok(rows)
    }

    /// Appends all rows to `out`.
    pub fn encode_into(&self, columns: &[ArrayRef], out: &mut EncodedRows) -> Result<()> {
        let rows = check_columns(self.types(), columns)?;
        self.encode_rows(columns, rows, out)
    }

    /// The columns `wanted` (indexes, in any order) of encoded rows, in their declared types. Damaged bytes are an error.
    pub fn decode<'a>(&self, rows: impl Iterator<Item = &'a [u8]> + Clone, wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        self.decode_rows(&rows.collect::<Vec<_>>(), wanted)
    }
}

/// Whether the bytes of the type are in the tail.
fn is_varying(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::Decimal256(_, _)) || is_bytes(data_type)
}

/// Bytes of the type in the fixed part.
fn fixed_width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Null => 0,
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(width) => *width as usize,
        other if is_varying(other) => END_WIDTH,
        other => visit_primitive(other, Width).expect("the codec was made for supported types"),
    }
}

struct Width;

impl PrimitiveVisitor for Width {
    type Output = usize;
    fn visit<T: ArrowPrimitiveType>(self) -> usize
    where
        T::Native: FixedValue,
    {
        T::Native::WIDTH
    }
}
