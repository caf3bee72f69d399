//! Columns of variable-length bytes, whatever their Arrow layout: one way to read them and one way to build them.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray, StringArray,
        StringViewArray,
    },
    buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    datatypes::DataType,
};

use crate::error::{Result, StorageError};

/// A column whose values are byte strings.
pub(super) enum ByteColumn<'a> {
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    FixedSize(&'a FixedSizeBinaryArray),
}

impl<'a> ByteColumn<'a> {
    /// The column behind an array, if it is of such a type.
    pub(super) fn of(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => Self::Utf8(array.as_string()),
            DataType::LargeUtf8 => Self::LargeUtf8(array.as_string()),
            DataType::Utf8View => Self::Utf8View(array.as_string_view()),
            DataType::Binary => Self::Binary(array.as_binary()),
            DataType::LargeBinary => Self::LargeBinary(array.as_binary()),
            DataType::BinaryView => Self::BinaryView(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => Self::FixedSize(array.as_fixed_size_binary()),
            _ => return None,
        })
    }

    /// The bytes at `index`; those of a NULL mean nothing.
    #[inline]
    pub(super) fn value(&self, index: usize) -> &'a [u8] {
        match self {
            Self::Utf8(array) => array.value(index).as_bytes(),
            Self::LargeUtf8(array) => array.value(index).as_bytes(),
            Self::Utf8View(array) => array.value(index).as_bytes(),
            Self::Binary(array) => array.value(index),
            Self::LargeBinary(array) => array.value(index),
            Self::BinaryView(array) => array.value(index),
            Self::FixedSize(array) => array.value(index),
        }
    }
}

/// Builds a byte column of any layout: values are appended to one buffer, which is checked (UTF-8) and laid out once at the end.
pub(super) struct ByteColumnBuilder {
    ends: Vec<i64>,
    pub(super) data: Vec<u8>,
}

impl ByteColumnBuilder {
    pub(super) fn with_capacity(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { ends, data: Vec::new() }
    }

    /// Appends a value (for a NULL: an empty one).
    pub(super) fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.end_value();
    }

    /// Ends the value that was written to `data` directly.
    pub(super) fn end_value(&mut self) {
        self.ends.push(self.data.len() as i64);
    }

    /// The column. Bytes that are not UTF-8 in a text type are an error.
    pub(super) fn finish(self, data_type: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
        let data = Buffer::from_vec(self.data);
        if matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary) {
            let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
            return Ok(match data_type {
                DataType::LargeUtf8 => Arc::new(LargeStringArray::try_new(ends, data, nulls)?),
                _ => Arc::new(LargeBinaryArray::try_new(ends, data, nulls)?),
            });
        }
        if data.len() > i32::MAX as usize {
            return Err(StorageError::Internal(format!("a batch of {} bytes in one column is too large", data.len())));
        }
        let ends = OffsetBuffer::new(self.ends.iter().map(|end| *end as i32).collect::<ScalarBuffer<i32>>());
        Ok(match data_type {
            DataType::Utf8 => Arc::new(StringArray::try_new(ends, data, nulls)?),
            DataType::Utf8View => Arc::new(StringViewArray::from(&StringArray::try_new(ends, data, nulls)?)),
            DataType::Binary => Arc::new(BinaryArray::try_new(ends, data, nulls)?),
            DataType::BinaryView => Arc::new(BinaryViewArray::from(&BinaryArray::try_new(ends, data, nulls)?)),
            other => return Err(StorageError::Internal(format!("{other} is not a type of byte strings"))),
        })
    }
}
