//! Classes of expressions that are equal in every row of a block of inner joins: the closure of its equalities. A class says more than the conditions it
//! comes from: any two of its members can join their relations, and what is known of one member holds for all.

use std::collections::BTreeSet;

use datafusion::{
    arrow::datatypes::DataType,
    common::DFSchema,
    logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, expr::Cast, utils::can_hash},
};

use super::{
    region::{JoinKind, Node, Region, Relation},
    relation_set::RelationSet,
};

/// Most members that are paired with each other; what goes beyond keeps the conditions it was written with.
const MAX_MEMBERS: usize = 64;

/// Filters that a class implies, about; further ones are not looked for.
const MAX_IMPLIED: usize = 10_000;

/// An expression over one relation.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) relation: usize,
    pub(super) expr: Expr,
    /// Its text by numbers, which orders members.
    text: String,
    data_type: DataType,
}

/// Expressions that are equal, in the order of their relations.
pub(super) type Class = Vec<Member>;

/// The equality of two expressions, each over one relation, whatever stands round it.
pub(super) fn sides(condition: &Expr) -> Option<(&Expr, &Expr)> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => Some((left, right)),
        _ => None,
    }
}

/// Takes the equalities out of the region's blocks that make classes, and gives each relation what its filters and classes imply. Conditions come into
/// an order that does not depend on how the statement was written.
pub(super) fn close(region: &mut Region) -> Vec<Class> {
    let mut root = std::mem::replace(&mut region.root, Node::Relation(0));
    let mut classes = Vec::new();
    take_equalities(region, &mut root, &mut classes);
    region.root = root;
    for relation in 0..region.relations.len() {
        for filter in region.relations[relation].filters.clone() {
            if let Some((left, right)) = sides(&filter)
                && let (Some(left), Some(right)) = (member(region, left), member(region, right))
                && classes.iter().flatten().any(|member: &Member| member.text == left.text || member.text == right.text)
            {
                join_classes(&mut classes, left, right);
            }
        }
    }
    for class in &mut classes {
        class.sort_by(|one, two| one.text.cmp(&two.text));
    }
    classes.sort_by(|one, two| one[0].text.cmp(&two[0].text));
    imply_filters(region, &classes);
    for at in 0..region.relations.len() {
        sort_filters(region, at);
    }
    classes
}

/// Goes down the tree; a class may have members of several blocks, but an outer join's other side is never one of them.
fn take_equalities(region: &Region, node: &mut Node, classes: &mut Vec<Class>) -> RelationSet {
    match node {
        Node::Relation(_) => RelationSet::EMPTY,
        Node::Binary { kind, left, right, conditions } => {
            let (below_left, below_right) = (take_equalities(region, left, classes), take_equalities(region, right, classes));
            conditions.sort_by_cached_key(|condition| region.text_of(condition));
            match kind {
                JoinKind::Inner => below_left.union(below_right),
                JoinKind::Left => below_left.union(right.relations()),
                JoinKind::Full => left.relations().union(right.relations()),
                JoinKind::Semi | JoinKind::Anti => below_left,
            }
        }
        Node::Block { inputs, conditions } => {
            let nullable = inputs.iter_mut().fold(RelationSet::EMPTY, |set, input| set.union(take_equalities(region, input, classes)));
            conditions.retain(|condition| {
                let Some((left, right)) = sides(condition) else { return true };
                let (Some(left), Some(right)) = (member(region, left), member(region, right)) else { return true };
                let fits = left.relation != right.relation && left.data_type == right.data_type && can_hash(&left.data_type);
                if !fits || nullable.contains(left.relation) || nullable.contains(right.relation) {
                    return true;
                }
                !join_classes(classes, left, right)
            });
            conditions.sort_by_cached_key(|condition| region.text_of(condition));
            conditions.dedup();
            nullable
        }
    }
}

/// An expression that can be a member of a class: one that cannot fail, since what follows from a class is asked of more rows than the statement asks.
fn member(region: &Region, expr: &Expr) -> Option<Member> {
    let relations = region.relations_of(expr);
    let relation = relations.lowest().filter(|_| relations.len() == 1)?;
    let schema = region.relations[relation].plan.schema();
    if !cannot_fail(expr, schema) {
        return None;
    }
    let data_type = expr.get_type(schema.as_ref()).ok()?;
    Some(Member { relation, expr: expr.clone(), text: region.text_of(expr), data_type })
}

fn cannot_fail(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, field }) => {
            cannot_fail(expr, schema) && expr.get_type(schema).is_ok_and(|from| holds_all(field.data_type(), &from))
        }
        _ => false,
    }
}

/// Whether a type has all values of another one.
fn holds_all(to: &DataType, from: &DataType) -> bool {
    use DataType::{Decimal128, Decimal256, Float32, Float64, Int16, Int32, Int64};
    // Digits before and after the point.
    let digits = |data_type: &DataType| match data_type {
        Int16 => Some((5, 0)),
        Int32 => Some((10, 0)),
        Int64 => Some((19, 0)),
        Decimal128(precision, scale) | Decimal256(precision, scale) => Some((i32::from(*precision) - i32::from(*scale), i32::from(*scale))),
        _ => None,
    };
    match (from, to) {
        (from, to) if from == to => true,
        (Int16, Int32 | Int64 | Float32 | Float64) | (Int32, Int64 | Float64) | (Float32, Float64) => true,
        (from, Decimal128(..) | Decimal256(..)) => match (digits(from), digits(to)) {
            (Some((whole, fraction)), Some((most, finest))) => whole <= most && fraction <= finest,
            _ => false,
        },
        _ => false,
    }
}

/// Whether an expression has a query inside.
pub(super) fn has_subquery(expr: &Expr) -> bool {
    let is_query = |inner: &Expr| matches!(inner, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_));
    expr_exists(expr, is_query)
}

fn expr_exists(expr: &Expr, test: impl Fn(&Expr) -> bool) -> bool {
    use datafusion::common::tree_node::TreeNode;
    expr.exists(|inner| Ok(test(inner))).unwrap_or(true)
}

/// Makes two members equal; false if their class would be too large.
fn join_classes(classes: &mut Vec<Class>, left: Member, right: Member) -> bool {
    let find = |classes: &[Class], wanted: &Member| classes.iter().position(|class| class.iter().any(|known| known.text == wanted.text));
    let (one, two) = (find(classes, &left), find(classes, &right));
    let size = |class: Option<usize>| class.map_or(1, |at| classes[at].len());
    if one != two && size(one) + size(two) > MAX_MEMBERS {
        return false;
    }
    match (one, two) {
        (None, None) if left.text == right.text => classes.push(vec![left]),
        (None, None) => classes.push(vec![left, right]),
        (Some(at), None) => classes[at].push(right),
        (None, Some(at)) => classes[at].push(left),
        (Some(one), Some(two)) if one == two => {}
        (Some(one), Some(two)) => {
            let moved = classes.remove(one.max(two));
            classes[one.min(two)].extend(moved);
        }
    }
    true
}

/// What a filter says of one member is said of the others, and members of one relation are equal.
fn imply_filters(region: &mut Region, classes: &[Class]) {
    for class in classes {
        let mut implied: Vec<(usize, Expr)> = Vec::new();
        for (at, one) in class.iter().enumerate() {
            let same = class[at + 1..].iter().find(|two| two.relation == one.relation);
            implied.extend(same.map(|two| (one.relation, one.expr.clone().eq(two.expr.clone()))));
        }
        // The equalities above are what is left of conditions; the rest is only good to know.
        for source in class {
            for filter in &region.relations[source.relation].filters {
                let Some(rewrite) = about(filter, &source.expr) else { continue };
                if implied.len() < MAX_IMPLIED {
                    implied.extend(class.iter().map(|target| (target.relation, rewrite(&target.expr))));
                }
            }
        }
        let texts = |relation: &Relation| relation.filters.iter().map(|filter| region.text_of(filter)).collect();
        let mut known: Vec<BTreeSet<String>> = region.relations.iter().map(texts).collect();
        for (relation, filter) in implied {
            let text = region.text_of(&filter);
            let flipped = sides(&filter).map(|(left, right)| region.text_of(&right.clone().eq(left.clone())));
            if flipped.is_none_or(|flipped| !known[relation].contains(&flipped)) && known[relation].insert(text) {
                region.relations[relation].filters.push(filter);
            }
        }
    }
}

type Rewrite<'a> = Box<dyn Fn(&Expr) -> Expr + 'a>;

/// The comparison of an expression with constants, for any other expression in its place.
fn about<'a>(filter: &'a Expr, expr: &Expr) -> Option<Rewrite<'a>> {
    let constant = |expr: &Expr| matches!(expr, Expr::Literal(..));
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            let compare = move |left: &Expr, right: &Expr| {
                Expr::BinaryExpr(BinaryExpr { left: Box::new(left.clone()), op: *op, right: Box::new(right.clone()) })
            };
            if left.as_ref() == expr && constant(right) {
                return Some(Box::new(move |other| compare(other, right)));
            }
            if right.as_ref() == expr && constant(left) {
                return Some(Box::new(move |other| compare(left, other)));
            }
            None
        }
        Expr::InList(list) if !list.negated && list.expr.as_ref() == expr && list.list.iter().all(constant) => {
            Some(Box::new(move |other| other.clone().in_list(list.list.clone(), false)))
        }
        _ => None,
    }
}

fn is_comparison(op: Operator) -> bool {
    matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

/// Comparisons of plain columns with constants, which cannot fail, come first and in the order of their text; the rest stays in the order it was
/// written in, which may be what keeps it from failing.
fn sort_filters(region: &mut Region, at: usize) {
    let simple = |filter: &Expr| match filter {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let plain = |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::Literal(..));
            is_comparison(*op) && plain(left) && plain(right)
        }
        _ => false,
    };
    let filters = std::mem::take(&mut region.relations[at].filters);
    let (mut first, rest): (Vec<Expr>, Vec<Expr>) = filters.into_iter().partition(simple);
    first.sort_by_cached_key(|filter| region.text_of(filter));
    first.dedup();
    first.extend(rest);
    region.relations[at].filters = first;
}
