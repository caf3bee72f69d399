//! A folder for checkpoints that is slow, or takes only some of what it is given: checkpoints take their time, or fail and are tried again, and
//! nothing waits for them.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Instant,
};

use millpond_storage::{
    error::{Result as StorageResult, StorageError},
    object::{FaultFn, STEP},
};

use super::*;
use crate::job::status::{CheckpointStatus, JobHandle};

/// How long each operation of a slow folder takes.
const DELAY: Duration = Duration::from_millis(100);
/// What waits for no checkpoint takes no longer, on a slow machine too.
const BOUND: Duration = Duration::from_secs(10);
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// An engine whose folder for checkpoints has such faults, with the view.
async fn open_over(dir: &Path, faults: Arc<FaultFn>) -> (Arc<Engine>, Arc<JobHandle>) {
    let objects = ObjectStorage::local(&dir.join("objects")).expect("a folder").with_faults(faults);
    let engine = bare_engine_over(dir, LogOptions::default(), Clock::system(), objects).await;
    engine.recover().await.expect("recovers");
    let job = start(&engine, dir, 2);
    job.wait_ready().await.expect("ready");
    (engine, job)
}

/// Inserts a row and reads all, at once.
async fn go_on(engine: &Engine, rows: &mut i64) {
    let began = Instant::now();
    insert(engine, &[(1, *rows)]).await;
    *rows += 1;
    assert_eq!(read(engine).await, [(1, *rows, *rows - 1)]);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

/// Goes on until a checkpoint is as wanted.
async fn until(engine: &Engine, job: &JobHandle, rows: &mut i64, wanted: impl Fn(&CheckpointStatus) -> bool) {
    let began = Instant::now();
    while !job.checkpoints().iter().any(&wanted) {
        assert!(began.elapsed() < PATIENCE, "{:?}", job.checkpoints());
        go_on(engine, rows).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the folder is slow by purpose")]
fn be_slow() {
    std::thread::sleep(DELAY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_folder_makes_checkpoints_slow_and_nothing_else() {
    let (dir, is_slow) = (tempfile::tempdir().expect("a folder"), Arc::new(AtomicBool::new(false)));
    let slow = is_slow.clone();
    let faults = move |action: &str, _: &str| -> StorageResult<()> {
        if action != STEP && slow.load(Ordering::Relaxed) {
            be_slow();
        }
        Ok(())
    };
    let (engine, job) = open_over(dir.path(), Arc::new(faults)).await;
    let mut rows = 0;
    go_on(&engine, &mut rows).await;
    is_slow.store(true, Ordering::Relaxed);
    let begun = job.sealed();
    // Parts of the log, the manifest and the listing of what can go.
    let is_slow_one = |checkpoint: &CheckpointStatus| checkpoint.epoch > begun && checkpoint.duration_us > 3 * DELAY.as_micros() as u64;
    until(&engine, &job, &mut rows, is_slow_one).await;
    assert!(job.checkpoints().iter().all(|checkpoint| checkpoint.error.is_none()), "{:?}", job.checkpoints());
    assert_eq!(engine.jobs()[0].restarts, 0);
    let began = Instant::now();
    engine.drop_object(VIEW).await.expect("dropped");
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    is_slow.store(false, Ordering::Relaxed);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_takes_only_some_files_takes_checkpoints_all_the_same() {
    let (dir, changes) = (tempfile::tempdir().expect("a folder"), Arc::new(AtomicU64::new(0)));
    let is_failing = Arc::new(AtomicBool::new(false));
    let failing = is_failing.clone();
    let faults = move |action: &'static str, file: &str| -> StorageResult<()> {
        let is_change = failing.load(Ordering::Relaxed) && ["write", "create", "delete"].contains(&action);
        if is_change && changes.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            return Err(StorageError::Io { action, file: file.to_owned(), source: io::ErrorKind::StorageFull.into() });
        }
        Ok(())
    };
    let faults: Arc<FaultFn> = Arc::new(faults);
    let (engine, job) = open_over(dir.path(), faults.clone()).await;
    let mut rows = 0;
    go_on(&engine, &mut rows).await;
    is_failing.store(true, Ordering::Relaxed);
    until(&engine, &job, &mut rows, |checkpoint| checkpoint.error.is_some()).await;
    let failed = job.checkpoints().into_iter().rev().find(|checkpoint| checkpoint.error.is_some()).expect("one has failed");
    assert!(failed.error.is_some_and(|error| error.contains("jobs/")) && failed.duration_us > 0);
    until(&engine, &job, &mut rows, |checkpoint| checkpoint.error.is_none() && checkpoint.epoch > failed.epoch).await;
    assert_eq!(engine.jobs()[0].restarts, 0);
    engine.stop().await;
    drop((engine, job));
    // Also a job that comes back has a checkpoint after a while.
    let (engine, job) = open_over(dir.path(), faults).await;
    go_on(&engine, &mut rows).await;
    let begun = job.sealed();
    until(&engine, &job, &mut rows, |checkpoint| checkpoint.error.is_none() && checkpoint.epoch > begun).await;
    engine.stop().await;
}
