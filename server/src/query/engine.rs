//! Planning of bounded queries, set up once: DataFusion's operators on the engine's exchanges.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use datafusion::{
    execution::{TaskContext, context::SessionState},
    logical_expr::LogicalPlan,
    physical_plan::{ExecutionPlan, SendableRecordBatchStream, display::DisplayableExecutionPlan, displayable, execute_stream},
};
use millpond_engine::bounded::with_exchanges;
use millpond_planner::{
    functions::session::{session_config, session_state},
    interrupt::Interrupt,
    logical::bounded::with_tables,
    optimize::{
        join_order::{Hints, Ordered},
        order_query,
    },
};

use tokio::runtime::Handle;

use super::{run::Unplanned, statistics::QueryStatistics};
use crate::{batch::BatchRuntime, binding::planning, error::Result, relation::contents::BATCH_ROWS};

/// Queries over fewer rows than this run on one thread.
const SMALL_ROWS: u64 = 50_000;

/// Plans queries.
pub(crate) struct QueryEngine {
    small: SessionState,
    large: SessionState,
}

/// A query that is ready to run.
pub(crate) struct Query {
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    join_report: String,
}

impl QueryEngine {
    /// Sets up planning for the threads and memory of `batch`.
    pub(crate) fn new(batch: &BatchRuntime) -> Self {
        let state = |threads: usize| {
            let config = session_config().with_batch_size(BATCH_ROWS).with_target_partitions(threads);
            session_state(config, batch.environment(), Vec::new())
        };
        Self { small: state(1), large: state(batch.threads()) }
    }

    /// Optimizes a query and plans how to run it. `spills` avoids operators that must keep everything in memory.
    ///
    /// # Errors
    /// What the optimizer finds out: constant expressions that fail, and plans that cannot be run.
    pub(crate) async fn plan(&self, query: &Unplanned, spills: bool) -> Result<Query> {
        let mut state = if query.rows < SMALL_ROWS { self.small.clone() } else { self.large.clone() };
        state.execution_props_mut().query_execution_start_time = DateTime::<Utc>::from_timestamp_micros(query.now_us);
        let options = state.config_mut().options_mut();
        query.interrupt.watch(options);
        if spills {
            options.optimizer.prefer_hash_join = false;
        }
        let work = async {
            let ordered = ordered(&state, &query.plan, &query.hints)?;
            if ordered.is_complete {
                // Each join is built from the side that was priced for it.
                state.config_mut().options_mut().optimizer.join_reordering = false;
            }
            let plan = with_exchanges(state.query_planner().create_physical_plan(&ordered.plan, &state).await?)?;
            Ok(Query { plan, context: state.task_ctx(), join_report: ordered.report })
        };
        planning(|| Handle::current().block_on(work))
    }

    /// Optimizes a plan without planning how to run it.
    pub(crate) fn optimize(&self, plan: &LogicalPlan, hints: &Hints, interrupt: &Interrupt) -> Result<LogicalPlan> {
        let mut state = self.small.clone();
        interrupt.watch(state.config_mut().options_mut());
        planning(|| Ok(ordered(&state, plan, hints)?.plan))
    }
}

/// The optimized plan with its joins in order.
fn ordered(state: &SessionState, plan: &LogicalPlan, hints: &Hints) -> Result<Ordered> {
    let optimized = state.optimize(&with_tables(plan.clone())?)?;
    Ok(order_query(optimized, &QueryStatistics, hints, state)?)
}

impl Query {
    /// Starts to run. The stream must be polled on the threads for queries.
    pub(crate) fn execute(&self) -> Result<SendableRecordBatchStream> {
        Ok(execute_stream(self.plan.clone(), self.context.clone())?)
    }

    /// The plan as EXPLAIN shows it, and how its joins came into their order.
    pub(crate) fn explain(&self, verbose: bool) -> String {
        format!("{}{}", displayable(self.plan.as_ref()).indent(verbose), self.join_report)
    }

    /// The same after it has run, with what it took.
    pub(crate) fn explain_analyzed(&self) -> String {
        format!("{}{}", DisplayableExecutionPlan::with_metrics(self.plan.as_ref()).indent(false), self.join_report)
    }
}
