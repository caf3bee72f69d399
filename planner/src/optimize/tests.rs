//! Each rewrite on its own query.

use crate::test_bench::Bench;

fn contains(sql: &str, parts: &[&str]) {
    let plan = Bench::new().optimized(sql);
    for part in parts {
        assert!(plan.contains(part), "{sql}\n{plan}\nlacks {part}");
    }
}

fn lacks(sql: &str, parts: &[&str]) {
    let plan = Bench::new().optimized(sql);
    for part in parts {
        assert!(!plan.contains(part), "{sql}\n{plan}\nhas {part}");
    }
}

fn ranked(filter: &str) -> String {
    format!("SELECT id, rn FROM (SELECT id, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM t) AS x WHERE {filter}")
}

#[test]
fn filters_on_row_numbers_bound_the_top_n() {
    contains(&ranked("rn <= 3"), &["TopN: RowNumber partition by [t.k] order by [t.v DESC NULLS FIRST] limit=Some(3) offset=0"]);
    contains(&ranked("rn < 3"), &["limit=Some(2) offset=0"]);
    contains(&ranked("rn = 1"), &["limit=Some(1) offset=0"]);
    contains(&ranked("3 >= rn"), &["limit=Some(3) offset=0"]);
    contains(&ranked("rn BETWEEN 2 AND 4"), &["limit=Some(3) offset=1"]);
    contains(&ranked("rn > 1 AND rn <= 4"), &["limit=Some(3) offset=1"]);
    contains(&ranked("rn <= 0"), &["limit=Some(0) offset=0"]);
    lacks(&ranked("rn <= 3"), &["Filter", "WindowAggr"]);
}

#[test]
fn other_conjuncts_stay_above_the_top_n() {
    let plan = Bench::new().optimized(&ranked("rn <= 3 AND id > 5"));
    let (filter, top_n) = (plan.find("Filter: t.id > Int32(5)"), plan.find("TopN"));
    assert!(filter.is_some() && filter < top_n, "{plan}");
    let plan = Bench::new().optimized(&ranked("rn <> 3"));
    assert!(plan.contains("Filter") && plan.contains("limit=None offset=0"), "{plan}");
}

#[test]
fn ranks_with_ties_keep_lower_bounds_as_filters() {
    let sql = "SELECT id, r FROM (SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t) AS x WHERE r BETWEEN 2 AND 3";
    contains(sql, &["TopN: Rank", "limit=Some(3) offset=0", "Filter"]);
    let sql = "SELECT id FROM (SELECT id, dense_rank() OVER (ORDER BY v) AS r FROM t) AS x WHERE r <= 2";
    contains(sql, &["TopN: DenseRank partition by []", "limit=Some(2) offset=0"]);
}

#[test]
fn ranking_without_a_filter_ranks_all_rows() {
    contains("SELECT id, row_number() OVER (ORDER BY v) FROM t", &["TopN: RowNumber", "limit=None offset=0 emit=true"]);
}

#[test]
fn distinct_on_is_a_top_one() {
    let sql = "SELECT DISTINCT ON (k) k, id, v FROM t ORDER BY k, v DESC";
    contains(sql, &["TopN: RowNumber partition by [t.k] order by [t.v DESC NULLS FIRST] limit=Some(1)"]);
    lacks(sql, &["first_value", "Sort"]);
}

#[test]
fn order_by_limit_is_a_global_top_n() {
    contains(
        "SELECT id FROM t ORDER BY v DESC, id LIMIT 5 OFFSET 2",
        &["partition by [] order by [__order_0 DESC NULLS FIRST, id ASC NULLS LAST] limit=Some(5) offset=2"],
    );
    contains("SELECT id FROM t LIMIT 5", &["partition by [] order by [] limit=Some(5) offset=0"]);
    contains("SELECT id FROM t ORDER BY v OFFSET 2", &["limit=None offset=2"]);
    lacks("SELECT id FROM t ORDER BY v LIMIT ALL", &["TopN", "Sort", "Limit"]);
    lacks("SELECT id FROM t ORDER BY v", &["Sort"]);
    lacks("SELECT k, n FROM (SELECT k, count(*) AS n FROM t GROUP BY k ORDER BY n) AS x", &["Sort"]);
}

#[test]
fn subqueries_become_joins() {
    contains("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)", &["LeftSemi Join: t.id = __correlated_sq_1.t_id"]);
    contains("SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)", &["LeftAnti Join: t.id = __correlated_sq_1.t_id"]);
    contains("SELECT id FROM t WHERE id IN (SELECT t_id FROM u)", &["LeftSemi Join: t.id = __correlated_sq_1.t_id"]);
    contains("SELECT id FROM t WHERE v > 5 OR id IN (SELECT t_id FROM u)", &["LeftMark Join"]);
    contains("SELECT id, (SELECT sum(w) FROM u WHERE u.t_id = t.id) FROM t", &["Left Join: t.id = __scalar_sq_1.t_id", "Aggregate"]);
    contains("SELECT id FROM t WHERE v = (SELECT count(*) FROM u WHERE u.t_id = t.id)", &["Left Join", "__always_true"]);
    contains("SELECT id FROM t WHERE v = ANY (SELECT w FROM u)", &["LeftSemi Join"]);
    lacks("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id ORDER BY w LIMIT 1)", &["Subquery:", "TopN"]);
}

#[test]
fn not_in_asks_for_nulls() {
    let plan = Bench::new().optimized("SELECT id FROM t WHERE k NOT IN (SELECT t_id FROM u)");
    assert_eq!(plan.matches("LeftAnti Join").count(), 2, "{plan}");
    assert!(plan.contains("t_id IS NULL") && plan.contains("LeftMark Join") && plan.contains("t.k IS NOT NULL OR"), "{plan}");
}

#[test]
fn predicates_in_projections_have_three_values() {
    let plan = Bench::new().optimized("SELECT id, k NOT IN (SELECT t_id FROM u WHERE u.w = t.v) AS flag FROM t");
    assert!(!plan.contains("Subquery:") && plan.contains("Boolean(NULL)") && plan.contains("Filter: u.t_id IS NULL"), "{plan}");
    let plan = Bench::new().optimized("SELECT id, EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id) AS flag FROM t");
    assert!(plan.contains("Left Join") && !plan.contains("Subquery:"), "{plan}");
}

#[test]
fn uncorrelated_scalar_subqueries_are_guarded() {
    contains("SELECT id FROM t WHERE v = (SELECT w FROM u)", &["SingleRow"]);
    contains("SELECT id, (SELECT w FROM u) AS w FROM t", &["SingleRow"]);
    lacks("SELECT id FROM t WHERE v > (SELECT avg(w) FROM u)", &["SingleRow"]);
    lacks("SELECT id FROM t WHERE v > (SELECT w FROM u ORDER BY w LIMIT 1)", &["SingleRow"]);
}

#[test]
fn correlated_lookups_by_primary_key_are_joins() {
    contains("SELECT id, (SELECT s FROM u WHERE u.id = t.k) AS s FROM t", &["Left Join: t.k = __scalar_sq_1.id"]);
}

#[test]
fn limits_in_correlated_subqueries_are_per_key() {
    contains(
        "SELECT id, (SELECT s FROM u WHERE u.t_id = t.id ORDER BY w DESC LIMIT 1) AS s FROM t",
        &[
            "TopN: RowNumber partition by [u.t_id] order by [__order_0 DESC NULLS FIRST] limit=Some(1)",
            "Left Join: t.id = __scalar_sq_1.t_id",
        ],
    );
    contains(
        "SELECT t.id, x.s FROM t CROSS JOIN LATERAL (SELECT s FROM u WHERE u.t_id = t.id AND w > 5 ORDER BY w DESC LIMIT 1) AS x",
        &["TopN: RowNumber partition by [u.t_id]", "limit=Some(1)", "Inner Join"],
    );
    contains(
        "SELECT t.id, x.s FROM t LEFT JOIN LATERAL (SELECT DISTINCT ON (s) s, w FROM u WHERE u.t_id = t.id ORDER BY s, w) AS x ON true",
        &["TopN: RowNumber partition by [u.t_id", "limit=Some(1)", "Left Join"],
    );
}
