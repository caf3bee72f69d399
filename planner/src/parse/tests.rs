use super::{statement::*, *};
use crate::error::sqlstate;

fn one(sql: &str) -> Statement {
    let mut statements = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.position));
    assert_eq!(statements.len(), 1, "{sql}");
    statements.remove(0).statement
}

#[test]
fn scripts_are_split_and_keep_their_texts() {
    let parsed = parse(" SELECT 1 ;; -- c\n select 'a;b' /* ; */ ; ").unwrap();
    let texts: Vec<_> = parsed.iter().map(|statement| statement.text.as_str()).collect();
    assert_eq!(texts, ["SELECT 1", "select 'a;b'"]);
    for empty in ["", " ", ";", "-- nothing\n", "/* a /* nested */ b */"] {
        assert!(parse(empty).unwrap().is_empty(), "{empty:?}");
    }
}

#[test]
fn syntax_errors_have_postgres_words_and_places() {
    for (sql, message, position) in [
        ("SELEC 1", "syntax error at or near \"SELEC\"", 1),
        ("SELECT 1 FRM t", "syntax error at or near \"t\"", 14),
        ("SELECT FROM WHERE", "syntax error at or near \"WHERE\"", 13),
        ("SELECT (1", "syntax error at end of input", 10),
        ("SELECT 1;\nDROP TABL x", "syntax error at or near \"TABL\"", 16),
        ("CREATE TABLE t (a int,, b int)", "syntax error at or near \",\"", 23),
        ("INSERT INTO t VALUES (1", "syntax error at end of input", 24),
        ("SELECT 'é', )", "syntax error at or near \")\"", 13),
    ] {
        let error = parse(sql).unwrap_err();
        assert_eq!((error.sqlstate, error.message.as_str()), (sqlstate::SYNTAX_ERROR, message), "{sql}");
        assert_eq!(error.position, Some(position), "{sql}");
    }
    assert!(parse("SELECT 'abc").unwrap_err().message.starts_with("unterminated quoted string"));
}

/// A parser that tries each level in two ways would not end here.
#[test]
fn deep_statements_are_read_once() {
    let nested = |open: &str, within: &str, close: &str| format!("{}{within}{}", open.repeat(45), close.repeat(45));
    for (open, close) in [
        ("abs(", ")"),
        ("coalesce(x, ", ", 1)"),
        ("position('a' in ", ")"),
        ("substring(", " from 1 for 2)"),
        ("trim(both 'x' from ", ")"),
        ("overlay(", " placing 'a' from 1)"),
        ("extract(year from ", ")"),
        ("cast(", " as int)"),
        ("x in (", ")"),
        ("x in ((", "))"),
        ("x = any (", ")"),
        ("array[", "]"),
        ("row(", ", 1)"),
        ("((", "))"),
        ("(1 + (", "))"),
        ("(x, (", "))"),
        ("exists (select ", ")"),
        ("(select ", ")"),
        ("count(distinct ", ")"),
        ("case ", " when 1 then 2 end"),
        ("case when ", " then 2 end"),
        ("sum(", ") over (order by 1)"),
        ("not ", ""),
        ("- ", ""),
        ("x[", "]"),
        ("interval ", ""),
    ] {
        // Those that are no SQL are refused as soon.
        let _ = parse(&format!("SELECT {}", nested(open, "1", close)));
    }
    for (open, within, close) in [
        ("(", "t", ")"),
        ("(", "SELECT 1", ")"),
        ("(SELECT * FROM ", "t", ") AS a"),
        ("((SELECT * FROM ", "t", ") AS a)"),
        ("(", "t JOIN u ON true", " JOIN v ON true)"),
        ("lateral (SELECT * FROM ", "t", ") AS a"),
    ] {
        let _ = parse(&format!("SELECT * FROM {}", nested(open, within, close)));
    }
    let _ = parse(&nested("(", "SELECT 1", ") UNION SELECT 2"));
    let _ = parse(&nested("WITH a AS (", "SELECT 1", ") SELECT 2"));
    parse("SELECT * FROM ((SELECT 1) UNION ((SELECT 2))) AS a").unwrap();
}

#[test]
fn deep_and_long_statements_are_refused_without_overflow() {
    let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(100)).is_ok());
    assert_eq!(parse(&nested(5_000)).unwrap_err().sqlstate, sqlstate::STATEMENT_TOO_COMPLEX);
    let chain = |length: usize| format!("SELECT {}1", "1+".repeat(length));
    assert!(parse(&chain(3_000)).is_ok());
    assert_eq!(parse(&chain(100_000)).unwrap_err().sqlstate, sqlstate::STATEMENT_TOO_COMPLEX);
    let nots = format!("SELECT {} true", "NOT ".repeat(100_000));
    assert_eq!(parse(&nots).unwrap_err().sqlstate, sqlstate::STATEMENT_TOO_COMPLEX);
    let long = format!("SELECT length('{}')", "x".repeat(1_000_000));
    assert!(parse(&long).is_ok());
}

#[test]
fn tables_have_keys_defaults_checks_and_watermarks() {
    let Statement::CreateTable(table) = one("CREATE TABLE IF NOT EXISTS s.t (id int PRIMARY KEY, v numeric(5,2) NOT NULL DEFAULT 1 + 1, \
         at timestamp, CONSTRAINT pos CHECK (v > 0), WATERMARK FOR at AS at - INTERVAL '5 seconds') WITH (late_rows = 'keep')")
    else {
        panic!()
    };
    assert!(table.if_not_exists && table.elements.columns[0].primary_key && table.elements.columns[1].not_null);
    assert_eq!(table.elements.columns[1].default.as_ref().unwrap().1, "1 + 1");
    assert_eq!(table.elements.checks[0].text, "v > 0");
    assert_eq!(table.elements.watermark.as_ref().unwrap().text, "at - INTERVAL '5 seconds'");
    assert_eq!((table.options[0].key.as_str(), table.options[0].value.as_str()), ("late_rows", "keep"));
    let Statement::CreateTable(table) = one("CREATE TABLE t (a int, b text, PRIMARY KEY (b, a))") else { panic!() };
    assert_eq!(table.elements.primary_key.unwrap().1.len(), 2);
    assert_eq!(parse("CREATE TABLE t (a int UNIQUE)").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
}

#[test]
fn both_families_of_sources_are_read() {
    for sql in [
        "CREATE SOURCE s (a int) WITH (connector = 'file', path = 'x', format = 'csv', delimiter = ';')",
        "CREATE SOURCE s (a int) WITH (connector = 'file', path = 'x') FORMAT PLAIN ENCODE CSV (delimiter = ';')",
    ] {
        let Statement::CreateSource(source) = one(sql) else { panic!() };
        let value = |key: &str| source.options.iter().find(|option| option.key == key).map(|option| option.value.as_str());
        assert_eq!((value("connector"), value("format"), value("delimiter")), (Some("file"), Some("csv"), Some(";")), "{sql}");
    }
    let Statement::CreateSource(source) = one("CREATE SOURCE s WITH (connector = nexmark, nexmark.split.num = 2, rate = -1)") else {
        panic!()
    };
    assert_eq!(source.options[1].key, "nexmark.split.num");
    assert_eq!(source.options[2].value, "-1");
}

#[test]
fn views_and_sinks_keep_the_text_of_their_query() {
    let Statement::CreateView(view) =
        one("CREATE MATERIALIZED VIEW IF NOT EXISTS v (a, \"B\") AS SELECT x,  y FROM t GROUP BY x, y EMIT ON WINDOW CLOSE")
    else {
        panic!()
    };
    assert!(view.materialized && view.if_not_exists && view.emit_on_window_close);
    assert_eq!((view.query_text.text.as_str(), view.columns.len()), ("SELECT x,  y FROM t GROUP BY x, y", 2));
    let Statement::CreateSink(sink) = one("CREATE SINK s AS SELECT * FROM t WITH (connector = 'blackhole')") else { panic!() };
    assert!(matches!(&sink.input, SinkInput::Query(_, text) if text.text == "SELECT * FROM t"));
    assert_eq!(sink.options[0].value, "blackhole");
    let Statement::CreateSink(sink) = one("CREATE SINK s WITH (connector = 'blackhole') AS SELECT * FROM t") else { panic!() };
    assert_eq!(sink.options[0].value, "blackhole");
    let Statement::CreateSink(sink) = one("CREATE SINK s FROM v WITH (connector = 'file') FORMAT PLAIN ENCODE JSON") else { panic!() };
    assert!(matches!(sink.input, SinkInput::Relation(_)));
}

#[test]
fn the_long_spelling_of_windows_is_the_short_one() {
    let long = one("SELECT * FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) AS w");
    let short = one("SELECT * FROM HOP(bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND) AS w");
    assert_eq!(long, short);
}

#[test]
fn copy_options_of_both_forms_agree() {
    let new = one("COPY t (a, b) FROM STDIN WITH (FORMAT csv, HEADER true, DELIMITER ';', NULL 'x')");
    let old = one("COPY t (a, b) FROM stdin WITH CSV HEADER DELIMITER AS ';' NULL 'x'");
    assert_eq!(new, old);
    let Statement::Copy(copy) = one("COPY (SELECT 1) TO STDOUT") else { panic!() };
    assert_eq!((copy.from, copy.options.delimiter, copy.options.null.as_str()), (false, '\t', "\\N"));
    assert_eq!(parse("COPY t FROM '/etc/passwd'").unwrap_err().sqlstate, sqlstate::FEATURE_NOT_SUPPORTED);
}

#[test]
fn every_other_statement_has_its_tag() {
    for (sql, tag) in [
        ("BEGIN", "BEGIN"),
        ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", "START TRANSACTION"),
        ("COMMIT AND CHAIN", "COMMIT"),
        ("END", "COMMIT"),
        ("ROLLBACK TO SAVEPOINT a", "ROLLBACK"),
        ("ABORT", "ROLLBACK"),
        ("SAVEPOINT a", "SAVEPOINT"),
        ("RELEASE a", "RELEASE"),
        ("SET extra_float_digits = 3", "SET"),
        ("SET search_path TO a, \"B\"", "SET"),
        ("SET TIME ZONE 'UTC'", "SET"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET"),
        ("SET LOCAL x.y = DEFAULT", "SET"),
        ("SHOW TRANSACTION ISOLATION LEVEL", "SHOW"),
        ("SHOW MATERIALIZED VIEWS", "SHOW"),
        ("SHOW JOBS", "SHOW"),
        ("SHOW server_version", "SHOW"),
        ("RESET ALL", "RESET"),
        ("DISCARD ALL", "DISCARD ALL"),
        ("PREPARE p (int, text) AS SELECT $1, $2", "PREPARE"),
        ("EXECUTE p (1, 'x')", "EXECUTE"),
        ("DEALLOCATE PREPARE p", "DEALLOCATE"),
        ("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT 1", "DECLARE CURSOR"),
        ("FETCH c", "FETCH"),
        ("FETCH 5 FROM c", "FETCH"),
        ("FETCH FORWARD ALL IN c", "FETCH"),
        ("MOVE BACKWARD 2 FROM c", "MOVE"),
        ("CLOSE ALL", "CLOSE CURSOR ALL"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("EXPLAIN (ANALYZE, FORMAT json, COSTS off) CREATE MATERIALIZED VIEW v AS SELECT 1", "EXPLAIN"),
        ("ANALYZE t", "ANALYZE"),
        ("VACUUM FULL t", "VACUUM"),
        ("REFRESH MATERIALIZED VIEW v", "REFRESH MATERIALIZED VIEW"),
        ("REFRESH MATERIALIZED VIEW CONCURRENTLY s.v WITH DATA", "REFRESH MATERIALIZED VIEW"),
        ("FLUSH", "FLUSH"),
        ("DROP MATERIALIZED VIEW IF EXISTS a, b.c CASCADE", "DROP MATERIALIZED VIEW"),
        ("ALTER TABLE t RENAME TO u", "ALTER TABLE"),
        ("ALTER TABLE t RENAME a TO b", "ALTER TABLE"),
        ("ALTER MATERIALIZED VIEW v SET SCHEMA s", "ALTER MATERIALIZED VIEW"),
        ("COMMENT ON COLUMN t.a IS 'x'", "COMMENT"),
        ("TRUNCATE TABLE a, b RESTART IDENTITY CASCADE", "TRUNCATE TABLE"),
        ("CREATE SCHEMA IF NOT EXISTS s", "CREATE SCHEMA"),
        ("CREATE UNIQUE INDEX i ON t USING btree (a DESC, b)", "CREATE INDEX"),
        ("CREATE TABLE t AS SELECT 1 AS a WITH NO DATA", "CREATE TABLE AS"),
        ("CREATE TABLE t (a, b) AS SELECT 1, 2", "CREATE TABLE AS"),
        ("SELECT 1 INTO t", "CREATE TABLE AS"),
        ("TABLE t", "SELECT"),
        ("(SELECT 1) UNION SELECT 2", "SELECT"),
        ("WITH a AS (SELECT 1 AS x) INSERT INTO t SELECT x FROM a", "INSERT"),
        ("INSERT INTO t AS u (a) VALUES (1), (DEFAULT) ON CONFLICT (a) DO UPDATE SET b = excluded.b WHERE u.b > 1 RETURNING *", "INSERT"),
        ("INSERT INTO t DEFAULT VALUES", "INSERT"),
        ("UPDATE t AS u SET a = 1, (b, c) = (2, 3) FROM s WHERE u.a = s.a RETURNING u.a", "UPDATE"),
        ("DELETE FROM t AS u USING s WHERE u.a = s.a RETURNING *", "DELETE"),
    ] {
        assert_eq!(one(sql).tag(), tag, "{sql}");
    }
}

#[test]
fn what_is_known_but_not_supported_says_what_to_do_instead() {
    for (sql, message, hint) in [
        ("CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE FUNCTION is not supported", "CREATE VIEW"),
        ("CREATE OR REPLACE FUNCTION f() RETURNS int AS $$ x; $$ LANGUAGE plpgsql", "CREATE FUNCTION is not supported", "CREATE VIEW"),
        ("CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION f()", "CREATE TRIGGER is not supported", "CREATE SINK"),
        ("CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION f()", "CREATE EVENT TRIGGER is not supported", "CREATE SINK"),
        ("CREATE EXTENSION IF NOT EXISTS pgcrypto", "CREATE EXTENSION is not supported", "built in"),
        ("DROP EXTENSION IF EXISTS pgcrypto", "DROP EXTENSION is not supported", "built in"),
        ("DROP OWNED BY millpond", "DROP OWNED BY is not supported", "one user"),
        ("CREATE FOREIGN TABLE t (a int) SERVER s", "CREATE FOREIGN TABLE is not supported", "CREATE SOURCE"),
        ("CREATE USER u PASSWORD 'x'", "CREATE USER is not supported", "one user"),
        ("ALTER SYSTEM SET x = 1", "ALTER SYSTEM is not supported", "flags"),
        ("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO u", "ALTER DEFAULT PRIVILEGES is not supported", "one user"),
        ("COMMENT ON EXTENSION plpgsql IS 'x'", "COMMENT ON EXTENSION is not supported", "built in"),
        ("CREATE TABLE t (a int) PARTITION BY RANGE (a)", "partitioned tables are not supported", "needs no partitions"),
        ("CREATE TABLE t PARTITION OF u DEFAULT", "partitioned tables are not supported", "needs no partitions"),
        ("CREATE TABLE t (a int) INHERITS (u)", "inheritance is not supported", "UNION ALL"),
        ("CALL p()", "CALL is not supported", "Send the statements"),
        ("CHECKPOINT", "CHECKPOINT is not supported", "checkpoint_interval"),
        ("REFRESH MATERIALIZED VIEW v WITH NO DATA", "REFRESH MATERIALIZED VIEW .. WITH NO DATA is not supported", "Drop it"),
    ] {
        let error = parse(sql).expect_err(sql);
        assert_eq!((error.sqlstate, error.message.as_str()), ("0A000", message), "{sql}");
        assert!(error.hint.as_deref().is_some_and(|text| text.contains(hint)), "{sql}: {:?}", error.hint);
    }
    for sql in ["FROBNICATE", "CREATE FROBNICATOR x", "DROP FROBNICATOR x", "REFRESH VIEW v"] {
        assert_eq!(parse(sql).expect_err(sql).sqlstate, "42601", "{sql}");
    }
}
