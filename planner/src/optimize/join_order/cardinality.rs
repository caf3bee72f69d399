//! How many rows a set of joined relations has. A function of the set, not of the order in which it was joined: the region's tree, without the relations
//! that are not in the set, is estimated from below.
//!
//! A class of equal expressions counts once: of its members in the set, the one with the fewest distinct values is contained in all the others, which each
//! divide the rows by their own number of them. Where that would divide by more than a relation has rows, since it is joined by several columns
//! that belong together, it divides by its rows. An expression of which nothing is known has as many values as the smallest relation of
//! its class has rows: the key that the others refer to.

use std::{cell::RefCell, collections::HashMap};

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::{
    equality::sides,
    graph::Graph,
    region::{JoinKind, Node, Region},
    relation_set::RelationSet,
};
use crate::optimize::{
    estimate::{Estimate, distinct_of, null_share_of},
    selectivity::DEFAULT_DISTINCT,
};

/// Least share of the rows that a semi or anti join keeps.
const LEAST_SHARE: f64 = 0.01;

/// What is expected of a relation.
#[derive(Clone, Debug)]
pub(super) struct RelationRows {
    /// Its rows, before its filters.
    pub(super) base_rows: f64,
    /// Of those that its filters keep.
    pub(super) kept: Estimate,
    /// A hint told how many.
    pub(super) hinted: bool,
}

/// A condition of a binary operator.
enum Matching {
    /// An equality, by the distinct values of its sides.
    Equality(f64, f64),
    /// Anything else: the share of pairs for which it is true.
    Other(f64),
}

/// The region's tree.
enum Shape {
    Relation(usize),
    Block { all: RelationSet, inputs: Vec<Shape> },
    Binary { all: RelationSet, kind: JoinKind, operator: usize, left: Box<Shape>, right: Box<Shape> },
}

/// A member of a class.
#[derive(Clone, Copy)]
struct MemberRows {
    relation: usize,
    distinct: f64,
    null_share: f64,
}

/// The rows of all sets.
pub(super) struct Cardinalities<'a> {
    graph: &'a Graph,
    relations: &'a [RelationRows],
    root: Shape,
    classes: Vec<Vec<MemberRows>>,
    /// Of each condition that no class has.
    shares: Vec<Option<f64>>,
    operators: Vec<Vec<Matching>>,
    known: RefCell<HashMap<RelationSet, f64>>,
}

impl<'a> Cardinalities<'a> {
    /// Of a region's graph. `relations` are in the region's order.
    pub(super) fn new(region: &Region, graph: &'a Graph, relations: &'a [RelationRows]) -> Self {
        let values = Values { region, relations };
        let member = |domain: f64, relation: usize, expr: &Expr| MemberRows {
            relation,
            distinct: values.distinct(expr, relation, domain),
            null_share: null_share_of(expr, &relations[relation].kept, region.relations[relation].plan.schema()),
        };
        let classes = graph.classes.iter().map(|class| {
            let domain = values.domain(class.iter().map(|member| (member.relation, &member.expr)));
            class.iter().map(|one| member(domain, one.relation, &one.expr)).collect()
        });
        let share = |condition: &super::graph::Condition| condition.class.is_none().then(|| values.share(&condition.expr));
        let matching = |condition: &Expr, left: RelationSet| values.matching(condition, left);
        let mut operators = Vec::new();
        let root = shape(&region.root, &mut |left, conditions| {
            operators.push(conditions.iter().map(|condition| matching(condition, left)).collect());
            operators.len() - 1
        });
        Self {
            graph,
            relations,
            root,
            classes: classes.collect(),
            shares: graph.conditions.iter().map(share).collect(),
            operators,
            known: RefCell::default(),
        }
    }

    /// The rows of a set of joined relations, at least one.
    pub(super) fn rows(&self, set: RelationSet) -> f64 {
        if let Some(rows) = self.known.borrow().get(&set) {
            return *rows;
        }
        let rows = self.estimate(&self.root, set).unwrap_or(1.0).max(1.0);
        self.known.borrow_mut().insert(set, rows);
        rows
    }

    /// The rows of it that change: each change of a relation's row changes all that it is joined to.
    pub(super) fn changes(&self, set: RelationSet) -> f64 {
        let rate = |relation: usize| {
            let kept = &self.relations[relation].kept;
            kept.changes / kept.rows.max(1.0)
        };
        self.rows(set) * set.iter().map(rate).sum::<f64>()
    }

    /// Bytes of a row of it.
    pub(super) fn width(&self, set: RelationSet) -> f64 {
        set.iter().map(|relation| self.relations[relation].kept.width()).sum()
    }

    /// What is expected of a relation.
    pub(super) fn relation(&self, relation: usize) -> &RelationRows {
        &self.relations[relation]
    }

    fn estimate(&self, shape: &Shape, set: RelationSet) -> Option<f64> {
        match shape {
            Shape::Relation(relation) => set.contains(*relation).then(|| self.relations[*relation].kept.rows),
            Shape::Block { all, inputs } => {
                let mut rows = None;
                let mut shared = 1.0;
                for input in inputs {
                    if let Some(more) = self.estimate(input, set) {
                        rows = Some(rows.unwrap_or(1.0) * more);
                        shared *= self.factor(input.all().intersection(set));
                    }
                }
                rows.map(|rows| rows * self.factor(all.intersection(set)) / shared)
            }
            Shape::Binary { kind, operator, left, right, .. } => match (self.estimate(left, set), self.estimate(right, set)) {
                (Some(left), Some(right)) => Some(self.binary(*kind, *operator, left, right)),
                (one, two) => one.or(two),
            },
        }
    }

    fn binary(&self, kind: JoinKind, operator: usize, left: f64, right: f64) -> f64 {
        let (mut pairs, mut found) = (left * right, 1.0);
        for matching in &self.operators[operator] {
            match matching {
                Matching::Equality(one, two) => {
                    let (one, two) = (one.min(left).max(1.0), two.min(right).max(1.0));
                    pairs /= one.max(two);
                    found *= (two / one).min(1.0);
                }
                Matching::Other(share) => {
                    pairs *= share;
                    found *= 0.5;
                }
            }
        }
        match kind {
            JoinKind::Inner => pairs,
            JoinKind::Left => pairs.max(left),
            JoinKind::Full => pairs.max(left).max(right),
            JoinKind::Semi => left * f64::clamp(found, LEAST_SHARE, 1.0),
            JoinKind::Anti => left * f64::clamp(1.0 - found, LEAST_SHARE, 1.0),
        }
    }

    /// What all conditions within a set keep of the product of its relations.
    fn factor(&self, set: RelationSet) -> f64 {
        let mut factor = 1.0;
        for (condition, share) in self.graph.conditions.iter().zip(&self.shares) {
            if let Some(share) = share
                && condition.tes.is_subset(set)
            {
                factor *= share;
            }
        }
        let mut divided: Vec<f64> = vec![1.0; self.relations.len()];
        for class in &self.classes {
            let mut members: Vec<MemberRows> = Vec::new();
            for member in class.iter().filter(|member| set.contains(member.relation)) {
                if members.iter().all(|known| known.relation != member.relation) {
                    members.push(*member);
                }
            }
            if members.len() < 2 {
                continue;
            }
            // Of equally many values those of the largest relation are contained in the others'.
            let base = |relation: usize| self.relations[relation].base_rows;
            members.sort_by(|one, two| {
                one.distinct
                    .total_cmp(&two.distinct)
                    .then(base(two.relation).total_cmp(&base(one.relation)))
                    .then(one.relation.cmp(&two.relation))
            });
            factor *= members.iter().map(|member| 1.0 - member.null_share).product::<f64>();
            for member in &members[1..] {
                factor /= member.distinct;
                divided[member.relation] *= member.distinct;
            }
        }
        for relation in set.iter() {
            let most = self.relations[relation].base_rows.max(1.0);
            if divided[relation] > most {
                factor *= divided[relation] / most;
            }
        }
        factor
    }
}

impl Shape {
    fn all(&self) -> RelationSet {
        match self {
            Self::Relation(relation) => RelationSet::one(*relation),
            Self::Block { all, .. } | Self::Binary { all, .. } => *all,
        }
    }
}

/// The tree; operators are numbered from below as [`Graph::new`] does it.
fn shape(node: &Node, number: &mut impl FnMut(RelationSet, &[Expr]) -> usize) -> Shape {
    match node {
        Node::Relation(relation) => Shape::Relation(*relation),
        Node::Block { inputs, .. } => {
            Shape::Block { all: node.relations(), inputs: inputs.iter().map(|input| shape(input, number)).collect() }
        }
        Node::Binary { kind, left, right, conditions } => {
            let (one, two) = (Box::new(shape(left, number)), Box::new(shape(right, number)));
            Shape::Binary { all: node.relations(), kind: *kind, operator: number(left.relations(), conditions), left: one, right: two }
        }
    }
}

/// What is known of the values of expressions.
struct Values<'a> {
    region: &'a Region,
    relations: &'a [RelationRows],
}

impl Values<'_> {
    fn known(&self, expr: &Expr, relation: usize) -> Option<f64> {
        distinct_of(expr, &self.relations[relation].kept, self.region.relations[relation].plan.schema())
    }

    /// The values that equal expressions are taken from.
    fn domain<'e>(&self, members: impl Iterator<Item = (usize, &'e Expr)>) -> f64 {
        let (mut known, mut fewest): (f64, f64) = (0.0, f64::INFINITY);
        for (relation, expr) in members {
            known = known.max(self.known(expr, relation).unwrap_or(0.0));
            fewest = fewest.min(self.relations[relation].base_rows);
        }
        if known > 0.0 { known } else { fewest.max(1.0) }
    }

    fn distinct(&self, expr: &Expr, relation: usize, domain: f64) -> f64 {
        let rows = &self.relations[relation];
        self.known(expr, relation).unwrap_or_else(|| domain.min(rows.base_rows)).min(rows.kept.rows).max(1.0)
    }

    fn alone(&self, expr: &Expr) -> Option<usize> {
        let relations = self.region.relations_of(expr);
        relations.lowest().filter(|_| relations.len() == 1)
    }

    /// The distinct values of both sides of an equality of two relations.
    fn equality(&self, condition: &Expr) -> Option<((usize, f64), (usize, f64))> {
        let (left, right) = sides(condition)?;
        let (one, two) = (self.alone(left)?, self.alone(right)?);
        let domain = self.domain([(one, left), (two, right)].into_iter());
        (one != two).then(|| ((one, self.distinct(left, one, domain)), (two, self.distinct(right, two, domain))))
    }

    /// The share of pairs for which a condition is true.
    fn share(&self, condition: &Expr) -> f64 {
        if let Some(((_, one), (_, two))) = self.equality(condition) {
            return 1.0 / one.max(two);
        }
        match condition {
            Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }) => 1.0 / DEFAULT_DISTINCT,
            Expr::BinaryExpr(BinaryExpr { op: Operator::NotEq, .. }) => 1.0 - 1.0 / DEFAULT_DISTINCT,
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => (self.share(left) + self.share(right)).min(1.0),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => self.share(left) * self.share(right),
            _ => 1.0 / 3.0,
        }
    }

    fn matching(&self, condition: &Expr, left: RelationSet) -> Matching {
        match self.equality(condition) {
            Some(((one, of_one), (_, of_two))) if left.contains(one) => Matching::Equality(of_one, of_two),
            Some(((_, of_one), (two, of_two))) if left.contains(two) => Matching::Equality(of_two, of_one),
            _ => Matching::Other(self.share(condition)),
        }
    }
}
