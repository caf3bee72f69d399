//! What a batch query is given beside DataFusion's rules: those of ours that decorrelate what DataFusion would refuse.

use std::sync::Arc;

use datafusion::{
    common::{Column, Result, tree_node::Transformed},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit, utils::conjunction},
    optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule, extract_equijoin_predicate::ExtractEquijoinPredicate},
};
use millpond_engine::graph::RankKind;

use super::{correlated_limit::CorrelatedLimit, null_safe_keys::NullSafeKeys, refusal};
use crate::{functions::window, logical::top_n::TopNNode, unnest::UnnestLimits};

/// The rules of batch queries, in their order.
pub(crate) fn batch_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        vec![Arc::new(UnnestLimits), Arc::new(NullSafeKeys), Arc::new(CorrelatedLimit), Arc::new(TopNToWindow)];
    for rule in Optimizer::new().rules {
        if rule.name() == ExtractEquijoinPredicate::new().name() {
            rules.push(Arc::new(NullSafeKeys));
        }
        rules.push(rule);
    }
    rules
}

/// Plans a top-N as a filter on `row_number()`.
#[derive(Debug)]
struct TopNToWindow;

impl OptimizerRule for TopNToWindow {
    fn name(&self) -> &str {
        "top_n_to_window"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let node = match &plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref::<TopNNode>(),
            _ => None,
        };
        match node {
            Some(node) => Ok(Transformed::yes(filtered(node)?)),
            None => Ok(Transformed::no(plan)),
        }
    }
}

fn filtered(node: &TopNNode) -> Result<LogicalPlan> {
    if node.rank != RankKind::RowNumber || node.rank_field.is_some() {
        return Err(refusal("a rank cannot be planned here", "Write it with row_number()."));
    }
    let columns: Vec<Expr> = node.input.schema().columns().into_iter().map(Expr::Column).collect();
    let number = window::row_number(node.partition_by.clone(), node.order_by.clone());
    let numbered = LogicalPlanBuilder::from(node.input.clone()).window([number])?.build()?;
    let number = Expr::Column(Column::from(numbered.schema().qualified_field(columns.len())));
    let bound = |rows: u64| lit(i64::try_from(rows).unwrap_or(i64::MAX));
    let skipped = (node.offset > 0).then(|| number.clone().gt(bound(node.offset)));
    let kept = node.limit.map(|limit| number.clone().lt_eq(bound(node.offset.saturating_add(limit))));
    let plan = LogicalPlanBuilder::from(numbered);
    let plan = match conjunction(skipped.into_iter().chain(kept)) {
        Some(condition) => plan.filter(condition)?,
        None => plan,
    };
    plan.project(columns)?.build()
}
