//! A disk that is full for a while, a small file system of the test's own: changes are refused, reads go on, and when there is space again
//! nothing is lost and everything goes on.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use millpond_sql_tests::{ServerProcess, WireClient};

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");
const ARGUMENTS: [&str; 4] = ["--checkpoint-interval-ms", "200", "--parallelism", "2"];
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const DISK_FULL: &str = "53100";

/// A file system in memory, gone when dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// # Panics
    /// When the user may not mount, as root may.
    pub(crate) fn mount(directory: &Path, mebibytes: u32) -> Self {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "tmpfs"]).arg(directory).output();
        let mounted = mounted.expect("mount can be run");
        let why = String::from_utf8_lossy(&mounted.stderr);
        assert!(mounted.status.success(), "this test needs a user who may mount a tmpfs: {why}");
        Self(directory.to_owned())
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes all space there is.
    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("a file");
        let zeros = vec![0; 64 << 10];
        while filler.write_all(&zeros).is_ok() {}
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.filler()).expect("it is there");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A server that is still being ended keeps it a moment longer.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Inserts rows until that is refused. Answers how many rows there are now.
fn insert_until_full(client: &mut WireClient, mut rows: u64) -> u64 {
    let started = Instant::now();
    loop {
        let sql = format!("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series({rows}, {}) AS x(g)", rows + 99);
        match client.query(&sql) {
            Ok(_) => rows += 100,
            Err(error) => {
                assert_eq!(error.sqlstate(), DISK_FULL, "{error}");
                return rows;
            }
        }
        assert!(started.elapsed() < PATIENCE, "{rows} rows on a full disk");
    }
}

/// What the table and the views over it must answer when it has the rows below `rows`.
fn check(client: &mut WireClient, rows: u64) {
    let sum = rows * (rows - 1) / 2;
    assert_eq!(client.rows("SELECT count(*), sum(a) FROM t").expect("rows"), [format!("{rows} {sum}")]);
    assert_eq!(client.rows("SELECT sum(n), sum(s) FROM v").expect("rows"), [format!("{rows} {sum}")]);
    assert_eq!(client.rows("SELECT a FROM t WHERE a = 1").expect("rows"), ["1"]);
}

#[test]
fn a_full_disk_refuses_changes_and_loses_nothing() {
    let (mounted, files) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let disk = SmallDisk::mount(mounted.path(), 96);
    let data = mounted.path().join("data");
    let lines = files.path().join("lines.csv");
    std::fs::write(&lines, "1\n2\n").expect("written");
    let append = |text: &str| {
        let mut file = OpenOptions::new().append(true).open(&lines).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
    };
    let server = ServerProcess::start(Path::new(BINARY), &data, &ARGUMENTS);
    let mut client = server.connect().expect("a session");
    let run = |client: &mut WireClient, sql: &str| drop(client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}")));
    run(&mut client, "CREATE TABLE t (a bigint PRIMARY KEY, b text)");
    run(&mut client, "CREATE TABLE clock (n int)");
    run(&mut client, "CREATE MATERIALIZED VIEW v AS SELECT a % 100 AS k, count(*) AS n, sum(a) AS s FROM t GROUP BY 1");
    let with = format!("connector = 'file', path = '{}', format = 'csv', mode = 'watch'", lines.display());
    run(&mut client, &format!("CREATE SOURCE c (a int) WITH ({with})"));
    run(&mut client, "CREATE MATERIALIZED VIEW w AS SELECT sum(a) AS s FROM c");
    run(&mut client, "INSERT INTO t SELECT g, 'x' FROM generate_series(0, 999) AS x(g)");
    check(&mut client, 1000);

    disk.fill();
    let rows = insert_until_full(&mut client, 1000);
    check(&mut client, rows);
    for sql in
        ["INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(-10000, -1) AS x(g)", "UPDATE t SET a = -a - 1", "DELETE FROM t"]
    {
        assert_eq!(client.query(sql).expect_err("refused").sqlstate(), DISK_FULL, "{sql}");
    }
    append("4\n");
    check(&mut client, rows);
    let failed = "SELECT count(*) > 0 FROM millpond.checkpoints WHERE error IS NOT NULL";
    append("8\n");
    client.await_rows(PATIENCE, &format!("{failed} AND job = 'v'"), &["t"]);

    let epoch = client.rows("SELECT epoch FROM millpond.jobs WHERE name = 'v'").expect("rows").remove(0);
    disk.free();
    let more = format!("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series({rows}, {}) AS x(g)", rows + 99);
    run(&mut client, &more);
    let rows = rows + 100;
    check(&mut client, rows);
    append("16\n");
    client.await_rows(PATIENCE, "SELECT s FROM w", &["31"]);
    let states = "SELECT count(*) FROM millpond.jobs WHERE state = 'running' AND kind = 'view'";
    client.await_rows(PATIENCE, states, &["2"]);
    let newer = format!("SELECT count(DISTINCT job) FROM millpond.checkpoints WHERE error IS NULL AND epoch >= {epoch} AND job = 'v'");
    // A checkpoint comes with an epoch.
    let started = Instant::now();
    while client.rows(&newer).expect("rows") != ["1"] {
        assert!(started.elapsed() < PATIENCE, "no checkpoint of v");
        run(&mut client, "INSERT INTO clock VALUES (1)");
    }
    run(&mut client, "CREATE TABLE another AS SELECT a FROM t");
    run(&mut client, "DROP TABLE another");
    server.kill();

    let server = ServerProcess::start(Path::new(BINARY), &data, &ARGUMENTS);
    let mut client = server.connect().expect("a session");
    check(&mut client, rows);
    assert_eq!(client.rows("SELECT s FROM w").expect("rows"), ["31"]);
    assert_eq!(server.terminate().code(), Some(0));
}
