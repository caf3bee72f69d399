//! A store that takes only some of what it is given, or nothing for long.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use futures::FutureExt;
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

#[test]
fn a_manifest_that_is_there_though_it_seemed_to_fail_stops_nobody() {
    run(async {
        let place = ObjectStorage::memory();
        let (behind, lost) = (place.clone(), Arc::new(Mutex::new(Vec::new())));
        let (names, left) = (lost.clone(), AtomicUsize::new(2));
        let objects = place.with_faults(Arc::new(move |action, object| {
            if action != "create" || !object.contains("/manifest-") || left.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
            left.fetch_sub(1, Ordering::Relaxed);
            // In memory nothing has to be waited for.
            behind.put(object, b"it came through").now_or_never().unwrap()?;
            names.lock().push(object.to_owned());
            Err(StorageError::ObjectStore { action, object: object.to_owned(), message: "the answer was lost".into() })
        }));
        let mut job = Job::new(objects, StateBackend::RocksDb, 256 << 10, u64::MAX);
        let (mut known, mut random) = (BTreeMap::new(), StdRng::seed_from_u64(24));
        let mut life = job.start(2, &known).await.unwrap();
        for round in 0..4 {
            life.change(&mut random, 100);
            let input = life.snapshot();
            known.insert(life.epoch, life.contents.clone());
            let result = life.checkpointer.complete(input).await;
            assert_eq!(result.is_ok(), round >= 2, "{:?}", result.err());
        }
        assert_eq!(lost.lock().len(), 2);
        let last = life.epoch;
        drop(life);
        assert_eq!(job.start(3, &known).await.unwrap().epoch, last);
    });
}

#[test]
fn a_manifest_that_is_under_way_when_its_checkpoint_is_given_up_is_waited_for() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (begun, on_begun) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let released = Mutex::new(released);
        let objects = ObjectStorage::memory().with_faults(Arc::new(move |action, object| {
            if action == "create" && object.contains("/manifest-") && begun.send(()).is_ok() {
                released.lock().recv().unwrap();
            }
            Ok(())
        }));
        let mut job = Job::new(objects, StateBackend::RocksDb, 256 << 10, u64::MAX);
        let mut life = job.start(2, &BTreeMap::new()).await.unwrap();
        life.change(&mut StdRng::seed_from_u64(25), 100);
        let (input, epoch) = (life.snapshot(), life.epoch);
        let known = BTreeMap::from([(epoch, life.contents.clone())]);
        let checkpointer = Arc::new(std::mem::replace(&mut life.checkpointer, job.checkpointer()));
        let settling = checkpointer.settling();
        let completing = tokio::spawn(async move { checkpointer.complete(input).await });
        on_begun.recv().unwrap();
        completing.abort();
        assert!(completing.await.unwrap_err().is_cancelled());
        assert!(settling.settled().now_or_never().is_none());
        release.send(()).unwrap();
        settling.settled().await;
        drop((on_begun, life));
        assert_eq!(job.start(1, &known).await.unwrap().epoch, epoch);
    });
}
