//! Refuses, with a hint, what a view cannot maintain yet. Runs on the analyzed plan, where the user's words are still recognisable.

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, LogicalPlan, Volatility},
};

use crate::{
    error::Result,
    functions::{clock::is_clock_call, kernel::is_live_call, system::NOT_OF_SESSION},
    optimize::{is_ranking, refusal},
    relation_source::RelationSource,
};

/// Checks every node and expression, subqueries included.
///
/// # Errors
/// 0A000 for the first thing that is not supported.
pub(super) fn check(plan: &LogicalPlan) -> Result<()> {
    let walked = plan.apply_with_subqueries(|node| {
        check_node(node)?;
        node.apply_expressions(|expression| expression.apply(check_expression))?;
        Ok(TreeNodeRecursion::Continue)
    });
    Ok(walked.map(drop)?)
}

fn check_node(node: &LogicalPlan) -> datafusion::common::Result<()> {
    match node {
        LogicalPlan::RecursiveQuery(_) => {
            Err(refusal("recursive queries are not supported in a materialized view", "Run the recursive query as a plain SELECT."))
        }
        LogicalPlan::Window(window) if !is_ranking(window) => Err(refusal(
            "window functions other than row_number(), rank() and dense_rank() are not supported in a materialized view",
            "Aggregate with GROUP BY and join the result, or compute the window function in a SELECT over the view.",
        )),
        LogicalPlan::Unnest(_) => {
            Err(refusal("set-returning functions are not supported in a materialized view", "Call them in a SELECT over the view."))
        }
        LogicalPlan::TableScan(scan) if RelationSource::of(node).is_none() => Err(refusal(
            format!("a materialized view cannot read \"{}\"", scan.table_name.table()),
            "A materialized view reads sources, tables and other materialized views.",
        )),
        _ => Ok(()),
    }
}

fn check_expression(expression: &Expr) -> datafusion::common::Result<TreeNodeRecursion> {
    if let Expr::ScalarFunction(call) = expression {
        let name = call.func.name();
        if is_clock_call(expression) {
            return Err(refusal(
                format!("function {name}() is not supported in a materialized view"),
                "The contents of a view may not depend on the clock. Filter by time in a SELECT over the view.",
            ));
        }
        if is_live_call(expression) {
            return Err(refusal(format!("function {name}() is not supported in a materialized view"), NOT_OF_SESSION));
        }
        if call.func.signature().volatility == Volatility::Volatile {
            return Err(refusal(
                format!("volatile function {name}() is not supported in a materialized view"),
                "Compute the value where the row enters: in INSERT, or as a column default.",
            ));
        }
    }
    Ok(TreeNodeRecursion::Continue)
}
