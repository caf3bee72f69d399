//! Files that were damaged behind the server's back: each is named, and none is taken for what it is not. What a crash leaves half written is
//! no damage.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use millpond_sql_tests::TestServer;

/// A directory with a table, a view over it and a checkpoint.
fn filled(directory: &Path) {
    let server = TestServer::start_on(directory).expect("a server");
    let mut client = server.connect();
    client.query("CREATE TABLE t (a bigint PRIMARY KEY, b text)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT b, count(*) AS n FROM t GROUP BY b").expect("a view");
    for part in 0..20 {
        let from = part * 100;
        let sql = format!("INSERT INTO t SELECT g, 'group ' || (g % 7) FROM generate_series({from}, {}) AS x(g)", from + 99);
        client.query(&sql).expect("rows");
    }
    assert_eq!(client.rows("SELECT sum(n) FROM v").expect("rows"), ["2000"]);
    client.terminate();
    server.shutdown();
}

/// Files under a directory, largest first.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((fs::metadata(&path).expect("a file").len(), path));
            }
        }
    }
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Changes a byte of the first record, behind which there are others.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[40] ^= 0x55;
    fs::write(path, bytes).expect("written");
}

fn refused(directory: &Path) -> String {
    match TestServer::start_on(directory) {
        Ok(_) => panic!("the damage was not found"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_damaged_log_is_named_and_a_torn_one_is_cut() {
    for log in ["epoch-log", "catalog"] {
        let directory = tempfile::tempdir().expect("a directory");
        filled(directory.path());
        let path = files(&directory.path().join(log)).remove(0);
        let whole = fs::read(&path).expect("a file");
        damage(&path);
        let error = refused(directory.path());
        assert!(error.contains(path.to_str().expect("a name")) && error.contains("corrupt"), "{error}");
        // Half a record behind the last one is what a crash leaves.
        fs::write(&path, [&whole[..], &whole[24..56]].concat()).expect("written");
        let server = TestServer::start_on(directory.path()).expect("a server");
        let mut client = server.connect();
        assert_eq!(client.rows("SELECT count(*), sum(a) FROM t").expect("rows"), ["2000 1999000"]);
        assert_eq!(client.rows("SELECT sum(n) FROM v").expect("rows"), ["2000"]);
    }
}

#[test]
fn a_damaged_checkpoint_fails_its_job_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    filled(directory.path());
    let objects = files(&directory.path().join("objects"));
    let manifest = objects.iter().filter(|path| path.to_str().is_some_and(|name| name.contains("manifest-"))).max().expect("a manifest");
    let whole = fs::read(manifest).expect("a file");
    for cut in [0, whole.len() / 2] {
        fs::write(manifest, &whole[..cut]).expect("written");
        let server = TestServer::start_on(directory.path()).expect("a server");
        let mut client = server.connect();
        assert_eq!(client.rows("SELECT count(*) FROM t").expect("rows"), ["2000"]);
        let started = Instant::now();
        let error = loop {
            let rows = client.rows("SELECT state, error FROM millpond.jobs WHERE name = 'v'").expect("rows");
            if let Some(error) = rows[0].strip_prefix("failed ") {
                break error.to_owned();
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{rows:?}");
            std::thread::yield_now();
        };
        let name = manifest.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(error.contains(name), "{error}");
        // What it had made can be read.
        client.query("SET read_freshness = 'any'").expect("set");
        assert_eq!(client.rows("SELECT sum(n) FROM v").expect("rows"), ["2000"]);
    }
}

#[test]
fn a_damaged_source_file_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = TestServer::start();
    let mut client = server.connect();
    let parquet = directory.path().join("rows.parquet");
    fs::write(&parquet, b"PAR1 and then nothing that it should be").expect("written");
    let error = client.query(&format!("CREATE SOURCE p WITH (connector = 'file', path = '{}', format = 'parquet')", parquet.display()));
    let error = error.expect_err("damaged").to_string();
    assert!(error.contains("rows.parquet"), "{error}");
    let csv = directory.path().join("rows.csv");
    fs::write(&csv, "a,b\n1,2\nx,3\n4\n5,6\n").expect("written");
    let with = format!("connector = 'file', path = '{}', format = 'csv', header = 'true'", csv.display());
    client.query(&format!("CREATE SOURCE c (a int, b int) WITH ({with})")).expect("a source");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT a, b FROM c").expect("a view");
    assert_eq!(client.rows("SELECT a, b FROM v ORDER BY a").expect("rows"), ["1 2", "5 6"]);
    assert_eq!(client.rows("SELECT row_text FROM millpond.bad_rows ORDER BY 1").expect("rows"), ["4", "x,3"]);
    client.query(&format!("CREATE SOURCE strict (a int, b int) WITH ({with}, bad_rows = 'fail')")).expect("a source");
    let error = client.query("CREATE MATERIALIZED VIEW w AS SELECT a, b FROM strict").expect_err("a bad row").to_string();
    assert!(error.contains("rows.csv"), "{error}");
}

#[test]
fn a_view_over_files_that_are_away_goes_on_when_they_are_back() {
    let (directory, files) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (here, away) = (files.path().join("rows.csv"), files.path().join("away"));
    fs::write(&here, "1\n2\n3\n").expect("written");
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    let with = format!("connector = 'file', path = '{}', format = 'csv', header = 'false'", here.display());
    client.query(&format!("CREATE SOURCE c (a int) WITH ({with})")).expect("a source");
    client.query("CREATE TABLE t (a int)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW v AS SELECT c.a FROM c JOIN t ON t.a = c.a").expect("a view");
    client.query("INSERT INTO t VALUES (2)").expect("a row");
    assert_eq!(client.rows("SELECT a FROM v").expect("rows"), ["2"]);
    server.shutdown();

    fs::rename(&here, &away).expect("renamed");
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    let states = client.rows("SELECT state, error FROM millpond.jobs WHERE name = 'v'").expect("rows");
    assert!(states[0].starts_with("failed "), "{states:?}");
    let errors = client.rows("SELECT source, error FROM millpond.sources").expect("rows");
    assert!(errors[0].starts_with("c ") && errors[0].contains("rows.csv"), "{errors:?}");
    client.query("INSERT INTO t VALUES (3)").expect("a row");
    server.shutdown();

    fs::rename(&away, &here).expect("renamed");
    let server = TestServer::start_on(directory.path()).expect("a server");
    let mut client = server.connect();
    assert_eq!(client.rows("SELECT a FROM v ORDER BY a").expect("rows"), ["2", "3"]);
}
