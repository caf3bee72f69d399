//! `DISTINCT ON (k) .. ORDER BY k, o` is the first row of each `k` in the order `o`. DataFusion's own rewrite to `first_value` aggregates
//! could not take back a row.

use std::sync::Arc;

use datafusion::{
    common::{Result, tree_node::Transformed},
    logical_expr::{Distinct, LogicalPlan, Projection},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};
use millpond_engine::graph::RankKind;

use crate::logical::top_n::{TopNBounds, TopNNode};

/// Plans DISTINCT ON as a top-1.
#[derive(Debug)]
pub(super) struct DistinctOnToTopN;

impl OptimizerRule for DistinctOnToTopN {
    fn name(&self) -> &str {
        "distinct_on_to_top_n"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Distinct(Distinct::On(distinct)) = plan else { return Ok(Transformed::no(plan)) };
        // The leading sort expressions are the ON expressions: constant within a partition.
        let order_by = distinct.sort_expr.unwrap_or_default().into_iter().skip(distinct.on_expr.len()).collect();
        let bounds = TopNBounds { limit: Some(1), offset: 0, rank: RankKind::RowNumber, rank_field: None };
        let first = TopNNode::try_new(Arc::unwrap_or_clone(distinct.input), distinct.on_expr, order_by, bounds)?;
        let projection = Projection::try_new_with_schema(distinct.select_expr, Arc::new(first.into_plan()), distinct.schema)?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    }
}
