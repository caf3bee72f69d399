//! Random bytes, messages and statements: whatever comes, the server answers or closes, goes on serving others, and neither panics nor grows.
//!
//! `MILLPOND_FUZZ_SECONDS` says for how long each driver runs, `MILLPOND_SEED` where it begins; a failure names the seed that repeats it.

mod corpus;
mod fragments;
mod messages;
mod statements;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use millpond_sql_tests::{ServerProcess, WireClient};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");
/// Sets the seed, to repeat a failure.
const SEED: &str = "MILLPOND_SEED";
/// Seconds that a driver runs.
const SECONDS: &str = "MILLPOND_FUZZ_SECONDS";
const DEFAULT_SECONDS: u64 = 6;
/// Within this time a server under fire must answer somebody else.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// What the server may take beyond its own limit.
const MOST_MEMORY: u64 = 1 << 30;

fn seed() -> u64 {
    std::env::var(SEED).ok().and_then(|text| text.parse().ok()).unwrap_or(20_310_102)
}

fn duration() -> Duration {
    Duration::from_secs(std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_SECONDS))
}

/// A server process under fire.
struct Target {
    server: ServerProcess,
    directory: TempDir,
    /// Lines of its log that have been looked at.
    seen: usize,
}

impl Target {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = ["--memory-limit", "256MiB", "--parallelism", "2"];
        let server = ServerProcess::start(Path::new(BINARY), &directory.path().join("data"), &arguments);
        Self { server, directory, seen: 0 }
    }

    /// A folder of the test's own.
    fn folder(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    fn connect(&self, context: &str) -> WireClient {
        self.server.connect().unwrap_or_else(|error| panic!("{context}: {error}"))
    }

    /// The server answers a new session soon, has not panicked since the last look, and has not grown out of bounds.
    fn assert_well(&mut self, context: &str) {
        let started = Instant::now();
        let rows = self.connect(context).rows("SELECT 1").unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(rows, ["1"], "{context}");
        assert!(started.elapsed() < ANSWER_TIME, "{context}: SELECT 1 took {:?}", started.elapsed());
        let log = self.server.log();
        let panic = log[self.seen..].iter().position(|line| line.contains("panicked"));
        if let Some(at) = panic {
            panic!("{context}: {}", log[self.seen + at..].iter().take(5).cloned().collect::<Vec<_>>().join("\n"));
        }
        self.seen = log.len();
        let bytes = resident_bytes(self.server.process_id());
        assert!(bytes < MOST_MEMORY, "{context}: the server takes {} MiB", bytes >> 20);
    }
}

/// Physical memory of a process.
fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line for it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Failures of one kind are told once.
#[derive(Default)]
struct Failures(BTreeMap<String, String>);

impl Failures {
    fn add(&mut self, message: &str, context: String) {
        let kind = message.replace(|c: char| c.is_ascii_digit(), "");
        self.0.entry(kind).or_insert(context);
    }

    fn assert_none(&self) {
        assert!(self.0.is_empty(), "{} kinds of failures:\n{}", self.0.len(), self.0.values().cloned().collect::<Vec<_>>().join("\n\n"));
    }
}
