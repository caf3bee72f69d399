//! Assigns rows to hopping (or tumbling) windows: appends `window_start` and `window_end`, one output row per window that contains the row.
//!
//! Any changelog in, the same kind out. No state. Windows start at `offset + n * slide` for every integer n, also negative, and contain
//! `[start, start + size)`. A NULL time is in no window. A watermark of the time column passes under that column and, reduced to the
//! earliest window that a later row can be in, under both window columns.
//! Cost: a chunk whose rows are in k windows each gives k chunks that share their columns; only the two window columns are computed.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, TimestampMicrosecondArray},
    buffer::{BooleanBuffer, ScalarBuffer},
    compute::filter_record_batch,
    datatypes::{DataType, SchemaRef, TimestampMicrosecondType},
    record_batch::RecordBatch,
};
use chrono::{DateTime, Datelike, NaiveDate};

use crate::{
    chunk::Chunk,
    error::{EngineError, Result},
    expression::keep_rows,
    graph::WindowStep,
    message::Watermark,
    operator::{Operator, Output, Progress},
};

/// See the module.
pub(crate) struct HopWindow {
    time_column: usize,
    windows: Windows,
    schema: SchemaRef,
    /// The chunk being expanded, and the next of its windows counted back from the latest one.
    place: Option<(Chunk, i64)>,
}

/// Which windows there are.
#[derive(Clone, Copy, Debug)]
enum Windows {
    /// Windows of `size` microseconds every `slide` microseconds.
    Micros { slide: i64, size: i64, offset: i64 },
    /// Tumbling windows of calendar months, counted from January 1970.
    Months { months: i32, offset: i64 },
}

impl HopWindow {
    /// An assigner whose output has the columns of `schema`: those of the input and the two window columns.
    pub(crate) fn new(time_column: usize, slide: WindowStep, size: WindowStep, offset_us: i64, schema: SchemaRef) -> Result<Self> {
        let windows = match (slide, size) {
            (WindowStep::Micros(slide), WindowStep::Micros(size)) if slide > 0 && size > 0 => {
                Windows::Micros { slide, size, offset: offset_us.rem_euclid(slide) }
            }
            (WindowStep::Months(slide), WindowStep::Months(months)) if months > 0 && slide == months => {
                Windows::Months { months, offset: offset_us }
            }
            _ => return Err(EngineError::user("22023", "window size and slide must be positive and of one kind")),
        };
        Ok(Self { time_column, windows, schema, place: None })
    }

    /// Emits the chunk once per window, from the place reached.
    fn expand(&mut self, out: &mut Output) -> Result<Progress> {
        let Some((chunk, first)) = self.place.take() else { return Ok(Progress::Done) };
        for back in first..self.windows.per_row() {
            if out.is_full() {
                self.place = Some((chunk, back));
                return Ok(Progress::More);
            }
            if let Some(chunk) = self.window_chunk(&chunk, back)? {
                out.emit(chunk);
            }
        }
        Ok(Progress::Done)
    }

    /// The rows with their window number `back`, counted from the latest window that contains the row.
    fn window_chunk(&self, chunk: &Chunk, back: i64) -> Result<Option<Chunk>> {
        let times = chunk.batch().column(self.time_column).as_primitive::<TimestampMicrosecondType>();
        let rows = times.len();
        let (mut starts, mut ends) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut inside = Vec::new();
        for (row, time) in times.values().iter().enumerate() {
            let window = if times.is_null(row) { None } else { self.windows.containing(*time, back) };
            if window.is_none() && inside.is_empty() {
                inside = vec![true; rows];
            }
            let (start, end) = window.unwrap_or_else(|| {
                inside[row] = false;
                (0, 0)
            });
            starts.push(start);
            ends.push(end);
        }
        let zone = match times.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let column = |values: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::new(ScalarBuffer::from(values), None).with_timezone_opt(zone.clone()))
        };
        let mut columns = chunk.batch().columns().to_vec();
        columns.extend([column(starts), column(ends)]);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        if inside.is_empty() {
            return Ok(Some(chunk.with_batch(batch)));
        }
        let kept = BooleanArray::new(BooleanBuffer::from(inside), None);
        if kept.true_count() == 0 {
            return Ok(None);
        }
        Ok(Some(keep_rows(chunk, filter_record_batch(&batch, &kept)?, &kept)))
    }
}

impl Operator for HopWindow {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress> {
        self.place = Some((chunk, 0));
        self.expand(out)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress> {
        self.expand(out)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, out: &mut Output) -> Result<Progress> {
        out.emit_watermark(watermark);
        if watermark.column == self.time_column {
            let columns = self.schema.fields().len();
            if let Some((start, end)) = self.windows.earliest_open(watermark.micros) {
                out.emit_watermark(Watermark { column: columns - 2, micros: start });
                out.emit_watermark(Watermark { column: columns - 1, micros: end });
            }
        }
        Ok(Progress::Done)
    }
}

impl Windows {
    /// The most windows a row can be in.
    fn per_row(&self) -> i64 {
        match self {
            Windows::Micros { slide, size, .. } => size / slide + i64::from(size % slide != 0),
            Windows::Months { .. } => 1,
        }
    }

    /// The window number `back` of `time`, counted from the latest window that contains it; `None` where there is none or where it
    /// is outside of representable time.
    fn containing(&self, time: i64, back: i64) -> Option<(i64, i64)> {
        match *self {
            Windows::Micros { slide, size, offset } => {
                let latest = time.checked_sub((time.wrapping_sub(offset)).rem_euclid(slide))?;
                let start = latest.checked_sub(back.checked_mul(slide)?)?;
                let end = start.checked_add(size)?;
                (end > time).then_some((start, end))
            }
            Windows::Months { months, offset } => {
                let date = DateTime::from_timestamp_micros(time.checked_sub(offset)?)?.date_naive();
                let month = (date.year() - 1970) * 12 + date.month0() as i32;
                let first = month - month.rem_euclid(months);
                let start = month_start(first)?.checked_add(offset)?;
                let end = month_start(first.checked_add(months)?)?.checked_add(offset)?;
                Some((start, end))
            }
        }
    }

    /// The earliest window that contains a time of at least `micros`. The end of time stays the end of time.
    fn earliest_open(&self, micros: i64) -> Option<(i64, i64)> {
        if micros == i64::MAX {
            return Some((i64::MAX, i64::MAX));
        }
        match *self {
            // With gaps between the windows, the window that follows the gap is not opened early: the last started one is a lower bound.
            Windows::Micros { slide, size, offset } => {
                let latest = micros.checked_sub(micros.wrapping_sub(offset).rem_euclid(slide))?;
                let before = (size - 1 - (micros - latest)).div_euclid(slide).max(0);
                let start = latest.checked_sub(before.checked_mul(slide)?)?;
                Some((start, start.checked_add(size)?))
            }
            Windows::Months { .. } => self.containing(micros, 0),
        }
    }
}

/// Midnight of the first day of a month, counted from January 1970, in microseconds.
fn month_start(month: i32) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(1970 + month.div_euclid(12), month.rem_euclid(12) as u32 + 1, 1)?;
    Some(date.and_hms_opt(0, 0, 0)?.and_utc().timestamp_micros())
}

#[cfg(test)]
mod tests;
