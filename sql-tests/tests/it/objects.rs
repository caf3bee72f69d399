//! Checkpoints, sources and sinks in an S3 store, which is not always there.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use millpond_sql_tests::{ObjectServer, ServerProcess, WireClient};

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");
const BUCKET: &str = "ponds";
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn store() -> ObjectServer {
    let store = ObjectServer::start();
    store.create_bucket(BUCKET);
    store
}

fn serve(store: &ObjectServer, directory: &Path) -> ServerProcess {
    let environment = store.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let location = format!("s3://{BUCKET}/here/checkpoints");
    let arguments = ["--checkpoint-interval-ms", "200", "--parallelism", "2", "--object-store", &location];
    ServerProcess::start_with(Path::new(BINARY), directory, &arguments, &environment)
}

fn run(client: &mut WireClient, sql: &str) {
    client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}"));
}

/// Runs a query until its rows are as wanted. Meanwhile epochs go by: without any there is no checkpoint either.
fn await_rows(client: &mut WireClient, sql: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    let started = Instant::now();
    run(client, "CREATE TABLE IF NOT EXISTS clock (n int)");
    loop {
        run(client, "INSERT INTO clock VALUES (1)");
        let rows = client.rows(sql).expect("rows");
        if wanted(&rows) {
            return rows;
        }
        assert!(started.elapsed() < PATIENCE, "{sql}: {rows:?}");
        std::thread::yield_now();
    }
}

/// Waits for a checkpoint of the view that is newer than what has been written so far.
fn await_checkpoint(client: &mut WireClient) {
    let epoch = client.rows("SELECT epoch FROM millpond.jobs WHERE name = 'v'").expect("rows").remove(0);
    let sql = format!("SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = 'v' AND error IS NULL AND epoch >= {epoch}");
    await_rows(client, &sql, |rows| rows == ["t"]);
}

#[test]
fn checkpoints_in_a_store_survive_a_kill_and_a_store_that_is_away() {
    let (store, directory) = (store(), tempfile::tempdir().expect("a directory"));
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(&mut client, "CREATE TABLE t (k int, n bigint)");
    run(&mut client, "CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k");
    let insert = |client: &mut WireClient, from: u64| {
        run(client, &format!("INSERT INTO t SELECT g % 10, g FROM generate_series({from}, {}) AS x(g)", from + 999));
    };
    let total = "SELECT sum(c), sum(s) FROM v";
    insert(&mut client, 0);
    assert_eq!(client.rows(total).expect("rows"), ["1000 499500"]);
    await_checkpoint(&mut client);
    let objects = store.list(BUCKET);
    assert!(objects.iter().any(|name| name.starts_with("here/checkpoints/jobs/") && name.contains("/manifest-")), "{objects:?}");
    server.kill();

    // From the store and what is on the disk.
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    assert_eq!(client.rows(total).expect("rows"), ["1000 499500"]);
    insert(&mut client, 1000);
    assert_eq!(client.rows(total).expect("rows"), ["2000 1999000"]);

    // While the store is away the job goes on, and says what it misses.
    store.set_reachable(false);
    insert(&mut client, 2000);
    assert_eq!(client.rows(total).expect("rows"), ["3000 4498500"]);
    let failed = "SELECT error FROM millpond.checkpoints WHERE job = 'v' AND error IS NOT NULL";
    let errors = await_rows(&mut client, failed, |rows| !rows.is_empty());
    assert!(errors[0].contains("object store") && errors[0].contains("jobs/"), "{errors:?}");
    assert!(server.log().iter().any(|line| line.contains("checkpoint failed")), "the log tells it");
    insert(&mut client, 3000);
    assert_eq!(client.rows(total).expect("rows"), ["4000 7998000"]);
    assert_eq!(client.rows("SELECT state, restarts FROM millpond.jobs WHERE name = 'v'").expect("rows"), ["running 0"]);

    // Back again, it is caught up by itself.
    store.set_reachable(true);
    await_checkpoint(&mut client);
    server.kill();
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    assert_eq!(client.rows(total).expect("rows"), ["4000 7998000"]);
    assert_eq!(server.terminate().code(), Some(0));
}

#[test]
fn a_server_that_starts_while_the_store_is_away_goes_on_when_it_is_back() {
    let (store, directory) = (store(), tempfile::tempdir().expect("a directory"));
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(&mut client, "CREATE TABLE t (k int)");
    run(&mut client, "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c FROM t");
    run(&mut client, "INSERT INTO t VALUES (1), (2)");
    // The view has them, and its checkpoint is of an epoch that has them.
    assert_eq!(client.rows("SELECT c FROM v").expect("rows"), ["2"]);
    await_checkpoint(&mut client);
    server.kill();
    store.set_reachable(false);
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(&mut client, "INSERT INTO t VALUES (3)");
    assert_eq!(client.rows("SELECT count(*) FROM t").expect("rows"), ["3"]);
    run(&mut client, "SET read_freshness = 'any'");
    assert_eq!(client.rows("SELECT c FROM v").expect("rows"), ["2"]);
    store.set_reachable(true);
    run(&mut client, "SET read_freshness = 'default'");
    await_rows(&mut client, "SELECT state FROM millpond.jobs WHERE name = 'v'", |rows| rows == ["running"]);
    assert_eq!(client.rows("SELECT c FROM v").expect("rows"), ["3"]);
}

#[test]
fn a_view_that_is_to_be_read_when_caught_up_is_not_read_before() {
    let (store, directory) = (store(), tempfile::tempdir().expect("a directory"));
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(&mut client, "CREATE TABLE t (k int)");
    run(&mut client, "CREATE MATERIALIZED VIEW v WITH (readable = 'caught_up') AS SELECT count(*) AS c FROM t");
    run(&mut client, "INSERT INTO t VALUES (1), (2)");
    assert_eq!(client.rows("SELECT c FROM v").expect("rows"), ["2"]);
    await_checkpoint(&mut client);
    server.kill();
    // Without its checkpoint it cannot catch up.
    store.set_reachable(false);
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(&mut client, "SET read_freshness = 'any'");
    run(&mut client, "SET statement_timeout = '300ms'");
    assert_eq!(client.rows("SELECT c FROM v").expect_err("not yet").sqlstate(), "57014");
    run(&mut client, "ALTER MATERIALIZED VIEW v SET (readable = 'at_once')");
    assert_eq!(client.rows("SELECT c FROM v").expect("rows"), ["2"]);
    run(&mut client, "ALTER MATERIALIZED VIEW v SET (readable = 'caught_up')");
    assert_eq!(client.rows("SELECT c FROM v").expect_err("not yet").sqlstate(), "57014");
    store.set_reachable(true);
    run(&mut client, "SET statement_timeout = '60s'");
    assert_eq!(client.rows("SELECT c FROM v").expect("rows"), ["2"]);
}

/// The files below the data directory that a view's state is restored from.
fn local_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let folders = std::fs::read_dir(directory.join("materializations")).expect("a folder").map(|entry| entry.expect("listed").path());
    folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("listed").path())).collect()
}

#[test]
fn state_is_restored_from_local_files_and_from_the_store_where_they_are_not_there() {
    let (store, directory) = (store(), tempfile::tempdir().expect("a directory"));
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(&mut client, "CREATE TABLE t (k int, n text)");
    // A log longer than the least that is worth a materialization.
    run(&mut client, "CREATE MATERIALIZED VIEW v WITH (recovery_target = '1ms') AS SELECT k, max(n) AS m FROM t GROUP BY k");
    run(&mut client, "INSERT INTO t SELECT x, x || repeat('-', 100) FROM generate_series(1, 20000) AS g(x)");
    let materialized = "SELECT bool_or(materialization_bytes > 0), bool_and(stored_bytes >= replay_bytes), max(replay_ms) > 0 \
                        FROM millpond.checkpoints WHERE job = 'v'";
    let mut count = 0;
    loop {
        // Each checkpoint has something to contain.
        count += 1;
        run(&mut client, &format!("INSERT INTO t VALUES (0, '{count:06}')"));
        await_checkpoint(&mut client);
        if client.rows(materialized).expect("rows") == ["t t t"] {
            break;
        }
        assert!(count < 100, "{:?}", client.rows("SELECT * FROM millpond.checkpoints"));
    }
    // One more: then the newest manifest names the materialization.
    await_rows(
        &mut client,
        "SELECT bool_or(replay_bytes < 1000000 AND stored_bytes > replay_bytes) FROM millpond.checkpoints WHERE job = 'v'",
        |rows| rows == ["t"],
    );
    await_checkpoint(&mut client);
    let contents = "SELECT count(*), count(DISTINCT m), max(length(m)) FROM v";
    let expected = client.rows(contents).expect("rows");
    server.kill();
    let recovery = "SELECT restored_from, local_files > 0, store_files > 0 FROM millpond.recoveries WHERE job = 'v' AND cause = 'restart'";
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    assert_eq!(client.rows(contents).expect("rows"), expected);
    client.await_rows(PATIENCE, recovery, &["local t f"]);
    server.kill();

    let files = local_files(directory.path());
    let damaged = files.iter().max_by_key(|file| file.metadata().expect("a file").len()).expect("files");
    let mut bytes = std::fs::read(damaged).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(damaged, bytes).expect("written");
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    assert_eq!(client.rows(contents).expect("rows"), expected);
    client.await_rows(PATIENCE, recovery, &["both t t"]);
    assert!(server.log().iter().any(|line| line.contains("damaged")), "the log tells it");
    server.kill();

    std::fs::remove_dir_all(directory.path().join("materializations")).expect("removed");
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    assert_eq!(client.rows(contents).expect("rows"), expected);
    client.await_rows(PATIENCE, recovery, &["object store f t"]);
    run(&mut client, "DROP MATERIALIZED VIEW v");
    assert!(local_files(directory.path()).is_empty());
}

#[test]
fn sources_and_sinks_are_read_from_and_written_to_a_store() {
    let (store, directory) = (store(), tempfile::tempdir().expect("a directory"));
    store.put(BUCKET, "in/rows.csv", b"a,b\n1,x\n2,y\n3,z\n");
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    run(
        &mut client,
        &format!(
            "CREATE SOURCE c (a int, b text) WITH (connector = 'file', path = 's3://{BUCKET}/in/rows.csv', format = 'csv', header = 'true')"
        ),
    );
    assert_eq!(client.rows("SELECT a, b FROM c ORDER BY a").expect("rows"), ["1 x", "2 y", "3 z"]);
    run(&mut client, "CREATE MATERIALIZED VIEW v AS SELECT b, sum(a) AS s FROM c GROUP BY b");
    assert_eq!(client.rows("SELECT b, s FROM v ORDER BY b").expect("rows"), ["x 1", "y 2", "z 3"]);

    // A sink writes Parquet files into a folder; a source reads the folder.
    run(&mut client, "CREATE TABLE t (a bigint, b text)");
    run(&mut client, "INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 5000) AS x(g)");
    let sink = format!("WITH (connector = 'file', path = 's3://{BUCKET}/out', format = 'parquet', force_append_only = 'true')");
    run(&mut client, &format!("CREATE SINK k AS SELECT a, b FROM t {sink}"));
    let started = Instant::now();
    // The mark of a sink lies there from the start.
    let is_manifest = |name: &String| name.starts_with("out/_manifest/") && name.ends_with(".json");
    while !store.list(BUCKET).iter().any(is_manifest) {
        assert!(started.elapsed() < PATIENCE, "{:?}", store.list(BUCKET));
        std::thread::yield_now();
    }
    let again = format!("WITH (connector = 'file', path = 's3://{BUCKET}/out', format = 'parquet', mode = 'watch')");
    run(&mut client, &format!("CREATE SOURCE p {again}"));
    assert_eq!(client.rows("SELECT count(*), sum(a), max(b) FROM p").expect("rows"), ["5000 12502500 row 999"]);
    run(&mut client, "CREATE MATERIALIZED VIEW w AS SELECT count(*) AS c, sum(a) AS s FROM p");
    await_rows(&mut client, "SELECT c, s FROM w", |rows| rows == ["5000 12502500"]);

    // What is written while the store is away comes when it is back, once; the source finds it.
    store.set_reachable(false);
    run(&mut client, "INSERT INTO t VALUES (5001, 'late')");
    await_rows(&mut client, "SELECT error IS NOT NULL FROM millpond.jobs WHERE name = 'k'", |rows| rows == ["t"]);
    server.kill();
    store.set_reachable(true);
    let server = serve(&store, directory.path());
    let mut client = server.connect().expect("a session");
    await_rows(&mut client, "SELECT c, s FROM w", |rows| rows == ["5001 12507501"]);
    assert_eq!(client.rows("SELECT count(*), sum(a) FROM p").expect("rows"), ["5001 12507501"]);

    // What is not there, or is no Parquet, is named.
    store.put(BUCKET, "bad/rows.parquet", b"PAR1 and nothing that it should be");
    for path in ["bad", "nothing/here.parquet"] {
        let with = format!("WITH (connector = 'file', path = 's3://{BUCKET}/{path}', format = 'parquet')");
        let error = client.query(&format!("CREATE SOURCE q {with}")).expect_err("refused").to_string();
        assert!(error.contains(path), "{error}");
    }
}
