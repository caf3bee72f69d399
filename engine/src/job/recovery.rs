//! What each recovery of a job took: the way from a failure, a restart of the server or an order until the job is where it had been.

use std::time::{Duration, Instant};

use millpond_storage::{checkpoint::ImageSources, epoch::Epoch};

use super::status::JobHandle;
use crate::task::subtask::SubtaskId;

/// Recoveries remembered per job.
const RECOVERIES_KEPT: usize = 16;

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
    /// The subtask that was restarted alone; `None` if the whole job was.
    pub subtask: Option<SubtaskId>,
    /// Why the whole job was, though only a subtask had failed.
    pub why_whole: Option<String>,
    /// When it was detected, microseconds since 1970, UTC.
    pub detected_at_us: i64,
    /// The epoch of the checkpoint it went on from; 0 if there was none.
    pub from_epoch: Epoch,
    /// Where the files of its materialization came from.
    pub image: ImageSources,
    /// Its state tables were kept in memory.
    pub is_kept: bool,
    begun: Instant,
    reached: [Option<Duration>; STEPS],
}

impl RecoveryStatus {
    pub(super) fn new(job: u64, cause: RecoveryCause, error: Option<String>, detected_at_us: i64) -> Self {
        let (begun, reached, image) = (Instant::now(), [None; STEPS], ImageSources::default());
        Self {
            job,
            cause,
            error,
            subtask: None,
            why_whole: None,
            detected_at_us,
            from_epoch: Epoch(0),
            image,
            is_kept: false,
            begun,
            reached,
        }
    }

    /// That of one subtask alone.
    pub(super) fn alone(self, subtask: SubtaskId) -> Self {
        Self { subtask: Some(subtask), ..self }
    }

    /// What was restarted, as shown in SQL.
    pub fn scope(&self) -> &'static str {
        if self.subtask.is_some() { "subtask" } else { "job" }
    }

    /// Where its state is from: its own memory, or where its materialization was read; `None` if nothing of one was.
    pub fn restored_from(&self) -> Option<&'static str> {
        if self.is_kept {
            return Some("memory");
        }
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

impl JobHandle {
    /// The recoveries remembered, oldest first.
    pub fn recoveries(&self) -> Vec<RecoveryStatus> {
        self.recoveries.lock().iter().cloned().collect()
    }

    pub(super) fn begin_recovery(&self, recovery: RecoveryStatus) {
        let mut recoveries = self.recoveries.lock();
        if recoveries.len() == RECOVERIES_KEPT {
            recoveries.pop_front();
        }
        recoveries.push_back(recovery);
    }

    /// A job without a checkpoint has nothing to recover: it is new.
    pub(super) fn forget_restart(&self) {
        self.recoveries.lock().pop_back_if(|recovery| recovery.cause == RecoveryCause::Restart);
    }

    /// Notes from which checkpoint the job goes on.
    pub(super) fn recover_from(&self, epoch: Epoch) {
        self.change_recovery(None, |recovery| recovery.from_epoch = epoch);
    }

    /// Notes where the materialization was read from.
    pub(super) fn restored_from(&self, image: ImageSources) {
        self.change_recovery(None, |recovery| recovery.image = image);
    }

    /// Notes why the failure of one subtask restarts the whole job.
    pub(super) fn say_why_whole(&self, reason: Option<String>) {
        self.change_recovery(None, |recovery| recovery.why_whole = reason);
    }

    /// Notes a step of the recovery of the job that is going on, if one is.
    pub(super) fn reach(&self, step: RecoveryStep) {
        self.change_recovery(None, |recovery| self.note(recovery, step));
    }

    /// Notes from which checkpoint a subtask goes on that is restarted alone, and whether it kept its state tables.
    pub(super) fn recover_alone_from(&self, id: SubtaskId, epoch: Epoch, is_kept: bool) {
        self.change_recovery(Some(id), |recovery| (recovery.from_epoch, recovery.is_kept) = (epoch, is_kept));
    }

    /// Notes a step of a subtask that is restarted alone.
    pub(super) fn reach_alone(&self, id: SubtaskId, step: RecoveryStep) {
        self.change_recovery(Some(id), |recovery| self.note(recovery, step));
    }

    /// The job keeps up, and with it each subtask that was restarted alone.
    pub(super) fn all_caught_up(&self) {
        let mut recoveries = self.recoveries.lock();
        recoveries
            .iter_mut()
            .filter(|recovery| recovery.subtask.is_some())
            .for_each(|recovery| self.note(recovery, RecoveryStep::CaughtUp));
    }

    /// Changes the newest recovery of the job, or of one subtask alone.
    fn change_recovery(&self, subtask: Option<SubtaskId>, change: impl FnOnce(&mut RecoveryStatus)) {
        if let Some(recovery) = self.recoveries.lock().iter_mut().rev().find(|recovery| recovery.subtask == subtask) {
            change(recovery);
        }
    }

    fn note(&self, recovery: &mut RecoveryStatus, step: RecoveryStep) {
        if recovery.reach(step) && step == RecoveryStep::CaughtUp {
            let ms = |step| recovery.after(step).map_or(0, |after| after.as_millis() as u64);
            tracing::info!(
                job = %self.name,
                cause = recovery.cause.as_str(),
                scope = recovery.scope(),
                fragment = recovery.subtask.map(|id| id.fragment),
                subtask = recovery.subtask.map(|id| id.index),
                from_epoch = %recovery.from_epoch,
                restored_from = recovery.restored_from(),
                cancelled_ms = ms(RecoveryStep::Cancelled),
                restored_ms = ms(RecoveryStep::Restored),
                replayed_ms = ms(RecoveryStep::Replayed),
                caught_up_ms = ms(RecoveryStep::CaughtUp),
                "recovered"
            );
        }
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
