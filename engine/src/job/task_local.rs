//! What follows from the failure of one subtask: it alone is restarted, or, where that cannot be, its job.
//!
//! While the subtask is away the driver goes on with its other business, and so do the other subtasks. A second failure of the same subtask
//! while the job has sealed nothing more is one of the job: what made it fail is probably in what it takes again.

use millpond_storage::{checkpoint::Rewound, epoch::Epoch};

use super::{
    attempt::Attempt,
    driver::Driver,
    recovery::{RecoveryCause, RecoveryStep},
    renewal::Renewal,
};
use crate::{
    error::{EngineError, Result},
    task::{
        orders::Recovery,
        revival::{Revival, SubtaskFailure},
        subtask::SubtaskId,
    },
};

impl Driver {
    /// A subtask has failed and waits.
    ///
    /// # Errors
    /// The failure, if the whole job has to be restarted.
    pub(super) fn on_failed(&mut self, attempt: &mut Attempt, id: SubtaskId, failure: SubtaskFailure) -> Result<()> {
        let SubtaskFailure { error, lost, refusal } = failure;
        self.refusal = refusal.or_else(|| self.refuses(attempt, id)).map(str::to_owned);
        let Some(control) = attempt.running.controls.get(&id).filter(|_| self.refusal.is_none()) else { return Err(error) };
        tracing::warn!(job = %self.spec.name, fragment = id.fragment, subtask = id.index, %error, "a subtask failed and is restarted alone");
        let sealed = self.handle.sealed();
        if self.tried.0 != sealed {
            self.tried = (sealed, Default::default());
        }
        self.tried.1.insert(id);
        attempt.restarted.insert(id);
        // What comes of a failure that is mended says nothing of the next one.
        self.orders.faults.take();
        if self.orders.recovery() == Recovery::Approximate {
            // Only the first time counts.
            let _ = self.handle.approximate_from.set(sealed.next());
        }
        self.handle.begin_recovery(self.recovery(RecoveryCause::Failure, Some(error.to_string())).alone(id));
        self.handle.reach_alone(id, RecoveryStep::Cancelled);
        let (checkpointer, store, handle, revival) =
            (attempt.checkpointer.clone(), attempt.store.clone(), self.handle.clone(), control.revival.clone());
        let rewind = async move {
            let state = match checkpointer.rewind(&store, lost).await {
                Ok(Some(Rewound { checkpoint, origin, entries, keys, log_bytes })) => {
                    let (job, fragment, subtask) = (&handle.name, id.fragment, id.index);
                    tracing::debug!(%job, fragment, subtask, %checkpoint, ?entries, ?keys, log_bytes, "the state was put back");
                    handle.recover_alone_from(id, checkpoint, entries.is_some());
                    Ok(Revival { checkpoint, origin })
                }
                Ok(None) => Err(EngineError::Internal("there is no checkpoint to go back to".into())),
                Err(error) => Err(error.into()),
            };
            // A subtask that is gone was cancelled with its attempt.
            let _ = revival.send(state);
        };
        attempt.rewinds.spawn_on(rewind, &self.shared.runtime);
        Ok(())
    }

    /// Why a subtask cannot be restarted alone, if it cannot.
    fn refuses(&self, attempt: &Attempt, id: SubtaskId) -> Option<&'static str> {
        if !attempt.ready || !self.established {
            Some("there is no checkpoint of the job yet")
        } else if attempt.renewal != Renewal::None || !attempt.is_founded {
            Some("the job was being rescaled")
        } else if self.tried.0 == self.handle.sealed() && self.tried.1.contains(&id) {
            Some("the subtask had been restarted alone at the same epoch")
        } else {
            None
        }
    }

    /// Whether a subtask was restarted alone while the job had sealed `epoch`.
    pub(super) fn was_tried_at(&self, epoch: Epoch) -> bool {
        self.tried.0 == epoch && !self.tried.1.is_empty()
    }

    /// A subtask is where it was when it failed.
    pub(super) fn on_replayed(&mut self, attempt: &mut Attempt, id: SubtaskId) {
        self.handle.reach_alone(id, RecoveryStep::Replayed);
        attempt.restarted.remove(&id);
        attempt.rewinds.try_join_next();
        if attempt.in_flight.is_empty() {
            self.note_progress(attempt, attempt.injected, self.shared.coordinator.closed());
        }
    }
}
