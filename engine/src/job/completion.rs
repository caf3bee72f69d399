//! Completing a checkpoint of which all parts have come, beside the job, which goes on.
//!
//! What follows when the store refuses it depends on who comes after the subtasks that gave the parts ([`Successors`]).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{
    checkpoint::{CheckpointReport, Checkpointer, ManifestInput},
    collection::Collection,
    epoch::Epoch,
    error::StorageError,
    state_table::TaskCheckpoint,
};

use super::{
    attempt::RunningCheckpoint,
    failure::may_pass,
    status::{CheckpointStatus, JobHandle, SubtaskCheckpoint},
};
use crate::{
    engine::Shared,
    error::{EngineError, Result},
};

/// Pause after a checkpoint that the store refused; doubled for each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest pause before another checkpoint is tried: so long a store that is back may be unnoticed.
const LONGEST_RETRY: Duration = Duration::from_secs(16);

/// A checkpoint whose manifest is written.
pub(super) struct CompleteCheckpoint {
    pub(super) status: CheckpointStatus,
    /// Nothing of the inputs is needed up to this epoch.
    pub(super) consumed: Epoch,
}

/// Who goes on behind a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Successors {
    /// The same subtasks. What they gave to one that is refused goes into their next one.
    Same,
    /// Nobody: the job has ended. It is tried until the store takes it, since the job has all that it would have to restore from that store.
    None,
    /// Other subtasks, with the state that these have left in memory. What these gave to one that is refused goes into the first one of the others;
    /// where it cannot, the job has to start again from the checkpoint before.
    Others,
}

/// A checkpoint that is to be completed.
pub(super) struct Completion {
    /// What goes into it.
    pub(super) manifest: ManifestInput,
    /// When its barrier was injected.
    pub(super) injected_at: Instant,
    /// Nothing of the inputs is needed up to this epoch.
    pub(super) consumed: Epoch,
    /// What is told of the subtasks, with their numbers in the job.
    pub(super) subtasks: Vec<(u32, SubtaskCheckpoint)>,
    /// Who goes on.
    pub(super) successors: Successors,
    /// The checkpoint before, if it is not complete yet.
    pub(super) previous: Option<RunningCheckpoint>,
    /// What the job reads and what it fills.
    pub(super) collections: Vec<Arc<Collection>>,
    /// Where it is written.
    pub(super) checkpointer: Arc<Checkpointer>,
    /// The rest of the engine.
    pub(super) shared: Arc<Shared>,
    /// The job from outside.
    pub(super) handle: Arc<JobHandle>,
}

impl Completion {
    /// Completes it, behind the one before.
    ///
    /// # Errors
    /// What the store says, as [`Successors`] see it.
    pub(super) async fn complete(mut self) -> Result<CompleteCheckpoint> {
        let began = Instant::now();
        if let Some(mut previous) = self.previous.take()
            && let Err(error) = previous.end().await.result
            && !self.makes_up_for(&error)
        {
            return Err(self.seen(error));
        }
        self.flush_collections().await.map_err(|error| self.seen(error))?;
        let (epoch, is_unaligned) = (self.manifest.epoch, self.manifest.in_flight.is_some());
        let report = self.write().await?;
        let durations = (self.injected_at.elapsed(), began.elapsed());
        tracing::debug!(job = %self.handle.name, %epoch, durations = ?durations, "checkpoint is complete");
        Ok(CompleteCheckpoint { status: status(self.handle.id, report, is_unaligned, durations, self.subtasks), consumed: self.consumed })
    }

    /// Whether this one has what the one before failed to bring to the store.
    fn makes_up_for(&self, error: &EngineError) -> bool {
        match self.successors {
            // The driver decides.
            Successors::Same => false,
            Successors::None => may_pass(error),
            Successors::Others => is_carried_on(error),
        }
    }

    /// The failure before anything of this one was taken over, as those see it who go on.
    fn seen(&self, error: EngineError) -> EngineError {
        // They have no way to give again what these gave.
        if self.successors == Successors::Others { lost(error) } else { error }
    }

    /// What the checkpoint is taken to contain must be durable before it says so: upstream changes, and the job's own.
    async fn flush_collections(&self) -> Result<()> {
        self.shared.reach("job::flush")?;
        for collection in &self.collections {
            let collection = collection.clone();
            tokio::task::spawn_blocking(move || collection.flush()).await.map_err(|e| EngineError::Internal(e.to_string()))??;
        }
        self.shared.reach("job::complete")
    }

    async fn write(&mut self) -> Result<CheckpointReport> {
        let mut parts = std::mem::take(&mut self.manifest.parts);
        let mut failures = 0;
        loop {
            // What was refused has been taken over.
            let manifest = self.manifest_with(std::mem::take(&mut parts));
            let result = self.checkpointer.complete(manifest).await.map_err(EngineError::from);
            if self.successors == Successors::Others {
                self.checkpointer.succeed_tasks().await;
            }
            let error = match (result, self.successors) {
                (Err(error), Successors::None) if may_pass(&error) => error,
                (Err(error), Successors::Others) if !is_carried_on(&error) => return Err(lost(error)),
                (result, _) => return result,
            };
            self.handle.remember_checkpoint(failed(self.handle.id, self.manifest.epoch, self.injected_at.elapsed(), &error));
            failures += 1;
            tokio::time::sleep(pause_after(failures, &self.handle.name, self.manifest.epoch, &error)).await;
        }
    }

    fn manifest_with(&self, parts: Vec<TaskCheckpoint>) -> ManifestInput {
        let ManifestInput { epoch, in_flight, upstream, notes, .. } = &self.manifest;
        ManifestInput { epoch: *epoch, parts, in_flight: in_flight.clone(), upstream: upstream.clone(), notes: notes.clone() }
    }
}

/// Whether the next checkpoint takes over what was given to one that failed so.
fn is_carried_on(error: &EngineError) -> bool {
    matches!(error, EngineError::Storage(StorageError::Io { .. } | StorageError::ObjectStore { .. }))
}

/// The job has to start again from the checkpoint before.
fn lost(error: EngineError) -> EngineError {
    match error {
        error if may_pass(&error) || matches!(error, EngineError::Storage(StorageError::GivenUp { .. })) => {
            EngineError::Retryable(format!("the last checkpoint before a change of the job failed: {error}"))
        }
        other => other,
    }
}

/// Tells of a checkpoint that is tried again, after so many failures. Answers after how long.
pub(super) fn pause_after(failures: u32, job: &str, epoch: Epoch, error: &EngineError) -> Duration {
    let pause = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_RETRY);
    tracing::warn!(job, %epoch, %error, failures, ?pause, "checkpoint failed; it is tried again");
    pause
}

pub(super) fn failed(job: u64, epoch: Epoch, duration: Duration, error: &EngineError) -> CheckpointStatus {
    CheckpointStatus {
        job,
        epoch,
        duration_us: duration.as_micros() as u64,
        log_bytes: 0,
        materialized_bytes: 0,
        in_flight_bytes: None,
        stored_bytes: 0,
        replay_bytes: 0,
        replay_us: 0,
        async_us: 0,
        subtasks: Vec::new(),
        error: Some(error.to_string()),
    }
}

fn status(
    job: u64,
    report: CheckpointReport,
    is_unaligned: bool,
    (all, after_parts): (Duration, Duration),
    subtasks: Vec<(u32, SubtaskCheckpoint)>,
) -> CheckpointStatus {
    let bytes = |number: &u32| report.bytes_in_flight.get(number).copied().unwrap_or(0);
    CheckpointStatus {
        job,
        epoch: report.epoch,
        duration_us: all.as_micros() as u64,
        log_bytes: report.bytes_log,
        materialized_bytes: report.bytes_materialized,
        in_flight_bytes: is_unaligned.then(|| report.bytes_in_flight.values().sum()),
        stored_bytes: report.bytes_stored,
        replay_bytes: report.bytes_replay,
        replay_us: report.replay.as_micros() as u64,
        async_us: after_parts.as_micros() as u64,
        subtasks: subtasks.into_iter().map(|(number, subtask)| SubtaskCheckpoint { in_flight_bytes: bytes(&number), ..subtask }).collect(),
        error: None,
    }
}
