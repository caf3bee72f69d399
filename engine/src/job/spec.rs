//! What the server says of a job.

use std::{sync::Arc, time::Duration};

use millpond_storage::{collection::CollectionSpec, state_store::StateBackend};

use crate::{graph::DataflowGraph, sink::Sink};

/// A job to run.
pub struct JobSpec {
    /// Catalog id of the view or sink.
    pub id: u64,
    /// Name, for messages.
    pub name: String,
    /// Whether it maintains a view or feeds a sink.
    pub kind: JobKind,
    /// The plan.
    pub graph: DataflowGraph,
    /// The collection its `Materialize` root fills; `None` under a `Discard` root.
    pub collection: Option<CollectionSpec>,
    /// The target of a sink.
    pub sink: Option<SinkFactory>,
    /// Settings.
    pub options: JobOptions,
}

/// Opens a sink's target; called at every start of the job.
pub type SinkFactory = Arc<dyn Fn() -> futures::future::BoxFuture<'static, crate::error::Result<Box<dyn Sink>>> + Send + Sync>;

/// What a job is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Maintains a materialized view.
    View,
    /// Feeds a sink.
    Sink,
}

/// Settings of a job.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Subtasks of a parallel fragment.
    pub parallelism: usize,
    /// Time between checkpoints.
    pub checkpoint_interval: Duration,
    /// Where operator state is kept.
    pub state_backend: StateBackend,
}
