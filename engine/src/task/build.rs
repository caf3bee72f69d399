//! From a dataflow graph to subtasks: operators are built, edges become channels, scans get their readers.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64},
};

use millpond_storage::{
    key_group::key_group_range,
    memory::MemoryBudget,
    state_table::{JobStore, StateOrigin, TaskState},
};
use tokio::sync::mpsc;

use super::subtask::{Subtask, SubtaskId, Target, TaskEvent};
use crate::{
    error::{EngineError, Result},
    exchange::{
        inbox::{Inbox, Sender},
        router::Router,
    },
    graph::{DataflowGraph, Distribution, Fragment, NodeInput, OperatorSpec, Parallelism},
    job::collector::{Collector, Materialize, PassThrough},
    operator::{self, Operator, OperatorContext, SideOutput},
};

/// What subtasks are built with.
pub struct BuildContext {
    /// Subtasks of a parallel fragment.
    pub parallelism: usize,
    /// The job's state.
    pub store: Arc<JobStore>,
    /// Where it comes from.
    pub origin: StateOrigin,
    /// The memory budget.
    pub budget: MemoryBudget,
    /// Late and bad rows.
    pub side: Arc<dyn SideOutput>,
    /// Receives the root's output.
    pub collector: Arc<Collector>,
    /// See [`Subtask::log_age_us`].
    pub log_age_us: Arc<AtomicI64>,
    /// Counts rows.
    pub rows_in: Arc<AtomicU64>,
    /// Reports.
    pub events: mpsc::UnboundedSender<TaskEvent>,
}

/// The channel that a scan's reader feeds.
pub struct ScanChannel {
    /// Node of the scan.
    pub node: usize,
    /// What is scanned.
    pub spec: OperatorSpec,
    /// Number of the subtask, and of all subtasks of its fragment.
    pub subtask: (usize, usize),
    /// Where the reader's messages go.
    pub output: Sender,
}

/// A graph's subtasks, and the channels of its scans.
pub struct Built {
    /// All subtasks.
    pub subtasks: Vec<Subtask>,
    /// All scans.
    pub scans: Vec<ScanChannel>,
    /// Subtasks of the root fragment.
    pub roots: usize,
}

/// Subtasks of a fragment.
pub fn fragment_parallelism(fragment: &Fragment, job: usize) -> usize {
    match fragment.parallelism {
        Parallelism::Single => 1,
        Parallelism::Job => job,
    }
}

/// Builds every subtask of a graph.
pub fn build(graph: &DataflowGraph, context: &BuildContext) -> Result<Built> {
    let width = |fragment: usize| fragment_parallelism(&graph.fragments[fragment], context.parallelism);
    // producers[exchange][producer subtask] = its channel to each consumer.
    let mut producers: Vec<Vec<Vec<Sender>>> = graph.exchanges.iter().map(|e| (0..width(e.from)).map(|_| Vec::new()).collect()).collect();
    let mut scans = Vec::new();
    let mut inputs = Vec::new();
    for fragment in &graph.fragments {
        for index in 0..width(fragment.id) {
            let plan = plan_channels(graph, fragment, index, &width);
            let (inbox, senders) = Inbox::new(plan.len());
            for (channel, sender) in plan.iter().zip(senders) {
                match channel.from {
                    From::Exchange { exchange, producer } => producers[exchange][producer].push(sender),
                    From::Scan => {
                        let node = &fragment.nodes[channel.node];
                        scans.push(ScanChannel {
                            node: node.id,
                            spec: node.spec.clone(),
                            subtask: (index, width(fragment.id)),
                            output: sender,
                        });
                    }
                }
            }
            inputs.push((fragment.id, index, inbox, plan.iter().map(|c| (c.node, c.port)).collect::<Vec<_>>()));
        }
    }
    let mut subtasks = Vec::with_capacity(inputs.len());
    for (fragment, index, inbox, channels) in inputs {
        let mut routers = Vec::new();
        for exchange in graph.exchanges.iter().filter(|e| e.from == fragment) {
            let consumers = std::mem::take(&mut producers[exchange.id][index]);
            routers.push(Router::new(&exchange.distribution, &exchange.schema, index, consumers)?);
        }
        let fragment = &graph.fragments[fragment];
        subtasks.push(build_subtask(graph, fragment, (index, width(fragment.id)), inbox, channels, routers, context)?);
    }
    let roots = graph.fragments.last().map_or(0, |root| width(root.id));
    Ok(Built { subtasks, scans, roots })
}

struct Channel {
    node: usize,
    port: usize,
    from: From,
}

enum From {
    Exchange { exchange: usize, producer: usize },
    Scan,
}

/// The channels of one subtask, in order.
fn plan_channels(graph: &DataflowGraph, fragment: &Fragment, index: usize, width: &dyn Fn(usize) -> usize) -> Vec<Channel> {
    let mut channels = Vec::new();
    for (number, node) in fragment.nodes.iter().enumerate() {
        if is_scan(&node.spec) {
            channels.push(Channel { node: number, port: 0, from: From::Scan });
        }
        for (port, input) in node.inputs.iter().enumerate() {
            let NodeInput::Exchange(exchange) = *input else { continue };
            let edge = &graph.exchanges[exchange];
            match edge.distribution {
                Distribution::Forward => channels.push(Channel { node: number, port, from: From::Exchange { exchange, producer: index } }),
                Distribution::Hash(_) | Distribution::Broadcast | Distribution::RoundRobin | Distribution::Single => {
                    for producer in 0..width(edge.from) {
                        channels.push(Channel { node: number, port, from: From::Exchange { exchange, producer } });
                    }
                }
            }
        }
    }
    channels
}

fn is_scan(spec: &OperatorSpec) -> bool {
    matches!(spec, OperatorSpec::SourceScan { .. } | OperatorSpec::CollectionScan { .. } | OperatorSpec::Values { .. })
}

fn build_subtask(
    graph: &DataflowGraph,
    fragment: &Fragment,
    (index, parallelism): (usize, usize),
    inbox: Inbox,
    channels: Vec<(usize, usize)>,
    routers: Vec<Router>,
    context: &BuildContext,
) -> Result<Subtask> {
    let id = SubtaskId { fragment: fragment.id, index };
    // Subtasks are numbered over the whole job, so that their state changelogs do not meet.
    let number = u32::try_from(fragment.id << 16 | index).map_err(|_| EngineError::Internal("too many fragments".into()))?;
    let state = TaskState::new(context.store.clone(), number, key_group_range(index, parallelism), context.origin.clone())?;
    let epoch_time_us = Arc::new(AtomicI64::new(0));
    let mut operator_context = OperatorContext {
        state,
        side: context.side.clone(),
        budget: context.budget.clone(),
        epoch_time_us: epoch_time_us.clone(),
        subtask: index,
        parallelism,
        inputs: Vec::new(),
    };
    let mut operators: Vec<Box<dyn Operator>> = Vec::with_capacity(fragment.nodes.len());
    let mut targets = vec![Target::Root; fragment.nodes.len()];
    for (number, node) in fragment.nodes.iter().enumerate() {
        let schema = |input: &NodeInput| match input {
            NodeInput::Node(child) => fragment.nodes[*child].schema.clone(),
            NodeInput::Exchange(exchange) => graph.exchanges[*exchange].schema.clone(),
        };
        operator_context.inputs = node.inputs.iter().map(schema).collect();
        operators.push(match &node.spec {
            spec if is_scan(spec) => Box::new(PassThrough),
            OperatorSpec::Materialize { .. } => Box::new(Materialize::new(context.collector.clone(), index)),
            _ => operator::build(node, &mut operator_context)?,
        });
        for (port, input) in node.inputs.iter().enumerate() {
            if let NodeInput::Node(child) = input {
                targets[*child] = Target::Node(number, port);
            }
        }
    }
    Ok(Subtask {
        id,
        operators,
        targets,
        channels,
        inbox,
        routers,
        state: operator_context.state,
        epoch_time_us,
        log_age_us: context.log_age_us.clone(),
        // A row is counted where it enters the job.
        rows_in: if fragment.nodes.iter().any(|node| is_scan(&node.spec)) { context.rows_in.clone() } else { Arc::default() },
        events: context.events.clone(),
    })
}
