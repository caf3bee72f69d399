//! Assigns rows to hopping (or tumbling) windows: appends `window_start` and `window_end`, one output row per window that contains the row.
//!
//! Any changelog in, the same kind out. No state. Windows start at `offset + n * slide` for every integer n, also negative, and contain
//! `[start, start + size)`. A NULL time is in no window. A row whose time is infinite, or of which a window is not a time that can be told, goes to
//! the side output. A watermark of the time column passes under that column and, reduced to the
//! earliest window that a later row can be in, under both window columns.
//! Cost: a chunk whose rows are in k windows each gives k chunks that share their columns; only the two window columns are computed.

use std::sync::Arc;

use crate::{
    chunk::{Chunk, row_text},
    error::{EngineError, Result},
    expression::keep_rows,
    format::timestamp::{DAY_US, civil_from_days, days_from_civil},
    graph::WindowStep,
    message::Watermark,
    operator::{Operator, Output, Progress, SideOutput},
};
use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, TimestampMicrosecondArray},
    buffer::{BooleanBuffer, ScalarBuffer},
    compute::{filter_record_batch, max, min},
    datatypes::{DataType, SchemaRef, TimestampMicrosecondType},
    record_batch::RecordBatch,
};

/// See the module.
pub(crate) struct HopWindow {
    time_column: usize,
    windows: Windows,
    schema: SchemaRef,
    name: String,
    side: Arc<dyn SideOutput>,
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
    /// `name` is how the side output knows it.
    pub(crate) fn new(
        name: String,
        time_column: usize,
        (slide, size, offset_us): (WindowStep, WindowStep, i64),
        schema: SchemaRef,
        side: Arc<dyn SideOutput>,
    ) -> Result<Self> {
        let windows = match (slide, size) {
            (WindowStep::Micros(slide), WindowStep::Micros(size)) if slide > 0 && size > 0 => {
                Windows::Micros { slide, size, offset: offset_us.rem_euclid(slide) }
            }
            (WindowStep::Months(slide), WindowStep::Months(months)) if months > 0 && slide == months => {
                Windows::Months { months, offset: offset_us }
            }
            _ => return Err(EngineError::user("22023", "window size and slide must be positive and of one kind")),
        };
        Ok(Self { time_column, windows, schema, name, side, place: None })
    }

    /// Leaves out rows whose windows cannot be told, and says which. A function of the row: its deletion is left out as well.
    fn without_boundless(&self, chunk: Chunk) -> Result<Chunk> {
        let times = chunk.batch().column(self.time_column).as_primitive::<TimestampMicrosecondType>();
        // Between two times that have windows all have.
        if min(times).into_iter().chain(max(times)).all(|time| self.windows.are_bounded_at(time)) {
            return Ok(chunk);
        }
        let kept: Vec<bool> = times.iter().map(|time| time.is_none_or(|time| self.windows.are_bounded_at(time))).collect();
        for row in (0..kept.len()).filter(|row| !kept[*row]) {
            self.side.bad_row(&self.name, row_text(chunk.batch(), row), "timestamp out of range".to_string(), None);
        }
        let kept = BooleanArray::from(kept);
        Ok(keep_rows(&chunk, filter_record_batch(chunk.batch(), &kept)?, &kept))
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
        self.place = Some((self.without_boundless(chunk)?, 0));
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

    /// Whether all windows that contain a time begin and end at times that can be told.
    fn are_bounded_at(&self, time: i64) -> bool {
        if time == i64::MAX || time == i64::MIN {
            return false;
        }
        match *self {
            Windows::Micros { slide, size, offset } => {
                let earliest = (size - 1) / slide * slide;
                latest_start(time, slide, offset)
                    .is_some_and(|latest| latest.checked_sub(earliest).is_some() && latest.checked_add(size).is_some())
            }
            Windows::Months { .. } => self.containing(time, 0).is_some(),
        }
    }

    /// The window number `back` of `time`, counted from the latest window that contains it; `None` where there is none or where it
    /// is outside of representable time.
    fn containing(&self, time: i64, back: i64) -> Option<(i64, i64)> {
        match *self {
            Windows::Micros { slide, size, offset } => {
                let latest = latest_start(time, slide, offset)?;
                let start = latest.checked_sub(back.checked_mul(slide)?)?;
                let end = start.checked_add(size)?;
                (end > time).then_some((start, end))
            }
            Windows::Months { months, offset } => {
                let (year, month, _) = civil_from_days(time.checked_sub(offset)?.div_euclid(DAY_US));
                let month = (year - 1970) * 12 + i64::from(month) - 1;
                let first = month - month.rem_euclid(i64::from(months));
                let start = month_start(first)?.checked_add(offset)?;
                let end = month_start(first + i64::from(months))?.checked_add(offset)?;
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
                let latest = latest_start(micros, slide, offset)?;
                let before = (size - 1 - (micros - latest)).div_euclid(slide).max(0);
                let start = latest.checked_sub(before.checked_mul(slide)?)?;
                Some((start, start.checked_add(size)?))
            }
            Windows::Months { .. } => self.containing(micros, 0),
        }
    }
}

/// Where the last window starts that has begun at a time.
fn latest_start(time: i64, slide: i64, offset: i64) -> Option<i64> {
    time.checked_sub(time.wrapping_sub(offset).rem_euclid(slide))
}

/// Midnight of the first day of a month, counted from January 1970, in microseconds.
fn month_start(month: i64) -> Option<i64> {
    let year = i32::try_from(1970 + month.div_euclid(12)).ok()?;
    i64::from(days_from_civil(year, month.rem_euclid(12) as u32 + 1, 1)?).checked_mul(DAY_US)
}

#[cfg(test)]
mod tests;
