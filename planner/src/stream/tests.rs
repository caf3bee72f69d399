//! Plans of small queries, and the golden plans of the Nexmark queries (`planner/tests/plans`, rewritten when MILLPOND_BLESS=1).

use std::{fs, path::PathBuf};

use millpond_engine::graph::CollectionKeySpec;

use super::ViewOptions;
use crate::test_bench::{Bench, VIEW};

fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/plans").join(format!("{name}.txt"));
    if std::env::var_os("MILLPOND_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, text).expect("the folder of the golden plans can be written");
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expected, text, "{} differs; bless with MILLPOND_BLESS=1", path.display());
}

fn refused(sql: &str) -> (String, String) {
    let error = Bench::new().plan_with(sql, &ViewOptions::collection(VIEW)).expect_err(sql);
    assert_eq!(error.sqlstate, "0A000", "{sql}: {error}");
    (error.message, error.hint.expect("a refusal has a hint"))
}

#[test]
fn what_views_cannot_do_is_refused_with_a_hint() {
    for (sql, part) in [
        ("SELECT sum(v) OVER (PARTITION BY k) FROM t", "window functions"),
        ("SELECT random() FROM t", "random()"),
        ("SELECT id FROM t WHERE now() > TIMESTAMP '2020-01-01'", "now()"),
        ("SELECT corr(v, k) FROM t", "corr()"),
    ] {
        let (message, _) = refused(sql);
        assert!(message.contains(part), "{sql}: {message}");
    }
}

#[test]
fn keys_follow_what_is_unique() {
    let key = |sql: &str| Bench::new().plan(sql).key;
    assert_eq!(key("SELECT v, id FROM t"), CollectionKeySpec::Columns(vec![1]));
    assert_eq!(key("SELECT v FROM t"), CollectionKeySpec::WholeRow);
    assert_eq!(key("SELECT count(*), k FROM t GROUP BY k"), CollectionKeySpec::Columns(vec![1]));
    assert_eq!(key("SELECT count(*) FROM t"), CollectionKeySpec::WholeRow);
    assert_eq!(key("SELECT auction FROM bid"), CollectionKeySpec::AppendOnly);
    assert_eq!(key("SELECT DISTINCT auction FROM bid"), CollectionKeySpec::AppendOnly);
    assert_eq!(key("SELECT auction, count(*) FROM bid GROUP BY auction"), CollectionKeySpec::Columns(vec![0]));
    // Many rows of u per row of t, so u's key says it all; a FULL JOIN has no key.
    assert_eq!(key("SELECT t.id, u.id FROM t JOIN u ON u.t_id = t.id"), CollectionKeySpec::Columns(vec![1]));
    assert_eq!(key("SELECT t.id, u.id FROM t LEFT JOIN u ON u.t_id = t.id"), CollectionKeySpec::Columns(vec![0, 1]));
    assert_eq!(key("SELECT t.id, u.id FROM t FULL JOIN u ON u.t_id = t.id"), CollectionKeySpec::WholeRow);
    assert_eq!(key("SELECT DISTINCT ON (k) v, k FROM t ORDER BY k, v"), CollectionKeySpec::Columns(vec![1]));
}

#[test]
fn late_rows_of_tables_keep_state() {
    let bench = Bench::new();
    let sql = "SELECT window_start, count(*) FROM TUMBLE(event, at, INTERVAL '10' SECOND) GROUP BY window_start";
    let plain = bench.explain(sql);
    assert!(plain.contains("state: groups, for ever") && plain.contains("watermark (window_start)"), "{plain}");
    let closed = bench.explain_on_close(sql);
    assert!(closed.contains("emitted when window_start closes") && closed.contains("append-only"), "{closed}");
}

#[test]
fn closing_needs_a_watermark() {
    let options = ViewOptions { emit_on_window_close: true, ..ViewOptions::collection(VIEW) };
    for sql in ["SELECT k, count(*) FROM t GROUP BY k", "SELECT count(*) FROM bid", "SELECT b.price FROM bid b JOIN t ON t.id = b.auction"]
    {
        let error = Bench::new().plan_with(sql, &options).expect_err(sql);
        assert_eq!(error.sqlstate, "0A000");
        assert!(error.hint.is_some_and(|hint| hint.contains("WATERMARK FOR")));
    }
}

#[test]
fn outer_joins_close_by_the_side_that_is_always_there() {
    let on = "a.k = e.k AND e.at BETWEEN a.at AND a.at + INTERVAL '10' SECOND";
    let closed_by = |join: &str, columns: &str| {
        let plan = Bench::new().explain_on_close(&format!("SELECT {columns} FROM event e {join} event a ON {on}"));
        let lines = plan.lines().filter(|line| line.contains("EmitOnWindowClose"));
        lines.map(|line| line.rsplit("watermark (").next().unwrap_or_default().trim_end_matches(")]").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(closed_by("JOIN", "e.at AS e_at, a.at AS a_at"), ["e_at"]);
    assert_eq!(closed_by("LEFT JOIN", "a.at AS a_at, e.at AS e_at"), ["e_at"]);
    assert_eq!(closed_by("RIGHT JOIN", "e.at AS e_at, a.at AS a_at"), ["a_at"]);
    assert_eq!(closed_by("RIGHT JOIN", "e.v"), ["at"], "the query does not show it");
    let mut both = closed_by("FULL JOIN", "e.at AS e_at, a.at AS a_at");
    both.sort_unstable();
    assert_eq!(both, ["a_at", "e_at"]);
    // A left row may find its match at any later time.
    let options = ViewOptions { emit_on_window_close: true, ..ViewOptions::collection(VIEW) };
    let sql = "SELECT e.v, a.v FROM event e LEFT JOIN event a ON a.k = e.k AND a.at >= e.at";
    assert_eq!(Bench::new().plan_with(sql, &options).expect_err(sql).sqlstate, "0A000");
    let plan = Bench::new().plan("SELECT e.at, a.at FROM event e FULL JOIN event a ON a.k = e.k AND a.at = e.at");
    assert!(plan.watermark_columns.is_empty(), "a row of one side alone is not closed by the other's time");
}

#[test]
fn inequalities_free_join_state() {
    let bench = Bench::new();
    let plan = bench.explain(
        "SELECT b.auction, a.id FROM bid b JOIN auction a ON a.id = b.auction
         AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL '10' SECOND",
    );
    assert!(plan.contains("left rows, until the watermark passes date_time\n"), "{plan}");
    assert!(plan.contains("right rows, until the watermark passes date_time + 10 s"), "{plan}");
    let plan = bench.explain("SELECT b.auction FROM bid b JOIN auction a ON a.id = b.auction AND b.date_time >= a.date_time");
    assert!(plan.contains("left rows, until the watermark passes date_time\n") && plan.contains("right rows, for ever"), "{plan}");
    let plan = bench.explain(
        "SELECT a.id FROM auction a WHERE NOT EXISTS (SELECT 1 FROM bid b WHERE b.auction = a.id
         AND b.date_time BETWEEN a.date_time AND a.date_time + INTERVAL '10' SECOND AND b.price > 1)",
    );
    assert!(plan.contains("AntiJoin") && !plan.contains("SemiJoin") && !plan.contains("for ever"), "no domain is needed: {plan}");
    let plan = bench.explain("SELECT b.price FROM bid b JOIN event e ON e.v = b.price AND b.date_time = e.at");
    assert!(!plan.contains("rows, until the watermark"), "late rows of a table may come: {plan}");
}

/// Small queries whose whole plan matters.
#[test]
fn small_plans() {
    let bench = Bench::new();
    let mut text = String::new();
    for sql in [
        "SELECT 1 AS one, 'a' AS two",
        "SELECT id FROM t UNION ALL SELECT 7",
        "SELECT v FROM t UNION SELECT w FROM u",
        "SELECT v FROM t INTERSECT SELECT w FROM u",
        "SELECT v FROM t EXCEPT SELECT w FROM u",
        "SELECT count(*), sum(v), min(s), count(DISTINCT k) FILTER (WHERE v > 3), string_agg(s, ',' ORDER BY id) FROM t",
        "SELECT k, sum(v) FROM t GROUP BY k HAVING sum(v) > 0",
        "SELECT s, k, sum(v), grouping(s) FROM t GROUP BY GROUPING SETS ((s), (k), ())",
        "SELECT t.s, u.s FROM t LEFT JOIN u ON u.t_id = t.id AND u.w > t.v",
        "SELECT t.s, u.s FROM t JOIN u ON u.w > t.v",
        "SELECT id FROM t WHERE v > (SELECT avg(w) FROM u)",
        "SELECT id, v = (SELECT w FROM u) FROM t",
        "SELECT id, (SELECT w FROM u WHERE u.t_id = t.id) AS w FROM t",
        "SELECT id, (SELECT w FROM u WHERE u.id = t.k) AS w FROM t",
        "SELECT id, (SELECT w FROM u WHERE u.t_id = t.id ORDER BY w DESC LIMIT 1) AS w FROM t",
        "SELECT id FROM t WHERE k NOT IN (SELECT t_id FROM u)",
        "WITH sums AS (SELECT k, sum(v) AS total FROM t GROUP BY k) SELECT a.k FROM sums a JOIN sums b ON a.total = b.total",
        "SELECT a.k FROM (SELECT k, sum(v) AS total FROM bag GROUP BY k) a JOIN (SELECT k, max(v) AS top FROM bag GROUP BY k) b ON a.k = b.k",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY v) AS rn FROM t",
        "SELECT id FROM t ORDER BY v LIMIT 3",
        "SELECT id FROM t ORDER BY v LIMIT 0",
        "SELECT count(*) FROM (SELECT 1 FROM t UNION ALL SELECT 2 FROM u) x",
    ] {
        text.push_str(&format!("{sql}\n\n{}\n", bench.explain(sql)));
    }
    golden("small", &text);
}

/// The Nexmark queries, as they stand in the yardstick.
#[test]
fn nexmark_plans() {
    let queries = include_str!("../../tests/plans/nexmark.sql");
    let bench = Bench::new();
    for section in queries.split("\n-- q").skip(1) {
        let (name, sql) = section.split_once('\n').expect("a name and a query");
        if name.contains('@') || name == "11" {
            continue;
        }
        golden(&format!("q{name}"), &bench.explain(sql.trim().trim_end_matches(';')));
    }
}

#[test]
fn nexmark_windows_close() {
    let queries = include_str!("../../tests/plans/nexmark.sql");
    let bench = Bench::new();
    let mut text = String::new();
    for section in queries.split("\n-- q").skip(1) {
        let (name, sql) = section.split_once('\n').expect("a name and a query");
        if ["5", "8"].contains(&name) {
            text.push_str(&format!("q{name}\n\n{}\n", bench.explain_on_close(sql.trim().trim_end_matches(';'))));
        }
    }
    golden("on_close", &text);
}
