//! From a dataflow graph to subtasks: operators are built, edges become channels, scans get their readers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use millpond_storage::{
    env::Clock,
    epoch::Epoch,
    memory::MemoryBudget,
    state_table::{JobStore, StateOrigin},
};
use tokio::sync::{Notify, mpsc};

use super::{
    operators::{OperatorPlan, Shared, is_scan},
    orders::Orders,
    restart::{Rest, Restart},
    revival::Revival,
    subtask::{ChannelPlan, Feed, Subtask, SubtaskId, TaskEvent},
};
use crate::{
    error::{EngineError, Result},
    exchange::{
        channel::Channel,
        debloat::Bounds,
        inbox::{ChannelView, Inbox, Sender},
        router::Router,
        switch::Switch,
    },
    graph::{DataflowGraph, Distribution, Fragment, NodeInput, OperatorSpec, Parallelism},
    job::collector::Collector,
    operator::SideOutput,
};

/// A job's subtasks keep messages for a restart in so much of the memory budget, together.
const KEPT_SHARE: usize = 16;
/// What each may keep at least, as far as the budget has room.
const LEAST_KEPT_BYTES: usize = 64 << 10;

/// What subtasks are built with.
pub struct BuildContext {
    /// Subtasks of a parallel fragment.
    pub parallelism: usize,
    /// The job's state.
    pub store: Arc<JobStore>,
    /// Where it comes from.
    pub origin: StateOrigin,
    /// Where subtasks start.
    pub restart: Restart,
    /// The epoch of the checkpoint that this is, if it is one.
    pub begins_at: Option<Epoch>,
    /// The newest complete checkpoint.
    pub completed: Arc<AtomicU64>,
    /// Says which checkpoint waits no longer.
    pub switch: Arc<Switch>,
    /// The memory budget.
    pub budget: MemoryBudget,
    /// Tells how long operators are busy.
    pub clock: Clock,
    /// Late and bad rows.
    pub side: Arc<dyn SideOutput>,
    /// Receives the root's output.
    pub collector: Arc<Collector>,
    /// What the driver says beside messages.
    pub orders: Arc<Orders>,
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
    /// The last epoch that the subtask has closed.
    pub closed: Epoch,
    /// Where the reader's messages go.
    pub output: Sender,
}

/// A channel between two subtasks, or from a scan's reader to its subtask, as an operator sees it.
#[derive(Clone)]
pub struct Edge {
    /// Number of the exchange; `None` behind a reader.
    pub exchange: Option<usize>,
    /// How its rows are distributed; `scan` behind a reader.
    pub kind: &'static str,
    /// The producer, if it is a subtask.
    pub from: Option<SubtaskId>,
    /// The consumer.
    pub to: SubtaskId,
    /// The channel.
    pub view: ChannelView,
}

/// A graph's subtasks, and the channels of its scans.
pub struct Built {
    /// All subtasks.
    pub subtasks: Vec<Subtask>,
    /// All scans.
    pub scans: Vec<ScanChannel>,
    /// All channels, but for what is left of those of an earlier life.
    pub edges: Vec<Edge>,
    /// Subtasks of the root fragment.
    pub roots: usize,
    /// How each subtask is spoken to.
    pub controls: BTreeMap<SubtaskId, Control>,
}

/// What a driver says to one subtask.
pub struct Control {
    /// What it goes on with after a failure.
    pub revival: mpsc::UnboundedSender<Result<Revival>>,
    drill: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

impl Control {
    /// Lets the subtask fail, so that it can be seen what follows.
    pub fn fail(&self) {
        self.drill.store(true, std::sync::atomic::Ordering::Relaxed);
        self.wake.notify_one();
    }
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
    let mut edges = Vec::new();
    let mut inputs = Vec::new();
    let bounds = Bounds::first(context.orders.debloat_target());
    for fragment in &graph.fragments {
        for index in 0..width(fragment.id) {
            let plan = plan_channels(graph, fragment, index, &width);
            let (restored_plans, restored) = restored_channels(graph, fragment, (index, width(fragment.id)), &context.restart)?;
            let (inbox, senders) = Inbox::new(plan.len(), restored);
            for (number, (channel, sender)) in plan.iter().zip(senders).enumerate() {
                inbox.bound(number, bounds, None);
                edges.push(channel.edge(graph, SubtaskId { fragment: fragment.id, index }, inbox.view(number)));
                match channel.from {
                    From::Exchange { exchange, producer } => producers[exchange][producer].push(sender),
                    From::Scan => {
                        let node = &fragment.nodes[channel.node];
                        scans.push(ScanChannel {
                            node: node.id,
                            spec: node.spec.clone(),
                            subtask: (index, width(fragment.id)),
                            closed: context.restart.closed(fragment.id),
                            output: sender,
                        });
                    }
                }
            }
            let mut channels: Vec<ChannelPlan> = plan.into_iter().map(|channel| channel.plan(graph, fragment, &context.restart)).collect();
            channels.extend(restored_plans);
            inputs.push(Input { index, fragment: fragment.id, inbox, channels });
        }
    }
    let aligned = graph.aligned_fragments();
    let mut controls = BTreeMap::new();
    let mut subtasks = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut routers = Vec::new();
        for exchange in graph.exchanges.iter().filter(|e| e.from == input.fragment) {
            let consumers = std::mem::take(&mut producers[exchange.id][input.index]);
            routers.push(Router::new(&exchange.distribution, &exchange.schema, input.index, consumers, &input.inbox.wake())?);
        }
        let parallelism = width(input.fragment);
        let is_aligned = aligned[input.fragment];
        let (subtask, control) = build_subtask(graph, input, (parallelism, is_aligned), routers, context)?;
        controls.insert(subtask.id, control);
        subtasks.push(subtask);
    }
    let roots = graph.fragments.last().map_or(0, |root| width(root.id));
    Ok(Built { subtasks, scans, edges, roots, controls })
}

struct Input {
    fragment: usize,
    index: usize,
    inbox: Inbox,
    channels: Vec<ChannelPlan>,
}

struct PlannedChannel {
    node: usize,
    port: usize,
    from: From,
}

enum From {
    Exchange { exchange: usize, producer: usize },
    Scan,
}

impl PlannedChannel {
    fn plan(&self, graph: &DataflowGraph, fragment: &Fragment, restart: &Restart) -> ChannelPlan {
        let (feed, passed) = match self.from {
            From::Exchange { exchange, .. } => (Feed::Exchange(exchange), restart.closed(graph.exchanges[exchange].from)),
            From::Scan => (Feed::Scan { node: fragment.nodes[self.node].id }, restart.closed(fragment.id)),
        };
        ChannelPlan { node: self.node, port: self.port, feed, passed, reached: Vec::new(), generation: restart.generation() }
    }

    fn edge(&self, graph: &DataflowGraph, to: SubtaskId, view: ChannelView) -> Edge {
        match self.from {
            From::Scan => Edge { exchange: None, kind: "scan", from: None, to, view },
            From::Exchange { exchange, producer } => {
                let edge = &graph.exchanges[exchange];
                let from = SubtaskId { fragment: edge.from, index: producer };
                Edge { exchange: Some(exchange), kind: edge.distribution.as_str(), from: Some(from), to, view }
            }
        }
    }
}

/// The channels of one subtask, in order.
fn plan_channels(graph: &DataflowGraph, fragment: &Fragment, index: usize, width: &dyn Fn(usize) -> usize) -> Vec<PlannedChannel> {
    let mut channels = Vec::new();
    for (number, node) in fragment.nodes.iter().enumerate() {
        if is_scan(&node.spec) {
            channels.push(PlannedChannel { node: number, port: 0, from: From::Scan });
        }
        for (port, input) in node.inputs.iter().enumerate() {
            let NodeInput::Exchange(exchange) = *input else { continue };
            let edge = &graph.exchanges[exchange];
            match edge.distribution {
                Distribution::Forward => {
                    channels.push(PlannedChannel { node: number, port, from: From::Exchange { exchange, producer: index } });
                }
                Distribution::Hash(_) | Distribution::Broadcast | Distribution::RoundRobin | Distribution::Single => {
                    for producer in 0..width(edge.from) {
                        channels.push(PlannedChannel { node: number, port, from: From::Exchange { exchange, producer } });
                    }
                }
            }
        }
    }
    channels
}

/// The rests of earlier channels that one subtask takes over.
fn restored_channels(
    graph: &DataflowGraph,
    fragment: &Fragment,
    (index, width): (usize, usize),
    restart: &Restart,
) -> Result<(Vec<ChannelPlan>, Vec<Channel>)> {
    let mut restored = (Vec::new(), Vec::new());
    for (number, node) in fragment.nodes.iter().enumerate() {
        for (port, input) in node.inputs.iter().enumerate() {
            let NodeInput::Exchange(exchange) = *input else { continue };
            for Rest { passed, reached, generation, channel } in restart.channels(&graph.exchanges[exchange], index, width)? {
                restored.0.push(ChannelPlan { node: number, port, feed: Feed::Exchange(exchange), passed, reached, generation });
                restored.1.push(channel);
            }
        }
    }
    Ok(restored)
}

fn build_subtask(
    graph: &DataflowGraph,
    input: Input,
    (parallelism, is_aligned): (usize, bool),
    routers: Vec<Router>,
    context: &BuildContext,
) -> Result<(Subtask, Control)> {
    let Input { fragment, index, inbox, channels } = input;
    let fragment = &graph.fragments[fragment];
    let id = SubtaskId { fragment: fragment.id, index };
    // Subtasks are numbered over the whole job, so that their state changelogs do not meet.
    let number = u32::try_from(fragment.id << 16 | index).map_err(|_| EngineError::Internal("too many fragments".into()))?;
    let closed = context.restart.closed(fragment.id);
    let shared = Shared {
        store: context.store.clone(),
        budget: context.budget.clone(),
        side: context.side.clone(),
        collector: context.collector.clone(),
    };
    let plan = OperatorPlan::new(graph, fragment.id, (index, parallelism), number, shared);
    let (operators, state) = plan.build(context.origin.clone(), closed, |node| context.restart.applied_watermark(node))?;
    let all: usize = graph.fragments.iter().map(|fragment| fragment_parallelism(fragment, context.parallelism)).sum();
    let (revival, revivals) = mpsc::unbounded_channel();
    let control = Control { revival, drill: Arc::default(), wake: inbox.wake() };
    context.switch.add(inbox.wake());
    let is_root = fragment.id + 1 == graph.fragments.len();
    let subtask = Subtask {
        id,
        number: (number, parallelism),
        operators,
        nodes: plan.nodes(),
        targets: plan.targets(),
        plan,
        begins_at: context.begins_at,
        completed: context.completed.clone(),
        kept_bytes: (context.budget.limit() / KEPT_SHARE / all.max(1)).max(LEAST_KEPT_BYTES),
        budget: context.budget.clone(),
        clock: context.clock.clone(),
        revivals,
        drill: control.drill.clone(),
        channels,
        inbox,
        routers,
        state,
        closed,
        in_flight: context.restart.barriers.clone(),
        is_aligned,
        switch: context.switch.clone(),
        collector: is_root.then(|| context.collector.clone()),
        orders: context.orders.clone(),
        // A row is counted where it enters the job.
        rows_in: if fragment.nodes.iter().any(|node| is_scan(&node.spec)) { context.rows_in.clone() } else { Arc::default() },
        events: context.events.clone(),
    };
    Ok((subtask, control))
}
