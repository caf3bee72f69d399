//! Statements that change the catalog and rows.

use super::{super::*, Bench, check};
use crate::catalog::ObjectBody;

#[test]
fn rows_are_written_as_their_columns_want_them() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE t (n NUMERIC(5,2), s VARCHAR(4), i SMALLINT DEFAULT 7, at timestamptz DEFAULT now());
         INSERT INTO t VALUES (999.994, 'abcd  ', 32767), (1.005, '', -32768);
         INSERT INTO t (s) VALUES ('x'), (DEFAULT);
         INSERT INTO t (n, s) SELECT 5, 'y'",
    );
    check(
        &bench,
        &[(
            "SELECT n, '[' || s || ']', i FROM t ORDER BY n, s",
            &["1.01 [] -32768", "5.00 [y] 7", "999.99 [abcd] 32767", "NULL [x] 7", "NULL NULL 7"],
        )],
    );
    for (sql, code) in [
        ("INSERT INTO t VALUES (1000, 'a', 1)", "22003"),
        ("INSERT INTO t VALUES (1, 'abcde', 1)", "22001"),
        ("INSERT INTO t VALUES (1, 'a', 40000)", "22003"),
    ] {
        let error = bench.run_one(sql).unwrap_err();
        assert_eq!(error.sqlstate, code, "{sql}");
    }
}

#[test]
fn rows_are_changed_and_removed() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE t (k int, v int); CREATE TABLE s (k int, v int);
         INSERT INTO t VALUES (1, 1), (2, 2), (3, 3); INSERT INTO s VALUES (1, 100), (3, 300);
         UPDATE t SET v = (SELECT s.v FROM s WHERE s.k = t.k) WHERE k < 3",
    );
    check(&bench, &[("SELECT * FROM t ORDER BY k", &["1 100", "2 NULL", "3 3"])]);
    bench.run("UPDATE t SET v = v + 1 WHERE k IN (SELECT k FROM s); DELETE FROM t WHERE k NOT IN (SELECT k FROM s)");
    check(&bench, &[("SELECT * FROM t ORDER BY k", &["1 101", "3 4"])]);
    bench.run("UPDATE t AS x SET v = s.v, k = x.k + 10 FROM s WHERE s.k = x.k AND s.v > 200; DELETE FROM t USING s WHERE t.k = s.k");
    check(&bench, &[("SELECT * FROM t ORDER BY k", &["13 300"])]);
    let bound = bench.bind("UPDATE t SET v = 5 RETURNING k, v AS w, t.*").unwrap();
    assert_eq!(bound.columns.unwrap().iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["k", "w", "k", "v"]);
}

#[test]
fn conflicts_need_the_key() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (k int PRIMARY KEY, v int)");
    let insert = |sql: &str| match bench.bind(sql).map(|bound| bound.statement) {
        Ok(BoundStatement::Insert(insert)) => Ok(insert),
        Ok(_) => panic!("{sql}"),
        Err(error) => Err(error),
    };
    assert!(matches!(insert("INSERT INTO t VALUES (1, 2) ON CONFLICT DO NOTHING").unwrap().on_conflict, Some(OnConflict::Nothing)));
    let update =
        insert("INSERT INTO t VALUES (1, 2) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v WHERE t.v < 5 RETURNING *").unwrap();
    let Some(OnConflict::Update { assignments, condition }) = update.on_conflict else { panic!() };
    assert_eq!(
        assignments.iter().map(|value| value.schema_name().to_string()).collect::<Vec<_>>(),
        ["existing.k", "(existing.v + excluded.v)"]
    );
    assert!(condition.is_some() && update.values.is_some());
    assert_eq!(insert("INSERT INTO t VALUES (1, 2) ON CONFLICT (v) DO NOTHING").unwrap_err().sqlstate, "42P10");
}

#[test]
fn stored_queries_name_their_schemas_and_follow_renames() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE t (v int); CREATE TABLE \"B71_Acct\" (\"acctNo\" text PRIMARY KEY, Bal int, \"order\" int);
         CREATE MATERIALIZED VIEW m AS SELECT sum(t.v) AS s\n  FROM t WHERE t.v > (SELECT min(x.v) FROM t x);
         CREATE MATERIALIZED VIEW B71_View (Total, \"Max Order\") AS SELECT sum(bal), max(\"order\") FROM \"B71_Acct\"",
    );
    let definition = |bench: &Bench, name: &str| {
        let found = bench.catalog.objects().find(|object| object.name == name).unwrap();
        found.definition().unwrap().to_owned()
    };
    assert_eq!(definition(&bench, "m"), "SELECT sum(t.v) AS s\n  FROM public.t WHERE t.v > (SELECT min(x.v) FROM public.t x)");
    bench.run("ALTER TABLE t RENAME TO moved");
    assert_eq!(definition(&bench, "m"), "SELECT sum(t.v) AS s\n  FROM public.moved AS t WHERE t.v > (SELECT min(x.v) FROM public.moved x)");
    check(&bench, &[("SELECT total, \"Max Order\" FROM b71_VIEW", &[])]);
    assert!(bench.bind("SELECT v FROM t").is_err());
    bench.run("CREATE TABLE t (v int); DROP TABLE t; CREATE SCHEMA s; ALTER TABLE moved SET SCHEMA s");
    assert!(definition(&bench, "m").contains("s.moved AS t"));
    bench.run("DROP SCHEMA s CASCADE");
    assert!(bench.bind("SELECT * FROM m").is_err());
}

#[test]
fn definitions_are_settled() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE e (at timestamp, v int CHECK (v > 0), WATERMARK FOR at AS at - INTERVAL '5 seconds') APPEND ONLY WITH (late_rows = 'divert');
         CREATE SOURCE s (a bigint, at timestamp, WATERMARK FOR at AS at) WITH (connector = 'file', path = 'x', format = 'csv');
         CREATE SINK k AS SELECT a FROM s WITH (connector = 'blackhole'); CREATE INDEX ON e (v DESC);
         CREATE TABLE d (a int, b int, CHECK (a > 1), CHECK (a > b));
         CREATE TABLE c AS SELECT 1 AS one, 'x' AS two, 1.5 AS three",
    );
    let body = |name: &str| bench.catalog.objects().find(|object| object.name == name).unwrap().body.clone();
    let ObjectBody::Table(table) = body("e") else { panic!() };
    assert_eq!(table.watermark.unwrap().delay_us, 5_000_000);
    assert_eq!(table.checks[0].name, "e_v_check");
    let ObjectBody::Table(table) = body("d") else { panic!() };
    assert_eq!([table.checks[0].name.as_str(), table.checks[1].name.as_str()], ["d_a_check", "d_check"]);
    let ObjectBody::Source(source) = body("s") else { panic!() };
    assert_eq!((source.watermark.unwrap().delay_us, source.options["connector"].as_str()), (0, "file"));
    assert!(matches!(body("e_v_idx"), ObjectBody::Index(_)));
    let ObjectBody::Table(table) = body("c") else { panic!() };
    let types: Vec<String> = table.columns.iter().map(|column| column.sql_type.name()).collect();
    assert_eq!(types, ["integer", "text", "numeric"]);
    assert_eq!(bench.bind("CREATE SOURCE x (a int) WITH (path = 'y')").unwrap_err().sqlstate, "22023");
}
