//! What waits for a job: its creation, reads of its view.

use std::sync::atomic::Ordering;

use super::{
    spec::ReadableWhen,
    status::{JobFailure, JobHandle, JobState},
};
use crate::error::EngineError;

impl JobHandle {
    /// Waits until the job's contents are readable: what existed at its start is sealed.
    ///
    /// # Errors
    /// The failure that parked the job.
    pub async fn wait_ready(&self) -> crate::error::Result<()> {
        let mut state = self.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            match now {
                JobState::Running | JobState::Finished => return Ok(()),
                JobState::Failed => {
                    return Err(match self.failure.lock().clone() {
                        Some(JobFailure { sqlstate, message, hint }) => EngineError::User { sqlstate, message, hint },
                        None => EngineError::Internal(format!("job \"{}\" has failed without a reason", self.name)),
                    });
                }
                JobState::Backfilling | JobState::CatchingUp => {}
            }
            if state.changed().await.is_err() {
                return Err(EngineError::Cancelled);
            }
        }
    }

    /// Says from when on the job's contents can be read.
    pub(super) fn set_readable(&self, when: ReadableWhen) {
        self.readable_when_caught_up.store(when == ReadableWhen::CaughtUp, Ordering::Release);
    }

    /// Waits until the job's contents can be read as its option `readable` says.
    ///
    /// # Errors
    /// 55000 when the job has failed, so that it would take for ever.
    pub async fn wait_readable(&self) -> crate::error::Result<()> {
        let mut state = self.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            if !self.readable_when_caught_up.load(Ordering::Acquire) || !matches!(now, JobState::CatchingUp | JobState::Failed) {
                return Ok(());
            }
            if now == JobState::Failed {
                let reason = self.failure.lock().as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
                return Err(EngineError::User {
                    sqlstate: "55000",
                    message: format!("relation \"{}\" has not caught up: its job has failed: {reason}", self.name),
                    hint: Some("Its last contents can be read after ALTER MATERIALIZED VIEW .. SET (readable = 'at_once').".into()),
                });
            }
            if state.changed().await.is_err() {
                return Err(EngineError::Cancelled);
            }
        }
    }

    /// Waits until the job is parked; answers what a reader is told who needs more of it than there is.
    pub async fn wait_failed(&self) -> EngineError {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| *state == JobState::Failed).await {
            Ok(_) => self.failed(),
            Err(_) => EngineError::Cancelled,
        }
    }

    /// What a reader is told of a parked job.
    pub(crate) fn failed(&self) -> EngineError {
        let reason = self.failure.lock().as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
        EngineError::User {
            sqlstate: "55000",
            message: format!("relation \"{}\" is not up to date: its job has failed: {reason}", self.name),
            hint: Some(
                "Mend the cause and let it go on with ALTER .. RESUME; what it has can be read after SET read_freshness = 'any'.".into(),
            ),
        }
    }
}
