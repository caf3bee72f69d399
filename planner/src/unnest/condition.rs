//! EXISTS over a filter that is all that mentions the outer query: the filter's condition joins, and no domain is needed.

use std::sync::Arc;

use datafusion::{
    common::{
        Column, Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, lit,
        utils::{conjunction, split_conjunction},
    },
};

use super::shape::is_correlated;
use crate::logical::subquery::subquery_of;

/// A plan that mentions nothing from round about, and the conditions on its rows that do.
struct Conditional {
    rows: LogicalPlan,
    conditions: Vec<Expr>,
}

/// The outer rows for which the subquery has a row (a semi join), or has none (an anti join). `None` if the subquery is more than a filter. The
/// columns of the inner side get names with `number`.
pub(super) fn joined_by_condition(
    outer: &LogicalPlan,
    subquery: &LogicalPlan,
    kind: JoinType,
    number: usize,
) -> Result<Option<LogicalPlan>> {
    let Some(Conditional { rows, conditions }) = conditional(subquery)? else { return Ok(None) };
    let mut inner: Vec<Column> = Vec::new();
    let mut all_known = true;
    let mut named = Vec::with_capacity(conditions.len());
    for condition in conditions {
        let condition = condition.transform_up(|expression| {
            Ok(match expression {
                Expr::Column(column) => {
                    let place = inner.iter().position(|known| *known == column).unwrap_or_else(|| {
                        inner.push(column);
                        inner.len() - 1
                    });
                    Transformed::yes(Expr::Column(Column::new_unqualified(name(number, place))))
                }
                // Of a level further out, if it is not there.
                Expr::OuterReferenceColumn(_, column) => {
                    all_known &= outer.schema().has_column(&column);
                    Transformed::yes(Expr::Column(column))
                }
                other => Transformed::no(other),
            })
        })?;
        named.push(condition.data);
    }
    if !all_known {
        return Ok(None);
    }
    let mut outputs: Vec<Expr> =
        inner.into_iter().enumerate().map(|(place, column)| Expr::Column(column).alias(name(number, place))).collect();
    if outputs.is_empty() {
        outputs.push(lit(true).alias(name(number, 0)));
    }
    let right = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(rows))?);
    LogicalPlanBuilder::from(outer.clone()).join_on(right, kind, named)?.build().map(Some)
}

fn name(number: usize, place: usize) -> String {
    format!("__row_{number}_{place}")
}

fn conditional(plan: &LogicalPlan) -> Result<Option<Conditional>> {
    match plan {
        // Which columns it has does not matter to a row's existence.
        LogicalPlan::Projection(projection) if !projection.expr.iter().any(|output| output.contains_outer() || is_more(output)) => {
            conditional(&projection.input)
        }
        LogicalPlan::Filter(filter) => {
            let (conditions, own): (Vec<Expr>, Vec<Expr>) =
                split_conjunction(&filter.predicate).into_iter().cloned().partition(Expr::contains_outer);
            if conditions.iter().any(is_more) || own.iter().any(has_subquery) {
                return Ok(None);
            }
            let mut below = match is_correlated(&filter.input) {
                false => Conditional { rows: filter.input.as_ref().clone(), conditions: Vec::new() },
                true => match filter.input.as_ref() {
                    LogicalPlan::Filter(_) => match conditional(&filter.input)? {
                        Some(below) => below,
                        None => return Ok(None),
                    },
                    _ => return Ok(None),
                },
            };
            if let Some(own) = conjunction(own) {
                below.rows = LogicalPlanBuilder::from(below.rows).filter(own)?.build()?;
            }
            below.conditions.extend(conditions);
            Ok(Some(below))
        }
        _ => Ok(None),
    }
}

/// Whether an expression is more than a condition that can be evaluated for each pair of rows.
fn is_more(expression: &Expr) -> bool {
    expression.is_volatile() || has_subquery(expression)
}

fn has_subquery(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(subquery_of(inner).is_some())).unwrap_or(true)
}
