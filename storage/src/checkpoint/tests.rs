//! Whole lives of a job: run, checkpoint, crash, restore, at any parallelism, with every kind of damage.

mod bounds;
mod crashes;
mod trouble;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::encoding::EncodedRows;
use crate::key_group::{key_group, key_group_range, subtask_of};
use crate::signed_batch::SignedBatch;
use crate::state_store::StateBackend;
use crate::state_table::JobStore;
use crate::state_table::TaskState;
use crate::state_table::task_state::tests::open_store;
use crate::state_table::{HandedTables, PointTable, RangeTable, StateOrigin, StateTable, TableId};

const JOB: u64 = 7;
const FINGERPRINT: u64 = 0xfeed;

/// What the tables should hold.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Contents {
    points: BTreeMap<Vec<u8>, Vec<u8>>,
    ranges: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>>,
    offsets: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What outlives a crash, and how the job is run.
struct Job {
    scratch: tempfile::TempDir,
    objects: ObjectStorage,
    backend: StateBackend,
    budget: usize,
    materialize_after: u64,
    replay: Arc<ReplayBound>,
    term: u64,
}

struct Task {
    state: TaskState,
    points: PointTable,
    ranges: RangeTable,
    offsets: PointTable,
}

/// One life of the job.
struct Life {
    checkpointer: Checkpointer,
    store: Arc<JobStore>,
    tasks: Vec<Task>,
    epoch: Epoch,
    contents: Contents,
    now_us: i64,
}

impl Job {
    fn new(objects: ObjectStorage, backend: StateBackend, budget: usize, materialize_after: u64) -> Self {
        let replay = Arc::new(ReplayBound::new(RECOVERY_TARGET));
        Self { scratch: tempfile::tempdir().unwrap(), objects, backend, budget, materialize_after, replay, term: 0 }
    }

    fn checkpointer(&self) -> Checkpointer {
        let mut checkpointer =
            Checkpointer::new(self.objects.clone(), JOB, self.term, FINGERPRINT).materialize_after(self.materialize_after);
        // So that it does not depend on the machine which checkpoint names an image.
        checkpointer.image_patience = Duration::from_secs(600);
        checkpointer.with_replay_bound(self.replay.clone()).with_local_copies(self.local_copies())
    }

    fn local_copies(&self) -> PathBuf {
        self.scratch.path().join("copies")
    }

    /// Starts the job from its last checkpoint; `known` has the contents at each epoch.
    async fn start(&mut self, parallelism: usize, known: &BTreeMap<Epoch, Contents>) -> Result<Life> {
        self.term += 1;
        let checkpointer = self.checkpointer();
        let restored = checkpointer.restore().await?;
        let store = open_store(self.scratch.path(), self.backend, self.budget);
        let state = match &restored {
            Some(restored) => {
                let in_flight = in_flight_at(restored.epoch());
                assert_eq!(restored.is_unaligned(), in_flight.is_some());
                assert_eq!(checkpointer.load_in_flight(restored).await?, in_flight.unwrap_or_default());
                Some(checkpointer.load_into(restored, &store).await?)
            }
            None => None,
        };
        let epoch = restored.map_or(Epoch(0), |restored| restored.epoch());
        let origin = state.map_or(StateOrigin::Empty, StateOrigin::Checkpoint);
        let tasks = new_tasks(&store, parallelism, &origin)?;
        let contents = known.get(&epoch).cloned().unwrap_or_default();
        let mut life = Life { checkpointer, store, tasks, epoch, contents, now_us: 0 };
        life.check(&format!("epoch {epoch} at parallelism {parallelism}"));
        Ok(life)
    }
}

/// What the checkpoint of an epoch found in flight; every third one was aligned.
fn in_flight_at(epoch: Epoch) -> Option<Vec<InFlight>> {
    if epoch.0.is_multiple_of(3) {
        return None;
    }
    let column: arrow::array::ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![epoch.0 as i64; 5]));
    let batch = arrow::record_batch::RecordBatch::try_from_iter([("epoch", column)]).unwrap();
    let messages = vec![SegmentMessage::Rows(SignedBatch::inserts(batch)), SegmentMessage::Barrier { epoch, time_us: 1 }];
    let segment = Segment { exchange: 0, key_groups: 0..256, passed: Epoch(0), generation: 0, watermarks: Vec::new(), messages };
    Some(vec![InFlight { subtask: 1, segments: vec![segment], unsealed: Vec::new() }])
}

fn new_tasks(store: &Arc<JobStore>, parallelism: usize, origin: &StateOrigin) -> Result<Vec<Task>> {
    let new_task = |subtask: usize| {
        let groups = key_group_range(subtask, parallelism);
        let mut state = TaskState::new(store.clone(), subtask as u32, groups, origin.clone())?;
        state.set_clock(Clock::manual(0));
        let points = state.point_table(TableId(1))?;
        let ranges = state.range_table(TableId(2))?;
        let offsets = state.singleton_table(TableId(3))?;
        Ok(Task { state, points, ranges, offsets })
    };
    (0..parallelism).map(new_task).collect()
}

fn entry(table: &PointTable, key: &[u8]) -> Option<Vec<u8>> {
    table.get(key).map(<[u8]>::to_vec)
}

impl Life {
    fn check(&mut self, context: &str) {
        let mut found = Contents::default();
        for task in &mut self.tasks {
            let points = &mut found.points;
            task.points
                .scan_all(&mut |key, value| {
                    assert!(points.insert(key.to_vec(), value.to_vec()).is_none(), "{context}: in two tasks");
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            let ranges = &mut found.ranges;
            task.ranges
                .scan_all(&mut |prefix, suffix, value| {
                    let twice = ranges.entry(prefix.to_vec()).or_default().insert(suffix.to_vec(), value.to_vec());
                    assert!(twice.is_none(), "{context}: in two tasks");
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
        }
        assert!(found.points == self.contents.points, "{context}: {} points", found.points.len());
        let mut ranges = self.contents.ranges.clone();
        ranges.retain(|_, group| !group.is_empty());
        assert!(found.ranges == ranges, "{context}: {} groups", found.ranges.len());
        let keys: EncodedRows = self.contents.offsets.keys().collect();
        for (key, value) in &self.contents.offsets {
            let owner = usize::from(key[0]) % self.tasks.len();
            let table = &mut self.tasks[owner].offsets;
            table.load(&keys).unwrap();
            assert_eq!(entry(table, key).as_ref(), Some(value), "{context}: offset {key:?}");
        }
    }

    fn change(&mut self, random: &mut StdRng, changes: usize) {
        for _ in 0..changes {
            let key = random.random_range(0..2000_u32).to_be_bytes().to_vec();
            let value = vec![random.random(); random.random_range(0..100)];
            let parallelism = self.tasks.len();
            let task = &mut self.tasks[subtask_of(key_group(&key), parallelism)];
            match random.random_range(0..10) {
                0..4 => {
                    task.points.put(&key, &value);
                    self.contents.points.insert(key, value);
                }
                4 => {
                    task.points.delete(&key);
                    self.contents.points.remove(&key);
                }
                choice => {
                    let prefix = random.random_range(0..60_u32).to_be_bytes().to_vec();
                    let task = &mut self.tasks[subtask_of(key_group(&prefix), parallelism)];
                    let group = self.contents.ranges.entry(prefix.clone()).or_default();
                    if choice == 9 && random.random_bool(0.02) {
                        task.ranges.delete_prefix(&prefix).unwrap();
                        group.clear();
                    } else if choice < 8 {
                        task.ranges.put(&prefix, &key, &value);
                        group.insert(key, value);
                    } else {
                        task.ranges.delete(&prefix, &key);
                        group.remove(&key);
                    }
                }
            }
        }
        let split = random.random_range(0..6_u8);
        let owner = usize::from(split) % self.tasks.len();
        let offset = random.random::<u64>().to_be_bytes().to_vec();
        self.tasks[owner].offsets.put(&[split], &offset);
        self.contents.offsets.insert(vec![split], offset);
        self.relieve();
    }

    /// What the task loop does at a barrier that takes no checkpoint.
    fn relieve(&mut self) {
        self.now_us += 1;
        for task in &mut self.tasks {
            let tables: [&mut dyn StateTable; 3] = [&mut task.points, &mut task.ranges, &mut task.offsets];
            tables.into_iter().for_each(|table| table.log_aged(self.now_us, 2));
            task.points.relieve().unwrap();
            task.ranges.relieve().unwrap();
            task.offsets.relieve().unwrap();
            task.state.go_on_sweeping(&mut [&mut task.points, &mut task.ranges, &mut task.offsets]);
        }
    }

    fn snapshot(&mut self) -> ManifestInput {
        self.epoch = self.epoch.next();
        let mut parts = Vec::new();
        for task in &mut self.tasks {
            let mut tables: [&mut dyn StateTable; 3] = [&mut task.points, &mut task.ranges, &mut task.offsets];
            parts.push(task.state.snapshot(&mut tables, self.epoch).unwrap());
        }
        let notes = BTreeMap::from([("epoch".to_owned(), self.epoch.to_string())]);
        ManifestInput { epoch: self.epoch, parts, in_flight: in_flight_at(self.epoch), upstream: vec![(1, self.epoch)], notes }
    }
}

/// Goes on with another number of subtasks, after a checkpoint, without reading it.
async fn hand_over(life: &mut Life, parallelism: usize) {
    let hand_over = |task: &mut Task| {
        let mut tables: [&mut dyn StateTable; 3] = [&mut task.points, &mut task.ranges, &mut task.offsets];
        task.state.hand_over(&mut tables).unwrap()
    };
    let handed = HandedTables::new(life.tasks.iter_mut().map(hand_over).collect());
    life.tasks.clear();
    life.checkpointer.succeed_tasks().await;
    life.tasks = new_tasks(&life.store, parallelism, &StateOrigin::Handed(handed)).unwrap();
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Random lives, each ended by a crash at a random moment, each with another number of subtasks. Answers how many bytes were materialized.
async fn random_lives(backend: StateBackend, budget: usize, shared: bool, seed: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let objects = if shared { ObjectStorage::memory() } else { ObjectStorage::local(folder.path()).unwrap() };
    let mut job = Job::new(objects, backend, budget, 64 << 10);
    let mut random = StdRng::seed_from_u64(seed);
    let mut known = BTreeMap::new();
    let mut materialized = 0;
    for _ in 0..6 {
        let parallelism = [2, 3, 1][random.random_range(0..3)];
        let mut life = job.start(parallelism, &known).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for _ in 0..random.random_range(1..10) {
            let changes = random.random_range(0..2000);
            life.change(&mut random, changes);
            if random.random_bool(0.5) {
                life.store.hurry_image();
            }
            let input = life.snapshot();
            known.insert(life.epoch, life.contents.clone());
            if random.random_bool(0.2) {
                life.checkpointer.complete(input).await.unwrap();
                hand_over(&mut life, random.random_range(1..5)).await;
                // To look at everything takes everything over.
                if random.random_bool(0.3) {
                    life.check(&format!("seed {seed}, handed over"));
                }
                continue;
            }
            // The tasks go on while the checkpoint is completed.
            if random.random_bool(0.5) {
                life.change(&mut random, 500);
            }
            if random.random_bool(0.05) {
                break;
            }
            materialized += life.checkpointer.complete(input).await.unwrap().bytes_materialized;
        }
        life.check(&format!("seed {seed}, before the crash"));
    }
    materialized
}

#[test]
fn any_sequence_of_crashes_and_rescalings_restores_the_last_checkpoint() {
    let kinds =
        [(StateBackend::RocksDb, 64 << 20, false), (StateBackend::RocksDb, 256 << 10, false), (StateBackend::Memory, 256 << 10, true)];
    for ((backend, budget, shared), seeds) in kinds.into_iter().zip([0..4, 100..104, 200..204]) {
        let materialized: Vec<u64> = seeds.map(|seed| run(random_lives(backend, budget, shared, seed))).collect();
        // Short lives may end before a sweep does.
        assert!(materialized.iter().filter(|bytes| **bytes > 0).count() > 1, "{backend:?}, {budget} bytes: {materialized:?}");
    }
}

/// The same life with the objects out of reach from operation `last` on. Returns whether it got through.
async fn life_with_a_crash(objects: &ObjectStorage, last: usize) -> bool {
    let operations = Arc::new(AtomicUsize::new(0));
    let counted = operations.clone();
    let faulty = objects.with_faults(Arc::new(move |action, object| {
        if counted.fetch_add(1, Ordering::Relaxed) < last {
            return Ok(());
        }
        Err(StorageError::ObjectStore { action, object: object.to_owned(), message: "crash".into() })
    }));
    let mut job = Job::new(faulty, StateBackend::RocksDb, 256 << 10, 20 << 10);
    let mut known = BTreeMap::new();
    let mut random = StdRng::seed_from_u64(5);
    let mut crashed = false;
    if let Ok(mut life) = job.start(2, &known).await {
        for _ in 0..8 {
            life.change(&mut random, 400);
            let input = life.snapshot();
            known.insert(life.epoch, life.contents.clone());
            life.change(&mut random, 50);
            crashed |= life.checkpointer.complete(input).await.is_err();
            if crashed {
                break;
            }
        }
    } else {
        crashed = true;
    }
    let crashed = crashed || operations.load(Ordering::Relaxed) > last;
    // The next life sees all objects again. It goes on and is restored once more.
    job.objects = objects.clone();
    let mut life = job.start(3, &known).await.unwrap_or_else(|error| panic!("after operation {last}: {error}"));
    life.change(&mut random, 100);
    let input = life.snapshot();
    known.insert(life.epoch, life.contents.clone());
    life.checkpointer.complete(input).await.unwrap();
    drop(life);
    job.start(1, &known).await.unwrap_or_else(|error| panic!("after operation {last}, once more: {error}"));
    !crashed
}

#[test]
fn a_crash_at_any_operation_leaves_a_checkpoint_that_can_be_restored() {
    let through = (0..500).find(|last| {
        let folder = tempfile::tempdir().unwrap();
        run(life_with_a_crash(&ObjectStorage::local(folder.path()).unwrap(), *last))
    });
    assert!(through.is_some_and(|operations| operations > 20), "{through:?}");
}

#[test]
fn failed_checkpoints_lose_nothing_in_a_life_that_goes_on() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let objects = ObjectStorage::local(folder.path()).unwrap();
        let away = Arc::new(AtomicUsize::new(0));
        let switch = away.clone();
        let faulty = objects.with_faults(Arc::new(move |action, object| match switch.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(StorageError::ObjectStore { action, object: object.to_owned(), message: "disk full".into() }),
        }));
        let mut job = Job::new(faulty, StateBackend::RocksDb, 256 << 10, 20 << 10);
        let mut random = StdRng::seed_from_u64(11);
        let mut known = BTreeMap::new();
        let mut life = job.start(2, &known).await.unwrap();
        for round in 0..20_usize {
            life.change(&mut random, 300);
            let input = life.snapshot();
            known.insert(life.epoch, life.contents.clone());
            away.store(round % 3, Ordering::Relaxed);
            assert_eq!(life.checkpointer.complete(input).await.is_ok(), round % 3 == 0, "round {round}");
        }
        away.store(0, Ordering::Relaxed);
        drop(life);
        let mut life = job.start(2, &known).await.unwrap();
        assert_eq!(life.epoch, Epoch(19));
        // A part that never arrives is noticed.
        drop(life.snapshot());
        let input = life.snapshot();
        assert!(matches!(life.checkpointer.complete(input).await, Err(StorageError::Internal(message)) if message.contains("gap")));
    });
}

/// Takes at least `count` checkpoints, until the last one has a materialization and log after it.
async fn some_checkpoints(job: &mut Job, count: u64) -> (BTreeMap<Epoch, Contents>, Life) {
    let mut known = BTreeMap::new();
    let mut random = StdRng::seed_from_u64(3);
    let mut life = job.start(2, &known).await.unwrap();
    for number in 1..count + 30 {
        life.change(&mut random, 1000);
        let input = life.snapshot();
        known.insert(life.epoch, life.contents.clone());
        life.checkpointer.complete(input).await.unwrap();
        let manifest = newest(job).await;
        if number >= count && manifest.image.is_some() && !manifest.log.is_empty() {
            return (known, life);
        }
    }
    panic!("no materialization in {count} checkpoints and 30 more");
}

async fn newest(job: &Job) -> Manifest {
    let checkpointer = job.checkpointer();
    let name = checkpointer.newest_manifest().await.unwrap().unwrap();
    let bytes = job.objects.get(&checkpointer.object(&name.to_string())).await.unwrap().unwrap();
    Manifest::decode(&bytes, "manifest").unwrap()
}

/// Restoring must fail with an error that names `object`.
async fn refuses(job: &mut Job, object: &Path, known: &BTreeMap<Epoch, Contents>, what: &str) {
    match job.start(2, known).await {
        Ok(_) => panic!("{what}: {} was not missed", object.display()),
        Err(error) => {
            assert!(matches!(error, StorageError::Corrupt { .. }), "{what}: {error}");
            assert!(error.to_string().contains(object.to_str().unwrap()), "{what}: {error} does not name {}", object.display());
        }
    }
    job.term -= 1;
}

#[test]
fn every_damaged_or_missing_file_is_named() {
    for backend in [StateBackend::RocksDb, StateBackend::Memory] {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let mut job = Job::new(ObjectStorage::local(folder.path()).unwrap(), backend, 256 << 10, 60 << 10);
            let (known, life) = some_checkpoints(&mut job, 6).await;
            let manifest = newest(&job).await;
            let mut names: Vec<String> = manifest.objects().map(|object| object.name.clone()).collect();
            names.push(manifest.name.to_string());
            drop(life);
            for name in names {
                let path = folder.path().join(format!("jobs/{JOB}/{name}"));
                let good = std::fs::read(&path).unwrap();
                let mut flipped = good.clone();
                flipped[good.len() / 2] ^= 0x10;
                for (what, bytes) in [("truncated", &good[..good.len() / 2]), ("flipped", &flipped), ("empty", &[])] {
                    std::fs::write(&path, bytes).unwrap();
                    refuses(&mut job, &path, &known, what).await;
                }
                if !name.starts_with("manifest") {
                    std::fs::remove_file(&path).unwrap();
                    refuses(&mut job, &path, &known, "missing").await;
                }
                std::fs::write(&path, &good).unwrap();
            }
            job.start(2, &known).await.unwrap();
        });
    }
}

#[test]
fn pruning_keeps_what_the_last_two_manifests_name_and_nothing_else() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job::new(ObjectStorage::local(folder.path()).unwrap(), StateBackend::RocksDb, 256 << 10, 60 << 10);
        let (known, life) = some_checkpoints(&mut job, 12).await;
        drop(life);
        // What a life that crashed has left, and what is not ours.
        job.objects.put(&format!("jobs/{JOB}/log/99-0-1.1.77"), b"orphan").await.unwrap();
        job.objects.put(&format!("jobs/{JOB}/mat/1-77"), b"orphan").await.unwrap();
        job.objects.put(&format!("jobs/{JOB}/mat/9-77"), b"of a later term").await.unwrap();
        job.objects.put(&format!("jobs/{JOB}1/log/99-0-1.1.77"), b"of another job").await.unwrap();
        let mut life = job.start(2, &known).await.unwrap();
        let before = newest(&job).await;
        let input = life.snapshot();
        life.checkpointer.complete(input).await.unwrap();
        let after = newest(&job).await;
        let mut expected: BTreeSet<String> = BTreeSet::from(["mat/9-77".to_owned()]);
        for manifest in [before, after] {
            expected.insert(manifest.name.to_string());
            expected.extend(manifest.objects().map(|object| object.name.clone()));
        }
        let folder = format!("jobs/{JOB}/");
        let there = job.objects.list(folder.trim_end_matches('/')).await.unwrap();
        let there: BTreeSet<String> = there.into_iter().map(|object| object.name.strip_prefix(&folder).unwrap().to_owned()).collect();
        assert_eq!(there, expected);
        assert_eq!(job.objects.list(&format!("jobs/{JOB}1")).await.unwrap().len(), 1);
    });
}

#[test]
fn a_materialization_uploads_only_what_is_new() {
    run(async {
        let mut job = Job::new(ObjectStorage::memory(), StateBackend::RocksDb, 64 << 20, 100 << 10);
        let known = BTreeMap::new();
        let mut life = job.start(1, &known).await.unwrap();
        let mut random = StdRng::seed_from_u64(1);
        for number in 0..20_000_u32 {
            life.tasks[0].points.put(&number.to_be_bytes(), &random.random::<[u8; 32]>());
        }
        // Each snapshot brings a little of it into the store, unless that is busy with a full buffer.
        let mut first = 0;
        while first == 0 {
            let input = life.snapshot();
            first += life.checkpointer.complete(input).await.unwrap().bytes_materialized;
        }
        for number in 100_000..110_000_u32 {
            life.tasks[0].points.put(&number.to_be_bytes(), &random.random::<[u8; 32]>());
        }
        life.checkpointer.materialize_after = Some(0);
        let mut uploaded = 0;
        while uploaded == 0 {
            life.tasks[0].points.put(b"again", &vec![random.random(); 100_000]);
            let input = life.snapshot();
            uploaded += life.checkpointer.complete(input).await.unwrap().bytes_materialized;
        }
        assert!(first > 500_000 && uploaded < first, "{first} then {uploaded}");
    });
}

#[test]
fn another_graph_or_another_backend_is_refused() {
    run(async {
        let mut job = Job::new(ObjectStorage::memory(), StateBackend::Memory, 256 << 10, 60 << 10);
        let (known, life) = some_checkpoints(&mut job, 6).await;
        drop(life);
        let other = Checkpointer::new(job.objects.clone(), JOB, 50, FINGERPRINT + 1);
        let error = other.restore().await.err().unwrap();
        assert!(matches!(error, StorageError::Incompatible { .. }), "{error}");
        job.backend = StateBackend::RocksDb;
        let error = job.start(2, &known).await.err().unwrap();
        assert!(error.to_string().contains("\"memory\" backend"), "{error}");
    });
}

#[test]
fn a_leader_whose_term_is_over_harms_nobody() {
    run(async {
        let mut job = Job::new(ObjectStorage::memory(), StateBackend::RocksDb, 256 << 10, 60 << 10);
        let (known, mut zombie) = some_checkpoints(&mut job, 5).await;
        let last = zombie.epoch;
        let scratch = std::mem::replace(&mut job.scratch, tempfile::tempdir().unwrap());
        let successor = job.start(2, &known).await.unwrap();
        // The old leader wakes up and completes two more checkpoints before the new one has any.
        for _ in 0..2 {
            let input = zombie.snapshot();
            zombie.checkpointer.complete(input).await.unwrap();
        }
        drop(successor);
        // The third leader starts where the second one did, and finds everything.
        let third = job.start(3, &known).await.unwrap();
        assert_eq!(third.epoch, last);
        assert!(matches!(zombie.checkpointer.restore().await, Err(StorageError::Fenced { .. })));
        drop((zombie, scratch));
    });
}

#[test]
fn a_job_without_checkpoints_starts_empty() {
    run(async {
        let mut job = Job::new(ObjectStorage::memory(), StateBackend::Memory, 256 << 10, 60 << 10);
        let life = job.start(2, &BTreeMap::new()).await.unwrap();
        assert_eq!((life.epoch, life.store.approximate_bytes()), (Epoch(0), 0));
    });
}
