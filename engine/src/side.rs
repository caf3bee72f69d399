//! Late and bad rows: counted always, the newest kept.

use std::{
    collections::VecDeque,
    sync::{
        Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;

use crate::{
    engine::Shared,
    operator::{Origin, SideOutput},
    source::Offset,
};

/// Rows kept of each kind.
const ROWS_KEPT: usize = 1000;

/// A row that an operator refused.
#[derive(Clone, Debug)]
pub struct SideRow {
    /// The job.
    pub job: u64,
    /// The operator.
    pub operator: String,
    /// The epoch that was open.
    pub epoch: Epoch,
    /// Its text.
    pub row: String,
    /// Why it was refused.
    pub reason: String,
    /// The split of the source it was read from.
    pub split: Option<String>,
    /// The offset behind it in the split.
    pub offset: Option<Offset>,
    /// When it was refused, in microseconds since 1970.
    pub time_us: i64,
}

/// The newest rows of one kind.
#[derive(Debug, Default)]
pub struct SideRows {
    count: AtomicU64,
    newest: Mutex<VecDeque<SideRow>>,
}

impl SideRows {
    /// Adds a row.
    pub fn push(&self, row: SideRow) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut newest = self.newest.lock();
        if newest.len() == ROWS_KEPT {
            newest.pop_front();
        }
        newest.push_back(row);
    }

    /// Rows since start.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The rows kept, oldest first.
    pub fn rows(&self) -> Vec<SideRow> {
        self.newest.lock().iter().cloned().collect()
    }
}

/// Where the operators of a job leave rows.
pub(crate) struct JobSide {
    pub(crate) shared: Weak<Shared>,
    pub(crate) job: u64,
}

impl JobSide {
    /// A row that a table took in `epoch` and puts aside.
    pub(crate) fn late_row_of(&self, epoch: Epoch, row_text: String, reason: String) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.late.push(SideRow { epoch, ..self.row(&shared, "Table", row_text, reason, None) });
    }

    fn row(&self, shared: &Shared, operator: &str, row: String, reason: String, origin: Option<Origin<'_>>) -> SideRow {
        SideRow {
            job: self.job,
            operator: operator.to_string(),
            epoch: shared.coordinator.open_epoch(),
            row,
            reason,
            split: origin.map(|origin| origin.split.to_string()),
            offset: origin.and_then(|origin| origin.offset),
            time_us: shared.coordinator.clock().wall_micros(),
        }
    }
}

impl SideOutput for JobSide {
    fn late_row(&self, operator: &str, row_text: String, reason: String, origin: Option<Origin<'_>>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.late.push(self.row(&shared, operator, row_text, reason, origin));
        }
    }

    fn bad_row(&self, operator: &str, row_text: String, reason: String, origin: Option<Origin<'_>>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.bad.push(self.row(&shared, operator, row_text, reason, origin));
        }
    }
}
