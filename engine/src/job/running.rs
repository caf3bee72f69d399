//! One attempt at running a job: its subtasks and readers are spawned, and talked to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use millpond_storage::{collection::Collection, epoch::Epoch, state_table::StateOrigin};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet};

use super::{collector::Collector, spec::JobSpec, status::JobHandle};
use crate::{
    coordinator::{Coordinator, sources::SourceHandle},
    error::{EngineError, Result},
    exchange::switch::Switch,
    graph::OperatorSpec,
    message::Barrier,
    operator::SideOutput,
    scan::{
        collection::{CollectionAdvance, CollectionPassed, CollectionPosition, CollectionReader},
        place::ScanPlaces,
        source::{BoundSplit, SourceAdvance, SourceOrder, SourceReader, SplitPosition},
        values::ValuesReader,
    },
    task::{
        build::{BuildContext, Built, Control, ScanChannel, build},
        orders::Orders,
        restart::Restart,
        subtask::{SubtaskId, TaskEvent},
    },
};

/// Where every scan stands: what a checkpoint keeps besides operator state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanPositions {
    /// Per source and split.
    pub sources: BTreeMap<u64, BTreeMap<String, StoredSplit>>,
    /// Per scan node and split, where an unaligned checkpoint found a scan at another place than its source stands for all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub splits: BTreeMap<usize, BTreeMap<String, StoredSplit>>,
    /// Per scan node.
    pub collections: BTreeMap<usize, CollectionPosition>,
}

/// [`SplitPosition`] as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSplit {
    offset: u64,
    watermark_us: i64,
    floor_us: i64,
    #[serde(default)]
    skip: u64,
}

impl ScanPositions {
    /// The positions of a job in the midst of epochs: `self` is where it stood when the attempt began, `passed` where all its subtasks have passed
    /// since, and `places` what each has taken.
    pub(super) fn in_midst(&self, passed: &Self, places: impl Iterator<Item = ScanPlaces>) -> Self {
        let mut positions = Self { sources: passed.sources.clone(), ..self.clone() };
        for places in places {
            for ((node, split), position) in places.splits {
                positions.splits.entry(node).or_default().insert(split.to_string(), StoredSplit::of(position));
            }
            positions.collections.extend(places.collections);
        }
        positions
    }

    /// Where the reader of a scan of `source` starts, by split.
    fn of_scan(&self, node: usize, source: u64) -> HashMap<String, SplitPosition> {
        let of_source = self.sources.get(&source).into_iter().flatten();
        let of_node = self.splits.get(&node).into_iter().flatten();
        of_source.chain(of_node).map(|(split, position)| (split.clone(), position.restore())).collect()
    }
}

/// What a job reads.
#[derive(Default)]
pub struct JobInputs {
    /// External sources.
    pub sources: BTreeMap<u64, Arc<SourceHandle>>,
    /// Collections, by id.
    pub collections: BTreeMap<u64, Arc<Collection>>,
    /// Scan nodes and the collection each reads; `None` for constant rows.
    pub scans: BTreeMap<usize, Option<u64>>,
}

impl JobInputs {
    /// The first epoch from `epoch` on at which every collection is known one by one, if it is `reachable`. A view that catches up takes epochs
    /// together, and what it has sealed so stays so after a restart.
    pub(super) fn boundary_from(&self, mut epoch: Epoch, reachable: Epoch) -> Option<Epoch> {
        loop {
            let next = self.collections.values().map(|collection| collection.boundary_from(epoch)).max().unwrap_or(epoch);
            if next > reachable {
                return None;
            }
            if next == epoch {
                return Some(epoch);
            }
            epoch = next;
        }
    }
}

/// A running attempt. Dropping it stops everything.
pub struct Running {
    /// Subtasks and readers; an error or a panic of any ends the attempt.
    pub tasks: JoinSet<Result<()>>,
    /// Reports of subtasks.
    pub events: mpsc::UnboundedReceiver<TaskEvent>,
    /// Reports of collection readers.
    pub passed: mpsc::UnboundedReceiver<CollectionPassed>,
    /// Hands over the root's output.
    pub collector: Arc<Collector>,
    /// Subtasks of the root fragment.
    pub roots: usize,
    /// All subtasks.
    pub subtasks: usize,
    /// Says which checkpoint waits no longer.
    pub(super) switch: Arc<Switch>,
    /// How each subtask is spoken to.
    pub(super) controls: BTreeMap<SubtaskId, Control>,
    /// The newest complete checkpoint, for the subtasks.
    completed: Arc<AtomicU64>,
    source_commands: Vec<SourceCommands>,
    /// With the last epoch that the reader's subtask had closed at the start.
    collection_commands: Vec<(Epoch, mpsc::UnboundedSender<CollectionAdvance>)>,
}

struct SourceCommands {
    source: u64,
    /// The last epoch that the reader's subtask had closed at the start.
    closed: Epoch,
    orders: mpsc::UnboundedSender<SourceOrder>,
}

/// What an attempt is spawned with.
pub struct Spawn<'a> {
    /// The job.
    pub spec: &'a JobSpec,
    /// Subtasks of a parallel fragment.
    pub parallelism: usize,
    /// What subtasks and readers are told.
    pub orders: Arc<Orders>,
    /// What it reads.
    pub inputs: &'a JobInputs,
    /// Where its scans start.
    pub positions: &'a ScanPositions,
    /// Where its subtasks start.
    pub restart: Restart,
    /// The epoch of the checkpoint that this is, if it is one.
    pub begins_at: Option<Epoch>,
    /// Its operator state.
    pub store: Arc<millpond_storage::state_table::JobStore>,
    /// Where that comes from.
    pub origin: StateOrigin,
    /// Late and bad rows.
    pub side: Arc<dyn SideOutput>,
    /// The memory budget.
    pub budget: millpond_storage::memory::MemoryBudget,
    /// Tells how long operators are busy.
    pub clock: millpond_storage::env::Clock,
    /// Where subtasks run.
    pub runtime: &'a Handle,
}

impl JobInputs {
    /// Looks up what a graph scans.
    ///
    /// # Errors
    /// Internal, when the catalog and the engine disagree.
    pub fn resolve(spec: &JobSpec, coordinator: &Coordinator, collection: &dyn Fn(u64) -> Option<Arc<Collection>>) -> Result<Self> {
        let mut inputs = Self::default();
        for node in spec.graph.fragments.iter().flat_map(|fragment| &fragment.nodes) {
            match &node.spec {
                OperatorSpec::SourceScan { source, .. } => {
                    let handle =
                        coordinator.source(*source).ok_or_else(|| EngineError::Internal(format!("source {source} is not registered")))?;
                    inputs.sources.insert(*source, handle);
                }
                OperatorSpec::CollectionScan { collection: id, .. } => {
                    let handle = collection(*id).ok_or_else(|| EngineError::Internal(format!("collection {id} is not open")))?;
                    inputs.collections.insert(*id, handle);
                    inputs.scans.insert(node.id, Some(*id));
                }
                OperatorSpec::Values { .. } => {
                    inputs.scans.insert(node.id, None);
                }
                OperatorSpec::Filter { .. }
                | OperatorSpec::Project { .. }
                | OperatorSpec::Union
                | OperatorSpec::HopWindow { .. }
                | OperatorSpec::Aggregate(_)
                | OperatorSpec::Join(_)
                | OperatorSpec::TopN(_)
                | OperatorSpec::EmitOnWindowClose { .. }
                | OperatorSpec::ScalarSubquery
                | OperatorSpec::Materialize { .. }
                | OperatorSpec::Discard => {}
            }
        }
        Ok(inputs)
    }
}

impl Running {
    /// Spawns an attempt.
    pub fn spawn(mut spawn: Spawn<'_>, handle: &JobHandle) -> Result<Self> {
        let (events, events_in) = mpsc::unbounded_channel();
        let (passed, passed_in) = mpsc::unbounded_channel();
        let collector = Arc::new(Collector::restored(std::mem::take(&mut spawn.restart.unsealed)));
        let switch = Arc::new(Switch::default());
        let completed = Arc::new(AtomicU64::new(spawn.begins_at.unwrap_or_default().0));
        let context = BuildContext {
            parallelism: spawn.parallelism,
            store: spawn.store.clone(),
            origin: spawn.origin.clone(),
            restart: std::mem::take(&mut spawn.restart),
            begins_at: spawn.begins_at,
            completed: completed.clone(),
            switch: switch.clone(),
            budget: spawn.budget.clone(),
            clock: spawn.clock.clone(),
            side: spawn.side.clone(),
            collector: collector.clone(),
            orders: spawn.orders.clone(),
            rows_in: handle.rows_in.clone(),
            events,
        };
        let Built { subtasks, scans, edges, roots, controls } = build(&spawn.spec.graph, &context)?;
        let mut running = Self {
            tasks: JoinSet::new(),
            events: events_in,
            passed: passed_in,
            collector,
            roots,
            subtasks: subtasks.len(),
            switch,
            controls,
            completed,
            source_commands: Vec::new(),
            collection_commands: Vec::new(),
        };
        handle.watch(edges, spawn.orders.clone());
        for subtask in subtasks {
            running.tasks.spawn_on(subtask.run(), spawn.runtime);
        }
        for scan in scans {
            running.spawn_reader(scan, &spawn, &passed)?;
        }
        Ok(running)
    }

    fn spawn_reader(&mut self, scan: ScanChannel, spawn: &Spawn<'_>, passed: &mpsc::UnboundedSender<CollectionPassed>) -> Result<()> {
        let reads = scan.subtask.0 == 0;
        let position = || spawn.positions.collections.get(&scan.node).cloned().unwrap_or_else(CollectionPosition::start);
        match scan.spec {
            OperatorSpec::SourceScan { source, projection } => {
                let handle = spawn.inputs.sources.get(&source).ok_or_else(|| EngineError::Internal("inputs are resolved first".into()))?;
                let (sender, commands) = mpsc::unbounded_channel();
                let start = spawn.positions.of_scan(scan.node, source);
                let reader = SourceReader {
                    source: handle.clone(),
                    projection,
                    subtask: scan.subtask,
                    start,
                    passed: scan.closed,
                    output: scan.output,
                    commands,
                    side: spawn.side.clone(),
                    orders: spawn.orders.clone(),
                };
                self.tasks.spawn_on(reader.run(), spawn.runtime);
                self.source_commands.push(SourceCommands { source, closed: scan.closed, orders: sender });
            }
            OperatorSpec::CollectionScan { collection, projection } => {
                let collection =
                    spawn.inputs.collections.get(&collection).ok_or_else(|| EngineError::Internal("inputs are resolved first".into()))?;
                let (sender, commands) = mpsc::unbounded_channel();
                let position = position();
                let reader = CollectionReader {
                    node: scan.node,
                    collection: collection.clone(),
                    projection,
                    reads,
                    skip: position.emitted,
                    position,
                    output: scan.output,
                    commands,
                    passed: passed.clone(),
                };
                self.tasks.spawn_on(reader.run(), spawn.runtime);
                self.collection_commands.push((scan.closed, sender));
            }
            OperatorSpec::Values { batch } => {
                let (sender, commands) = mpsc::unbounded_channel();
                let reader = ValuesReader {
                    node: scan.node,
                    batch,
                    reads,
                    position: position(),
                    output: scan.output,
                    commands,
                    passed: passed.clone(),
                };
                self.tasks.spawn_on(reader.run(), spawn.runtime);
                self.collection_commands.push((scan.closed, sender));
            }
            _ => return Err(EngineError::Internal("only scans have readers".into())),
        }
        Ok(())
    }

    /// Tells the subtasks that a checkpoint is complete.
    pub(super) fn complete(&self, checkpoint: Epoch) {
        self.completed.store(checkpoint.0, Ordering::Release);
    }

    /// Tells every reader of a source that the job passes an epoch without a barrier.
    pub fn skip(&self, epoch: Epoch) {
        for reader in &self.source_commands {
            let _ = reader.orders.send(SourceOrder::Skip(epoch));
        }
    }

    /// Sends a barrier to every reader whose subtask has not closed its epoch in an earlier life.
    pub fn inject(&self, barrier: Barrier, inputs: &JobInputs) {
        let mut advances: HashMap<u64, SourceAdvance> = HashMap::new();
        for (id, source) in &inputs.sources {
            let bindings = Arc::new(source.bound_at(barrier.epoch));
            advances.insert(*id, SourceAdvance { barrier, bindings, watermark_us: source.watermark_at(barrier.epoch) });
        }
        // A reader that is gone has failed; the driver learns it from the task set.
        for reader in self.source_commands.iter().filter(|reader| reader.closed < barrier.epoch) {
            if let Some(advance) = advances.get(&reader.source) {
                let _ = reader.orders.send(SourceOrder::Advance(advance.clone()));
            }
        }
        for (_, commands) in self.collection_commands.iter().filter(|(closed, _)| *closed < barrier.epoch) {
            let _ = commands.send(CollectionAdvance { barrier });
        }
    }
}

impl StoredSplit {
    /// Where a split stands after an epoch. A split that was idle while the source's watermark passed diverts what lies below it later.
    pub fn at(bound: BoundSplit, watermark: Option<i64>, before: Option<Self>) -> Self {
        let floor = before.map_or(i64::MIN, |before| before.floor_us);
        let floor_us = if bound.idle { floor.max(watermark.unwrap_or(i64::MIN)) } else { floor };
        Self { offset: bound.end, watermark_us: bound.watermark_us, floor_us, skip: 0 }
    }

    fn of(position: SplitPosition) -> Self {
        let SplitPosition { offset, watermark_us, floor_us, skip } = position;
        Self { offset, watermark_us, floor_us, skip }
    }

    fn restore(self) -> SplitPosition {
        SplitPosition { offset: self.offset, watermark_us: self.watermark_us, floor_us: self.floor_us, skip: self.skip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_scans_of_a_source_may_stand_at_different_places() {
        let at = |offset, skip| SplitPosition { offset, watermark_us: 1, floor_us: 0, skip };
        let stored =
            |offset| BTreeMap::from([("a".to_string(), StoredSplit::of(at(offset, 0))), ("b".to_string(), StoredSplit::of(at(7, 0)))]);
        let start = ScanPositions { sources: BTreeMap::from([(9, stored(10))]), ..ScanPositions::default() };
        let passed = ScanPositions { sources: BTreeMap::from([(9, stored(20))]), ..ScanPositions::default() };
        let mut places = ScanPlaces::default();
        places.splits.insert((1, "a".into()), at(30, 4));
        places.splits.insert((2, "a".into()), at(25, 0));
        let found = start.in_midst(&passed, [places].into_iter());
        let text = serde_json::to_string(&found).expect("numbers and names");
        let read: ScanPositions = serde_json::from_str(&text).expect("what was written");
        assert_eq!(read, found);
        assert_eq!((read.of_scan(1, 9)["a"], read.of_scan(2, 9)["a"]), (at(30, 4), at(25, 0)));
        assert_eq!((read.of_scan(3, 9)["a"], read.of_scan(1, 9)["b"]), (at(20, 0), at(7, 0)));
        let old = r#"{"sources":{"9":{"a":{"offset":3,"watermark_us":1,"floor_us":0}}},"collections":{}}"#;
        let old: ScanPositions = serde_json::from_str(old).expect("positions without what came later");
        assert_eq!(old.of_scan(1, 9)["a"], at(3, 0));
    }
}
