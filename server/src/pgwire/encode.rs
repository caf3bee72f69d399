//! DataRow messages from Arrow batches, written straight into the output buffer.

use arrow::array::{Array, AsArray, Float64Array, Int16Array, Int32Array, Int64Array, StringArray, StringViewArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use millpond_planner::pg_text::{TextSettings, write_float8, write_integer, write_text};

use super::binary_write::write_binary;
use super::outbox::{begin_message, end_message};
use super::types::{INT4, INT8};
use crate::answer::Column;
use crate::error::SqlError;

/// The format of every column of a result: none named is text, one is for all.
#[derive(Clone, Debug, Default)]
pub(super) struct Formats(pub(super) Vec<bool>);

impl Formats {
    pub(super) fn is_binary(&self, column: usize) -> bool {
        match self.0.as_slice() {
            [] => false,
            [all] => *all,
            each => each.get(column).copied().unwrap_or(false),
        }
    }
}

/// Writes the rows of one batch.
pub(super) struct RowEncoder<'a> {
    columns: Vec<ColumnEncoder<'a>>,
    settings: &'a TextSettings,
}

struct ColumnEncoder<'a> {
    nulls: Option<NullBuffer>,
    values: Values<'a>,
}

/// The common types have arms of their own, to spare a lookup of the type for each value.
enum Values<'a> {
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Float64(&'a Float64Array),
    Int32Binary(&'a Int32Array),
    Int64Binary(&'a Int64Array),
    Strings(&'a StringArray),
    StringViews(&'a StringViewArray),
    Text(&'a dyn Array),
    Binary(&'a dyn Array, i32),
}

impl<'a> RowEncoder<'a> {
    /// `columns` describes the batch's columns, in order.
    pub(super) fn new(batch: &'a RecordBatch, columns: &[Column], formats: &Formats, settings: &'a TextSettings) -> Result<Self, SqlError> {
        if batch.num_columns() != columns.len() {
            return Err(SqlError::internal(format!("{} columns were announced, {} came", columns.len(), batch.num_columns())));
        }
        let encoder = |(at, array): (usize, &'a arrow::array::ArrayRef)| {
            let array = array.as_ref();
            let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
            ColumnEncoder { nulls, values: Values::of(array, columns[at].type_oid, formats.is_binary(at)) }
        };
        Ok(Self { columns: batch.columns().iter().enumerate().map(encoder).collect(), settings })
    }

    /// Appends the DataRow of a row.
    ///
    /// # Errors
    /// 0A000 and the like for a value that has no such form; the buffer is then as before.
    pub(super) fn write_row(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let restore = out.len();
        let start = begin_message(b'D', out);
        out.extend_from_slice(&(self.columns.len() as u16).to_be_bytes());
        for column in &self.columns {
            if column.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                out.extend_from_slice(&(-1_i32).to_be_bytes());
                continue;
            }
            let length_at = out.len();
            out.extend_from_slice(&[0; 4]);
            if let Err(error) = column.values.write(row, self.settings, out) {
                out.truncate(restore);
                return Err(error);
            }
            let length = (out.len() - length_at - 4) as u32;
            out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        }
        end_message(start, out);
        Ok(())
    }
}

impl<'a> Values<'a> {
    fn of(array: &'a dyn Array, oid: i32, is_binary: bool) -> Self {
        match (array.data_type(), is_binary) {
            // Text has one form only.
            (DataType::Utf8, _) => Self::Strings(array.as_string()),
            (DataType::Utf8View, _) => Self::StringViews(array.as_string_view()),
            (DataType::Int16, false) => Self::Int16(array.as_primitive()),
            (DataType::Int32, false) => Self::Int32(array.as_primitive()),
            (DataType::Int64, false) => Self::Int64(array.as_primitive()),
            (DataType::Float64, false) => Self::Float64(array.as_primitive()),
            (DataType::Int32, true) if oid == INT4 => Self::Int32Binary(array.as_primitive()),
            (DataType::Int64, true) if oid == INT8 => Self::Int64Binary(array.as_primitive()),
            (_, false) => Self::Text(array),
            (_, true) => Self::Binary(array, oid),
        }
    }

    fn write(&self, row: usize, settings: &TextSettings, out: &mut Vec<u8>) -> Result<(), SqlError> {
        match self {
            Self::Int16(array) => write_integer(array.value(row).into(), out),
            Self::Int32(array) => write_integer(array.value(row).into(), out),
            Self::Int64(array) => write_integer(array.value(row), out),
            Self::Float64(array) => write_float8(array.value(row), settings.extra_float_digits, out),
            Self::Int32Binary(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
            Self::Int64Binary(array) => out.extend_from_slice(&array.value(row).to_be_bytes()),
            Self::Strings(array) => out.extend_from_slice(array.value(row).as_bytes()),
            Self::StringViews(array) => out.extend_from_slice(array.value(row).as_bytes()),
            Self::Text(array) => write_text(*array, row, settings, out)?,
            Self::Binary(array, oid) => write_binary(*array, row, *oid, out)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;

    use super::*;

    fn column(type_oid: i32) -> Column {
        Column { name: "c".to_string(), data_type: DataType::Int32, type_oid, type_modifier: -1, table_oid: 0, column_number: 0 }
    }

    #[test]
    fn a_row_is_one_message() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(-7), None]));
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["é", ""]));
        let batch = RecordBatch::try_from_iter_with_nullable([("a", numbers, true), ("b", texts, true)]).expect("a batch");
        let columns = [column(INT4), column(super::super::types::TEXT)];
        let settings = TextSettings::default();
        let mut out = Vec::new();
        let text = RowEncoder::new(&batch, &columns, &Formats::default(), &settings).expect("an encoder");
        text.write_row(0, &mut out).expect("a row");
        assert_eq!(out, b"D\0\0\0\x12\0\x02\0\0\0\x02-7\0\0\0\x02\xc3\xa9");
        out.clear();
        let binary = RowEncoder::new(&batch, &columns, &Formats(vec![true]), &settings).expect("an encoder");
        binary.write_row(0, &mut out).expect("a row");
        binary.write_row(1, &mut out).expect("a row");
        assert_eq!(out, b"D\0\0\0\x14\0\x02\0\0\0\x04\xff\xff\xff\xf9\0\0\0\x02\xc3\xa9D\0\0\0\x0e\0\x02\xff\xff\xff\xff\0\0\0\0");
        assert!(RowEncoder::new(&batch, &columns[..1], &Formats::default(), &settings).is_err());
    }

    #[test]
    fn a_value_without_a_form_leaves_the_buffer_as_it_was() {
        let list = arrow::array::UInt64Array::from(vec![u64::MAX]);
        let batch = RecordBatch::try_from_iter([("a", Arc::new(list) as ArrayRef)]).expect("a batch");
        let columns = [column(INT8)];
        let settings = TextSettings::default();
        let encoder = RowEncoder::new(&batch, &columns, &Formats(vec![true]), &settings).expect("an encoder");
        let mut out = b"before".to_vec();
        assert_eq!(encoder.write_row(0, &mut out).expect_err("too large").sqlstate, "22003");
        assert_eq!(out, b"before");
    }

    #[test]
    fn formats_are_none_one_or_each() {
        let is_binary = |formats: &[bool]| (0..3).map(|at| Formats(formats.to_vec()).is_binary(at)).collect::<Vec<_>>();
        assert_eq!(is_binary(&[]), [false; 3]);
        assert_eq!(is_binary(&[true]), [true; 3]);
        assert_eq!(is_binary(&[true, false, true]), [true, false, true]);
    }
}
