//! A place for checkpoints that is slow, silent, full, or fails now and then: checkpoints fail and say so, everything else goes on, and when the
//! trouble is over they go on by themselves and nothing is lost.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use millpond_sql_tests::{ObjectServer, ServerProcess, Trouble, WireClient};

use crate::disk_full::SmallDisk;

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");
const BUCKET: &str = "ponds";
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// What does not wait for the store takes no longer, on a slow machine too.
const BOUND: Duration = Duration::from_secs(10);

/// A server, what is in its table, and what was seen of its source.
struct Pond<'a> {
    directory: &'a Path,
    location: String,
    environment: Vec<(&'static str, String)>,
    server: ServerProcess,
    client: WireClient,
    rows: u64,
    seen: u64,
}

fn serve(directory: &Path, location: &str, environment: &[(&'static str, String)]) -> ServerProcess {
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let arguments = ["--checkpoint-interval-ms", "200", "--parallelism", "2", "--object-store", location];
    ServerProcess::start_with(Path::new(BINARY), directory, &arguments, &environment)
}

impl<'a> Pond<'a> {
    /// Views over a table and over a source that does not end, all with a checkpoint.
    fn new(directory: &'a Path, location: String, environment: Vec<(&'static str, String)>) -> Self {
        let server = serve(directory, &location, &environment);
        let client = server.connect().expect("a session");
        let mut pond = Self { directory, location, environment, server, client, rows: 0, seen: 0 };
        pond.run("CREATE TABLE t (k int, n bigint)");
        pond.run("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k");
        let fields = "\"fields.n.kind\" = 'sequence', \"fields.n.start\" = '0'";
        pond.run(&format!("CREATE SOURCE s (n bigint) WITH (connector = 'datagen', rows_per_second = '500', {fields})"));
        pond.run("CREATE MATERIALIZED VIEW w AS SELECT n % 7 AS k, count(*) AS c, sum(n) AS s FROM s GROUP BY 1");
        pond.run("CREATE MATERIALIZED VIEW dropped AS SELECT max(n) AS m FROM t");
        pond.go_on();
        pond.await_checkpoints();
        pond
    }

    fn with_store(directory: &'a Path, store: &ObjectServer) -> Self {
        store.create_bucket(BUCKET);
        Self::new(directory, format!("s3://{BUCKET}/here"), store.environment())
    }

    fn run(&mut self, sql: &str) {
        self.client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}"));
    }

    fn row(&mut self, sql: &str) -> String {
        self.client.rows(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}")).remove(0)
    }

    /// Runs a statement that the store must not hold up.
    fn promptly(&mut self, sql: &str) {
        let began = Instant::now();
        self.run(sql);
        assert!(began.elapsed() < BOUND, "{sql} took {:?}", began.elapsed());
    }

    /// Inserts and reads, neither of which the store must hold up.
    fn go_on(&mut self) {
        self.promptly(&format!("INSERT INTO t SELECT g % 10, g FROM generate_series({}, {}) AS x(g)", self.rows, self.rows + 99));
        self.rows += 100;
        let began = Instant::now();
        self.check();
        assert!(began.elapsed() < BOUND, "reading took {:?}", began.elapsed());
    }

    /// The view over the table has its rows, and that over the source those from the first on.
    fn check(&mut self) {
        let sum = self.rows * self.rows.saturating_sub(1) / 2;
        assert_eq!(self.row("SELECT sum(c), sum(s) FROM v"), format!("{} {sum}", self.rows));
        let source = self.row("SELECT coalesce(sum(c), 0), coalesce(sum(s), 0) FROM w");
        let (count, sum) = source.split_once(' ').expect("two columns");
        let (count, sum): (u64, u64) = (count.parse().expect("a number"), sum.parse().expect("a number"));
        assert!(count >= self.seen && sum == count * count.saturating_sub(1) / 2, "{source} after {} rows", self.seen);
        self.seen = count;
    }

    /// Goes on until a query answers true.
    fn until(&mut self, sql: &str) {
        let began = Instant::now();
        while self.row(sql) != "t" {
            let newest = "SELECT job, epoch, error FROM millpond.checkpoints ORDER BY epoch DESC LIMIT 5";
            assert!(began.elapsed() < PATIENCE, "{sql}: {:?}", self.client.rows(newest));
            self.go_on();
        }
    }

    /// Waits for a checkpoint of each view that is newer than what they have now.
    fn await_checkpoints(&mut self) {
        for view in ["v", "w"] {
            let epoch = self.row(&format!("SELECT epoch FROM millpond.jobs WHERE name = '{view}'"));
            self.until(&format!(
                "SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = '{view}' AND error IS NULL AND epoch >= {epoch}"
            ));
        }
    }

    /// Waits for a checkpoint of `v` that fails and says `why`.
    fn await_failure(&mut self, why: &str) {
        self.until("SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = 'v' AND error IS NOT NULL");
        let error = self.row("SELECT error FROM millpond.checkpoints WHERE job = 'v' AND error IS NOT NULL ORDER BY epoch DESC LIMIT 1");
        assert!(error.contains(why), "{error}");
        let log = self.server.log();
        assert!(log.iter().any(|line| line.contains("checkpoint failed") && line.contains(why)), "the log tells it");
        let timed = "SELECT bool_and(epoch > 0 AND duration_ms > 0 AND mode IS NULL) FROM millpond.checkpoints WHERE error IS NOT NULL";
        assert_eq!(self.row(timed), "t");
    }

    /// Definitions and drops of other things, and of what has checkpoints, do not wait for the store.
    fn define(&mut self) {
        self.promptly("CREATE TABLE other (k int)");
        self.promptly("INSERT INTO other VALUES (1)");
        self.promptly("DROP TABLE other");
        self.promptly("DROP MATERIALIZED VIEW IF EXISTS dropped");
    }

    /// A view is there when it has a checkpoint; where that fails, or takes too long for who asks, nothing is left behind.
    fn define_in_vain(&mut self, sqlstates: &[&str]) {
        let began = Instant::now();
        self.run("SET statement_timeout = '1s'");
        let error = self.client.query("CREATE MATERIALIZED VIEW waited AS SELECT count(*) AS c FROM t").expect_err("no checkpoint");
        assert!(sqlstates.contains(&error.sqlstate()), "{error}");
        self.run("RESET statement_timeout");
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
        assert_eq!(self.row("SELECT count(*) FROM millpond.jobs WHERE name = 'waited'"), "0");
    }

    fn kill(self) -> Self {
        let Self { directory, location, environment, server, client, rows, seen } = self;
        drop(client);
        server.kill();
        let server = serve(directory, &location, &environment);
        let client = server.connect().expect("a session");
        Self { directory, location, environment, server, client, rows, seen }
    }

    /// The trouble is over: checkpoints are complete, the jobs have never failed, and a restart finds everything.
    fn recovers(mut self) {
        self.await_checkpoints();
        let states = "SELECT bool_and(state IN ('running', 'finished') AND restarts = 0) FROM millpond.jobs WHERE kind = 'view'";
        self.client.await_rows(PATIENCE, states, &["t"]);
        let mut pond = self.kill();
        pond.check();
        pond.await_checkpoints();
        assert_eq!(pond.server.terminate().code(), Some(0));
    }
}

#[test]
fn a_slow_store_makes_checkpoints_slow_and_nothing_else() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    store.set_trouble(Trouble::Slow(Duration::from_millis(300)));
    pond.await_checkpoints();
    assert!(store.met_trouble() > 0);
    pond.promptly("DROP MATERIALIZED VIEW dropped");
    pond.go_on();
    assert_eq!(pond.row("SELECT count(*) FROM millpond.checkpoints WHERE error IS NOT NULL"), "0");
    let slow = "SELECT max(duration_ms) > 600 FROM millpond.checkpoints WHERE job = 'v'";
    assert_eq!(pond.row(slow), "t");
    store.set_trouble(Trouble::None);
    pond.recovers();
}

#[test]
fn a_store_that_fails_is_tried_again_until_it_does_not() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    // A source that ends while the store is away.
    pond.run("CREATE SOURCE short (n bigint) WITH (connector = 'datagen', rows = '1000', rows_per_second = '250')");
    pond.run("CREATE MATERIALIZED VIEW ended AS SELECT count(*) AS c FROM short");
    store.set_trouble(Trouble::Failing(503, "ServiceUnavailable"));
    pond.promptly("ALTER MATERIALIZED VIEW v SET PARALLELISM 3");
    pond.await_failure("503");
    pond.define();
    pond.define_in_vain(&["57014", "58030"]);
    pond.until("SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = 'ended' AND error IS NOT NULL");
    pond.until("SELECT c = 1000 FROM ended");
    for _ in 0..3 {
        pond.go_on();
        assert_eq!(pond.row("SELECT ended.c, sum(v.c) FROM v, ended GROUP BY 1"), format!("1000 {}", pond.rows));
    }
    // Each checkpoint is a request and a few retries, and there is a pause between two.
    assert!(store.met_trouble() < 1000, "{} requests", store.met_trouble());
    store.set_trouble(Trouble::None);
    pond.client.await_rows(PATIENCE, "SELECT state, restarts FROM millpond.jobs WHERE name = 'ended'", &["finished 0"]);
    pond.recovers();
}

#[test]
fn a_store_that_fails_every_third_change_takes_checkpoints_all_the_same() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    store.set_trouble(Trouble::EveryThirdFailing(500, "InternalError"));
    for _ in 0..3 {
        pond.await_checkpoints();
    }
    assert!(store.met_trouble() > 0);
    store.set_trouble(Trouble::None);
    pond.recovers();
}

#[test]
fn a_store_that_breaks_uploads_off_keeps_nothing_of_them() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    store.set_trouble(Trouble::Cut);
    pond.await_failure("object store: could not ");
    pond.go_on();
    assert!(store.met_trouble() > 0);
    store.set_trouble(Trouble::None);
    pond.recovers();
}

#[test]
fn a_manifest_that_is_there_though_nobody_was_told_stops_no_job() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    store.set_trouble(Trouble::Unanswered("/manifest-"));
    pond.await_failure("could not create");
    pond.go_on();
    store.set_trouble(Trouble::None);
    pond.recovers();
}

#[test]
fn a_full_store_is_named_as_that() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    store.set_trouble(Trouble::Full(507, "InsufficientStorage"));
    pond.await_failure("InsufficientStorage");
    pond.define();
    pond.define_in_vain(&["57014", "58030"]);
    store.set_trouble(Trouble::None);
    pond.recovers();
}

#[test]
fn a_store_that_does_not_answer_holds_up_neither_definitions_nor_a_start() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    let mut pond = Pond::with_store(directory.path(), &store);
    store.set_trouble(Trouble::Silent);
    while store.met_trouble() == 0 {
        pond.go_on();
    }
    pond.promptly("CREATE MATERIALIZED VIEW background WITH (background = true) AS SELECT min(n) AS m FROM t");
    pond.define();
    pond.define_in_vain(&["57014"]);
    pond.go_on();
    let rows = pond.rows;
    let mut pond = pond.kill();
    // The jobs wait for their checkpoints, and what waits can be dropped.
    assert_eq!(pond.row("SELECT count(*) FROM t"), rows.to_string());
    pond.promptly("DROP MATERIALIZED VIEW background");
    pond.promptly("DROP MATERIALIZED VIEW w");
    pond.promptly("CREATE TABLE other (k int)");
    pond.promptly("INSERT INTO t VALUES (0, 0)");
    store.set_trouble(Trouble::None);
    assert_eq!(pond.row("SELECT sum(c), sum(s) FROM v"), format!("{} {}", rows + 1, rows * (rows - 1) / 2));
    // What was dropped is gone there, too, after a while.
    let id = pond.row("SELECT id FROM millpond.jobs WHERE name = 'v'");
    let began = Instant::now();
    let others = || store.list(BUCKET).into_iter().find(|name| !name.starts_with(&format!("here/jobs/{id}/")));
    while let Some(left) = others() {
        assert!(began.elapsed() < PATIENCE, "{left} is still there");
        pond.run("INSERT INTO other VALUES (1)");
    }
}

#[test]
fn a_checkpoint_of_an_attempt_that_has_failed_deletes_nothing_of_the_next_one() {
    let (store, directory) = (ObjectServer::start(), tempfile::tempdir().expect("a directory"));
    store.create_bucket(BUCKET);
    let (location, environment) = (format!("s3://{BUCKET}/here"), store.environment());
    let server = serve(directory.path(), &location, &environment);
    let mut client = server.connect().expect("a session");
    let run = |client: &mut WireClient, sql: &str| drop(client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}")));
    run(&mut client, "CREATE TABLE t (k int)");
    run(&mut client, "CREATE MATERIALIZED VIEW v AS SELECT k % 10 AS g, count(*) AS c FROM t GROUP BY 1");
    let mut rows = 0;
    let mut insert = |client: &mut WireClient| {
        rows += 1;
        run(client, &format!("INSERT INTO t VALUES ({rows})"));
        assert_eq!(client.rows("SELECT sum(c) FROM v").expect("rows"), [rows.to_string()]);
    };
    // A checkpoint is complete, and looks for what it can delete.
    store.set_trouble(Trouble::FirstListingHeld);
    let began = Instant::now();
    while store.met_trouble() == 0 {
        insert(&mut client);
        assert!(began.elapsed() < PATIENCE, "no checkpoint");
    }
    run(&mut client, "ALTER MATERIALIZED VIEW v FAIL SUBTASK 0 OF FRAGMENT 0");
    let restarted = "SELECT restarts FROM millpond.jobs WHERE name = 'v'";
    while client.rows(restarted).expect("rows") != ["1"] {
        insert(&mut client);
        assert!(began.elapsed() < PATIENCE, "the job has not failed");
    }
    let mut checkpoints = |client: &mut WireClient, count: usize| {
        for _ in 0..count {
            let epoch = client.rows("SELECT epoch FROM millpond.jobs WHERE name = 'v'").expect("rows").remove(0);
            let newer = format!("SELECT count(*) > 0 FROM millpond.checkpoints WHERE job = 'v' AND error IS NULL AND epoch > {epoch}");
            while client.rows(&newer).expect("rows") != ["t"] {
                insert(client);
                assert!(began.elapsed() < 2 * PATIENCE, "no checkpoint: {:?}", client.rows("SELECT * FROM millpond.checkpoints"));
            }
        }
    };
    checkpoints(&mut client, 2);
    store.set_trouble(Trouble::None);
    checkpoints(&mut client, 4);
    let expected = client.rows("SELECT g, c FROM v ORDER BY g").expect("rows");
    server.kill();
    let server = serve(directory.path(), &location, &environment);
    let mut client = server.connect().expect("a session");
    assert_eq!(client.rows("SELECT g, c FROM v ORDER BY g").expect("rows"), expected);
    client.await_rows(PATIENCE, "SELECT state FROM millpond.jobs WHERE name = 'v'", &["running"]);
}

#[test]
fn a_full_folder_fails_checkpoints_and_nothing_else() {
    let (mounted, directory) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let disk = SmallDisk::mount(mounted.path(), 16);
    let location = mounted.path().join("objects").display().to_string();
    let mut pond = Pond::new(directory.path(), location, Vec::new());
    disk.fill();
    pond.await_failure("No space left on device");
    pond.define();
    // What was dropped has left some space.
    disk.fill();
    pond.define_in_vain(&["57014", "53100"]);
    pond.go_on();
    disk.free();
    pond.recovers();
}

#[test]
fn a_folder_that_cannot_be_written_fails_checkpoints_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, objects) = (directory.path().join("data"), directory.path().join("objects"));
    let mut pond = Pond::new(&data, objects.display().to_string(), Vec::new());
    // Permissions do not stop root; a file in a folder's place stops everyone.
    let (jobs, aside) = (objects.join("jobs"), directory.path().join("aside"));
    std::fs::rename(&jobs, &aside).expect("moved");
    std::fs::write(&jobs, "").expect("written");
    pond.await_failure("jobs/");
    pond.define();
    pond.define_in_vain(&["57014", "58030"]);
    pond.go_on();
    std::fs::remove_file(&jobs).expect("removed");
    std::fs::rename(&aside, &jobs).expect("moved");
    pond.recovers();
}
