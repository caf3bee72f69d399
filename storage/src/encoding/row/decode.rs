//! Rows to columns: only the columns asked for, each in one typed loop.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ArrowPrimitiveType, BooleanArray, Decimal256Array, FixedSizeBinaryArray, ListArray, NullArray, PrimitiveArray},
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer},
    datatypes::{DataType, i256},
};

use super::{END_WIDTH, NULL_ELEMENT, Place, ROW_CODEC_VERSION, RowCodec, is_varying};
use crate::{
    encoding::{
        bytes::ByteColumnBuilder,
        cursor::Cursor,
        primitive::{FixedValue, PrimitiveVisitor, visit_primitive},
    },
    error::{Result, StorageError},
};

fn corrupt(detail: impl Into<String>) -> StorageError {
    StorageError::Corrupt { file: "encoded row".into(), detail: detail.into() }
}

impl RowCodec {
    pub(super) fn decode_rows(&self, rows: &[&[u8]], wanted: &[usize]) -> Result<Vec<ArrayRef>> {
        for row in rows {
            match row.first() {
                Some(&ROW_CODEC_VERSION) if row.len() >= self.fixed_length => {}
                Some(&ROW_CODEC_VERSION) => return Err(corrupt(format!("{} bytes, at least {} expected", row.len(), self.fixed_length))),
                version => return Err(corrupt(format!("unknown version {version:?}"))),
            }
        }
        wanted.iter().map(|column| self.decode_column(rows, *column)).collect()
    }

    fn decode_column(&self, rows: &[&[u8]], column: usize) -> Result<ArrayRef> {
        let place = &self.places[column];
        let byte = 1 + column / 8;
        let bit = 1 << (column % 8);
        let is_null = |row: &&[u8]| row[byte] & bit != 0;
        let nulls = rows.iter().any(is_null).then(|| NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |row| !is_null(&rows[row]))));
        if is_varying(&place.data_type) {
            let mut values = Vec::with_capacity(rows.len());
            for row in rows {
                values.push(self.varying_value(row, place)?);
            }
            return decode_varying(&place.data_type, &values, nulls);
        }
        let width = super::fixed_width(&place.data_type);
        decode_fixed(&place.data_type, rows.len(), |row| &rows[row][place.offset..place.offset + width], nulls)
    }

    fn varying_value<'a>(&self, row: &'a [u8], place: &Place) -> Result<&'a [u8]> {
        let end_at = |offset: usize| {
            let bytes = row[offset..offset + END_WIDTH].try_into().expect("the fixed part was checked to be there");
            u32::from_le_bytes(bytes) as usize
        };
        let start = place.varying_before.map_or(0, end_at);
        let end = end_at(place.offset);
        row[self.fixed_length..].get(start..end).ok_or_else(|| corrupt(format!("bytes {start}..{end} of the tail are not there")))
    }
}

/// Builds a fixed-width column from the bytes of each value (anything for NULL).
fn decode_fixed<'a>(data_type: &DataType, rows: usize, value: impl Fn(usize) -> &'a [u8], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(rows, |row| value(row)[0] != 0), nulls)),
        DataType::FixedSizeBinary(width) => {
            let mut data = Vec::with_capacity(rows * *width as usize);
            (0..rows).for_each(|row| data.extend_from_slice(value(row)));
            Arc::new(FixedSizeBinaryArray::try_new(*width, Buffer::from_vec(data), nulls)?)
        }
        other => visit_primitive(other, Decode { data_type, rows, value, nulls }).expect("the codec was made for supported types"),
    })
}

struct Decode<'d, F> {
    data_type: &'d DataType,
    rows: usize,
    value: F,
    nulls: Option<NullBuffer>,
}

impl<'a, F: Fn(usize) -> &'a [u8]> PrimitiveVisitor for Decode<'_, F> {
    type Output = ArrayRef;
    fn visit<T: ArrowPrimitiveType>(self) -> ArrayRef
    where
        T::Native: FixedValue,
    {
        let values: Vec<T::Native> = (0..self.rows).map(|row| T::Native::read((self.value)(row))).collect();
        Arc::new(PrimitiveArray::<T>::new(values.into(), self.nulls).with_data_type(self.data_type.clone()))
    }
}

/// Builds a varying column, from the bytes of each value (empty for NULL).
fn decode_varying(data_type: &DataType, values: &[&[u8]], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    match data_type {
        DataType::Decimal256(_, _) => {
            let decimals = values.iter().map(|bytes| read_decimal(bytes)).collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(Decimal256Array::new(decimals.into(), nulls).with_data_type(data_type.clone())))
        }
        DataType::List(_) => decode_lists(data_type, values, nulls),
        other => {
            let mut builder = ByteColumnBuilder::with_capacity(values.len());
            values.iter().for_each(|value| builder.push(value));
            builder.finish(other, nulls)
        }
    }
}

fn read_decimal(bytes: &[u8]) -> Result<i256> {
    let negative = bytes.last().is_some_and(|byte| *byte >= 0x80);
    let mut extended = [if negative { 0xFF } else { 0 }; 32];
    extended.get_mut(..bytes.len()).ok_or_else(|| corrupt("a numeric is too long"))?.copy_from_slice(bytes);
    Ok(i256::from_le_bytes(extended))
}

fn decode_lists(data_type: &DataType, values: &[&[u8]], nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    let DataType::List(field) = data_type else {
        return Err(StorageError::Internal("a list column has another type".into()));
    };
    let element_type = field.data_type();
    let mut elements: Vec<Option<&[u8]>> = Vec::new();
    let mut counts = Vec::with_capacity(values.len());
    for value in values {
        let first = elements.len();
        if !value.is_empty() {
            read_elements(value, &mut elements)?;
        }
        counts.push(elements.len() - first);
    }
    let element_nulls = elements
        .iter()
        .any(Option::is_none)
        .then(|| NullBuffer::new(BooleanBuffer::collect_bool(elements.len(), |index| elements[index].is_some())));
    let children = if is_varying(element_type) {
        let bytes = elements.iter().map(|element| element.unwrap_or_default()).collect::<Vec<_>>();
        decode_varying(element_type, &bytes, element_nulls)?
    } else {
        let zeros = vec![0; super::fixed_width(element_type)];
        if elements.iter().flatten().any(|element| element.len() != zeros.len()) {
            return Err(corrupt("an array element has the wrong length"));
        }
        decode_fixed(element_type, elements.len(), |index| elements[index].unwrap_or(&zeros), element_nulls)?
    };
    Ok(Arc::new(ListArray::try_new(field.clone(), OffsetBuffer::from_lengths(counts), children, nulls)?))
}

fn read_elements<'a>(value: &'a [u8], elements: &mut Vec<Option<&'a [u8]>>) -> Result<()> {
    let mut header = Cursor::new(value, "encoded row");
    let count = header.u32()? as usize;
    let lengths = header.bytes(count.saturating_mul(4))?;
    for length in lengths.chunks_exact(4) {
        let length = u32::from_le_bytes(length.try_into().expect("chunks of four"));
        elements.push(if length == NULL_ELEMENT { None } else { Some(header.bytes(length as usize)?) });
    }
    Ok(())
}
