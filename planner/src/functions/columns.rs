//! Reading argument columns row by row, constants included, and building result columns.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, LargeStringArray, LargeStringBuilder, ListArray,
        PrimitiveArray, StringViewArray, StringViewBuilder,
    },
    compute::cast,
    datatypes::DataType,
};
use datafusion::logical_expr::ColumnarValue;

use super::kernel::Call;
use crate::error::{PlanError, Result};

/// An argument as an array, and the row at which a constant always stands.
struct Source {
    array: ArrayRef,
    constant: bool,
}

fn source(call: &Call<'_>, index: usize) -> Result<Source> {
    Ok(match &call.arguments[index] {
        ColumnarValue::Array(array) => Source { array: Arc::clone(array), constant: false },
        ColumnarValue::Scalar(value) => Source { array: value.to_array()?, constant: true },
    })
}

fn unexpected(found: &DataType) -> PlanError {
    PlanError::internal(format!("a function was called with an argument of type {found}"))
}

/// A text argument.
pub(crate) struct Texts {
    array: StringViewArray,
    constant: bool,
}

impl Texts {
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }

    /// The value of a constant argument that is not NULL.
    pub(crate) fn constant(&self) -> Option<&str> {
        if self.constant { self.get(0) } else { None }
    }
}

/// A JSON argument.
pub(crate) struct Jsons {
    array: LargeStringArray,
    constant: bool,
}

impl Jsons {
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// A bytea argument.
pub(crate) struct Binaries {
    array: BinaryArray,
    constant: bool,
}

impl Binaries {
    pub(crate) fn get(&self, row: usize) -> Option<&[u8]> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// A boolean argument.
pub(crate) struct Booleans {
    array: BooleanArray,
    constant: bool,
}

impl Booleans {
    pub(crate) fn get(&self, row: usize) -> Option<bool> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// An argument of a fixed-width type.
pub(crate) struct Values<T: ArrowPrimitiveType> {
    array: PrimitiveArray<T>,
    constant: bool,
}

impl<T: ArrowPrimitiveType> Values<T> {
    pub(crate) fn get(&self, row: usize) -> Option<T::Native> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// An array argument.
pub(crate) struct Lists {
    array: ListArray,
    constant: bool,
}

impl Lists {
    pub(crate) fn get(&self, row: usize) -> Option<ArrayRef> {
        let row = if self.constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

impl Call<'_> {
    pub(crate) fn texts(&self, index: usize) -> Result<Texts> {
        let Source { array, constant } = source(self, index)?;
        let array = match array.data_type() {
            DataType::Utf8View => array.as_string_view().clone(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Null => cast(&array, &DataType::Utf8View)?.as_string_view().clone(),
            other => return Err(unexpected(other)),
        };
        Ok(Texts { array, constant })
    }

    pub(crate) fn jsons(&self, index: usize) -> Result<Jsons> {
        let Source { array, constant } = source(self, index)?;
        match array.data_type() {
            DataType::LargeUtf8 => Ok(Jsons { array: array.as_string::<i64>().clone(), constant }),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn binaries(&self, index: usize) -> Result<Binaries> {
        let Source { array, constant } = source(self, index)?;
        let array = match array.data_type() {
            DataType::Binary => array.as_binary::<i32>().clone(),
            DataType::BinaryView | DataType::LargeBinary => cast(&array, &DataType::Binary)?.as_binary::<i32>().clone(),
            other => return Err(unexpected(other)),
        };
        Ok(Binaries { array, constant })
    }

    pub(crate) fn booleans(&self, index: usize) -> Result<Booleans> {
        let Source { array, constant } = source(self, index)?;
        match array.as_boolean_opt() {
            Some(values) => Ok(Booleans { array: values.clone(), constant }),
            None => Err(unexpected(array.data_type())),
        }
    }

    pub(crate) fn values<T: ArrowPrimitiveType>(&self, index: usize) -> Result<Values<T>> {
        let Source { array, constant } = source(self, index)?;
        match array.as_primitive_opt::<T>() {
            Some(values) => Ok(Values { array: values.clone(), constant }),
            None => Err(unexpected(array.data_type())),
        }
    }

    pub(crate) fn lists(&self, index: usize) -> Result<Lists> {
        let Source { array, constant } = source(self, index)?;
        match array.as_list_opt::<i32>() {
            Some(values) => Ok(Lists { array: values.clone(), constant }),
            None => Err(unexpected(array.data_type())),
        }
    }

    /// A fixed-width column, row by row.
    pub(crate) fn build<T: ArrowPrimitiveType>(&self, mut value: impl FnMut(usize) -> Result<Option<T::Native>>) -> Result<ArrayRef> {
        let mut builder = PrimitiveArray::<T>::builder(self.rows);
        for row in 0..self.rows {
            builder.append_option(value(row)?);
        }
        let array = builder.finish();
        Ok(if array.data_type() == self.result { Arc::new(array) } else { Arc::new(array.with_data_type(self.result.clone())) })
    }

    /// A boolean column, row by row.
    pub(crate) fn build_booleans(&self, mut value: impl FnMut(usize) -> Result<Option<bool>>) -> Result<ArrayRef> {
        let array: BooleanArray = (0..self.rows).map(&mut value).collect::<Result<_>>()?;
        Ok(Arc::new(array))
    }

    /// A text column, row by row.
    pub(crate) fn build_texts<S: AsRef<str>>(&self, mut value: impl FnMut(usize) -> Result<Option<S>>) -> Result<ArrayRef> {
        let mut builder = StringViewBuilder::with_capacity(self.rows);
        for row in 0..self.rows {
            match value(row)? {
                Some(text) => builder.try_append_value(text.as_ref())?,
                None => builder.append_null(),
            }
        }
        Ok(Arc::new(builder.finish()))
    }

    /// A JSON column, row by row.
    pub(crate) fn build_jsons<S: AsRef<str>>(&self, mut value: impl FnMut(usize) -> Result<Option<S>>) -> Result<ArrayRef> {
        let mut builder = LargeStringBuilder::with_capacity(self.rows, self.rows * 32);
        for row in 0..self.rows {
            match value(row)? {
                Some(text) => builder.append_value(text.as_ref()),
                None => builder.append_null(),
            }
        }
        Ok(Arc::new(builder.finish()))
    }

    /// A bytea column, row by row.
    pub(crate) fn build_binaries<S: AsRef<[u8]>>(&self, mut value: impl FnMut(usize) -> Result<Option<S>>) -> Result<ArrayRef> {
        let array: BinaryArray = (0..self.rows).map(&mut value).collect::<Result<Vec<Option<S>>>>()?.into_iter().collect();
        Ok(Arc::new(array))
    }
}
