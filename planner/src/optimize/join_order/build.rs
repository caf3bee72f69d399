//! The plan of an order of joins.

use std::sync::Arc;

use datafusion::{
    common::{JoinType, NullEquality, Result},
    logical_expr::{
        Expr, ExprSchemable, Filter, Join, JoinConstraint, LogicalPlan, Projection,
        utils::{can_hash, conjunction},
    },
};

use super::{
    equality::{has_subquery, sides},
    graph::{Graph, Joint},
    region::{JoinKind, Region},
    relation_set::RelationSet,
    tree::JoinTree,
};

/// The plan of a tree, with the columns of `original`; `None` if the tree does not give its rows. `by_name`: what stands above knows columns by their names,
/// so that they may come in any order, and others with them.
pub(super) fn build(region: &Region, graph: &Graph, tree: &JoinTree, original: &LogicalPlan, by_name: bool) -> Result<Option<LogicalPlan>> {
    let Some((plan, _)) = joined(region, graph, tree)? else { return Ok(None) };
    let wanted: Vec<_> = original.schema().columns();
    if plan.schema().columns() == wanted || by_name && region.columns == wanted {
        return Ok(Some(plan));
    }
    let mut columns: Vec<_> = region.columns.iter().zip(wanted).collect();
    if by_name {
        columns.sort_by_cached_key(|(column, _)| region.owners.get(column));
    }
    let expressions = columns.into_iter().map(|(column, wanted)| {
        let expr = Expr::Column(column.clone());
        if *column == wanted { expr } else { expr.alias_qualified(wanted.relation, wanted.name) }
    });
    Ok(Some(LogicalPlan::Projection(Projection::try_new(expressions.collect(), Arc::new(plan))?)))
}

fn joined(region: &Region, graph: &Graph, tree: &JoinTree) -> Result<Option<(LogicalPlan, RelationSet)>> {
    let (one, two) = match tree {
        JoinTree::Relation(relation) => {
            let Some(known) = region.relations.get(*relation) else { return Ok(None) };
            return Ok(Some((filtered(known.plan.clone(), known.filters.clone())?, RelationSet::one(*relation))));
        }
        JoinTree::Join(left, right) => (joined(region, graph, left)?, joined(region, graph, right)?),
    };
    let (Some((left, left_set)), Some((right, right_set))) = (one, two) else { return Ok(None) };
    let Some(joint) = graph.join(left_set, right_set) else { return Ok(None) };
    let (mut on, mut filter, mut above) = (Vec::new(), Vec::new(), Vec::new());
    for condition in graph.conditions_between(left_set, right_set, &joint) {
        if joint.kind == JoinKind::Inner && has_subquery(&condition) {
            above.push(condition);
        } else if let Some(key) = key(region, &condition, &left, left_set, right_set) {
            on.push(key);
        } else {
            filter.push(condition);
        }
    }
    let (left, right) = (Arc::new(left), Arc::new(right));
    let (constraint, nulls) = (JoinConstraint::On, NullEquality::NullEqualsNothing);
    let join = Join::try_new(left, right, on, conjunction(filter), join_type(&joint), constraint, nulls, false)?;
    Ok(Some((filtered(LogicalPlan::Join(join), above)?, left_set.union(right_set))))
}

fn filtered(plan: LogicalPlan, filters: Vec<Expr>) -> Result<LogicalPlan> {
    match conjunction(filters) {
        Some(predicate) => Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?)),
        None => Ok(plan),
    }
}

/// The condition as a pair of keys, the left side's first.
fn key(region: &Region, condition: &Expr, left: &LogicalPlan, left_set: RelationSet, right_set: RelationSet) -> Option<(Expr, Expr)> {
    let (one, two) = sides(condition)?;
    let of = |expr: &Expr, set: RelationSet| {
        let relations = region.relations_of(expr);
        !relations.is_empty() && relations.is_subset(set)
    };
    let (one, two) = if of(one, left_set) && of(two, right_set) {
        (one, two)
    } else if of(two, left_set) && of(one, right_set) {
        (two, one)
    } else {
        return None;
    };
    let hashes = one.get_type(left.schema().as_ref()).is_ok_and(|data_type| can_hash(&data_type));
    (hashes && !has_subquery(condition)).then(|| (one.clone(), two.clone()))
}

fn join_type(joint: &Joint) -> JoinType {
    match (joint.kind, joint.swapped) {
        (JoinKind::Inner, _) => JoinType::Inner,
        (JoinKind::Full, _) => JoinType::Full,
        (JoinKind::Left, false) => JoinType::Left,
        (JoinKind::Left, true) => JoinType::Right,
        (JoinKind::Semi, false) => JoinType::LeftSemi,
        (JoinKind::Semi, true) => JoinType::RightSemi,
        (JoinKind::Anti, false) => JoinType::LeftAnti,
        (JoinKind::Anti, true) => JoinType::RightAnti,
    }
}
