//! Point tables against a map, with little memory and with much.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::epoch::Epoch;
use crate::state_store::StateBackend;
use crate::state_table::task_state::tests::single_task;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut StdRng, keys: u32) -> Vec<u8> {
    let number = random.random_range(0..keys);
    // Some keys are long, some share beginnings.
    if number.is_multiple_of(97) {
        [b"long key ".repeat(20).as_slice(), &number.to_be_bytes()].concat()
    } else {
        number.to_be_bytes().to_vec()
    }
}

fn value(random: &mut StdRng, most: usize) -> Vec<u8> {
    let len = if random.random_bool(0.02) { most * 8 } else { random.random_range(0..most) };
    vec![random.random(); len]
}

fn check_all(table: &mut PointTable, model: &Model, context: &str) {
    let mut seen = Model::new();
    let mut last: Option<(u16, Vec<u8>)> = None;
    let groups = |key: &[u8]| crate::key_group::key_group(key);
    table
        .scan_all(&mut |key, value| {
            let place = (groups(key), key.to_vec());
            assert!(last.as_ref().is_none_or(|last| *last < place), "{context}: out of order");
            last = Some(place);
            assert!(seen.insert(key.to_vec(), value.to_vec()).is_none(), "{context}: twice");
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    assert!(seen == *model, "{context}: {} entries, {} expected", seen.len(), model.len());
}

/// Replays what drains have handed over; must equal the model after each drain.
fn drain(table: &mut PointTable, log: &mut Model) {
    table.drain_dirty(&mut |key, value| {
        match value {
            Some(value) => log.insert(key[4..].to_vec(), value.to_vec()),
            None => log.remove(&key[4..]),
        };
    });
}

fn random_changes(backend: StateBackend, budget: usize, keys: u32, most: usize, rounds: usize, seed: u64) {
    let context = format!("{backend:?}, budget {budget}, seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), backend, budget);
    let mut table = task.point_table(TableId(3)).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = Model::new();
    for round in 0..rounds {
        let keys: EncodedRows = (0..random.random_range(1..300)).map(|_| key(&mut random, keys)).collect();
        let blind = random.random_bool(0.2);
        if !blind {
            table.load(&keys).unwrap();
        }
        for key in keys.iter() {
            if !blind {
                assert_eq!(table.get(key), model.get(key).map(Vec::as_slice), "{context}, round {round}");
            }
            if random.random_bool(0.3) {
                table.delete(key);
                model.remove(key);
            } else {
                let value = value(&mut random, most);
                table.put(key, &value);
                model.insert(key.to_vec(), value);
            }
        }
        table.relieve().unwrap();
        if random.random_bool(0.05) {
            table.begin_sweep();
        }
        if random.random_bool(0.1) {
            table.sweep(1 << 16).unwrap();
        }
        if random.random_bool(0.03) {
            check_all(&mut table, &model, &format!("{context}, round {round}"));
        }
    }
    check_all(&mut table, &model, &context);
    assert!(table.memory_bytes() <= budget.max(512 << 10) + (512 << 10), "{context}: {} bytes", table.memory_bytes());
}

#[test]
fn a_point_table_is_a_map_whatever_the_budget() {
    for seed in 0..3 {
        random_changes(StateBackend::RocksDb, 64 << 20, 3000, 200, 200, seed);
        random_changes(StateBackend::RocksDb, 200 << 10, 3000, 200, 200, 100 + seed);
        random_changes(StateBackend::Memory, 200 << 10, 3000, 200, 200, 200 + seed);
        // So many evicted keys that they are no longer remembered.
        random_changes(StateBackend::RocksDb, 100 << 10, 30_000, 20, 200, 300 + seed);
    }
}

#[test]
fn drained_changes_replay_to_the_same_contents() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, 64 << 20);
    let mut table = task.point_table(TableId(3)).unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let (mut model, mut log) = (Model::new(), Model::new());
    for round in 0..100 {
        for _ in 0..200 {
            let key = key(&mut random, 500);
            if random.random_bool(0.4) {
                table.delete(&key);
                model.remove(&key);
            } else {
                let value = value(&mut random, 50);
                table.put(&key, &value);
                model.insert(key, value);
            }
        }
        if round % 7 == 0 {
            table.begin_sweep();
            while !table.sweep(10_000).unwrap() {}
            // A sweep logs what is dirty by itself, so what follows is compared from here on.
            log = model.clone();
        }
        drain(&mut table, &mut log);
        assert!(log == model, "round {round}");
    }
}

#[test]
fn state_a_hundred_times_the_budget() {
    let budget = 4 << 20;
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, budget);
    let mut table = task.point_table(TableId(1)).unwrap();
    let value = |number: u32, version: u8| [number.to_be_bytes().as_slice(), &[version; 4000]].concat();
    let mut numbers: Vec<u32> = (0..100_000).collect();
    for chunk in numbers.chunks(1000) {
        for number in chunk {
            table.put(&number.to_be_bytes(), &value(*number, 1));
        }
        table.relieve().unwrap();
        assert!(table.memory_bytes() < budget + (5 << 20), "{}", table.memory_bytes());
    }
    let mut random = StdRng::seed_from_u64(1);
    rand::seq::SliceRandom::shuffle(numbers.as_mut_slice(), &mut random);
    for chunk in numbers.chunks(500).take(20) {
        let keys: EncodedRows = chunk.iter().map(|number| number.to_be_bytes()).collect();
        table.load(&keys).unwrap();
        for number in chunk {
            assert_eq!(table.get(&number.to_be_bytes()), Some(value(*number, 1).as_slice()));
        }
        table.relieve().unwrap();
    }
    let checkpoint = task.snapshot(&mut [&mut table], Epoch(1)).unwrap();
    assert!(checkpoint.log_bytes() > 400_000_000);
}

#[test]
fn deleting_what_nobody_else_knows_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, 64 << 20);
    let mut table = task.point_table(TableId(1)).unwrap();
    table.put(b"a", b"1");
    table.delete(b"a");
    table.delete(b"b");
    let mut drained = 0;
    table.drain_dirty(&mut |_, _| drained += 1);
    assert_eq!((drained, table.resident.len()), (0, 0));
    table.put(b"a", b"1");
    table.drain_dirty(&mut |_, _| drained += 1);
    table.delete(b"a");
    assert_eq!(table.get(b"a"), None);
    table.drain_dirty(&mut |_, value| {
        assert_eq!(value, None);
        drained += 1;
    });
    assert_eq!((drained, table.resident.len()), (2, 0));
}
