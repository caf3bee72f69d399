//! Event time in columns of dates and timestamps.

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array},
    buffer::BooleanBuffer,
    compute::cast,
    datatypes::{DataType, Int64Type, TimeUnit},
    record_batch::RecordBatch,
};

use crate::{chunk::row_text, error::Result};

/// A date or timestamp column in microseconds since 1970.
pub(crate) fn micros(column: &ArrayRef) -> Result<Int64Array> {
    let time = match column.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => cast(column, &DataType::Int64)?,
        _ => cast(&cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?, &DataType::Int64)?,
    };
    Ok(time.as_primitive::<Int64Type>().clone())
}

/// Which rows are not below a watermark; `None` if all are not. The text of each that is, and the reason, go to `divert`.
pub(crate) fn without_late(
    batch: &RecordBatch,
    times: &Int64Array,
    below: i64,
    mut divert: impl FnMut(String, String),
) -> Option<BooleanArray> {
    let late = |row: usize| times.is_valid(row) && times.value(row) < below;
    if !(0..times.len()).any(late) {
        return None;
    }
    for row in (0..times.len()).filter(|row| late(*row)) {
        divert(row_text(batch, row), format!("event time is below the watermark {below}"));
    }
    Some(BooleanArray::new(BooleanBuffer::collect_bool(times.len(), |row| !late(row)), None))
}
