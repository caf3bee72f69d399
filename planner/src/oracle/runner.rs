//! Runs a planned graph with the engine's operators, fragment after fragment, in one thread.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicI64},
};

use millpond_engine::{
    chunk::Chunk,
    error::EngineError,
    graph::{CollectionKeySpec, NodeInput, OperatorNode, OperatorSpec},
    message::{Barrier, BarrierKind},
    operator::{Emitted, Operator, OperatorContext, Origin, Output, Progress, SideOutput, build},
};
use millpond_storage::{
    epoch::Epoch,
    key_group::key_group_range,
    memory::MemoryBudget,
    rocks::RocksShared,
    state_store::StateBackend,
    state_table::{JobStore, JobStoreSpec, StateOrigin, TaskState},
};

use super::{Contents, history::Numbers, reference::row_text};
use crate::stream::StreamPlan;

/// Refused rows fail the test.
struct NoRefusals;

impl SideOutput for NoRefusals {
    fn late_row(&self, operator: &str, row_text: String, reason: String, _: Option<Origin<'_>>) {
        panic!("{operator} found a row late: {row_text}: {reason}");
    }

    fn bad_row(&self, operator: &str, row_text: String, reason: String, _: Option<Origin<'_>>) {
        panic!("{operator} refused a row: {row_text}: {reason}");
    }
}

pub(super) struct Runner {
    plan: StreamPlan,
    operators: Vec<Vec<Option<Box<dyn Operator>>>>,
    contents: Contents,
    numbers: Numbers,
    epoch: u64,
    _directory: tempfile::TempDir,
}

impl Runner {
    /// `None` if the engine has no implementation of an operator yet.
    pub(super) fn new(plan: StreamPlan, seed: u64) -> Result<Option<Self>, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let budget = MemoryBudget::new(64 << 20);
        let spec = JobStoreSpec {
            directory: directory.path().join("state"),
            backend: StateBackend::Memory,
            budget: budget.clone(),
            shared: RocksShared::new(8 << 20),
        };
        let store = JobStore::open(spec).map_err(|error| error.to_string())?;
        let mut operators = Vec::new();
        for fragment in &plan.graph.fragments {
            let mut built = Vec::new();
            for node in &fragment.nodes {
                let schema = |input: &NodeInput| match input {
                    NodeInput::Node(below) => fragment.nodes[*below].schema.clone(),
                    NodeInput::Exchange(exchange) => plan.graph.exchanges[*exchange].schema.clone(),
                };
                let state =
                    TaskState::new(store.clone(), 0, key_group_range(0, 1), StateOrigin::Empty).map_err(|error| error.to_string())?;
                let mut context = OperatorContext {
                    state,
                    side: Arc::new(NoRefusals),
                    budget: budget.clone(),
                    closed: Epoch(0),
                    applied_watermark: i64::MIN,
                    epoch_time_us: Arc::new(AtomicI64::new(0)),
                    subtask: 0,
                    parallelism: 1,
                    inputs: node.inputs.iter().map(schema).collect(),
                };
                built.push(match build(node, &mut context) {
                    Ok(operator) => Some(operator),
                    Err(_) if is_ours(node) => None,
                    Err(EngineError::Internal(text)) if text.contains("no implementation") => return Ok(None),
                    Err(error) => return Err(error.to_string()),
                });
            }
            operators.push(built);
        }
        Ok(Some(Self { plan, operators, contents: Contents::new(), numbers: Numbers::new(seed), epoch: 0, _directory: directory }))
    }

    /// What the view contains.
    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Runs an epoch: changes of relations by id.
    pub(super) fn epoch(&mut self, changes: &BTreeMap<u64, Chunk>) -> Result<(), String> {
        self.epoch += 1;
        let mut edges: BTreeMap<usize, Vec<Emitted>> = BTreeMap::new();
        let graph = self.plan.graph.clone();
        for fragment in &graph.fragments {
            let mut outputs: Vec<Vec<Emitted>> = Vec::new();
            for (place, node) in fragment.nodes.iter().enumerate() {
                let inputs: Vec<Vec<Emitted>> = node
                    .inputs
                    .iter()
                    .map(|input| match input {
                        NodeInput::Node(below) => outputs[*below].clone(),
                        NodeInput::Exchange(exchange) => edges.get(exchange).cloned().unwrap_or_default(),
                    })
                    .collect();
                let output = match &node.spec {
                    OperatorSpec::SourceScan { source: relation, projection }
                    | OperatorSpec::CollectionScan { collection: relation, projection } => {
                        changes.get(relation).map(|chunk| project(chunk, projection)).into_iter().collect()
                    }
                    OperatorSpec::Values { batch } if self.epoch == 1 => vec![Emitted::Chunk(Chunk::inserts(batch.clone()))],
                    OperatorSpec::Values { .. } => Vec::new(),
                    OperatorSpec::Materialize { .. } => {
                        self.materialize(&inputs[0])?;
                        Vec::new()
                    }
                    _ => self.run(fragment.id, place, inputs)?,
                };
                outputs.push(output);
            }
            let root = outputs.pop().unwrap_or_default();
            for exchange in graph.exchanges.iter().filter(|exchange| exchange.from == fragment.id) {
                edges.insert(exchange.id, root.clone());
            }
        }
        self.check_key()
    }

    /// Feeds an operator, its ports in random turns, then the barrier.
    fn run(&mut self, fragment: usize, place: usize, inputs: Vec<Vec<Emitted>>) -> Result<Vec<Emitted>, String> {
        let operator = self.operators[fragment][place].as_mut().ok_or("an operator of the runner is missing")?;
        let mut emitted = Vec::new();
        let mut queues: Vec<_> = inputs.into_iter().map(|messages| cut(messages, &mut self.numbers).into_iter()).collect();
        let mut out = Output::with_room(3);
        let mut finish = |operator: &mut Box<dyn Operator>, progress: Result<Progress, EngineError>, out: &mut Output| {
            let mut progress = progress.map_err(|error| error.to_string())?;
            emitted.extend(out.take());
            while progress == Progress::More {
                progress = operator.resume(out).map_err(|error| error.to_string())?;
                emitted.extend(out.take());
            }
            Ok::<(), String>(())
        };
        while queues.iter().any(|queue| queue.len() > 0) {
            let port = self.numbers.below(queues.len() as u64) as usize;
            let Some(message) = queues[port].next() else { continue };
            let progress = match message {
                Emitted::Chunk(chunk) => operator.on_chunk(port, chunk, &mut out),
                Emitted::Watermark(watermark) => operator.on_watermark(port, watermark, &mut out),
            };
            finish(operator, progress, &mut out)?;
        }
        let barrier = Barrier { epoch: Epoch(self.epoch), time_us: 0, kind: BarrierKind::Epoch };
        let progress = operator.on_barrier(&barrier, &mut out);
        finish(operator, progress, &mut out)?;
        Ok(emitted)
    }

    fn materialize(&mut self, messages: &[Emitted]) -> Result<(), String> {
        for message in messages {
            let Emitted::Chunk(chunk) = message else { continue };
            for row in 0..chunk.num_rows() {
                let sign = i64::from(chunk.op(row).sign());
                if sign < 0 && self.plan.append_only {
                    return Err("a row of an append-only view was deleted".to_owned());
                }
                *self.contents.entry(row_text(chunk.batch(), row)).or_insert(0) += sign;
            }
        }
        self.contents.retain(|_, count| *count != 0);
        Ok(())
    }

    /// What the planner promised of the view's key.
    fn check_key(&self) -> Result<(), String> {
        let CollectionKeySpec::Columns(columns) = &self.plan.key else { return Ok(()) };
        let mut keys = std::collections::BTreeSet::new();
        for (row, count) in &self.contents {
            let values: Vec<&str> = row.split(" | ").collect();
            let key: Vec<&str> = columns.iter().map(|column| values[*column]).collect();
            if *count != 1 || !keys.insert(key.clone()) {
                return Err(format!("the key {key:?} is not unique"));
            }
        }
        Ok(())
    }
}

/// Operators that the runner itself is.
fn is_ours(node: &OperatorNode) -> bool {
    matches!(
        node.spec,
        OperatorSpec::SourceScan { .. }
            | OperatorSpec::CollectionScan { .. }
            | OperatorSpec::Values { .. }
            | OperatorSpec::Materialize { .. }
    )
}

fn project(chunk: &Chunk, projection: &[usize]) -> Emitted {
    let batch = chunk.batch().project(projection).expect("the projection is of the relation");
    let ops = (0..chunk.num_rows()).map(|row| chunk.op(row)).collect();
    Emitted::Chunk(Chunk::new(batch, ops))
}

/// Cuts chunks into pieces of a few rows.
fn cut(messages: Vec<Emitted>, numbers: &mut Numbers) -> Vec<Emitted> {
    let mut pieces = Vec::new();
    for message in messages {
        let Emitted::Chunk(chunk) = &message else {
            pieces.push(message);
            continue;
        };
        let mut start = 0;
        while start < chunk.num_rows() {
            let length = (1 + numbers.below(4) as usize).min(chunk.num_rows() - start);
            let ops = (start..start + length).map(|row| chunk.op(row)).collect();
            pieces.push(Emitted::Chunk(Chunk::new(chunk.batch().slice(start, length), ops)));
            start += length;
        }
    }
    pieces
}
