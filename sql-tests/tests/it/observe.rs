//! What an operator sees of jobs, sources and failures: system relations, metrics, notices.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use millpond_sql_tests::{Message, TestServer, WireClient, query};

/// Something that happens soon takes longer than this only if it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn metrics_show_jobs_epochs_checkpoints_and_sources() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE SOURCE s (a bigint) WITH (connector = 'datagen', rows = '500', rows_per_second = '0')").expect("a source");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT a % 10 AS k, count(*) AS n FROM s GROUP BY 1").expect("a view");
    assert_eq!(client.rows("SELECT sum(n) FROM v").expect("rows"), ["500"]);
    let mut socket = TcpStream::connect(server.http_address().expect("on")).expect("a connection");
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut metrics = String::new();
    socket.read_to_string(&mut metrics).expect("an answer");
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(&format!("millpond_{name}")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {metrics}"));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    assert!(value("epoch ") > 0.0 && value("epoch_log_bytes") > 0.0 && value("memory_limit_bytes") > 0.0);
    assert_eq!((value("epoch_log_full"), value("bad_rows_total")), (0.0, 0.0));
    assert_eq!(value("job_rows_total{job=\"v\""), 500.0);
    assert!(value("job_epoch{job=\"v\"") > 0.0 && value("checkpoint_epoch{job=\"v\"") > 0.0);
    assert_eq!((value("source_rows_total{source=\"s\""), value("source_splits{source=\"s\"")), (500.0, 1.0));
}

#[test]
fn system_relations_tell_how_far_jobs_and_sources_are() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE SOURCE s (a bigint) WITH (connector = 'datagen', rows = '500', rows_per_second = '0')").expect("a source");
    client.query("CREATE TABLE t (a bigint PRIMARY KEY)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s").expect("a view");
    client.query("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM t").expect("a view");
    client.query("INSERT INTO t SELECT * FROM generate_series(1, 10)").expect("rows");
    assert_eq!(client.rows("SELECT n FROM w").expect("rows"), ["10"]);
    // A job over what has ended ends, and its view stays.
    client.await_rows(
        PATIENCE,
        "SELECT name, kind, state FROM millpond.jobs ORDER BY name",
        &["t table running", "v view finished", "w view running"],
    );
    assert_eq!(client.rows("SELECT n FROM v").expect("rows"), ["500"]);
    client.await_rows(PATIENCE, "SELECT lag_ms, restarts, error, rows FROM millpond.jobs WHERE name = 'w'", &["0 0 NULL 10"]);
    assert_eq!(client.query("SHOW JOBS").expect("jobs").rows.len(), 3);
    let sources = "SELECT source, split_offset, bounded, finished, rows FROM millpond.sources";
    assert_eq!(client.rows(sources).expect("rows"), ["s 500 t t 500"]);
    let checkpoints =
        "SELECT job, bool_and(epoch > 0 AND duration_ms > 0 AND error IS NULL) FROM millpond.checkpoints WHERE job = 'v' GROUP BY 1";
    assert_eq!(client.rows(checkpoints).expect("rows"), ["v t"]);
}

#[test]
fn a_row_that_an_expression_cannot_take_is_put_aside() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (a int, b int)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT a, 100 / b AS q FROM t").expect("a view");
    client.query("INSERT INTO t VALUES (1, 2), (2, 0), (3, 4)").expect("rows");
    assert_eq!(client.rows("SELECT a, q FROM v ORDER BY a").expect("rows"), ["1 50", "3 25"]);
    assert_eq!(client.rows("SELECT job, reason, row_text FROM millpond.bad_rows").expect("rows"), ["v division by zero 2 0"]);
    client.query("DELETE FROM t WHERE b = 0").expect("deleted");
    assert_eq!(client.rows("SELECT a, q FROM v ORDER BY a").expect("rows"), ["1 50", "3 25"]);
}

#[test]
fn a_job_that_fails_says_why_and_for_which_group() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int, x double precision)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT k, sum(x) AS s FROM t GROUP BY k").expect("a view");
    client.query("INSERT INTO t VALUES (1, 1)").expect("a row");
    assert_eq!(client.rows("SELECT * FROM v").expect("rows"), ["1 1"]);
    client.query("INSERT INTO t VALUES (7, 1.7e308), (7, 1.7e308)").expect("rows");
    let why = "value out of range: overflow (aggregate of group 7)";
    client.await_rows(PATIENCE, "SELECT state, error FROM millpond.jobs WHERE name = 'v'", &[&format!("failed {why}")]);
    // A read that needs what the job did not get to does not wait for it; what was is still there.
    let started = Instant::now();
    let error = client.query("SELECT * FROM v").expect_err("failed");
    assert_eq!(error.sqlstate(), "55000");
    assert!(error.to_string().contains(why) && started.elapsed() < Duration::from_secs(5), "{error}");
    client.query("SET read_freshness = 'any'").expect("set");
    assert_eq!(client.rows("SELECT * FROM v").expect("rows"), ["1 1"]);
    let error = client.query("CREATE MATERIALIZED VIEW w AS SELECT k, sum(x) AS s FROM t GROUP BY k").expect_err("fails at once");
    assert_eq!(error.sqlstate(), "22003");
    assert_eq!(client.rows("SELECT count(*) FROM millpond.jobs WHERE name = 'w'").expect("rows"), ["0"]);
    client.query("DROP MATERIALIZED VIEW v").expect("dropped");
}

#[test]
fn a_view_that_is_not_there_yet_has_no_lag_and_a_source_no_known_end() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE SOURCE bid WITH (connector = 'nexmark', table = 'bid', events = '1000000000')").expect("a source");
    client
        .query("CREATE MATERIALIZED VIEW v WITH (background = true) AS SELECT auction, count(*) AS n FROM bid GROUP BY 1")
        .expect("a view");
    client.await_rows(PATIENCE, "SELECT rows > 0, state, lag_ms FROM millpond.jobs WHERE name = 'v'", &["t backfilling NULL"]);
    let backfill = "SELECT state, rows_read > 0, rows_expected, progress FROM millpond.backfills";
    assert_eq!(client.rows(backfill).expect("rows"), ["running t NULL NULL"]);
    let error = client.query("SELECT * FROM v").expect_err("not there yet").to_string();
    assert!(error.contains("is not populated yet: ") && error.contains(" rows read so far"), "{error}");
}

#[test]
fn a_create_that_takes_long_tells_how_far_it_is_and_can_be_cancelled() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (a bigint)").expect("a table");
    client.query("INSERT INTO t SELECT * FROM generate_series(1, 20000)").expect("rows");
    client.query("CREATE SOURCE bids WITH (connector = 'nexmark', table = 'bid', events = '1000000000')").expect("a source");
    let view = "CREATE MATERIALIZED VIEW v AS SELECT b.auction, count(*) AS n FROM bids b JOIN t ON t.a = b.auction GROUP BY 1";
    client.send(&query(view)).expect("sent");
    // The first message is the notice of progress.
    let notice = client.receive_any().expect("a message");
    assert_eq!(notice.kind, b'N');
    let text = notice.fields().into_iter().find(|(code, _)| *code == 'M').map(|(_, text)| text).expect("a text");
    assert!(text.starts_with("materialized view \"v\": ") && text.contains("rows read"), "{text}");
    let started = Instant::now();
    client.cancel().expect("sent");
    assert_eq!(client.until_ready().expect_err("cancelled").sqlstate(), "57014");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(client.rows("SELECT count(*) FROM millpond.jobs WHERE name = 'v'").expect("rows"), ["0"]);
    client.query("CREATE TABLE v (a int)").expect("the name is free");
}

#[test]
fn checkpoints_tell_whether_they_waited_and_what_each_subtask_did() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int, v int)").expect("a table");
    client.query("SET aligned_checkpoint_timeout = 0").expect("a setting");
    client.query("CREATE MATERIALIZED VIEW now AS SELECT k, count(*) AS n FROM t GROUP BY k").expect("a view");
    client.query("RESET aligned_checkpoint_timeout").expect("a setting");
    let later = "CREATE MATERIALIZED VIEW later WITH (aligned_checkpoint_timeout = '1h') AS SELECT k, count(*) AS n FROM t GROUP BY k";
    client.query(later).expect("a view");
    client.query("CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS n FROM t").expect("a view");
    let wrong = client.query("CREATE MATERIALIZED VIEW w WITH (aligned_checkpoint_timeout = 'soon') AS SELECT k FROM t");
    assert_eq!(wrong.expect_err("no time").sqlstate(), "22023");
    let started = Instant::now();
    let mut row = 0;
    let seen = "SELECT job, bool_or(mode = 'unaligned') FROM millpond.checkpoints WHERE job = 'now' GROUP BY 1";
    while client.rows(seen).expect("rows") != ["now t"] {
        assert!(started.elapsed() < PATIENCE, "no checkpoint has overtaken anything");
        client.query(&format!("INSERT INTO t SELECT x % 97, {row} FROM generate_series(1, 500) AS g(x)")).expect("rows");
        row += 1;
    }
    let waited = "SELECT DISTINCT job, mode, in_flight_bytes FROM millpond.checkpoints WHERE job <> 'now' ORDER BY 1";
    let expected = ["later aligned 0", "whole aligned 0"];
    client.await_rows(PATIENCE, waited, &expected);
    let told = "SELECT DISTINCT job FROM millpond.checkpoint_subtasks WHERE delay_ms >= alignment_ms AND sync_ms >= 0 AND fragment >= 0 ORDER BY 1";
    assert_eq!(client.rows(told).expect("rows"), ["later", "now", "whole"]);
    let sums = "SELECT count(*) FROM millpond.checkpoints c JOIN (SELECT job_id, epoch, sum(in_flight_bytes) AS b FROM \
                millpond.checkpoint_subtasks GROUP BY 1, 2) s ON s.job_id = c.job_id AND s.epoch = c.epoch WHERE s.b <> c.in_flight_bytes";
    assert_eq!(client.rows(sums).expect("rows"), ["0"]);
    assert_eq!(
        client.rows("SELECT count(*), sum(n) FROM now").expect("rows"),
        client.rows("SELECT count(*), sum(n) FROM later").expect("rows")
    );
    client.query("ALTER MATERIALIZED VIEW now SET (aligned_checkpoint_timeout = '2s')").expect("changed");
}

#[test]
fn exchanges_tell_what_they_hold_and_may_hold() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int, note text)").expect("a table");
    client.query("SET buffer_debloat_target = '200ms'").expect("a setting");
    // A row takes its function about a millisecond.
    let view = "CREATE MATERIALIZED VIEW v WITH (parallelism = 2) AS SELECT x.k, md5(repeat(x.note || y.note, 300000)) AS m \
                FROM t x JOIN t y ON y.k = x.k";
    client.query(view).expect("a view");
    client.query("RESET buffer_debloat_target").expect("a setting");
    client
        .query("CREATE MATERIALIZED VIEW fixed WITH (buffer_debloat_target = 0) AS SELECT k, count(*) AS n FROM t GROUP BY k")
        .expect("a view");
    let shown = "SELECT job, kind, count(DISTINCT to_subtask), min(target_ms), bool_or(debloated), max(buffered_rows), \
                 bool_and((kind = 'scan') = (exchange IS NULL) AND (kind = 'scan') = (from_fragment IS NULL)) \
                 FROM millpond.exchanges WHERE job = 'fixed' AND kind <> 'forward' GROUP BY 1, 2 ORDER BY 1, 2";
    client.await_rows(PATIENCE, shown, &["fixed hash 2 NULL f 0 t", "fixed scan 2 NULL f 0 t"]);
    client.query("INSERT INTO t SELECT x, 'a' FROM generate_series(1, 4000) AS g(x)").expect("rows");
    let full = "SELECT count(*) > 0 FROM millpond.exchanges WHERE job = 'v' AND kind = 'hash' AND debloated AND target_ms = 200 AND \
                buffered_rows > 0 AND buffered_bytes > 0 AND rows_per_second > 0 AND chunk_rows <= capacity_rows";
    client.await_rows(PATIENCE, full, &["t"]);
    let fast = "ALTER MATERIALIZED VIEW v SET (buffer_debloat_target = 0)";
    client.query(fast).expect("changed");
    let wide = "SELECT bool_and(target_ms IS NULL), bool_and(capacity_rows = 32768) FROM millpond.exchanges WHERE job = 'v' AND kind = 'hash' \
                AND rows_per_second > 0";
    client.await_rows(PATIENCE, wide, &["t t"]);
    client.query("ALTER MATERIALIZED VIEW v RESET (buffer_debloat_target)").expect("changed");
    for wrong in ["soon", "-1"] {
        let error = client.query(&format!("ALTER MATERIALIZED VIEW v SET (buffer_debloat_target = '{wrong}')")).expect_err("no time");
        assert_eq!(error.sqlstate(), "22023");
    }
    assert_eq!(client.query("SET buffer_debloat_target = 'soon'").expect_err("no time").sqlstate(), "22023");
    client.query("DROP MATERIALIZED VIEW v").expect("dropped");
    assert_eq!(client.rows("SELECT count(*) FROM millpond.exchanges WHERE job = 'v'").expect("rows"), ["0"]);
}

/// The rows of a query, and the notices about sources that no job reads.
fn told(client: &mut WireClient, sql: &str) -> (Vec<String>, Vec<String>) {
    client.notices.clear();
    let rows = client.rows(sql).expect(sql);
    let field = |notice: &Message, code: char| {
        notice.fields().into_iter().find(|(known, _)| *known == code).map(|(_, value)| value).unwrap_or_default()
    };
    let notices = client.notices.iter().map(|notice| {
        assert!(field(notice, 'H').contains("Create a materialized view over it"), "{notice:?}");
        format!("{}: {}", field(notice, 'S'), field(notice, 'M'))
    });
    (rows, notices.collect())
}

#[test]
fn a_select_from_a_source_that_no_job_reads_says_why_it_has_no_rows() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE SOURCE s (a bigint) WITH (connector = 'datagen', rows_per_second = '10000')").expect("a source");
    client.query("CREATE SOURCE few (a bigint) WITH (connector = 'datagen', rows = '3')").expect("a source");
    client.query("CREATE VIEW above AS SELECT a FROM s").expect("a view");
    let unread = "NOTICE: source \"s\" shows no rows because no materialized view or sink reads it";
    assert_eq!(told(&mut client, "SELECT a FROM s"), (vec![], vec![unread.to_owned()]));
    assert_eq!(told(&mut client, "SELECT count(*) FROM few, above"), (vec!["0".to_owned()], vec![unread.to_owned()]));
    assert_eq!(told(&mut client, "SELECT count(*) FROM few"), (vec!["3".to_owned()], vec![]));
    client.query("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM above").expect("a view");
    client.await_rows(PATIENCE, "SELECT count(*) > 0 FROM s", &["t"]);
    assert_eq!(told(&mut client, "SELECT count(*) > 0 FROM s"), (vec!["t".to_owned()], vec![]));
    client.query("DROP MATERIALIZED VIEW v").expect("dropped");
    let stands = "NOTICE: source \"s\" shows no new rows because no materialized view or sink reads it any more";
    assert_eq!(told(&mut client, "SELECT count(*) > 0 FROM s"), (vec!["t".to_owned()], vec![stands.to_owned()]));
}

#[test]
fn a_select_from_a_watched_folder_that_no_job_reads_says_why_new_files_are_not_seen() {
    let server = TestServer::start();
    let mut client = server.connect();
    let folder = tempfile::tempdir().expect("a folder");
    let with = format!("WITH (connector = 'file', path = '{}', format = 'csv', mode = 'watch')", folder.path().display());
    client.query(&format!("CREATE SOURCE s (n int) {with}")).expect("a source");
    assert_eq!(told(&mut client, "SELECT n FROM s"), (vec![], vec![]), "there is nothing to be read");
    std::fs::write(folder.path().join("a.csv"), "1\n").expect("a file");
    let unread = "NOTICE: source \"s\" shows no rows because no materialized view or sink reads it";
    assert_eq!(told(&mut client, "SELECT n FROM s"), (vec![], vec![unread.to_owned()]));
    client.query("CREATE MATERIALIZED VIEW v AS SELECT n FROM s").expect("a view");
    client.await_rows(PATIENCE, "SELECT n FROM s", &["1"]);
    client.query("DROP MATERIALIZED VIEW v").expect("dropped");
    std::fs::write(folder.path().join("b.csv"), "2\n").expect("a file");
    let stands = "NOTICE: source \"s\" shows no new rows because no materialized view or sink reads it any more";
    assert_eq!(told(&mut client, "SELECT n FROM s"), (vec!["1".to_owned()], vec![stands.to_owned()]));
}
