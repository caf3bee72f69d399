//! Range tables against a map of maps, with little memory and with much.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::super::TableId;
use super::*;
use crate::encoding::EncodedRows;
use crate::epoch::Epoch;
use crate::state_store::StateBackend;
use crate::state_table::task_state::tests::single_task;

type Group = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = BTreeMap<Vec<u8>, Group>;

/// Prefix 0 is a group of many entries, the others have few. Some prefixes begin with others.
fn prefix(random: &mut StdRng) -> Vec<u8> {
    match random.random_range(0..10) {
        0..3 => b"big".to_vec(),
        3 => b"bi".to_vec(),
        _ => format!("p{}", random.random_range(0..400)).into_bytes(),
    }
}

fn suffix(random: &mut StdRng, prefix: &[u8]) -> Vec<u8> {
    let number: u32 = if prefix == b"big" { random.random_range(0..20_000) } else { random.random_range(0..40) };
    if number.is_multiple_of(50) { format!("{number:08}-{}", "s".repeat(100)).into_bytes() } else { format!("{number:08}").into_bytes() }
}

fn value(random: &mut StdRng) -> Vec<u8> {
    let len = if random.random_bool(0.002) { 6000 } else { random.random_range(0..60) };
    vec![random.random(); len]
}

fn scanned(table: &RangeTable, prefix: &[u8], from: Option<&[u8]>, limit: usize, back: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut visit = |suffix: &[u8], value: &[u8]| {
        entries.push((suffix.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    if back { table.scan_back(prefix, from, limit, &mut visit) } else { table.scan(prefix, from, limit, &mut visit) }.unwrap();
    entries
}

fn check_reads(table: &RangeTable, model: &Model, prefix: &[u8], random: &mut StdRng, context: &str) {
    let empty = Group::new();
    let group = model.get(prefix).unwrap_or(&empty);
    let owned = |entry: (&Vec<u8>, &Vec<u8>)| (entry.0.clone(), entry.1.clone());
    assert_eq!(table.first(prefix).unwrap(), group.first_key_value().map(owned), "{context}: first");
    assert_eq!(table.last(prefix).unwrap(), group.last_key_value().map(owned), "{context}: last");
    assert_eq!(table.contains_prefix(prefix).unwrap(), !group.is_empty(), "{context}");
    if let Some(len) = table.group_len(prefix) {
        assert_eq!(len, group.len() as u64, "{context}: length of {}", String::from_utf8_lossy(prefix));
    }
    let from = suffix(random, prefix);
    let limit = random.random_range(0..100);
    let expected: Vec<_> = group.range::<[u8], _>((Bound::Excluded(from.as_slice()), Bound::Unbounded)).map(owned).take(limit).collect();
    assert!(scanned(table, prefix, Some(&from), limit, false) == expected, "{context}: scan");
    let expected: Vec<_> =
        group.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(from.as_slice()))).rev().map(owned).take(limit).collect();
    assert!(scanned(table, prefix, Some(&from), limit, true) == expected, "{context}: scan back");
    assert_eq!(table.get(prefix, &from).unwrap().as_deref(), group.get(&from).map(Vec::as_slice), "{context}: get");
}

fn check_all(table: &RangeTable, model: &Model, context: &str) {
    for prefix in (0..400).map(|i| format!("p{i}").into_bytes()).chain([b"big".to_vec(), b"bi".to_vec(), b"none".to_vec()]) {
        let expected: Vec<_> = model.get(&prefix).into_iter().flatten().map(|(s, v)| (s.clone(), v.clone())).collect();
        let name = String::from_utf8_lossy(&prefix);
        assert!(scanned(table, &prefix, None, usize::MAX, false) == expected, "{context}: contents of {name}");
        let mut backward = expected;
        backward.reverse();
        assert!(scanned(table, &prefix, None, usize::MAX, true) == backward, "{context}: contents of {name} backward");
    }
    let mut all = Model::new();
    table
        .scan_all(&mut |prefix, suffix, value| {
            let twice = all.entry(prefix.to_vec()).or_default().insert(suffix.to_vec(), value.to_vec());
            assert!(twice.is_none(), "{context}: twice");
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    let mut expected = model.clone();
    expected.retain(|_, group| !group.is_empty());
    assert!(all == expected, "{context}: all contents");
}

fn change(table: &mut RangeTable, model: &mut Model, prefix: &[u8], random: &mut StdRng) {
    match random.random_range(0..100) {
        0..60 => {
            let (suffix, value) = (suffix(random, prefix), value(random));
            table.put(prefix, &suffix, &value);
            model.entry(prefix.to_vec()).or_default().insert(suffix, value);
        }
        60..85 => {
            let group = model.entry(prefix.to_vec()).or_default();
            let there: Vec<&Vec<u8>> = group.keys().take(50).collect();
            let suffix = there.choose(random).map_or_else(|| suffix(random, prefix), |suffix| suffix.to_vec());
            table.delete(prefix, &suffix);
            group.remove(&suffix);
        }
        85..98 => {
            let suffix = suffix(random, prefix);
            table.delete(prefix, &suffix);
            model.entry(prefix.to_vec()).or_default().remove(&suffix);
        }
        _ => {
            table.delete_prefix(prefix).unwrap();
            model.remove(prefix);
        }
    }
}

fn random_changes(backend: StateBackend, budget: usize, rounds: usize, seed: u64) {
    let context = format!("{backend:?}, budget {budget}, seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), backend, budget);
    let mut table = task.range_table(TableId(3)).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = Model::new();
    for round in 0..rounds {
        let context = format!("{context}, round {round}");
        let prefixes: EncodedRows = (0..random.random_range(1..60)).map(|_| prefix(&mut random)).collect();
        if random.random_bool(0.7) {
            table.load(&prefixes).unwrap();
        }
        for prefix in prefixes.iter() {
            for _ in 0..random.random_range(1..8) {
                change(&mut table, &mut model, prefix, &mut random);
            }
            if random.random_bool(0.1) {
                check_reads(&table, &model, prefix, &mut random, &context);
            }
        }
        table.relieve().unwrap();
        match random.random_range(0..100) {
            0..4 => table.begin_sweep(),
            4..10 => drop(table.sweep(1 << 16).unwrap()),
            10..14 => table.drain_dirty(&mut |_, _| {}),
            16..30 => table.log_aged(round as i64, 3),
            14..16 => check_all(&table, &model, &context),
            _ => {}
        }
    }
    check_all(&table, &model, &context);
    assert!(table.memory_bytes() <= budget.max(512 << 10) + (512 << 10), "{context}: {} bytes", table.memory_bytes());
}

#[test]
fn a_range_table_is_a_map_of_maps_whatever_the_budget() {
    for seed in 0..4 {
        random_changes(StateBackend::RocksDb, 64 << 20, 400, seed);
        random_changes(StateBackend::RocksDb, 150 << 10, 400, 100 + seed);
        random_changes(StateBackend::Memory, 150 << 10, 400, 200 + seed);
    }
}

#[test]
fn drained_changes_replay_to_the_same_contents() {
    for seed in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let mut task = single_task(directory.path(), StateBackend::RocksDb, 64 << 20);
        let mut table = task.range_table(TableId(3)).unwrap();
        let mut random = StdRng::seed_from_u64(seed);
        let (mut model, mut log) = (Model::new(), BTreeMap::new());
        for round in 0..60 {
            for _ in 0..300 {
                let prefix = prefix(&mut random);
                change(&mut table, &mut model, &prefix, &mut random);
            }
            table.drain_dirty(&mut |key, value| {
                match value {
                    Some(value) => log.insert(key.to_vec(), value.to_vec()),
                    None => log.remove(key),
                };
            });
            let expected: BTreeMap<Vec<u8>, Vec<u8>> = model
                .iter()
                .flat_map(|(prefix, group)| group.iter().map(move |(suffix, value)| (prefix, suffix, value)))
                .map(|(prefix, suffix, value)| {
                    let mut key = Vec::new();
                    table.context.full_prefix(prefix, &mut key);
                    key.extend_from_slice(suffix);
                    (key, value.clone())
                })
                .collect();
            assert!(log == expected, "seed {seed}, round {round}");
        }
    }
}

#[test]
fn a_million_entries_under_one_prefix_in_little_memory() {
    let budget = 4 << 20;
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, budget);
    let mut table = task.range_table(TableId(1)).unwrap();
    let suffix = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for start in (0..1_000_000_u64).step_by(4096) {
        for number in start..(start + 4096).min(1_000_000) {
            table.put(b"one", &suffix(number), &number.to_be_bytes());
        }
        table.relieve().unwrap();
        assert!(table.memory_bytes() < budget + (2 << 20), "{}", table.memory_bytes());
    }
    // The queue of a minimum: take the first, again and again, while others come.
    let mut sorted: std::collections::BTreeSet<[u8; 8]> = (0..1_000_000).map(suffix).collect();
    let prefixes: EncodedRows = [b"one"].into_iter().collect();
    for round in 0..200_u64 {
        table.load(&prefixes).unwrap();
        for step in 0..50 {
            let first = sorted.pop_first().unwrap();
            assert_eq!(table.first(b"one").unwrap().unwrap().0, first);
            table.delete(b"one", &first);
            let new = suffix(2_000_000 + round * 50 + step);
            table.put(b"one", &new, b"new");
            sorted.insert(new);
        }
        table.relieve().unwrap();
    }
    assert_eq!(table.last(b"one").unwrap().unwrap().0, sorted.last().unwrap());
    let mut count = 0;
    table
        .scan(b"one", None, usize::MAX, &mut |suffix, _| {
            count += 1;
            assert!(sorted.remove(suffix));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((count, sorted.len()), (1_000_000, 0));
    drop(task.snapshot(&mut [&mut table], Epoch(1)).unwrap());
}

#[test]
fn emptied_groups_leave_nothing_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, 64 << 20);
    let mut table = task.range_table(TableId(1)).unwrap();
    let put_all = |table: &mut RangeTable| {
        for i in 0..500_u32 {
            table.put(b"large", &i.to_be_bytes(), &[1; 50]);
            table.put(&i.to_be_bytes(), b"small", &[1; 50]);
        }
    };
    let delete_all = |table: &mut RangeTable| {
        for i in 0..500_u32 {
            table.delete(b"large", &i.to_be_bytes());
            table.delete(&i.to_be_bytes(), b"small");
        }
    };
    put_all(&mut table);
    delete_all(&mut table);
    assert_eq!((table.groups.len(), table.tombstones.is_empty()), (0, true));
    put_all(&mut table);
    assert_eq!(table.group_len(b"large"), Some(500));
    table.begin_sweep();
    while !table.sweep(10_000).unwrap() {}
    delete_all(&mut table);
    assert_eq!(table.groups.len(), 501);
    table.flush_tombstones().unwrap();
    assert_eq!((table.groups.len(), table.large_bytes, table.partial), (0, 0, 0));
    let mut left = 0;
    let bounds = (Bound::Unbounded, Bound::Excluded(&[0xff][..]));
    table
        .context
        .stored()
        .unwrap()
        .scan_with(bounds, false, &mut |_, _| {
            left += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(left, 0);
}
