//! How many operations a second state tables do on one thread: in memory, with new keys, and with little memory.
//!
//! `cargo bench -p millpond-storage --bench state_table`

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millpond_storage::encoding::EncodedRows;
use millpond_storage::epoch::Epoch;
use millpond_storage::key_group::KEY_GROUPS;
use millpond_storage::memory::MemoryBudget;
use millpond_storage::rocks::RocksShared;
use millpond_storage::state_store::StateBackend;
use millpond_storage::state_table::{JobStore, JobStoreSpec, StateOrigin, StateTable, TableId, TaskState};

const CHUNK: u64 = 4096;

fn task(directory: &Path, budget: usize) -> TaskState {
    let backend = if std::env::args().any(|argument| argument == "memory") { StateBackend::Memory } else { StateBackend::RocksDb };
    let spec =
        JobStoreSpec { directory: directory.to_owned(), backend, budget: MemoryBudget::new(budget), shared: RocksShared::new(64 << 20) };
    let store: Arc<JobStore> = JobStore::open(spec).unwrap();
    TaskState::new(store, 0, 0..KEY_GROUPS, StateOrigin::Empty).unwrap()
}

/// Time this thread has had on a core, so that other load on the machine does not count; else wall time.
struct CoreTime {
    on_core: Option<u64>,
    wall: Instant,
}

impl CoreTime {
    fn start() -> Self {
        Self { on_core: on_core_nanos(), wall: Instant::now() }
    }

    fn seconds(&self) -> f64 {
        match self.on_core.zip(on_core_nanos()) {
            Some((then, now)) => (now - then) as f64 / 1e9,
            None => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn on_core_nanos() -> Option<u64> {
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

fn report(what: &str, operations: u64, started: &CoreTime) {
    println!("{what:<64} {:>8.2} M/s", operations as f64 / started.seconds() / 1e6);
}

/// Keys as a group by of `distinct` values sees them: nine bytes, in no order.
fn key(number: u64, distinct: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % distinct).to_be_bytes());
    key
}

fn keys(start: u64, distinct: u64) -> EncodedRows {
    (start..start + CHUNK).map(|number| key(number, distinct)).collect()
}

/// An aggregate: load a chunk's keys, then get and put each.
fn aggregate(what: &str, budget: usize, distinct: u64, operations: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(directory.path(), budget);
    let mut table = task.point_table(TableId(1)).unwrap();
    let chunks: Vec<EncodedRows> = (0..operations / CHUNK).map(|chunk| keys(chunk * CHUNK, distinct)).collect();
    let started = CoreTime::start();
    for chunk in &chunks {
        table.load(chunk).unwrap();
        for key in chunk.iter() {
            let mut value = [0_u8; 24];
            if let Some(old) = table.get(key) {
                value.copy_from_slice(old);
            }
            value[0] = value[0].wrapping_add(1);
            table.put(key, &value);
        }
        table.relieve().unwrap();
    }
    report(what, operations, &started);
    let started = CoreTime::start();
    drop(task.snapshot(&mut [&mut table], Epoch(1)).unwrap());
    println!("    snapshot {:.1} ms, {} MiB in memory", started.seconds() * 1e3, table.memory_bytes() >> 20);
}

/// One side of a join: put a new row, look at the rows of another prefix.
fn join(what: &str, budget: usize, per_group: u64, operations: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(directory.path(), budget);
    let mut table = task.range_table(TableId(1)).unwrap();
    let distinct = operations / per_group;
    let chunks: Vec<EncodedRows> = (0..operations / CHUNK).map(|chunk| keys(chunk * CHUNK, distinct)).collect();
    let started = CoreTime::start();
    let mut number = 0_u64;
    for chunk in &chunks {
        table.load(chunk).unwrap();
        for prefix in chunk.iter() {
            number += 1;
            table.put(prefix, &number.to_be_bytes(), &[7; 60]);
        }
        table.relieve().unwrap();
    }
    report(&format!("{what}: put"), operations, &started);
    let started = CoreTime::start();
    let mut rows = 0_u64;
    for chunk in chunks.iter().take(200) {
        table.load(chunk).unwrap();
        for prefix in chunk.iter() {
            table
                .scan(prefix, None, usize::MAX, &mut |suffix, value| {
                    rows += 1;
                    black_box((suffix, value));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        table.relieve().unwrap();
    }
    report(&format!("{what}: rows scanned"), rows, &started);
    println!("    {} MiB in memory", table.memory_bytes() >> 20);
}

/// Values under few prefixes: put a random one, take the first.
fn minimum(what: &str, budget: usize, operations: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut task = task(directory.path(), budget);
    let mut table = task.range_table(TableId(1)).unwrap();
    let prefixes: EncodedRows = [b"one"].into_iter().collect();
    let started = CoreTime::start();
    for chunk in 0..operations / CHUNK {
        table.load(&prefixes).unwrap();
        for number in chunk * CHUNK..(chunk + 1) * CHUNK {
            table.put(b"one", &key(number, u64::MAX), &1_u64.to_be_bytes());
        }
        table.relieve().unwrap();
    }
    report(&format!("{what}: put"), operations, &started);
    let started = CoreTime::start();
    let changes = operations / 10;
    for chunk in 0..changes / CHUNK {
        table.load(&prefixes).unwrap();
        for number in chunk * CHUNK..(chunk + 1) * CHUNK {
            let (first, _) = table.first(b"one").unwrap().unwrap();
            table.delete(b"one", &first);
            table.put(b"one", &key(operations + number, u64::MAX), &1_u64.to_be_bytes());
        }
        table.relieve().unwrap();
    }
    report(&format!("{what}: first, delete, put"), changes, &started);
}

fn main() {
    // A word of the description, to measure one case only.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with("--") && argument != "memory");
    let wanted = |what: &str| only.as_ref().is_none_or(|only| what.contains(only.as_str()));
    for (what, run) in cases() {
        if wanted(what) {
            run(what);
        }
    }
}

type Case = (&'static str, fn(&str));

fn cases() -> Vec<Case> {
    vec![
        ("point get+put, 10 k keys, in memory", |what| aggregate(what, 8 << 30, 10_000, 4_000_000)),
        ("point get+put, 1 M keys, in memory", |what| aggregate(what, 8 << 30, 1_000_000, 4_000_000)),
        ("point get+put, all keys new, in memory", |what| aggregate(what, 8 << 30, u64::MAX, 4_000_000)),
        ("point get+put, 1 M keys, 32 MiB", |what| aggregate(what, 32 << 20, 1_000_000, 4_000_000)),
        ("point get+put, all keys new, 64 MiB", |what| aggregate(what, 64 << 20, u64::MAX, 4_000_000)),
        ("range, 1 row a prefix, in memory", |what| join(what, 8 << 30, 1, 4_000_000)),
        ("range, 10 rows a prefix, in memory", |what| join(what, 8 << 30, 10, 4_000_000)),
        ("range, 10 rows a prefix, 64 MiB", |what| join(what, 64 << 20, 10, 2_000_000)),
        ("range, one prefix, in memory", |what| minimum(what, 8 << 30, 2_000_000)),
        ("range, one prefix, 8 MiB", |what| minimum(what, 8 << 20, 2_000_000)),
    ]
}
