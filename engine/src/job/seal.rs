//! Ending an epoch of a job's collection: when all that emit its rows have passed the barrier, the rows are sealed.

use millpond_storage::{epoch::Epoch, signed_batch::SignedBatch};

use super::{
    attempt::Attempt,
    driver::{Driver, Ended, KEEPS_UP_EPOCHS},
    recovery::RecoveryStep,
    status::{JobCommand, JobState},
};
use crate::{
    coordinator::ClosedEpoch,
    error::{EngineError, Result},
    message::Barrier,
};

/// Rows of an epoch that are not sealed in passing.
const MANY_ROWS: usize = 50_000;

impl Driver {
    /// Seals what an attempt's subtasks have emitted up to a barrier. Answers how the attempt has ended if it has.
    pub(super) async fn seal(&mut self, attempt: &mut Attempt, barrier: Barrier) -> Result<Option<Ended>> {
        self.shared.reach("job::seal")?;
        if let Some(collection) = &self.collection {
            let batches = attempt.running.collector.take(barrier.epoch);
            let watermark = attempt.running.collector.watermark(barrier.epoch, attempt.running.roots);
            if batches.is_empty() && watermark.is_none() {
                collection.advance(barrier.epoch);
            } else {
                let rows: usize = batches.iter().map(SignedBatch::num_rows).sum();
                let collection = collection.clone();
                let seal = move || collection.seal(barrier.epoch, batches, watermark);
                if rows < MANY_ROWS {
                    seal()?;
                } else if let Some(ended) = self.seal_aside(seal).await? {
                    return Ok(Some(ended));
                }
            }
        }
        self.shared.reach("job::sealed")?;
        self.on_sealed(ClosedEpoch { epoch: barrier.epoch, time_us: barrier.time_us });
        Ok(None)
    }

    /// Seals many rows where it keeps no thread of the subtasks, and goes on listening meanwhile: who drops the job does not wait for it.
    async fn seal_aside(&mut self, seal: impl FnOnce() -> millpond_storage::error::Result<()> + Send + 'static) -> Result<Option<Ended>> {
        let mut sealing = tokio::task::spawn_blocking(seal);
        loop {
            tokio::select! {
                sealed = &mut sealing => {
                    sealed.map_err(|error| EngineError::Internal(error.to_string()))??;
                    return Ok(None);
                }
                command = self.commands.recv() => match command {
                    Some(JobCommand::Stop) | None => return Ok(Some(Ended::Stopped)),
                    Some(other) => self.put_off.push_back(other),
                }
            }
        }
    }
}

/// An attempt that catches up.
impl Driver {
    pub(super) fn note_progress(&self, attempt: &mut Attempt, epoch: Epoch, closed: ClosedEpoch) {
        if epoch < attempt.upper_at_start || !attempt.restarted.is_empty() {
            return;
        }
        self.handle.reach(RecoveryStep::Replayed);
        if !attempt.ready || closed.epoch.0.saturating_sub(epoch.0) > KEEPS_UP_EPOCHS {
            return;
        }
        self.handle.reach(RecoveryStep::CaughtUp);
        self.handle.all_caught_up();
        if self.handle.state() == JobState::CatchingUp {
            *self.handle.error.lock() = None;
            self.set_state(JobState::Running);
        }
    }
}
