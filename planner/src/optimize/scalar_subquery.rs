//! An uncorrelated scalar subquery becomes a join, which by itself would accept several rows. This rule puts a guard on top of it, unless
//! the subquery cannot have more than one row.

use std::sync::Arc;

use datafusion::{
    common::{
        Column, Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, logical_plan::Subquery},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

use crate::logical::single_row::SingleRowNode;

/// Guards uncorrelated scalar subqueries.
#[derive(Debug)]
pub(super) struct GuardScalarSubquery;

impl OptimizerRule for GuardScalarSubquery {
    fn name(&self) -> &str {
        "guard_scalar_subquery"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        plan.map_expressions(|expression| {
            expression.transform_up(|inner| match inner {
                Expr::ScalarSubquery(subquery) if needs_guard(&subquery) => Ok(Transformed::yes(Expr::ScalarSubquery(guarded(subquery)?))),
                other => Ok(Transformed::no(other)),
            })
        })
    }
}

fn needs_guard(subquery: &Subquery) -> bool {
    subquery.outer_ref_columns.is_empty() && subquery.subquery.max_rows().is_none_or(|rows| rows > 1) && !is_guard(&subquery.subquery)
}

fn is_guard(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().is::<SingleRowNode>(),
        LogicalPlan::Projection(projection) => is_guard(&projection.input),
        _ => false,
    }
}

/// The projection on top gives the subquery the head expression by which DataFusion names its value.
fn guarded(subquery: Subquery) -> Result<Subquery> {
    let value = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)));
    let guard = SingleRowNode::new(Arc::unwrap_or_clone(subquery.subquery)).into_plan();
    let plan = LogicalPlanBuilder::from(guard).project([value])?.build()?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}
