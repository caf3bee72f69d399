//! The same plan for every order of FROM and WHERE; hints; orders that are kept.

use std::collections::BTreeMap;

use datafusion::{execution::runtime_env::RuntimeEnv, logical_expr::LogicalPlan};

use super::super::{BatchCost, Hints, JoinOrder, Ordered, Ordering, order_joins};
use crate::{
    functions::session::{session_config, session_state},
    interrupt::Interrupt,
    optimize::{
        order_query,
        statistics::{ColumnStatistics, RelationStatistics},
    },
    oracle::Numbers,
    stream::{Joins, StreamPlan, ViewOptions},
    test_bench::{Bench, VIEW},
};

const TPC_H: &str = "
    CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name text);
    CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text, n_regionkey int);
    CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_nationkey int);
    CREATE TABLE customer (c_custkey int PRIMARY KEY, c_nationkey int, c_mktsegment text);
    CREATE TABLE part (p_partkey int PRIMARY KEY, p_name text, p_type text);
    CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_supplycost numeric(12, 2), PRIMARY KEY (ps_partkey, ps_suppkey));
    CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int, o_orderdate date);
    CREATE TABLE lineitem (l_orderkey int, l_partkey int, l_suppkey int, l_linenumber int, l_quantity numeric(12, 2),
        l_extendedprice numeric(12, 2), l_discount numeric(12, 2), PRIMARY KEY (l_orderkey, l_linenumber));";

/// Rows at scale factor one.
const TPC_H_ROWS: [(&str, f64); 8] = [
    ("region", 5.0),
    ("nation", 25.0),
    ("supplier", 10_000.0),
    ("customer", 150_000.0),
    ("part", 200_000.0),
    ("partsupp", 800_000.0),
    ("orders", 1_500_000.0),
    ("lineitem", 6_000_000.0),
];

fn rows(rows: f64) -> RelationStatistics {
    RelationStatistics { rows, ..Default::default() }
}

fn tpc_h() -> Bench {
    let mut bench = Bench::of(TPC_H);
    for (name, count) in TPC_H_ROWS {
        bench.know(name, rows(count));
    }
    bench
}

/// A query whose relations and conditions may stand in any order.
struct Query {
    select: &'static str,
    from: Vec<String>,
    conditions: Vec<String>,
    rest: &'static str,
}

impl Query {
    fn new(select: &'static str, from: &[&str], conditions: &[&str], rest: &'static str) -> Self {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Self { select, from: owned(from), conditions: owned(conditions), rest }
    }

    fn sql(&self, hint: &str) -> String {
        format!("SELECT {hint} {} FROM {} WHERE {} {}", self.select, self.from.join(", "), self.conditions.join(" AND "), self.rest)
    }

    fn shuffle(&mut self, numbers: &mut Numbers) {
        for list in [&mut self.from, &mut self.conditions] {
            for at in (1..list.len()).rev() {
                list.swap(at, numbers.below(at as u64 + 1) as usize);
            }
        }
    }
}

fn q5() -> Query {
    Query::new(
        "n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue",
        &["customer", "orders", "lineitem", "supplier", "nation", "region"],
        &[
            "c_custkey = o_custkey",
            "l_orderkey = o_orderkey",
            "l_suppkey = s_suppkey",
            "c_nationkey = s_nationkey",
            "s_nationkey = n_nationkey",
            "n_regionkey = r_regionkey",
            "r_name = 'ASIA'",
            "o_orderdate >= date '1994-01-01'",
            "o_orderdate < date '1995-01-01'",
        ],
        "GROUP BY n_name",
    )
}

fn q8() -> Query {
    Query::new(
        "extract(year from o_orderdate) AS o_year, sum(CASE WHEN n2.n_name = 'BRAZIL' THEN l_extendedprice ELSE 0 END) AS share",
        &["part", "supplier", "lineitem", "orders", "customer", "nation n1", "nation n2", "region"],
        &[
            "p_partkey = l_partkey",
            "s_suppkey = l_suppkey",
            "l_orderkey = o_orderkey",
            "o_custkey = c_custkey",
            "c_nationkey = n1.n_nationkey",
            "n1.n_regionkey = r_regionkey",
            "r_name = 'AMERICA'",
            "s_nationkey = n2.n_nationkey",
            "o_orderdate BETWEEN date '1995-01-01' AND date '1996-12-31'",
            "p_type = 'ECONOMY ANODIZED STEEL'",
        ],
        "GROUP BY 1",
    )
}

fn q9() -> Query {
    Query::new(
        "n_name, extract(year from o_orderdate) AS o_year, sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit",
        &["part", "supplier", "lineitem", "partsupp", "orders", "nation"],
        &[
            "s_suppkey = l_suppkey",
            "ps_suppkey = l_suppkey",
            "ps_partkey = l_partkey",
            "p_partkey = l_partkey",
            "o_orderkey = l_orderkey",
            "s_nationkey = n_nationkey",
            "p_name LIKE '%green%'",
        ],
        "GROUP BY 1, 2",
    )
}

const DIMENSIONS: usize = 9;

fn star_bench() -> Bench {
    let keys: String = (0..DIMENSIONS).map(|at| format!("k{at} int, ")).collect();
    let dimensions: String = (0..DIMENSIONS).map(|at| format!("CREATE TABLE d{at} (id int PRIMARY KEY, v int);")).collect();
    let mut bench = Bench::of(&format!("CREATE TABLE fact (id int PRIMARY KEY, {keys} amount bigint); {dimensions}"));
    bench.know("fact", rows(1_000_000.0));
    for at in 0..DIMENSIONS {
        bench.know(&format!("d{at}"), rows(100.0 * (at + 1) as f64));
    }
    bench
}

fn star() -> Query {
    let mut query = Query::new("sum(amount) AS amount", &["fact"], &["d3.v = 7", "d5.v < 3", "d0.v = d1.v"], "");
    for at in 0..DIMENSIONS {
        query.from.push(format!("d{at}"));
        query.conditions.push(format!("fact.k{at} = d{at}.id"));
    }
    query
}

/// The plan of a query, ordered as a batch query is.
fn ordered(bench: &Bench, sql: &str) -> Ordered {
    let state = session_state(session_config().with_target_partitions(1), std::sync::Arc::new(RuntimeEnv::default()), Vec::new());
    let bound = bench.bound(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let plan = state.optimize(&bound).unwrap_or_else(|error| panic!("{sql}: {error}"));
    order_query(plan, bench, &Hints::in_text(sql), &state).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn view(bench: &Bench, sql: &str, joins: Joins) -> StreamPlan {
    let options = ViewOptions { joins, ..ViewOptions::collection(VIEW) };
    bench.plan_with(sql, &options).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn new_view(bench: &Bench, sql: &str) -> StreamPlan {
    view(bench, sql, Joins::Chosen(Hints::in_text(sql)))
}

fn text(plan: &LogicalPlan) -> String {
    plan.display_indent().to_string()
}

fn same_for_all_permutations(bench: &Bench, mut query: Query) -> String {
    let mut numbers = Numbers::new(7);
    let (first, sql) = (ordered(bench, &query.sql("")), query.sql(""));
    assert!(first.is_complete && first.is_changed(), "{sql}\n{}", text(&first.plan));
    let first_view = new_view(bench, &sql);
    assert!(!first_view.join_order.is_as_written());
    for round in 0..24 {
        query.shuffle(&mut numbers);
        let again = query.sql("");
        let other = ordered(bench, &again);
        assert_eq!(text(&other.plan), text(&first.plan), "{sql}\n{again}");
        assert_eq!(other.report, first.report, "{sql}\n{again}");
        if round < 8 {
            let other = new_view(bench, &again);
            assert_eq!(format!("{:?}", other.graph), format!("{:?}", first_view.graph), "{sql}\n{again}");
            assert_eq!(other.join_report, first_view.join_report);
        }
    }
    first.report
}

#[test]
fn every_permutation_of_q5_has_the_same_plan() {
    let report = same_for_all_permutations(&tpc_h(), q5());
    // The one region's nations first, then their suppliers or customers, never a product of large relations.
    assert!(report.contains("r_regionkey") && !report.contains("Cross Join"), "{report}");
}

#[test]
fn every_permutation_of_q8_has_the_same_plan() {
    let report = same_for_all_permutations(&tpc_h(), q8());
    assert!(!report.contains("Cross Join"), "{report}");
}

#[test]
fn every_permutation_of_q9_has_the_same_plan() {
    let report = same_for_all_permutations(&tpc_h(), q9());
    assert!(!report.contains("Cross Join"), "{report}");
}

#[test]
fn every_permutation_of_a_star_has_the_same_plan() {
    let report = same_for_all_permutations(&star_bench(), star());
    assert!(!report.contains("Cross Join"), "{report}");
}

#[test]
fn the_smaller_side_is_built_and_the_selective_join_comes_first() {
    let mut bench = Bench::of(
        "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, a_id int, c_id int); CREATE TABLE c (id int PRIMARY KEY, v int);",
    );
    bench.know("a", rows(100_000.0));
    bench.know("b", rows(1_000_000.0));
    let v = ColumnStatistics { distinct: Some(1000.0), ..Default::default() };
    bench.know("c", RelationStatistics { columns: vec![ColumnStatistics::default(), v], ..rows(1000.0) });
    let report = ordered(&bench, "SELECT a.v FROM a, b, c WHERE a.id = b.a_id AND b.c_id = c.id AND c.v = 3").report;
    let wanted = "\
Join order, estimated
  Join on a.id = b.a_id  (rows=1000 cost=*)
    Join on b.c_id = c.id  (rows=1000 cost=*)
      c  (rows=1 of 1000)
      b  (rows=1000000)
    a  (rows=100000)
";
    let bare: String = report
        .lines()
        .map(|line| {
            line.split("cost=")
                .next()
                .map(|head| if head.len() < line.len() { format!("{head}cost=*)\n") } else { format!("{line}\n") })
                .unwrap_or_default()
        })
        .collect();
    assert_eq!(bare, wanted, "{report}");
}

#[test]
fn a_constant_holds_for_the_whole_class() {
    let mut bench = Bench::of("CREATE TABLE a (x int, y int); CREATE TABLE b (x int, y int); CREATE TABLE c (x int, y int);");
    bench.know("a", rows(1000.0));
    let plan = text(&ordered(&bench, "SELECT a.y FROM a, b, c WHERE a.x = b.x AND b.x = c.x AND c.x = 5").plan);
    for filter in ["a.x = Int32(5)", "b.x = Int32(5)", "c.x = Int32(5)"] {
        assert!(plan.contains(filter), "{plan}");
    }
}

#[test]
fn nothing_known_stays_as_it_is_written() {
    let bench = Bench::new();
    let sql = "SELECT t.id FROM bag, t, u WHERE u.t_id = t.id AND bag.k = t.k";
    let ordered = ordered(&bench, sql);
    assert!(!ordered.is_changed() && ordered.report.is_empty() && !ordered.is_complete);
    assert!(new_view(&bench, sql).join_order.is_as_written());
    let known = {
        let mut bench = Bench::new();
        bench.know("t", rows(0.0));
        bench
    };
    // An empty table says nothing of a view, which outlives that.
    assert!(new_view(&known, sql).join_order.is_as_written());
}

#[test]
fn hints_override_estimates() {
    let bench = tpc_h();
    let report = |hint: &str| ordered(&bench, &q5().sql(hint)).report;
    let led = report("/*+ LEADING(lineitem orders customer) */");
    assert!(led.starts_with("Join order, estimated, begun as the hint LEADING says"), "{led}");
    let lines: Vec<&str> = led.lines().map(str::trim).collect();
    let deepest = led.lines().max_by_key(|line| line.len() - line.trim_start().len()).unwrap_or_default().trim();
    assert!(deepest.starts_with("lineitem") || deepest.starts_with("orders"), "{led}");
    assert!(lines.iter().any(|line| line.starts_with("Join on")), "{led}");
    assert!(report("/*+ ROWS(orders 3) */").contains("orders  (rows=3 as the hint ROWS says)"));
    assert!(report("/*+ NOTHING(x) */").contains("Unknown hint: NOTHING(x)"));
    assert_eq!(report("/*+ LEADING(a b) */"), report(""));
    let outer = ordered(
        &bench,
        "SELECT /*+ LEADING(orders nation) */ o_orderkey FROM orders LEFT JOIN customer ON c_custkey = o_custkey
        LEFT JOIN nation ON n_nationkey = coalesce(c_nationkey, 0)",
    );
    assert!(outer.report.contains("not begun as the hint LEADING says"), "{}", outer.report);
}

#[test]
fn a_view_keeps_the_order_it_was_created_with() {
    let bench = tpc_h();
    for query in [q5(), q8(), q9()] {
        let sql = query.sql("");
        let created = new_view(&bench, &sql);
        let kept = JoinOrder::from_text(&created.join_order.to_string()).expect("an order");
        // Its relations have grown meanwhile.
        let mut later = tpc_h();
        for (name, count) in TPC_H_ROWS {
            later.know(name, rows(7_000_000.0 - count));
        }
        let again = view(&later, &sql, Joins::Kept(kept));
        assert_eq!(format!("{:?}", again.graph), format!("{:?}", created.graph), "{sql}");
        let anew = new_view(&later, &sql);
        assert_ne!(anew.join_order, created.join_order, "{sql}");
        let as_written = view(&bench, &sql, Joins::Kept(JoinOrder::as_written()));
        assert_eq!(format!("{:?}", as_written.graph), format!("{:?}", new_view(&Bench::of(TPC_H), &sql).graph), "{sql}");
    }
}

#[test]
fn an_order_outlives_new_names() {
    let renamed = |tables: [&str; 3]| {
        let [one, two, three] = tables;
        let mut bench = Bench::of(&format!(
            "CREATE TABLE {one} (id int PRIMARY KEY, v int); CREATE TABLE {two} (id int PRIMARY KEY, v int); CREATE TABLE {three} (id int PRIMARY KEY, v int);"
        ));
        for (at, name) in tables.iter().enumerate() {
            bench.know(name, rows(10_f64.powi(at as i32 + 1)));
        }
        let sql =
            format!("SELECT {one}.id FROM {three}, {two}, {one} WHERE {one}.v = {two}.v AND {two}.v = {three}.v AND {three}.id = {one}.id");
        (bench, sql)
    };
    let (bench, sql) = renamed(["aa", "bb", "cc"]);
    let (other, other_sql) = renamed(["zz", "yy", "xx"]);
    let created = new_view(&bench, &sql);
    assert!(!created.join_order.is_as_written());
    let again = view(&other, &other_sql, Joins::Kept(created.join_order.clone()));
    // Column numbers and operators, without names.
    let shape = |plan: &StreamPlan| {
        let joins = plan.graph.fragments.iter().flat_map(|fragment| &fragment.nodes).filter_map(|node| match &node.spec {
            millpond_engine::graph::OperatorSpec::Join(join) => Some(format!("{:?} {:?} {:?}", join.kind, join.on, join.output)),
            millpond_engine::graph::OperatorSpec::CollectionScan { collection, projection } => Some(format!("{collection} {projection:?}")),
            _ => None,
        });
        joins.collect::<Vec<_>>()
    };
    assert_eq!(shape(&again), shape(&created));
}

#[test]
fn a_query_without_joins_is_left_alone() {
    let bench = tpc_h();
    let ordered = ordered(&bench, "SELECT count(*) FROM lineitem WHERE l_quantity > 3");
    assert!(!ordered.is_changed() && ordered.is_complete && ordered.report.is_empty());
}

#[test]
fn a_search_can_be_interrupted() {
    let bench = star_bench();
    let state = session_state(session_config(), std::sync::Arc::new(RuntimeEnv::default()), Vec::new());
    let plan = state.optimize(&bench.bound(&star().sql("")).expect("a plan")).expect("a plan");
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = asked.clone();
    let interrupt = Interrupt::new(move || {
        if counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 10 {
            Ok(())
        } else {
            Err(crate::PlanError::new("57014", "canceled"))
        }
    });
    let ordering = Ordering::Chosen { statistics: &bench, model: &BatchCost, hints: &Hints::default() };
    let error = order_joins(plan, &ordering, &interrupt).expect_err("it is interrupted");
    assert_eq!(error.sqlstate, "57014");
}

#[test]
fn large_graphs_are_ordered_greedily() {
    let names: Vec<String> = (0..30).map(|at| format!("t{at:02}")).collect();
    let tables: String = names.iter().map(|name| format!("CREATE TABLE {name} (id int PRIMARY KEY, next int, v int);")).collect();
    let mut bench = Bench::of(&tables);
    let mut sizes = BTreeMap::new();
    for (at, name) in names.iter().enumerate() {
        sizes.insert(name.clone(), ((at * 7919) % 1000 + 1) as f64);
        bench.know(name, rows(sizes[name]));
    }
    let conditions: Vec<String> = names.windows(2).map(|pair| format!("{}.next = {}.id", pair[0], pair[1])).collect();
    let sql = format!("SELECT count(*) FROM {} WHERE {}", names.join(", "), conditions.join(" AND "));
    let ordered = ordered(&bench, &sql);
    assert!(ordered.is_changed() && !ordered.report.contains("Cross Join"), "{}", ordered.report);
}
