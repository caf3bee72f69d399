//! What an attempt at running a job begins from.

use millpond_storage::checkpoint::{Checkpointer, Restored};

use super::{
    driver::{Driver, Ended},
    running::JobInputs,
    status::JobCommand,
};
use crate::error::{EngineError, Result};

impl Driver {
    /// The newest checkpoint. A job whose collection was never shown has none to go on from: its creation was cut short, and it begins anew.
    pub(super) async fn restore(&mut self, checkpointer: &Checkpointer) -> Result<Option<Restored>> {
        // Also one whose checkpoint cannot be reached yet.
        self.established |= self.collection.as_ref().is_none_or(|collection| collection.published());
        let Some(collection) = &self.collection else { return Ok(checkpointer.restore().await?) };
        if !collection.published() {
            // Which rows a step of a backfill takes depends on when it is taken: what it has left behind fits no other attempt.
            self.shared.forget_checkpoints(self.spec.id).await?;
            let emptied = collection.clone();
            tokio::task::spawn_blocking(move || emptied.clear()).await.map_err(|e| EngineError::Internal(e.to_string()))??;
            return Ok(checkpointer.restore().await?);
        }
        let restored = checkpointer.restore().await?.ok_or_else(|| checkpointer.missing())?;
        collection.must_reach(restored.epoch())?;
        self.shared.coordinator.log().must_reach(restored.epoch(), restored.object())?;
        Ok(Some(restored))
    }

    /// Waits until everything that the job reads is shown: a view that is being created may begin anew.
    pub(super) async fn wait_for_inputs(&mut self) -> Result<Option<Ended>> {
        let mut pulse = self.shared.coordinator.pulse();
        loop {
            pulse.mark_unchanged();
            let inputs = JobInputs::resolve(&self.spec, &self.shared.coordinator, &|id| self.shared.collection(id))?;
            let hidden: Vec<u64> = inputs.collections.iter().filter(|(_, input)| !input.published()).map(|(id, _)| *id).collect();
            if hidden.is_empty() {
                return Ok(None);
            }
            self.shared.check_jobs(&hidden)?;
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(JobCommand::Stop) | None => return Ok(Some(Ended::Stopped)),
                    Some(JobCommand::Reconfigure(options)) => self.set_options(options),
                    Some(JobCommand::Checkpoint | JobCommand::Resume { .. } | JobCommand::LetGo) => {}
                },
                _ = pulse.changed() => {}
            }
        }
    }
}
