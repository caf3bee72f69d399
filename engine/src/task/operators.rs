//! The operators of a subtask, built when it starts and again when it alone is restarted.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use arrow::datatypes::SchemaRef;
use millpond_storage::{
    epoch::Epoch,
    key_group::key_group_range,
    memory::MemoryBudget,
    state_table::{JobStore, StateOrigin, StateTable, TaskState},
};

use super::subtask::Target;
use crate::{
    error::Result,
    graph::{DataflowGraph, Fragment, NodeInput, OperatorSpec},
    job::collector::{Collector, Materialize, PassThrough},
    operator::{self, Operator, OperatorContext, SideOutput},
};

/// What the operators of one subtask are built from.
pub struct OperatorPlan {
    fragment: Fragment,
    /// Columns of each input port, per node.
    inputs: Vec<Vec<SchemaRef>>,
    /// Index of the subtask, and of all subtasks of its fragment.
    subtask: (usize, usize),
    /// Its number in the job.
    number: u32,
    shared: Shared,
    epoch_time_us: Arc<AtomicI64>,
}

/// What the operators of all subtasks share.
#[derive(Clone)]
pub struct Shared {
    /// The job's state.
    pub store: Arc<JobStore>,
    /// The memory budget.
    pub budget: MemoryBudget,
    /// Late and bad rows.
    pub side: Arc<dyn SideOutput>,
    /// Receives the root's output.
    pub collector: Arc<Collector>,
}

impl OperatorPlan {
    /// Of subtask `subtask.0` of the `subtask.1` of a fragment. `number` is that of the subtask in the job.
    pub fn new(graph: &DataflowGraph, fragment: usize, subtask: (usize, usize), number: u32, shared: Shared) -> Self {
        let fragment = &graph.fragments[fragment];
        let schema = |input: &NodeInput| match input {
            NodeInput::Node(child) => fragment.nodes[*child].schema.clone(),
            NodeInput::Exchange(exchange) => graph.exchanges[*exchange].schema.clone(),
        };
        let inputs = fragment.nodes.iter().map(|node| node.inputs.iter().map(schema).collect()).collect();
        Self { fragment: fragment.clone(), inputs, subtask, number, shared, epoch_time_us: Arc::default() }
    }

    /// Time of the open epoch, which the operators see.
    pub fn epoch_time_us(&self) -> i64 {
        self.epoch_time_us.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_epoch_time_us(&self, time_us: i64) {
        self.epoch_time_us.store(time_us, Ordering::Relaxed);
    }

    /// Where each operator's output goes.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = vec![Target::Root; self.fragment.nodes.len()];
        for (place, node) in self.fragment.nodes.iter().enumerate() {
            for (port, input) in node.inputs.iter().enumerate() {
                if let NodeInput::Node(child) = input {
                    targets[*child] = Target::Node(place, port);
                }
            }
        }
        targets
    }

    /// The numbers of the operators in the graph, in topological order.
    pub fn nodes(&self) -> Vec<usize> {
        self.fragment.nodes.iter().map(|node| node.id).collect()
    }

    /// Key groups the subtask owns.
    pub fn key_groups(&self) -> std::ops::Range<u16> {
        key_group_range(self.subtask.0, self.subtask.1)
    }

    /// Builds the operators, in topological order, with their state from `origin`. `closed` is the last epoch that the subtask has closed, and
    /// `applied` gives for a node the watermark by which its rows were late there.
    pub fn build(&self, origin: StateOrigin, closed: Epoch, applied: impl Fn(usize) -> i64) -> Result<(Vec<Box<dyn Operator>>, TaskState)> {
        let (index, parallelism) = self.subtask;
        let Shared { store, budget, side, collector } = &self.shared;
        let mut context = OperatorContext {
            state: TaskState::new(store.clone(), self.number, self.key_groups(), origin)?,
            side: side.clone(),
            budget: budget.clone(),
            closed,
            applied_watermark: i64::MIN,
            epoch_time_us: self.epoch_time_us.clone(),
            subtask: index,
            parallelism,
            inputs: Vec::new(),
        };
        let mut operators: Vec<Box<dyn Operator>> = Vec::with_capacity(self.fragment.nodes.len());
        for (node, inputs) in self.fragment.nodes.iter().zip(&self.inputs) {
            context.inputs.clone_from(inputs);
            context.applied_watermark = applied(node.id);
            operators.push(match &node.spec {
                spec if is_scan(spec) => Box::new(PassThrough),
                OperatorSpec::Materialize { .. } => {
                    Box::new(Materialize::new(collector.clone(), index, node.properties.watermark_columns.first().copied()))
                }
                _ => operator::build(node, &mut context)?,
            });
        }
        Ok((operators, context.state))
    }
}

/// Whether a node is fed by a reader of its own.
pub(super) fn is_scan(spec: &OperatorSpec) -> bool {
    matches!(spec, OperatorSpec::SourceScan { .. } | OperatorSpec::CollectionScan { .. } | OperatorSpec::Values { .. })
}

/// The state tables of a subtask's operators.
pub(super) fn tables_of(operators: &mut [Box<dyn Operator>]) -> impl Iterator<Item = &mut dyn StateTable> {
    operators.iter_mut().flat_map(|operator| operator.tables())
}
