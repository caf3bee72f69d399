//! Snapshots, flushes and checkpoints of one database.

use super::*;

const ALL: KeyBounds<'static> = (Bound::Unbounded, Bound::Unbounded);

fn put(store: &RocksStore, key: &str, value: &str) {
    let mut ops = WriteOps::new();
    ops.put(key.as_bytes(), value.as_bytes());
    store.write(ops).unwrap();
}

#[test]
fn a_snapshot_and_its_scan_do_not_see_later_writes_and_outlive_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = RocksStore::open(directory.path(), &RocksShared::new(8 << 20)).unwrap();
    put(&store, "a", "1");
    let snapshot = store.snapshot();
    put(&store, "a", "2");
    put(&store, "b", "2");
    assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    let mut found = 0;
    snapshot
        .multi_get_sorted(&[b"a", b"b"], &mut |index, value| {
            assert_eq!((index, value), (0, &b"1"[..]));
            found += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(found, 1);
    let scan = snapshot.scan(ALL, true);
    drop(snapshot);
    drop(store);
    let entries: Vec<_> = scan.map(|entry| entry.unwrap()).collect();
    assert_eq!(entries, vec![(b"a".to_vec().into_boxed_slice(), b"1".to_vec().into_boxed_slice())]);
}

#[test]
fn a_checkpoint_contains_what_was_written_and_is_a_database() {
    let directory = tempfile::tempdir().unwrap();
    let shared = RocksShared::new(8 << 20);
    let image = directory.path().join("image");
    {
        let store = RocksStore::open(&directory.path().join("live"), &shared).unwrap();
        put(&store, "a", "1");
        store.checkpoint(&image).unwrap();
        put(&store, "a", "2");
    }
    let copy = RocksStore::open(&image, &shared).unwrap();
    assert_eq!(copy.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn only_flushed_writes_survive_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let shared = RocksShared::new(8 << 20);
    {
        let store = RocksStore::open(directory.path(), &shared).unwrap();
        put(&store, "a", "1");
        store.flush().unwrap();
    }
    assert_eq!(RocksStore::open(directory.path(), &shared).unwrap().get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}
