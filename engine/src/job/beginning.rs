//! What an attempt at running a job begins from.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use millpond_storage::{
    checkpoint::{Checkpointer, Restored},
    epoch::Epoch,
    state_table::{JobStore, StateOrigin},
};
use tokio::sync::mpsc;

use super::{
    attempt::{Attempt, InFlight, RunningCheckpoint},
    checkpoint::{CUT_NOTE, FINISHED_NOTE, POSITIONS_NOTE, SKIPPED_NOTE, WATERMARKS_NOTE},
    driver::{Driver, Ended},
    life::Next,
    renewal::{Left, Succession},
    running::{JobInputs, ScanPositions},
    status::JobCommand,
};
use crate::{
    error::{EngineError, Result},
    message::Barrier,
    task::{
        build::fragment_parallelism,
        restart::{CutNote, Restart},
    },
};

/// Where an attempt starts.
pub(super) struct Beginning {
    pub(super) checkpointer: Arc<Checkpointer>,
    pub(super) store: Arc<JobStore>,
    pub(super) origin: StateOrigin,
    pub(super) positions: ScanPositions,
    /// The epoch of the checkpoint; `None` if there is none.
    pub(super) injected: Option<Epoch>,
    pub(super) restart: Restart,
    /// The checkpoint, if it is still being written.
    pub(super) checkpoint: Option<RunningCheckpoint>,
}

/// What came of an attempt's start.
pub(super) enum Started {
    /// It runs.
    Running(Box<Attempt>),
    /// There is nothing to run.
    Ended(Ended),
}

impl Driver {
    /// Starts an attempt, and goes on listening meanwhile: what is read of an object store that is away takes its time, and who drops the job does not
    /// wait for it.
    pub(super) async fn start_unless_stopped(&mut self) -> Result<Started> {
        let (_sender, nobody) = mpsc::unbounded_channel();
        let mut commands = std::mem::replace(&mut self.commands, nobody);
        let mut others = Vec::new();
        let started = {
            let mut start = Box::pin(self.start());
            loop {
                tokio::select! {
                    started = &mut start => break Some(started),
                    command = commands.recv() => match command {
                        Some(JobCommand::Stop) | None => break None,
                        Some(other) => others.push(other),
                    },
                }
            }
        };
        self.commands = commands;
        let started = match started {
            None => Ok(Started::Ended(Ended::Stopped)),
            Some(Ok(None)) => Ok(Started::Ended(Ended::Finished)),
            Some(Ok(Some(attempt))) => Ok(Started::Running(Box::new(attempt))),
            Some(Err(error)) => Err(error),
        };
        for other in others {
            if matches!(started, Ok(Started::Running(_))) {
                self.put_off.push_back(other);
            } else {
                self.between_attempts(Some(other));
            }
        }
        started
    }

    /// Finds where to start: at what the attempt before has left, at the newest checkpoint, or anew. `None` if the checkpoint says that the
    /// job had finished.
    pub(super) async fn begin(&mut self, inputs: &JobInputs) -> Result<Option<Beginning>> {
        let fragments = self.spec.graph.fragments.len();
        if let Some(Succession { epoch, left: Left { positions, restart }, store, handed, checkpoint, checkpointer }) =
            self.succession.take()
        {
            self.shared.reach("rescale::begin")?;
            return Ok(Some(Beginning {
                checkpointer,
                store,
                origin: StateOrigin::Handed(handed),
                positions,
                injected: Some(epoch),
                restart,
                checkpoint,
            }));
        }
        self.settling.settled().await;
        let checkpointer = self.shared.checkpointer(self.spec.id, self.fingerprint, self.replay.clone());
        let restored = self.restore(&checkpointer).await?;
        let open_store = |driver: &Self| driver.shared.open_job_store(driver.spec.id, driver.options.state_backend);
        let Some(restored) = restored else {
            self.handle.forget_restart();
            self.hold_own(Epoch(0))?;
            // Contents at the newest epoch, and what comes after it, is what a new job reads.
            self.holds = inputs.collections.values().map(|collection| collection.hold(collection.upper())).collect::<Result<_, _>>()?;
            let closed = self.shared.coordinator.closed().epoch;
            self.handle.resume_at(inputs.collections.values().map(|collection| collection.upper()).chain([closed]).min().unwrap_or(closed));
            let (positions, restart) = (ScanPositions::default(), Restart::aligned(fragments, Epoch(0)));
            let store = open_store(self)?;
            return Ok(Some(Beginning {
                checkpointer,
                store,
                origin: StateOrigin::Empty,
                positions,
                injected: None,
                restart,
                checkpoint: None,
            }));
        };
        let note = restored.notes().get(POSITIONS_NOTE).map_or("{}", String::as_str);
        let positions = serde_json::from_str(note).map_err(|e| EngineError::Internal(format!("scan positions: {e}")))?;
        if let Some(note) = restored.notes().get(SKIPPED_NOTE) {
            let skipped = serde_json::from_str(note).map_err(|e| EngineError::Internal(format!("rows that are left out: {e}")))?;
            self.orders.faults.restore(skipped)?;
        }
        let (restart, consumed) = self.restart_from(&checkpointer, &restored).await?;
        self.shared.reach("restore::in_flight")?;
        if let Some(collection) = &self.collection {
            // What was in flight when it was taken has not been sealed.
            collection.must_reach(restart.root_closed())?;
        }
        self.handle.sealed.store(restart.root_closed().0, Ordering::Release);
        self.established = true;
        if restored.notes().contains_key(FINISHED_NOTE) {
            return Ok(None);
        }
        self.hold_own(restored.epoch())?;
        self.hold_from(inputs, consumed)?;
        let store = open_store(self)?;
        let origin = StateOrigin::Checkpoint(checkpointer.load_into(&restored, &store).await?);
        self.shared.reach("job::restored")?;
        Ok(Some(Beginning { checkpointer, store, origin, positions, injected: Some(restored.epoch()), restart, checkpoint: None }))
    }

    /// Tells how far the scans of the inputs are.
    pub(super) fn note_backfill(&self, inputs: &JobInputs, positions: &ScanPositions) {
        let read = positions.collections.values().map(|position| position.rows).sum();
        self.handle.backfill_rows.store(read, Ordering::Relaxed);
        let expected = inputs.collections.values().map(|c| c.row_estimate()).sum();
        self.handle.backfill_expected.store(expected, Ordering::Relaxed);
    }

    /// Where the subtasks start, and the epoch up to which the inputs have been consumed.
    async fn restart_from(&self, checkpointer: &Checkpointer, restored: &Restored) -> Result<(Restart, Epoch)> {
        let fragments = self.spec.graph.fragments.len();
        let applied = restored.notes().get(WATERMARKS_NOTE).map_or("{}", String::as_str);
        let applied = serde_json::from_str(applied).map_err(|e| EngineError::Internal(format!("watermarks of a checkpoint: {e}")))?;
        if !restored.is_unaligned() {
            return Ok((Restart::aligned(fragments, restored.epoch()).with_applied(applied), restored.epoch()));
        }
        let note = restored.notes().get(CUT_NOTE).map_or("", String::as_str);
        let note: CutNote = serde_json::from_str(note).map_err(|e| EngineError::Internal(format!("epochs of a checkpoint: {e}")))?;
        let consumed = note.consumed();
        let flights = checkpointer.load_in_flight(restored).await?;
        Ok((Restart::unaligned(fragments, note, flights)?.with_applied(applied), consumed))
    }

    /// The barriers that were in flight when the checkpoint was taken: the subtasks that have not closed their epochs will.
    pub(super) fn passed_again(&self, restart: &Restart) -> VecDeque<InFlight> {
        let fragments = &self.spec.graph.fragments;
        let width = |fragment: usize| fragment_parallelism(&fragments[fragment], self.options.parallelism);
        let flight = |barrier: &Barrier| {
            let open = |fragment: &usize| restart.closed(*fragment) < barrier.epoch;
            let tasks_left = (0..fragments.len()).filter(open).map(width).sum();
            let roots_left = fragments.len().checked_sub(1).filter(open).map_or(0, width);
            InFlight { roots_left, ..InFlight::new(*barrier, tasks_left) }
        };
        restart.barriers.iter().map(flight).collect()
    }

    /// The newest checkpoint. A job whose collection was never shown may have none yet: its creation was cut short, and it begins anew.
    pub(super) async fn restore(&mut self, checkpointer: &Checkpointer) -> Result<Option<Restored>> {
        // Also one whose checkpoint cannot be reached yet.
        self.established |= self.collection.as_ref().is_none_or(|collection| collection.published());
        let restored = checkpointer.restore().await?;
        if let Some(restored) = &restored {
            self.shared.coordinator.log().must_reach(restored.epoch(), restored.object())?;
        }
        let Some(collection) = self.collection.clone() else { return Ok(restored) };
        if collection.published() {
            return Ok(Some(restored.ok_or_else(|| checkpointer.missing())?));
        }
        // Which rows a step of a backfill takes depends on when it is taken: what came after the checkpoint fits no other attempt.
        if let Some(restored) = restored
            && collection.rewind(restored.epoch())?
        {
            return Ok(Some(restored));
        }
        self.shared.forget_checkpoints(self.spec.id).await?;
        let emptied = tokio::task::spawn_blocking(move || collection.clear());
        emptied.await.map_err(|e| EngineError::Internal(e.to_string()))??;
        Ok(checkpointer.restore().await?)
    }

    /// A collection that is being filled is not folded beyond where its filling may have to begin again.
    pub(super) fn hold_own(&mut self, epoch: Epoch) -> Result<()> {
        let filled = self.collection.as_ref().filter(|collection| !collection.published());
        self.own_hold = filled.map(|collection| collection.hold(epoch)).transpose()?;
        Ok(())
    }

    /// Notes what it took to restore state. The tables have been made, and have taken what is theirs of the log.
    pub(super) fn note_restored(&self, origin: &StateOrigin) {
        match origin {
            StateOrigin::Checkpoint(state) => {
                let (bytes, time) = state.replayed();
                self.replay.measured(bytes, time);
                self.handle.restored_from(state.image_sources());
            }
            StateOrigin::Empty | StateOrigin::Handed(_) | StateOrigin::Kept(_) => {}
        }
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
                command = self.commands.recv() => if self.between_attempts(command) == Next::Stop { return Ok(Some(Ended::Stopped)) },
                _ = pulse.changed() => {}
            }
        }
    }
}
