//! Event time in columns of dates and timestamps.

use arrow::{
    array::{ArrayRef, AsArray, Int64Array},
    compute::cast,
    datatypes::{DataType, Int64Type, TimeUnit},
};

use crate::error::Result;

/// A date or timestamp column in microseconds since 1970.
pub(crate) fn micros(column: &ArrayRef) -> Result<Int64Array> {
    let time = match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => cast(column, &DataType::Int64)?,
        _ => cast(&cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?, &DataType::Int64)?,
    };
    Ok(time.as_primitive::<Int64Type>().clone())
}
