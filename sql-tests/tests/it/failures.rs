//! Jobs that fail for good, jobs that are stuck, and what goes on beside them.

use std::time::{Duration, Instant};

use millpond_sql_tests::{Message, TestServer, WireClient, query};

/// Something that happens soon takes longer than this only if it never happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a stuck job does not hold up takes no longer, on a slow machine too.
const BOUND: Duration = Duration::from_secs(15);

fn run(client: &mut WireClient, sql: &str) {
    client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}"));
}

/// An array of more dimensions than there can be: an error that is not the row's alone, so that the job fails.
const UNREADABLE: &str = "{{{{{{{1}}}}}}}";
const STATE: &str = "SELECT state FROM millpond.jobs WHERE name = 'v'";

#[test]
fn a_job_that_fails_says_for_which_row_and_goes_on_without_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    run(&mut client, "CREATE TABLE t (k int, a text)");
    run(&mut client, "CREATE MATERIALIZED VIEW v WITH (checkpoint_interval = '50ms') AS SELECT k, a::int[] AS a FROM t");
    run(&mut client, "INSERT INTO t VALUES (0, '{0}')");
    assert_eq!(client.rows("SELECT count(*) FROM v").expect("rows"), ["1"]);
    let rows = format!("SELECT x, CASE x WHEN 777 THEN '{UNREADABLE}' ELSE '{{1}}' END FROM generate_series(1, 1000) AS g(x)");
    run(&mut client, &format!("INSERT INTO t {rows}"));
    client.await_rows(PATIENCE, STATE, &["failed"]);
    let named =
        format!("SELECT error LIKE 'number of array dimensions%(Project %, row: 777 %{UNREADABLE}%' FROM millpond.jobs WHERE name = 'v'");
    assert_eq!(client.rows(&named).expect("rows"), ["t"], "{:?}", client.rows("SELECT error FROM millpond.jobs"));
    let error = client.query("SELECT * FROM v").expect_err("it has failed");
    assert!(error.to_string().contains("row: 777"), "{error}");

    // Nothing has been mended.
    run(&mut client, "ALTER MATERIALIZED VIEW v RESUME");
    client.await_rows(PATIENCE, STATE, &["failed"]);
    run(&mut client, "ALTER MATERIALIZED VIEW v RESUME SKIP");
    assert_eq!(client.rows("SELECT count(*), sum(k) FROM v").expect("rows"), ["1000 499723"]);
    client.await_rows(PATIENCE, STATE, &["running"]);
    let listed = format!("SELECT job, row_text LIKE '777 %{UNREADABLE}%' FROM millpond.bad_rows");
    assert_eq!(client.rows(&listed).expect("rows"), ["v t"]);

    // It is left out for good, in whatever change it comes; another one is another failure.
    run(&mut client, "DELETE FROM t WHERE k BETWEEN 500 AND 1000");
    assert_eq!(client.rows("SELECT count(*), sum(k) FROM v").expect("rows"), ["500 124750"]);
    let epoch = client.rows("SELECT epoch FROM millpond.jobs WHERE name = 'v'").expect("rows").remove(0);
    client.await_rows(PATIENCE, &format!("SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = 'v' AND epoch >= {epoch}"), &["t"]);
    server.shutdown();
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    run(&mut client, &format!("INSERT INTO t {rows}"));
    assert_eq!(client.rows("SELECT count(*), sum(k) FROM v").expect("rows"), ["1499 624473"]);
    run(&mut client, &format!("INSERT INTO t VALUES (778, '{UNREADABLE}')"));
    client.await_rows(PATIENCE, STATE, &["failed"]);
}

/// Runs a query and answers its rows and what was said beside them.
fn told(client: &mut WireClient, sql: &str) -> (Vec<String>, Vec<String>) {
    client.notices.clear();
    let rows = client.rows(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}"));
    let text = |notice: &Message| {
        let fields: Vec<String> = notice.fields().into_iter().filter(|(code, _)| "SCMH".contains(*code)).map(|(_, text)| text).collect();
        fields.join(" ")
    };
    (rows, client.notices.iter().map(text).collect())
}

#[test]
fn a_view_whose_job_has_failed_does_not_pass_off_what_was_as_what_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rows.csv");
    std::fs::write(&file, "1\n2\n").expect("written");
    let server = TestServer::start();
    let mut client = server.connect();
    let with = format!("connector = 'file', path = '{}', format = 'csv', mode = 'watch', bad_rows = 'fail'", file.display());
    run(&mut client, &format!("CREATE SOURCE s (n int) WITH ({with})"));
    run(&mut client, "CREATE TABLE t (k int)");
    run(&mut client, "CREATE MATERIALIZED VIEW v WITH (checkpoint_interval = '50ms') AS SELECT n, count(*) AS c FROM s GROUP BY n");
    run(&mut client, "CREATE MATERIALIZED VIEW w AS SELECT sum(c) AS c, (SELECT count(*) FROM t) AS k FROM v");
    client.await_rows(PATIENCE, "SELECT c FROM w", &["2"]);
    assert!(told(&mut client, "SELECT c FROM v WHERE n = 1").1.is_empty());
    let mut file = std::fs::OpenOptions::new().append(true).open(&file).expect("the file");
    std::io::Write::write_all(&mut file, b"many\n").expect("written");
    client.await_rows(PATIENCE, STATE, &["failed"]);
    for freshness in ["default", "any"] {
        run(&mut client, &format!("SET read_freshness = '{freshness}'"));
        run(&mut client, "PREPARE one AS SELECT c FROM v WHERE n = $1");
        for (sql, row) in [("SELECT c FROM v WHERE n = 1", "1"), ("EXECUTE one (1)", "1"), ("SELECT w.c FROM w CROSS JOIN v LIMIT 1", "2")]
        {
            let (rows, notices) = told(&mut client, sql);
            assert_eq!((rows, notices.len()), (vec![row.to_owned()], 1), "{sql}: {notices:?}");
            assert!(notices[0].starts_with("WARNING 01000 relation \"v\" is not up to date: its job has failed: "), "{notices:?}");
            assert!(notices[0].contains("rows.csv") && notices[0].contains("RESUME"), "{notices:?}");
        }
        run(&mut client, "DEALLOCATE one");
    }
    assert!(told(&mut client, "SELECT count(*) FROM t").1.is_empty());
    run(&mut client, "SET read_freshness = 'strict'");
    for sql in ["SELECT c FROM v WHERE n = 1", "SELECT c FROM w"] {
        let error = client.query(sql).expect_err("not what its query gives");
        assert!(error.sqlstate() == "55000" && error.to_string().contains("relation \"v\" is not up to date"), "{sql}: {error}");
    }
    // What needs a change of the table waits for no job that does not come to it.
    run(&mut client, "SET read_freshness = 'default'; INSERT INTO t VALUES (1)");
    let began = Instant::now();
    let error = client.query("SELECT c FROM w").expect_err("not up to date");
    assert!(error.sqlstate() == "55000" && began.elapsed() < BOUND / 2, "{error} after {:?}", began.elapsed());
    run(&mut client, "ALTER MATERIALIZED VIEW v RESUME SKIP");
    client.await_rows(PATIENCE, STATE, &["running"]);
    let (rows, notices) = told(&mut client, "SELECT c, k FROM w");
    assert_eq!((rows, notices.len()), (vec!["2 1".to_owned()], 0), "{notices:?}");
}

/// Runs a statement beside a stuck job.
fn promptly(client: &mut WireClient, sql: &str) -> Vec<String> {
    let began = Instant::now();
    let rows = client.rows(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}"));
    assert!(began.elapsed() < BOUND, "{sql} took {:?}", began.elapsed());
    rows
}

/// Runs a statement in a session of its own and cancels it; answers how it ended.
fn cancelled(server: &TestServer, sql: &str) -> String {
    let mut session = server.connect();
    session.send(&query(sql)).expect("sent");
    session.cancel_until_ready().expect_err("cancelled").sqlstate().to_owned()
}

#[test]
fn a_stuck_job_holds_up_neither_definitions_nor_reads_nor_cancels() {
    let server = TestServer::start();
    let mut client = server.connect();
    run(&mut client, "CREATE TABLE big (n int)");
    run(&mut client, "CREATE TABLE t (n int)");
    run(&mut client, "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c FROM t");
    run(&mut client, "INSERT INTO big SELECT * FROM generate_series(1, 5000)");
    // A hundred thousand million pairs of pairs: for the length of this test it takes everything it is given.
    let stuck = "SELECT count(*) AS c FROM big a CROSS JOIN big b CROSS JOIN big c WHERE a.n + b.n + c.n < 0";
    promptly(&mut client, &format!("CREATE MATERIALIZED VIEW stuck WITH (background = true) AS {stuck}"));
    client.await_rows(PATIENCE, "SELECT rows > 0 FROM millpond.jobs WHERE name = 'stuck'", &["t"]);
    // What psql asks for \d waits for no job.
    let listed = "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                  LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam WHERE c.relkind IN ('r','p','v','m','S','f','') \
                  AND n.nspname <> 'pg_catalog' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1, 2";
    assert_eq!(promptly(&mut client, listed), ["public big", "public stuck", "public t", "public v"]);
    for round in 1..=3 {
        promptly(&mut client, &format!("INSERT INTO t VALUES ({round})"));
        assert_eq!(promptly(&mut client, "SELECT c FROM v"), [round.to_string()]);
        promptly(&mut client, "CREATE MATERIALIZED VIEW w AS SELECT max(n) AS m FROM t");
        assert_eq!(promptly(&mut client, "SELECT m FROM w"), [round.to_string()]);
        promptly(&mut client, "DROP MATERIALIZED VIEW w");
    }
    // Whoever waits for another one like it stops waiting, and it is gone.
    let began = Instant::now();
    assert_eq!(cancelled(&server, &format!("CREATE MATERIALIZED VIEW waited AS {stuck}")), "57014");
    assert_eq!(client.query("SELECT c FROM stuck").expect_err("not populated yet").sqlstate(), "55000");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    assert!(promptly(&mut client, "SELECT name FROM millpond.jobs WHERE name = 'waited'").is_empty());
    promptly(&mut client, "DROP MATERIALIZED VIEW stuck");
    assert!(promptly(&mut client, "SELECT name FROM millpond.jobs WHERE name = 'stuck'").is_empty());
    let began = Instant::now();
    server.shutdown();
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

#[test]
fn a_file_that_is_gone_fails_a_job_that_needs_it_and_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(directory.path().join(name));
        std::io::Write::write_all(&mut file.expect("the file"), text.as_bytes()).expect("written");
    };
    write("a.csv", "1\n");
    write("b.csv", "2\n");
    let server = TestServer::start();
    let mut client = server.connect();
    let with = format!("connector = 'file', path = '{}', format = 'csv', mode = 'watch'", directory.path().display());
    run(&mut client, &format!("CREATE SOURCE s (n int) WITH ({with})"));
    run(&mut client, "CREATE MATERIALIZED VIEW v WITH (checkpoint_interval = '50ms') AS SELECT n, count(*) AS c FROM s GROUP BY n");
    client.await_rows(PATIENCE, "SELECT n FROM v ORDER BY n", &["1", "2"]);
    let epoch = client.rows("SELECT epoch FROM millpond.jobs WHERE name = 'v'").expect("rows").remove(0);
    client.await_rows(PATIENCE, &format!("SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = 'v' AND epoch >= {epoch}"), &["t"]);
    run(&mut client, "ALTER MATERIALIZED VIEW v SET (checkpoint_interval = '1h')");
    write("b.csv", "3\n");
    client.await_rows(PATIENCE, "SELECT n FROM v ORDER BY n", &["1", "2", "3"]);
    std::fs::remove_file(directory.path().join("b.csv")).expect("removed");
    // It has to read the last row again.
    run(&mut client, "ALTER MATERIALIZED VIEW v FAIL SUBTASK 0 OF FRAGMENT 0");
    client.await_rows(PATIENCE, STATE, &["failed"]);
    let (_, notices) = told(&mut client, "SELECT n FROM v");
    assert!(notices[0].contains("b.csv\": No such file or directory"), "{notices:?}");
    // A view that comes now is of the files that are there.
    run(&mut client, "CREATE MATERIALIZED VIEW w AS SELECT n FROM s");
    client.await_rows(PATIENCE, "SELECT n FROM w", &["1"]);
    run(&mut client, "ALTER MATERIALIZED VIEW v RESUME SKIP");
    client.await_rows(PATIENCE, STATE, &["running"]);
    assert_eq!(client.rows("SELECT row_text FROM millpond.bad_rows WHERE job = 'v'").expect("rows"), ["b.csv"]);
    write("a.csv", "4\n");
    client.await_rows(PATIENCE, "SELECT n FROM v WHERE n = 4", &["4"]);
    client.await_rows(PATIENCE, "SELECT n FROM w ORDER BY n", &["1", "4"]);
}
