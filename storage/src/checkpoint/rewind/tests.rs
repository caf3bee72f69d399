//! Tasks of a job fail one by one, at any moment, and the others go on.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::checkpoint::ManifestInput;
use crate::error::StorageError;
use crate::key_group::{KEY_GROUPS, key_group, key_group_range, subtask_of};
use crate::object::ObjectStorage;
use crate::state_store::StateBackend;
use crate::state_table::task_state::tests::open_store;
use crate::state_table::{PointTable, RangeTable, StateOrigin, StateTable, TableId, TaskCheckpoint, TaskState};

const PARALLELISM: usize = 3;

/// What one task's tables should hold.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Contents {
    points: BTreeMap<Vec<u8>, Vec<u8>>,
    ranges: BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>,
}

struct Task {
    state: TaskState,
    points: PointTable,
    ranges: RangeTable,
    contents: Contents,
}

impl Task {
    fn new(store: &Arc<JobStore>, index: usize, origin: StateOrigin, contents: Contents) -> Self {
        let mut state = TaskState::new(store.clone(), index as u32, key_group_range(index, PARALLELISM), origin).unwrap();
        let (points, ranges) = (state.point_table(TableId(1)).unwrap(), state.range_table(TableId(2)).unwrap());
        Self { state, points, ranges, contents }
    }

    fn snapshot(&mut self, epoch: Epoch) -> TaskCheckpoint {
        let mut tables: [&mut dyn StateTable; 2] = [&mut self.points, &mut self.ranges];
        self.state.snapshot(&mut tables, epoch).unwrap()
    }

    fn check(&mut self, context: &str) {
        let mut found = Contents::default();
        self.points
            .scan_all(&mut |key, value| {
                found.points.insert(key.to_vec(), value.to_vec());
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        self.ranges
            .scan_all(&mut |prefix, suffix, value| {
                found.ranges.insert((prefix.to_vec(), suffix.to_vec()), value.to_vec());
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        assert!(found.points == self.contents.points, "{context}: {} points of {}", found.points.len(), self.contents.points.len());
        assert!(found.ranges == self.contents.ranges, "{context}: {} rows of {}", found.ranges.len(), self.contents.ranges.len());
    }
}

fn change(tasks: &mut [Task], random: &mut StdRng, changes: usize, now_us: i64) {
    for _ in 0..changes {
        let key = random.random_range(0..3000_u32).to_be_bytes().to_vec();
        let value = vec![random.random(); random.random_range(0..100)];
        let task = &mut tasks[subtask_of(key_group(&key), PARALLELISM)];
        match random.random_range(0..6) {
            0..3 => {
                task.points.put(&key, &value);
                task.contents.points.insert(key, value);
            }
            3 => {
                task.points.delete(&key);
                task.contents.points.remove(&key);
            }
            choice => {
                let prefix = random.random_range(0..60_u32).to_be_bytes().to_vec();
                let task = &mut tasks[subtask_of(key_group(&prefix), PARALLELISM)];
                if choice == 4 {
                    task.ranges.put(&prefix, &key, &value);
                    task.contents.ranges.insert((prefix, key), value);
                } else if random.random_bool(0.02) {
                    task.ranges.delete_prefix(&prefix).unwrap();
                    task.contents.ranges.retain(|(other, _), _| *other != prefix);
                } else {
                    task.ranges.delete(&prefix, &key);
                    task.contents.ranges.remove(&(prefix, key));
                }
            }
        }
    }
    for task in tasks {
        let tables: [&mut dyn StateTable; 2] = [&mut task.points, &mut task.ranges];
        for table in tables {
            table.log_aged(now_us, 2);
            table.relieve().unwrap();
        }
    }
}

/// How often a store was put back, key by key and in whole groups, and how often the tables were kept, and were not though they might have been.
#[derive(Default)]
struct Rewinds {
    by_key: usize,
    by_group: usize,
    kept: usize,
    not_kept: usize,
}

/// A job of three tasks; after some checkpoints a task fails, before or behind its part of one that is not complete.
async fn failing_tasks(backend: StateBackend, budget: usize, seed: u64, rewinds: &mut Rewinds) {
    let folder = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let objects = ObjectStorage::local(folder.path()).unwrap();
    let checkpointer = |term| {
        let mut checkpointer = Checkpointer::new(objects.clone(), 7, term, 1).materialize_after(64 << 10);
        // A task may also fail while an image is being taken.
        checkpointer.image_patience = if seed.is_multiple_of(2) { Duration::from_secs(600) } else { Duration::ZERO };
        checkpointer
    };
    let mut random = StdRng::seed_from_u64(seed);
    let mut complete: Vec<Contents> = vec![Contents::default(); PARALLELISM];
    for life in 1..4 {
        let checkpointer = checkpointer(life);
        let restored = checkpointer.restore().await.unwrap();
        let store = open_store(scratch.path(), backend, budget);
        // In one of the lives only from some time on.
        store.expect_rewinds(life == 1 || (life == 2 && seed.is_multiple_of(2)));
        let origin = match &restored {
            Some(restored) => StateOrigin::Checkpoint(checkpointer.load_into(restored, &store).await.unwrap()),
            None => StateOrigin::Empty,
        };
        let mut tasks: Vec<Task> =
            (0..PARALLELISM).map(|index| Task::new(&store, index, origin.clone(), complete[index].clone())).collect();
        let mut epoch = restored.map_or(Epoch(0), |restored| restored.epoch());
        for step in 0..14 {
            let context = format!("seed {seed}, life {life}, step {step}");
            if life == 3 && step == 5 {
                store.expect_rewinds(true);
            }
            tasks.iter_mut().for_each(|task| task.check(&context));
            let changes = random.random_range(0..1500);
            change(&mut tasks, &mut random, changes, step);
            epoch = epoch.next();
            let parts = tasks.iter_mut().map(|task| task.snapshot(epoch)).collect();
            let taken: Vec<Contents> = tasks.iter().map(|task| task.contents.clone()).collect();
            let input = ManifestInput { epoch, parts, in_flight: None, upstream: Vec::new(), notes: BTreeMap::new() };
            if random.random_bool(0.5) {
                change(&mut tasks, &mut random, 700, step);
            }
            let lost = random.random_bool(0.4).then(|| random.random_range(0..PARALLELISM));
            let is_before = random.random_bool(0.5);
            if let Some(index) = lost.filter(|_| is_before && step > 0) {
                let is_whole = random.random_bool(0.7);
                lose(&checkpointer, &store, &mut tasks, (index, &complete[index], is_whole), rewinds).await;
                let given_up = checkpointer.complete(input).await;
                assert!(matches!(given_up, Err(StorageError::GivenUp { .. })), "{context}: {given_up:?}");
                continue;
            }
            checkpointer.complete(input).await.unwrap_or_else(|error| panic!("{context}: {error}"));
            complete = taken;
            if let Some(index) = lost {
                let is_whole = random.random_bool(0.7);
                lose(&checkpointer, &store, &mut tasks, (index, &complete[index], is_whole), rewinds).await;
            }
        }
    }
}

/// Puts a task back to what it had at the newest complete checkpoint. Not whole, it has failed in the midst of a call of one of its tables.
async fn lose(
    checkpointer: &Checkpointer,
    store: &Arc<JobStore>,
    tasks: &mut Vec<Task>,
    (index, complete, is_whole): (usize, &Contents, bool),
    rewinds: &mut Rewinds,
) {
    let mut lost = tasks.remove(index);
    let task = if is_whole { lost.state.lose(&mut [&mut lost.points, &mut lost.ranges]) } else { lost.state.lose(&mut [&mut lost.points]) };
    drop(lost);
    let Rewound { origin, entries, keys, .. } = checkpointer.rewind(store, task).await.unwrap().expect("a checkpoint is complete");
    rewinds.by_key += usize::from(keys.is_some_and(|keys| keys > 0));
    rewinds.by_group += usize::from(keys.is_none());
    rewinds.kept += usize::from(entries.is_some());
    rewinds.not_kept += usize::from(is_whole && entries.is_none());
    tasks.insert(index, Task::new(store, index, origin, complete.clone()));
}

#[test]
fn a_task_goes_back_to_the_checkpoint_and_the_others_keep_what_they_have() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut rewinds = Rewinds::default();
    let seeds = std::env::var("MILLPOND_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        let (backend, budget) = match seed % 3 {
            0 => (StateBackend::RocksDb, 64 << 20),
            1 => (StateBackend::RocksDb, 256 << 10),
            _ => (StateBackend::Memory, 256 << 10),
        };
        runtime.block_on(failing_tasks(backend, budget, seed, &mut rewinds));
    }
    assert!(rewinds.by_key > 10, "{} times single keys had to be put back", rewinds.by_key);
    assert!(rewinds.by_group > 10, "{} times whole groups had to be put back", rewinds.by_group);
    assert!(rewinds.kept > 10 && rewinds.not_kept > 10, "{} times tables were kept, {} times not", rewinds.kept, rewinds.not_kept);
}

const ENTRIES: u32 = 40_000;
const CHANGED: u32 = 300;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b1).to_be_bytes()
}

fn old(number: u32) -> Vec<u8> {
    vec![number as u8; 500]
}

fn restored(origin: &StateOrigin) -> RestoredState {
    match origin {
        StateOrigin::Checkpoint(state) => state.clone(),
        _ => panic!("the tables were kept"),
    }
}

async fn complete(checkpointer: &Checkpointer, epoch: Epoch, parts: Vec<TaskCheckpoint>) -> crate::checkpoint::CheckpointReport {
    let input = ManifestInput { epoch, parts, in_flight: None, upstream: Vec::new(), notes: BTreeMap::new() };
    checkpointer.complete(input).await.unwrap()
}

/// A task with a state of 20 MB, and the checkpoint that has all of it in its materialization.
struct Large {
    store: Arc<JobStore>,
    checkpointer: Checkpointer,
    task: TaskState,
    table: PointTable,
    epoch: Epoch,
    _folders: [tempfile::TempDir; 2],
}

impl Large {
    async fn new(budget: usize) -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let store = open_store(folders[0].path(), StateBackend::RocksDb, budget);
        store.expect_rewinds(true);
        let checkpointer = Checkpointer::new(ObjectStorage::local(folders[1].path()).unwrap(), 7, 1, 1).materialize_after(1 << 20);
        let mut task = TaskState::new(store.clone(), 0, 0..KEY_GROUPS, StateOrigin::Empty).unwrap();
        let mut table = task.point_table(TableId(1)).unwrap();
        for number in 0..ENTRIES {
            table.put(&key(number), &old(number));
            if number % 4096 == 0 {
                table.relieve().unwrap();
            }
        }
        let mut epoch = Epoch(0);
        let mut replayed = u64::MAX;
        while replayed > 0 {
            epoch = epoch.next();
            let parts = vec![task.snapshot(&mut [&mut table], epoch).unwrap()];
            task.go_on_sweeping(&mut [&mut table]);
            replayed = complete(&checkpointer, epoch, parts).await.bytes_replay;
            store.hurry_image();
        }
        Self { store, checkpointer, task, table, epoch, _folders: folders }
    }

    fn change(&mut self) {
        for number in 0..CHANGED {
            match number % 3 {
                0 => self.table.put(&key(number), b"new"),
                1 => self.table.delete(&key(number)),
                _ => self.table.put(&key(ENTRIES + number), b"another"),
            }
        }
    }

    /// Loads what was changed and some of what was not, and looks at it.
    fn check(table: &mut PointTable) {
        let asked: Vec<u32> = (0..2 * CHANGED).chain(ENTRIES - 10..ENTRIES + 2 * CHANGED).collect();
        let mut keys = crate::encoding::EncodedRows::new();
        asked.iter().for_each(|number| keys.push(&key(*number)));
        table.load(&keys).unwrap();
        for number in asked {
            let expected = (number < ENTRIES).then(|| old(number));
            assert_eq!(table.get(&key(number)), expected.as_deref(), "{number}");
        }
    }
}

/// Of a state most of which is in the store, what a task has changed since the checkpoint is put back, and no more of it is read.
#[tokio::test]
async fn going_back_costs_what_has_changed_not_what_there_is() {
    let mut large = Large::new(4 << 20).await;
    large.change();
    large.table.begin_sweep();
    while !large.table.sweep(1 << 20).unwrap() {}
    // As when it fails in the midst of a call of its table.
    let lost = large.task.lose(&mut []);
    let Rewound { checkpoint, origin, keys, entries, .. } = large.checkpointer.rewind(&large.store, lost).await.unwrap().unwrap();
    assert_eq!((checkpoint, keys, entries), (large.epoch, Some(CHANGED as usize), None));
    let mut task = TaskState::new(large.store, 0, 0..KEY_GROUPS, origin.clone()).unwrap();
    let mut table = task.point_table(TableId(1)).unwrap();
    assert_eq!(restored(&origin).entries_read(), 0, "what is needed is read when it is");
    Large::check(&mut table);
}

/// Of a state in memory, the same, and nothing at all is read; also if it fails again before the next checkpoint.
#[tokio::test]
async fn tables_are_kept_and_only_what_has_changed_is_changed_back() {
    let mut large = Large::new(256 << 20).await;
    let memory = large.table.memory_bytes();
    for is_flushed in [false, true, false] {
        large.change();
        if is_flushed {
            large.table.begin_sweep();
            while !large.table.sweep(1 << 20).unwrap() {}
        }
        let lost = large.task.lose(&mut [&mut large.table]);
        let Rewound { checkpoint, origin, entries, keys, log_bytes } =
            large.checkpointer.rewind(&large.store, lost).await.unwrap().unwrap();
        let expected = if is_flushed { CHANGED as usize } else { 0 };
        assert_eq!((checkpoint, entries, keys, log_bytes), (large.epoch, Some(CHANGED as usize), Some(expected), 0));
        large.task = TaskState::new(large.store.clone(), 0, 0..KEY_GROUPS, origin).unwrap();
        large.table = large.task.point_table(TableId(1)).unwrap();
        assert!(large.table.memory_bytes() > memory / 10 * 9, "{} bytes of {memory}", large.table.memory_bytes());
        Large::check(&mut large.table);
    }
    // What is checkpointed then is what was there.
    let parts = vec![large.task.snapshot(&mut [&mut large.table], large.epoch.next()).unwrap()];
    complete(&large.checkpointer, large.epoch.next(), parts).await;
    let lost = large.task.lose(&mut []);
    let Rewound { checkpoint, origin, .. } = large.checkpointer.rewind(&large.store, lost).await.unwrap().unwrap();
    assert_eq!(checkpoint, large.epoch.next());
    let mut task = TaskState::new(large.store, 0, 0..KEY_GROUPS, origin).unwrap();
    Large::check(&mut task.point_table(TableId(1)).unwrap());
}

/// A panic within a table leaves it as no one knows.
#[tokio::test]
async fn a_table_that_failed_in_a_call_is_not_kept() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let store = open_store(folders[0].path(), StateBackend::RocksDb, 1 << 20);
    store.expect_rewinds(true);
    let checkpointer = Checkpointer::new(ObjectStorage::local(folders[1].path()).unwrap(), 7, 1, 1);
    let mut task = Task::new(&store, 0, StateOrigin::Empty, Contents::default());
    let own: Vec<[u8; 4]> = (0..100_u32).map(u32::to_be_bytes).filter(|key| subtask_of(key_group(key), PARALLELISM) == 0).collect();
    task.points.put(&own[0], b"1");
    task.contents.points.insert(own[0].to_vec(), b"1".to_vec());
    complete(&checkpointer, Epoch(1), vec![task.snapshot(Epoch(1))]).await;
    task.points.put(&own[0], b"2");
    task.points.put(&own[1], b"2");
    let drain = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        task.points.drain_dirty(&mut |_, _| std::panic::resume_unwind(Box::new("a fault")));
    }));
    assert!(drain.is_err());
    let lost = task.state.lose(&mut [&mut task.points, &mut task.ranges]);
    let Rewound { origin, entries, .. } = checkpointer.rewind(&store, lost).await.unwrap().unwrap();
    assert_eq!(entries, None);
    Task::new(&store, 0, origin, task.contents.clone()).check("from the checkpoint");
}

/// Of the log, only what is of the lost task's key groups is loaded.
#[tokio::test]
async fn the_log_of_peers_is_not_loaded() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let store = open_store(folders[0].path(), StateBackend::RocksDb, 64 << 20);
    let checkpointer = Checkpointer::new(ObjectStorage::local(folders[1].path()).unwrap(), 7, 1, 1);
    let mut tasks: Vec<Task> = (0..PARALLELISM).map(|index| Task::new(&store, index, StateOrigin::Empty, Contents::default())).collect();
    let mut random = StdRng::seed_from_u64(1);
    let mut logged = [0; PARALLELISM];
    for epoch in 1..4 {
        change(&mut tasks, &mut random, 1000, epoch);
        let parts: Vec<TaskCheckpoint> = tasks.iter_mut().map(|task| task.snapshot(Epoch(epoch as u64))).collect();
        for (sum, part) in logged.iter_mut().zip(&parts) {
            *sum += part.log_bytes();
        }
        complete(&checkpointer, Epoch(epoch as u64), parts).await;
    }
    let contents = tasks[1].contents.clone();
    let lost = tasks[1].state.lose(&mut []);
    let Rewound { origin, log_bytes, .. } = checkpointer.rewind(&store, lost).await.unwrap().unwrap();
    assert_eq!(log_bytes, logged[1]);
    Task::new(&store, 1, origin, contents).check("from its log");
}
