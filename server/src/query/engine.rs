//! DataFusion's planning and execution, set up once.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use datafusion::{
    common::Result as DataFusionResult,
    execution::{
        TaskContext,
        context::{QueryPlanner, SessionState},
        session_state::SessionStateBuilder,
    },
    logical_expr::{LogicalPlan, UserDefinedLogicalNode, physical_planning_context::PhysicalPlanningContext},
    physical_plan::{ExecutionPlan, SendableRecordBatchStream, displayable, execute_stream},
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
    prelude::SessionConfig,
};
use millpond_planner::logical::window::WindowNode;

use crate::{batch::BatchRuntime, error::Result, query::window::WindowExec, relation::contents::BATCH_ROWS};

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
}

impl QueryEngine {
    /// Sets up planning for the threads and memory of `batch`.
    pub(crate) fn new(batch: &BatchRuntime) -> Self {
        let state = |threads: usize| {
            let mut config =
                SessionConfig::new().with_batch_size(BATCH_ROWS).with_target_partitions(threads).with_information_schema(false);
            let options = config.options_mut();
            options.sql_parser.map_string_types_to_utf8view = true;
            options.optimizer.enable_unions_to_filter = false;
            SessionStateBuilder::new()
                .with_config(config)
                .with_runtime_env(batch.environment())
                .with_default_features()
                .with_query_planner(Arc::new(Planner))
                .build()
        };
        Self { small: state(1), large: state(batch.threads()) }
    }

    /// Optimizes a resolved plan over about so many rows and plans how to run it. `now_us` is the time of its transaction; `spills` avoids
    /// operators that must keep everything in memory.
    ///
    /// # Errors
    /// What the optimizer finds out: constant expressions that fail, and plans that cannot be run.
    pub(crate) async fn plan(&self, plan: &LogicalPlan, rows: u64, now_us: i64, spills: bool) -> Result<Query> {
        let mut state = if rows < SMALL_ROWS { self.small.clone() } else { self.large.clone() };
        state.execution_props_mut().query_execution_start_time = DateTime::<Utc>::from_timestamp_micros(now_us);
        if spills {
            state.config_mut().options_mut().optimizer.prefer_hash_join = false;
        }
        let plan = state.create_physical_plan(plan).await?;
        Ok(Query { plan, context: state.task_ctx() })
    }

    /// Optimizes a plan without planning how to run it.
    pub(crate) fn optimize(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        Ok(self.small.optimize(plan)?)
    }
}

impl Query {
    /// Starts to run. The stream must be polled on the threads for queries.
    pub(crate) fn execute(&self) -> Result<SendableRecordBatchStream> {
        Ok(execute_stream(self.plan.clone(), self.context.clone())?)
    }

    /// The plan as EXPLAIN shows it.
    pub(crate) fn explain(&self, verbose: bool) -> String {
        displayable(self.plan.as_ref()).indent(verbose).to_string()
    }

    /// The same after it has run, with what it took.
    pub(crate) fn explain_analyzed(&self) -> String {
        datafusion::physical_plan::display::DisplayableExecutionPlan::with_metrics(self.plan.as_ref()).indent(false).to_string()
    }
}

/// DataFusion's planner with our nodes.
#[derive(Debug)]
struct Planner;

#[async_trait]
impl QueryPlanner for Planner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn datafusion::catalog::Session,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(Extensions)]);
        planner.create_physical_plan(plan, session).await
    }
}

struct Extensions;

#[async_trait]
impl ExtensionPlanner for Extensions {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn datafusion::catalog::Session,
        _context: &PhysicalPlanningContext,
    ) -> DataFusionResult<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(window), [logical], [input]) = (node.as_any().downcast_ref::<WindowNode>(), logical_inputs, physical_inputs) else {
            return Ok(None);
        };
        let time = logical.schema().index_of_column(window.time())?;
        let schema = Arc::new(window_schema(window, input));
        Ok(Some(Arc::new(WindowExec::new(input.clone(), time, window.slide(), window.size(), window.offset_us(), schema))))
    }
}

/// The input's columns, as the physical input has them, and the two of the window.
fn window_schema(window: &WindowNode, input: &Arc<dyn ExecutionPlan>) -> arrow::datatypes::Schema {
    use datafusion::logical_expr::UserDefinedLogicalNodeCore;
    let mut fields: Vec<_> = input.schema().fields().iter().cloned().collect();
    let own = UserDefinedLogicalNodeCore::schema(window).fields();
    fields.extend(own.iter().skip(own.len() - 2).cloned());
    arrow::datatypes::Schema::new(fields)
}
