//! Expressions that a plan has several times, though they are written once.

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{Expr, LogicalPlan},
};

use super::{binder::Binder, typed::Typed};
use crate::{
    error::{PlanError, Result, sqlstate},
    logical::subquery::subquery_of,
};

/// Most parts of expressions that are there once more than they are written.
const MAX_REPEATED: usize = 50_000;

impl Binder<'_> {
    /// The value once more, for what needs it twice (COALESCE is a CASE). Those in each other would make an expression of any size of a short text.
    ///
    /// # Errors
    /// 54001 if the plan has too much of that.
    pub(crate) fn repeat(&self, value: &Typed) -> Result<Typed> {
        if !matches!(value.expr, Expr::Column(_) | Expr::Literal(..) | Expr::Placeholder(_) | Expr::OuterReferenceColumn(..)) {
            let mut left = MAX_REPEATED.saturating_sub(self.repeated.get());
            count(&value.expr, &mut left);
            self.repeated.set(MAX_REPEATED - left);
            if left == 0 {
                return Err(PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex")
                    .with_detail(format!("Its plan would repeat more than {MAX_REPEATED} parts of expressions."))
                    .with_hint(
                        "COALESCE, NULLIF, GREATEST, LEAST, BETWEEN and CASE repeat an argument. Give the inner ones a name in a subquery.",
                    ));
            }
        }
        Ok(value.clone())
    }
}

/// Takes the parts of an expression from `left`, those of its subqueries included, and stops at none.
fn count(expr: &Expr, left: &mut usize) {
    // Counting itself cannot fail.
    let _ = expr.apply(|part| {
        *left = left.saturating_sub(1);
        if let Some(subquery) = subquery_of(part) {
            count_plan(&subquery.subquery, left);
        }
        Ok(next(*left))
    });
}

fn count_plan(plan: &LogicalPlan, left: &mut usize) {
    let _ = plan.apply(|node| {
        *left = left.saturating_sub(1);
        let _ = node.apply_expressions(|expr| {
            count(expr, left);
            Ok(next(*left))
        });
        Ok(next(*left))
    });
}

fn next(left: usize) -> TreeNodeRecursion {
    if left == 0 { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue }
}
