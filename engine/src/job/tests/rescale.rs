//! A job goes on with another number of subtasks, which begin while its last checkpoint is still being written.

use millpond_storage::error::StorageError;
use parking_lot::Mutex;

use super::{debloat::until, *};
use crate::{
    job::{recovery::RecoveryCause, status::JobHandle},
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
