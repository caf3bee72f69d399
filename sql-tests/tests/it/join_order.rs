//! The order of joins, as a user meets it: EXPLAIN tells it, and a view keeps it over a restart, whatever its tables have become.

use std::path::Path;

use millpond_sql_tests::{ServerProcess, WireClient};

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");

const QUERY: &str =
    "SELECT a.v AS av, c.v AS cv, count(*) AS n, sum(b.v) AS s FROM b, c, a WHERE a.id = b.a_id AND b.c_id = c.id GROUP BY a.v, c.v";

/// The lines of EXPLAIN that tell of the order of joins.
fn join_order(session: &mut WireClient, statement: &str) -> Vec<String> {
    let lines = session.rows(&format!("EXPLAIN {statement}")).expect("a plan");
    lines.into_iter().skip_while(|line| !line.starts_with("Join order")).collect()
}

/// The relations of an order, from the left.
fn leaves(order: &[String]) -> Vec<&str> {
    order
        .iter()
        .filter(|line| line.contains("  (rows=") && !line.contains("Join"))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// The joins and relations of an order, without what is expected of them.
fn shape(order: &[String]) -> Vec<&str> {
    order.iter().skip(1).filter_map(|line| line.split("  (rows=").next()).collect()
}

#[test]
fn a_view_keeps_its_order_over_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let server = ServerProcess::start(Path::new(BINARY), &data, &[]);
    let mut session = server.connect().expect("a session");
    for statement in [
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE b (id int PRIMARY KEY, a_id int, c_id int, v int)",
        "CREATE TABLE c (id int PRIMARY KEY, v int)",
        "INSERT INTO a SELECT g, g % 3 FROM generate_series(1, 10) g",
        "INSERT INTO c SELECT g, g % 2 FROM generate_series(1, 400) g",
        "INSERT INTO b SELECT g, g % 12, g % 400, g FROM generate_series(1, 2000) g",
    ] {
        session.query(statement).expect(statement);
    }
    let definition = format!("CREATE MATERIALIZED VIEW v AS {}", QUERY.replace("SELECT", "SELECT /*+ LEADING(a b) */"));
    let created = join_order(&mut session, &definition);
    assert_eq!(created.first().map(String::as_str), Some("Join order, estimated, begun as the hint LEADING says"), "{created:?}");
    session.query(&definition).expect("a view");
    session.query("INSERT INTO a SELECT g, g % 3 FROM generate_series(11, 20000) g").expect("rows");
    session.query("DELETE FROM c WHERE id > 3").expect("rows");
    let grown = join_order(&mut session, &format!("CREATE MATERIALIZED VIEW w AS {QUERY}"));
    assert!(grown.iter().any(|line| line.trim() == "a  (rows=20000)"), "{grown:?}");
    assert_ne!(shape(&grown), shape(&created));
    session.query("FLUSH").expect("it is there");
    server.kill();

    let server = ServerProcess::start(Path::new(BINARY), &data, &[]);
    let mut session = server.connect().expect("a session");
    session.query("INSERT INTO b VALUES (5000, 7, 2, 100), (5001, 19999, 3, NULL)").expect("rows");
    let wanted = session.rows(&format!("{QUERY} ORDER BY 1, 2")).expect("rows");
    assert!(wanted.len() > 3, "{wanted:?}");
    assert_eq!(session.rows("SELECT av, cv, n, s FROM v ORDER BY 1, 2").expect("rows"), wanted);
    assert_eq!(session.rows("SELECT count(*) FROM millpond.jobs WHERE kind = 'view' AND state = 'running'").expect("rows"), ["1"]);
}

#[test]
fn the_order_of_from_does_not_matter() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = ServerProcess::start(Path::new(BINARY), &directory.path().join("data"), &[]);
    let mut session = server.connect().expect("a session");
    for statement in [
        "CREATE TABLE a (id int PRIMARY KEY, v int)",
        "CREATE TABLE b (id int PRIMARY KEY, a_id int, c_id int)",
        "CREATE TABLE c (id int PRIMARY KEY, v int)",
        "INSERT INTO a SELECT g, g % 3 FROM generate_series(1, 10) g",
        "INSERT INTO c SELECT g, g % 2 FROM generate_series(1, 400) g",
        "INSERT INTO b SELECT g, g % 12, g % 400 FROM generate_series(1, 2000) g",
    ] {
        session.query(statement).expect(statement);
    }
    let mut plan = |hint: &str, from: &str| {
        let sql = format!("EXPLAIN SELECT {hint} a.v, count(*) FROM {from} WHERE a.id = b.a_id AND b.c_id = c.id AND c.v = 1 GROUP BY a.v");
        session.rows(&sql).expect("a plan")
    };
    let first = plan("", "a, b, c");
    for from in ["a, c, b", "b, a, c", "b, c, a", "c, a, b", "c, b, a", "a JOIN b ON a.id = b.a_id CROSS JOIN c"] {
        assert_eq!(plan("", from), first, "{from}");
    }
    let led = plan("/*+ LEADING(b a) ROWS(c 7) */", "a, b, c");
    assert!(led.iter().any(|line| line == "Join order, estimated, begun as the hint LEADING says"), "{led:?}");
    assert!(led.iter().any(|line| line.trim() == "c  (rows=7 as the hint ROWS says)"), "{led:?}");
    // The side with the fewest rows is built: it comes first.
    let small = plan("/*+ ROWS(a 1000000) ROWS(c 1) */", "a, b, c");
    let order: Vec<String> = small.iter().skip_while(|line| !line.starts_with("Join order")).cloned().collect();
    assert_eq!(leaves(&order), ["c", "b", "a"], "{small:?}");
}
