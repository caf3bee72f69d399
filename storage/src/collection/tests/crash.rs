//! Power loss: the directory as it is on disk at some moment, without what RocksDB holds in memory and with a torn delta log.

use std::{fs, path::PathBuf};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{model::*, *};

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else if entry.file_name() != "LOCK" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

#[test]
fn what_was_durable_survives_and_the_rest_is_sealed_again() {
    for seed in 0..60 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let place = Place::new(64 << 20);
        let key = KEYS[seed as usize % 3]();
        let collection = place.open(key.clone());
        let mut model = Model::new(key.clone());
        let mut durable_bytes = 0;
        let log = place.directory.path().join("collections/7/deltas");
        for epoch in 1..rng.random_range(3..20) {
            model.change(rng, epoch);
            model.seal(&collection, epoch);
            if rng.random_bool(0.2) {
                place.pass_time();
                collection.fold().unwrap();
            }
            if rng.random_bool(0.2) {
                assert_eq!(collection.flush().unwrap(), Epoch(epoch));
                durable_bytes = files(&log, "log").last().map_or(0, |file| fs::metadata(file).unwrap().len());
            }
        }
        let durable = collection.durable();
        let upper = collection.upper();
        let after = tempfile::tempdir().unwrap();
        copy_directory(place.directory.path(), after.path());
        if let Some(last) = files(&after.path().join("collections/7/deltas"), "log").last() {
            let bytes = fs::read(last).unwrap();
            let kept = rng.random_range((durable_bytes as usize).min(bytes.len())..=bytes.len());
            fs::write(last, &bytes[..kept]).unwrap();
        }
        let recovered = place.try_open(spec_at(after.path(), key.clone(), true)).unwrap();
        assert!(recovered.upper() >= durable && recovered.upper() <= upper, "seed {seed}: {} of {durable}..={upper}", recovered.upper());
        model.check_prefix(&recovered, seed);
        for epoch in recovered.upper().0 + 1..=upper.0 {
            model.seal(&recovered, epoch);
        }
        model.check(&recovered, seed);
        recovered.fold_now().unwrap();
        model.check(&recovered, seed);
    }
}

impl Model {
    /// Compares every readable epoch of a collection that has not got all of them.
    fn check_prefix(&self, collection: &Arc<Collection>, seed: u64) {
        for epoch in (collection.since().0..=collection.upper().0).map(Epoch).filter(|epoch| collection.readable_at(*epoch)) {
            assert_eq!(texts(&contents(collection, epoch)), texts(self.at(epoch)), "seed {seed}, epoch {epoch}");
        }
    }
}

/// A table whose base was lost to the last flush is brought forward by sealing again.
#[test]
fn a_table_loses_only_what_its_epoch_log_still_has() {
    for seed in 0..20 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let place = Place::new(64 << 20);
        let key = KEYS[seed as usize % 3]();
        let table = place.try_open(place.spec(key.clone(), false)).unwrap();
        let mut model = Model::new(key.clone());
        for epoch in 1..15 {
            model.change(rng, epoch);
            model.seal(&table, epoch);
            assert_eq!(table.durable(), Epoch(epoch));
            if rng.random_bool(0.2) {
                table.clock.advance(Duration::from_secs(2));
                table.fold().unwrap();
            }
            if rng.random_bool(0.1) {
                table.fold_now().unwrap();
                assert_eq!(table.base_durable(), Epoch(epoch));
            }
        }
        let needed_above = table.base_durable();
        let after = tempfile::tempdir().unwrap();
        copy_directory(place.directory.path(), after.path());
        let recovered = place.try_open(spec_at(after.path(), key.clone(), false)).unwrap();
        assert!(recovered.upper() >= needed_above, "seed {seed}");
        model.check_prefix(&recovered, seed);
        // The owner replays the epoch log from where it was cut.
        for epoch in needed_above.0 + 1..15 {
            model.seal(&recovered, epoch);
        }
        model.check(&recovered, seed);
    }
}

#[test]
fn damage_in_a_delta_log_names_file_and_offset() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    for epoch in 1..5 {
        collection.seal(Epoch(epoch), vec![signed(&[(row(epoch as i64, "x", 1.0), 1)])], None).unwrap();
        collection.flush().unwrap();
    }
    drop(collection);
    let path = &files(&place.directory.path().join("collections/7/deltas"), "log")[0];
    let mut bytes = fs::read(path).unwrap();
    bytes[100] ^= 1;
    fs::write(path, &bytes).unwrap();
    let error = place.try_open(place.spec(unique(), true)).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("at offset 24 is damaged"), "{error}");
}

#[test]
fn a_damaged_or_missing_segment_names_the_file() {
    let rows: Vec<(Row, i8)> = (0..20_000).map(|id| (row(id, "some name", 0.5), 1)).collect();
    for seed in 0..40 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let place = Place::new(64 << 20);
        let collection = place.open(CollectionKey::AppendOnly);
        collection.seal(Epoch(1), vec![signed(&rows)], None).unwrap();
        collection.fold_now().unwrap();
        drop(collection);
        let path = &files(&place.directory.path().join("collections/7/segments"), "segment")[0];
        let mut bytes = fs::read(path).unwrap();
        match seed % 4 {
            0 => fs::remove_file(path).unwrap(),
            1 => fs::write(path, &bytes[..rng.random_range(0..bytes.len())]).unwrap(),
            _ => {
                let at = rng.random_range(8..bytes.len());
                bytes[at] ^= 1 << rng.random_range(0..8);
                fs::write(path, &bytes).unwrap();
            }
        }
        let outcome = place
            .try_open(place.spec(CollectionKey::AppendOnly, true))
            .and_then(|collection| collection.scan(Epoch(1), ScanRequest::default())?.collect::<Result<Vec<_>>>());
        let error = outcome.expect_err(&format!("seed {seed}: damage is found")).to_string();
        assert!(error.contains("segment"), "seed {seed}: {error}");
    }
}

#[test]
fn on_a_full_disk_changes_wait_in_memory() {
    use std::sync::atomic::Ordering;
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    let change = |id| vec![signed(&[(row(id, "x", 1.0), 1)])];
    collection.seal(Epoch(1), change(1), None).unwrap();
    place.faults.fail_writes.store(true, Ordering::SeqCst);
    collection.seal(Epoch(2), change(2), None).unwrap();
    assert_eq!(contents(&collection, Epoch(2)).len(), 2);
    assert!(matches!(collection.flush(), Err(StorageError::Io { .. })));
    assert!(collection.durable() < Epoch(2));
    place.faults.fail_writes.store(false, Ordering::SeqCst);
    assert_eq!(collection.flush().unwrap(), Epoch(2));
    place.faults.fail_syncs.store(true, Ordering::SeqCst);
    collection.seal(Epoch(3), change(3), None).unwrap();
    assert!(matches!(collection.flush(), Err(StorageError::Io { .. })));
    assert_eq!(collection.durable(), Epoch(2));
    place.faults.fail_syncs.store(false, Ordering::SeqCst);
    // What the disk has of the log is not known any more: only opening it again tells.
    assert!(collection.seal(Epoch(4), change(4), None).is_err());
    drop(collection);
    let collection = place.open(unique());
    assert!(collection.upper() >= Epoch(2));
    assert_eq!(contents(&collection, Epoch(2)).len(), 2);
}

/// A collection that is being filled goes back to a checkpoint, at once or after a crash, and is filled in other steps from there.
#[test]
fn what_was_filled_after_a_checkpoint_is_taken_back() {
    for seed in 0..60 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let place = Place::new(if seed % 2 == 0 { 64 << 20 } else { 1 << 10 });
        let key = KEYS[seed as usize % 3]();
        let mut collection = place.open(key.clone());
        collection.set_published(false).unwrap();
        let mut hold = collection.hold(Epoch(0)).unwrap();
        let (mut model, mut checkpoint) = (Model::new(key.clone()), Epoch(0));
        let mut at_checkpoint = model.clone();
        let mut epoch = 0;
        for _ in 0..rng.random_range(5..40) {
            epoch += 1;
            model.change(rng, epoch);
            model.seal(&collection, epoch);
            place.pass_time();
            collection.fold().unwrap();
            match rng.random_range(0..6) {
                0 => {
                    assert_eq!(collection.flush().unwrap(), Epoch(epoch));
                    (checkpoint, at_checkpoint) = (Epoch(epoch), model.clone());
                    hold.advance(checkpoint);
                }
                1 => {
                    if rng.random_bool(0.5) {
                        drop((hold, collection));
                        collection = place.open(key.clone());
                        // Nothing is folded before it is known how far it may have to go back.
                        collection.fold_now().unwrap();
                    }
                    assert!(collection.rewind(checkpoint).unwrap(), "seed {seed}");
                    hold = collection.hold(checkpoint).unwrap();
                    (model, epoch) = (at_checkpoint.clone(), checkpoint.0);
                }
                _ => {}
            }
        }
        collection.set_published(true).unwrap();
        assert!(!collection.rewind(checkpoint).unwrap(), "what is shown stays");
        drop(hold);
        collection.fold_now().unwrap();
        model.check(&collection, seed);
        collection.flush().unwrap();
        drop(collection);
        model.check(&place.open(key), seed);
    }
}

#[test]
fn what_is_in_the_base_cannot_be_taken_back() {
    let place = Place::new(64 << 20);
    let collection = place.open(unique());
    for epoch in 1..4 {
        collection.seal(Epoch(epoch), vec![signed(&[(row(epoch as i64, "x", 1.0), 1)])], None).unwrap();
    }
    collection.fold_now().unwrap();
    collection.set_published(false).unwrap();
    assert!(!collection.rewind(Epoch(2)).unwrap());
    assert!(collection.rewind(Epoch(3)).unwrap());
    let error = collection.rewind(Epoch(9)).unwrap_err().to_string();
    assert!(error.contains("end at epoch 3"), "{error}");
}
