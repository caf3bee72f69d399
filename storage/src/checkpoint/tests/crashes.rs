//! A crash at every third operation on the objects in a life that restores, goes on, changes its number of subtasks and prunes, with local copies of the
//! materialization's files and without.

use super::*;

/// A second life with the objects out of reach from operation `last` on, and two more. Returns whether the second got through.
async fn second_life_with_a_crash(last: usize) -> bool {
    let objects = ObjectStorage::memory();
    let mut job = Job::new(objects.clone(), StateBackend::RocksDb, 256 << 10, 20 << 10);
    let (mut known, life) = some_checkpoints(&mut job, 3).await;
    drop(life);
    if last.is_multiple_of(2) {
        std::fs::remove_dir_all(job.local_copies()).unwrap();
    }
    let operations = Arc::new(AtomicUsize::new(0));
    let counted = operations.clone();
    job.objects = objects.with_faults(Arc::new(move |action, object| {
        if counted.fetch_add(1, Ordering::Relaxed) < last {
            return Ok(());
        }
        Err(StorageError::ObjectStore { action, object: object.to_owned(), message: "crash".into() })
    }));
    let mut random = StdRng::seed_from_u64(9);
    if let Ok(mut life) = job.start(3, &known).await {
        for round in 0..5 {
            life.change(&mut random, 300);
            let input = life.snapshot();
            known.insert(life.epoch, life.contents.clone());
            if life.checkpointer.complete(input).await.is_err() {
                break;
            }
            if round % 2 == 1 {
                hand_over(&mut life, 1 + round).await;
            }
        }
    }
    let is_through = operations.load(Ordering::Relaxed) <= last;
    job.objects = objects;
    let mut life = job.start(2, &known).await.unwrap_or_else(|error| panic!("after operation {last}: {error}"));
    life.change(&mut random, 100);
    let input = life.snapshot();
    known.insert(life.epoch, life.contents.clone());
    life.checkpointer.complete(input).await.unwrap();
    drop(life);
    job.start(1, &known).await.unwrap_or_else(|error| panic!("after operation {last}, once more: {error}"));
    is_through
}

#[test]
fn a_crash_in_a_life_that_was_restored_leaves_a_checkpoint_that_can_be_restored() {
    let mut through = [None, None];
    for last in (0..600).step_by(3) {
        let seen = &mut through[last % 2];
        if seen.is_none() && run(second_life_with_a_crash(last)) {
            *seen = Some(last);
        }
        if through.iter().all(Option::is_some) {
            break;
        }
    }
    assert!(through.iter().all(|operations| operations.is_some_and(|operations| operations > 20)), "{through:?}");
}
