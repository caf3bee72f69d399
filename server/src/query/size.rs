//! How much there is to plan.

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::LogicalPlan,
};

/// Nodes and expressions of a plan that is planned within milliseconds.
const SMALL: usize = 2_000;

/// Whether planning may take so long that others should not wait for it.
pub(crate) fn is_large(plan: &LogicalPlan) -> bool {
    let mut counted = 0;
    let walked = plan.apply_with_subqueries(|node| {
        count_expressions(node, &mut counted, SMALL)?;
        counted += 1;
        Ok(if counted > SMALL { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    walked.is_err() || counted > SMALL
}

/// Adds the expressions of one node, and stops where there are more than `most`.
pub(crate) fn count_expressions(node: &LogicalPlan, counted: &mut usize, most: usize) -> datafusion::common::Result<TreeNodeRecursion> {
    node.apply_expressions(|expression| {
        expression.apply(|_| {
            *counted += 1;
            Ok(if *counted > most { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })
}
