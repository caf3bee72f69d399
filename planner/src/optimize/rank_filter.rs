//! `row_number()`, `rank()` and `dense_rank()` become top-N nodes. A filter on the rank directly above (`rn <= n`, `rn < n`, `rn = n`,
//! `rn BETWEEN m AND n`) bounds the top-N, so that only the rows it lets through are maintained; without one, all rows are ranked.

use std::sync::Arc;

use datafusion::{
    common::{Column, Result, ScalarValue, tree_node::Transformed},
    logical_expr::{
        Between, BinaryExpr, Expr, Extension, Filter, LogicalPlan, Operator, Projection, Window, WindowFunctionDefinition,
        expr::{WindowFunction, WindowFunctionParams},
        utils::{conjunction, split_conjunction_owned},
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};
use millpond_engine::graph::RankKind;

use crate::logical::top_n::{TopNBounds, TopNNode};

/// Plans ranking window functions as top-N.
#[derive(Debug)]
pub(super) struct RankToTopN;

impl OptimizerRule for RankToTopN {
    fn name(&self) -> &str {
        "rank_to_top_n"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) => match Arc::unwrap_or_clone(filter.input) {
                LogicalPlan::Window(window) if is_ranking(&window) => rank_filtered(window, filter.predicate).map(Transformed::yes),
                LogicalPlan::Extension(extension) if unbounded(&extension).is_some() => {
                    bound_later(LogicalPlan::Extension(extension), filter.predicate)
                }
                other => Ok(Transformed::no(LogicalPlan::Filter(Filter::new(filter.predicate, Arc::new(other))))),
            },
            LogicalPlan::Window(window) if is_ranking(&window) => rank(window, None).map(Transformed::yes),
            other => Ok(Transformed::no(other)),
        }
    }
}

/// A top-N that ranks all rows.
fn unbounded(extension: &Extension) -> Option<&TopNNode> {
    let node = extension.node.as_any().downcast_ref::<TopNNode>()?;
    (node.limit.is_none() && node.offset == 0 && node.rank_field.is_some()).then_some(node)
}

/// A filter that came to stand above a ranking only in a later pass.
fn bound_later(ranked: LogicalPlan, predicate: Expr) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Extension(extension) = &ranked else { return Ok(Transformed::no(ranked)) };
    let Some(node) = unbounded(extension) else { return Ok(Transformed::no(ranked)) };
    let column = Column::from(ranked.schema().qualified_field(node.input.schema().fields().len()));
    let (range, above) = split_bounds(node.rank, &column, split_conjunction_owned(predicate.clone()));
    let Some(range) = range.filter(|range| *range != RankRange::ALL) else {
        return Ok(Transformed::no(LogicalPlan::Filter(Filter::new(predicate, Arc::new(ranked)))));
    };
    let (offset, limit) = range.offset_and_limit(node.rank);
    let bounds = TopNBounds { limit, offset, rank: node.rank, rank_field: node.rank_field.clone() };
    let bounded = TopNNode::try_new(node.input.clone(), node.partition_by.clone(), node.order_by.clone(), bounds)?;
    Ok(Transformed::yes(with_filter(bounded.into_plan(), above)))
}

/// Whether a top-N computes all of its window functions.
pub(crate) fn is_ranking(window: &Window) -> bool {
    window.window_expr.iter().all(|expression| ranking_call(expression).is_some())
}

fn ranking_call(expression: &Expr) -> Option<(RankKind, &WindowFunctionParams)> {
    let Expr::WindowFunction(call) = unaliased(expression) else { return None };
    let WindowFunction { fun: WindowFunctionDefinition::WindowUDF(function), params } = call.as_ref() else { return None };
    let kind = match function.name() {
        "row_number" => RankKind::RowNumber,
        "rank" => RankKind::Rank,
        "dense_rank" => RankKind::DenseRank,
        _ => return None,
    };
    (params.filter.is_none() && params.args.is_empty()).then_some((kind, params))
}

fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// A filter above a ranking window: conjuncts on one rank become its bounds, the others stay above.
fn rank_filtered(window: Window, predicate: Expr) -> Result<LogicalPlan> {
    let width = window.input.schema().fields().len();
    let mut conjuncts = split_conjunction_owned(predicate);
    for (call, expression) in window.window_expr.iter().enumerate() {
        let Some((kind, _)) = ranking_call(expression) else { continue };
        let column = Column::from(window.schema.qualified_field(width + call));
        let (range, above) = split_bounds(kind, &column, conjuncts);
        if let Some(range) = range {
            return Ok(with_filter(rank(window, Some((call, range)))?, above));
        }
        conjuncts = above;
    }
    Ok(with_filter(rank(window, None)?, conjuncts))
}

/// The bounds that conjuncts put on a rank, if any do, and the conjuncts that have to stay above.
fn split_bounds(kind: RankKind, rank: &Column, conjuncts: Vec<Expr>) -> (Option<RankRange>, Vec<Expr>) {
    let mut range: Option<RankRange> = None;
    let mut above = Vec::new();
    for conjunct in conjuncts {
        match bounds_of(&conjunct, rank) {
            // With ties there is no telling how many rows lie below a rank, so a lower bound stays a filter.
            Some(bound) => {
                if bound.low > 1 && kind != RankKind::RowNumber {
                    above.push(conjunct);
                }
                range = Some(range.unwrap_or(RankRange::ALL).and(bound));
            }
            None => above.push(conjunct),
        }
    }
    (range, above)
}

fn with_filter(input: LogicalPlan, conjuncts: Vec<Expr>) -> LogicalPlan {
    match conjunction(conjuncts) {
        Some(predicate) => LogicalPlan::Filter(Filter::new(predicate, Arc::new(input))),
        None => input,
    }
}

/// The window as a chain of top-N, the bounded one on top (it alone drops rows); columns in the window's order.
fn rank(window: Window, bounded: Option<(usize, RankRange)>) -> Result<LogicalPlan> {
    let width = window.input.schema().fields().len();
    let last = bounded.map(|(call, _)| call);
    let order = (0..window.window_expr.len()).filter(|call| Some(*call) != last).chain(last);
    let mut plan = Arc::unwrap_or_clone(window.input);
    for call in order {
        let Some((rank, params)) = ranking_call(&window.window_expr[call]) else { continue };
        let range = bounded.filter(|(bounded, _)| *bounded == call).map_or(RankRange::ALL, |(_, range)| range);
        let (offset, limit) = range.offset_and_limit(rank);
        let rank_field = Some(Arc::clone(window.schema.field(width + call)));
        let bounds = TopNBounds { limit, offset, rank, rank_field };
        plan = TopNNode::try_new(plan, params.partition_by.clone(), params.order_by.clone(), bounds)?.into_plan();
    }
    if last.is_none_or(|call| call + 1 == window.window_expr.len()) {
        return Ok(plan);
    }
    let columns = window.schema.columns().into_iter().map(Expr::Column).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

/// Ranks from `low` to `high`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RankRange {
    low: i128,
    high: Option<i128>,
}

impl RankRange {
    const ALL: Self = Self { low: 1, high: None };

    fn and(self, other: Self) -> Self {
        let high = match (self.high, other.high) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Self { low: self.low.max(other.low), high }
    }

    fn offset_and_limit(self, kind: RankKind) -> (u64, Option<u64>) {
        let clamp = |rows: i128| u64::try_from(rows.max(0)).unwrap_or(u64::MAX);
        match kind {
            RankKind::RowNumber => (clamp(self.low - 1), self.high.map(|high| clamp(high - self.low.max(1) + 1))),
            RankKind::Rank | RankKind::DenseRank => (0, self.high.map(clamp)),
        }
    }
}

/// The ranks that a conjunct lets through, if it says nothing else.
fn bounds_of(conjunct: &Expr, rank: &Column) -> Option<RankRange> {
    let at_most = |high: i128| RankRange { low: 1, high: Some(high) };
    let at_least = |low: i128| RankRange { low: low.max(1), high: None };
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (op, value) = match (is_rank(left, rank), is_rank(right, rank)) {
                (true, false) => (*op, integer(right)?),
                (false, true) => (op.swap()?, integer(left)?),
                _ => return None,
            };
            match op {
                Operator::LtEq => Some(at_most(value)),
                Operator::Lt => Some(at_most(value - 1)),
                Operator::Eq => Some(at_least(value).and(at_most(value))),
                Operator::GtEq => Some(at_least(value)),
                Operator::Gt => Some(at_least(value + 1)),
                _ => None,
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) if is_rank(expr, rank) => {
            Some(at_least(integer(low)?).and(at_most(integer(high)?)))
        }
        _ => None,
    }
}

/// The rank's column, possibly under a cast to another integer or numeric type (which keeps its value).
fn is_rank(expression: &Expr, rank: &Column) -> bool {
    match expression {
        Expr::Column(column) => column == rank,
        Expr::Cast(cast) if cast.field.data_type().is_numeric() => is_rank(&cast.expr, rank),
        _ => false,
    }
}

fn integer(expression: &Expr) -> Option<i128> {
    let Expr::Literal(value, _) = expression else { return None };
    match value {
        ScalarValue::Int8(Some(value)) => Some(i128::from(*value)),
        ScalarValue::Int16(Some(value)) => Some(i128::from(*value)),
        ScalarValue::Int32(Some(value)) => Some(i128::from(*value)),
        ScalarValue::Int64(Some(value)) => Some(i128::from(*value)),
        ScalarValue::UInt8(Some(value)) => Some(i128::from(*value)),
        ScalarValue::UInt16(Some(value)) => Some(i128::from(*value)),
        ScalarValue::UInt32(Some(value)) => Some(i128::from(*value)),
        ScalarValue::UInt64(Some(value)) => Some(i128::from(*value)),
        ScalarValue::Decimal128(Some(value), _, 0) => Some(*value),
        _ => None,
    }
}
