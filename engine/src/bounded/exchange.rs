//! The node of a bounded plan that stands for an exchange.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use datafusion::{
    common::{Statistics, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
        metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet},
        statistics::{ChildStats, StatisticsArgs},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::TryStreamExt;
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    producer::{Consumer, Producer},
    receiver::Receiver,
};
use crate::exchange::inbox::Inbox;

/// Bytes that may be on the way to one consumer, in KiB. Rows are bounded by the inbox; this bounds wide ones.
pub(super) const KIB_IN_FLIGHT: u32 = 8 * 1024;

/// Which consumer gets a row.
#[derive(Clone, Debug)]
pub enum Route {
    /// That of the hash of these keys, over the producer's columns.
    Hash(Vec<Arc<dyn PhysicalExpr>>),
    /// Batch by batch in turn.
    RoundRobin,
    /// The only one.
    Single,
    /// The one with the producer's number.
    Forward,
}

/// Runs its input as a fragment of its own, one subtask per partition, and hands the rows to the subtasks above. The subtasks start when the
/// first consumer asks, and end when the last one is gone.
#[derive(Debug)]
pub struct ExchangeExec {
    input: Arc<dyn ExecutionPlan>,
    route: Route,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    edge: Arc<Edge>,
}

/// An edge once it runs.
#[derive(Default)]
struct Edge {
    consumers: Mutex<Option<Vec<Option<Receiver>>>>,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.consumers.lock().is_some() { "running" } else { "not started" })
    }
}

/// What the subtasks of both sides share.
#[derive(Default)]
pub(super) struct Outcome {
    failure: OnceLock<Arc<DataFusionError>>,
}

impl Outcome {
    /// Notes the first failure of a producer.
    pub(super) fn fail(&self, error: DataFusionError) {
        // What comes after the first follows from it.
        let _ = self.failure.set(Arc::new(error));
    }

    /// The first failure.
    pub(super) fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(DataFusionError::Shared(error.clone())))
    }
}

impl ExchangeExec {
    /// An exchange over `input` with the partitioning, the order and the equivalences of `properties`.
    pub fn new(input: Arc<dyn ExecutionPlan>, route: Route, properties: Arc<PlanProperties>) -> Self {
        Self { input, route, properties, metrics: ExecutionPlanMetricsSet::new(), edge: Arc::default() }
    }

    fn consumers(&self) -> usize {
        self.properties.partitioning.partition_count()
    }

    fn starter(&self, context: Arc<TaskContext>) -> Starter {
        Starter {
            input: self.input.clone(),
            route: self.route.clone(),
            consumers: self.consumers(),
            metrics: self.metrics.clone(),
            context,
        }
    }
}

/// All that is needed to start an edge's producers.
struct Starter {
    input: Arc<dyn ExecutionPlan>,
    route: Route,
    consumers: usize,
    metrics: ExecutionPlanMetricsSet,
    context: Arc<TaskContext>,
}

impl Starter {
    /// Starts one subtask per partition of the input.
    fn start(&self) -> Result<Vec<Option<Receiver>>> {
        let producers = self.input.output_partitioning().partition_count();
        let channels = if matches!(self.route, Route::Forward) { 1 } else { producers };
        let outcome = Arc::new(Outcome::default());
        let mut outputs: Vec<Vec<Consumer>> = (0..producers).map(|_| Vec::new()).collect();
        let mut inboxes = Vec::with_capacity(self.consumers);
        for consumer in 0..self.consumers {
            let (inbox, senders) = Inbox::new(channels, Vec::new());
            let room = Arc::new(Semaphore::new(KIB_IN_FLIGHT as usize));
            for (channel, sender) in senders.into_iter().enumerate() {
                let producer = if matches!(self.route, Route::Forward) { consumer } else { channel };
                outputs[producer].push(Consumer::new(sender, room.clone()));
            }
            inboxes.push((inbox, room));
        }
        let mut subtasks = JoinSet::new();
        for (partition, consumers) in outputs.into_iter().enumerate() {
            let rows = self.input.execute(partition, self.context.clone())?;
            let metrics = BaselineMetrics::new(&self.metrics, partition);
            let producer = Producer::new(&self.route, partition, producers, consumers, &metrics)?;
            subtasks.spawn(producer.run(rows, outcome.clone()));
        }
        let subtasks = Arc::new(subtasks);
        // Rows that were spread by a hash come in small pieces.
        let target = matches!(self.route, Route::Hash(_)).then(|| self.context.session_config().batch_size());
        Ok(inboxes
            .into_iter()
            .map(|(inbox, room)| Some(Receiver::new(inbox, channels, room, outcome.clone(), subtasks.clone(), self.input.schema(), target)))
            .collect())
    }
}

impl DisplayAs for ExchangeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange: ")?;
        match &self.route {
            Route::Hash(keys) => {
                f.write_str("hash(")?;
                for (place, key) in keys.iter().enumerate() {
                    write!(f, "{}{key}", if place > 0 { ", " } else { "" })?;
                }
                f.write_str(")")?;
            }
            Route::RoundRobin => f.write_str("round-robin")?,
            Route::Single => f.write_str("single")?,
            Route::Forward => f.write_str("forward")?,
        }
        write!(f, ", pipelined, {} -> {} subtasks", self.input.output_partitioning().partition_count(), self.consumers())
    }
}

impl ExecutionPlan for ExchangeExec {
    fn name(&self) -> &str {
        "ExchangeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(&self, visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>) -> Result<TreeNodeRecursion> {
        if let Route::Hash(keys) = &self.route {
            for key in keys {
                if visit(key)? == TreeNodeRecursion::Stop {
                    return Ok(TreeNodeRecursion::Stop);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.route.clone(), self.properties.clone()))),
            _ => Err(DataFusionError::Internal("an exchange has one input".to_owned())),
        }
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.input.clone(), self.route.clone(), self.properties.clone())))
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![matches!(self.route, Route::Forward)]
    }

    /// The stream of one consumer. Producers start at its first poll, so that a node above may first get ready what they depend on.
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (edge, starter) = (self.edge.clone(), self.starter(context));
        let receive = async move {
            let mut consumers = edge.consumers.lock();
            if consumers.is_none() {
                *consumers = Some(starter.start()?);
            }
            let receiver = consumers.as_mut().and_then(|consumers| consumers.get_mut(partition)).and_then(Option::take);
            let receiver =
                receiver.ok_or_else(|| DataFusionError::Internal(format!("partition {partition} of an exchange is read twice")))?;
            Ok::<_, DataFusionError>(receiver.into_stream())
        };
        let rows = futures::stream::once(receive).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, _: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(None)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        match args.partition() {
            None => Ok(inputs[0].clone()),
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
}
