//! `ORDER BY .. LIMIT n OFFSET m` is a top-N without partitions. Without ORDER BY, Postgres leaves open which rows a LIMIT keeps; a view
//! keeps the first ones in the order of their columns, so that its contents are a function of its inputs.

use std::sync::Arc;

use datafusion::{
    common::{
        Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{FetchType, Limit, LogicalPlan, SkipType, SortExpr},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};
use millpond_engine::graph::RankKind;

use super::refusal;
use crate::logical::top_n::{TopNBounds, TopNNode};

/// Plans LIMIT as a top-N.
#[derive(Debug)]
pub(super) struct LimitToTopN;

impl OptimizerRule for LimitToTopN {
    fn name(&self) -> &str {
        "limit_to_top_n"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Limit(limit) = plan else { return Ok(Transformed::no(plan)) };
        let bounds = bounds(&limit)?;
        if bounds.limit.is_none() && bounds.offset == 0 {
            return Ok(Transformed::yes(Arc::unwrap_or_clone(limit.input)));
        }
        keep_first(Arc::unwrap_or_clone(limit.input), &bounds).map(Transformed::yes)
    }
}

/// The bounds of a LIMIT.
pub(super) fn bounds(limit: &Limit) -> Result<TopNBounds> {
    let constant = "Write the number of rows as a constant.";
    let SkipType::Literal(offset) = limit.get_skip_type()? else {
        return Err(refusal("OFFSET of a materialized view must be a constant", constant));
    };
    let FetchType::Literal(fetch) = limit.get_fetch_type()? else {
        return Err(refusal("LIMIT of a materialized view must be a constant", constant));
    };
    Ok(TopNBounds { limit: fetch.map(|rows| rows as u64), offset: offset as u64, rank: RankKind::RowNumber, rank_field: None })
}

/// Puts the top-N where the sort is: a projection may stand between them that has dropped the sorted columns.
fn keep_first(plan: LogicalPlan, bounds: &TopNBounds) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(sort) => top_n(Arc::unwrap_or_clone(sort.input), sort.expr, bounds),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) if sorted_below(&plan) => {
            Ok(plan.map_children(|child| keep_first(child, bounds).map(Transformed::yes))?.data)
        }
        unsorted => top_n(unsorted, Vec::new(), bounds),
    }
}

/// Whether a sort stands under nothing but projections and aliases.
pub(super) fn sorted_below(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(projection) => sorted_below(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => sorted_below(&alias.input),
        _ => false,
    }
}

fn top_n(input: LogicalPlan, order_by: Vec<SortExpr>, bounds: &TopNBounds) -> Result<LogicalPlan> {
    Ok(TopNNode::try_new(input, Vec::new(), order_by, bounds.clone())?.into_plan())
}
