//! Window functions: the plan that computes them, and the expressions above it in terms of its columns.

use datafusion::{
    common::{
        Column,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlanBuilder},
};

use super::{binder::Binder, select::Parts};
use crate::error::{PlanError, Result};

impl Binder<'_> {
    pub(super) fn windows(&self, parts: &mut Parts) -> Result<()> {
        let mut calls: Vec<Expr> = Vec::new();
        for expr in parts.expressions() {
            expr.apply(|expr| {
                if let Expr::WindowFunction(_) = expr {
                    if !calls.contains(expr) {
                        calls.push(expr.clone());
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        if calls.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = calls.iter().map(|call| call.schema_name().to_string()).collect();
        if (1..names.len()).any(|index| names[..index].contains(&names[index])) {
            return Err(PlanError::unsupported("window functions that differ in casts only are not supported in one SELECT")
                .with_hint("Compute one of them in a subquery."));
        }
        parts.plan = LogicalPlanBuilder::window_plan(std::mem::take(&mut parts.plan), calls.clone())?;
        parts.map(|expr| {
            let replaced = expr.transform_down(|expr| {
                Ok(match calls.iter().position(|call| *call == expr) {
                    Some(index) => {
                        let column = Expr::Column(Column::new_unqualified(&names[index]));
                        Transformed::new(column, true, TreeNodeRecursion::Jump)
                    }
                    None => Transformed::no(expr),
                })
            })?;
            Ok(replaced.data)
        })
    }
}
