//! ALTER of what runs behind views and sinks: other settings while they run, and going on after a failure.

use std::{fs, io::Write, time::Duration};

use millpond_sql_tests::{TestServer, WireClient};

/// Something that happens soon takes longer than this only if it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

fn sqlstate_of(client: &mut WireClient, sql: &str) -> String {
    client.query(sql).expect_err(sql).sqlstate().to_owned()
}

#[test]
fn a_view_changes_its_parallelism_while_it_runs_and_stays_right() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int, v int)").expect("a table");
    client.query("CREATE TABLE d (k int PRIMARY KEY, name text)").expect("a table");
    client.query("INSERT INTO d SELECT x, 'name ' || x FROM generate_series(0, 99) AS g(x)").expect("rows");
    client
        .query(
            "CREATE MATERIALIZED VIEW v AS SELECT d.name, count(*) AS n, sum(t.v) AS s, max(t.v) AS m FROM t JOIN d USING (k) GROUP BY 1",
        )
        .expect("a view");
    let differ = "SELECT count(*) FROM (SELECT name, n, s, m FROM v EXCEPT ALL \
                  SELECT d.name, count(*), sum(t.v), max(t.v) FROM t JOIN d USING (k) GROUP BY 1) AS x";
    let known = client.rows("SELECT parallelism, rescaling FROM millpond.jobs WHERE name = 'v'").expect("rows");
    let mut before = known[0].strip_suffix(" NULL").expect("nothing is under way").to_owned();
    let auto = before.clone();
    let mut rescaled = 0;
    for (round, parallelism) in ["3", "1", "5", "AUTO", "4"].into_iter().enumerate() {
        let step = round + 1;
        client.query(&format!("INSERT INTO t SELECT x % 120, x * {step} FROM generate_series(1, 2000) AS g(x)")).expect("rows");
        client.query(&format!("DELETE FROM t WHERE v % 7 = {round}")).expect("rows");
        client.query(&format!("ALTER MATERIALIZED VIEW v SET PARALLELISM {parallelism}")).expect(parallelism);
        client.query(&format!("UPDATE t SET v = v + 1 WHERE k % 5 = {round}")).expect("rows");
        assert_eq!(client.rows(differ).expect("rows"), ["0"], "after {parallelism}");
        assert_eq!(client.rows("SELECT count(*) FROM v").expect("rows"), ["100"]);
        rescaled += 1;
        client.await_rows(
            PATIENCE,
            "SELECT count(*) FROM millpond.recoveries WHERE cause = 'alter' AND caught_up_ms >= restored_ms AND from_epoch > 0",
            &[&rescaled.to_string()],
        );
        let after = if parallelism == "AUTO" { auto.as_str() } else { parallelism };
        client.await_rows(
            PATIENCE,
            "SELECT job, from_parallelism, to_parallelism, state, waited_ms <= stopped_ms AND stopped_ms <= started_ms AND started_ms <= sealed_ms, \
             pause_ms < 20000 FROM millpond.rescales ORDER BY ordered_at DESC LIMIT 1",
            &[&format!("v {before} {after} done t t")],
        );
        assert_eq!(
            client.rows("SELECT parallelism, rescaling FROM millpond.jobs WHERE name = 'v'").expect("rows"),
            [format!("{after} NULL")]
        );
        before = after.to_owned();
    }
    // What the job can change as it runs needs no other attempt.
    client.query("ALTER MATERIALIZED VIEW v SET (checkpoint_interval = '50ms')").expect("an interval");
    client.query("INSERT INTO t VALUES (1, 1)").expect("a row");
    assert_eq!(client.rows(differ).expect("rows"), ["0"]);
    assert_eq!(client.rows("SELECT count(*) FROM millpond.recoveries").expect("rows"), [rescaled.to_string()]);
    client.query("ALTER MATERIALIZED VIEW v RESET (checkpoint_interval)").expect("reset");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW v SET (parallelism = 'many')"), "22023");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW v SET (colour = 'blue')"), "22023");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW v SET (background = 'true')"), "22023");
    assert_eq!(sqlstate_of(&mut client, "ALTER TABLE t SET (parallelism = 2)"), "0A000");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW v RESUME"), "55000");
    assert_eq!(sqlstate_of(&mut client, "BEGIN; ALTER MATERIALIZED VIEW v SET PARALLELISM 2"), "25001");
    client.query("ROLLBACK").expect("rolled back");
    client.query("ALTER MATERIALIZED VIEW IF EXISTS w RESUME").expect("a notice");
}

#[test]
fn options_that_mean_nothing_are_refused_with_what_they_could_be() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int)").expect("a table");
    let mut refused = |sql: &str, hint: &str| {
        let error = client.query(sql).expect_err(sql);
        assert_eq!(error.sqlstate(), "22023", "{sql}: {error}");
        assert!(format!("{error:?}").contains(hint), "{sql}: {error:?}");
    };
    let view = |option: &str| format!("CREATE MATERIALIZED VIEW v WITH ({option}) AS SELECT k FROM t");
    refused(&view("recovery_target = 'soon'"), "Valid units");
    refused(&view("recovery_target = '0'"), "at least 1 ms");
    refused(&view("checkpoint_interval = '0s'"), "at least 1 ms");
    refused(&view("checkpoint_interval = '5'"), "needs a unit here, as in '5s'. Valid units");
    refused(&view("aligned_checkpoint_timeout = 500"), "needs a unit");
    refused(&view("background = 'perhaps'"), "true or false");
    refused("CREATE SINK x AS SELECT k FROM t WITH (connector = 'blackhole', checkpoint_interval = 5)", "needs a unit");
    refused("SET read_timeout = '5 weeks'", "Valid units");
    refused(&view("readable = 'later'"), "at_once, caught_up");
    refused(&view("parallelism = 0"), "between 1 and 64");
    refused(&view("colour = 'blue'"), "recovery_target");
    client.query(&view("recovery_target = '2s', readable = 'caught_up'")).expect("a view");
    let mut refused = |sql: &str, hint: &str| {
        let error = client.query(sql).expect_err(sql);
        assert_eq!(error.sqlstate(), "22023", "{sql}: {error}");
        assert!(format!("{error:?}").contains(hint), "{sql}: {error:?}");
    };
    refused("ALTER MATERIALIZED VIEW v SET (recovery_target = '-1s')", "at least 1 ms");
    refused("ALTER MATERIALIZED VIEW v SET (readable = 'never')", "at_once, caught_up");
    refused("ALTER MATERIALIZED VIEW v SET (checkpoint_interval = 5)", "needs a unit");
    refused("ALTER MATERIALIZED VIEW v SET PARALLELISM 65", "between 1 and 64");
    client.query("ALTER MATERIALIZED VIEW v SET (readable = 'at_once', recovery_target = '500ms')").expect("altered");
    client.query("ALTER MATERIALIZED VIEW v RESET (readable, recovery_target)").expect("reset");
    client.query("CREATE SINK s AS SELECT k FROM t WITH (connector = 'blackhole', recovery_target = '1s')").expect("a sink");
    // Nobody reads a sink.
    assert_eq!(sqlstate_of(&mut client, "ALTER SINK s SET (readable = 'at_once')"), "22023");
}

#[test]
fn settings_that_were_altered_are_those_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY 1").expect("a view");
    client.query("INSERT INTO t SELECT x % 10 FROM generate_series(1, 100) AS g(x)").expect("rows");
    client.query("ALTER MATERIALIZED VIEW v SET PARALLELISM = 3").expect("altered");
    assert_eq!(client.rows("SELECT sum(n) FROM v").expect("rows"), ["100"]);
    server.shutdown();
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    client.query("INSERT INTO t SELECT x % 10 FROM generate_series(1, 100) AS g(x)").expect("rows");
    assert_eq!(client.rows("SELECT count(*), min(n), max(n) FROM v").expect("rows"), ["10 20 20"]);
    client.await_rows(PATIENCE, "SELECT cause, caught_up_ms IS NOT NULL FROM millpond.recoveries", &["restart t"]);
}

#[test]
fn a_job_that_failed_goes_on_when_it_is_told_to() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rows.csv");
    fs::write(&file, "1\n2\n").expect("written");
    let server = TestServer::start();
    let mut client = server.connect();
    let with = format!("connector = 'file', path = '{}', format = 'csv', mode = 'watch', bad_rows = 'fail'", file.display());
    client.query(&format!("CREATE SOURCE s (n int) WITH ({with})")).expect("a source");
    client
        .query("CREATE MATERIALIZED VIEW v WITH (checkpoint_interval = '50ms') AS SELECT count(*) AS c, sum(n) AS n FROM s")
        .expect("a view");
    client.await_rows(PATIENCE, "SELECT c, n FROM v", &["2 3"]);
    let append = |text: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(&file).expect("the file");
        file.write_all(text.as_bytes()).expect("written");
    };
    append("many\n3\n");
    let state = "SELECT state FROM millpond.jobs WHERE name = 'v'";
    client.await_rows(PATIENCE, state, &["failed"]);
    let error = client.rows("SELECT error FROM millpond.jobs WHERE name = 'v'").expect("rows");
    assert!(error[0].contains("rows.csv"), "{error:?}");
    // It is told to go on, but nothing has been mended.
    client.query("ALTER MATERIALIZED VIEW v RESUME").expect("resumed");
    client.await_rows(PATIENCE, state, &["failed"]);
    client.query("ALTER MATERIALIZED VIEW v RESUME SKIP").expect("resumed");
    client.query("SET read_freshness = 'any'").expect("set");
    client.await_rows(PATIENCE, "SELECT c, n FROM v", &["3 6"]);
    assert_eq!(client.rows("SELECT row_text FROM millpond.bad_rows").expect("rows"), ["many"]);
    client.await_rows(PATIENCE, state, &["running"]);
    client.await_rows(PATIENCE, "SELECT bool_or(caught_up_ms IS NOT NULL) FROM millpond.recoveries WHERE cause = 'resume'", &["t"]);
    append("4\n");
    client.await_rows(PATIENCE, "SELECT c, n FROM v", &["4 10"]);
    // What the job had skipped it skipped until a checkpoint: the next such row fails it again.
    let epoch = client.rows("SELECT epoch FROM millpond.jobs WHERE name = 'v'").expect("rows").remove(0);
    append("5\n");
    client.await_rows(PATIENCE, &format!("SELECT bool_or(epoch > {epoch} AND error IS NULL) FROM millpond.checkpoints"), &["t"]);
    append("more\n");
    client.await_rows(PATIENCE, state, &["failed"]);
}
