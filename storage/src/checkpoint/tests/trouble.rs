//! A store that takes only some of what it is given, or nothing for long.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::*;

#[test]
fn a_store_that_takes_some_uploads_is_through_after_a_while() {
    run(async {
        let (luck, away) = (Mutex::new(StdRng::seed_from_u64(23)), Arc::new(AtomicBool::new(true)));
        let through = Arc::new(Mutex::new(Vec::new()));
        let (taken, switch) = (through.clone(), away.clone());
        let objects = ObjectStorage::memory().with_faults(Arc::new(move |action, object| {
            if action != "write" || !object.contains("/log/") {
                return Ok(());
            }
            if switch.load(Ordering::Relaxed) || luck.lock().random_ratio(1, 3) {
                return Err(StorageError::ObjectStore { action, object: object.to_owned(), message: "slow down".into() });
            }
            taken.lock().push(object.to_owned());
            Ok(())
        }));
        let mut job = Job::new(objects, StateBackend::RocksDb, 256 << 10, u64::MAX);
        let (mut known, mut random) = (BTreeMap::new(), StdRng::seed_from_u64(21));
        let mut life = job.start(2, &known).await.unwrap();
        let mut attempts = 0;
        loop {
            attempts += 1;
            // So many parts wait that they are hardly ever all taken in a row.
            away.store(attempts <= 10, Ordering::Relaxed);
            life.change(&mut random, 100);
            let input = life.snapshot();
            known.insert(life.epoch, life.contents.clone());
            if life.checkpointer.complete(input).await.is_ok() {
                break;
            }
            assert!(attempts < 40, "{} uploads, and no end", through.lock().len());
        }
        let mut names = through.lock().clone();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        // Those that were under way beside one that has failed may be put again.
        let parts = names.len();
        assert!(parts > 15 && count < parts + 4 * attempts, "{count} uploads of {parts} parts in {attempts} attempts");
        drop(life);
        job.start(3, &known).await.unwrap();
    });
}

#[test]
fn what_waits_for_a_store_that_is_away_takes_no_memory() {
    run(async {
        let away = Arc::new(AtomicBool::new(false));
        let switch = away.clone();
        let objects = ObjectStorage::memory().with_faults(Arc::new(move |action, object| match switch.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(StorageError::ObjectStore { action, object: object.to_owned(), message: "away".into() }),
        }));
        let mut job = Job::new(objects, StateBackend::RocksDb, 256 << 10, u64::MAX);
        let (mut known, mut random) = (BTreeMap::new(), StdRng::seed_from_u64(22));
        let mut life = job.start(2, &known).await.unwrap();
        away.store(true, Ordering::Relaxed);
        for _ in 0..10 {
            life.change(&mut random, 500);
            let input = life.snapshot();
            life.checkpointer.complete(input).await.unwrap_err();
        }
        let (all, in_memory) = life.checkpointer.progress.lock().await.uploads.waiting_bytes();
        assert!(all > 100_000 && in_memory == 0, "{in_memory} of {all} bytes are in memory");
        away.store(false, Ordering::Relaxed);
        let input = life.snapshot();
        known.insert(life.epoch, life.contents.clone());
        assert!(life.checkpointer.complete(input).await.unwrap().bytes_log >= all);
        assert_eq!(life.checkpointer.progress.lock().await.uploads.waiting_bytes(), (0, 0));
        drop(life);
        job.start(1, &known).await.unwrap();
    });
}
