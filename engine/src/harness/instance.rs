//! One subtask of the operator test bench, and the place where its state lives.

use std::sync::{Arc, atomic::AtomicI64};

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, SchemaRef},
};
use millpond_storage::{
    checkpoint::{Checkpointer, ManifestInput},
    encoding::{EncodedRows, key::KeyCodec},
    epoch::Epoch,
    key_group::key_group_range,
    memory::MemoryBudget,
    object::ObjectStorage,
    rocks::RocksShared,
    state_store::StateBackend,
    state_table::{JobStore, JobStoreSpec, StateOrigin, TaskCheckpoint, TaskState},
};

use crate::{
    chunk::Chunk,
    graph::OperatorNode,
    message::{Barrier, Watermark},
    operator::{Emitted, Operator, OperatorContext, Output, Progress, SideOutput, build},
};

/// Store, scratch directory and checkpoints of a bench.
pub(super) struct Place {
    store: Arc<JobStore>,
    budget: MemoryBudget,
    backend: StateBackend,
    directory: tempfile::TempDir,
    objects: ObjectStorage,
    /// That of the current life of the job; each life has a term of its own.
    checkpointer: Checkpointer,
    runtime: tokio::runtime::Runtime,
    generation: u64,
    closed: Epoch,
    applied: i64,
}

impl Place {
    pub(super) fn new(budget_bytes: usize, backend: StateBackend) -> Self {
        let budget = MemoryBudget::new(budget_bytes);
        let directory = tempfile::tempdir().expect("a scratch directory can be made");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        let store = open_store(&directory, &budget, 0, backend);
        let objects = ObjectStorage::memory();
        let checkpointer = Checkpointer::new(objects.clone(), 1, 1, 0);
        Self { store, budget, backend, directory, objects, checkpointer, runtime, generation: 0, closed: Epoch(0), applied: i64::MIN }
    }

    pub(super) fn memory_used(&self) -> usize {
        self.budget.used()
    }

    /// Makes a checkpoint of what the subtasks gave, and an empty store for what comes next. All of them had closed `closed`, with the
    /// watermark `applied`.
    pub(super) fn complete(&mut self, epoch: Epoch, closed: Epoch, applied: i64, parts: Vec<TaskCheckpoint>) {
        let input = ManifestInput { epoch, parts, in_flight: None, upstream: Vec::new(), notes: Default::default() };
        self.runtime.block_on(self.checkpointer.complete(input)).expect("a checkpoint completes");
        self.generation += 1;
        (self.closed, self.applied) = (closed, applied);
        self.checkpointer = Checkpointer::new(self.objects.clone(), 1, self.generation + 1, 0);
        self.store = open_store(&self.directory, &self.budget, self.generation, self.backend);
    }

    /// Brings the newest checkpoint, if there is one, into the store.
    pub(super) fn restore(&self) -> StateOrigin {
        let checkpointer = &self.checkpointer;
        self.runtime.block_on(async {
            match checkpointer.restore().await.expect("checkpoints can be read") {
                None => StateOrigin::Empty,
                Some(restored) => {
                    StateOrigin::Checkpoint(checkpointer.load_into(&restored, &self.store).await.expect("a checkpoint can be loaded"))
                }
            }
        })
    }
}

fn open_store(directory: &tempfile::TempDir, budget: &MemoryBudget, generation: u64, backend: StateBackend) -> Arc<JobStore> {
    let spec = JobStoreSpec {
        directory: directory.path().join(generation.to_string()),
        backend,
        budget: budget.clone(),
        shared: RocksShared::new(8 << 20),
    };
    JobStore::open(spec).expect("a store can be opened")
}

/// See the module.
pub(super) struct Instance {
    operator: Box<dyn Operator>,
    context: OperatorContext,
}

impl Instance {
    pub(super) fn build(
        node: &OperatorNode,
        inputs: Vec<SchemaRef>,
        side: Arc<dyn SideOutput>,
        subtask: usize,
        parallelism: usize,
        place: &Place,
        origin: StateOrigin,
    ) -> Self {
        let groups = key_group_range(subtask, parallelism);
        let state = TaskState::new(place.store.clone(), subtask as u32, groups, origin).expect("state can be restored");
        let budget = place.budget.clone();
        let epoch_time_us = Arc::new(AtomicI64::new(0));
        let closed = place.closed;
        let mut context =
            OperatorContext { state, side, budget, closed, applied_watermark: place.applied, epoch_time_us, subtask, parallelism, inputs };
        let operator = build(node, &mut context).expect("the operator can be built");
        Self { operator, context }
    }

    /// Finishes a callback, emptying the output whenever it is full.
    fn finish(&mut self, mut progress: Progress, mut out: Output, mut emitted: Vec<Emitted>) -> Vec<Emitted> {
        emitted.extend(out.take());
        while progress == Progress::More {
            progress = self.operator.resume(&mut out).expect("the operator goes on");
            emitted.extend(out.take());
        }
        self.operator.tables().into_iter().for_each(|table| table.relieve().expect("a table gives memory back"));
        emitted
    }

    pub(super) fn on_chunk(&mut self, port: usize, chunk: Chunk, room: usize) -> Vec<Emitted> {
        let mut out = Output::with_room(room);
        let progress = self.operator.on_chunk(port, chunk, &mut out).expect("the operator takes a chunk");
        self.finish(progress, out, Vec::new())
    }

    pub(super) fn on_watermark(&mut self, port: usize, watermark: Watermark, room: usize) -> Vec<Emitted> {
        let mut out = Output::with_room(room);
        let progress = self.operator.on_watermark(port, watermark, &mut out).expect("the operator takes a watermark");
        self.finish(progress, out, Vec::new())
    }

    pub(super) fn on_barrier(&mut self, barrier: Barrier, room: usize) -> Vec<Emitted> {
        let mut out = Output::with_room(room);
        let progress = self.operator.on_barrier(&barrier, &mut out).expect("the operator takes a barrier");
        self.finish(progress, out, Vec::new())
    }

    pub(super) fn applied_watermark(&self) -> i64 {
        self.operator.applied_watermark().unwrap_or(i64::MIN)
    }

    pub(super) fn snapshot(&mut self, closed: Epoch, checkpoint: Epoch) -> TaskCheckpoint {
        self.operator.snapshot(closed).expect("the operator writes its state");
        let mut tables = self.operator.tables();
        self.context.state.snapshot(&mut tables, checkpoint).expect("state can be drained")
    }
}

/// Encoded distribution keys of a chunk's rows.
pub(super) fn encode_keys(chunk: &Chunk, columns: &[usize]) -> EncodedRows {
    let arrays: Vec<ArrayRef> = columns.iter().map(|column| chunk.batch().column(*column).clone()).collect();
    let types: Vec<DataType> = arrays.iter().map(|array| array.data_type().clone()).collect();
    let codec = KeyCodec::ascending(&types).expect("key columns can be encoded");
    codec.encode(&arrays).expect("key columns can be encoded")
}
