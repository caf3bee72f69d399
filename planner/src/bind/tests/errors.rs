//! What is wrong with a statement, in Postgres' words and at Postgres' place.

use super::Bench;
use crate::bind::BoundStatement;

#[test]
fn errors_have_postgres_codes_words_and_places() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE t (a int, b text, d date); CREATE TABLE u (a int); CREATE MATERIALIZED VIEW m AS SELECT a FROM t; CREATE SCHEMA s; CREATE TABLE s.t (z int)",
    );
    for (sql, code, message, position) in [
        ("SELECT nosuch FROM t", "42703", "column \"nosuch\" does not exist", 8),
        ("SELECT t.nosuch FROM t", "42703", "column t.nosuch does not exist", 8),
        ("SELECT x.a FROM t", "42P01", "missing FROM-clause entry for table \"x\"", 8),
        ("SELECT * FROM nosuch", "42P01", "relation \"nosuch\" does not exist", 15),
        ("SELECT * FROM s.nosuch", "42P01", "relation \"s.nosuch\" does not exist", 15),
        ("SELECT nosuch(a) FROM t", "42883", "function nosuch(integer) does not exist", 8),
        ("SELECT a + b FROM t", "42883", "operator does not exist: integer + text", 8),
        ("SELECT a FROM t, u", "42702", "column reference \"a\" is ambiguous", 8),
        ("SELECT a, sum(a) FROM t", "42803", "column \"t.a\" must appear in the GROUP BY clause or be used in an aggregate function", 8),
        ("SELECT t.a FROM public.t, s.t", "42P09", "table reference \"t\" is ambiguous", 8),
        ("SELECT a FROM t WHERE sum(a) > 1", "42803", "aggregate functions are not allowed in WHERE", 23),
        ("SELECT a FROM t WHERE row_number() OVER () > 1", "42P20", "window functions are not allowed in WHERE", 23),
        ("SELECT a FROM t WHERE a", "42804", "argument of WHERE must be type boolean, not type integer", 23),
        ("SELECT CASE WHEN true THEN 1 ELSE b END FROM t", "42804", "CASE types text and integer cannot be matched", 28),
        ("SELECT a FROM t UNION SELECT b FROM t", "42804", "UNION types integer and text cannot be matched", 30),
        ("SELECT a::date FROM t", "42846", "cannot cast type integer to date", 8),
        ("SELECT 'x'::nosuch", "42704", "type \"nosuch\" does not exist", 8),
        ("SELECT 'abc'::int", "22P02", "invalid input syntax for type integer: \"abc\"", 8),
        ("SELECT a FROM t ORDER BY 5", "42P10", "ORDER BY position 5 is not in select list", 26),
        ("SELECT DISTINCT a FROM t ORDER BY b", "42P10", "for SELECT DISTINCT, ORDER BY expressions must appear in select list", 0),
        ("SELECT * FROM t, t", "42712", "table name \"t\" specified more than once", 0),
        ("INSERT INTO t (a, a) VALUES (1, 2)", "42701", "column \"a\" specified more than once", 19),
        ("INSERT INTO t (nosuch) VALUES (1)", "42703", "column \"nosuch\" of relation \"t\" does not exist", 16),
        ("INSERT INTO t VALUES (1, 'x', '2031-01-01', 4)", "42601", "INSERT has more expressions than target columns", 0),
        ("INSERT INTO t (a, b) VALUES (1)", "42601", "INSERT has more target columns than expressions", 0),
        ("INSERT INTO t (d) VALUES (5)", "42804", "column \"d\" is of type date but expression is of type integer", 27),
        ("INSERT INTO m VALUES (1)", "42809", "cannot change materialized view \"m\"", 13),
        ("UPDATE t SET nosuch = 1", "42703", "column \"nosuch\" of relation \"t\" does not exist", 14),
        ("CREATE TABLE t (a int)", "42P07", "relation \"t\" already exists", 0),
        ("CREATE TABLE x (a int, A text)", "42701", "column \"a\" specified more than once", 24),
        ("CREATE TABLE nosuch.t (a int)", "3F000", "schema \"nosuch\" does not exist", 0),
        ("CREATE TABLE x (id SERIAL PRIMARY KEY)", "0A000", "type serial is not supported", 17),
        ("CREATE TABLE x (id \"bigserial\")", "0A000", "type bigserial is not supported", 17),
        ("CREATE TABLE pg_catalog.t (a int)", "42501", "permission denied to create \"pg_catalog.t\"", 0),
        ("DROP TABLE t", "2BP01", "cannot drop table t because other objects depend on it", 0),
        ("DROP TABLE nosuch", "42P01", "table \"nosuch\" does not exist", 12),
        ("DROP VIEW m", "42809", "\"m\" is not a view", 11),
        ("DROP SCHEMA nosuch", "3F000", "schema \"nosuch\" does not exist", 13),
        ("CREATE VIEW v AS SELECT $1", "42P02", "there is no parameter $1", 0),
        ("SELECT (SELECT a, b FROM t)", "42601", "subquery must return only one column", 0),
        ("SELECT a FROM t LIMIT -1", "2201W", "LIMIT must not be negative", 0),
        ("SELECT count(*) OVER w FROM t", "42704", "window \"w\" does not exist", 22),
        ("SELECT ARRAY[]", "42P18", "cannot determine type of empty array", 0),
    ] {
        let error = match bench.bind(sql) {
            Err(error) => error,
            Ok(_) => panic!("{sql} was bound"),
        };
        assert_eq!((error.sqlstate, error.message.as_str()), (code, message), "{sql}");
        if position > 0 {
            assert_eq!(error.position, Some(position), "{sql}");
        }
    }
}

#[test]
fn a_name_that_is_nearly_a_column_is_taken_for_it() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (customer text, amount int, x1 int, x2 int, x3 int); CREATE TABLE u (custmer text, price int)");
    let one = |column: &str| Some(format!("Perhaps you meant to reference the column \"{column}\"."));
    let both = "Perhaps you meant to reference the column \"t.customer\" or the column \"u.custmer\".".to_owned();
    for (sql, hint) in [
        ("SELECT custmer FROM t", one("t.customer")),
        ("SELECT amuont FROM t AS a", one("a.amount")),
        ("SELECT t.amont FROM t", one("t.amount")),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE pricee = amount)", one("u.price")),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM u WHERE price = anount)", one("t.amount")),
        ("SELECT cstomer FROM t, u WHERE amount = 1", one("t.customer")),
        ("SELECT custommer FROM t, u", one("t.customer")),
        ("SELECT custumer FROM t, u", Some(both.clone())),
        ("SELECT t.custmer FROM t, u", Some(both)),
        ("SELECT x4 FROM t", None),
        ("SELECT nosuch FROM t", None),
        ("SELECT a FROM t", None),
    ] {
        let error = bench.bind(sql).expect_err(sql);
        assert_eq!((error.sqlstate, error.hint), ("42703", hint), "{sql}");
    }
}

#[test]
fn what_is_no_table_says_what_makes_its_rows() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (a int); CREATE MATERIALIZED VIEW m AS SELECT a FROM t; CREATE VIEW v AS SELECT a FROM t");
    for (sql, message, hint) in [
        (
            "DELETE FROM m",
            "cannot change materialized view \"m\"",
            "It is kept equal to its query. Change the tables that the query reads.",
        ),
        (
            "UPDATE m SET a = 1",
            "cannot change materialized view \"m\"",
            "It is kept equal to its query. Change the tables that the query reads.",
        ),
        ("TRUNCATE m", "cannot change materialized view \"m\"", "It is kept equal to its query. Change the tables that the query reads."),
        ("INSERT INTO v VALUES (1)", "cannot change view \"v\"", "It shows what its query gives. Change the tables that the query reads."),
    ] {
        let error = bench.bind(sql).expect_err(sql);
        assert_eq!((error.sqlstate, error.message.as_str(), error.hint.as_deref()), ("42809", message, Some(hint)), "{sql}");
    }
}

#[test]
fn refreshing_a_view_does_nothing_and_says_so() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (a int); CREATE MATERIALIZED VIEW m AS SELECT a FROM t");
    let bound = bench.bind("REFRESH MATERIALIZED VIEW CONCURRENTLY m WITH DATA").expect("bound");
    let BoundStatement::Alter(None, notices) = bound.statement else { panic!("{:?}", bound.statement) };
    assert_eq!(
        notices.iter().map(|notice| notice.message.as_str()).collect::<Vec<_>>(),
        ["materialized view \"m\" is kept up to date without REFRESH"]
    );
    for (sql, code, message) in [
        ("REFRESH MATERIALIZED VIEW t", "42809", "\"t\" is not a materialized view"),
        ("REFRESH MATERIALIZED VIEW nosuch", "42P01", "materialized view \"nosuch\" does not exist"),
    ] {
        let error = bench.bind(sql).expect_err(sql);
        assert_eq!((error.sqlstate, error.message.as_str(), error.position), (code, message, Some(27)), "{sql}");
    }
}
