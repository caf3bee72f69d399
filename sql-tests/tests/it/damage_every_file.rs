//! Each kind of file of a data directory, garbled, cut off, emptied and removed: what is read from it afterwards is right, or an error names it.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use millpond_sql_tests::{TestServer, WireClient};

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rows that are older than this are in the database.
const FOLDED_AFTER: Duration = Duration::from_secs(3);

/// Tables that come and go at a time while the directory is filled.
const PASSING: usize = 2;

/// Files that are tried at a time: much of it is waiting.
const WORKERS: usize = 4;

/// Parts of names of files without which something would be lost.
const NEEDED: [&str; 12] = [
    "catalog/log",
    "epoch-log/",
    "db.flushed",
    "db/CURRENT",
    "db/MANIFEST",
    ".sst",
    ".segment",
    "segments.index",
    "deltas/",
    "collection.meta",
    "manifest-",
    "/log/",
];

/// Queries over everything that is kept, and what they answer.
const QUERIES: [(&str, &str); 4] = [
    ("SELECT count(*), sum(a), count(DISTINCT b) FROM t", "20000 199990000 7"),
    ("SELECT count(*), sum(n) FROM v", "7 20000"),
    ("SELECT count(*), sum(a), count(DISTINCT b) FROM e", "60000 1800030000 60000"),
    ("SELECT count(*), sum(a) FROM plain", "3 6"),
];

/// A directory with everything: a keyed table in RocksDB, one whose rows are in the epoch log only, a view with deltas, an append-only view in segments.
fn fill(directory: &Path) {
    let server = TestServer::start_on(directory).expect("a server");
    let mut client = server.connect();
    let mut run = |sql: &str| drop(client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}")));
    run("CREATE TABLE t (a bigint PRIMARY KEY, b text)");
    run("CREATE MATERIALIZED VIEW v AS SELECT b, count(*) AS n FROM t GROUP BY b");
    run("INSERT INTO t SELECT g, 'group ' || (g % 7) FROM generate_series(0, 19999) AS x(g)");
    run("CREATE SOURCE made (a bigint, b text) WITH (connector = 'datagen', rows = '60000', rows_per_second = '0', \
         fields.a.kind = 'sequence', fields.b.length = '160')");
    run("CREATE MATERIALIZED VIEW e AS SELECT a, b FROM made");
    let started = Instant::now();
    let has = |folder: &str, extension: &str, bytes: u64| {
        files(&directory.join(folder)).iter().any(|path| {
            path.extension().is_some_and(|found| found == extension) && fs::metadata(path).is_ok_and(|found| found.len() > bytes)
        })
    };
    // Rows are moved to their places in the background; what is dropped then is removed from the database durably, with all else that is in it.
    let mut passing: VecDeque<(u64, Instant)> = VecDeque::new();
    let mut number = 0;
    while !has("collections/db", "sst", 10_000) || !has("collections", "segment", 10_000) {
        assert!(started.elapsed() < PATIENCE, "{:?}", files(directory));
        if passing.len() < PASSING {
            run(&format!("CREATE TABLE passing_{number} (a int PRIMARY KEY)"));
            run(&format!("INSERT INTO passing_{number} VALUES (1)"));
            passing.push_back((number, Instant::now()));
            number += 1;
        }
        std::thread::yield_now();
        if passing.front().is_some_and(|(_, made)| made.elapsed() > FOLDED_AFTER) {
            let (oldest, _) = passing.pop_front().expect("it was just seen");
            run(&format!("DROP TABLE passing_{oldest}"));
        }
    }
    run("CREATE TABLE plain (a int)");
    run("INSERT INTO plain VALUES (1), (2), (3)");
    for (sql, expected) in QUERIES {
        assert_eq!(client.rows(sql).expect("rows"), [expected], "{sql}");
    }
    client.terminate();
    server.shutdown();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// Files that hold nothing that would be missed.
const IDLE: [&str; 6] = ["LOCK", "LOG", "IDENTITY", "OPTIONS-", "millpond.lock", "db/000004.log"];

/// A file of each kind: files of one folder whose names differ in digits only are of one kind. Of checkpoints it is the newest, else the largest.
fn one_of_each_kind(directory: &Path) -> Vec<PathBuf> {
    let mut kinds: BTreeMap<String, (u128, PathBuf)> = BTreeMap::new();
    for path in files(directory) {
        let name = path.strip_prefix(directory).expect("below").to_string_lossy().into_owned();
        if IDLE.iter().any(|idle| name.contains(idle)) {
            continue;
        }
        let kind = name.replace(|c: char| c.is_ascii_digit(), "");
        // Jobs and collections have folders of their own, with one kind of file in each: those of every object count.
        let is_object = kind.starts_with("objects");
        let kind = if is_object || kind.starts_with("collections//") { format!("{:?} {kind}", path.parent()) } else { kind };
        let metadata = fs::metadata(&path).expect("a file");
        let since = metadata.modified().expect("a time").duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
        let rank = if is_object { since.as_nanos() } else { u128::from(metadata.len()) };
        let first = kinds.entry(kind).or_insert((rank, path.clone()));
        *first = (rank, path).max(first.clone());
    }
    kinds.into_values().map(|(_, path)| path).collect()
}

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Garbled,
    Cut,
    Emptied,
    Removed,
}

impl Damage {
    fn apply(self, path: &Path) {
        let mut bytes = fs::read(path).expect("a file");
        let middle = bytes.len() / 2;
        match self {
            Self::Removed => return fs::remove_file(path).expect("removed"),
            Self::Emptied => bytes.clear(),
            Self::Cut => bytes.truncate(middle),
            Self::Garbled => bytes.iter_mut().skip(middle).take(8).for_each(|byte| *byte ^= 0x55),
        }
        fs::write(path, bytes).expect("written");
    }
}

/// What an error must contain to name a file: its path, its name in the object store, or the database that it is a part of.
fn names(error: &str, path: &Path) -> bool {
    let folder = path.parent().expect("a folder");
    let name = path.file_name().expect("a name").to_string_lossy();
    let is_manifest = name.starts_with("manifest-") && error.contains("manifest-");
    error.contains(&*path.to_string_lossy()) || error.contains(&*folder.to_string_lossy()) && (is_manifest || !folder.ends_with("objects"))
}

/// Each query answers what it did before the damage, and each job goes on, or with an error that names the file. Answers the errors.
fn check(client: &mut WireClient, path: &Path, wrong: &mut Vec<String>) -> Vec<String> {
    client.query("SET read_timeout = '20s'").expect("a setting");
    let mut errors = Vec::new();
    for (sql, expected) in QUERIES {
        match client.rows(sql) {
            Ok(rows) if rows == [expected] => {}
            Ok(rows) => wrong.push(format!("{sql}: {rows:?}")),
            Err(error) => errors.push(error.to_string()),
        }
    }
    // What was sealed before can be read whatever has become of its job.
    let started = Instant::now();
    let settled = "SELECT bool_and(state IN ('running', 'finished', 'failed')) FROM millpond.jobs";
    while client.rows(settled).expect("rows") != ["t"] {
        assert!(started.elapsed() < PATIENCE, "{}: the jobs do not start", path.display());
        std::thread::yield_now();
    }
    errors.extend(client.rows("SELECT error FROM millpond.jobs WHERE state = 'failed'").expect("rows"));
    wrong.extend(errors.iter().filter(|error| !names(error, path)).cloned());
    errors
}

/// Damages a file in a copy of the directory, and tells what came of it, and what was wrong with that.
fn try_damage(whole: &Path, damaged: &Path, name: &Path, damage: Damage) -> (String, Vec<String>) {
    assert!(Command::new("cp").arg("-a").arg(whole).arg(damaged).status().expect("cp can be run").success());
    let path = damaged.join(name);
    damage.apply(&path);
    let mut wrong = Vec::new();
    let outcome = match TestServer::start_on(damaged) {
        Ok(server) => {
            let errors = check(&mut server.connect(), &path, &mut wrong);
            if errors.is_empty() { "not needed".to_owned() } else { format!("found: {}", errors.join("; ")) }
        }
        Err(error) => {
            let error = error.to_string();
            if !names(&error, &path) {
                wrong.push(error.clone());
            }
            format!("refused: {error}")
        }
    };
    fs::remove_dir_all(damaged).expect("removed");
    let what = format!("{damage:?} {}", name.display());
    (format!("{what}: {outcome}"), wrong.into_iter().map(|wrong| format!("{what}: {wrong}")).collect())
}

#[test]
fn no_damage_to_any_file_is_silent() {
    let place = tempfile::tempdir().expect("a directory");
    let whole = place.path().join("whole");
    fill(&whole);
    let names = one_of_each_kind(&whole).into_iter().map(|file| file.strip_prefix(&whole).expect("below").to_owned());
    let damages = [Damage::Garbled, Damage::Cut, Damage::Emptied, Damage::Removed];
    let cases: Vec<(PathBuf, Damage)> = names.flat_map(|name| damages.map(|damage| (name.clone(), damage))).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new((Vec::new(), Vec::new())));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, damage)) = cases.get(number) else { return };
                    let (outcome, wrong) = try_damage(&whole, &place.path().join(format!("damaged-{number}")), name, *damage);
                    let mut found = found.lock().expect("no panics");
                    found.0.push(outcome);
                    found.1.extend(wrong);
                }
            });
        }
    });
    let (outcomes, wrong) = found.into_inner().expect("no panics");
    println!("{}", outcomes.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The files without which something would be lost.
    for needed in NEEDED {
        let of_kind: Vec<&String> = outcomes.iter().filter(|outcome| outcome.contains(needed)).collect();
        assert!(of_kind.len() >= damages.len(), "no {needed}");
        for outcome in of_kind {
            // A checkpoint that was never completed looks like this: the one before it is as good.
            let looks_unborn = outcome.starts_with("Removed") && *needed == *"manifest-";
            assert!(looks_unborn || !outcome.ends_with("not needed"), "{outcome}");
        }
    }
}
