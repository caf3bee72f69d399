//! SIGKILL, again and again, while eight sessions write and read, a file source is fed, and sinks write files exactly once.
//!
//! What must hold: every acknowledged row is there for ever; what was not acknowledged is there or not, but does not change its mind; no session
//! sees time go backwards; each row of the source is in the sink's committed files exactly once. MILLPOND_KILLS says how often, MILLPOND_SEED
//! when.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use millpond_sql_tests::{ClientError, ServerProcess, WireClient};

use crate::streaming::history::Numbers;

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");
const SESSIONS: usize = 8;
const KILLS: u64 = 8;
/// One of so many kills comes while the server starts.
const RECOVERY_KILLS: u64 = 3;
const ARGUMENTS: [&str; 4] = ["--checkpoint-interval-ms", "200", "--parallelism", "2"];
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const DEFINITIONS: [&str; 4] = [
    "CREATE TABLE ledger (session int, seq int, amount int, PRIMARY KEY (session, seq))",
    "CREATE TABLE counters (session int PRIMARY KEY, n int)",
    "CREATE MATERIALIZED VIEW totals AS SELECT session, count(*) AS n, max(seq) AS last, sum(amount) AS amount FROM ledger GROUP BY session",
    "CREATE MATERIALIZED VIEW by_group AS SELECT g, count(*) AS n, sum(n) AS s FROM events GROUP BY g",
];

/// What the threads share.
struct Arena {
    /// Where the server is, while it is there.
    address: Mutex<Option<SocketAddr>>,
    moved: Condvar,
    over: AtomicBool,
    /// Statements acknowledged so far.
    acknowledged: AtomicU64,
    /// Lines of the source's file so far.
    fed: AtomicU64,
}

impl Arena {
    /// A session, once there is a server. `None` when it is over.
    fn session(&self) -> Option<WireClient> {
        let mut address = self.address.lock().expect("no panics");
        loop {
            if self.over.load(Ordering::Acquire) {
                return None;
            }
            if let Some(at) = *address {
                drop(address);
                if let Ok(session) = WireClient::connect(at) {
                    return Some(session);
                }
                address = self.address.lock().expect("no panics");
                // It is gone, and will move.
                if *address != Some(at) {
                    continue;
                }
            }
            let (guard, timeout) = self.moved.wait_timeout(address, PATIENCE).expect("no panics");
            assert!(!timeout.timed_out(), "no server for a minute");
            address = guard;
        }
    }

    fn move_to(&self, address: Option<SocketAddr>) {
        *self.address.lock().expect("no panics") = address;
        self.moved.notify_all();
    }
}

/// Ends the threads, also when the test fails.
struct Ending<'a>(&'a Arena);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.moved.notify_all();
    }
}

/// What a session knows.
#[derive(Default)]
struct Knowledge {
    /// Its rows in the ledger: there for ever.
    rows: i64,
    amount: i64,
    /// Increments acknowledged, and those whose fate is unknown.
    increments: i64,
    uncertain: i64,
    /// The highest it has seen: its rows in the view, lines of the source in theirs.
    seen_rows: i64,
    seen_lines: i64,
}

fn kills() -> u64 {
    std::env::var("MILLPOND_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS)
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_comes_twice() {
    let seed = crate::streaming::seed();
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let events = directory.path().join("events.csv");
    std::fs::write(&events, "").expect("a file for the source");
    let arena = Arena {
        address: Mutex::new(None),
        moved: Condvar::new(),
        over: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
        fed: AtomicU64::new(0),
    };
    let server = ServerProcess::start(Path::new(BINARY), &data, &ARGUMENTS);
    define(&server, directory.path(), &events);
    std::thread::scope(|scope| {
        let ending = Ending(&arena);
        arena.move_to(Some(server.address()));
        let feeder = scope.spawn(|| feed(&arena, &events));
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|session| {
                scope.spawn({
                    let arena = &arena;
                    move || work(arena, session)
                })
            })
            .collect();
        let server = kill_again_and_again(server, &data, &arena, seed);
        drop(ending);
        feeder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let known: Vec<Knowledge> =
            sessions.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
        let mut session = server.connect().expect("a session");
        check_tables(&mut session, &known);
        check_source(&mut session, &arena, directory.path());
        server.terminate();
    });
}

fn define(server: &ServerProcess, directory: &Path, events: &Path) {
    let mut session = server.connect().expect("a session");
    let file = |name: &str| directory.join(name).display().to_string();
    let run = |session: &mut WireClient, sql: &str| drop(session.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}")));
    let source = format!(
        "CREATE SOURCE events (n bigint, g int) WITH (connector = 'file', path = '{}', format = 'csv', mode = 'watch')",
        events.display()
    );
    run(&mut session, &source);
    DEFINITIONS.iter().for_each(|sql| run(&mut session, sql));
    for session_number in 0..SESSIONS {
        run(&mut session, &format!("INSERT INTO counters VALUES ({session_number}, 0)"));
    }
    for (name, what, kind) in [("lines", "AS SELECT n, g FROM events", "append-only"), ("sums", "FROM totals", "changelog")] {
        let path = file(name);
        run(
            &mut session,
            &format!("CREATE SINK {name} {what} WITH (connector = 'file', path = '{path}', format = 'csv', type = '{kind}')"),
        );
    }
}

/// Kills and restarts; gives the server that is left.
fn kill_again_and_again(mut server: ServerProcess, data: &Path, arena: &Arena, seed: u64) -> ServerProcess {
    let mut numbers = Numbers::new(seed);
    for kill in 0..kills() {
        // Something has happened in between, more or less of it.
        let target = arena.acknowledged.load(Ordering::Acquire) + numbers.below(120);
        let start = Instant::now();
        while arena.acknowledged.load(Ordering::Acquire) < target {
            assert!(start.elapsed() < PATIENCE, "seed {seed}, kill {kill}: nothing is acknowledged any more");
            std::thread::yield_now();
        }
        arena.move_to(None);
        server.kill();
        while numbers.below(RECOVERY_KILLS) == 0 {
            ServerProcess::start_and_kill(Path::new(BINARY), data, &ARGUMENTS, Duration::from_millis(numbers.below(400)));
        }
        server = ServerProcess::start(Path::new(BINARY), data, &ARGUMENTS);
        rescale(&server, &mut numbers, seed);
        arena.move_to(Some(server.address()));
    }
    server
}

/// Lets a view go on with another number of subtasks now and then: the next kill finds it anywhere on the way there.
fn rescale(server: &ServerProcess, numbers: &mut Numbers, seed: u64) {
    if numbers.below(2) == 0 {
        let view = ["totals", "by_group"][numbers.below(2) as usize];
        let sql = format!("ALTER MATERIALIZED VIEW {view} SET PARALLELISM {}", numbers.below(4) + 1);
        let altered = server.connect().and_then(|mut session| session.query(&sql).map(drop));
        altered.unwrap_or_else(|error| panic!("seed {seed}: {sql}: {error}"));
    }
}

/// Appends lines to the source's file.
fn feed(arena: &Arena, events: &Path) {
    let mut file = OpenOptions::new().append(true).open(events).expect("the source's file");
    let mut line = 0;
    while !arena.over.load(Ordering::Acquire) {
        // A line comes in two writes: the source must wait for its end.
        write!(file, "{line},").expect("written");
        writeln!(file, "{}", line % 3).expect("written");
        line += 1;
        arena.fed.store(line, Ordering::Release);
        // As many lines as statements, so that neither runs away.
        while arena.acknowledged.load(Ordering::Acquire) < line && !arena.over.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

/// One session's life, over many connections.
fn work(arena: &Arena, number: usize) -> Knowledge {
    let mut known = Knowledge::default();
    while let Some(mut session) = arena.session() {
        // Any error ends the connection; what must hold is asserted inside.
        while !arena.over.load(Ordering::Acquire) {
            match step(arena, &mut session, number, &mut known) {
                Ok(()) => {}
                Err(ClientError::Io(_)) => break,
                // 57P01 and the like: the server is going.
                Err(error) if error.sqlstate().starts_with("57P") => break,
                Err(error) => panic!("session {number}: {error}"),
            }
        }
    }
    known
}

fn step(arena: &Arena, session: &mut WireClient, number: usize, known: &mut Knowledge) -> Result<(), ClientError> {
    // Whether the last insert came through before the connection broke.
    let count = |session: &mut WireClient, sql: &str| Ok::<i64, ClientError>(first_number(&session.rows(sql)?));
    let rows = count(session, &format!("SELECT count(*) FROM ledger WHERE session = {number}"))?;
    assert!((known.rows..=known.rows + 1).contains(&rows), "session {number} has {rows} rows, {} were acknowledged", known.rows);
    known.amount += (known.rows..rows).sum::<i64>();
    known.rows = rows;

    session.query(&format!("INSERT INTO ledger VALUES ({number}, {rows}, {rows})"))?;
    known.rows += 1;
    known.amount += rows;
    arena.acknowledged.fetch_add(1, Ordering::AcqRel);

    known.uncertain += 1;
    session.query(&format!("UPDATE counters SET n = n + 1 WHERE session = {number}"))?;
    known.uncertain -= 1;
    known.increments += 1;

    let seen = session.rows(&format!("SELECT n, last + 1, amount FROM totals WHERE session = {number}"))?;
    assert_eq!(seen, [format!("{0} {0} {1}", known.rows, known.amount)], "session {number}: the view beside what was acknowledged");
    assert!(known.rows >= known.seen_rows, "session {number}: time went backwards");
    known.seen_rows = known.rows;

    let lines = count(session, "SELECT coalesce(sum(n), 0) FROM by_group")?;
    assert!(lines >= known.seen_lines, "session {number} saw {} lines and then {lines}", known.seen_lines);
    known.seen_lines = lines;
    Ok(())
}

fn first_number(rows: &[String]) -> i64 {
    rows.first().and_then(|row| row.parse().ok()).unwrap_or_else(|| panic!("a number: {rows:?}"))
}

fn check_tables(session: &mut WireClient, known: &[Knowledge]) {
    for (number, known) in known.iter().enumerate() {
        let rows = session.rows(&format!("SELECT count(*) FROM ledger WHERE session = {number}")).expect("rows");
        let rows = first_number(&rows);
        assert!((known.rows..=known.rows + 1).contains(&rows), "session {number} has {rows} rows, {} were acknowledged", known.rows);
        let view = session.rows(&format!("SELECT n FROM totals WHERE session = {number}")).expect("rows");
        assert_eq!(view, if rows == 0 { Vec::new() } else { vec![rows.to_string()] });
        let counter = first_number(&session.rows(&format!("SELECT n FROM counters WHERE session = {number}")).expect("rows"));
        let possible = known.increments..=known.increments + known.uncertain;
        assert!(possible.contains(&counter), "session {number}: the counter is {counter}, it may be {possible:?}");
    }
}

/// Every line is in the view and in the sink, once; the changelog adds up to the view it is of.
fn check_source(session: &mut WireClient, arena: &Arena, directory: &Path) {
    let fed = arena.fed.load(Ordering::Acquire);
    let start = Instant::now();
    loop {
        let in_view = session.rows("SELECT coalesce(sum(n), 0), coalesce(sum(s), 0) FROM by_group").expect("rows");
        let lines = committed_rows(&directory.join("lines"));
        let totals: Vec<String> = session.rows("SELECT session, n, last, amount FROM totals").expect("rows");
        let sums = consolidated(&committed_rows(&directory.join("sums")));
        let wanted_sums: BTreeMap<String, i64> = totals.iter().map(|row| (row.replace(' ', ","), 1)).collect();
        let wanted: Vec<String> = (0..fed).map(|line| format!("{line},{}", line % 3)).collect();
        let mut got = lines.clone();
        got.sort_by_key(|line| line.split(',').next().and_then(|number| number.parse::<u64>().ok()));
        let whole = in_view == [format!("{fed} {}", fed * fed.saturating_sub(1) / 2)] && got == wanted && sums == wanted_sums;
        if whole {
            return;
        }
        let lasting = start.elapsed() > PATIENCE;
        assert!(
            lines.len() <= wanted.len() && !lasting,
            "{fed} lines: the view has {in_view:?}, the sink {} lines; {sums:?}, {wanted_sums:?}",
            lines.len()
        );
        std::thread::yield_now();
    }
}

/// Lines of the files that the sink's manifests name.
fn committed_rows(folder: &Path) -> Vec<String> {
    let mut manifests: Vec<PathBuf> = std::fs::read_dir(folder.join("_manifest"))
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    manifests.sort();
    let mut rows = Vec::new();
    for manifest in manifests {
        let manifest: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&manifest).expect("readable")).expect("JSON");
        for file in manifest["files"].as_array().expect("a list of files") {
            let name = file["name"].as_str().expect("a name");
            let text = std::fs::read_to_string(folder.join(name)).expect("a file that a manifest names");
            rows.extend(text.lines().map(str::to_owned));
        }
    }
    rows
}

/// What is left of a changelog.
fn consolidated(changes: &[String]) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for change in changes {
        let mut fields: Vec<&str> = change.split(',').collect();
        let _epoch = fields.pop();
        let sign = match fields.pop() {
            Some("insert") => 1,
            Some("delete") => -1,
            other => panic!("{other:?} in a changelog: {change}"),
        };
        *rows.entry(fields.join(",")).or_insert(0) += sign;
    }
    rows.retain(|_, count| *count != 0);
    rows
}
