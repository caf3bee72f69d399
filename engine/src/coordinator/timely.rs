//! Event time of a table: what of its transactions gets in, and the watermark after them.

use arrow::{
    array::{Array, Int64Array},
    compute::filter_record_batch,
};
use millpond_storage::{epoch::Epoch, signed_batch::SignedBatch};

use crate::{
    error::Result,
    operator::event_time::{micros, without_late},
    side::JobSide,
    source::options::WatermarkSpec,
};

/// What gets into a table.
pub(super) struct Timely {
    pub(super) batches: Vec<SignedBatch>,
    /// The watermark after it: column, microseconds.
    pub(super) watermark: Option<(usize, i64)>,
}

impl Timely {
    /// Of transactions in their order, after a watermark. The new one is behind the greatest event time that was ever inserted; a deletion does
    /// not take it back. With a `late` side, rows below the watermark of the transactions before theirs go there, whatever epoch they are in.
    pub(super) fn new(
        (watermark, mut reached): (WatermarkSpec, Option<i64>),
        transactions: Vec<Vec<SignedBatch>>,
        epoch: Epoch,
        late: Option<&JobSide>,
    ) -> Result<Self> {
        let mut kept = Vec::new();
        for batches in transactions {
            let before = reached;
            for changes in batches {
                let times = micros(changes.batch.column(watermark.column))?;
                let inserted = (0..times.len()).filter(|row| times.is_valid(*row) && changes.sign(*row) > 0);
                let newest = inserted.map(|row| times.value(row)).max();
                reached = reached.max(newest.map(|newest| newest.saturating_sub(watermark.delay)));
                kept.push(match (late, before) {
                    (Some(side), Some(before)) => on_time(changes, &times, before, |row, reason| side.late_row_of(epoch, row, reason))?,
                    (Some(_), None) | (None, _) => changes,
                });
            }
        }
        Ok(Self { batches: kept, watermark: reached.map(|micros| (watermark.column, micros)) })
    }
}

/// The changes without the rows whose time is below a watermark, which go to `divert`.
fn on_time(changes: SignedBatch, times: &Int64Array, below: i64, divert: impl FnMut(String, String)) -> Result<SignedBatch> {
    let Some(kept) = without_late(&changes.batch, times, below, divert) else { return Ok(changes) };
    let signs = changes.signs.map(|signs| signs.iter().zip(kept.values()).filter(|(_, kept)| *kept).map(|(sign, _)| *sign).collect());
    Ok(SignedBatch { batch: filter_record_batch(&changes.batch, &kept)?, signs })
}
