//! A view equals its query: planned graphs run, operator by operator, over random histories of changes, and after every epoch their contents
//! are compared with DataFusion's answer to the same SQL over the tables as they are then.
//!
//! One subtask, no channels: this tests the planner together with the operators, not the runtime. A failure prints its seed; the environment
//! variable MILLPOND_SEED repeats it.

mod history;
mod reference;
mod runner;

use std::collections::BTreeMap;

pub(crate) use self::history::Numbers;
use self::{history::History, reference::Reference, runner::Runner};
use crate::test_bench::Bench;

/// Rows as text, with their multiplicities.
type Contents = BTreeMap<String, i64>;

const EPOCHS: usize = 12;

fn seed() -> u64 {
    std::env::var("MILLPOND_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_101)
}

/// Runs the queries, each over a history of its own.
fn compare(queries: &[&str]) {
    let bench = Bench::new();
    let mut failures = String::new();
    for (number, sql) in queries.iter().enumerate() {
        let seed = seed().wrapping_add(number as u64);
        if let Err(difference) = follow(&bench, sql, seed) {
            failures.push_str(&format!("{sql}\nseed {seed}: {difference}\n{}\n", bench.explain(sql)));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn follow(bench: &Bench, sql: &str, seed: u64) -> Result<(), String> {
    let plan = bench.plan(sql);
    let Some(mut runner) = Runner::new(plan, seed)? else { return Ok(()) };
    let mut history = History::new(bench, seed);
    let reference = Reference::new();
    for epoch in 1..=EPOCHS {
        let changes = history.step();
        runner.epoch(&changes)?;
        let (got, wanted) = (runner.contents(), reference.answer(bench, &history, sql)?);
        if *got != wanted {
            let only = |one: &Contents, two: &Contents| {
                one.iter()
                    .filter(|(row, count)| two.get(*row) != Some(count))
                    .map(|(row, count)| format!("\n  {count} x {row}"))
                    .collect::<String>()
            };
            return Err(format!("epoch {epoch}\n view:{}\n query:{}", only(got, &wanted), only(&wanted, got)));
        }
    }
    Ok(())
}

#[test]
fn rows_and_unions() {
    compare(&[
        "SELECT id, k + 1 AS k1, upper(s) AS up FROM t WHERE v > 2 OR v IS NULL",
        "SELECT id FROM t UNION ALL SELECT t_id FROM u",
        "SELECT 1 AS one, 'a' AS two",
        "SELECT id, v FROM t UNION ALL SELECT 7, 8",
        "SELECT k, v FROM bag",
        "SELECT DISTINCT k, v FROM bag",
        "SELECT k FROM bag UNION SELECT k FROM t",
        "SELECT k, v FROM bag INTERSECT SELECT k, v FROM t",
        "SELECT k, v FROM bag EXCEPT SELECT k, v FROM t",
        "SELECT k FROM t UNION ALL SELECT k FROM t",
    ]);
}

#[test]
fn aggregates() {
    compare(&[
        "SELECT count(*) AS n, count(v) AS nv, sum(v) AS sv, min(v) AS lo, max(v) AS hi, count(DISTINCT k) AS dk FROM t",
        "SELECT k, count(*) AS n, sum(v) AS sv, min(s) AS lo, max(v) AS hi FROM t GROUP BY k",
        "SELECT k, sum(v) AS sv FROM bag GROUP BY k HAVING sum(v) > 3",
        "SELECT k, count(*) FILTER (WHERE v > 2) AS n, count(DISTINCT v) FILTER (WHERE v < 4) AS d FROM bag GROUP BY k",
        "SELECT v + 1 AS v1, k, count(*) AS n FROM bag GROUP BY v + 1, k",
        "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM bag GROUP BY k) AS x GROUP BY n",
        "SELECT k, bool_and(v > 2) AS a, bool_or(v > 2) AS o, avg(v) AS mean FROM bag GROUP BY k",
        "SELECT k, v, count(*) AS n FROM bag GROUP BY GROUPING SETS ((k, v), (k), ())",
        "SELECT k, v, grouping(k) AS g, sum(v) AS sv FROM bag GROUP BY ROLLUP (k, v)",
        "SELECT k, v, count(*) AS n FROM bag GROUP BY CUBE (k, v)",
        "SELECT max(n) AS top FROM (SELECT count(*) AS n FROM bag GROUP BY k) AS x",
    ]);
}

#[test]
fn joins() {
    compare(&[
        "SELECT t.id, u.id AS uid, u.w FROM t JOIN u ON u.t_id = t.id",
        "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.t_id = t.id AND u.w > t.v",
        "SELECT t.id, u.id AS uid FROM t RIGHT JOIN u ON u.t_id = t.id",
        "SELECT t.id, u.id AS uid, t.s, u.s AS us FROM t FULL JOIN u ON u.t_id = t.k",
        "SELECT a.k, b.v FROM bag a JOIN bag b ON a.k = b.k AND a.v < b.v",
        "SELECT t.id, u.id AS uid FROM t JOIN u ON u.w > t.v",
        "SELECT t.id, u.id AS uid FROM t LEFT JOIN u ON u.w > t.v AND u.id < 5",
        "SELECT t.id, u.id AS uid FROM t JOIN u ON u.t_id + 1 = t.id",
        "SELECT a.k, a.n, b.top FROM (SELECT k, count(*) AS n FROM bag GROUP BY k) a JOIN (SELECT k, max(v) AS top FROM bag GROUP BY k) b ON a.k = b.k",
        "SELECT a.k AS ak, b.k AS bk FROM (SELECT k, sum(v) AS x FROM bag GROUP BY k) a JOIN (SELECT k, sum(v) AS x FROM bag GROUP BY k) b ON a.x = b.x",
        "SELECT t.id, u.id AS uid, b.v FROM t JOIN u ON u.t_id = t.id JOIN bag b ON b.k = t.k",
        "SELECT count(*) AS n FROM t, u, bag b WHERE t.id = u.t_id AND b.k = t.k AND b.v > 1",
        "SELECT t.id FROM t JOIN u ON (t.id IS NOT DISTINCT FROM u.t_id) AND t.v = u.w",
    ]);
}

#[test]
fn subqueries() {
    compare(&[
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id)",
        "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.id AND u.w > t.v)",
        "SELECT k, v FROM bag WHERE k IN (SELECT t_id FROM u)",
        "SELECT id FROM t WHERE v > 5 OR id IN (SELECT t_id FROM u)",
        "SELECT id FROM t WHERE v > (SELECT avg(w) FROM u)",
        "SELECT id, (SELECT sum(w) FROM u WHERE u.t_id = t.id) AS x FROM t",
        "SELECT id, (SELECT count(*) FROM u WHERE u.t_id = t.id) AS n FROM t",
        "SELECT id FROM t WHERE v = (SELECT count(*) FROM u WHERE u.t_id = t.id)",
        "SELECT id FROM t WHERE v > ALL (SELECT w FROM u WHERE u.t_id = t.id)",
    ]);
}

/// Limits under correlation, which DataFusion does not plan, against another way to say the same.
#[test]
fn correlated_limits() {
    compare_with(&[
        (
            "SELECT id, (SELECT w FROM u WHERE u.t_id = t.id ORDER BY w DESC NULLS LAST LIMIT 1) AS w FROM t",
            "SELECT id, (SELECT max(w) FROM u WHERE u.t_id = t.id) AS w FROM t",
        ),
        (
            "SELECT t.id, x.uid FROM t CROSS JOIN LATERAL (SELECT id AS uid FROM u WHERE u.t_id = t.k AND w > 1 ORDER BY id LIMIT 2) AS x",
            "SELECT t.id, x.id FROM t JOIN (SELECT id, t_id, row_number() OVER (PARTITION BY t_id ORDER BY id) AS rn FROM u WHERE w > 1) AS x \
             ON x.t_id = t.k WHERE x.rn <= 2",
        ),
        (
            "SELECT t.id, x.uid FROM t LEFT JOIN LATERAL (SELECT DISTINCT ON (s) s, id AS uid FROM u WHERE u.t_id = t.k ORDER BY s, id DESC) AS x ON true",
            "SELECT t.id, x.uid FROM t LEFT JOIN (SELECT t_id, s, max(id) AS uid FROM u GROUP BY t_id, s) AS x ON x.t_id = t.k",
        ),
    ]);
}

/// `NOT IN` and values of `IN` against their definition, which DataFusion's own answer does not always follow.
#[test]
fn not_in() {
    compare_with(&[
        (
            "SELECT id FROM t WHERE k NOT IN (SELECT t_id FROM u)",
            "SELECT id FROM t WHERE (SELECT count(*) FROM u) = 0 OR (k IS NOT NULL AND (SELECT count(*) FROM u WHERE t_id IS NULL) = 0 \
             AND NOT EXISTS (SELECT 1 FROM u WHERE u.t_id = t.k))",
        ),
        (
            "SELECT id, k IN (SELECT t_id FROM u WHERE u.w = t.v) AS f FROM t",
            "SELECT id, CASE WHEN (SELECT count(*) FROM u WHERE u.w = t.v) = 0 THEN false \
             WHEN (SELECT count(*) FROM u WHERE u.w = t.v AND u.t_id = t.k) > 0 THEN true \
             WHEN k IS NULL OR (SELECT count(*) FROM u WHERE u.w = t.v AND t_id IS NULL) > 0 THEN NULL ELSE false END AS f FROM t",
        ),
        (
            "SELECT id FROM t WHERE NOT (k IN (SELECT t_id FROM u WHERE u.w = t.v) AND v > 1)",
            "SELECT id FROM t WHERE NOT (CASE WHEN (SELECT count(*) FROM u WHERE u.w = t.v) = 0 THEN false \
             WHEN (SELECT count(*) FROM u WHERE u.w = t.v AND u.t_id = t.k) > 0 THEN true \
             WHEN k IS NULL OR (SELECT count(*) FROM u WHERE u.w = t.v AND t_id IS NULL) > 0 THEN NULL ELSE false END AND v > 1)",
        ),
    ]);
}

fn compare_with(pairs: &[(&str, &str)]) {
    let bench = Bench::new();
    for (number, (sql, definition)) in pairs.iter().enumerate() {
        let seed = seed().wrapping_add(number as u64);
        let Some(mut runner) = Runner::new(bench.plan(sql), seed).expect("operators can be built") else { continue };
        let mut history = History::new(&bench, seed);
        let reference = Reference::new();
        for epoch in 1..=EPOCHS {
            runner.epoch(&history.step()).expect("operators run");
            let wanted = reference.answer(&bench, &history, definition).expect("the definition can be run");
            assert_eq!(*runner.contents(), wanted, "{sql}\nseed {seed}, epoch {epoch}\n{}", bench.explain(sql));
        }
    }
}

#[test]
fn top_n() {
    compare(&[
        "SELECT id, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3",
        "SELECT id, v FROM t ORDER BY v, id LIMIT 3 OFFSET 2",
        "SELECT id, k, rn FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS rn FROM t) x WHERE rn <= 2",
        "SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) x WHERE rn BETWEEN 2 AND 3",
        "SELECT id, r FROM (SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t) x WHERE r <= 2",
        "SELECT id, r FROM (SELECT id, dense_rank() OVER (ORDER BY v) AS r FROM t) x WHERE r <= 2",
        "SELECT DISTINCT ON (k) k, id, v FROM t ORDER BY k, v DESC, id",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY v, id) AS rn FROM t",
    ]);
}
