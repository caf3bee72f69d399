//! The driver's word to all subtasks of a job that a checkpoint is to wait no longer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Shared by a job's driver and its subtasks.
#[derive(Debug, Default)]
pub struct Switch {
    unaligned: AtomicU64,
    wakes: Mutex<Vec<Arc<Notify>>>,
}

impl Switch {
    /// A subtask is to be woken.
    pub fn add(&self, wake: Arc<Notify>) {
        self.wakes.lock().push(wake);
    }

    /// The barrier of this checkpoint passes what is in its way from now on.
    pub fn switch(&self, checkpoint: Epoch) {
        self.unaligned.fetch_max(checkpoint.0, Ordering::AcqRel);
        self.wakes.lock().iter().for_each(|wake| wake.notify_one());
    }

    /// The newest checkpoint that waits no longer; 0 if there is none.
    pub fn unaligned(&self) -> Epoch {
        Epoch(self.unaligned.load(Ordering::Acquire))
    }
}
