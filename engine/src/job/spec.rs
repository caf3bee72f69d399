//! What the server says of a job.

use std::{sync::Arc, time::Duration};

use millpond_storage::{collection::CollectionSpec, state_store::StateBackend};

use crate::{
    error::{EngineError, Result},
    graph::DataflowGraph,
    sink::Sink,
    task::orders::Orders,
};

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
    pub sink: Option<SinkTarget>,
    /// Settings.
    pub options: JobOptions,
}

/// Opens a sink's target; called at every start of the job.
pub type SinkFactory = Arc<dyn Fn() -> futures::future::BoxFuture<'static, Result<Box<dyn Sink>>> + Send + Sync>;

/// The target of a sink.
#[derive(Clone)]
pub struct SinkTarget {
    /// Opens it.
    pub open: SinkFactory,
    /// For so long changes are gathered into one transaction.
    pub commit_interval: Duration,
}

/// What a job is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Maintains a materialized view.
    View,
    /// Feeds a sink.
    Sink,
}

/// How long a checkpoint's barrier waits if nothing else is said.
pub const DEFAULT_ALIGNED_CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(1);

/// What an exchange holds if nothing else is said: what its consumer takes within this time.
pub const DEFAULT_BUFFER_DEBLOAT_TARGET: Duration = Duration::from_secs(1);

pub use crate::task::orders::Recovery;
pub use millpond_storage::checkpoint::RECOVERY_TARGET as DEFAULT_RECOVERY_TARGET;

/// When the contents of a job that was started again can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadableWhen {
    /// At once, as far as they had been made durable.
    #[default]
    AtOnce,
    /// When the job keeps up again.
    CaughtUp,
}

/// Settings of a job.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Subtasks of a parallel fragment.
    pub parallelism: usize,
    /// Time between checkpoints.
    pub checkpoint_interval: Duration,
    /// How long a checkpoint's barrier waits before it passes what is in its way; zero: not at all.
    pub aligned_checkpoint_timeout: Duration,
    /// What an exchange holds: what its consumer takes within this time; zero: as much as it can.
    pub buffer_debloat_target: Duration,
    /// How long a restart may replay the log of its state.
    pub recovery_target: Duration,
    /// When its contents can be read after a restart.
    pub readable: ReadableWhen,
    /// Where operator state is kept.
    pub state_backend: StateBackend,
    /// What is restarted when a subtask fails.
    pub recovery: Recovery,
}

/// Which policy a name stands for.
///
/// # Errors
/// 22023 for an unknown name.
pub fn recovery(name: &str) -> Result<Recovery> {
    match name {
        "job" => Ok(Recovery::Job),
        "exactly_once" => Ok(Recovery::ExactlyOnce),
        "approximate" => Ok(Recovery::Approximate),
        other => Err(unknown("recovery", other, "job, exactly_once, approximate")),
    }
}

impl JobOptions {
    /// Tells subtasks what concerns them.
    pub(crate) fn give(&self, orders: &Orders) {
        // A quarter of the interval: a younger change of state may well change once more before the checkpoint.
        orders.set_log_age_us(i64::try_from(self.checkpoint_interval.as_micros() / 4).unwrap_or(i64::MAX));
        orders.set_debloat_target(self.buffer_debloat_target);
        orders.set_recovery(self.recovery);
    }
}

/// When contents can be read, by name.
///
/// # Errors
/// 22023 for an unknown name.
pub fn readable_when(name: &str) -> Result<ReadableWhen> {
    match name {
        "at_once" => Ok(ReadableWhen::AtOnce),
        "caught_up" => Ok(ReadableWhen::CaughtUp),
        other => Err(unknown("readable", other, "at_once, caught_up")),
    }
}

/// Which backend a name stands for.
///
/// # Errors
/// 22023 for an unknown name.
pub fn state_backend(name: &str) -> Result<StateBackend> {
    match name {
        "rocksdb" => Ok(StateBackend::RocksDb),
        "memory" => Ok(StateBackend::Memory),
        other => Err(unknown("state_backend", other, "rocksdb, memory")),
    }
}

fn unknown(parameter: &str, value: &str, known: &str) -> EngineError {
    EngineError::User {
        sqlstate: "22023",
        message: format!("invalid value for parameter \"{parameter}\": \"{value}\""),
        hint: Some(format!("Available values: {known}.")),
    }
}
