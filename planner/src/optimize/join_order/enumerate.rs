//! The search for the cheapest order: dynamic programming over connected subgraphs (DPhyp: Moerkotte and Neumann, "Dynamic programming strikes back", SIGMOD
//! 2008), which tries every bushy tree without joins of what nothing connects; above a number of relations, or of steps, greedy operator ordering: always the join
//! with the fewest rows (Fegaras, "A new heuristic for optimizing large queries", DEXA 1998). What is equally cheap is told apart by the
//! numbers of relations, never by the order in which it was found.

use std::{cmp::Ordering, collections::HashMap};

use super::{
    cardinality::Cardinalities,
    cost::{CostModel, PricedJoin, Side},
    graph::{Graph, Joint},
    relation_set::RelationSet,
    tree::JoinTree,
};
use crate::{error::Result, interrupt::Interrupt};

/// Most relations whose orders are all tried.
const MAX_EXHAUSTIVE: usize = 12;

/// Most steps of the search, a pair or a connected subgraph each. A star of twelve relations takes some twelve thousand pairs; a clique of twelve would take a
/// quarter of a million.
const MAX_STEPS: usize = 60_000;

/// Steps between two looks at the interrupt.
const STEPS_BETWEEN_CHECKS: usize = 256;

/// The cheapest plan of a set.
#[derive(Clone, Copy, Debug)]
struct Best {
    /// Of all its joins.
    cost: f64,
    /// What it joins, the left side first; nothing for a relation.
    sides: Option<(RelationSet, RelationSet)>,
}

/// What has become of a hint of the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leading {
    /// There was none.
    Unsaid,
    Obeyed,
    /// No order with the same rows begins so.
    Impossible,
}

/// An order that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) tree: JoinTree,
    pub(super) leading: Leading,
}

/// Chooses an order; `None` if no search finds one, which then stays as it is.
///
/// # Errors
/// What `interrupt` says.
pub(super) fn choose(pricing: &Pricing<'_>, leading: Option<&[usize]>, interrupt: &Interrupt) -> Result<Option<Chosen>> {
    if let Some(list) = leading
        && let Some(tree) = search(pricing, list, interrupt)?
    {
        return Ok(Some(Chosen { tree, leading: Leading::Obeyed }));
    }
    let said = if leading.is_some() { Leading::Impossible } else { Leading::Unsaid };
    Ok(search(pricing, &[], interrupt)?.map(|tree| Chosen { tree, leading: said }))
}

fn search(pricing: &Pricing<'_>, leading: &[usize], interrupt: &Interrupt) -> Result<Option<JoinTree>> {
    let all = RelationSet::below(pricing.graph.relations);
    if pricing.graph.relations <= MAX_EXHAUSTIVE {
        let mut search = Search::new(pricing, leading, interrupt);
        search.exhaustive()?;
        if !search.is_exhausted() && search.best.contains_key(&all) {
            return Ok(Some(search.tree(all)));
        }
    }
    let mut search = Search::new(pricing, leading, interrupt);
    Ok(if search.greedy()? { Some(search.tree(all)) } else { None })
}

/// What prices joins.
pub(super) struct Pricing<'a> {
    pub(super) graph: &'a Graph,
    pub(super) cardinalities: &'a Cardinalities<'a>,
    pub(super) model: &'a dyn CostModel,
}

impl Pricing<'_> {
    fn side(&self, set: RelationSet) -> Side {
        let cardinalities = self.cardinalities;
        Side { rows: cardinalities.rows(set), width: cardinalities.width(set), changes: cardinalities.changes(set) }
    }

    /// The price of a join, and its sides in the order in which they are joined.
    pub(super) fn price(&self, one: RelationSet, two: RelationSet, joint: &Joint) -> (f64, (RelationSet, RelationSet)) {
        let swapped = if joint.operator.is_some() { joint.swapped } else { two.lowest() < one.lowest() };
        let (left, right) = if swapped { (two, one) } else { (one, two) };
        let priced = PricedJoin {
            left: self.side(left),
            right: self.side(right),
            output: self.side(left.union(right)),
            is_equality: joint.is_equality,
            kind: joint.kind,
        };
        let price = self.model.join(&priced);
        (price.cost, if price.exchanged { (right, left) } else { (left, right) })
    }
}

struct Search<'a> {
    pricing: &'a Pricing<'a>,
    leading: &'a [usize],
    interrupt: &'a Interrupt,
    best: HashMap<RelationSet, Best>,
    steps: usize,
}

impl<'a> Search<'a> {
    fn new(pricing: &'a Pricing<'a>, leading: &'a [usize], interrupt: &'a Interrupt) -> Self {
        let alone = |relation| (RelationSet::one(relation), Best { cost: 0.0, sides: None });
        let best = (0..pricing.graph.relations).map(alone).collect();
        Self { pricing, leading, interrupt, best, steps: 0 }
    }

    fn is_exhausted(&self) -> bool {
        self.steps > MAX_STEPS
    }

    /// Counts a step; false when there were too many.
    fn step(&mut self) -> Result<bool> {
        if self.steps.is_multiple_of(STEPS_BETWEEN_CHECKS) {
            self.interrupt.check()?;
        }
        self.steps += 1;
        Ok(!self.is_exhausted())
    }

    fn tree(&self, set: RelationSet) -> JoinTree {
        match self.best.get(&set).and_then(|best| best.sides) {
            Some((left, right)) => JoinTree::Join(Box::new(self.tree(left)), Box::new(self.tree(right))),
            None => JoinTree::Relation(set.lowest().unwrap_or_default()),
        }
    }

    /// Whether a set may occur in an order that begins with the leading relations.
    fn begins_right(&self, set: RelationSet) -> bool {
        let led: RelationSet = self.leading.iter().copied().collect();
        if !set.intersects(led) || led.is_subset(set) || set.len() == 1 {
            return true;
        }
        let prefix: RelationSet = self.leading.iter().copied().take(set.len()).collect();
        set == prefix
    }

    /// Keeps a join if it is the cheapest of its set.
    fn consider(&mut self, one: RelationSet, two: RelationSet) {
        let all = one.union(two);
        let (Some(first), Some(second)) = (self.best.get(&one), self.best.get(&two)) else { return };
        let below = first.cost + second.cost;
        let Some(joint) = self.pricing.graph.join(one, two).filter(|_| self.begins_right(all)) else { return };
        let (price, sides) = self.pricing.price(one, two, &joint);
        let found = Best { cost: below + price, sides: Some(sides) };
        let is_better = |known: &Best| found.cost.total_cmp(&known.cost).then(found.sides.cmp(&known.sides)) == Ordering::Less;
        if self.best.get(&all).is_none_or(is_better) {
            self.best.insert(all, found);
        }
    }

    fn exhaustive(&mut self) -> Result<()> {
        for relation in (0..self.pricing.graph.relations).rev() {
            let set = RelationSet::one(relation);
            self.complements(set)?;
            self.grow(set, RelationSet::below(relation + 1))?;
        }
        Ok(())
    }

    /// Connected supersets of a set, without what is in `excluded`.
    fn grow(&mut self, set: RelationSet, excluded: RelationSet) -> Result<()> {
        let neighbours = self.neighbours(set, excluded);
        for more in neighbours.subsets() {
            if !self.step()? {
                return Ok(());
            }
            if self.best.contains_key(&set.union(more)) {
                self.complements(set.union(more))?;
            }
        }
        for more in neighbours.subsets() {
            if self.is_exhausted() {
                return Ok(());
            }
            self.grow(set.union(more), excluded.union(neighbours))?;
        }
        Ok(())
    }

    /// Connected sets that are connected with a set, none of them twice.
    fn complements(&mut self, set: RelationSet) -> Result<()> {
        let excluded = set.union(RelationSet::below(set.lowest().map_or(0, |lowest| lowest + 1)));
        let neighbours = self.neighbours(set, excluded);
        let descending: Vec<usize> = neighbours.iter().collect();
        for relation in descending.into_iter().rev() {
            if !self.step()? {
                return Ok(());
            }
            let other = RelationSet::one(relation);
            if self.connects(set, other) {
                self.consider(set, other);
            }
            self.grow_complement(set, other, excluded.union(neighbours.intersection(RelationSet::below(relation + 1))))?;
        }
        Ok(())
    }

    fn grow_complement(&mut self, set: RelationSet, other: RelationSet, excluded: RelationSet) -> Result<()> {
        let neighbours = self.neighbours(other, excluded);
        for more in neighbours.subsets() {
            if !self.step()? {
                return Ok(());
            }
            let grown = other.union(more);
            if self.best.contains_key(&grown) && self.connects(set, grown) {
                self.consider(set, grown);
            }
        }
        for more in neighbours.subsets() {
            if self.is_exhausted() {
                return Ok(());
            }
            self.grow_complement(set, other.union(more), excluded.union(neighbours))?;
        }
        Ok(())
    }

    fn connects(&self, one: RelationSet, two: RelationSet) -> bool {
        let connects = |(left, right): &(RelationSet, RelationSet)| {
            left.is_subset(one) && right.is_subset(two) || left.is_subset(two) && right.is_subset(one)
        };
        self.pricing.graph.edges.iter().any(connects)
    }

    /// What edges lead to from a set, each far end by its lowest relation; ends that contain others are left out.
    fn neighbours(&self, set: RelationSet, excluded: RelationSet) -> RelationSet {
        let outside = |end: RelationSet| !end.intersects(set) && !end.intersects(excluded);
        let ends = self.pricing.graph.edges.iter().flat_map(|(left, right)| {
            let forth = (left.is_subset(set) && outside(*right)).then_some(*right);
            let back = (right.is_subset(set) && outside(*left)).then_some(*left);
            [forth, back].into_iter().flatten()
        });
        let ends: Vec<RelationSet> = ends.collect();
        let single = ends.iter().filter(|end| end.len() == 1).fold(RelationSet::EMPTY, |set, end| set.union(*end));
        let minimal = |end: &&RelationSet| {
            end.len() > 1 && !end.intersects(single) && !ends.iter().any(|other| other != *end && other.is_subset(**end))
        };
        let lowest: RelationSet = ends.iter().filter(minimal).filter_map(|end| end.lowest()).collect();
        single.union(lowest)
    }

    /// Joins what gives the fewest rows, again and again; false if that leads nowhere.
    fn greedy(&mut self) -> Result<bool> {
        let mut sets: Vec<RelationSet> = (0..self.pricing.graph.relations).map(RelationSet::one).collect();
        let mut pairs: Vec<Rank> = Vec::new();
        for at in 0..sets.len() {
            self.rank_with(&sets[..at], sets[at], &mut pairs)?;
        }
        while sets.len() > 1 {
            let best = pairs.iter().reduce(|best, other| if other.is_before(best) { other } else { best });
            let Some(Rank { one, two, .. }) = best.copied() else { return Ok(false) };
            self.consider(one, two);
            let joined = one.union(two);
            sets.retain(|set| !set.intersects(joined));
            pairs.retain(|pair| !pair.one.union(pair.two).intersects(joined));
            self.rank_with(&sets, joined, &mut pairs)?;
            sets.push(joined);
        }
        Ok(true)
    }

    /// Adds the joins of a set with others.
    fn rank_with(&self, others: &[RelationSet], set: RelationSet, pairs: &mut Vec<Rank>) -> Result<()> {
        self.interrupt.check()?;
        pairs.extend(others.iter().filter_map(|other| self.rank(*other, set)));
        Ok(())
    }

    fn rank(&self, one: RelationSet, two: RelationSet) -> Option<Rank> {
        let all = one.union(two);
        let joint = self.pricing.graph.join(one, two).filter(|_| self.begins_right(all))?;
        let led: RelationSet = self.leading.iter().copied().collect();
        let waits = !led.is_empty() && !all.is_subset(led) && !led.is_subset(all);
        Some(Rank { waits, is_cross: joint.is_cross, rows: self.pricing.cardinalities.rows(all), one, two })
    }
}

/// A join as greedy ordering sees it: the least comes first.
#[derive(Clone, Copy)]
struct Rank {
    /// The leading relations come first.
    waits: bool,
    is_cross: bool,
    rows: f64,
    one: RelationSet,
    two: RelationSet,
}

impl Rank {
    fn is_before(&self, other: &Self) -> bool {
        let (flags, other_flags) = ((self.waits, self.is_cross), (other.waits, other.is_cross));
        let (all, other_all) = (self.one.union(self.two), other.one.union(other.two));
        flags.cmp(&other_flags).then(self.rows.total_cmp(&other.rows)).then(all.cmp(&other_all)) == Ordering::Less
    }
}
