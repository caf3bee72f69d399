//! Timeouts: what a statement waits for, how long a transaction lasts, and how long a client may say nothing.

use millpond_sql_tests::{TestServer, WireClient, bind, execute, frame, parse, query};

/// The error that comes without having been asked for, and ends the session.
fn last_words(mut client: WireClient) -> (String, String) {
    let messages = client.until(b'E').expect("an error");
    let fields = messages.last().expect("a message").fields();
    let field = |code: char| fields.iter().find(|(known, _)| *known == code).map(|(_, value)| value.clone()).unwrap_or_default();
    assert_eq!(field('S'), "FATAL");
    assert!(client.is_closed());
    (field('C'), field('M'))
}

fn ended_by(client: WireClient, sqlstate: &str, timeout: &str) {
    assert_eq!(last_words(client), (sqlstate.to_owned(), format!("terminating connection due to {timeout} timeout")));
}

#[test]
fn a_client_that_says_nothing_is_sent_away() {
    let server = TestServer::start();
    let mut watcher = server.connect();
    watcher.query("CREATE TABLE t (a INT)").expect("a table");
    // Which of the two it is depends on where the client stands.
    let set = "SET idle_in_transaction_session_timeout = '40ms'; SET idle_session_timeout = '1ms'; BEGIN; INSERT INTO t VALUES (1)";
    for script in [set.to_owned(), format!("{set}; SELECT 1/0")] {
        let mut client = server.connect();
        client.send(&query(&script)).expect("sent");
        if script.ends_with("1/0") {
            assert_eq!(client.until_ready().expect_err("a division").sqlstate(), "22012");
        }
        ended_by(client, "25P03", "idle-in-transaction");
    }
    let mut client = server.connect();
    client.query("SET idle_session_timeout = '40ms'; SET idle_in_transaction_session_timeout = '1ms'").expect("settings");
    ended_by(client, "57P05", "idle-session");
    assert_eq!(watcher.rows("SELECT count(*) FROM t").expect("rows"), ["0"]);
    // A statement is not idle, however long it takes.
    let mut client = server.connect();
    assert_eq!(client.rows("SET idle_session_timeout = '1ms'; SELECT pg_sleep(0.05) IS NULL").expect("rows"), ["f"]);
    ended_by(client, "57P05", "idle-session");
}

#[test]
fn a_transaction_that_lasts_too_long_ends_with_its_session() {
    let server = TestServer::start();
    let mut watcher = server.connect();
    watcher.query("CREATE TABLE t (a INT)").expect("a table");
    let with_timeout = || {
        let mut client = server.connect();
        client.query("SET transaction_timeout = '40ms'").expect("a setting");
        client
    };
    let extended = [parse("", "INSERT INTO t VALUES (1)", &[]), bind("", "", &[], false, false), execute("", 0), frame(b'H', &[])].concat();
    for sent in [
        query("BEGIN; INSERT INTO t VALUES (1)"),
        query("BEGIN; INSERT INTO t VALUES (1); SELECT pg_sleep(60)"),
        query("INSERT INTO t SELECT CASE WHEN pg_sleep(60) IS NULL THEN 1 ELSE 2 END"),
        query("SELECT sum(x % y) FROM generate_series(1, 1000000) AS a(x), generate_series(1, 1000000) AS b(y)"),
        query("COPY t FROM STDIN"),
        query("BEGIN; COPY t FROM STDIN"),
        // Without a Sync its transaction goes on.
        extended,
    ] {
        let mut client = with_timeout();
        client.send(&sent).expect("sent");
        ended_by(client, "25P04", "transaction");
    }
    assert_eq!(watcher.rows("SELECT count(*) FROM t").expect("rows"), ["0"]);
    // Outside of a transaction, and in a failed one, no time passes; a statement's own timeout comes first.
    let mut client = with_timeout();
    client.query("SET statement_timeout = '20ms'; SET transaction_timeout = '60s'").expect("settings");
    for statement in ["SELECT pg_sleep(60)", "COPY t FROM STDIN"] {
        let error = client.query(statement).expect_err("it takes too long");
        assert!(error.sqlstate() == "57014" && error.to_string().contains("due to statement timeout"), "{error}");
    }
}

#[test]
fn a_lock_is_not_waited_for_longer_than_the_session_wants() {
    let server = TestServer::start();
    let mut holder = server.connect();
    holder.query("CREATE TABLE t (a INT); INSERT INTO t VALUES (0)").expect("a table");
    holder.send(&query("UPDATE t SET a = CASE WHEN pg_sleep(60) IS NULL THEN 1 ELSE 7 END")).expect("sent");
    let mut client = server.connect();
    client.query("SET lock_timeout = '20ms'").expect("a setting");
    // Until the other has the lock nothing is waited for.
    let error = loop {
        if let Err(error) = client.query("INSERT INTO t VALUES (2)") {
            break error;
        }
    };
    assert!(error.sqlstate() == "55P03" && error.to_string().contains("canceling statement due to lock timeout"), "{error}");
    client.send(&[query("COPY t FROM STDIN"), frame(b'd', b"3\n"), frame(b'c', &[])].concat()).expect("sent");
    assert_eq!(client.until_ready().expect_err("locked").sqlstate(), "55P03");
    // A block takes the lock at its end, and can be cancelled there, too.
    client.query("BEGIN; INSERT INTO t VALUES (4)").expect("a row");
    assert_eq!(client.query("COMMIT").expect_err("locked").sqlstate(), "55P03");
    client.query("RESET lock_timeout; BEGIN; INSERT INTO t VALUES (5)").expect("a row");
    client.send(&query("COMMIT")).expect("sent");
    assert_eq!(client.cancel_until_ready().expect_err("cancelled").sqlstate(), "57014");
    assert_eq!(holder.cancel_until_ready().expect_err("cancelled").sqlstate(), "57014");
    client.query("SET lock_timeout = '60s'; INSERT INTO t VALUES (6)").expect("the lock is free");
    assert_eq!(client.rows("SELECT count(*) FROM t WHERE a IN (1, 3, 4, 5)").expect("rows"), ["0"]);
}
