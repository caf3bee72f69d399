//! Where queries run: threads of their own, below the streaming ones in priority, within a share of the memory budget.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::{
    error::DataFusionError,
    execution::{
        memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
};
use futures::StreamExt;
use millpond_engine::error::panic_text;
use millpond_storage::memory::{MemoryBudget, MemoryHandle};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    answer::BatchStream,
    error::{Result, SqlError},
    session::cancel::Cancel,
};

/// Batches of an answer that may wait for the client.
const BATCHES_AHEAD: usize = 4;

/// The part of the memory budget that queries may take together: one in this many bytes.
const MEMORY_SHARE: usize = 3;

/// Threads and memory for queries.
pub(crate) struct BatchRuntime {
    runtime: Option<Runtime>,
    handle: Handle,
    environment: Arc<RuntimeEnv>,
    threads: usize,
}

impl BatchRuntime {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the operating system gives no threads.
    pub(crate) fn start(threads: usize, budget: &MemoryBudget) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("batch")
            .enable_all()
            .build()
            .map_err(|error| SqlError::new("53000", format!("could not start query threads: {error}")))?;
        let pool = BudgetPool::new(budget);
        let environment = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).build_arc()?;
        let handle = runtime.handle().clone();
        Ok(Self { runtime: Some(runtime), handle, environment, threads: threads.max(1) })
    }

    /// Memory pool, disk manager and object stores of queries.
    pub(crate) fn environment(&self) -> Arc<RuntimeEnv> {
        self.environment.clone()
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs a future on these threads.
    pub(crate) async fn run<T: Send + 'static>(&self, future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        // The task dies with whoever waits for it.
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(future, &self.handle);
        match tasks.join_next().await {
            Some(Ok(result)) => result,
            Some(Err(error)) => Err(join_error(error)),
            None => Err(SqlError::internal("a task was lost")),
        }
    }

    /// Runs a query on these threads and hands its batches over as the client takes them. It ends early when the token fires or the stream
    /// is dropped. `keep` lives as long as the query (holds on epochs).
    pub(crate) fn stream<K: Send + 'static>(
        &self,
        batches: impl futures::Stream<Item = Result<RecordBatch>> + Send + 'static,
        cancel: Cancel,
        keep: K,
    ) -> BatchStream {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(BATCHES_AHEAD);
        let cancelled = cancel.clone();
        let mut batches = Box::pin(batches);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn_on(
            async move {
                let _keep = keep;
                loop {
                    let next = tokio::select! {
                        biased;
                        error = cancelled.fired() => Some(Err(error)),
                        next = batches.next() => next,
                    };
                    let Some(next) = next else { break };
                    let failed = next.is_err();
                    if sender.send(next).await.is_err() || failed {
                        break;
                    }
                }
            },
            &self.handle,
        );
        let stream = futures::stream::poll_fn(move |context| {
            // A panic of the query ends its channel; it is told from a regular end by the task's result.
            match receiver.poll_recv(context) {
                std::task::Poll::Ready(None) => match tasks.poll_join_next(context) {
                    std::task::Poll::Ready(Some(Err(error))) => std::task::Poll::Ready(Some(Err(join_error(error)))),
                    std::task::Poll::Pending => std::task::Poll::Pending,
                    std::task::Poll::Ready(_) => std::task::Poll::Ready(None),
                },
                other => other,
            }
        });
        Box::pin(cancel_while_waiting(stream, cancel))
    }
}

/// The consumer notices a cancel also while the query is busy in a long computation of one batch.
fn cancel_while_waiting(
    stream: impl futures::Stream<Item = Result<RecordBatch>> + Send + Unpin + 'static,
    cancel: Cancel,
) -> impl futures::Stream<Item = Result<RecordBatch>> + Send {
    futures::stream::unfold(Some((stream, cancel)), |state| async move {
        let (mut stream, cancel) = state?;
        let next = tokio::select! {
            biased;
            next = stream.next() => next,
            error = cancel.fired() => Some(Err(error)),
        };
        match next {
            None => None,
            Some(Err(error)) => Some((Err(error), None)),
            Some(Ok(batch)) => Some((Ok(batch), Some((stream, cancel)))),
        }
    })
}

fn join_error(error: tokio::task::JoinError) -> SqlError {
    match error.try_into_panic() {
        Ok(panic) => SqlError::internal(format!("a query panicked: {}", panic_text(&*panic))),
        Err(_) => SqlError::new("57P01", "terminating connection due to administrator command"),
    }
}

impl Drop for BatchRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// DataFusion's view of the memory budget: queries share a part of it fairly, and no more than the budget has left.
#[derive(Debug)]
struct BudgetPool {
    shares: FairSpillPool,
    handle: Handled,
    limit: usize,
}

/// [`MemoryHandle`] without a need to print it.
struct Handled(MemoryHandle);

impl std::fmt::Debug for Handled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.used())
    }
}

impl BudgetPool {
    fn new(budget: &MemoryBudget) -> Self {
        let limit = budget.limit() / MEMORY_SHARE;
        Self { shares: FairSpillPool::new(limit), handle: Handled(budget.handle("queries")), limit }
    }
}

impl std::fmt::Display for BudgetPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queries: {} of {} bytes", self.shares.reserved(), self.limit)
    }
}

impl MemoryPool for BudgetPool {
    fn name(&self) -> &str {
        "budget"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.shares.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.shares.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.shares.grow(reservation, additional);
        self.handle.0.grow(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.shares.shrink(reservation, shrink);
        self.handle.0.shrink(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> datafusion::common::Result<()> {
        self.shares.try_grow(reservation, additional)?;
        if self.handle.0.try_grow(additional) {
            return Ok(());
        }
        self.shares.shrink(reservation, additional);
        Err(DataFusionError::ResourcesExhausted(format!("Failed to allocate {additional} bytes: the server's memory limit is reached.")))
    }

    fn reserved(&self) -> usize {
        self.shares.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.limit)
    }
}
