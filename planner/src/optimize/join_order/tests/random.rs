//! Random plans of inner, outer, semi and anti joins over small tables with NULLs: every order that the graph allows has the rows of the plan as it is
//! written, and the search finds the cheapest one.

use std::{collections::BTreeMap, sync::Arc};

use datafusion::{
    arrow::{
        array::{ArrayRef, Int32Array},
        datatypes::{DataType, Field, Schema},
        record_batch::RecordBatch,
        util::display::array_value_to_string,
    },
    common::{Constraint, Constraints, JoinType},
    datasource::{MemTable, provider_as_source},
    functions::core::expr_fn::coalesce,
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col, lit},
    physical_plan::collect,
    prelude::{SessionConfig, SessionContext},
};

use super::super::{
    BatchCost, CostModel, JoinOrder, ViewCost, build,
    cardinality::{Cardinalities, RelationRows},
    closed,
    enumerate::{Pricing, choose},
    graph::Graph,
    ranks,
    region::Region,
    relation_set::RelationSet,
    tree::{JoinTree, RegionOrder},
};
use crate::{
    interrupt::Interrupt,
    optimize::estimate::{ColumnEstimate, Estimate},
    oracle::Numbers,
};

/// Most relations of a graph whose orders are all built.
const RELATIONS: u64 = 5;

/// Orders of one graph that are run.
const RUNS: usize = 8;

struct Random {
    numbers: Numbers,
    tables: usize,
    /// Some tables have a key: a semi join with one finds a row at most.
    has_keys: bool,
}

/// A plan, and its columns that may be read above it.
type Part = (LogicalPlanBuilder, Vec<Expr>);

impl Random {
    fn chance(&mut self, percent: u64) -> bool {
        self.numbers.below(100) < percent
    }

    fn value(&mut self) -> Option<i32> {
        let value = self.numbers.below(4);
        (value > 0).then_some(value as i32)
    }

    fn table(&mut self) -> Part {
        let name = format!("r{}", self.tables);
        self.tables += 1;
        let rows = self.numbers.below(5) as usize;
        let mut columns: Vec<ArrayRef> =
            (0..2).map(|_| Arc::new(Int32Array::from((0..rows).map(|_| self.value()).collect::<Vec<_>>())) as ArrayRef).collect();
        let is_keyed = self.has_keys && self.chance(50);
        if is_keyed {
            columns[0] = Arc::new(Int32Array::from_iter_values(1..=rows as i32));
        }
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int32, true)]));
        let batch = RecordBatch::try_new(schema.clone(), columns).expect("a batch");
        let key = is_keyed.then(|| Constraint::PrimaryKey(vec![0]));
        let table = MemTable::try_new(schema, vec![vec![batch]]).expect("a table");
        let table = table.with_constraints(Constraints::new_unverified(key.into_iter().collect()));
        let mut plan = LogicalPlanBuilder::scan(&name, provider_as_source(Arc::new(table)), None).expect("a scan");
        let columns = vec![col(format!("{name}.a")), col(format!("{name}.b"))];
        if self.chance(30) {
            plan = plan.filter(columns[1].clone().gt(lit(1))).expect("a filter");
        }
        (plan, columns)
    }

    fn pick(&mut self, columns: &[Expr]) -> Expr {
        columns[self.numbers.below(columns.len() as u64) as usize].clone()
    }

    fn condition(&mut self, left: &[Expr], right: &[Expr]) -> Expr {
        let (one, two) = (self.pick(left), self.pick(right));
        match self.numbers.below(10) {
            0..=5 => one.eq(two),
            6 => one.lt(two),
            // True of some rows in which the columns are NULL.
            7 => coalesce(vec![one, lit(1)]).eq(two),
            8 => one.eq(coalesce(vec![two, lit(2)])),
            _ => {
                let three = self.pick(left);
                (one + three).eq(two)
            }
        }
    }

    fn plan(&mut self, relations: u64) -> Part {
        if relations == 1 {
            return self.table();
        }
        let on_the_left = 1 + self.numbers.below(relations - 1);
        let (left, left_columns) = self.plan(on_the_left);
        let (right, right_columns) = self.plan(relations - on_the_left);
        let kind = match self.numbers.below(100) {
            0..=44 => JoinType::Inner,
            45..=59 => JoinType::Left,
            60..=67 => JoinType::Right,
            68..=73 => JoinType::Full,
            74..=81 => JoinType::LeftSemi,
            82..=86 => JoinType::RightSemi,
            87..=95 => JoinType::LeftAnti,
            _ => JoinType::RightAnti,
        };
        let mut conditions = vec![self.condition(&left_columns, &right_columns)];
        if self.chance(25) {
            conditions.push(self.condition(&left_columns, &right_columns));
        }
        if self.chance(10) {
            conditions.push(self.pick(&right_columns).gt(lit(1)));
        }
        if kind == JoinType::Inner && self.chance(10) {
            conditions.clear();
        }
        let columns = match kind {
            JoinType::LeftSemi | JoinType::LeftAnti => left_columns,
            JoinType::RightSemi | JoinType::RightAnti => right_columns,
            _ => [left_columns, right_columns].concat(),
        };
        let right = right.build().expect("a plan");
        let mut plan = left.join_on(right, kind, conditions).expect("a join");
        if self.chance(10) {
            let condition = if self.chance(50) { self.pick(&columns).is_null() } else { self.condition(&columns, &columns) };
            plan = plan.filter(condition).expect("a filter");
        }
        if self.chance(10) {
            // Renamed, in another order.
            let name = format!("x{}", self.tables);
            let renamed: Vec<Expr> = columns.iter().rev().enumerate().map(|(at, column)| column.clone().alias(format!("c{at}"))).collect();
            let names = (0..renamed.len()).map(|at| col(format!("{name}.c{at}"))).collect();
            return (plan.project(renamed).expect("a projection").alias(name).expect("an alias"), names);
        }
        (plan, columns)
    }

    fn rows(&mut self, region: &Region) -> Vec<RelationRows> {
        let mut rows = || {
            let rows = [1.0, 7.0, 50.0, 1000.0, 40_000.0][self.numbers.below(5) as usize];
            let column = ColumnEstimate { distinct: None, width: 4.0, statistics: None };
            let changes = rows / (1.0 + self.numbers.below(100) as f64);
            let kept = Estimate { rows, changes, columns: vec![column; 2], known: true };
            RelationRows { base_rows: rows * 3.0, kept, hinted: false }
        };
        region.relations.iter().map(|_| rows()).collect()
    }
}

/// All orders of a set that the graph allows, sides in either order.
fn all_trees(graph: &Graph, set: RelationSet, known: &mut BTreeMap<RelationSet, Vec<JoinTree>>) -> Vec<JoinTree> {
    if let Some(trees) = known.get(&set) {
        return trees.clone();
    }
    let mut trees = Vec::new();
    if set.len() == 1 {
        trees.extend(set.lowest().map(JoinTree::Relation));
    }
    for left in set.subsets().filter(|left| *left != set) {
        let right = set.without(left);
        if graph.join(left, right).is_none() {
            continue;
        }
        let rights = all_trees(graph, right, known);
        for one in all_trees(graph, left, known) {
            trees.extend(rights.iter().map(|two| JoinTree::Join(Box::new(one.clone()), Box::new(two.clone()))));
        }
    }
    known.insert(set, trees.clone());
    trees
}

/// The cost of an order, its sides in the better order at each join.
fn cost(pricing: &Pricing<'_>, tree: &JoinTree) -> f64 {
    let JoinTree::Join(left, right) = tree else { return 0.0 };
    let (one, two) = (left.relations(), right.relations());
    let joint = pricing.graph.join(one, two).expect("an order that is allowed");
    cost(pricing, left) + cost(pricing, right) + pricing.price(one, two, &joint).0
}

struct Runner {
    context: SessionContext,
    runtime: tokio::runtime::Runtime,
}

impl Runner {
    fn new() -> Self {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        Self { context, runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime") }
    }

    fn rows(&self, plan: &LogicalPlan) -> Vec<String> {
        let state = self.context.state();
        let batches = self.runtime.block_on(async {
            let physical = state.create_physical_plan(plan).await?;
            collect(physical, state.task_ctx()).await
        });
        let batches = batches.unwrap_or_else(|error| panic!("{error}\n{}", plan.display_indent()));
        let text = |batch: &RecordBatch, row: usize| {
            let value =
                |column: &ArrayRef| if column.is_null(row) { "-".into() } else { array_value_to_string(column, row).expect("a text") };
            batch.columns().iter().map(value).collect::<Vec<String>>().join(" ")
        };
        let mut rows: Vec<String> =
            batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| text(batch, row)).collect::<Vec<_>>()).collect();
        rows.sort();
        rows
    }
}

/// One random plan; how many orders it has.
fn check(runner: &Runner, seed: u64) -> usize {
    let mut random = Random { numbers: Numbers::new(seed), tables: 0, has_keys: seed % 2 == 1 };
    let relations = 2 + random.numbers.below(RELATIONS - 1);
    let plan = random.plan(relations).0.build().expect("a plan");
    let Some(region) = Region::of(&plan).expect("a region") else { return 0 };
    let ranks = ranks(&region);
    let (region, graph) = closed(region, &ranks);
    let told = format!("seed {seed}\n{}\n{graph:#?}", plan.display_indent());
    let all = RelationSet::below(region.relations.len());
    let trees = all_trees(&graph, all, &mut BTreeMap::new());
    assert!(!trees.is_empty(), "there is no order\n{told}");

    let wanted = runner.rows(&plan);
    for _ in 0..RUNS.min(trees.len()) {
        let tree = &trees[random.numbers.below(trees.len() as u64) as usize];
        let ordered = build::build(&region, &graph, tree, &plan, false).expect("a plan").expect("an order that is allowed");
        assert_eq!(ordered.schema().columns(), plan.schema().columns(), "{tree}\n{told}");
        assert_eq!(runner.rows(&ordered), wanted, "{tree}\n{}\n{told}", ordered.display_indent());
    }

    let rows = random.rows(&region);
    let cardinalities = Cardinalities::new(&region, &graph, &rows);
    for model in [&BatchCost as &dyn CostModel, &ViewCost] {
        let pricing = Pricing { graph: &graph, cardinalities: &cardinalities, model };
        let chosen = choose(&pricing, None, &Interrupt::never()).expect("a search").unwrap_or_else(|| panic!("no order is found\n{told}"));
        let least = trees.iter().map(|tree| cost(&pricing, tree)).fold(f64::INFINITY, f64::min);
        let found = cost(&pricing, &chosen.tree);
        assert!(found <= least * (1.0 + 1e-9), "{} costs {found}, the best {least}\n{told}", chosen.tree);
        let order = JoinOrder(vec![Some(RegionOrder { ranks: ranks.clone(), tree: chosen.tree })]);
        assert_eq!(JoinOrder::from_text(&order.to_string()), Some(order));
    }
    trees.len()
}

/// A condition on three relations that nothing else connects.
#[test]
fn a_condition_on_three_relations_needs_a_product_of_two() {
    assert!(check(&Runner::new(), 804) > 0);
}

fn first_seed() -> u64 {
    std::env::var("MILLPOND_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn graphs() -> u64 {
    std::env::var("MILLPOND_JOIN_GRAPHS").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

#[test]
fn every_order_has_the_same_rows_and_the_cheapest_is_found() {
    let runner = Runner::new();
    let first = first_seed();
    let orders: usize = (first..first + graphs()).map(|seed| check(&runner, seed)).sum();
    assert!(std::env::var("MILLPOND_SEED").is_ok() || orders > 1000, "{orders}");
}
