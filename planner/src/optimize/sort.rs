//! A view has no order: `ORDER BY` matters only to a LIMIT above it. Every other sort is dropped, before subqueries are decorrelated
//! (which a sort would prevent).

use std::sync::Arc;

use datafusion::{
    common::{
        Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Expr, Limit, LogicalPlan, Projection, expr::Exists, logical_plan::Subquery},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

use super::limit::{bounds, sorted_below};

/// Drops sorts that no LIMIT reads.
#[derive(Debug)]
pub(super) struct DropSort;

impl OptimizerRule for DropSort {
    fn name(&self) -> &str {
        "drop_sort"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        None
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        drop_sorts(plan, false)
    }
}

/// `order_matters`: a LIMIT above sees the order of this node's rows.
fn drop_sorts(plan: LogicalPlan, order_matters: bool) -> Result<Transformed<LogicalPlan>> {
    let plan = plan.map_expressions(|expression| expression.transform_down(|inner| Ok(Transformed::no(unsorted_exists(inner)))))?;
    let plan = plan.transform_data(|plan| plan.map_subqueries(|subquery| drop_sorts(subquery, false)))?;
    plan.transform_data(|plan| match plan {
        LogicalPlan::Sort(sort) if !order_matters && sort.fetch.is_none() => {
            let input = drop_sorts(Arc::unwrap_or_clone(sort.input), false)?.data;
            Ok(Transformed::yes(input))
        }
        other => {
            let passes = match &other {
                LogicalPlan::Limit(_) => true,
                LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => order_matters,
                _ => false,
            };
            other.map_children(|child| drop_sorts(child, passes))
        }
    })
}

/// EXISTS asks for any row, so neither an order nor a LIMIT inside of it matters.
fn unsorted_exists(expression: Expr) -> Expr {
    match expression {
        Expr::Exists(Exists { subquery, negated }) => {
            let plan = Arc::new(unsorted(Arc::unwrap_or_clone(subquery.subquery)));
            Expr::Exists(Exists { subquery: Subquery { subquery: plan, ..subquery }, negated })
        }
        other => other,
    }
}

fn unsorted(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Sort(sort) => unsorted(Arc::unwrap_or_clone(sort.input)),
        // Whether there is a row at all is not changed by a limit above zero.
        LogicalPlan::Limit(limit) if bounds(&limit).is_ok_and(|bounds| bounds.offset == 0 && bounds.limit != Some(0)) => {
            unsorted(Arc::unwrap_or_clone(limit.input))
        }
        LogicalPlan::Limit(limit) => LogicalPlan::Limit(Limit { input: Arc::new(unsorted(Arc::unwrap_or_clone(limit.input))), ..limit }),
        LogicalPlan::Projection(projection) if sorted_below(&projection.input) || matches!(*projection.input, LogicalPlan::Limit(_)) => {
            let input = Arc::new(unsorted(Arc::unwrap_or_clone(Arc::clone(&projection.input))));
            match Projection::try_new(projection.expr.clone(), input) {
                Ok(unsorted) => LogicalPlan::Projection(unsorted),
                Err(_) => LogicalPlan::Projection(projection),
            }
        }
        other => other,
    }
}
