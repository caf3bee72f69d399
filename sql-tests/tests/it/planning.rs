//! Statements that are long or deep to plan: they end when their time is up or their client cancels, hold nobody else up, and have bounds.

use std::time::Duration;

use millpond_sql_tests::{TestServer, WireClient, parse, query};

use crate::wire::sqlstate;

/// Much less than it takes to plan the statement that takes longest.
const PATIENCE: Duration = Duration::from_secs(10);

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| (number * 7 % count).to_string())
}

fn joined(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(", ")
}

/// `WITH a0 AS (..), a1 AS (SELECT * FROM a0 UNION ALL SELECT * FROM a0), ..`: 2 to the power of `levels` rows.
fn doubled(levels: usize) -> String {
    let mut text = "WITH a0 AS (SELECT 1 AS x)".to_owned();
    for level in 1..=levels {
        text.push_str(&format!(", a{level} AS (SELECT * FROM a{0} UNION ALL SELECT * FROM a{0})", level - 1));
    }
    format!("{text} SELECT count(*) FROM a{levels}")
}

/// A thousand joins of a plan that is written in a few lines.
fn a_thousand_joins() -> String {
    let levels = (0..=4).map(|level| {
        let below = if level == 0 { "a".to_owned() } else { format!("d{}", level - 1) };
        format!("d{level} AS (SELECT x.n, y.s FROM {below} x JOIN {below} y ON x.n = y.n JOIN {below} z ON z.n = y.n)")
    });
    format!("WITH a AS (SELECT * FROM t NATURAL JOIN t b), {} SELECT count(*) FROM d4", joined(levels))
}

fn server_with_numbers() -> (TestServer, WireClient) {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (n bigint PRIMARY KEY, s text)").expect("a table");
    client.query("INSERT INTO t SELECT n, n::text FROM generate_series(1, 1000) n").expect("rows");
    (server, client)
}

#[test]
fn long_lists_are_planned_and_answered() {
    let (_server, mut client) = server_with_numbers();
    let list = joined(numbers(20_000));
    assert_eq!(client.rows(&format!("SELECT count(*) FROM t WHERE n IN ({list})")).expect("rows"), ["1000"]);
    assert_eq!(client.rows(&format!("SELECT count(*) FROM t WHERE n + 1 NOT IN ({list})")).expect("rows"), ["0"]);
    let texts = joined(numbers(20_000).map(|number| format!("'{number}'")));
    assert_eq!(client.rows(&format!("SELECT count(*) FROM t WHERE s IN ({texts})")).expect("rows"), ["1000"]);
    let rows = joined(numbers(20_000).map(|number| format!("({number}, 'v{number}')")));
    let values = format!("SELECT count(*), min(a), max(b) FROM (VALUES {rows}) v (a, b)");
    assert_eq!(client.rows(&values).expect("rows"), ["20000 0 v9999"]);
}

#[test]
fn the_timeout_ends_the_planning_of_a_long_list() {
    let (_server, mut client) = server_with_numbers();
    let list = joined(numbers(50_000));
    let statement = format!("SELECT count(*) FROM t WHERE n + 0 IN ({list})");
    client.query("SET statement_timeout = '1ms'").expect("a setting");
    let error = client.query(&statement).expect_err("it takes longer");
    assert_eq!(error.to_string(), "ERROR: canceling statement due to statement timeout (57014)");
    // To prepare it takes as long.
    let answers = client.exchange(&[parse("", &statement, &[]), millpond_sql_tests::frame(b'S', &[])].concat()).expect("answers");
    assert_eq!(sqlstate(&answers).as_deref(), Some("57014"));
    let error = client.query(&format!("CREATE MATERIALIZED VIEW v AS {statement}")).expect_err("it takes longer");
    assert_eq!(error.sqlstate(), "57014");
    client.query("RESET statement_timeout").expect("a setting");
    assert_eq!(client.rows("SELECT count(*) FROM t").expect("rows"), ["1000"]);
}

#[test]
fn a_cancel_ends_planning_and_others_go_on_meanwhile() {
    let (server, mut client) = server_with_numbers();
    // More statements than the server has threads, and each takes long.
    let union = (0..100).map(|branch| format!("SELECT n FROM t WHERE n + {branch} IN ({})", joined(numbers(1_000)))).collect::<Vec<_>>();
    let statement = union.join(" UNION ALL ");
    let mut sessions: Vec<WireClient> = (0..4).map(|_| server.connect()).collect();
    sessions.iter_mut().for_each(|session| session.send(&query(&statement)).expect("sent"));
    assert_eq!(client.rows("VALUES (1)").expect("a session of its own"), ["1"]);
    for session in &mut sessions {
        assert_eq!(session.cancel_until_ready().expect_err("cancelled").sqlstate(), "57014");
    }
    assert_eq!(client.rows("SELECT count(*) FROM t").expect("rows"), ["1000"]);
}

#[test]
fn a_plan_that_doubles_is_bounded() {
    let (_server, mut client) = server_with_numbers();
    assert_eq!(client.rows(&doubled(6)).expect("rows"), ["64"]);
    let error = client.query(&doubled(15)).expect_err("too large");
    assert_eq!(error.to_string(), "ERROR: statement is too complex (54001)");
    let millpond_sql_tests::ClientError::Server { hint, .. } = error else { panic!("the server's error") };
    assert!(hint.expect("a hint").contains("WITH query"));
    // Views of views double as well.
    client.query("CREATE VIEW w0 AS SELECT n FROM t").expect("a view");
    let mut refused = None;
    for level in 1..16 {
        let view = format!("CREATE VIEW w{level} AS SELECT * FROM w{0} UNION ALL SELECT * FROM w{0}", level - 1);
        if let Err(error) = client.query(&view) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused.expect("too large").sqlstate(), "54001");
    assert_eq!(client.rows("SELECT count(*) FROM w3").expect("rows"), ["8000"]);
}

#[test]
fn psql_shows_privileges() {
    let (_server, mut client) = server_with_numbers();
    // As `\dp` asks: an array of a subquery, which holds another array of a subquery.
    let policies = "SELECT p.name || CASE WHEN p.roles <> '{0}' THEN ' to ' || array_to_string(ARRAY(SELECT o.s FROM t o WHERE o.n = ANY (p.roles)), ', ')
        ELSE '' END FROM policy p WHERE p.relation = t.n";
    client.query("CREATE TABLE policy (relation bigint, name text, roles bigint[])").expect("a table");
    client.query("INSERT INTO policy VALUES (7, 'few', '{1,2}')").expect("rows");
    let statement = format!("SELECT array_to_string(ARRAY({policies}), '') AS p FROM t WHERE n = 7");
    assert_eq!(client.rows(&statement).expect("rows"), ["few to 1, 2"]);
}

#[test]
fn a_short_statement_that_takes_long_to_plan_holds_nobody_up() {
    let (server, mut client) = server_with_numbers();
    // More of them at once than the server has threads.
    let statement = a_thousand_joins();
    assert!(statement.len() < 1_000, "{}", statement.len());
    let mut sessions: Vec<WireClient> = (0..4).map(|_| server.connect()).collect();
    sessions.iter_mut().for_each(|session| session.send(&query(&statement)).expect("sent"));
    assert_eq!(client.rows("VALUES (1)").expect("an answer"), ["1"]);
    assert_eq!(server.connect().rows("VALUES (1)").expect("a session of its own"), ["1"]);
    for session in &mut sessions {
        assert_eq!(session.cancel_until_ready().expect_err("cancelled").sqlstate(), "57014");
    }
}

#[test]
fn planning_ends_when_its_client_goes() {
    let (server, mut client) = server_with_numbers();
    let planned = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'WITH a AS%'";
    let mut leaving: Vec<WireClient> = (0..3).map(|_| server.connect()).collect();
    leaving.iter_mut().for_each(|session| session.send(&query(&a_thousand_joins())).expect("sent"));
    client.await_rows(PATIENCE, planned, &["3"]);
    // One leaves something unread behind it, and one has only said that it sends no more.
    leaving[0].send(&query("VALUES (1)")).expect("sent");
    leaving[1].finish_sending();
    leaving.remove(0).terminate();
    leaving.pop();
    client.await_rows(PATIENCE, planned, &["0"]);
    assert_eq!(client.rows("SELECT count(*) FROM t").expect("rows"), ["1000"]);
}
