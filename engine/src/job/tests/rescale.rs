//! A job goes on with another number of subtasks, which begin while its last checkpoint is still being written.

use async_trait::async_trait;
use millpond_storage::error::StorageError;
use parking_lot::Mutex;

use super::{
    debloat::until,
    unaligned::{Bench, KEYS as STALLED_KEYS, LATER, SOURCE, patient},
    *,
};
use crate::{
    coordinator::sources::SourceSettings,
    error::Result as EngineResult,
    job::{
        recovery::RecoveryCause,
        rescale::{RescaleStatus, RescaleStep},
        status::JobHandle,
    },
    source::{Discovery, LateRows, Offset, ReadOutcome, Source, Split, SplitReader},
    task::subtask::SubtaskId,
};

/// How many manifests may still be written; `None`: any number.
type Left = Arc<Mutex<Option<usize>>>;

async fn open_limited(dir: &Path, left: &Left) -> Arc<Engine> {
    let left = left.clone();
    let faults = move |action, object: &str| match &mut *left.lock() {
        Some(left) if action == "create" && object.contains("/manifest-") => {
            *left = left.checked_sub(1).ok_or_else(|| StorageError::ObjectStore {
                action,
                object: object.to_owned(),
                message: "the disk is full".into(),
            })?;
            Ok(())
        }
        _ => Ok(()),
    };
    let objects = ObjectStorage::local(&dir.join("objects")).expect("a folder").with_faults(Arc::new(faults));
    let engine = bare_engine_over(dir, LogOptions::default(), Clock::system(), objects).await;
    engine.recover().await.expect("recovers");
    engine
}

/// A job that takes checkpoints only when it is told to.
fn start_patient(engine: &Engine, dir: &Path) -> Arc<JobHandle> {
    let options = JobOptions { checkpoint_interval: Duration::from_secs(3600), ..options(2) };
    let collection = Some(view(dir, &["k", "n", "m"], CollectionKey::Columns(vec![0])));
    let spec = JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph: grouped(), collection, sink: None, options };
    let job = engine.start_job(spec).expect("starts");
    engine.start_maintenance();
    job
}

/// The contents after rounds in which each of some keys got one row more.
fn expected(rounds: i64) -> Vec<(i64, i64, i64)> {
    (0..KEYS).map(|k| (k, rounds, rounds - 1)).collect()
}

async fn insert_round(engine: &Engine, round: i64) {
    insert(engine, &(0..KEYS).map(|k| (k, round)).collect::<Vec<_>>()).await;
}

const KEYS: i64 = 500;

/// Rescales a job whose last checkpoint is refused. What the subtasks gave to it goes into the first one of those that go on; if one of these fails
/// before that is complete, the job goes back to the checkpoint before.
async fn rescales_without_its_last_checkpoint(fails: bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let left = Left::default();
    let engine = open_limited(dir.path(), &left).await;
    insert_round(&engine, 0).await;
    let job = start_patient(&engine, dir.path());
    job.wait_ready().await.expect("ready");
    insert_round(&engine, 1).await;
    assert_eq!(read(&engine).await, expected(2));
    // The last checkpoint but one.
    *left.lock() = Some(1);
    job.reconfigure(JobOptions { checkpoint_interval: Duration::from_secs(3600), ..options(3) });
    until(|| job.checkpoints().iter().any(|checkpoint| checkpoint.error.is_some())).await;
    insert_round(&engine, 2).await;
    assert_eq!(read(&engine).await, expected(3));
    assert_eq!(job.subtasks().iter().max(), Some(&3));
    if fails {
        job.fail(SubtaskId { fragment: 1, index: 0 }).expect("it runs");
        until(|| job.recoveries().iter().any(|recovery| recovery.why_whole.as_deref() == Some("the job was being rescaled"))).await;
    } else {
        let status = job.status(engine.coordinator().closed());
        assert_eq!(status.restarts, 0, "{:?}", job.recoveries());
        assert_eq!(job.recoveries().iter().filter(|recovery| recovery.cause == RecoveryCause::Alter).count(), 1);
    }
    *left.lock() = None;
    assert_eq!(read(&engine).await, expected(3));
    insert_round(&engine, 3).await;
    assert_eq!(read(&engine).await, expected(4));
    job.checkpoint().await.expect("a checkpoint");
    engine.stop().await;
    drop((engine, job));
    let engine = open_limited(dir.path(), &left).await;
    let job = start_patient(&engine, dir.path());
    assert_eq!(read(&engine).await, expected(4));
    engine.stop().await;
    drop(job);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_checkpoint_that_is_refused_is_made_up_for_by_the_next_one() {
    rescales_without_its_last_checkpoint(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_before_the_last_checkpoint_is_complete_is_one_of_the_job() {
    rescales_without_its_last_checkpoint(true).await;
}

/// The newest change, if the driver has got as far as to one to `parallelism`.
fn newest(job: &JobHandle, parallelism: usize) -> Option<RescaleStatus> {
    job.rescales().pop().filter(|rescale| rescale.to == parallelism)
}

/// Waits until the new subtasks run.
async fn until_started(job: &JobHandle, parallelism: usize) -> RescaleStatus {
    let started = || newest(job, parallelism).filter(|rescale| rescale.after(RescaleStep::Started).is_some());
    until(|| started().is_some()).await;
    started().expect("it was just seen")
}

fn is_done(job: &JobHandle, parallelism: usize) -> bool {
    newest(job, parallelism).is_some_and(|rescale| rescale.is_done())
}

/// What is on its way when it is ordered, and cannot be worked off, does not hold it up: it goes along.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn a_job_is_rescaled_though_its_input_stands_still_and_its_operator_is_slow() {
    let dir = tempfile::tempdir().expect("a folder");
    let (bench, owed) = Bench::stalled(dir.path(), Duration::from_millis(100)).await;
    for parallelism in [4, 1, 3] {
        bench.view.reconfigure(patient(parallelism, Duration::from_millis(100)));
        let rescale = until_started(&bench.view, parallelism).await;
        assert_eq!((bench.view.subtasks(), rescale.state()), (vec![1, parallelism, parallelism, parallelism], "catching up"));
    }
    let steps = |rescale: &RescaleStatus| {
        let steps = [RescaleStep::Stopping, RescaleStep::Stopped, RescaleStep::Started, RescaleStep::Sealed];
        steps.map(|step| rescale.after(step))
    };
    bench.release();
    assert_eq!(read(&bench.engine).await, owed);
    until(|| is_done(&bench.view, 3)).await;
    let last = newest(&bench.view, 3).expect("it is done");
    assert!(steps(&last).is_sorted() && steps(&last).iter().all(Option::is_some) && last.pause() > Duration::ZERO, "{last:?}");
    insert(&bench.engine, &[(7, 70)]).await;
    let mut owed = owed;
    owed.push((7, 70, 14));
    owed.sort_unstable();
    assert_eq!(read(&bench.engine).await, owed);
    assert!(bench.view.recoveries().iter().all(|recovery| recovery.cause != RecoveryCause::Failure), "{:?}", bench.view.recoveries());
    bench.view.checkpoint().await.expect("a checkpoint");
    bench.kill().await;
    let bench = Bench::open(dir.path(), 2, Duration::from_secs(1), STALLED_KEYS + LATER).await;
    assert_eq!(read(&bench.engine).await, owed);
    bench.kill().await;
}

/// The same when the process ends before the others have got anywhere: what went along is in the last checkpoint too.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn what_goes_along_is_in_the_last_checkpoint() {
    let dir = tempfile::tempdir().expect("a folder");
    let (bench, owed) = Bench::stalled(dir.path(), Duration::from_millis(100)).await;
    bench.view.reconfigure(patient(4, Duration::from_millis(100)));
    until_started(&bench.view, 4).await;
    let founded_at = bench.view.recoveries().pop().expect("one").from_epoch;
    until(|| bench.view.checkpoints().iter().any(|checkpoint| checkpoint.epoch == founded_at)).await;
    bench.kill().await;
    let bench = Bench::open(dir.path(), 3, Duration::from_secs(1), STALLED_KEYS + LATER).await;
    assert_eq!(read(&bench.engine).await, owed);
    assert_eq!(bench.view.recoveries()[0].from_epoch, founded_at);
    bench.kill().await;
}

/// Rows (n % [`GROUPS`], n), as many as are asked for.
#[derive(Debug)]
struct Endless;

struct EndlessReader {
    at: u64,
}

const GROUPS: u64 = 50;

#[async_trait]
impl Source for Endless {
    fn schema(&self) -> SchemaRef {
        schema(&["k", "v"])
    }

    async fn discover(&self) -> EngineResult<Discovery> {
        Ok(Discovery { splits: vec![Split { id: "s".into(), end: None, bounded: false }], complete: true })
    }

    async fn open(&self, _split: &Split, from: Offset, _projection: &[usize]) -> EngineResult<Box<dyn SplitReader>> {
        Ok(Box::new(EndlessReader { at: from }))
    }
}

#[async_trait]
impl SplitReader for EndlessReader {
    async fn read(&mut self, max_rows: usize, limit: Option<Offset>) -> EngineResult<ReadOutcome> {
        let end = (self.at + max_rows as u64).min(limit.unwrap_or(u64::MAX));
        if end == self.at {
            return Ok(ReadOutcome::AtLimit);
        }
        let pairs: Vec<_> = (self.at..end).map(|n| ((n % GROUPS) as i64, n as i64)).collect();
        self.at = end;
        Ok(ReadOutcome::Rows { batch: rows(&pairs), end, bad: Vec::new() })
    }
}

/// What the view has of the first `rows` rows of the endless source.
fn of_first(rows: u64) -> Vec<(i64, i64, i64)> {
    (0..GROUPS.min(rows)).map(|k| (k as i64, ((rows - k - 1) / GROUPS + 1) as i64, ((rows - k - 1) / GROUPS * GROUPS + k) as i64)).collect()
}

/// Reads the view and compares it with what its epoch bound. Answers the epoch, if it is still known what that is.
async fn check_an_epoch(engine: &Engine) -> Option<Epoch> {
    let point = engine.read_epoch(&[VIEW], Freshness::Any, Duration::from_secs(20)).await.expect("it can be read");
    let source = engine.source(SOURCE).expect("the source");
    let bound = source.bound_at(point.epoch).get("s").map_or(0, |bound| bound.end);
    if source.known_from() > point.epoch {
        return None;
    }
    let collection = engine.collection(VIEW).expect("the view");
    let found = rows_of(&collection, point.epoch);
    assert_eq!(found, of_first(bound), "epoch {}", point.epoch);
    Some(point.epoch)
}

/// Under load: the source gives more than the job takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_job_is_rescaled_each_epoch_has_what_it_bound() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = bare_engine(dir.path(), LogOptions::default()).await;
    let settings = SourceSettings { watermark: None, late_rows: LateRows::Keep, fail_on_bad_rows: false };
    engine.create_source(SOURCE, "s", Arc::new(Endless), settings).await.expect("a source");
    engine.recover().await.expect("recovers");
    let mut graph = grouped();
    graph.fragments[0].nodes[0].spec = OperatorSpec::SourceScan { source: SOURCE, projection: vec![0, 1] };
    if let OperatorSpec::Aggregate(aggregate) = &mut graph.fragments[1].nodes[0].spec {
        aggregate.append_only_input = true;
    }
    let collection = Some(view(dir.path(), &["k", "n", "m"], CollectionKey::Columns(vec![0])));
    let spec = JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph, collection, sink: None, options: options(2) };
    let job = engine.start_job(spec).expect("starts");
    engine.start_maintenance();
    job.wait_ready().await.expect("ready");
    let mut checked = std::collections::BTreeSet::new();
    for (from, to) in [(2, 4), (4, 1), (1, 2)] {
        job.reconfigure(options(to));
        let before = checked.len();
        // Also some epochs behind it.
        while !is_done(&job, to) || checked.len() < before + 10 {
            checked.extend(check_an_epoch(&engine).await);
        }
        let rescale = newest(&job, to).expect("it is done");
        assert_eq!((rescale.from, rescale.to, job.subtasks()), (from, to, vec![1, to]));
        assert!(rescale.pause() > Duration::ZERO && rescale.pause() < Duration::from_secs(20), "{rescale:?}");
    }
    println!("{} epochs, {:?}", checked.len(), job.rescales().iter().map(RescaleStatus::pause).collect::<Vec<_>>());
    let status = job.status(engine.coordinator().closed());
    assert_eq!((status.restarts, status.error, status.parallelism), (0, None, Some(2)));
    engine.stop().await;
}
