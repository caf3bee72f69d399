//! What a bounded query reads otherwise than a view does: series and long lists of constants become tables of their own.

use datafusion::{common::tree_node::Transformed, logical_expr::LogicalPlan};

use super::{constant_rows, series};
use crate::error::Result;

/// Replaces the leaves of a plan that are better made as they are asked for.
///
/// # Errors
/// 22023 for a series with a step of zero, and errors of its arguments.
pub fn with_tables(plan: LogicalPlan) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|node| {
        let table = match &node {
            LogicalPlan::Unnest(unnest) => series::of(unnest)?,
            LogicalPlan::Values(values) => constant_rows::of(values)?,
            _ => None,
        };
        Ok(table.map_or_else(|| Transformed::no(node), Transformed::yes))
    })?;
    Ok(replaced.data)
}
