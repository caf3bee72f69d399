//! State of one attempt at running a job: what has been injected, what has passed, and what follows from it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{checkpoint::Checkpointer, epoch::Epoch, state_table::TaskCheckpoint};

use super::{
    running::{JobInputs, Running, ScanPositions, StoredSplit},
    status::CheckpointStatus,
};
use crate::{
    coordinator::sources::SourceHandle,
    engine::Shared,
    error::{EngineError, Result, panic_text},
    message::Barrier,
    scan::collection::CollectionPassed,
    task::subtask::SubtaskId,
};

/// State of one attempt.
pub(super) struct Attempt {
    pub(super) running: Running,
    pub(super) checkpointer: Arc<Checkpointer>,
    pub(super) inputs: JobInputs,
    pub(super) positions: ScanPositions,
    pub(super) injected: Epoch,
    pub(super) upper_at_start: Epoch,
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) passed: Vec<CollectionPassed>,
    pub(super) checkpoint_wanted: bool,
    pub(super) checkpoint_running: Option<tokio::task::JoinHandle<Result<CheckpointStatus>>>,
    pub(super) last_checkpoint: Instant,
    pub(super) no_checkpoint_before: Instant,
    pub(super) final_injected: bool,
    pub(super) renewal: Renewal,
    pub(super) ready: bool,
    pub(super) state_bytes: BTreeMap<SubtaskId, usize>,
}

/// How far the change to another attempt is that new settings need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    /// None is wanted.
    None,
    /// At the next checkpoint.
    Wanted,
    /// The checkpoint of this epoch is under way; nothing is read beyond it.
    Begun(Epoch),
    /// The checkpoint is complete.
    Due,
}

pub(super) struct InFlight {
    pub(super) barrier: Barrier,
    pub(super) injected_at: Instant,
    pub(super) roots_left: usize,
    pub(super) tasks_left: usize,
    pub(super) parts: Vec<TaskCheckpoint>,
}

impl Attempt {
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
            && !self.in_flight.iter().any(|flight| flight.barrier.kind.is_checkpoint())
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

    pub(super) fn drain_passed(&mut self) -> Vec<CollectionPassed> {
        std::iter::from_fn(|| self.running.passed.try_recv().ok()).collect()
    }
}

pub(super) async fn wait_checkpoint(running: &mut Option<tokio::task::JoinHandle<Result<CheckpointStatus>>>) -> Result<CheckpointStatus> {
    match running {
        Some(task) => task.await.map_err(|error| EngineError::Internal(format!("checkpoint task: {error}")))?,
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
