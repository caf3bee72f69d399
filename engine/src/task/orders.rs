//! What a driver tells its subtasks and readers beside messages.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;

use super::fault::Faults;

/// What is restarted when a subtask fails.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recovery {
    /// The whole job, from its last checkpoint. Nothing is kept for it while it runs.
    #[default]
    Job,
    /// The subtask alone, which goes on with all it had taken since the last checkpoint: contents are as if it had not failed.
    ExactlyOnce,
    /// The subtask alone, which goes on with the next message: what it had taken since the last checkpoint is lost.
    Approximate,
}

impl Recovery {
    /// The word that stands for it in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::ExactlyOnce => "exactly_once",
            Self::Approximate => "approximate",
        }
    }
}

/// Orders that are looked at when they matter. One of these serves all attempts of a job.
#[derive(Debug, Default)]
pub struct Orders {
    log_age_us: AtomicI64,
    skip_bad_rows: AtomicBool,
    hand_over_at: AtomicU64,
    debloat_target_us: AtomicU64,
    recovery: Mutex<Recovery>,
    /// Where subtasks have failed, and what follows from it.
    pub faults: Faults,
}

impl Orders {
    /// Age in microseconds at which a change of state goes to the changelog without waiting for a checkpoint.
    pub fn log_age_us(&self) -> i64 {
        self.log_age_us.load(Ordering::Relaxed)
    }

    /// See [`Self::log_age_us`].
    pub fn set_log_age_us(&self, age_us: i64) {
        self.log_age_us.store(age_us, Ordering::Relaxed);
    }

    /// The time within which a subtask should take what its channels hold; zero if they may hold as much as they can.
    pub fn debloat_target(&self) -> Duration {
        Duration::from_micros(self.debloat_target_us.load(Ordering::Relaxed))
    }

    /// See [`Self::debloat_target`].
    pub fn set_debloat_target(&self, target: Duration) {
        self.debloat_target_us.store(u64::try_from(target.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Divert bad rows whatever their source says of them.
    pub fn skip_bad_rows(&self) -> bool {
        self.skip_bad_rows.load(Ordering::Relaxed)
    }

    /// See [`Self::skip_bad_rows`].
    pub fn set_skip_bad_rows(&self, skip: bool) {
        self.skip_bad_rows.store(skip, Ordering::Relaxed);
    }

    /// What is restarted when a subtask fails. What it has taken is kept only for a recovery that is exactly-once and of it alone.
    pub fn recovery(&self) -> Recovery {
        *self.recovery.lock()
    }

    /// See [`Self::recovery`].
    pub fn set_recovery(&self, recovery: Recovery) {
        *self.recovery.lock() = recovery;
    }

    /// Whether the checkpoint of an epoch is the attempt's last: then a subtask leaves its state to those of the next attempt.
    pub fn hands_over_at(&self, epoch: Epoch) -> bool {
        self.hand_over_at.load(Ordering::Acquire) == epoch.0
    }

    /// See [`Self::hands_over_at`]; epoch 0 is none. To be set before the barrier is sent.
    pub fn hand_over_at(&self, epoch: Epoch) {
        self.hand_over_at.store(epoch.0, Ordering::Release);
    }
}
