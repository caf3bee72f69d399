//! While writers write, every snapshot shows views that equal their queries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond_server::config::Config;
use millpond_sql_tests::TestServer;

use super::{Failures, compare_with_batch, create_views, history, queries::queries, run, run_all, seed};

const WRITERS: u64 = 3;
/// Snapshots looked at.
const SNAPSHOTS: usize = 25;
/// One of so many queries is kept as a view: every epoch goes through all views.
const QUERIES_PER_VIEW: u64 = 6;
/// Longer than the test: its disk is for the writers.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);
/// Queries compared in one snapshot.
const QUERIES_PER_SNAPSHOT: usize = 4;

/// Ends the writers, also when the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn views_equal_their_queries_in_every_snapshot() {
    let seed = seed();
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { checkpoint_interval: CHECKPOINT_INTERVAL, ..Config::for_tests(directory.path()) };
    let server = TestServer::start_with(config).expect("a server");
    let mut session = server.connect();
    run_all(&mut session, history::definitions());
    let mut failures = Failures::default();
    let mut queries = queries();
    let mut numbers = history::Numbers::new(seed);
    queries.retain(|_| numbers.below(QUERIES_PER_VIEW) == 0);
    create_views(&mut session, &mut queries, &mut failures);
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (server, enough) = (&server, &enough);
            scope.spawn(move || {
                let mut session = server.connect();
                let mut history = history::History::of_one_among(seed + writer, writer, WRITERS);
                while !enough.load(Ordering::Relaxed) {
                    // Writers meet: a transaction may have to give way, a key may be taken.
                    let _ = session.query(&history.step());
                    let _ = session.query("ROLLBACK");
                }
            });
        }
        let _ending = Ending(&enough);
        for snapshot in 0..SNAPSHOTS {
            run(&mut session, "BEGIN");
            for _ in 0..QUERIES_PER_SNAPSHOT {
                let query = &queries[numbers.below(queries.len() as u64) as usize];
                compare_with_batch(&mut session, query, &format!("snapshot {snapshot}"), &mut failures);
            }
            run(&mut session, "ROLLBACK");
        }
    });
    failures.check(seed);
    server.shutdown();
}

#[test]
fn a_block_reads_what_was_acknowledged_before_it() {
    let server = TestServer::start();
    let mut session = server.connect();
    run_all(&mut session, ["CREATE TABLE a (x int)", "CREATE TABLE b (y int)", "INSERT INTO a VALUES (1)", "TABLE a"]);
    for row in 0..20 {
        // The block looks first at a table that has not changed.
        run(&mut session, &format!("INSERT INTO b VALUES ({row})"));
        run_all(&mut session, ["BEGIN", "SELECT * FROM a"]);
        assert_eq!(session.rows("SELECT max(y) FROM b").expect("rows"), [row.to_string()]);
        run_all(&mut session, [format!("UPDATE b SET y = y WHERE y = {row}"), "COMMIT".to_owned()]);
    }
    server.shutdown();
}
