//! Logical expressions as physical ones over column numbers.

use datafusion::{
    common::{DFSchema, tree_node::TreeNode},
    logical_expr::{Expr, physical_planning_context::PhysicalPlanningContext},
    physical_expr::create_physical_expr,
};
use millpond_engine::graph::Expression;

use super::{Lowering, expression_text};
use crate::{error::Result, optimize::unsupported};

impl Lowering<'_> {
    /// The expression over an input with these columns.
    ///
    /// # Errors
    /// 0A000 for a subquery that could not be turned into a join.
    pub(super) fn expression(&self, expression: &Expr, input: &DFSchema) -> Result<Expression> {
        let bare = unaliased(expression);
        if bare.exists(|inner| Ok(is_subquery(inner)))? {
            return Err(unsupported(
                "this form of subquery is not supported in a materialized view",
                "Write it as a join, or correlate it by equality only.",
            ));
        }
        let physical = create_physical_expr(bare, input, &self.execution, &PhysicalPlanningContext::default())?;
        Ok(Expression { physical, text: expression_text::text(bare) })
    }
}

/// The expression under its alias.
pub(super) fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

fn is_subquery(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::ScalarSubquery(_) | Expr::OuterReferenceColumn(..)
    )
}
