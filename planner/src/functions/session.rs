//! DataFusion's session: one configuration for planning and for running queries, and what binding uses of DataFusion directly.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use arrow::{
    datatypes::{DataType, Field, Schema},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use async_trait::async_trait;
use datafusion::{
    common::{DFSchema, ScalarValue, tree_node::TreeNode},
    config::ConfigOptions,
    error::Result as DataFusionResult,
    execution::{
        SessionStateDefaults,
        context::QueryPlanner,
        runtime_env::RuntimeEnv,
        session_state::{SessionState, SessionStateBuilder},
    },
    logical_expr::{
        ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarUDF, Volatility, execution_props::ExecutionProps, expr::ScalarFunction,
        physical_planning_context::PhysicalPlanningContext, type_coercion::functions::fields_with_udf,
    },
    optimizer::Analyzer,
    physical_expr::create_physical_expr,
    physical_plan::{ExecutionPlan, PhysicalExpr},
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
    prelude::SessionConfig,
};

use crate::{
    error::Result,
    interrupt::{Interrupt, interruptible, interruptible_physical},
    logical::window_exec::WindowPlanner,
    optimize::{batch_rules, physical_rules},
    types::SqlType,
    unnest::unnest,
};

/// DataFusion's own scalar functions, by name and alias.
static DATAFUSION_FUNCTIONS: LazyLock<BTreeMap<String, Arc<ScalarUDF>>> = LazyLock::new(|| {
    let mut functions = BTreeMap::new();
    for function in SessionStateDefaults::default_scalar_functions() {
        for alias in function.aliases() {
            functions.entry(alias.clone()).or_insert_with(|| Arc::clone(&function));
        }
        functions.insert(function.name().to_owned(), function);
    }
    functions
});

/// Configuration of every plan: text is a view type, NULLs come last, names are as they are given.
pub fn session_config() -> SessionConfig {
    let mut config = SessionConfig::new()
        .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", true)
        .set_bool("datafusion.sql_parser.enable_ident_normalization", false)
        .set_bool("datafusion.optimizer.skip_failed_rules", false)
        .set_bool("datafusion.execution.parquet.schema_force_view_types", true);
    config.options_mut().execution.time_zone = Some("UTC".to_owned());
    config
}

/// A session that runs plans: every function of this crate travels inside of its plan, so that only planners have to be known.
///
/// Scans are of [`crate::relation_source::RelationSource`]s; whoever runs a plan replaces them, or gives a planner that knows them.
pub fn session_state(
    config: SessionConfig,
    runtime: Arc<RuntimeEnv>,
    planners: Vec<Arc<dyn ExtensionPlanner + Send + Sync>>,
) -> SessionState {
    let mut all: Vec<Arc<dyn ExtensionPlanner + Send + Sync>> = vec![Arc::new(WindowPlanner)];
    all.extend(planners);
    SessionStateBuilder::new()
        .with_optimizer_rules(interruptible(batch_rules()))
        .with_physical_optimizer_rules(interruptible_physical(physical_rules()))
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_query_planner(Arc::new(PlannerWithExtensions { planners: all }))
        .build()
}

/// Turns logical into physical plans, windows and the caller's nodes included.
#[derive(Clone)]
struct PlannerWithExtensions {
    planners: Vec<Arc<dyn ExtensionPlanner + Send + Sync>>,
}

impl std::fmt::Debug for PlannerWithExtensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlannerWithExtensions({})", self.planners.len())
    }
}

#[async_trait]
impl QueryPlanner for PlannerWithExtensions {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn datafusion::catalog::Session,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::with_extension_planners(self.planners.clone()).create_physical_plan(plan, session).await
    }
}

/// Subqueries that DataFusion does not know to decorrelate as joins, then its analysis: what is left of type coercion, and checks.
///
/// # Errors
/// 0A000 for what DataFusion cannot plan; what `interrupt` says.
pub(crate) fn analyze(plan: LogicalPlan, interrupt: &Interrupt) -> Result<LogicalPlan> {
    static OPTIONS: LazyLock<ConfigOptions> = LazyLock::new(|| session_config().options().as_ref().clone());
    interrupt.check()?;
    let plan = unnest(plan, interrupt)?;
    interrupt.check()?;
    Ok(Analyzer::new().execute_and_check(plan, &OPTIONS, |_, _| {})?)
}

/// A scalar function of DataFusion's.
pub(crate) fn datafusion_function(name: &str) -> Option<Arc<ScalarUDF>> {
    DATAFUSION_FUNCTIONS.get(name).map(Arc::clone)
}

/// A call with arguments of these types, which are converted as DataFusion wants; and the type of its result.
pub(crate) fn call_datafusion(function: Arc<ScalarUDF>, arguments: Vec<Expr>, types: &[SqlType]) -> DataFusionResult<(Expr, DataType)> {
    let given: Vec<DataType> = types.iter().map(SqlType::arrow).collect();
    let given_fields: Vec<_> = given.iter().map(|data_type| Arc::new(Field::new("argument", data_type.clone(), true))).collect();
    let fields = if given.is_empty() { Vec::new() } else { fields_with_udf(&given_fields, function.as_ref())? };
    let arguments: Vec<Expr> = arguments
        .into_iter()
        .zip(given.iter().zip(&fields))
        .map(|(argument, (given, wanted))| super::cast::native(argument, given, wanted.data_type()))
        .collect();
    let constants: Vec<Option<&ScalarValue>> = arguments.iter().map(Expr::as_literal).collect();
    let result = function.return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &constants })?;
    Ok((Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments)), result.data_type().clone()))
}

/// The value of an expression that depends on nothing: no column, parameter, subquery, session time or chance.
///
/// # Errors
/// Errors of its evaluation.
pub(crate) fn evaluate_constant(expr: Expr) -> Result<Option<ScalarValue>> {
    if let Expr::Literal(value, _) = expr {
        return Ok(Some(value));
    }
    let depends = expr.exists(|expr| {
        Ok(match expr {
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::Placeholder(_) | Expr::ScalarVariable(..) => true,
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Unnest(_) | Expr::GroupingSet(_) => true,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => true,
            Expr::ScalarFunction(function) => function.func.signature().volatility != Volatility::Immutable,
            _ => false,
        })
    })?;
    if depends {
        return Ok(None);
    }
    let physical = physical(&expr, &DFSchema::empty())?;
    let one_row = RecordBatchOptions::new().with_row_count(Some(1));
    let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &one_row)?;
    Ok(Some(match physical.evaluate(&batch)? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0)?,
    }))
}

/// The expression made ready to be evaluated over batches of a schema.
///
/// # Errors
/// 0A000 for what DataFusion cannot evaluate.
pub fn physical(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?)
}
