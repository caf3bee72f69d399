//! What may be ordered anew: joins that stand directly on joins, or on filters and renaming projections over joins. Everything below them is a
//! relation of the region, whatever it does inside.
//!
//! A region is a tree of blocks of inner joins, whose inputs have no order, and of binary operators that have one. Its conditions are over the columns of
//! its relations. A condition stands at the lowest block that has all its relations; one over a single relation is that relation's filter.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::{
    common::{
        Column, DFSchema, JoinType, NullEquality, Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Distinct, Expr, Filter, Join, LogicalPlan, Projection, utils::split_conjunction_owned},
};

use super::relation_set::RelationSet;
use crate::optimize::{estimate::unfiltered, statistics::keys};

/// A binary operator that is no inner join. What stands on the right in SQL's right joins is on the left here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinKind {
    Inner,
    Left,
    Full,
    Semi,
    Anti,
}

/// A relation of a region.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    /// Its plan without its outermost filters.
    pub(super) plan: LogicalPlan,
    /// Conditions on it alone.
    pub(super) filters: Vec<Expr>,
    /// The name that hints use.
    pub(super) name: String,
    /// Its number in the order in which the statement's plan has the relations.
    pub(super) position: usize,
}

/// Joins, by the numbers of their relations.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Relation(usize),
    /// Inner joins of all inputs under all conditions.
    Block {
        inputs: Vec<Node>,
        conditions: Vec<Expr>,
    },
    Binary {
        kind: JoinKind,
        left: Box<Node>,
        right: Box<Node>,
        conditions: Vec<Expr>,
    },
}

impl Node {
    /// All relations under it.
    pub(super) fn relations(&self) -> RelationSet {
        match self {
            Self::Relation(relation) => RelationSet::one(*relation),
            Self::Block { inputs, .. } => inputs.iter().fold(RelationSet::EMPTY, |set, input| set.union(input.relations())),
            Self::Binary { left, right, .. } => left.relations().union(right.relations()),
        }
    }

    fn into_inputs(self) -> (Vec<Self>, Vec<Expr>) {
        match self {
            Self::Block { inputs, conditions } => (inputs, conditions),
            other => (vec![other], Vec::new()),
        }
    }
}

/// A join graph before its conflicts are known.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) relations: Vec<Relation>,
    pub(super) root: Node,
    /// The columns of relations that are the columns of the plan.
    pub(super) columns: Vec<Column>,
    /// The relation of each column, and its number there.
    pub(super) owners: BTreeMap<Column, (usize, usize)>,
}

impl Region {
    /// The region whose root is this plan; `None` if it has only one relation, or more than can be told apart.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        if !reaches_join(plan) || count(plan) > RelationSet::CAPACITY {
            return Ok(None);
        }
        let mut extraction = Extraction::default();
        let part = extraction.part(plan)?;
        if extraction.relations.len() < 2 || extraction.is_ambiguous() {
            return Ok(None);
        }
        let Extraction { relations, owners, .. } = extraction;
        Ok(Some(Self { relations, root: part.node, columns: part.columns, owners }))
    }

    /// The relations that an expression reads.
    pub(super) fn relations_of(&self, expr: &Expr) -> RelationSet {
        relations_of(expr, &self.owners)
    }

    /// The text of an expression, with the numbers of relations and columns for their names: it stays when something is renamed.
    pub(super) fn text_of(&self, expr: &Expr) -> String {
        let numbered = expr.clone().transform_up(|inner| match &inner {
            Expr::Column(column) => Ok(match self.owners.get(column) {
                Some((relation, number)) => Transformed::yes(Expr::Column(Column::new_unqualified(format!("#{relation:02}.{number:04}")))),
                None => Transformed::no(inner),
            }),
            _ => Ok(Transformed::no(inner)),
        });
        numbered.map_or_else(|_| expr.to_string(), |numbered| numbered.data.to_string())
    }

    /// The same region with other numbers: `ranks[position]` is the new number of a relation.
    pub(super) fn renumbered(mut self, ranks: &[usize]) -> Self {
        self.relations.sort_by_key(|relation| ranks[relation.position]);
        for (relation, _) in self.owners.values_mut() {
            *relation = ranks[*relation];
        }
        self.root = renumbered(self.root, ranks);
        self
    }
}

fn renumbered(node: Node, ranks: &[usize]) -> Node {
    match node {
        Node::Relation(position) => Node::Relation(ranks[position]),
        Node::Block { inputs, conditions } => {
            let mut inputs: Vec<Node> = inputs.into_iter().map(|input| renumbered(input, ranks)).collect();
            inputs.sort_by_key(|input| input.relations().lowest());
            Node::Block { inputs, conditions }
        }
        Node::Binary { kind, left, right, conditions } => {
            Node::Binary { kind, left: Box::new(renumbered(*left, ranks)), right: Box::new(renumbered(*right, ranks)), conditions }
        }
    }
}

fn relations_of(expr: &Expr, owners: &BTreeMap<Column, (usize, usize)>) -> RelationSet {
    expr.column_refs().into_iter().filter_map(|column| owners.get(column)).map(|(relation, _)| *relation).collect()
}

/// Whether a plan is a join whose order can be chosen, or only filters and renames one.
pub(super) fn reaches_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) => can_move(join),
        LogicalPlan::SubqueryAlias(alias) => reaches_join(&alias.input),
        LogicalPlan::Projection(projection) => renames(projection) && reaches_join(&projection.input),
        LogicalPlan::Filter(filter) => is_movable(&filter.predicate) && reaches_join(&filter.input),
        _ => false,
    }
}

fn can_move(join: &Join) -> bool {
    let moves = match join.join_type {
        JoinType::LeftMark | JoinType::RightMark => false,
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => true,
        JoinType::LeftSemi | JoinType::RightSemi | JoinType::LeftAnti | JoinType::RightAnti => !join.null_aware,
    };
    let mut conditions = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
    moves && join.null_equality == NullEquality::NullEqualsNothing && conditions.all(is_movable)
}

/// Whether a condition may stand elsewhere. One with a correlated subquery may not: what the subquery reads is called by the names that it has there.
fn is_movable(condition: &Expr) -> bool {
    let is_correlated = |expr: &Expr| match expr {
        Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
        Expr::Exists(exists) => !exists.subquery.outer_ref_columns.is_empty(),
        Expr::InSubquery(within) => !within.subquery.outer_ref_columns.is_empty(),
        Expr::SetComparison(comparison) => !comparison.subquery.outer_ref_columns.is_empty(),
        _ => false,
    };
    !condition.is_volatile() && !condition.exists(|expr| Ok(is_correlated(expr))).unwrap_or(true)
}

/// Whether a semi join finds one row at most on its other side, so that an inner join has the same rows, and may stand anywhere. DataFusion makes semi joins of
/// inner ones where it happens to see that nothing above reads a side, which depends on how the joins are written.
fn finds_one(join: &Join) -> bool {
    let right = matches!(join.join_type, JoinType::LeftSemi);
    let found = if right { &join.right } else { &join.left };
    let keys: BTreeSet<usize> = join
        .on
        .iter()
        .filter_map(|(one, two)| match if right { two } else { one } {
            Expr::Column(column) => found.schema().maybe_index_of_column(column),
            _ => None,
        })
        .collect();
    is_unique(found, &keys)
}

/// Whether no two rows of a plan are equal in these columns, NULL being equal to nothing. DataFusion's functional dependencies are not asked: they go
/// through nodes that repeat rows.
fn is_unique(plan: &LogicalPlan, columns: &BTreeSet<usize>) -> bool {
    let through = |input: &LogicalPlan, exprs: &[Expr]| {
        let below = columns.iter().filter_map(|column| input.schema().maybe_index_of_column(renamed(exprs.get(*column)?)?));
        is_unique(input, &below.collect())
    };
    match plan {
        LogicalPlan::TableScan(scan) => {
            let column = |column: &usize| scan.projection.as_ref().map_or(Some(*column), |projection| projection.get(*column).copied());
            let columns: BTreeSet<usize> = columns.iter().filter_map(column).collect();
            keys(scan.source.as_ref()).iter().any(|key| key.iter().all(|column| columns.contains(column)))
        }
        LogicalPlan::SubqueryAlias(alias) => is_unique(&alias.input, columns),
        LogicalPlan::Filter(filter) => is_unique(&filter.input, columns),
        LogicalPlan::Sort(sort) => is_unique(&sort.input, columns),
        LogicalPlan::Limit(limit) => is_unique(&limit.input, columns),
        LogicalPlan::Projection(projection) => through(&projection.input, &projection.expr),
        LogicalPlan::Aggregate(aggregate) => {
            let has_sets = aggregate.group_expr.iter().any(|expr| matches!(expr, Expr::GroupingSet(_)));
            !has_sets && (0..aggregate.group_expr.len()).all(|column| columns.contains(&column))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => (0..input.schema().fields().len()).all(|column| columns.contains(&column)),
        _ => false,
    }
}

fn drops_columns(projection: &Projection) -> bool {
    projection.expr.iter().all(|expr| matches!(expr, Expr::Column(_)))
}

fn renames(projection: &Projection) -> bool {
    projection.expr.iter().all(|expr| renamed(expr).is_some())
}

fn renamed(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => renamed(&alias.expr),
        _ => None,
    }
}

/// Relations of the region of a plan, at most.
fn count(plan: &LogicalPlan) -> usize {
    match plan {
        _ if !reaches_join(plan) => 1,
        LogicalPlan::Join(join) => count(&join.left) + count(&join.right),
        _ => plan.inputs().into_iter().map(count).sum(),
    }
}

/// What is known of a plan under the root.
struct Part {
    node: Node,
    /// The columns of relations that are its columns.
    columns: Vec<Column>,
    /// Relations all of whose columns may be NULL, for rows that an outer join has kept.
    nullable: RelationSet,
}

#[derive(Default)]
struct Extraction {
    relations: Vec<Relation>,
    owners: BTreeMap<Column, (usize, usize)>,
    /// Two relations have a column of the same name.
    ambiguous: bool,
}

impl Extraction {
    fn part(&mut self, plan: &LogicalPlan) -> Result<Part> {
        if !reaches_join(plan) {
            return Ok(self.relation(plan));
        }
        match plan {
            LogicalPlan::Join(join) => self.join(plan, join),
            LogicalPlan::SubqueryAlias(alias) => self.part(&alias.input),
            LogicalPlan::Projection(projection) => {
                let below = self.part(&projection.input)?;
                let schema = projection.input.schema();
                let column = |expr| match renamed(expr) {
                    Some(column) => Ok(below.columns[schema.index_of_column(column)?].clone()),
                    None => datafusion::common::internal_err!("a projection that only renames has an expression"),
                };
                let columns = projection.expr.iter().map(column).collect::<Result<Vec<_>>>()?;
                Ok(Part { columns, ..below })
            }
            LogicalPlan::Filter(filter) => self.filter(plan, filter),
            _ => Ok(self.relation(plan)),
        }
    }

    fn relation(&mut self, plan: &LogicalPlan) -> Part {
        let number = self.relations.len();
        let columns = plan.schema().columns();
        for (at, column) in columns.iter().enumerate() {
            self.ambiguous |= self.owners.insert(column.clone(), (number, at)).is_some();
        }
        let name = name_of(plan);
        // A projection that only drops the columns that filters read would hide the filters.
        let below = match plan {
            LogicalPlan::Projection(projection) if drops_columns(projection) && matches!(*projection.input, LogicalPlan::Filter(_)) => {
                for (at, column) in projection.input.schema().columns().into_iter().enumerate() {
                    if !columns.contains(&column) {
                        self.ambiguous |= self.owners.insert(column, (number, columns.len() + at)).is_some();
                    }
                }
                &projection.input
            }
            other => other,
        };
        let (plan, filters) = unfiltered(below);
        self.relations.push(Relation { plan, filters, name, position: number });
        Part { node: Node::Relation(number), columns, nullable: RelationSet::EMPTY }
    }

    /// Whether a name could stand for columns of two relations.
    fn is_ambiguous(&self) -> bool {
        let bare: BTreeSet<&str> =
            self.owners.keys().filter(|column| column.relation.is_none()).map(|column| column.name.as_str()).collect();
        self.ambiguous || self.owners.keys().any(|column| column.relation.is_some() && bare.contains(column.name.as_str()))
    }

    /// Forgets the relations from `first` on, of which `plan` becomes one instead.
    fn instead(&mut self, first: usize, plan: &LogicalPlan) -> Part {
        self.relations.truncate(first);
        self.owners.retain(|_, (relation, _)| *relation < first);
        self.relation(plan)
    }

    fn filter(&mut self, plan: &LogicalPlan, filter: &Filter) -> Result<Part> {
        let first = self.relations.len();
        let mut below = self.part(&filter.input)?;
        for condition in split_conjunction_owned(filter.predicate.clone()) {
            let condition = over_relations(condition, &[(filter.input.schema(), &below.columns)])?;
            if !self.place(condition, &mut below.node, below.nullable) {
                // A condition on rows that an outer join has kept: it can go nowhere else.
                return Ok(self.instead(first, plan));
            }
        }
        Ok(below)
    }

    fn join(&mut self, plan: &LogicalPlan, join: &Join) -> Result<Part> {
        let first = self.relations.len();
        let (left, right) = (self.part(&join.left)?, self.part(&join.right)?);
        let schemas = [(join.left.schema().as_ref(), left.columns.as_slice()), (join.right.schema().as_ref(), right.columns.as_slice())];
        let equalities = join.on.iter().map(|(one, two)| one.clone().eq(two.clone()));
        let conditions = equalities.chain(join.filter.iter().flat_map(|filter| split_conjunction_owned(filter.clone())));
        let conditions = conditions.map(|condition| over_relations(condition, &schemas)).collect::<Result<Vec<_>>>()?;
        let columns = match join.join_type {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => [left.columns, right.columns].concat(),
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left.columns,
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right.columns,
        };
        let (kind, swapped) = match join.join_type {
            JoinType::Inner => (JoinKind::Inner, false),
            JoinType::Left => (JoinKind::Left, false),
            JoinType::Right => (JoinKind::Left, true),
            JoinType::Full => (JoinKind::Full, false),
            JoinType::LeftSemi | JoinType::LeftMark => (JoinKind::Semi, false),
            JoinType::RightSemi | JoinType::RightMark => (JoinKind::Semi, true),
            JoinType::LeftAnti => (JoinKind::Anti, false),
            JoinType::RightAnti => (JoinKind::Anti, true),
        };
        let kind = if kind == JoinKind::Semi && finds_one(join) { JoinKind::Inner } else { kind };
        let nullable = match kind {
            JoinKind::Inner => left.nullable.union(right.nullable),
            JoinKind::Left if swapped => right.nullable.union(left.node.relations()),
            JoinKind::Left => left.nullable.union(right.node.relations()),
            JoinKind::Full => left.node.relations().union(right.node.relations()),
            JoinKind::Semi | JoinKind::Anti if swapped => right.nullable,
            JoinKind::Semi | JoinKind::Anti => left.nullable,
        };
        if kind == JoinKind::Inner {
            let (mut inputs, mut known) = left.node.into_inputs();
            let (more, further) = right.node.into_inputs();
            inputs.extend(more);
            known.extend(further);
            let mut node = Node::Block { inputs, conditions: known };
            for condition in conditions {
                if !self.place(condition, &mut node, nullable) {
                    return Ok(self.instead(first, plan));
                }
            }
            return Ok(Part { node, columns, nullable });
        }
        let (one, two) = if swapped { (right.node, left.node) } else { (left.node, right.node) };
        let node = Node::Binary { kind, left: Box::new(one), right: Box::new(two), conditions };
        Ok(Part { node, columns, nullable })
    }

    /// Puts a condition on rows of a node where it belongs; false if it has to stay above the node.
    fn place(&mut self, condition: Expr, node: &mut Node, nullable: RelationSet) -> bool {
        let relations = relations_of(&condition, &self.owners);
        match node {
            _ if relations.is_empty() => false,
            Node::Relation(relation) => {
                self.relations[*relation].filters.push(condition);
                true
            }
            Node::Block { inputs, conditions } => match inputs.iter_mut().find(|input| relations.is_subset(input.relations())) {
                Some(_) if relations.intersects(nullable) => false,
                Some(input) => self.place(condition, input, nullable),
                None => {
                    conditions.push(condition);
                    true
                }
            },
            Node::Binary { left, .. } => {
                let movable = relations.is_subset(left.relations()) && !relations.intersects(nullable);
                movable && self.place(condition, left, nullable)
            }
        }
    }
}

/// An expression over the columns of plans as one over the columns of relations.
fn over_relations(expr: Expr, plans: &[(&DFSchema, &[Column])]) -> Result<Expr> {
    let rewritten = expr.transform_up(|inner| {
        let Expr::Column(column) = &inner else { return Ok(Transformed::no(inner)) };
        let found = plans.iter().find_map(|(schema, columns)| schema.maybe_index_of_column(column).map(|at| columns[at].clone()));
        Ok(match found {
            Some(column) => Transformed::yes(Expr::Column(column)),
            None => return datafusion::common::plan_err!("column {column} is none of the inputs'"),
        })
    })?;
    Ok(rewritten.data)
}

/// The name by which hints call a relation.
fn name_of(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().to_owned(),
        LogicalPlan::TableScan(scan) => scan.table_name.table().to_owned(),
        LogicalPlan::Filter(filter) => name_of(&filter.input),
        other => {
            let qualifier = other.schema().iter().find_map(|(qualifier, _)| qualifier);
            qualifier.map_or_else(String::new, |qualifier| qualifier.table().to_owned())
        }
    }
}
