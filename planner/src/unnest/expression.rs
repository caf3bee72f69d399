//! Expressions on their way between the levels of a query.

use std::sync::Arc;

use datafusion::{
    common::{
        Column, DFSchema, ExprSchema, Result, TableReference,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Expr, LogicalPlan,
        expr::{Exists, InSubquery},
        logical_plan::Subquery,
    },
};

/// The expression under a name, if that is not its own.
pub(super) fn named_as(expression: Expr, (relation, name): (Option<TableReference>, String)) -> Expr {
    if expression.qualified_name() == (relation.clone(), name.clone()) { expression } else { expression.alias_qualified(relation, name) }
}

/// An expression of the outer query as its subquery sees it.
pub(super) fn as_outer(expression: &Expr, outer: &DFSchema) -> Result<Expr> {
    let seen = expression.clone().transform_up(|inner| match inner {
        Expr::Column(column) => {
            let field = Arc::clone(outer.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(seen.data)
}

/// The expression with columns of the domain for the outer ones. Subqueries inside of it see those as their outer columns.
pub(super) fn with_domain(expression: Expr, outer: &[Column], keys: &[Column]) -> Result<Expr> {
    let replaced = expression.transform_up(|inner| {
        Ok(match inner {
            Expr::OuterReferenceColumn(field, column) => match place(&column, outer) {
                Some(index) => Transformed::yes(Expr::Column(keys[index].clone())),
                None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
            },
            Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(renamed_subquery(&subquery, outer, keys)?)),
            Expr::Exists(Exists { subquery, negated }) => {
                Transformed::yes(Expr::Exists(Exists { subquery: renamed_subquery(&subquery, outer, keys)?, negated }))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: renamed_subquery(&subquery, outer, keys)?, negated }))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(replaced.data)
}

fn place(column: &Column, outer: &[Column]) -> Option<usize> {
    outer.iter().position(|other| other == column)
}

/// A subquery whose outer columns have other names.
pub(super) fn renamed_subquery(subquery: &Subquery, outer: &[Column], keys: &[Column]) -> Result<Subquery> {
    let plan = renamed_plan(subquery.subquery.as_ref().clone(), outer, keys)?;
    Ok(refreshed(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
}

/// The subquery with a list of the outer columns that it has now.
fn refreshed(subquery: Subquery) -> Subquery {
    Subquery { outer_ref_columns: subquery.subquery.all_out_ref_exprs(), ..subquery }
}

fn renamed_plan(plan: LogicalPlan, outer: &[Column], keys: &[Column]) -> Result<LogicalPlan> {
    let renamed = plan.transform_up_with_subqueries(|plan| {
        let named = matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_));
        let plan = plan.map_expressions(|expression| {
            let name = expression.qualified_name();
            let renamed = expression.transform_up(|inner| Ok(renamed_reference(inner, outer, keys)))?;
            Ok(if renamed.transformed && named { Transformed::yes(named_as(renamed.data, name)) } else { renamed })
        })?;
        plan.map_data(|plan| match plan {
            LogicalPlan::Subquery(subquery) => Ok(LogicalPlan::Subquery(refreshed(subquery))),
            other => other.recompute_schema(),
        })
    })?;
    Ok(renamed.data)
}

fn renamed_reference(expression: Expr, outer: &[Column], keys: &[Column]) -> Transformed<Expr> {
    match expression {
        Expr::OuterReferenceColumn(field, column) => match place(&column, outer) {
            Some(index) => Transformed::yes(Expr::OuterReferenceColumn(field, keys[index].clone())),
            None => Transformed::no(Expr::OuterReferenceColumn(field, column)),
        },
        // What is inside of them was renamed before.
        Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(refreshed(subquery))),
        Expr::Exists(Exists { subquery, negated }) => Transformed::yes(Expr::Exists(Exists { subquery: refreshed(subquery), negated })),
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: refreshed(subquery), negated }))
        }
        other => Transformed::no(other),
    }
}
