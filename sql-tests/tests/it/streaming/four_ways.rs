//! Views made before their data, made after it, killed in the middle, restored at another parallelism, and all that from checkpoints that have
//! waited for nothing: at the end all equal the batch query.

use std::path::Path;

use millpond_sql_tests::ServerProcess;

use super::{Contents, Failures, compare_with_batch, create_views, history, queries::Query, queries::queries, run, run_all, seed};

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");
/// Statements in each half of a history.
const HALF: usize = 60;
/// So short that a restart finds checkpoints.
const CHECKPOINTS: [&str; 2] = ["--checkpoint-interval-ms", "300"];

/// A way to the same contents.
#[derive(Clone, Copy, Debug)]
enum Way {
    Straight,
    Backfilled,
    /// SIGKILL, twice.
    Killed,
    /// Ended in order, and started with other numbers of subtasks.
    Rescaled,
    /// SIGKILL, twice, and started with other numbers of subtasks; checkpoints wait for no barrier.
    Overtaken,
}

#[test]
fn four_ways_lead_to_the_same_contents() {
    let seed = seed();
    let mut answers: Vec<Vec<(Query, Option<Contents>)>> = Vec::new();
    // Two at a time.
    for ways in [&[Way::Straight, Way::Backfilled][..], &[Way::Killed, Way::Rescaled], &[Way::Overtaken]] {
        std::thread::scope(|scope| {
            let threads: Vec<_> = ways.iter().map(|way| scope.spawn(move || go(*way, seed))).collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            answers.extend(ends);
        });
    }
    let mut failures = Failures::default();
    for way in &answers[1..] {
        for ((query, first), (_, other)) in answers[0].iter().zip(way) {
            if first != other {
                failures.add(query, "the batch query", "  the ways have led to different tables");
            }
        }
    }
    failures.check(seed);
}

fn session_rows(server: &ServerProcess, sql: &str) -> Vec<String> {
    server.connect().expect("a session").rows(sql).expect("rows")
}

/// Whether a checkpoint that the server remembers did not wait for its barrier.
fn was_overtaken(server: &ServerProcess) -> bool {
    session_rows(server, "SELECT count(*) > 0 FROM millpond.checkpoints WHERE mode = 'unaligned'") == ["t"]
}

/// What the queries answer at the end of a way, where their views agree.
fn go(way: Way, seed: u64) -> Vec<(Query, Option<Contents>)> {
    let directory = tempfile::tempdir().expect("a directory");
    let start = |parallelism: &str| {
        let arguments = [&CHECKPOINTS[..], &["--parallelism", parallelism]].concat();
        ServerProcess::start(Path::new(BINARY), directory.path(), &arguments)
    };
    let mut failures = Failures::default();
    let mut queries = queries();
    let mut history = history::History::new(seed);
    let mut steps = |server: &ServerProcess| {
        let mut session = server.connect().expect("a session");
        (0..HALF).for_each(|_| drop(run(&mut session, &history.step())));
    };
    let mut server = start("2");
    let mut session = server.connect().expect("a session");
    run_all(&mut session, history::definitions());
    if matches!(way, Way::Overtaken) {
        run(&mut session, "SET aligned_checkpoint_timeout = 0");
    }
    if !matches!(way, Way::Backfilled) {
        create_views(&mut session, &mut queries, &mut failures);
    }
    steps(&server);
    let mut overtaken = was_overtaken(&server);
    match way {
        Way::Straight | Way::Backfilled => {}
        Way::Killed => {
            server.kill();
            // Once more while it recovers.
            start("2").kill();
            server = start("2");
        }
        Way::Rescaled => {
            server.terminate();
            server = start("3");
        }
        Way::Overtaken => {
            server.kill();
            start("1").kill();
            server = start("3");
        }
    }
    steps(&server);
    match way {
        Way::Rescaled => {
            server.terminate();
            server = start("1");
        }
        Way::Overtaken => {
            overtaken |= was_overtaken(&server);
            assert!(overtaken, "all checkpoints waited for their barriers");
            server.kill();
            server = start("5");
        }
        Way::Straight | Way::Backfilled | Way::Killed => {}
    }
    let mut session = server.connect().expect("a session");
    if matches!(way, Way::Backfilled) {
        create_views(&mut session, &mut queries, &mut failures);
    }
    let when = format!("{way:?}");
    let answers = queries.into_iter().map(|query| {
        let answer = compare_with_batch(&mut session, &query, &when, &mut failures);
        (query, answer)
    });
    let answers = answers.collect();
    failures.check(seed);
    server.terminate();
    answers
}
