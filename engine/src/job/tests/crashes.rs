//! A job that ends at every step of a checkpoint, an upload, a manifest, its pruning, a restore, of the job or of one subtask, and a rescaling: once
//! because its process is aborted there, once because the step fails. Afterwards table and view have what was acknowledged, and perhaps the one change that was under way.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use millpond_storage::{
    error::{Result as StorageResult, StorageError},
    object::STEP,
};
use parking_lot::Mutex;

use super::*;
use crate::{
    job::status::{JobHandle, JobState},
    task::subtask::SubtaskId,
};

/// Keys of the table; each change is of one row of each. So many that a few checkpoints are worth a materialization.
const KEYS: i64 = 2000;
/// A life in which a step has not come up after so many changes goes on without it.
const MOST_CHANGES: u64 = 40;
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(240);
/// Signal of a process that aborts.
const SIGABRT: i32 = 6;

const DIRECTORY: &str = "MILLPOND_CRASH_DIRECTORY";
const PLACE: &str = "MILLPOND_CRASH_PLACE";
const LIFE: &str = "MILLPOND_CRASH_LIFE";
const CHANGES: &str = "MILLPOND_CRASH_CHANGES";
/// What a life says with the number of changes there have been.
const SAID: &str = "changes so far:";

/// An operation on objects or a step between them: its kind, what its name contains, and which of those it is.
type Place = (&'static str, &'static str, usize);

/// Places that a job without a checkpoint comes to as well.
const ON_THE_WAY: [Place; 23] = [
    (STEP, "job::spawn", 1),
    (STEP, "job::seal", 3),
    (STEP, "job::sealed", 3),
    (STEP, "job::flush", 2),
    (STEP, "job::complete", 2),
    ("write", "/log/", 3),
    (STEP, "checkpoint::logs", 2),
    ("write", "/flight/", 2),
    (STEP, "checkpoint::in_flight", 2),
    (STEP, "checkpoint::manifest", 2),
    ("create", "/manifest-", 2),
    (STEP, "checkpoint::prune", 2),
    ("list", "jobs/", 3),
    (STEP, "prune::delete", 2),
    ("delete", "/manifest-", 1),
    (STEP, "prune::local", 2),
    (STEP, "checkpoint::image", 1),
    ("write", "/mat/", 2),
    (STEP, "checkpoint::image_uploaded", 1),
    (STEP, "rescale::due", 1),
    (STEP, "rescale::succeed", 1),
    (STEP, "rescale::begin", 1),
    (STEP, "rewind::undone", 1),
];

/// Places of one that has a checkpoint with a materialization.
const ON_THE_WAY_BACK: [Place; 10] = [
    ("delete", "/log/", 1),
    ("read", "/manifest-", 1),
    (STEP, "restore::manifest", 1),
    ("read", "/flight/", 1),
    (STEP, "restore::in_flight", 1),
    ("read", "/mat/", 1),
    (STEP, "restore::image", 1),
    ("read", "/log/", 1),
    (STEP, "restore::log", 1),
    (STEP, "job::restored", 1),
];

/// What happens at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trap {
    Abort,
    Fail,
}

/// A place where something happens once.
struct Armed {
    action: String,
    part: String,
    left: usize,
    trap: Trap,
}

/// Where something is to happen.
type Traps = Arc<Mutex<Option<Armed>>>;

fn arm(traps: &Traps, (action, part, left): (&str, &str, usize), trap: Trap) {
    *traps.lock() = Some(Armed { action: action.into(), part: part.into(), left, trap });
}

fn meet(traps: &Traps, action: &'static str, name: &str) -> StorageResult<()> {
    let mut traps = traps.lock();
    let Some(armed) = traps.as_mut().filter(|armed| armed.action == action && name.contains(&armed.part)) else { return Ok(()) };
    armed.left -= 1;
    if armed.left > 0 {
        return Ok(());
    }
    if armed.trap == Trap::Abort {
        std::process::abort();
    }
    *traps = None;
    Err(StorageError::ObjectStore { action, object: name.to_owned(), message: "a trap".into() })
}

/// The values that each key has rows of after so many changes: each third change takes away what the one before has brought.
fn live(changes: u64) -> Vec<i64> {
    (0..changes).filter(|change| change % 3 == 0 || (change % 3 == 1 && change + 1 == changes)).map(|change| change as i64).collect()
}

/// What the view must show.
fn expected(changes: u64) -> Vec<(i64, i64, i64)> {
    let live = live(changes);
    let Some(greatest) = live.last() else { return Vec::new() };
    (0..KEYS).map(|key| (key, live.len() as i64, *greatest)).collect()
}

async fn change(engine: &Engine, number: u64) {
    let rows = |value: u64| (0..KEYS).map(|key| (key, value as i64)).collect::<Vec<_>>();
    match number % 3 {
        2 => delete(engine, &rows(number - 1)).await,
        _ => insert(engine, &rows(number)).await,
    }
}

/// Rows of the table.
async fn table_rows(engine: &Engine) -> usize {
    let point = engine.read_epoch(&[TABLE], Freshness::Default, Duration::from_secs(20)).await.expect("it can be read");
    let table = engine.collection(TABLE).expect("the table");
    table.scan(point.epoch, ScanRequest::default()).expect("a scan").map(|step| step.expect("a batch").batch.num_rows()).sum()
}

/// What a life is to come by.
#[derive(Clone, Copy)]
struct Way<'a> {
    life: usize,
    /// See [`Place`].
    action: &'a str,
    part: &'a str,
}

impl<'a> Way<'a> {
    fn new(life: usize, place: Option<(&'a str, &'a str)>) -> Self {
        let (action, part) = place.unwrap_or_default();
        Self { life, action, part }
    }

    /// Settings of the job with which it comes by there.
    fn options(self, parallelism: usize) -> JobOptions {
        let overtakes = self.life.is_multiple_of(2) || self.part.contains("flight");
        JobOptions {
            recovery_target: Duration::from_millis(1),
            aligned_checkpoint_timeout: if overtakes { Duration::ZERO } else { Duration::from_secs(1) },
            recovery: if self.part.starts_with("rewind::") { Recovery::ExactlyOnce } else { Recovery::Job },
            ..options(parallelism)
        }
    }

    /// Whether a subtask has to fail for that.
    fn is_recovery(self) -> bool {
        let starts = ["restore::", "rewind::", "job::spawn", "job::restored"];
        self.action == "read" || starts.iter().any(|start| self.part.starts_with(start))
    }
}

async fn begin(dir: &Path, way: Way<'_>, traps: &Traps) -> (Arc<Engine>, Arc<JobHandle>) {
    let (objects, traps) = (ObjectStorage::local(&dir.join("objects")).expect("a folder"), traps.clone());
    let objects = objects.with_faults(Arc::new(move |action, name| meet(&traps, action, name)));
    let engine = bare_engine_over(dir, LogOptions::default(), Clock::system(), objects).await;
    engine.recover().await.expect("recovers");
    // There is an epoch to begin at, though nothing may be in the table.
    engine.coordinator().request_extra_epoch();
    engine.coordinator().tick().await.expect("a tick");
    let collection = Some(view(dir, &["k", "n", "m"], CollectionKey::Columns(vec![0])));
    let options = way.options(1 + way.life % 3);
    let spec = JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph: grouped(), collection, sink: None, options };
    let job = engine.start_job(spec).expect("starts");
    engine.start_maintenance();
    (engine, job)
}

/// Reads table and view. Answers how many changes there have been: `known`, or the one more that was not acknowledged.
async fn check(engine: &Engine, known: u64) -> u64 {
    let (found, rows) = (read(engine).await, table_rows(engine).await);
    let fits = |changes: &u64| found == expected(*changes) && rows == live(*changes).len() * KEYS as usize;
    let first = (found.first(), found.len(), rows);
    (known..=known + 1).find(fits).unwrap_or_else(|| panic!("after {known} changes: {first:?}, not {:?}", live(known)))
}

/// Changes the table, takes checkpoints, changes the number of subtasks and lets one fail, if that is the way, until `is_over`. Answers how many
/// changes there have been.
async fn work(
    engine: &Engine,
    job: &JobHandle,
    way: Way<'_>,
    mut changes: u64,
    mut is_over: impl FnMut() -> bool,
    mut said: impl FnMut(u64),
) -> u64 {
    for round in 0..MOST_CHANGES {
        if is_over() {
            break;
        }
        change(engine, changes).await;
        changes += 1;
        said(changes);
        if round % 6 == 4 {
            job.reconfigure(way.options(1 + (way.life + round as usize) % 4));
        }
        if way.is_recovery() && round % 3 == 2 {
            job.fail(SubtaskId { fragment: 1, index: 0 }).expect("it runs");
        }
        job.checkpoint().await.expect("a checkpoint");
    }
    changes
}

/// One life, for which the test below runs this one in a process of its own; by itself it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_that_ends_at_a_step() {
    let variable = |name: &str| std::env::var(name).ok();
    let number = |name: &str| variable(name).and_then(|text| text.parse::<u64>().ok()).expect("a number");
    let Some(dir) = variable(DIRECTORY) else { return };
    let (life, known) = (number(LIFE) as usize, number(CHANGES));
    let traps = Traps::default();
    let place = variable(PLACE);
    let words: Option<Vec<&str>> = place.as_ref().map(|place| place.split(' ').collect());
    if let Some(words) = &words {
        arm(&traps, (words[0], words[1], words[2].parse().expect("a number")), Trap::Abort);
    }
    let way = Way::new(life, words.as_ref().map(|words| (words[0], words[1])));
    let all = async {
        let (engine, job) = begin(Path::new(&dir), way, &traps).await;
        job.wait_ready().await.expect("ready");
        let changes = check(&engine, known).await;
        println!("\n{SAID} {changes}");
        let changes = work(&engine, &job, way, changes, || false, |changes| println!("{SAID} {changes}")).await;
        assert_eq!(check(&engine, changes).await, changes);
        engine.stop().await;
    };
    tokio::time::timeout(PATIENCE, all).await.expect("it hangs");
}

/// Runs a life in a process of its own, which is to be aborted at a place, if there is one. Answers how many changes there have been.
fn life(dir: &Path, number: usize, known: u64, place: Option<Place>) -> u64 {
    let (_, module) = module_path!().split_once("::").expect("the crate's name");
    let name = format!("{module}::a_life_that_ends_at_a_step");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", &name, "--nocapture", "--test-threads", "1"]);
    command.env(DIRECTORY, dir).env(LIFE, number.to_string()).env(CHANGES, known.to_string());
    if let Some((action, part, count)) = place {
        command.env(PLACE, format!("{action} {part} {count}"));
    }
    let output = command.stdin(Stdio::null()).output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    let context = || format!("{place:?}: {}\n{said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    match place {
        Some(_) => assert_eq!(output.status.signal(), Some(SIGABRT), "{}", context()),
        None => assert!(output.status.success() && said.contains("1 passed"), "{}", context()),
    }
    let last = said.lines().filter_map(|line| line.strip_prefix(SAID)?.trim().parse().ok()).next_back();
    last.unwrap_or(known)
}

#[test]
fn a_process_that_ends_at_any_step_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let places = ON_THE_WAY.into_iter().map(Some).chain([None]).chain(ON_THE_WAY_BACK.into_iter().map(Some)).chain([None]);
    let mut changes = 0;
    for (number, place) in places.enumerate() {
        changes = life(dir.path(), number, changes, place);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_loses_nothing_and_the_job_goes_on() {
    let (dir, traps) = (tempfile::tempdir().expect("a folder"), Traps::default());
    let way = Way::new(0, None);
    let (engine, job) = begin(dir.path(), way, &traps).await;
    job.wait_ready().await.expect("ready");
    let mut changes = work(&engine, &job, way, 0, || false, |_| {}).await;
    for (life, place) in ON_THE_WAY.into_iter().chain(ON_THE_WAY_BACK).enumerate() {
        arm(&traps, place, Trap::Fail);
        let (action, part, _) = place;
        let way = Way::new(life, Some((action, part)));
        job.reconfigure(way.options(1 + life % 3));
        let all = async {
            changes = work(&engine, &job, way, changes, || traps.lock().is_none(), |_| {}).await;
            assert!(traps.lock().is_none(), "{place:?} did not come up");
            job.checkpoint().await.expect("a checkpoint");
            assert_eq!(check(&engine, changes).await, changes, "{place:?}");
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("{place:?}: it hangs: {:?}", engine.jobs()));
        assert_ne!(job.state(), JobState::Failed, "{place:?}");
    }
    engine.stop().await;
}
