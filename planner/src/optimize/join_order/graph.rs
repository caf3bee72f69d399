//! Which orders of a region's joins give the same rows: the conflict rules of Moerkotte, Fender and Eich ("On the correct and complete enumeration of the
//! core search space", SIGMOD 2013), their detector CD-C.
//!
//! Every condition of a block and every binary operator becomes an operator that has to be applied exactly once, at the first join that has all relations
//! of its *total eligibility set* (TES). The set starts as the relations that its conditions read, and grows where it could not pass another operator:
//! for each operator below it a rule `if -> then` is kept wherever one of the three identities fails (associativity, left and right
//! asymmetric commutativity), saying that who has any relation of `if` must have all of `then`. A TES of more than two relations is a hyperedge.
//!
//! Blocks are n-ary here, which no rule can tell apart from any binary order of them: inner joins conflict with nothing but what stands over them on the
//! other side of an outer, semi or anti join, and there the whole block must be complete.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator, expr::Cast};

use super::{
    equality::{Class, has_subquery, sides},
    region::{JoinKind, Node, Region},
    relation_set::RelationSet,
};

/// Who has a relation of the first set must have all of the second.
type Rule = (RelationSet, RelationSet);

/// A condition of a block.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) expr: Expr,
    /// Its TES, cut by the inputs of its block: each part comes from one side.
    parts: Vec<RelationSet>,
    pub(super) tes: RelationSet,
    rules: Vec<Rule>,
    /// The class it follows from, and the places of its members there.
    pub(super) class: Option<(usize, usize, usize)>,
    /// Hashing can find its matches.
    pub(super) is_equality: bool,
}

/// A join that is no inner one.
#[derive(Clone, Debug)]
pub(super) struct BinaryJoin {
    pub(super) kind: JoinKind,
    pub(super) conditions: Vec<Expr>,
    left: RelationSet,
    right: RelationSet,
    rules: Vec<Rule>,
    pub(super) is_equality: bool,
}

/// How two sets of relations are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Joint {
    pub(super) kind: JoinKind,
    /// The operator, for kinds that are not inner.
    pub(super) operator: Option<usize>,
    /// The second set is the operator's left side.
    pub(super) swapped: bool,
    /// Hashing can find matches.
    pub(super) is_equality: bool,
    /// There is no condition.
    pub(super) is_cross: bool,
}

/// A join graph.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) relations: usize,
    pub(super) conditions: Vec<Condition>,
    pub(super) operators: Vec<BinaryJoin>,
    pub(super) classes: Vec<Class>,
    /// Inputs of blocks that no condition connects.
    crosses: Vec<(RelationSet, RelationSet)>,
    /// What an enumeration goes along.
    pub(super) edges: Vec<(RelationSet, RelationSet)>,
    /// Numbers of the blocks' conditions and of the operators, in the order of [`Graph::walk`].
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Block {
    inputs: Vec<RelationSet>,
    rules: Vec<Rule>,
}

/// An operator below another one.
#[derive(Clone, Copy)]
enum Below {
    /// A block of inner joins.
    Block(RelationSet),
    Binary(usize),
}

/// What is under a node.
struct Shape {
    all: RelationSet,
    visible: RelationSet,
    below: Vec<Below>,
}

/// All of a binary operator before its rules are folded into its TES.
struct Sides {
    kind: JoinKind,
    left: RelationSet,
    right: RelationSet,
    free: RelationSet,
}

impl Graph {
    /// The graph of a region whose equalities are in `classes`.
    pub(super) fn new(region: &Region, classes: Vec<Class>) -> Self {
        let mut building = Building {
            region,
            sides: Vec::new(),
            graph: Self {
                relations: region.relations.len(),
                conditions: Vec::new(),
                operators: Vec::new(),
                classes,
                crosses: Vec::new(),
                edges: Vec::new(),
                blocks: Vec::new(),
            },
        };
        building.walk(&region.root);
        building.pair_classes();
        building.connect();
        building.graph
    }

    /// How two disjoint sets may be joined; `None` if they may not be.
    pub(super) fn join(&self, one: RelationSet, two: RelationSet) -> Option<Joint> {
        let all = one.union(two);
        let becomes_complete = |tes: RelationSet| tes.is_subset(all) && !tes.is_subset(one) && !tes.is_subset(two);
        let obeys = |rules: &[Rule]| rules.iter().all(|(given, wanted)| !all.intersects(*given) || wanted.is_subset(all));
        let mut joint: Option<Joint> = None;
        for (number, operator) in self.operators.iter().enumerate() {
            if !becomes_complete(operator.left.union(operator.right)) {
                continue;
            }
            let swapped = !(operator.left.is_subset(one) && operator.right.is_subset(two));
            if swapped && !(operator.left.is_subset(two) && operator.right.is_subset(one)) {
                return None;
            }
            if joint.is_some() || !obeys(&operator.rules) {
                return None;
            }
            let (kind, is_equality) = (operator.kind, operator.is_equality);
            joint = Some(Joint { kind, operator: Some(number), swapped, is_equality, is_cross: operator.conditions.is_empty() });
        }
        let binary = joint.is_some();
        for condition in self.conditions.iter().filter(|condition| becomes_complete(condition.tes)) {
            let whole = condition.parts.iter().all(|part| part.is_subset(one) || part.is_subset(two));
            if binary || !whole || !obeys(&condition.rules) {
                return None;
            }
            let is_equality = condition.is_equality || joint.is_some_and(|joint| joint.is_equality);
            joint = Some(Joint { kind: JoinKind::Inner, operator: None, swapped: false, is_equality, is_cross: false });
        }
        if joint.is_none() && self.crosses.iter().any(|(left, right)| apart(*left, *right, one, two)) {
            return Some(Joint { kind: JoinKind::Inner, operator: None, swapped: false, is_equality: false, is_cross: true });
        }
        joint
    }

    /// The conditions under which two sets are joined, by [`Graph::join`]. Of a class one pair is enough, the first.
    pub(super) fn conditions_between(&self, one: RelationSet, two: RelationSet, joint: &Joint) -> Vec<Expr> {
        if let Some(operator) = joint.operator {
            return self.operators[operator].conditions.clone();
        }
        let all = one.union(two);
        let mut classes = Vec::new();
        let complete =
            |condition: &&Condition| condition.tes.is_subset(all) && !condition.tes.is_subset(one) && !condition.tes.is_subset(two);
        let first = |condition: &&Condition| match condition.class {
            Some((class, ..)) if classes.contains(&class) => false,
            Some((class, ..)) => {
                classes.push(class);
                true
            }
            None => true,
        };
        self.conditions.iter().filter(complete).filter(first).map(|condition| condition.expr.clone()).collect()
    }
}

fn apart(left: RelationSet, right: RelationSet, one: RelationSet, two: RelationSet) -> bool {
    left.is_subset(one) && right.is_subset(two) || left.is_subset(two) && right.is_subset(one)
}

struct Building<'a> {
    region: &'a Region,
    sides: Vec<Sides>,
    graph: Graph,
}

impl Building<'_> {
    fn walk(&mut self, node: &Node) -> Shape {
        match node {
            Node::Relation(relation) => {
                let all = RelationSet::one(*relation);
                Shape { all, visible: all, below: Vec::new() }
            }
            Node::Block { inputs, conditions } => self.block(inputs, conditions),
            Node::Binary { kind, left, right, conditions } => self.binary(*kind, left, right, conditions),
        }
    }

    fn block(&mut self, inputs: &[Node], conditions: &[Expr]) -> Shape {
        let shapes: Vec<Shape> = inputs.iter().map(|input| self.walk(input)).collect();
        let below: Vec<Below> = shapes.iter().flat_map(|shape| shape.below.iter().copied()).collect();
        let rules: Vec<Rule> = below.iter().filter_map(|below| self.under_inner(*below)).collect();
        let block = Block { inputs: shapes.iter().map(|shape| shape.all).collect(), rules };
        for condition in conditions {
            let is_equality = self.is_equality_over(condition, &block.inputs);
            let condition = self.condition(condition.clone(), &block, None, is_equality);
            self.graph.conditions.push(condition);
        }
        self.graph.blocks.push(block);
        let all = shapes.iter().fold(RelationSet::EMPTY, |set, shape| set.union(shape.all));
        let visible = shapes.iter().fold(RelationSet::EMPTY, |set, shape| set.union(shape.visible));
        Shape { all, visible, below: below.into_iter().chain([Below::Block(all)]).collect() }
    }

    fn condition(&self, expr: Expr, block: &Block, class: Option<(usize, usize, usize)>, is_equality: bool) -> Condition {
        let (tes, rules) = closed(self.region.relations_of(&expr), block.rules.clone());
        let parts = block.inputs.iter().map(|input| input.intersection(tes)).filter(|part| !part.is_empty()).collect();
        Condition { expr, parts, tes, rules, class, is_equality }
    }

    /// Whether both sides of an equality come from different inputs.
    fn is_equality_over(&self, condition: &Expr, inputs: &[RelationSet]) -> bool {
        let Some((left, right)) = sides(condition) else { return false };
        let (left, right) = (self.region.relations_of(left), self.region.relations_of(right));
        let within = |relations: RelationSet| !relations.is_empty() && inputs.iter().any(|input| relations.is_subset(*input));
        !has_subquery(condition) && within(left) && within(right) && !left.intersects(right)
    }

    /// What an inner join demands because of an operator below it.
    fn under_inner(&self, below: Below) -> Option<Rule> {
        let Below::Binary(operator) = below else { return None };
        let below = &self.sides[operator];
        Some(if below.kind == JoinKind::Full { below.whole() } else { (below.right, below.free_of(below.left)) })
    }

    fn binary(&mut self, kind: JoinKind, left: &Node, right: &Node, conditions: &[Expr]) -> Shape {
        let (left, right) = (self.walk(left), self.walk(right));
        let free = conditions.iter().fold(RelationSet::EMPTY, |set, condition| set.union(self.region.relations_of(condition)));
        let mut rules = Vec::new();
        for below in &left.below {
            rules.extend(self.under_left(kind, conditions, *below));
        }
        for below in &right.below {
            rules.extend(self.under_right(kind, *below));
        }
        let mut eligible = free;
        // A condition that does not read a side, or none at all, waits for the whole side.
        for side in [&left, &right] {
            if kind == JoinKind::Full || !free.intersects(side.visible) {
                eligible = eligible.union(side.all);
            }
        }
        let (tes, rules) = closed(eligible, rules);
        let is_equality = conditions.iter().any(|condition| self.is_equality_over(condition, &[left.all, right.all]));
        self.graph.operators.push(BinaryJoin {
            kind,
            conditions: conditions.to_vec(),
            left: tes.intersection(left.all),
            right: tes.intersection(right.all),
            rules,
            is_equality,
        });
        self.sides.push(Sides { kind, left: left.all, right: right.all, free });
        let visible = match kind {
            JoinKind::Semi | JoinKind::Anti => left.visible,
            JoinKind::Inner | JoinKind::Left | JoinKind::Full => left.visible.union(right.visible),
        };
        let below = left.below.into_iter().chain(right.below).chain([Below::Binary(self.sides.len() - 1)]).collect();
        Shape { all: left.all.union(right.all), visible, below }
    }

    /// What an operator demands because of another one on its left side.
    fn under_left(&self, kind: JoinKind, conditions: &[Expr], below: Below) -> Vec<Rule> {
        let Below::Binary(operator) = below else { return Vec::new() };
        let below = &self.sides[operator];
        match (below.kind, kind) {
            (JoinKind::Full, _) => vec![below.whole()],
            // (a left join b) left join c is a left join (b left join c) if no row of NULLs for b finds a c.
            (JoinKind::Left, JoinKind::Left) if self.rejects_nulls(conditions, below.right) => Vec::new(),
            _ => vec![(below.right, below.free_of(below.left))],
        }
    }

    /// What an operator demands because of another one on its right side.
    fn under_right(&self, kind: JoinKind, below: Below) -> Vec<Rule> {
        let operator = match below {
            Below::Block(all) => return vec![(all, all)],
            Below::Binary(operator) => operator,
        };
        let (below, conditions) = (&self.sides[operator], &self.graph.operators[operator].conditions);
        let mut rules = match (kind, below.kind) {
            (_, JoinKind::Full) => return vec![below.whole()],
            (JoinKind::Left, JoinKind::Left) if self.rejects_nulls(conditions, below.left) => Vec::new(),
            _ => vec![(below.left, below.free_of(below.right))],
        };
        rules.push((below.right, below.free_of(below.left)));
        rules
    }

    /// Whether conditions are not true of any row in which all columns of these relations are NULL.
    fn rejects_nulls(&self, conditions: &[Expr], relations: RelationSet) -> bool {
        let is_strict = |expr: &Expr| strict_column(expr).is_some_and(|column| self.region.relations_of(column).is_subset(relations));
        conditions.iter().any(|condition| match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let compares = matches!(op, Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
                compares && (is_strict(left) || is_strict(right))
            }
            Expr::IsNotNull(inner) => is_strict(inner),
            _ => false,
        })
    }

    /// Any two members of a class join their relations.
    fn pair_classes(&mut self) {
        for number in 0..self.graph.classes.len() {
            let class = self.graph.classes[number].clone();
            for (first, one) in class.iter().enumerate() {
                for (second, two) in class.iter().enumerate().skip(first + 1) {
                    let place = |relation: usize, block: &Block| block.inputs.iter().position(|input| input.contains(relation));
                    let meet = |block: &&Block| match (place(one.relation, block), place(two.relation, block)) {
                        (Some(one), Some(two)) => one != two,
                        _ => false,
                    };
                    let Some(block) = self.graph.blocks.iter().find(meet) else { continue };
                    let expr = one.expr.clone().eq(two.expr.clone());
                    let condition = self.condition(expr, block, Some((number, first, second)), true);
                    self.graph.conditions.push(condition);
                }
            }
        }
    }

    /// Makes the edges, and joins without condition between what would stay apart.
    fn connect(&mut self) {
        let graph = &mut self.graph;
        for block in &graph.blocks {
            let mut islands = block.inputs.clone();
            let all = islands.iter().fold(RelationSet::EMPTY, |set, input| set.union(*input));
            // A condition on three inputs finds no match between two of them.
            let connects = |condition: &&Condition| condition.parts.len() == 2 && condition.tes.is_subset(all);
            for condition in graph.conditions.iter().filter(connects) {
                let (joined, apart): (Vec<_>, Vec<_>) = islands.iter().partition(|island| condition.tes.intersects(**island));
                if joined.len() > 1 {
                    islands = apart;
                    islands.push(joined.into_iter().fold(RelationSet::EMPTY, RelationSet::union));
                }
            }
            islands.sort();
            for (at, one) in islands.iter().enumerate() {
                graph.crosses.extend(islands[at + 1..].iter().map(|two| (*one, *two)));
            }
        }
        let mut edges: Vec<(RelationSet, RelationSet)> = graph.operators.iter().map(|operator| (operator.left, operator.right)).collect();
        for condition in &graph.conditions {
            match condition.parts.as_slice() {
                [one, two] => edges.push((*one, *two)),
                parts => edges.extend(parts.iter().map(|part| (*part, condition.tes.without(*part)))),
            }
        }
        edges.extend(&graph.crosses);
        edges.retain(|(left, right)| !left.is_empty() && !right.is_empty());
        edges.sort();
        edges.dedup();
        graph.edges = edges;
    }
}

impl Sides {
    /// Its relations on one side that its conditions read, or the whole side.
    fn free_of(&self, side: RelationSet) -> RelationSet {
        let free = self.free.intersection(side);
        if free.is_empty() { side } else { free }
    }

    fn whole(&self) -> Rule {
        let all = self.left.union(self.right);
        (all, all)
    }
}

/// A set with all that the rules demand of it, and the rules that it does not settle.
fn closed(mut tes: RelationSet, mut rules: Vec<Rule>) -> (RelationSet, Vec<Rule>) {
    loop {
        let before = tes;
        for (given, wanted) in &rules {
            if tes.intersects(*given) {
                tes = tes.union(*wanted);
            }
        }
        if tes == before {
            break;
        }
    }
    rules.retain(|(_, wanted)| !wanted.is_subset(tes));
    rules.sort();
    rules.dedup();
    (tes, rules)
}

/// The column whose NULL makes the expression NULL.
fn strict_column(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Column(_) => Some(expr),
        Expr::Cast(Cast { expr, .. }) => strict_column(expr),
        _ => None,
    }
}
