//! Window functions. Ranks are bigints, as in Postgres.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::ArrayRef,
    compute::cast,
    datatypes::{DataType, Field, FieldRef},
};
use datafusion::{
    common::{Result as DataFusionResult, ScalarValue},
    functions_window::{
        cume_dist::cume_dist_udwf,
        lead_lag::{lag_udwf, lead_udwf},
        nth_value::{first_value_udwf, last_value_udwf, nth_value_udwf},
        ntile::ntile_udwf,
        rank::{dense_rank_udwf, percent_rank_udwf, rank_udwf},
        row_number::row_number_udwf,
    },
    logical_expr::{
        Expr, LimitEffect, PartitionEvaluator, Signature, WindowFrame, WindowUDF, WindowUDFImpl,
        expr::{Sort, WindowFunction, WindowFunctionParams},
        function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs},
        window_state::WindowAggState,
    },
    physical_expr::PhysicalExpr,
};

use crate::types::SqlType;

/// A window function for arguments of certain types.
pub(crate) struct Chosen {
    pub(crate) function: Arc<WindowUDF>,
    /// Types its arguments have to have.
    pub(crate) arguments: Vec<SqlType>,
    pub(crate) result: SqlType,
}

/// What they take and give, as the list of functions shows it; the first and last values are listed as aggregates, which they are too.
pub(crate) const SIGNATURES: &[&str] = &[
    "row_number() bigint",
    "rank() bigint",
    "dense_rank() bigint",
    "percent_rank() double precision",
    "cume_dist() double precision",
    "ntile(integer) bigint",
    "lag(anyelement) anyelement",
    "lag(anyelement, integer) anyelement",
    "lag(anycompatible, integer, anycompatible) anycompatible",
    "lead(anyelement) anyelement",
    "lead(anyelement, integer) anyelement",
    "lead(anycompatible, integer, anycompatible) anycompatible",
    "nth_value(anyelement, integer) anyelement",
];

/// Names of the functions that need OVER.
pub(crate) fn is_window_function(name: &str) -> bool {
    matches!(
        name,
        "row_number"
            | "rank"
            | "dense_rank"
            | "percent_rank"
            | "cume_dist"
            | "ntile"
            | "lag"
            | "lead"
            | "first_value"
            | "last_value"
            | "nth_value"
    )
}

/// The function of a name for arguments of these types.
pub(crate) fn choose(name: &str, types: &[SqlType]) -> Option<Chosen> {
    let known = |sql_type: &SqlType| if *sql_type == SqlType::Unknown { SqlType::Text } else { sql_type.clone() };
    let value = types.first().map(known);
    let integer = |sql_type: &SqlType| sql_type.is_integer() || *sql_type == SqlType::Unknown;
    let chosen = |function: Arc<WindowUDF>, arguments: Vec<SqlType>, result: SqlType| Some(Chosen { function, arguments, result });
    match (name, types) {
        ("row_number", []) => chosen(bigint(row_number_udwf()), vec![], SqlType::BigInt),
        ("rank", []) => chosen(bigint(rank_udwf()), vec![], SqlType::BigInt),
        ("dense_rank", []) => chosen(bigint(dense_rank_udwf()), vec![], SqlType::BigInt),
        ("percent_rank", []) => chosen(percent_rank_udwf(), vec![], SqlType::Double),
        ("cume_dist", []) => chosen(cume_dist_udwf(), vec![], SqlType::Double),
        ("ntile", [buckets]) if integer(buckets) => chosen(bigint(ntile_udwf()), vec![SqlType::BigInt], SqlType::BigInt),
        ("lag" | "lead", [_] | [_, _] | [_, _, _]) if types.get(1).is_none_or(integer) => {
            let value = value?;
            let arguments = [value.clone(), SqlType::BigInt, value.clone()][..types.len()].to_vec();
            chosen(if name == "lag" { lag_udwf() } else { lead_udwf() }, arguments, value)
        }
        ("first_value", [_]) => chosen(first_value_udwf(), vec![value.clone()?], value?),
        ("last_value", [_]) => chosen(last_value_udwf(), vec![value.clone()?], value?),
        ("nth_value", [_, number]) if integer(number) => chosen(nth_value_udwf(), vec![value.clone()?, SqlType::BigInt], value?),
        _ => None,
    }
}

/// `row_number`
pub(crate) fn numbering() -> Arc<WindowUDF> {
    bigint(row_number_udwf())
}

/// `row_number() OVER (PARTITION BY .. ORDER BY ..)`
pub(crate) fn row_number(partition_by: Vec<Expr>, order_by: Vec<Sort>) -> Expr {
    numbered(numbering(), partition_by, order_by)
}

/// `rank() OVER (PARTITION BY .. ORDER BY ..)`
pub(crate) fn rank(partition_by: Vec<Expr>, order_by: Vec<Sort>) -> Expr {
    numbered(bigint(rank_udwf()), partition_by, order_by)
}

fn numbered(function: Arc<WindowUDF>, partition_by: Vec<Expr>, order_by: Vec<Sort>) -> Expr {
    let params = WindowFunctionParams {
        args: vec![],
        partition_by,
        window_frame: WindowFrame::new((!order_by.is_empty()).then_some(false)),
        order_by,
        filter: None,
        null_treatment: None,
        distinct: false,
    };
    Expr::WindowFunction(Box::new(WindowFunction { fun: function.into(), params }))
}

/// A function of DataFusion's whose unsigned result becomes a bigint.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsBigint {
    inner: Arc<WindowUDF>,
}

fn bigint(inner: Arc<WindowUDF>) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::new_from_impl(AsBigint { inner }))
}

impl WindowUDFImpl for AsBigint {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, arguments: ExpressionArgs<'_>) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions(arguments)
    }

    fn partition_evaluator(&self, arguments: PartitionEvaluatorArgs<'_>) -> DataFusionResult<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(BigintEvaluator { inner: self.inner.partition_evaluator_factory(arguments)? }))
    }

    fn field(&self, arguments: WindowUDFFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        let inner = self.inner.field(arguments)?;
        Ok(Arc::new(Field::new(inner.name(), DataType::Int64, inner.is_nullable())))
    }

    fn sort_options(&self) -> Option<arrow::compute::SortOptions> {
        self.inner.sort_options()
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

#[derive(Debug)]
struct BigintEvaluator {
    inner: Box<dyn PartitionEvaluator>,
}

impl PartitionEvaluator for BigintEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> DataFusionResult<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, index: usize, rows: usize) -> DataFusionResult<Range<usize>> {
        self.inner.get_range(index, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> DataFusionResult<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, rows)?, &DataType::Int64)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> DataFusionResult<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&DataType::Int64)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> DataFusionResult<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(rows, ranks)?, &DataType::Int64)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
