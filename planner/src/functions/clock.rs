//! `now()` and its like: calls that stay in a plan until it is run, so that a prepared statement sees the time of each run.
//!
//! [`resolve`] puts times in their place before a batch plan is run. A view cannot hold them; its planner finds them by [`is_clock_call`].

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::{
    common::{
        Result as DataFusionResult, ScalarValue,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
    },
};
use std::sync::Arc;

use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    types::SqlType,
};

/// The times that a statement sees, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// `now()`: when the transaction began.
    pub transaction_us: i64,
    /// `statement_timestamp()`, `clock_timestamp()`: when the statement came.
    pub statement_us: i64,
}

/// A call that [`resolve`] replaces.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ClockFunction {
    name: &'static str,
    signature: Signature,
}

const TRANSACTION: &str = "now";
const STATEMENT: &str = "statement_timestamp";

impl ScalarUDFImpl for ClockFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(PlanError::internal(format!("{}() was evaluated before it was given a time", self.name)).into())
    }
}

fn call(name: &'static str) -> Typed {
    let function = ClockFunction { name, signature: Signature::nullary(Volatility::Stable) };
    let expr = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), Vec::new()));
    Typed::new(expr, SqlType::TimestampTz)
}

/// `now()`
pub(super) fn transaction_time(_: &Binder<'_>, _: Vec<Typed>) -> Result<Typed> {
    Ok(call(TRANSACTION))
}

/// `statement_timestamp()`
pub(super) fn statement_time(_: &Binder<'_>, _: Vec<Typed>) -> Result<Typed> {
    Ok(call(STATEMENT))
}

/// `now()` as another type, in the session's time zone.
pub(super) fn transaction_time_as(binder: &Binder<'_>, to: &SqlType) -> Result<Typed> {
    binder.coerce(call(TRANSACTION), to, crate::types::coercion::CoercionContext::Explicit, sqlparser::tokenizer::Span::empty())
}

/// Whether an expression is the call of a clock.
pub fn is_clock_call(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.inner().is::<ClockFunction>())
}

/// The plan with times for its calls of clocks.
///
/// # Errors
/// None is expected.
pub fn resolve(plan: LogicalPlan, clock: Clock) -> Result<LogicalPlan> {
    let transformed = plan.transform_up_with_subqueries(|plan| plan.map_expressions(|expr| resolve_in(expr, clock)))?;
    Ok(transformed.data)
}

/// The expression with times for its calls of clocks.
///
/// # Errors
/// None is expected.
pub fn resolve_expression(expr: Expr, clock: Clock) -> Result<Expr> {
    Ok(resolve_in(expr, clock)?.data)
}

fn resolve_in(expr: Expr, clock: Clock) -> DataFusionResult<Transformed<Expr>> {
    if !expr.exists(|expr| Ok(is_clock_call(expr)))? {
        return Ok(Transformed::no(expr));
    }
    let name = expr.schema_name().to_string();
    let resolved = expr.transform_up(|expr| {
        if !is_clock_call(&expr) {
            return Ok(Transformed::no(expr));
        }
        let Expr::ScalarFunction(function) = &expr else { return Ok(Transformed::no(expr)) };
        let micros = if function.name() == TRANSACTION { clock.transaction_us } else { clock.statement_us };
        Ok(Transformed::yes(Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), Some("UTC".into())), None)))
    })?;
    // Columns above may name the expression as it was written.
    if resolved.transformed && !matches!(resolved.data, Expr::Alias(_)) {
        return Ok(resolved.update_data(|expr| expr.alias(name)));
    }
    Ok(resolved)
}
