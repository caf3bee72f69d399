//! `a IS NOT DISTINCT FROM b` as the condition of a join, as two plain equalities: of whether the sides are NULL, and of the sides with some
//! value for NULL.
//!
//! DataFusion would make it a join in which all NULL keys are equal, and later add plain equalities from filters to the keys of that join,
//! for which NULLs are then equal as well.

use std::sync::Arc;

use datafusion::{
    common::{
        DFSchema, Result, ScalarValue,
        tree_node::{Transformed, TreeNode},
    },
    functions::core::expr_fn::coalesce,
    logical_expr::{
        BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator,
        utils::{conjunction, split_conjunction_owned},
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// Gives null-safe conditions plain keys.
#[derive(Debug)]
pub(crate) struct NullSafeKeys;

impl OptimizerRule for NullSafeKeys {
    fn name(&self) -> &str {
        "null_safe_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(Join { filter: Some(filter), .. }) = &plan else { return Ok(Transformed::no(plan)) };
        if !has_null_safe(filter) {
            return Ok(Transformed::no(plan));
        }
        let LogicalPlan::Join(join) = plan else { return Ok(Transformed::no(plan)) };
        let mut conjuncts = Vec::new();
        let mut changed = false;
        for conjunct in join.filter.clone().into_iter().flat_map(split_conjunction_owned) {
            match plain_keys(&conjunct, join.left.schema(), join.right.schema())? {
                Some(keys) => {
                    conjuncts.extend(keys);
                    changed = true;
                }
                None => conjuncts.push(conjunct),
            }
        }
        let plan = LogicalPlan::Join(Join { filter: conjunction(conjuncts), ..join });
        Ok(if changed { Transformed::yes(plan) } else { Transformed::no(plan) })
    }
}

fn has_null_safe(filter: &Expr) -> bool {
    filter.exists(|inner| Ok(matches!(inner, Expr::BinaryExpr(BinaryExpr { op: Operator::IsNotDistinctFrom, .. })))).unwrap_or(false)
}

/// The equalities that stand for a condition between the two sides.
fn plain_keys(conjunct: &Expr, left: &Arc<DFSchema>, right: &Arc<DFSchema>) -> Result<Option<Vec<Expr>>> {
    let Expr::BinaryExpr(BinaryExpr { left: first, op: Operator::IsNotDistinctFrom, right: second }) = conjunct else { return Ok(None) };
    let of = |expr: &Expr, schema: &DFSchema| expr.any_column_refs() && expr.column_refs().iter().all(|column| schema.has_column(column));
    let (first_schema, second_schema) = if of(first, left) && of(second, right) {
        (left, right)
    } else if of(first, right) && of(second, left) {
        (right, left)
    } else {
        return Ok(None);
    };
    let (first_null, second_null) = (first.nullable(first_schema.as_ref())?, second.nullable(second_schema.as_ref())?);
    if !first_null || !second_null {
        // One side without NULLs meets none on the other one either.
        return Ok(Some(vec![first.as_ref().clone().eq(second.as_ref().clone())]));
    }
    let data_type = first.get_type(first_schema.as_ref())?;
    let Ok(instead) = ScalarValue::new_default(&data_type) else { return Ok(None) };
    if second.get_type(second_schema.as_ref())? != data_type {
        return Ok(None);
    }
    let filled = |expr: &Expr| coalesce(vec![expr.clone(), Expr::Literal(instead.clone(), None)]);
    let nulls = first.as_ref().clone().is_null().eq(second.as_ref().clone().is_null());
    Ok(Some(vec![nulls, filled(first).eq(filled(second))]))
}
