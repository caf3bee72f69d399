//! What each recovery of a job took: the way from a failure, a restart of the server or an order until the job is where it had been.

use std::time::{Duration, Instant};

use millpond_storage::{checkpoint::ImageSources, epoch::Epoch};

/// Why a job had to be started again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecoveryCause {
    /// The server was started.
    Restart,
    /// The job failed.
    Failure,
    /// `ALTER .. RESUME` of a job that had been parked.
    Resume,
    /// `ALTER .. SET` of something that a running job cannot change.
    Alter,
}

impl RecoveryCause {
    /// The word shown in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            RecoveryCause::Restart => "restart",
            RecoveryCause::Failure => "failure",
            RecoveryCause::Resume => "resume",
            RecoveryCause::Alter => "alter",
        }
    }
}

/// The steps of a recovery, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RecoveryStep {
    /// All subtasks of the attempt before have ended.
    Cancelled,
    /// State is loaded and subtasks run.
    Restored,
    /// The epoch that had been sealed before is passed again.
    Replayed,
    /// The job keeps up.
    CaughtUp,
}

/// Number of steps.
const STEPS: usize = 4;

/// One row of `millpond.recoveries`.
#[derive(Clone, Debug)]
pub struct RecoveryStatus {
    /// The job.
    pub job: u64,
    /// Why it was started again.
    pub cause: RecoveryCause,
    /// The failure.
    pub error: Option<String>,
    /// When it was detected, microseconds since 1970, UTC.
    pub detected_at_us: i64,
    /// The epoch of the checkpoint it went on from; 0 if there was none.
    pub from_epoch: Epoch,
    /// Where the files of its materialization came from.
    pub image: ImageSources,
    begun: Instant,
    reached: [Option<Duration>; STEPS],
}

impl RecoveryStatus {
    pub(super) fn new(job: u64, cause: RecoveryCause, error: Option<String>, detected_at_us: i64) -> Self {
        Self {
            job,
            cause,
            error,
            detected_at_us,
            from_epoch: Epoch(0),
            image: ImageSources::default(),
            begun: Instant::now(),
            reached: [None; STEPS],
        }
    }

    /// Where its materialization was read from; `None` if nothing of one was.
    pub fn restored_from(&self) -> Option<&'static str> {
        match (self.image.local_files > 0, self.image.store_files > 0) {
            (false, false) => None,
            (true, false) => Some("local"),
            (false, true) => Some("object store"),
            (true, true) => Some("both"),
        }
    }

    /// Notes a step; the first time counts, and not before the steps before it: an attempt that is about to end may still get on. Answers
    /// whether it was noted.
    pub(super) fn reach(&mut self, step: RecoveryStep) -> bool {
        let is_next = self.reached.iter().position(Option::is_none) == Some(step as usize);
        if is_next {
            self.reached[step as usize] = Some(self.begun.elapsed());
        }
        is_next
    }

    /// Time from the detection to a step; `None` if it has not been reached.
    pub fn after(&self, step: RecoveryStep) -> Option<Duration> {
        self.reached[step as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_noted_once_and_in_order() {
        let mut recovery = RecoveryStatus::new(1, RecoveryCause::Failure, None, 0);
        assert!(!recovery.reach(RecoveryStep::CaughtUp));
        assert!(recovery.reach(RecoveryStep::Cancelled));
        assert!(!recovery.reach(RecoveryStep::Cancelled));
        assert!(!recovery.reach(RecoveryStep::Replayed));
        assert!(recovery.reach(RecoveryStep::Restored) && recovery.reach(RecoveryStep::Replayed) && recovery.reach(RecoveryStep::CaughtUp));
        assert!(recovery.after(RecoveryStep::CaughtUp) >= recovery.after(RecoveryStep::Cancelled));
    }
}
