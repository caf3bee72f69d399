//! Running a resolved plan: planned and executed on the threads for queries, its rows handed over as the client takes them.

use std::{any::Any, sync::Arc};

use arrow::record_batch::RecordBatch;
use datafusion::{logical_expr::LogicalPlan, physical_plan::SendableRecordBatchStream};
use futures::{StreamExt, TryStreamExt, stream};
use millpond_planner::{interrupt::Interrupt, optimize::join_order::Hints};

use crate::{
    answer::BatchStream,
    error::{Result, SqlError},
    relation::left_out::LeftOutOfAll,
    session::cancel::Cancel,
    state::ServerState,
};

/// A query that is to be planned.
#[derive(Clone)]
pub(crate) struct Unplanned {
    /// Its plan, every scan resolved.
    pub(crate) plan: LogicalPlan,
    /// What its text says of its plan.
    pub(crate) hints: Hints,
    /// About how many rows it reads.
    pub(crate) rows: u64,
    /// The time of its transaction, microseconds since 1970.
    pub(crate) now_us: i64,
    /// What ends its planning.
    pub(crate) interrupt: Interrupt,
}

/// A query to run.
pub(crate) struct Run {
    /// The query.
    pub(crate) query: Unplanned,
    /// What ends it.
    pub(crate) cancel: Cancel,
    /// Told when it has ended.
    pub(crate) left_out: LeftOutOfAll,
    /// What lives as long as it does.
    pub(crate) keep: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Run {
    /// The same query, of whose plan its text says something.
    pub(crate) fn with_hints(mut self, hints: &Hints) -> Self {
        self.query.hints = hints.clone();
        self
    }
}

/// Runs a query. Errors of planning come here, those of execution in the stream.
pub(crate) async fn stream(state: &Arc<ServerState>, run: Run) -> Result<BatchStream> {
    let (server, query) = (state.clone(), run.query);
    let start = async move {
        let (first, rest) = start(&server, &query, false).await?;
        match first {
            // A hash join keeps one side in memory; sorting both instead spills.
            Some(Err(error)) if error.sqlstate == "53200" => self::start(&server, &query, true).await,
            // What fails before there are any rows fails before they are described, as in Postgres when a constant cannot be computed.
            Some(Err(error)) => Err(error),
            first => Ok((first, rest)),
        }
    };
    let (first, rest) = run.cancel.race(state.batch.run(start)).await?;
    let Some(first) = first else {
        run.left_out.tell();
        return Ok(stream::empty().boxed());
    };
    let left_out = run.left_out;
    let end = stream::once(async move { left_out.tell() }).filter_map(|()| std::future::ready(None));
    let batches = stream::once(async move { first }).chain(rest.map_err(SqlError::from)).chain(end);
    Ok(state.batch.stream(batches, run.cancel, run.keep))
}

type Started = (Option<Result<RecordBatch>>, SendableRecordBatchStream);

async fn start(state: &Arc<ServerState>, query: &Unplanned, spills: bool) -> Result<Started> {
    let query = state.queries.plan(query, spills).await?;
    let mut batches = query.execute()?;
    let first = batches.next().await.map(|batch| batch.map_err(SqlError::from));
    Ok((first, batches))
}

/// Runs a query to its end and keeps its rows.
///
/// # Errors
/// 53200 when they do not fit into the memory budget.
pub(crate) async fn collect(state: &Arc<ServerState>, run: Run) -> Result<Vec<RecordBatch>> {
    let memory = state.memory.handle("collected rows");
    let mut batches = stream(state, run).await?;
    let mut rows = Vec::new();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        if !memory.try_grow(batch.get_array_memory_size()) {
            return Err(SqlError::new("53200", "out of memory")
                .with_detail("The rows of the statement do not fit into the server's memory limit.")
                .with_hint("Change fewer rows at a time."));
        }
        rows.push(batch);
    }
    Ok(rows)
}
