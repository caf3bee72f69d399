//! State of one attempt at running a job: what has been injected, what has passed, and what follows from it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{
    checkpoint::{Checkpointer, Settling},
    epoch::Epoch,
    state_table::{HandedTask, JobStore},
};
use tokio::task::{JoinHandle, JoinSet};

use super::{
    completion::CompleteCheckpoint,
    inputs::BARRIERS_IN_FLIGHT,
    renewal::{Left, Renewal},
    running::{JobInputs, Running, ScanPositions, StoredSplit},
};
use crate::{
    coordinator::sources::SourceHandle,
    engine::Shared,
    error::{EngineError, Result, panic_text},
    message::Barrier,
    scan::collection::CollectionPassed,
    task::{cut::CheckpointPart, subtask::SubtaskId},
};

/// State of one attempt.
pub(super) struct Attempt {
    pub(super) running: Running,
    pub(super) checkpointer: Arc<Checkpointer>,
    pub(super) store: Arc<JobStore>,
    pub(super) inputs: JobInputs,
    pub(super) positions: ScanPositions,
    /// By which watermarks rows were late at the last checkpoint, per node.
    pub(super) applied: BTreeMap<usize, i64>,
    /// Where the scans stood when the attempt began.
    pub(super) positions_at_start: ScanPositions,
    pub(super) injected: Epoch,
    pub(super) upper_at_start: Epoch,
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) passed: Vec<CollectionPassed>,
    pub(super) checkpoint_wanted: bool,
    /// Somebody waits for one.
    pub(super) checkpoint_asked: bool,
    /// A barrier has been injected since the one of the newest checkpoint.
    pub(super) is_changed: bool,
    pub(super) checkpoint_running: Option<RunningCheckpoint>,
    /// Checkpoints that have failed since one was complete.
    pub(super) checkpoint_failures: u32,
    /// The checkpoint with which it began, if it did with one, is complete.
    pub(super) is_founded: bool,
    pub(super) last_checkpoint: Instant,
    pub(super) no_checkpoint_before: Instant,
    pub(super) final_injected: bool,
    pub(super) renewal: Renewal,
    /// What subtasks have left behind their last checkpoint.
    pub(super) handed: Vec<HandedTask>,
    /// Where they have left it.
    pub(super) left: Option<Left>,
    pub(super) ready: bool,
    /// Some fragment's state can be taken where it stands.
    pub(super) can_overtake: bool,
    pub(super) state_bytes: BTreeMap<SubtaskId, usize>,
    /// Subtasks that are being restarted alone.
    pub(super) restarted: BTreeSet<SubtaskId>,
    /// Their state is being put back.
    pub(super) rewinds: JoinSet<()>,
}

pub(super) struct InFlight {
    pub(super) barrier: Barrier,
    pub(super) injected_at: Instant,
    pub(super) roots_left: usize,
    pub(super) tasks_left: usize,
    pub(super) parts: Vec<Part>,
    /// The barriers that were in flight when it was injected, and itself, if it asks for a checkpoint: some subtask may not have closed them when
    /// its state is taken, even if all have when all parts have come.
    pub(super) barriers: Vec<Barrier>,
    /// When its barrier waits no longer, if it is that of a checkpoint.
    pub(super) switch_at: Option<Instant>,
    /// All parts of the checkpoint have come, and have been passed on.
    pub(super) is_checkpointed: bool,
}

/// What a subtask gave to a checkpoint.
pub(super) struct Part {
    pub(super) id: SubtaskId,
    pub(super) part: Box<CheckpointPart>,
    /// From the barrier's injection.
    pub(super) delay: Duration,
}

/// A checkpoint that is being completed; given up when dropped.
pub(super) struct RunningCheckpoint {
    /// Its epoch.
    pub(super) epoch: Epoch,
    /// When its barrier was injected.
    pub(super) injected_at: Instant,
    pub(super) task: JoinHandle<Result<CompleteCheckpoint>>,
}

/// How a checkpoint ended.
pub(super) struct CheckpointEnd {
    /// Its epoch.
    pub(super) epoch: Epoch,
    /// From the injection of its barrier.
    pub(super) duration: Duration,
    pub(super) result: Result<CompleteCheckpoint>,
}

impl RunningCheckpoint {
    /// Waits for its end.
    pub(super) async fn end(&mut self) -> CheckpointEnd {
        let joined = (&mut self.task).await;
        let result = joined.unwrap_or_else(|error| Err(EngineError::Internal(format!("checkpoint task: {error}"))));
        CheckpointEnd { epoch: self.epoch, duration: self.injected_at.elapsed(), result }
    }
}

impl Drop for RunningCheckpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Barriers that may be in flight beyond the usual number when each asks for a checkpoint.
const CHECKPOINTS_IN_FLIGHT: usize = 60;

impl Attempt {
    /// Gives up a checkpoint that is being completed: it would delete, as garbage, what the next attempt uploads. Answers what that attempt has to
    /// wait for.
    pub(super) async fn give_up_checkpoint(&mut self) -> Settling {
        if let Some(mut running) = self.checkpoint_running.take() {
            running.task.abort();
            // How it ends does not matter.
            let _ = running.end().await;
        }
        self.checkpointer.settling()
    }

    pub(super) fn backfilling(&self) -> bool {
        self.inputs.scans.iter().any(|(node, collection)| {
            collection.is_some() && self.positions.collections.get(node).is_none_or(|position| position.backfill_after.is_some())
        })
    }

    /// Whether a checkpoint at `epoch` would make a new job readable: contents have been read, and so has every source that exists in full.
    pub(super) fn publishable_at(&self, epoch: Epoch) -> bool {
        let read = |source: &SourceHandle| !source.exists_in_full() || source.finished().is_some_and(|end| end <= epoch);
        !self.backfilling() && epoch >= self.upper_at_start && self.inputs.sources.values().all(|source| read(source))
    }

    pub(super) fn checkpoint_due(&self, epoch: Epoch, interval: Duration) -> bool {
        let first = !self.ready && self.publishable_at(epoch);
        let due = first || self.checkpoint_wanted || self.last_checkpoint.elapsed() >= interval;
        due && Instant::now() >= self.no_checkpoint_before
            && self.checkpoint_running.is_none()
            && !self.in_flight.iter().any(InFlight::is_checkpointing)
    }

    /// Whether there is no room for another barrier. One that asks for a checkpoint need not wait for others.
    pub(super) fn is_full(&self, checkpoint_interval: Duration) -> bool {
        let extra = if self.may_overtake() && self.checkpoint_due(self.injected, checkpoint_interval) { CHECKPOINTS_IN_FLIGHT } else { 0 };
        self.in_flight.len() >= BARRIERS_IN_FLIGHT + extra
    }

    /// Whether a checkpoint's barrier may pass what is in its way. What a job that is not readable yet has is begun anew after a crash.
    pub(super) fn may_overtake(&self) -> bool {
        self.can_overtake && self.ready
    }

    /// When the next checkpoint waits no longer, and which it is.
    pub(super) fn next_switch(&self) -> Option<(Instant, Epoch)> {
        let waiting = self.in_flight.iter().filter(|flight| flight.is_checkpointing());
        waiting.filter_map(|flight| Some((flight.switch_at?, flight.barrier.epoch))).min()
    }

    /// A checkpoint waits no longer.
    pub(super) fn switch(&mut self, checkpoint: Epoch) {
        for flight in self.in_flight.iter_mut().filter(|flight| flight.barrier.epoch == checkpoint) {
            flight.switch_at = None;
        }
        self.running.switch.switch(checkpoint);
    }

    pub(super) fn changed_upto(&self, epoch: Epoch) -> Result<bool> {
        if self.inputs.sources.values().any(|source| source.moved(self.injected, epoch)) {
            return Ok(true);
        }
        for collection in self.inputs.collections.values() {
            if !collection.deltas(self.injected, epoch)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether every input has ended at or before `epoch`.
    pub(super) fn inputs_end_at(&self, epoch: Epoch, shared: &Shared) -> bool {
        let sources = self.inputs.sources.values().all(|source| source.finished().is_some_and(|end| end <= epoch));
        let collections = self.inputs.collections.keys().all(|id| shared.job_finished_at(*id).is_some_and(|end| end <= epoch));
        let some = !self.inputs.sources.is_empty() || !self.inputs.collections.is_empty() || !self.inputs.scans.is_empty();
        sources && collections && some && !self.backfilling() && self.injected > Epoch(0)
    }

    /// Positions of sources follow from what the epoch bound.
    pub(super) fn move_sources_to(&mut self, epoch: Epoch) {
        for (id, source) in &self.inputs.sources {
            let watermark = source.watermark_at(epoch);
            let splits = self.positions.sources.entry(*id).or_default();
            for (split, bound) in source.bound_at(epoch) {
                let before = splits.get(&split).copied();
                splits.insert(split, StoredSplit::at(bound, watermark, before));
            }
        }
    }

    /// The barrier of this epoch.
    pub(super) fn flight(&mut self, epoch: Epoch) -> Result<&mut InFlight> {
        let flight = self.in_flight.iter_mut().find(|flight| flight.barrier.epoch == epoch);
        flight.ok_or_else(|| EngineError::Internal(format!("a barrier of epoch {epoch} was not injected")))
    }

    pub(super) fn drain_passed(&mut self) -> Vec<CollectionPassed> {
        std::iter::from_fn(|| self.running.passed.try_recv().ok()).collect()
    }
}

impl InFlight {
    /// A barrier that is injected now and that `subtasks` have to pass.
    pub(super) fn new(barrier: Barrier, subtasks: usize) -> Self {
        Self {
            barrier,
            injected_at: Instant::now(),
            roots_left: 0,
            tasks_left: subtasks,
            parts: Vec::new(),
            barriers: Vec::new(),
            switch_at: None,
            is_checkpointed: false,
        }
    }

    /// Whether it asks for a checkpoint of which parts have still to come.
    pub(super) fn is_checkpointing(&self) -> bool {
        self.barrier.kind.is_checkpoint() && !self.is_checkpointed
    }
}

/// A part of an interval, in `0..0.5`, that no two of a few jobs have alike: consecutive multiples of the golden ratio lie far apart.
pub(super) fn phase(job: u64) -> f64 {
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
    (job % 4096) as f64 * GOLDEN_RATIO % 1.0 / 2.0
}

/// Ends when a checkpoint waits no longer, and says which.
pub(super) async fn wait_switch(next: Option<(Instant, Epoch)>) -> Epoch {
    match next {
        Some((at, checkpoint)) => {
            tokio::time::sleep_until(at.into()).await;
            checkpoint
        }
        None => std::future::pending().await,
    }
}

pub(super) async fn wait_checkpoint(running: &mut Option<RunningCheckpoint>) -> CheckpointEnd {
    match running {
        Some(running) => running.end().await,
        None => std::future::pending().await,
    }
}

pub(super) fn on_task_end(ended: Option<Result<Result<()>, tokio::task::JoinError>>) -> Result<()> {
    match ended {
        None | Some(Ok(Ok(()))) => Ok(()),
        Some(Ok(Err(error))) => Err(error),
        Some(Err(join)) if join.is_panic() => {
            Err(EngineError::Internal(format!("a subtask panicked: {}", panic_text(&*join.into_panic()))))
        }
        Some(Err(_)) => Err(EngineError::Cancelled),
    }
}
