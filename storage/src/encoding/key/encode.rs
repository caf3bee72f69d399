//! Columns to keys, in two passes over each column: lengths, then bytes.

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, ListArray, PrimitiveArray},
    buffer::NullBuffer,
    datatypes::DataType,
};

use super::{END, ESCAPE, KeyValue, PRESENT, SortColumn};
use crate::{
    encoding::{
        EncodedRows,
        bytes::ByteColumn,
        primitive::{FixedValue, PrimitiveVisitor, visit_primitive},
    },
    error::{Result, StorageError},
};

/// Appends the keys of `rows` rows.
pub(super) fn encode(columns: &[SortColumn], arrays: &[ArrayRef], rows: usize, out: &mut EncodedRows) -> Result<()> {
    let prepared = columns.iter().zip(arrays).map(|(column, array)| Prepared::new(column, array)).collect::<Result<Vec<_>>>()?;
    let fixed = prepared.iter().map(Prepared::fixed_length).sum::<Option<usize>>();
    let first = match fixed {
        Some(length) => out.reserve_rows(std::iter::repeat_n(length, rows)),
        None => {
            let mut lengths = vec![0; rows];
            prepared.iter().for_each(|column| column.add_lengths(&mut lengths));
            out.reserve_rows(lengths.into_iter())
        }
    };
    let positions = &mut out.offsets[first + 1..];
    prepared.iter().for_each(|column| column.write(&mut Writer { positions, bytes: &mut out.bytes }));
    Ok(())
}

/// Where the next byte of each row goes.
struct Writer<'w> {
    positions: &'w mut [usize],
    bytes: &'w mut [u8],
}

impl Writer<'_> {
    /// The next `length` bytes of row `row`, to be filled by the caller.
    #[inline]
    fn next(&mut self, row: usize, length: usize) -> &mut [u8] {
        let start = self.positions[row];
        let end = start + length;
        self.positions[row] = end;
        &mut self.bytes[start..end]
    }
}

/// A column made ready for both passes.
struct Prepared<'a> {
    array: &'a dyn Array,
    nulls: Option<&'a NullBuffer>,
    null_marker: u8,
    mask: u8,
    values: Values<'a>,
}

enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Primitive,
    FixedBytes(ByteColumn<'a>, usize),
    Bytes(ByteColumn<'a>),
    /// The elements of all lists, each encoded as a column; element 0 is the first of the first list.
    List(&'a ListArray, EncodedRows),
}

impl<'a> Prepared<'a> {
    fn new(column: &SortColumn, array: &'a ArrayRef) -> Result<Self> {
        let values = match array.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(array.as_boolean()),
            DataType::FixedSizeBinary(width) => {
                Values::FixedBytes(ByteColumn::of(array).expect("a fixed-size binary is a byte column"), *width as usize)
            }
            DataType::List(element) => {
                let list = array.as_list::<i32>();
                let (first, last) = (list.value_offsets()[0] as usize, list.value_offsets()[list.len()] as usize);
                let elements = list.values().slice(first, last - first);
                let element = SortColumn::ascending(element.data_type().clone());
                let mut encoded = EncodedRows::new();
                encode(&[element], &[elements], last - first, &mut encoded)?;
                Values::List(list, encoded)
            }
            other => match ByteColumn::of(array) {
                Some(bytes) => Values::Bytes(bytes),
                None if visit_primitive(other, FixedLength).is_some() => Values::Primitive,
                None => return Err(StorageError::Internal(format!("values of type {other} cannot be stored"))),
            },
        };
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        Ok(Self { array, nulls, null_marker: column.null_marker(), mask: column.mask(), values })
    }

    /// The length of every row, if it is one.
    fn fixed_length(&self) -> Option<usize> {
        match &self.values {
            Values::Null => Some(1),
            _ if self.nulls.is_some() => None,
            Values::Boolean(_) => Some(2),
            Values::Primitive => visit_primitive(self.array.data_type(), FixedLength).flatten(),
            Values::FixedBytes(_, width) => Some(1 + width),
            Values::Bytes(_) | Values::List(..) => None,
        }
    }

    fn add_lengths(&self, lengths: &mut [usize]) {
        if let Some(fixed) = self.fixed_length() {
            return lengths.iter_mut().for_each(|length| *length += fixed);
        }
        match &self.values {
            Values::Null => {}
            Values::Boolean(_) => self.add_lengths_by(lengths, |_| 1),
            Values::FixedBytes(_, width) => self.add_lengths_by(lengths, |_| *width),
            Values::Primitive => {
                visit_primitive(self.array.data_type(), AddLengths { column: self, lengths });
            }
            Values::Bytes(bytes) => self.add_lengths_by(lengths, |row| {
                let value = bytes.value(row);
                value.len() + value.iter().filter(|byte| **byte <= ESCAPE).count() + 1
            }),
            Values::List(list, elements) => {
                let offsets = list.value_offsets();
                let start = |row: usize| elements.offsets[(offsets[row] - offsets[0]) as usize];
                self.add_lengths_by(lengths, |row| start(row + 1) - start(row) + 1);
            }
        }
    }

    /// Adds one for the marker, and the length of each value that is not NULL.
    fn add_lengths_by(&self, lengths: &mut [usize], value_length: impl Fn(usize) -> usize) {
        match self.nulls {
            None => lengths.iter_mut().enumerate().for_each(|(row, length)| *length += 1 + value_length(row)),
            Some(nulls) => {
                for (row, length) in lengths.iter_mut().enumerate() {
                    *length += 1 + if nulls.is_valid(row) { value_length(row) } else { 0 };
                }
            }
        }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match &self.values {
            Values::Null => (0..writer.positions.len()).for_each(|row| writer.next(row, 1)[0] = self.null_marker),
            Values::Boolean(values) => {
                self.write_by(writer, |_| 1, |row, out| out[0] = u8::from(values.value(row)) ^ self.mask);
            }
            Values::FixedBytes(values, width) => self.write_by(
                writer,
                |_| *width,
                |row, out| {
                    out.copy_from_slice(values.value(row));
                    self.invert(out);
                },
            ),
            Values::Primitive => {
                visit_primitive(self.array.data_type(), Write { column: self, writer });
            }
            Values::Bytes(values) => self.write_bytes(writer, values),
            Values::List(list, elements) => {
                let offsets = list.value_offsets();
                let start = |row: usize| elements.offsets[(offsets[row] - offsets[0]) as usize];
                self.write_by(
                    writer,
                    |row| start(row + 1) - start(row) + 1,
                    |row, out| {
                        let (end, body) = out.split_last_mut().expect("a list has an end");
                        body.copy_from_slice(&elements.bytes[start(row)..start(row + 1)]);
                        self.invert(body);
                        *end = END ^ self.mask;
                    },
                );
            }
        }
    }

    /// Writes the marker of each row, and lets `write` fill as many bytes as the value has.
    #[inline]
    fn write_by(&self, writer: &mut Writer<'_>, length: impl Fn(usize) -> usize, write: impl Fn(usize, &mut [u8])) {
        for row in 0..writer.positions.len() {
            if self.nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                let out = writer.next(row, 1 + length(row));
                out[0] = PRESENT;
                write(row, &mut out[1..]);
            } else {
                writer.next(row, 1)[0] = self.null_marker;
            }
        }
    }

    fn write_bytes(&self, writer: &mut Writer<'_>, values: &ByteColumn<'_>) {
        for row in 0..writer.positions.len() {
            if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
                writer.next(row, 1)[0] = self.null_marker;
                continue;
            }
            let value = values.value(row);
            writer.next(row, 1)[0] = PRESENT;
            let escapes = value.iter().filter(|byte| **byte <= ESCAPE).count();
            let out = writer.next(row, value.len() + escapes + 1);
            if escapes == 0 {
                out[..value.len()].copy_from_slice(value);
                out[value.len()] = END;
            } else {
                write_escaped(value, out);
            }
            self.invert(out);
        }
    }

    fn invert(&self, bytes: &mut [u8]) {
        if self.mask != 0 {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

fn write_escaped(value: &[u8], out: &mut [u8]) {
    let mut position = 0;
    for byte in value {
        if *byte <= ESCAPE {
            out[position] = ESCAPE;
            out[position + 1] = byte + 1;
            position += 2;
        } else {
            out[position] = *byte;
            position += 1;
        }
    }
    out[position] = END;
}

/// Length of a key column without NULLs, if all values of the type take the same.
struct FixedLength;

impl PrimitiveVisitor for FixedLength {
    type Output = Option<usize>;
    fn visit<T: ArrowPrimitiveType>(self) -> Option<usize>
    where
        T::Native: KeyValue,
    {
        T::Native::KEY_WIDTH.map(|width| 1 + width)
    }
}

struct AddLengths<'p, 'a> {
    column: &'p Prepared<'a>,
    lengths: &'p mut [usize],
}

impl PrimitiveVisitor for AddLengths<'_, '_> {
    type Output = ();
    fn visit<T: ArrowPrimitiveType>(self)
    where
        T::Native: KeyValue,
    {
        let values = self.column.array.as_primitive::<T>().values();
        self.column.add_lengths_by(self.lengths, |row| values[row].key_length());
    }
}

struct Write<'p, 'a, 'w> {
    column: &'p Prepared<'a>,
    writer: &'p mut Writer<'w>,
}

impl PrimitiveVisitor for Write<'_, '_, '_> {
    type Output = ();
    fn visit<T: ArrowPrimitiveType>(self)
    where
        T::Native: KeyValue + FixedValue,
    {
        let array: &PrimitiveArray<T> = self.column.array.as_primitive();
        let values = &array.values()[..self.writer.positions.len()];
        self.column.write_by(
            self.writer,
            |row| T::Native::KEY_WIDTH.unwrap_or_else(|| values[row].key_length()),
            |row, out| {
                values[row].write_key(out);
                self.column.invert(out);
            },
        );
    }
}
