//! What a restart costs: files of materializations that are on the machine's disk, and the time of replay.

use super::*;

/// Objects elsewhere, and the number of files of materializations that were read from there.
fn counted(objects: &ObjectStorage) -> (ObjectStorage, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    let counting = objects.with_faults(Arc::new(move |action, object| {
        if action == "read" && object.contains("/mat/") {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }));
    (counting, reads)
}

/// The files of a job's local copies.
fn copies(job: &Job) -> BTreeSet<String> {
    let entries = std::fs::read_dir(job.local_copies()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Where the materialization of the newest checkpoint comes from when it is restored.
async fn sources(job: &mut Job) -> ImageSources {
    job.term += 1;
    let checkpointer = job.checkpointer();
    let restored = checkpointer.restore().await.unwrap().unwrap();
    let store = open_store(job.scratch.path(), job.backend, job.budget);
    checkpointer.load_into(&restored, &store).await.unwrap().image_sources()
}

#[test]
fn a_restart_reads_from_the_store_only_what_is_not_there_locally() {
    for backend in [StateBackend::RocksDb, StateBackend::Memory] {
        run(async {
            let (objects, reads) = counted(&ObjectStorage::memory());
            let mut job = Job::new(objects, backend, 256 << 10, 60 << 10);
            let (known, life) = some_checkpoints(&mut job, 6).await;
            drop(life);
            let manifest = newest(&job).await;
            let files = manifest.image.clone().unwrap().files;
            job.start(3, &known).await.unwrap();
            assert_eq!(reads.load(Ordering::Relaxed), 0);
            let all = ImageSources { local_files: files.len() as u64, local_bytes: manifest.image_bytes(), ..ImageSources::default() };
            assert_eq!(sources(&mut job).await, all);

            // One that is damaged is not believed, and neither is one of another length.
            let path = |index: usize| job.local_copies().join(files[index].object.name.replace('/', "-"));
            let last = path(files.len() - 1);
            let mut bytes = std::fs::read(&last).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            // As a new file: the old one may be that of a database.
            std::fs::remove_file(&last).unwrap();
            std::fs::write(&last, &bytes).unwrap();
            job.start(2, &known).await.unwrap();
            assert_eq!(reads.swap(0, Ordering::Relaxed), 1);
            std::fs::remove_file(&last).unwrap();
            std::fs::write(&last, &bytes[1..]).unwrap();
            job.start(2, &known).await.unwrap();
            assert_eq!(reads.swap(0, Ordering::Relaxed), 1);
            // What was fetched is there the next time.
            job.start(2, &known).await.unwrap();
            assert_eq!(reads.load(Ordering::Relaxed), 0);
            std::fs::remove_file(&last).unwrap();
            let some = sources(&mut job).await;
            assert_eq!((some.local_files, some.store_files), (files.len() as u64 - 1, 1));
            std::fs::remove_dir_all(job.local_copies()).unwrap();
            assert_eq!(sources(&mut job).await.store_files, files.len() as u64);
            assert_eq!(copies(&job).len(), files.len());
        });
    }
}

#[test]
fn local_copies_are_those_that_live_manifests_name() {
    run(async {
        let mut job = Job::new(ObjectStorage::memory(), StateBackend::RocksDb, 256 << 10, 60 << 10);
        let (known, life) = some_checkpoints(&mut job, 12).await;
        drop(life);
        std::fs::write(job.local_copies().join("mat-1-77"), b"orphan").unwrap();
        let mut life = job.start(2, &known).await.unwrap();
        let before = newest(&job).await;
        let input = life.snapshot();
        life.checkpointer.complete(input).await.unwrap();
        let live = [before, newest(&job).await];
        let named = live.iter().flat_map(|manifest| manifest.image.iter().flat_map(|image| &image.files));
        let named: BTreeSet<String> = named.map(|file| file.object.name.replace('/', "-")).collect();
        assert_eq!(copies(&job), named);
    });
}

#[test]
fn objects_in_a_folder_have_no_copies() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job::new(ObjectStorage::local(folder.path()).unwrap(), StateBackend::RocksDb, 256 << 10, 60 << 10);
        let (_, life) = some_checkpoints(&mut job, 6).await;
        drop(life);
        assert!(!job.local_copies().exists());
        assert_eq!(sources(&mut job).await.local_files, 0);
    });
}

/// Bytes of log of the last checkpoint, the longest log of any, and bytes of materialization, over some rounds.
async fn rounds(target: Duration) -> (u64, u64, u64) {
    let mut job = Job::new(ObjectStorage::memory(), StateBackend::RocksDb, 64 << 20, u64::MAX);
    job.replay = Arc::new(ReplayBound::new(target));
    let mut random = StdRng::seed_from_u64(2);
    let mut life = job.start(1, &BTreeMap::new()).await.unwrap();
    let (mut last, mut longest, mut materialized) = (0, 0, 0);
    for _ in 0..40 {
        life.change(&mut random, 2000);
        let input = life.snapshot();
        let report = life.checkpointer.complete(input).await.unwrap();
        assert_eq!(report.replay, job.replay.time_of(report.bytes_replay));
        last = report.bytes_log;
        longest = longest.max(report.bytes_replay);
        materialized += report.bytes_materialized;
    }
    (last, longest, materialized)
}

#[test]
fn the_log_is_bounded_by_the_time_of_its_replay() {
    run(async {
        let (_, longest, materialized) = rounds(Duration::from_secs(3600)).await;
        assert!(longest > 2 << 20 && materialized == 0, "{longest} {materialized}");
        // A materialization is through two checkpoints after the log has become too long.
        let (each, longest, materialized) = rounds(Duration::from_millis(10)).await;
        assert!(longest < (1 << 20) + 3 * each && materialized > 0, "{longest} {each} {materialized}");
    });
}

#[test]
fn a_restart_measures_how_fast_it_replays() {
    run(async {
        let mut job = Job::new(ObjectStorage::memory(), StateBackend::RocksDb, 64 << 20, u64::MAX);
        let mut random = StdRng::seed_from_u64(4);
        let mut known = BTreeMap::new();
        let mut life = job.start(1, &known).await.unwrap();
        for _ in 0..40 {
            life.change(&mut random, 2000);
        }
        let input = life.snapshot();
        known.insert(life.epoch, life.contents.clone());
        let report = life.checkpointer.complete(input).await.unwrap();
        drop(life);
        job.term += 1;
        let checkpointer = job.checkpointer();
        let restored = checkpointer.restore().await.unwrap().unwrap();
        let store = open_store(job.scratch.path(), job.backend, job.budget);
        let state = checkpointer.load_into(&restored, &store).await.unwrap();
        let (bytes, fetched) = state.replayed();
        assert_eq!(bytes, report.bytes_replay);
        new_tasks(&store, 2, &StateOrigin::Checkpoint(state.clone())).unwrap();
        let (bytes, replayed) = state.replayed();
        assert!(replayed > fetched);
        job.replay.measured(bytes, replayed);
        let (told, was) = (job.replay.time_of(bytes).as_secs_f64(), replayed.as_secs_f64());
        assert!((told - was).abs() < was / 100.0, "{told} {was}");
    });
}

/// Objects whose files of images are put only when the receiver's sender is gone.
fn held_back() -> (std::sync::mpsc::Sender<()>, ObjectStorage) {
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let hold = move |operation: &'static str, name: &str| {
        if operation == "write" && name.contains("/mat/") {
            let _ = waits.lock().unwrap().recv();
        }
        Ok(())
    };
    (go_on, ObjectStorage::memory().with_faults(Arc::new(hold)))
}

#[test]
fn checkpoints_do_not_wait_for_an_image_that_takes_long() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let (go_on, objects) = held_back();
        let mut job = Job::new(objects, StateBackend::RocksDb, 256 << 10, 60 << 10);
        let mut random = StdRng::seed_from_u64(3);
        let mut known = BTreeMap::new();
        let mut life = job.start(2, &known).await.unwrap();
        life.checkpointer.image_patience = Duration::ZERO;
        for round in 0..30 {
            life.change(&mut random, 200);
            let input = life.snapshot();
            let report = life.checkpointer.complete(input).await.unwrap();
            assert_eq!(report.bytes_materialized, 0, "round {round}");
        }
        assert!(life.checkpointer.progress.lock().await.imaging.is_some());
        drop(go_on);
        life.checkpointer.image_patience = Duration::from_secs(600);
        let input = life.snapshot();
        assert!(life.checkpointer.complete(input).await.unwrap().bytes_materialized > 0);
        known.insert(life.epoch, life.contents.clone());
        drop(life);
        job.start(1, &known).await.unwrap();
    });
}
