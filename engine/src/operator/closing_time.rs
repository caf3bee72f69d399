//! Event time of an operator whose state dies as the watermark passes: what was received, what counts, and what is forwarded. A watermark
//! takes effect at the barrier, after the rows of the epoch.

use std::sync::Arc;

use arrow::compute::filter_record_batch;

use super::{
    OperatorContext, SideOutput,
    event_time::{micros, without_late},
};
use crate::{chunk::Chunk, error::Result, expression::keep_rows, message::Watermark};

/// See the module.
pub(crate) struct ClosingTime {
    operator: String,
    /// Columns that carry watermarks, with the one received and the one forwarded.
    columns: Vec<(usize, Option<i64>, Option<i64>)>,
    /// Place in `columns` of the one by which state dies.
    position: Option<usize>,
    /// Its watermark at the last barrier.
    applied: i64,
    side: Arc<dyn SideOutput>,
}

impl ClosingTime {
    /// Watermarks on `columns`; state dies by the one at `position`.
    pub(crate) fn new(operator: String, columns: &[usize], position: Option<usize>, context: &OperatorContext) -> Self {
        let columns = columns.iter().map(|column| (*column, None, None)).collect();
        Self { operator, columns, position, applied: context.applied_watermark, side: context.side.clone() }
    }

    /// Its watermark at the last barrier.
    pub(crate) fn applied(&self) -> i64 {
        self.applied
    }

    /// The column by which state dies.
    pub(crate) fn column(&self) -> Option<usize> {
        self.position.map(|position| self.columns[position].0)
    }

    /// Takes note of a watermark.
    pub(crate) fn receive(&mut self, watermark: Watermark) {
        for (column, received, _) in &mut self.columns {
            if *column == watermark.column {
                *received = (*received).max(Some(watermark.micros));
            }
        }
    }

    /// The rows of a chunk that are not late; the others go to the side output.
    pub(crate) fn divert_late(&self, chunk: Chunk) -> Result<Chunk> {
        let Some(column) = self.column().filter(|_| self.applied > i64::MIN) else { return Ok(chunk) };
        let times = micros(chunk.batch().column(column))?;
        let divert = |row, reason| self.side.late_row(&self.operator, row, reason, None);
        let Some(kept) = without_late(chunk.batch(), &times, self.applied, divert) else { return Ok(chunk) };
        Ok(keep_rows(&chunk, filter_record_batch(chunk.batch(), &kept)?, &kept))
    }

    /// The watermark that makes state die at this barrier, if it has moved since the last.
    pub(crate) fn closing(&self) -> Option<i64> {
        let (_, received, _) = self.columns[self.position?];
        received.filter(|received| *received > self.applied)
    }

    /// Ends the barrier: the watermark counts from now on. Gives the watermarks to forward, by column.
    pub(crate) fn close(&mut self) -> Vec<(usize, i64)> {
        self.applied = self.closing().unwrap_or(self.applied);
        let moved = self.columns.iter_mut().filter(|(_, received, forwarded)| received > forwarded);
        moved
            .filter_map(|(column, received, forwarded)| {
                *forwarded = *received;
                received.map(|micros| (*column, micros))
            })
            .collect()
    }
}
