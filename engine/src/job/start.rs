//! The start of an attempt: what a checkpoint holds is brought back, and subtasks and readers are spawned where it says.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering,
    time::Instant,
};

use millpond_storage::{
    checkpoint::{Checkpointer, Restored},
    epoch::Epoch,
    error::StorageError,
    state_table::StateOrigin,
};

use super::{
    attempt::{Attempt, InFlight, Renewal},
    checkpoint::{CUT_NOTE, FINISHED_NOTE, POSITIONS_NOTE},
    driver::Driver,
    recovery::RecoveryStep,
    running::{JobInputs, Running, ScanPositions, Spawn},
    status::JobState,
};
use crate::{
    error::{EngineError, Result},
    message::Barrier,
    task::{
        build::fragment_parallelism,
        restart::{CutNote, Restart},
    },
};

impl Driver {
    /// Restores and spawns. `None` if the checkpoint says that the job had finished.
    pub(super) async fn start(&mut self) -> Result<Option<Attempt>> {
        let checkpointer = self.shared.checkpointer(self.spec.id, self.fingerprint);
        if self.collection.as_ref().is_some_and(|collection| !collection.published()) {
            // Its collection has been emptied: a checkpoint that was completed just before a crash is not to go on from.
            self.shared.forget_checkpoints(self.spec.id).await?;
        }
        let restored = checkpointer.restore().await?;
        let inputs = JobInputs::resolve(&self.spec, &self.shared.coordinator, &|id| self.shared.collection(id))?;
        let mut positions = ScanPositions::default();
        let mut injected = Epoch(0);
        let mut restart = Restart::aligned(self.spec.graph.fragments.len(), injected);
        if let Some(restored) = &restored {
            injected = restored.epoch();
            let note = restored.notes().get(POSITIONS_NOTE).map_or("{}", String::as_str);
            positions = serde_json::from_str(note).map_err(|e| EngineError::Internal(format!("scan positions: {e}")))?;
            let consumed;
            (restart, consumed) = self.restart_from(&checkpointer, restored).await?;
            self.handle.sealed.store(restart.root_closed().0, Ordering::Release);
            self.established = true;
            if restored.notes().contains_key(FINISHED_NOTE) {
                return Ok(None);
            }
            self.hold_from(&inputs, consumed)?;
        } else {
            self.handle.forget_restart();
            // Contents at the newest epoch, and what comes after it, is what a new job reads.
            self.holds = inputs.collections.values().map(|collection| collection.hold(collection.upper())).collect::<Result<_, _>>()?;
            let closed = self.shared.coordinator.closed().epoch;
            self.handle.resume_at(inputs.collections.values().map(|collection| collection.upper()).chain([closed]).min().unwrap_or(closed));
        }
        let store = self.shared.open_job_store(self.spec.id, self.options.state_backend)?;
        let origin = match &restored {
            Some(restored) => StateOrigin::Checkpoint(checkpointer.load_into(restored, &store).await?),
            None => StateOrigin::Empty,
        };
        let in_flight = self.passed_again(&restart);
        let spawn = Spawn {
            spec: &self.spec,
            parallelism: self.options.parallelism,
            log_age_us: self.log_age_us.clone(),
            skip_bad_rows: self.skip_bad_rows.clone(),
            inputs: &inputs,
            positions: &positions,
            restart,
            store,
            origin,
            side: self.shared.side_output(self.spec.id),
            budget: self.shared.memory.clone(),
            runtime: &self.shared.runtime,
        };
        let running = Running::spawn(spawn, &self.handle)?;
        self.handle.recover_from(injected);
        self.handle.reach(RecoveryStep::Restored);
        in_flight.iter().for_each(|flight| running.inject(flight.barrier, &inputs));
        let ready = restored.is_some();
        self.set_state(if ready { JobState::CatchingUp } else { JobState::Backfilling });
        let expected = inputs.collections.values().map(|c| c.row_estimate()).sum();
        self.handle.backfill_expected.store(expected, Ordering::Relaxed);
        Ok(Some(Attempt {
            running,
            checkpointer,
            inputs,
            positions_at_start: positions.clone(),
            positions,
            injected,
            upper_at_start: self.collection.as_ref().map_or(Epoch(0), |collection| collection.upper()),
            in_flight,
            passed: Vec::new(),
            checkpoint_wanted: false,
            checkpoint_running: None,
            last_checkpoint: Instant::now(),
            no_checkpoint_before: Instant::now(),
            final_injected: false,
            renewal: Renewal::None,
            ready,
            can_overtake: self.spec.graph.aligned_fragments().contains(&false),
            state_bytes: BTreeMap::new(),
        }))
    }

    /// Where the subtasks start, and the epoch up to which the inputs have been consumed.
    async fn restart_from(&self, checkpointer: &Checkpointer, restored: &Restored) -> Result<(Restart, Epoch)> {
        let fragments = self.spec.graph.fragments.len();
        if !restored.is_unaligned() {
            return Ok((Restart::aligned(fragments, restored.epoch()), restored.epoch()));
        }
        let note = restored.notes().get(CUT_NOTE).map_or("", String::as_str);
        let note: CutNote = serde_json::from_str(note).map_err(|e| EngineError::Internal(format!("epochs of a checkpoint: {e}")))?;
        let consumed = note.consumed();
        let flights = checkpointer.load_in_flight(restored).await?;
        Ok((Restart::unaligned(fragments, note, flights)?, consumed))
    }

    /// The barriers that were in flight when the checkpoint was taken: the subtasks that have not closed their epochs will.
    fn passed_again(&self, restart: &Restart) -> VecDeque<InFlight> {
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

    /// Changes after the checkpoint must stay until the next one is complete. If any of them is gone the job cannot go on.
    pub(super) fn hold_from(&mut self, inputs: &JobInputs, epoch: Epoch) -> Result<()> {
        let behind = |oldest: Epoch| StorageError::FallenBehind { asked: epoch.0, oldest: oldest.0 };
        if let Some(known) = inputs.sources.values().map(|source| source.known_from()).find(|known| epoch < *known) {
            return Err(behind(known).into());
        }
        // The new holds are placed before the old ones go.
        self.holds = inputs.collections.values().map(|collection| collection.hold(epoch)).collect::<Result<_, _>>()?;
        self.handle.resume_at(epoch);
        Ok(())
    }
}
