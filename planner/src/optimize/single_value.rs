//! `single_value(x)` is how the binder says that a correlated scalar subquery has at most one row: an aggregate that fails on the second.
//! Where the subquery cannot have two rows anyway (it has a LIMIT 1, or looks up a primary key), the aggregate is dropped.

use std::sync::Arc;

use datafusion::{
    common::{
        Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Aggregate, Expr, LogicalPlan, Projection, logical_plan::Subquery},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// Name of the aggregate function.
pub(crate) const SINGLE_VALUE: &str = "single_value";

/// Drops aggregates that only check for a second row.
#[derive(Debug)]
pub(super) struct DropSingleValue;

impl OptimizerRule for DropSingleValue {
    fn name(&self) -> &str {
        "drop_single_value"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.map_expressions(|expression| {
            expression.transform_up(|inner| match inner {
                Expr::ScalarSubquery(subquery) => Ok(match without_check(&subquery.subquery)? {
                    Some(plan) => Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery })),
                    None => Transformed::no(Expr::ScalarSubquery(subquery)),
                }),
                other => Ok(Transformed::no(other)),
            })
        })
    }
}

/// The plan without the aggregate, if that checks nothing. (Over no rows it would have one row of NULL, but so has the subquery.)
pub(super) fn without_check(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => match checked_value(aggregate) {
            Some(value) if aggregate.input.max_rows().is_some_and(|rows| rows <= 1) => {
                let (qualifier, field) = aggregate.schema.qualified_field(0);
                let value = value.clone().alias_qualified(qualifier.cloned(), field.name());
                Ok(Some(LogicalPlan::Projection(Projection::try_new(vec![value], Arc::clone(&aggregate.input))?)))
            }
            _ => Ok(None),
        },
        LogicalPlan::Projection(projection) => match without_check(&projection.input)? {
            Some(input) => Ok(Some(LogicalPlan::Projection(Projection::try_new(projection.expr.clone(), Arc::new(input))?))),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The argument, if the aggregation is a bare `single_value`.
fn checked_value(aggregate: &Aggregate) -> Option<&Expr> {
    let ([], [call]) = (aggregate.group_expr.as_slice(), aggregate.aggr_expr.as_slice()) else { return None };
    let call = match call {
        Expr::Alias(alias) => alias.expr.as_ref(),
        other => other,
    };
    match call {
        Expr::AggregateFunction(call) if call.func.name() == SINGLE_VALUE => call.params.args.first(),
        _ => None,
    }
}
