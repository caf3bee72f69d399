//! A correlated subquery with a LIMIT or DISTINCT ON (`LATERAL (SELECT .. WHERE s.k = t.k ORDER BY s.at DESC LIMIT 3)`, and the same as a
//! scalar subquery) is a top-N per value of the correlated columns, and the correlation a filter above it, which can be decorrelated.
//!
//! Only equalities between a column of the subquery and an outer expression partition; anything else below the limit is left as it is, and
//! refused later.

use std::sync::Arc;

use datafusion::{
    common::{
        Column, Result,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        BinaryExpr, Distinct, Expr, Filter, LogicalPlan, Operator, Projection, SortExpr, SubqueryAlias,
        logical_plan::Subquery,
        utils::{conjunction, split_conjunction_owned},
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};
use millpond_engine::graph::RankKind;

use super::limit::{bounds, sorted_below};
use crate::logical::top_n::{TopNBounds, TopNNode};

/// Lifts the correlation out of limits.
#[derive(Debug)]
pub(super) struct CorrelatedLimit;

impl OptimizerRule for CorrelatedLimit {
    fn name(&self) -> &str {
        "correlated_limit"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Subquery(subquery) = &plan {
            return Ok(match rewritten(subquery)? {
                Some(lifted) => Transformed::yes(LogicalPlan::Subquery(lifted)),
                None => Transformed::no(plan),
            });
        }
        plan.map_expressions(|expression| {
            expression.transform_up(|inner| match &inner {
                Expr::ScalarSubquery(subquery) if subquery.subquery.max_rows() == Some(1) => Ok(match rewritten(subquery)? {
                    Some(lifted) => Transformed::yes(Expr::ScalarSubquery(lifted)),
                    None => Transformed::no(inner),
                }),
                _ => Ok(Transformed::no(inner)),
            })
        })
    }
}

/// A plan that has the columns by which it is correlated among its output: `key = outer`.
struct Lifted {
    plan: LogicalPlan,
    keys: Vec<(Column, Expr)>,
}

pub(super) fn rewritten(subquery: &Subquery) -> Result<Option<Subquery>> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(None);
    }
    let columns = subquery.subquery.schema().columns();
    let Some(Lifted { plan, keys }) = lift(subquery.subquery.as_ref())? else { return Ok(None) };
    let correlation = keys.into_iter().map(|(key, outer)| Expr::Column(key).eq(outer));
    let Some(predicate) = conjunction(correlation) else { return Ok(None) };
    let filter = LogicalPlan::Filter(Filter::new(predicate, Arc::new(plan)));
    let output = columns.into_iter().map(Expr::Column).collect();
    let plan = LogicalPlan::Projection(Projection::try_new(output, Arc::new(filter))?);
    Ok(Some(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
}

/// Down to the limit.
fn lift(plan: &LogicalPlan) -> Result<Option<Lifted>> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => carry(plan, lift(plan.inputs()[0])?),
        // A limit that is no constant is refused elsewhere, where that matters.
        LogicalPlan::Limit(limit) => bounds(limit).map_or(Ok(None), |bounds| limited(&limit.input, &bounds)),
        LogicalPlan::Distinct(Distinct::On(distinct)) => {
            let order = distinct.sort_expr.iter().flatten().skip(distinct.on_expr.len()).cloned().collect::<Vec<_>>();
            let bounds = TopNBounds { limit: Some(1), offset: 0, rank: RankKind::RowNumber, rank_field: None };
            let Some(lifted) = uncorrelated(&distinct.input)? else { return Ok(None) };
            let first = ranked(lifted, &distinct.on_expr, &order, &bounds)?;
            project(&distinct.select_expr, first)
        }
        _ => Ok(None),
    }
}

/// From the limit down to the sort, if there is one.
fn limited(plan: &LogicalPlan, bounds: &TopNBounds) -> Result<Option<Lifted>> {
    match plan {
        LogicalPlan::Sort(sort) => match uncorrelated(&sort.input)? {
            Some(lifted) if sort.fetch.is_none() => Ok(Some(ranked(lifted, &[], &sort.expr, bounds)?)),
            _ => Ok(None),
        },
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) if sorted_below(plan) => carry(plan, limited(plan.inputs()[0], bounds)?),
        unsorted => match uncorrelated(unsorted)? {
            Some(lifted) => Ok(Some(ranked(lifted, &[], &[], bounds)?)),
            None => Ok(None),
        },
    }
}

/// From there down to the filter that correlates; all below must not.
fn uncorrelated(plan: &LogicalPlan) -> Result<Option<Lifted>> {
    let filter = match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => return carry(plan, uncorrelated(plan.inputs()[0])?),
        LogicalPlan::Filter(filter) if !is_correlated(&filter.input)? => filter,
        _ => return Ok(None),
    };
    let (mut keys, mut rest) = (Vec::new(), Vec::new());
    for conjunct in split_conjunction_owned(filter.predicate.clone()) {
        if !conjunct.contains_outer() {
            rest.push(conjunct);
        } else if let Some(key) = correlation(&conjunct) {
            keys.push(key);
        } else {
            return Ok(None);
        }
    }
    let plan = match conjunction(rest) {
        Some(predicate) => LogicalPlan::Filter(Filter::new(predicate, Arc::clone(&filter.input))),
        None => filter.input.as_ref().clone(),
    };
    Ok((!keys.is_empty()).then_some(Lifted { plan, keys }))
}

/// `column = outer`, in this order or the other.
fn correlation(conjunct: &Expr) -> Option<(Column, Expr)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = conjunct else { return None };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), outer) | (outer, Expr::Column(column)) if !outer.any_column_refs() => Some((column.clone(), outer.clone())),
        _ => None,
    }
}

fn is_correlated(plan: &LogicalPlan) -> Result<bool> {
    let found = plan.apply_with_subqueries(|node| {
        Ok(if node.contains_outer_reference() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found == TreeNodeRecursion::Stop)
}

/// The node over what became of its input, with the keys among its columns.
fn carry(node: &LogicalPlan, input: Option<Lifted>) -> Result<Option<Lifted>> {
    match (node, input) {
        (LogicalPlan::Projection(projection), Some(lifted)) => project(&projection.expr, lifted),
        (LogicalPlan::SubqueryAlias(alias), Some(Lifted { plan, keys })) => {
            let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?);
            let requalified = |(key, outer): (Column, Expr)| (Column::new(Some(alias.alias.clone()), key.name), outer);
            Ok(Some(Lifted { plan, keys: keys.into_iter().map(requalified).collect() }))
        }
        _ => Ok(None),
    }
}

fn project(expressions: &[Expr], Lifted { plan, keys }: Lifted) -> Result<Option<Lifted>> {
    if expressions.iter().any(Expr::contains_outer) {
        return Ok(None);
    }
    let mut all = expressions.to_vec();
    for (key, _) in &keys {
        if !all.contains(&Expr::Column(key.clone())) {
            all.push(Expr::Column(key.clone()));
        }
    }
    let plan = LogicalPlan::Projection(Projection::try_new(all, Arc::new(plan))?);
    Ok(Some(Lifted { plan, keys }))
}

fn ranked(Lifted { plan, keys }: Lifted, partition: &[Expr], order: &[SortExpr], bounds: &TopNBounds) -> Result<Lifted> {
    let by_key = keys.iter().map(|(key, _)| Expr::Column(key.clone()));
    let partition = by_key.chain(partition.iter().cloned()).collect();
    let plan = TopNNode::try_new(plan, partition, order.to_vec(), bounds.clone())?.into_plan();
    Ok(Lifted { plan, keys })
}
