//! Which subqueries DataFusion makes joins of by itself.

use std::{collections::BTreeSet, sync::Arc};

use datafusion::{
    common::{
        Column, DFSchema, JoinType, Result, ScalarValue, Spans,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        BinaryExpr, Expr, Filter, Limit, LogicalPlan, Operator,
        expr::{Exists, InSubquery},
        logical_plan::Subquery,
        utils::split_conjunction,
    },
};

use super::expression::as_outer;
use crate::{logical::subquery::subquery_of, optimize::limits_by_columns};

/// Whether an expression holds a subquery that has to be unnested here.
pub(super) fn is_general(expression: &Expr, limits: bool) -> bool {
    expression.exists(|inner| Ok(is_general_subquery(inner, limits))).unwrap_or(false)
}

/// Whether an expression is such a subquery.
pub(super) fn is_general_subquery(expression: &Expr, limits: bool) -> bool {
    match expression {
        Expr::ScalarSubquery(subquery) => {
            is_correlated(&subquery.subquery)
                && !correlates_by_columns(&subquery.subquery, true)
                && (limits || !limits_by_columns(subquery))
        }
        Expr::Exists(Exists { subquery, .. }) => {
            is_correlated(&subquery.subquery) && !correlates_by_columns(&without_limit(&subquery.subquery), false)
        }
        Expr::InSubquery(InSubquery { subquery, .. }) => {
            is_correlated(&subquery.subquery) && !correlates_by_columns(&subquery.subquery, false)
        }
        _ => false,
    }
}

/// Whether the right side of a lateral join is one.
pub(super) fn is_general_lateral(subquery: &Subquery, kind: JoinType, limits: bool) -> bool {
    let plain = kind == JoinType::Inner && correlates_by_columns(&subquery.subquery, true);
    is_correlated(&subquery.subquery) && !plain && (limits || !limits_by_columns(subquery))
}

/// The plan without the LIMIT and ORDER BY on top of it, which leave at least one row if there is one.
pub(super) fn without_limit(plan: &LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Limit(Limit { skip: None, fetch: Some(fetch), input }) if matches!(fetch.as_ref(), Expr::Literal(ScalarValue::Int64(Some(rows)), _) if *rows > 0) => {
            without_limit(input)
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => without_limit(&sort.input),
        other => other.clone(),
    }
}

/// Whether a plan mentions columns of a query round about.
pub(super) fn is_correlated(plan: &LogicalPlan) -> bool {
    !outer_columns(plan).is_empty()
}

/// The columns of a query round about that a plan mentions. Those that its own subqueries find within it are not among them.
pub(super) fn outer_columns(plan: &LogicalPlan) -> Vec<Column> {
    let mut found = Vec::new();
    let mut add = |column: &Column| {
        if !found.contains(column) {
            found.push(column.clone());
        }
    };
    let inputs = plan.inputs();
    let is_own = |column: &Column, inputs: &[&LogicalPlan]| inputs.iter().any(|input| input.schema().has_column(column));
    // Looking at expressions cannot fail.
    let _ = plan.apply_expressions(|expression| {
        expression.apply(|part| {
            if let Expr::OuterReferenceColumn(_, column) = part {
                add(column);
            }
            if let Some(subquery) = subquery_of(part) {
                outer_columns(&subquery.subquery).iter().filter(|column| !is_own(column, &inputs)).for_each(&mut add);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    });
    for (index, input) in inputs.iter().enumerate() {
        // The right side of a lateral join mentions columns of the left one.
        let beside = if matches!(plan, LogicalPlan::Join(_)) { &inputs[..index] } else { &[] };
        outer_columns(input).iter().filter(|column| !is_own(column, beside)).for_each(&mut add);
    }
    found
}

/// Whether all correlation of a plan is equality of one of its columns with an outer one, in one filter below nothing but projections (and, if
/// allowed, one aggregation to a single row).
fn correlates_by_columns(plan: &LogicalPlan, aggregates: bool) -> bool {
    equality_only(plan, aggregates) && !names_clash(plan)
}

fn equality_only(plan: &LogicalPlan, aggregates: bool) -> bool {
    let own = |plan: &LogicalPlan| plan.contains_outer_reference() || has_correlated_subquery(plan);
    match plan {
        LogicalPlan::Projection(projection) => !own(plan) && equality_only(&projection.input, aggregates),
        LogicalPlan::SubqueryAlias(alias) => equality_only(&alias.input, aggregates),
        LogicalPlan::Aggregate(aggregate) if aggregates && aggregate.group_expr.is_empty() => {
            !own(plan) && equality_only(&aggregate.input, false)
        }
        LogicalPlan::Filter(filter) if !has_correlated_subquery(plan) => {
            let mut equal = split_conjunction(&filter.predicate).into_iter().filter(|conjunct| conjunct.contains_outer());
            equal.all(is_equality_of_columns) && (!is_correlated(&filter.input) || equality_only(&filter.input, aggregates))
        }
        other => !is_correlated(other),
    }
}

/// Whether a column by which a plan correlates has the name of another such column or of another output. DataFusion puts them side by side
/// under one table.
fn names_clash(plan: &LogicalPlan) -> bool {
    let (mut keys, mut outputs) = (BTreeSet::new(), BTreeSet::new());
    let found = plan.apply(|node| {
        match node {
            LogicalPlan::Filter(filter) => {
                let outer = split_conjunction(&filter.predicate).into_iter().filter(|conjunct| conjunct.contains_outer());
                keys.extend(outer.flat_map(Expr::column_refs).cloned());
            }
            LogicalPlan::Projection(projection) => outputs.extend(projection.schema.columns()),
            _ => {}
        }
        Ok(if is_correlated(node) { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Jump })
    });
    let clashes = |key: &Column| keys.iter().chain(&outputs).any(|other| other.name == key.name && other != key);
    found.is_err() || keys.iter().any(clashes)
}

/// Whether expressions of a node hold subqueries that mention more than the node's own columns; any correlated one counts.
fn has_correlated_subquery(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let _ = plan.apply_expressions(|expression| {
        expression.apply(|inner| {
            found |= subquery_of(inner).is_some_and(|subquery| is_correlated(&subquery.subquery));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    });
    found
}

fn is_equality_of_columns(conjunct: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = conjunct else { return false };
    matches!(
        (left.as_ref(), right.as_ref()),
        (Expr::Column(_), Expr::OuterReferenceColumn(..)) | (Expr::OuterReferenceColumn(..), Expr::Column(_))
    )
}

/// `value IN (rows)` as rows that equal the value.
pub(super) fn with_equality(value: &Expr, subquery: &Subquery, outer: &DFSchema) -> Result<Subquery> {
    let column = Expr::Column(Column::from(subquery.subquery.schema().qualified_field(0)));
    let equal = column.eq(as_outer(value, outer)?);
    let plan = LogicalPlan::Filter(Filter::try_new(equal, Arc::clone(&subquery.subquery))?);
    Ok(Subquery { outer_ref_columns: plan.all_out_ref_exprs(), subquery: Arc::new(plan), spans: Spans::new() })
}
