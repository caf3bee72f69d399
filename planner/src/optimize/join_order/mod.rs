//! The order of joins, by cost: after DataFusion's rules have made joins of subqueries and pushed filters down, every *region* of joins that stand on
//! each other is ordered anew.
//!
//! | step | file |
//! |---|---|
//! | the joins, their relations and conditions | `region` |
//! | what is equal, and what follows from it | `equality` |
//! | which orders give the same rows | `graph` |
//! | rows of a set of relations | `cardinality` |
//! | price of a join: of a query, of a view | `cost` |
//! | the cheapest order | `enumerate` |
//! | its text, which the catalog keeps for views | `tree` |
//! | its plan | `build` |
//!
//! Relations are numbered by what they are, not by where they stand in FROM, so that every permutation of FROM gives the same plan.
//! A region of whose relations nothing is known stays as it is written.

mod build;
mod cardinality;
mod cost;
mod enumerate;
mod equality;
mod graph;
pub(crate) mod hints;
mod region;
mod relation_set;
mod report;
#[cfg(test)]
mod tests;
mod tree;

use datafusion::{
    common::tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    error::Result as DataFusionResult,
    logical_expr::LogicalPlan,
};

use self::{
    cardinality::{Cardinalities, RelationRows},
    enumerate::Pricing,
    graph::Graph,
    region::{Region, reaches_join},
    relation_set::RelationSet,
    tree::RegionOrder,
};
pub use self::{
    cost::{BatchCost, CostModel, Price, PricedJoin, Side, ViewCost},
    hints::Hints,
    tree::JoinOrder,
};
use super::{
    estimate::{Estimate, Estimator},
    statistics::Statistics,
};
use crate::{error::Result, interrupt::Interrupt};

/// Where the order comes from.
pub enum Ordering<'a> {
    /// It is chosen by what is known of the relations.
    Chosen {
        /// What is known.
        statistics: &'a dyn Statistics,
        /// What makes one order better than another.
        model: &'a dyn CostModel,
        /// What the statement says.
        hints: &'a Hints,
    },
    /// It was chosen before, for the same query.
    Kept(JoinOrder),
}

/// A plan with its joins in order.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The plan. Its columns are those of the one before, and may be NULL where those could.
    pub plan: LogicalPlan,
    /// The order, for [`Ordering::Kept`].
    pub order: JoinOrder,
    /// What EXPLAIN says of it; empty if there was nothing to choose.
    pub report: String,
    /// There is any join.
    pub has_joins: bool,
    /// Every join of the plan has its sides as they were priced.
    pub is_complete: bool,
}

impl Ordered {
    /// Whether the plan is another one than before.
    pub fn is_changed(&self) -> bool {
        !self.order.is_as_written()
    }
}

/// Orders the joins of an optimized plan.
///
/// # Errors
/// What `interrupt` says; XX000 if a plan cannot be rebuilt.
pub fn order_joins(plan: LogicalPlan, ordering: &Ordering<'_>, interrupt: &Interrupt) -> Result<Ordered> {
    let keeps_all = matches!(ordering, Ordering::Kept(order) if order.is_as_written());
    let has_joins = has_join(&plan)?;
    if keeps_all || !has_joins {
        return Ok(Ordered { plan, order: JoinOrder::as_written(), report: String::new(), has_joins, is_complete: !has_joins });
    }
    let mut run = Run { ordering, interrupt, order: Vec::new(), report: String::new(), is_complete: true };
    let plan = run.all(plan)?.data;
    if let Ordering::Chosen { hints, .. } = ordering {
        for unknown in hints.unknown() {
            run.report.push_str(&format!("Unknown hint: {unknown}\n"));
        }
    }
    Ok(Ordered { plan, order: JoinOrder(run.order), report: run.report, has_joins, is_complete: run.is_complete })
}

fn has_join(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Join(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

struct Run<'a> {
    ordering: &'a Ordering<'a>,
    interrupt: &'a Interrupt,
    order: Vec<Option<RegionOrder>>,
    report: String,
    is_complete: bool,
}

impl Run<'_> {
    /// All regions of a plan: those of subqueries in its expressions first, then its own from below.
    fn all(&mut self, plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
        let has_subquery = plan.exists(|node| {
            let mut found = false;
            node.apply_subqueries(|_| {
                found = true;
                Ok(TreeNodeRecursion::Stop)
            })?;
            Ok(found)
        })?;
        if !has_subquery {
            return self.below(plan, false);
        }
        let plan = plan.transform_down(|node| node.map_subqueries(|subquery| self.all(subquery)))?;
        plan.transform_data(|plan| self.below(plan, false))
    }

    /// `by_name`: what stands above knows the plan's columns by their names only.
    fn below(&mut self, plan: LogicalPlan, by_name: bool) -> DataFusionResult<Transformed<LogicalPlan>> {
        self.interrupt.check()?;
        if reaches_join(&plan) {
            if let Some(region) = Region::of(&plan)? {
                return self.region(plan, region, by_name);
            }
            self.is_complete = false;
        } else if matches!(plan, LogicalPlan::Join(_)) {
            self.is_complete = false;
        }
        self.children(plan, by_name)
    }

    fn children(&mut self, plan: LogicalPlan, by_name: bool) -> DataFusionResult<Transformed<LogicalPlan>> {
        let by_name = match &plan {
            LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => true,
            LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => by_name,
            _ => false,
        };
        let rebuilt = plan.map_children(|child| self.below(child, by_name))?;
        // What may be NULL can be told better of another order.
        if rebuilt.transformed { rebuilt.map_data(LogicalPlan::recompute_schema) } else { Ok(rebuilt) }
    }

    /// A region is ordered before those inside of its relations: what a relation is called tells it apart, whatever it does inside.
    fn region(&mut self, plan: LogicalPlan, region: Region, by_name: bool) -> DataFusionResult<Transformed<LogicalPlan>> {
        let found = match self.ordering {
            Ordering::Kept(order) => kept(region, order.0.get(self.order.len()).cloned().flatten()),
            Ordering::Chosen { statistics, model, hints } => self.chosen(region, *statistics, *model, hints)?,
        };
        let Some(mut found) = found.filter(|found| found.plan(&plan, by_name).is_ok_and(|plan| plan.is_some())) else {
            self.order.push(None);
            self.is_complete = false;
            return self.children(plan, by_name);
        };
        self.order.push(Some(found.order.clone()));
        self.report.push_str(&found.report);
        for relation in &mut found.region.relations {
            let below = std::mem::take(&mut relation.plan);
            relation.plan = self.below(below, false)?.data;
        }
        match found.plan(&plan, by_name)? {
            Some(ordered) => Ok(Transformed::yes(ordered)),
            None => datafusion::common::internal_err!("joins cannot be ordered again"),
        }
    }

    fn chosen(&self, region: Region, statistics: &dyn Statistics, model: &dyn CostModel, hints: &Hints) -> DataFusionResult<Option<Found>> {
        let ranks = ranks(&region);
        let (region, graph) = closed(region, &ranks);
        let estimator = Estimator::new(statistics, hints, model.is_continuous());
        let relations = relations_rows(&region, &estimator, hints);
        let number = |name: &str| region.relations.iter().position(|relation| relation.name == name);
        let leading = hints.leading(&number);
        if leading.is_none() && relations.iter().all(|relation| !relation.kept.known) {
            return Ok(None);
        }
        let cardinalities = Cardinalities::new(&region, &graph, &relations);
        let pricing = Pricing { graph: &graph, cardinalities: &cardinalities, model };
        let Some(chosen) = enumerate::choose(&pricing, leading.as_deref(), self.interrupt)? else { return Ok(None) };
        let report = report::report(&region, &pricing, &chosen.tree, chosen.leading);
        Ok(Some(Found { region, graph, order: RegionOrder { ranks, tree: chosen.tree }, report }))
    }
}

/// An order of a region.
struct Found {
    region: Region,
    graph: Graph,
    order: RegionOrder,
    report: String,
}

impl Found {
    /// The plan instead of `original`; `None` if the order does not give its rows.
    fn plan(&self, original: &LogicalPlan, by_name: bool) -> DataFusionResult<Option<LogicalPlan>> {
        build::build(&self.region, &self.graph, &self.order.tree, original, by_name)
    }
}

fn kept(region: Region, order: Option<RegionOrder>) -> Option<Found> {
    let order = order.filter(|order| order.ranks.len() == region.relations.len())?;
    let (region, graph) = closed(region, &order.ranks);
    Some(Found { region, graph, order, report: String::new() })
}

fn closed(region: Region, ranks: &[usize]) -> (Region, Graph) {
    let mut region = region.renumbered(ranks);
    let classes = equality::close(&mut region);
    let graph = Graph::new(&region, classes);
    (region, graph)
}

/// What is expected of a plan that is a region; `None` if it is none.
pub(super) fn estimate_region(plan: &LogicalPlan, estimator: &Estimator<'_>, hints: &Hints) -> Option<Estimate> {
    let region = Region::of(plan).ok().flatten()?;
    let (ranks, columns) = (ranks(&region), region.columns.clone());
    let (region, graph) = closed(region, &ranks);
    let relations = relations_rows(&region, estimator, hints);
    let cardinalities = Cardinalities::new(&region, &graph, &relations);
    let all = RelationSet::below(relations.len());
    let column = |column| {
        let (relation, _) = region.owners.get(column)?;
        let number = region.relations[*relation].plan.schema().maybe_index_of_column(column)?;
        relations[*relation].kept.columns.get(number).cloned()
    };
    Some(Estimate {
        rows: cardinalities.rows(all),
        changes: cardinalities.changes(all),
        columns: columns.iter().map(column).collect::<Option<_>>()?,
        known: relations.iter().any(|relation| relation.kept.known),
    })
}

/// The rank of each relation among all, by what it is. Relations that look alike keep the order in which they stand.
fn ranks(region: &Region) -> Vec<usize> {
    let text = |at: &usize| {
        let relation = &region.relations[*at];
        (relation.name.clone(), relation.plan.display_indent().to_string())
    };
    let mut order: Vec<usize> = (0..region.relations.len()).collect();
    order.sort_by_cached_key(text);
    let mut ranks = vec![0; order.len()];
    for (rank, position) in order.into_iter().enumerate() {
        ranks[position] = rank;
    }
    ranks
}

fn relations_rows(region: &Region, estimator: &Estimator<'_>, hints: &Hints) -> Vec<RelationRows> {
    region.relations.iter().map(|relation| relation_rows(relation, estimator, hints)).collect()
}

fn relation_rows(relation: &region::Relation, estimator: &Estimator<'_>, hints: &Hints) -> RelationRows {
    let kept = estimator.plan(&relation.plan).filtered(&relation.filters, relation.plan.schema());
    let base_rows = estimator.base_rows(&relation.plan).unwrap_or(kept.rows).max(kept.rows);
    let Some(rows) = hints.rows(&relation.name) else {
        return RelationRows { base_rows, kept, hinted: false };
    };
    RelationRows { base_rows: rows, kept: Estimate { known: true, ..kept.with_rows(rows) }, hinted: true }
}
