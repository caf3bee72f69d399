//! Columns to rows: lengths first, then one column after the other into the arena.

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray},
    buffer::NullBuffer,
    datatypes::{DataType, Decimal256Type},
};

use super::{END_WIDTH, NULL_ELEMENT, ROW_CODEC_VERSION, RowCodec, is_varying};
use crate::{
    encoding::{
        EncodedRows,
        bytes::ByteColumn,
        primitive::{FixedValue, PrimitiveVisitor, visit_primitive},
    },
    error::{Result, StorageError},
};

impl RowCodec {
    pub(super) fn encode_rows(&self, columns: &[ArrayRef], rows: usize, out: &mut EncodedRows) -> Result<()> {
        let varying = columns.iter().map(Varying::new).collect::<Result<Vec<_>>>()?;
        let mut tails = vec![0_usize; rows];
        for varying in varying.iter().flatten() {
            (0..rows).for_each(|row| tails[row] += varying.length(row));
        }
        if tails.iter().any(|tail| *tail > u32::MAX as usize) {
            return Err(StorageError::Internal("a row of more than 4 GiB cannot be stored".into()));
        }
        let first = out.reserve_rows(tails.iter().map(|tail| self.fixed_length + tail));
        let starts = out.offsets[first + 1..].to_vec();
        starts.iter().for_each(|start| out.bytes[*start] = ROW_CODEC_VERSION);
        tails.fill(0);
        for (index, (place, column)) in self.places.iter().zip(columns).enumerate() {
            let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
            if let Some(nulls) = nulls {
                let byte = 1 + index / 8;
                let bit = 1 << (index % 8);
                (0..rows).filter(|row| nulls.is_null(*row)).for_each(|row| out.bytes[starts[row] + byte] |= bit);
            } else if column.data_type() == &DataType::Null {
                starts.iter().for_each(|start| out.bytes[start + 1 + index / 8] |= 1 << (index % 8));
            }
            match &varying[index] {
                Some(varying) => {
                    for (row, start) in starts.iter().enumerate() {
                        let length = varying.length(row);
                        let tail = start + self.fixed_length + tails[row];
                        varying.write(row, &mut out.bytes[tail..tail + length]);
                        tails[row] += length;
                        let end = start + place.offset;
                        out.bytes[end..end + END_WIDTH].copy_from_slice(&(tails[row] as u32).to_le_bytes());
                    }
                }
                None => write_fixed(column, nulls, &starts, place.offset, &mut out.bytes),
            }
        }
        for (end, (start, tail)) in out.offsets[first + 1..].iter_mut().zip(starts.iter().zip(tails)) {
            *end = start + self.fixed_length + tail;
        }
        Ok(())
    }
}

/// Writes a fixed-width column; NULLs stay zero.
fn write_fixed(column: &ArrayRef, nulls: Option<&NullBuffer>, starts: &[usize], offset: usize, out: &mut [u8]) {
    let present = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
    match column.data_type() {
        DataType::Null => {}
        DataType::Boolean => {
            let values = column.as_boolean();
            (0..starts.len()).filter(present).for_each(|row| out[starts[row] + offset] = u8::from(values.value(row)));
        }
        DataType::FixedSizeBinary(width) => {
            let values = column.as_fixed_size_binary();
            for row in (0..starts.len()).filter(present) {
                let at = starts[row] + offset;
                out[at..at + *width as usize].copy_from_slice(values.value(row));
            }
        }
        other => {
            visit_primitive(other, WriteFixed { column, nulls, starts, offset, out });
        }
    }
}

struct WriteFixed<'w> {
    column: &'w ArrayRef,
    nulls: Option<&'w NullBuffer>,
    starts: &'w [usize],
    offset: usize,
    out: &'w mut [u8],
}

impl PrimitiveVisitor for WriteFixed<'_> {
    type Output = ();
    fn visit<T: ArrowPrimitiveType>(self)
    where
        T::Native: FixedValue,
    {
        let values = self.column.as_primitive::<T>().values();
        for (row, (start, value)) in self.starts.iter().zip(values.iter()).enumerate() {
            if self.nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let at = start + self.offset;
                value.write(&mut self.out[at..at + T::Native::WIDTH]);
            }
        }
    }
}

/// A column whose bytes go into the tail, or the elements of an array.
struct Varying<'a> {
    nulls: Option<&'a NullBuffer>,
    values: VaryingValues<'a>,
}

enum VaryingValues<'a> {
    Bytes(ByteColumn<'a>),
    Decimal(&'a arrow::array::Decimal256Array),
    /// Elements of an array that have no varying length by themselves.
    Fixed(&'a dyn Array, usize),
    List(&'a [i32], Box<Varying<'a>>),
}

impl<'a> Varying<'a> {
    /// The column, if it is of a varying type.
    fn new(column: &'a ArrayRef) -> Result<Option<Self>> {
        if is_varying(column.data_type()) { Self::any(column.as_ref()).map(Some) } else { Ok(None) }
    }

    fn any(array: &'a dyn Array) -> Result<Self> {
        let values = match array.data_type() {
            DataType::Decimal256(_, _) => VaryingValues::Decimal(array.as_primitive::<Decimal256Type>()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                VaryingValues::List(list.value_offsets(), Box::new(Self::any(list.values().as_ref())?))
            }
            other if is_varying(other) => VaryingValues::Bytes(ByteColumn::of(array).expect("other varying types are byte strings")),
            other => VaryingValues::Fixed(array, super::fixed_width(other)),
        };
        Ok(Self { nulls: array.nulls().filter(|nulls| nulls.null_count() > 0), values })
    }

    #[inline]
    fn is_null(&self, row: usize) -> bool {
        match &self.values {
            VaryingValues::Fixed(array, _) if array.data_type() == &DataType::Null => true,
            _ => self.nulls.is_some_and(|nulls| nulls.is_null(row)),
        }
    }

    /// Bytes of the value; 0 for NULL.
    #[inline]
    fn length(&self, row: usize) -> usize {
        if self.is_null(row) {
            return 0;
        }
        match &self.values {
            VaryingValues::Bytes(bytes) => bytes.value(row).len(),
            VaryingValues::Decimal(decimals) => significant_bytes(&decimals.value(row).to_le_bytes()),
            VaryingValues::Fixed(_, width) => *width,
            VaryingValues::List(offsets, elements) => {
                4 + (offsets[row] as usize..offsets[row + 1] as usize).map(|element| 4 + elements.length(element)).sum::<usize>()
            }
        }
    }

    /// Fills `out`, which is as long as [`Self::length`] says.
    fn write(&self, row: usize, out: &mut [u8]) {
        if self.is_null(row) {
            return;
        }
        match &self.values {
            VaryingValues::Bytes(bytes) => out.copy_from_slice(bytes.value(row)),
            VaryingValues::Decimal(decimals) => out.copy_from_slice(&decimals.value(row).to_le_bytes()[..out.len()]),
            VaryingValues::Fixed(array, width) => write_element(*array, row, &mut out[..*width]),
            VaryingValues::List(offsets, elements) => {
                let range = offsets[row] as usize..offsets[row + 1] as usize;
                out[..4].copy_from_slice(&(range.len() as u32).to_le_bytes());
                let mut at = 4;
                let mut body = 4 + 4 * range.len();
                for element in range {
                    let length = elements.length(element);
                    let stored = if elements.is_null(element) { NULL_ELEMENT } else { length as u32 };
                    out[at..at + 4].copy_from_slice(&stored.to_le_bytes());
                    elements.write(element, &mut out[body..body + length]);
                    at += 4;
                    body += length;
                }
            }
        }
    }
}

fn write_element(array: &dyn Array, row: usize, out: &mut [u8]) {
    match array.data_type() {
        DataType::Boolean => out[0] = u8::from(array.as_boolean().value(row)),
        DataType::FixedSizeBinary(_) => out.copy_from_slice(array.as_fixed_size_binary().value(row)),
        other => {
            visit_primitive(other, WriteElement { array, row, out });
        }
    }
}

struct WriteElement<'w> {
    array: &'w dyn Array,
    row: usize,
    out: &'w mut [u8],
}

impl PrimitiveVisitor for WriteElement<'_> {
    type Output = ();
    fn visit<T: ArrowPrimitiveType>(self)
    where
        T::Native: FixedValue,
    {
        self.array.as_primitive::<T>().value(self.row).write(self.out);
    }
}

/// How many bytes of a little-endian two's complement number are needed to extend it back by its sign.
fn significant_bytes(little_endian: &[u8]) -> usize {
    let negative = little_endian.last().is_some_and(|byte| *byte >= 0x80);
    let fill = if negative { 0xFF } else { 0 };
    let length = little_endian.iter().rposition(|byte| *byte != fill).map_or(0, |last| last + 1);
    // The last byte kept must show the sign.
    let shows_sign = little_endian[..length].last().map_or(!negative, |byte| (*byte >= 0x80) == negative);
    if shows_sign { length } else { length + 1 }
}
