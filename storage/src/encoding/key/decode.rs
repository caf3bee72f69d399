//! Keys to columns. Each row is a slice that starts at the column to be read; reading moves it behind the column.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, BooleanArray, BooleanBufferBuilder, FixedSizeBinaryArray, ListArray, NullArray, NullBufferBuilder,
        PrimitiveArray,
    },
    buffer::{Buffer, NullBuffer, OffsetBuffer},
    datatypes::DataType,
};

use super::{END, ESCAPE, KeyValue, PRESENT, SortColumn};
use crate::{
    encoding::{
        EncodedRows,
        bytes::ByteColumnBuilder,
        data_type::is_bytes,
        primitive::{FixedValue, PrimitiveVisitor, visit_primitive},
    },
    error::{Result, StorageError},
};

fn corrupt(detail: impl Into<String>) -> StorageError {
    StorageError::Corrupt { file: "encoded key".into(), detail: detail.into() }
}

/// Moves every row behind the column without building it.
pub(super) fn skip_column(column: &SortColumn, rows: &mut Vec<&[u8]>) -> Result<()> {
    for row in rows {
        *row = &row[column_length(column, row)?..];
    }
    Ok(())
}

/// Length of the column that `row` starts with, marker included.
pub(super) fn column_length(column: &SortColumn, row: &[u8]) -> Result<usize> {
    match row.first() {
        Some(&PRESENT) => Ok(1 + value_length(&column.data_type, column.mask(), &row[1..])?),
        Some(marker) if *marker == column.null_marker() => Ok(1),
        Some(marker) => Err(corrupt(format!("unknown marker {marker}"))),
        None => Err(corrupt("a column is missing")),
    }
}

/// Length of the value that `bytes` start with, checked to be there. `mask` is what the bytes are inverted with.
fn value_length(data_type: &DataType, mask: u8, bytes: &[u8]) -> Result<usize> {
    let length = match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(width) => Some(*width as usize),
        DataType::List(element) => Some(list_length(element.data_type(), mask, bytes)?),
        other if is_bytes(other) => bytes.iter().position(|byte| *byte == END ^ mask).map(|end| end + 1),
        other => bytes.first().and_then(|first| visit_primitive(other, LengthFrom(first ^ mask)).flatten()),
    };
    length.filter(|length| *length <= bytes.len()).ok_or_else(|| corrupt(format!("a value of type {data_type} is cut off")))
}

fn list_length(element: &DataType, mask: u8, bytes: &[u8]) -> Result<usize> {
    let element = SortColumn::ascending(element.clone());
    let mut length = 0;
    loop {
        let rest = &bytes[length..];
        length += match rest.first().map(|marker| marker ^ mask) {
            Some(END) => return Ok(length + 1),
            Some(PRESENT) => 1 + value_length(&element.data_type, mask, &rest[1..])?,
            Some(marker) if marker == element.null_marker() => 1,
            _ => return Err(corrupt("an array is cut off")),
        };
    }
}

struct LengthFrom(u8);

impl PrimitiveVisitor for LengthFrom {
    type Output = Option<usize>;
    fn visit<T: ArrowPrimitiveType>(self) -> Option<usize>
    where
        T::Native: KeyValue,
    {
        T::Native::length_from(self.0)
    }
}

/// Builds the column and moves every row behind it.
pub(super) fn decode_column(column: &SortColumn, rows: &mut Vec<&[u8]>) -> Result<ArrayRef> {
    match &column.data_type {
        DataType::Null => {
            skip_column(column, rows)?;
            Ok(Arc::new(NullArray::new(rows.len())))
        }
        DataType::Boolean => {
            let mut values = BooleanBufferBuilder::new(rows.len());
            let nulls = take_values(column, rows, |value| {
                values.append(value.is_some_and(|value| value[0] ^ column.mask() != 0));
                Ok(())
            })?;
            Ok(Arc::new(BooleanArray::new(values.finish(), nulls)))
        }
        DataType::FixedSizeBinary(width) => {
            let mut data = Vec::with_capacity(rows.len() * *width as usize);
            let nulls = take_values(column, rows, |value| {
                match value {
                    Some(value) => data.extend(value.iter().map(|byte| byte ^ column.mask())),
                    None => data.resize(data.len() + *width as usize, 0),
                }
                Ok(())
            })?;
            Ok(Arc::new(FixedSizeBinaryArray::try_new(*width, Buffer::from_vec(data), nulls)?))
        }
        DataType::List(_) => decode_lists(column, rows),
        other if is_bytes(other) => {
            let mut builder = ByteColumnBuilder::with_capacity(rows.len());
            let nulls = take_values(column, rows, |value| {
                if let Some(value) = value {
                    unescape(&value[..value.len() - 1], column.mask(), &mut builder.data)?;
                }
                builder.end_value();
                Ok(())
            })?;
            builder.finish(other, nulls)
        }
        other => visit_primitive(other, Decode { column, rows }).expect("the codec was made for supported types"),
    }
}

/// Hands the bytes of each value (`None` for NULL) to `take`, moves the rows behind them, and collects which are NULL.
fn take_values<'a>(
    column: &SortColumn,
    rows: &mut [&'a [u8]],
    mut take: impl FnMut(Option<&'a [u8]>) -> Result<()>,
) -> Result<Option<NullBuffer>> {
    let mut nulls = NullBufferBuilder::new(rows.len());
    for row in rows {
        let (value, rest) = row.split_at(column_length(column, row)?);
        *row = rest;
        let present = value[0] == PRESENT;
        nulls.append(present);
        take(present.then_some(&value[1..]))?;
    }
    Ok(nulls.finish())
}

fn unescape(bytes: &[u8], mask: u8, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.extend_from_slice(bytes);
    if mask != 0 {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    if !out[start..].contains(&ESCAPE) {
        return Ok(());
    }
    let mut read = start;
    let mut write = start;
    while read < out.len() {
        let mut byte = out[read];
        if byte == ESCAPE {
            read += 1;
            byte = match out.get(read) {
                Some(1) => 0,
                Some(2) => 1,
                _ => return Err(corrupt("an escaped byte is damaged")),
            };
        }
        out[write] = byte;
        read += 1;
        write += 1;
    }
    out.truncate(write);
    Ok(())
}

fn decode_lists(column: &SortColumn, rows: &mut [&[u8]]) -> Result<ArrayRef> {
    let DataType::List(element) = &column.data_type else {
        return Err(StorageError::Internal("a list column has another type".into()));
    };
    let mut bodies = EncodedRows::with_capacity(rows.len(), 0);
    let nulls = take_values(column, rows, |value| {
        let body = value.map_or(&[][..], |value| &value[..value.len() - 1]);
        bodies.bytes.extend(body.iter().map(|byte| byte ^ column.mask()));
        bodies.offsets.push(bodies.bytes.len());
        Ok(())
    })?;
    let element_column = SortColumn::ascending(element.data_type().clone());
    let mut elements = Vec::new();
    let mut counts = Vec::with_capacity(bodies.len());
    for mut body in bodies.iter() {
        let first = elements.len();
        while !body.is_empty() {
            let (value, rest) = body.split_at(column_length(&element_column, body)?);
            elements.push(value);
            body = rest;
        }
        counts.push(elements.len() - first);
    }
    let values = decode_column(&element_column, &mut elements)?;
    Ok(Arc::new(ListArray::try_new(element.clone(), OffsetBuffer::from_lengths(counts), values, nulls)?))
}

struct Decode<'d, 'a> {
    column: &'d SortColumn,
    rows: &'d mut [&'a [u8]],
}

impl PrimitiveVisitor for Decode<'_, '_> {
    type Output = Result<ArrayRef>;
    fn visit<T: ArrowPrimitiveType>(self) -> Result<ArrayRef>
    where
        T::Native: KeyValue + FixedValue,
    {
        let Self { column, rows } = self;
        let mask = column.mask();
        let mut values: Vec<T::Native> = Vec::with_capacity(rows.len());
        let mut nulls = NullBufferBuilder::new(rows.len());
        for row in rows {
            let bytes = match row.first() {
                Some(&PRESENT) => &row[1..],
                _ => {
                    *row = &row[column_length(column, row)?..];
                    nulls.append_null();
                    values.push(T::Native::default());
                    continue;
                }
            };
            let length = bytes.first().and_then(|first| T::Native::length_from(first ^ mask));
            let (value, rest) = length.and_then(|length| bytes.split_at_checked(length)).ok_or_else(|| corrupt("a number is cut off"))?;
            *row = rest;
            nulls.append_non_null();
            values.push(read_value(value, mask).ok_or_else(|| corrupt("a number is out of range"))?);
        }
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls.finish()).with_data_type(column.data_type.clone())))
    }
}

/// The longest value: a 256-bit number behind its length.
const LONGEST: usize = 33;

fn read_value<V: KeyValue>(bytes: &[u8], mask: u8) -> Option<V> {
    if mask == 0 {
        return V::read_key(bytes);
    }
    let mut inverted = [0; LONGEST];
    let inverted = &mut inverted[..bytes.len()];
    inverted.iter_mut().zip(bytes).for_each(|(out, byte)| *out = !byte);
    V::read_key(inverted)
}
