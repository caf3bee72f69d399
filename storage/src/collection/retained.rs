//! Deltas that are not in the base yet: in memory, or only in the delta log.

use std::{sync::Arc, time::Duration};

use super::{
    delta::{KeyFilter, StoredDelta},
    delta_log::{DeltaPlace, Links},
    layout::Layout,
};
use crate::{
    epoch::Epoch,
    error::{Result, StorageError},
};

/// A delta of the collection. At least one of `stored` and `place` is there.
#[derive(Clone, Debug)]
pub(super) struct Retained {
    pub(super) from: Epoch,
    pub(super) to: Epoch,
    pub(super) links: Links,
    pub(super) watermark_us: Option<(usize, i64)>,
    /// All rows, whatever their sign.
    pub(super) rows: u64,
    /// By how many rows the collection grows.
    pub(super) growth: i64,
    /// Bytes in memory, when it is there.
    pub(super) bytes: usize,
    /// When it was sealed, or recovered.
    pub(super) sealed_at: Duration,
    pub(super) filter: KeyFilter,
    pub(super) stored: Option<Arc<StoredDelta>>,
    pub(super) place: Option<DeltaPlace>,
}

impl Retained {
    pub(super) fn new(stored: Arc<StoredDelta>, links: Links, sealed_at: Duration, place: Option<DeltaPlace>) -> Self {
        let delta = &stored.delta;
        Self {
            from: delta.from,
            to: delta.to,
            links,
            watermark_us: delta.watermark_us,
            rows: stored.rows() as u64,
            growth: stored.row_growth(),
            bytes: stored.bytes(),
            filter: stored.runs.filter(),
            sealed_at,
            place,
            stored: Some(stored),
        }
    }

    /// The ordinal behind its last row.
    pub(super) fn end_ordinal(&self) -> u64 {
        self.links.first_ordinal + self.rows
    }

    /// The delta, read back if it is not in memory.
    pub(super) fn load(&self, layout: &Layout) -> Result<Arc<StoredDelta>> {
        match (&self.stored, &self.place) {
            (Some(stored), _) => Ok(stored.clone()),
            (None, Some(place)) => Ok(Arc::new(StoredDelta::index(layout, place.read()?)?)),
            (None, None) => Err(StorageError::Internal("a delta is neither in memory nor in the log".into())),
        }
    }

    /// Whether the contents between its ends are unknown.
    pub(super) fn hides(&self, epoch: Epoch) -> bool {
        self.from < epoch && epoch < self.to
    }
}
