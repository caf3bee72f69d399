//! What every store must do, run on both.

use std::ops::{Bound, ControlFlow};

use super::*;

fn contents(store: &dyn StateStore, bounds: KeyBounds<'_>, reverse: bool) -> String {
    let mut text = Vec::new();
    store
        .scan_with(bounds, reverse, &mut |key, value| {
            text.push(format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value)));
            ControlFlow::Continue(())
        })
        .unwrap();
    text.join(" ")
}

fn check_store(store: &dyn StateStore) {
    let mut ops = WriteOps::new();
    for key in ["a", "b", "c", "d", "e"] {
        ops.put(key.as_bytes(), format!("1{key}").as_bytes());
    }
    ops.delete(b"c");
    ops.put(b"b", b"2b");
    assert_eq!(ops.len(), 7);
    store.write(ops).unwrap();
    let all = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(contents(store, all, false), "a=1a b=2b d=1d e=1e");
    assert_eq!(contents(store, all, true), "e=1e d=1d b=2b a=1a");
    let cases: [(KeyBounds<'_>, &str); 6] = [
        ((Bound::Included(b"b".as_slice()), Bound::Excluded(b"e".as_slice())), "b=2b d=1d"),
        ((Bound::Excluded(b"b".as_slice()), Bound::Included(b"e".as_slice())), "d=1d e=1e"),
        ((Bound::Excluded(b"b".as_slice()), Bound::Unbounded), "d=1d e=1e"),
        ((Bound::Unbounded, Bound::Excluded(b"b".as_slice())), "a=1a"),
        ((Bound::Included(b"c".as_slice()), Bound::Included(b"c".as_slice())), ""),
        ((Bound::Included(b"e".as_slice()), Bound::Excluded(b"a".as_slice())), ""),
    ];
    for (bounds, expected) in cases {
        assert_eq!(contents(store, bounds, false), expected, "{bounds:?}");
        let mut backward: Vec<&str> = expected.split(' ').collect();
        backward.reverse();
        assert_eq!(contents(store, bounds, true), backward.join(" "), "{bounds:?} backward");
    }
    let mut found = Vec::new();
    store
        .multi_get_sorted(&[b"a", b"c", b"d"], &mut |index, value| {
            found.push((index, value.to_vec()));
            Ok(())
        })
        .unwrap();
    assert_eq!(found, vec![(0, b"1a".to_vec()), (2, b"1d".to_vec())]);

    let ranges = [(b"a".to_vec(), b"b".to_vec()), (b"b".to_vec(), b"z".to_vec()), (b"z".to_vec(), b"zz".to_vec())];
    let mut seen = Vec::new();
    store
        .scan_many(&ranges, &mut |index, key, _| {
            seen.push((index, key.to_vec()));
            if key == b"d" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, vec![(0, b"a".to_vec()), (1, b"b".to_vec()), (1, b"d".to_vec())]);

    let mut ops = WriteOps::new();
    ops.delete_range(b"b", b"e");
    store.write(ops).unwrap();
    assert_eq!(contents(store, all, false), "a=1a e=1e");
}

#[test]
fn memory_store_is_an_ordered_map() {
    check_store(&MemoryStore::new());
}

#[test]
fn rocks_store_is_an_ordered_map() {
    let directory = tempfile::tempdir().unwrap();
    let store = crate::rocks::RocksStore::open(directory.path(), &crate::rocks::RocksShared::new(8 << 20)).unwrap();
    check_store(&store);
}

#[test]
fn prefix_end_is_the_least_key_above() {
    for (prefix, end) in [(&b"a"[..], Some(&b"b"[..])), (b"a\xff\xff", Some(b"b")), (b"\xff", None), (b"", None)] {
        assert_eq!(prefix_end(prefix).as_deref(), end);
    }
}
