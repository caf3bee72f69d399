//! Tasks that leave their tables to others again and again, against a map, with little memory and with much.

use std::ops::ControlFlow;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::encoding::EncodedRows;
use crate::epoch::Epoch;
use crate::key_group::{key_group, key_group_range, subtask_of};
use crate::state_store::StateBackend;
use crate::state_table::task_state::tests::open_store;
use crate::state_table::{JobStore, StateOrigin, StateTable, TaskState};

type Group = BTreeMap<Vec<u8>, Vec<u8>>;

struct Task {
    state: TaskState,
    points: PointTable,
    ranges: RangeTable,
}

struct Life {
    store: Arc<JobStore>,
    tasks: Vec<Task>,
    epoch: Epoch,
    points: Group,
    ranges: BTreeMap<Vec<u8>, Group>,
    random: StdRng,
}

fn tasks(store: &Arc<JobStore>, parallelism: usize, origin: &StateOrigin) -> Vec<Task> {
    let task = |subtask: usize| {
        let mut state = TaskState::new(store.clone(), subtask as u32, key_group_range(subtask, parallelism), origin.clone()).unwrap();
        let (points, ranges) = (state.point_table(TableId(1)).unwrap(), state.range_table(TableId(2)).unwrap());
        Task { state, points, ranges }
    };
    (0..parallelism).map(task).collect()
}

impl Life {
    fn new(directory: &Path, budget: usize, seed: u64) -> Self {
        let store = open_store(directory, StateBackend::RocksDb, budget);
        let tasks = tasks(&store, 2, &StateOrigin::Empty);
        let random = StdRng::seed_from_u64(seed);
        Self { store, tasks, epoch: Epoch(0), points: Group::new(), ranges: BTreeMap::new(), random }
    }

    fn change_points(&mut self) {
        let keys: Vec<Vec<u8>> = (0..20).map(|_| self.random.random_range(0..1500_u32).to_be_bytes().to_vec()).collect();
        let parallelism = self.tasks.len();
        let is_blind = self.random.random_bool(0.3);
        for key in keys {
            let table = &mut self.tasks[subtask_of(key_group(&key), parallelism)].points;
            if !is_blind {
                table.load(&[&key].into_iter().collect::<EncodedRows>()).unwrap();
                assert_eq!(table.get(&key), self.points.get(&key).map(Vec::as_slice));
            }
            if self.random.random_bool(0.4) {
                table.delete(&key);
                self.points.remove(&key);
            } else {
                let value = vec![self.random.random(); self.random.random_range(0..60)];
                table.put(&key, &value);
                self.points.insert(key, value);
            }
        }
    }

    fn change_ranges(&mut self) {
        // Few of the prefixes have many entries.
        let number = self.random.random_range(0..20_u32);
        let prefix = if number < 2 { number } else { self.random.random_range(2..300) }.to_be_bytes().to_vec();
        let parallelism = self.tasks.len();
        let table = &mut self.tasks[subtask_of(key_group(&prefix), parallelism)].ranges;
        let group = self.ranges.entry(prefix.clone()).or_default();
        if self.random.random_bool(0.3) {
            table.load(&[&prefix].into_iter().collect::<EncodedRows>()).unwrap();
        }
        check_group(table, &prefix, group);
        for _ in 0..10 {
            let suffix = self.random.random_range(0..400_u32).to_be_bytes().to_vec();
            assert_eq!(table.get(&prefix, &suffix).unwrap().as_deref(), group.get(&suffix).map(Vec::as_slice));
            if self.random.random_bool(0.3) {
                table.delete(&prefix, &suffix);
                group.remove(&suffix);
            } else {
                let value = vec![self.random.random(); self.random.random_range(0..60)];
                table.put(&prefix, &suffix, &value);
                group.insert(suffix, value);
            }
        }
        if self.random.random_bool(0.03) {
            table.delete_prefix(&prefix).unwrap();
            group.clear();
        }
        check_group(table, &prefix, group);
    }

    fn snapshot(&mut self) {
        self.epoch = self.epoch.next();
        for task in &mut self.tasks {
            drop(task.state.snapshot(&mut [&mut task.points, &mut task.ranges], self.epoch).unwrap());
        }
    }

    fn hand_over(&mut self) {
        self.snapshot();
        let hand_over = |mut task: Task| task.state.hand_over(&mut [&mut task.points, &mut task.ranges]).unwrap();
        let handed = HandedTables::new(self.tasks.drain(..).map(hand_over).collect());
        self.tasks = tasks(&self.store, self.random.random_range(1..6), &StateOrigin::Handed(handed));
    }

    fn check_all(&mut self) {
        let (mut points, mut ranges) = (Group::new(), BTreeMap::<Vec<u8>, Group>::new());
        for task in &mut self.tasks {
            task.points
                .scan_all(&mut |key, value| {
                    assert!(points.insert(key.to_vec(), value.to_vec()).is_none(), "in two tasks");
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
            task.ranges
                .scan_all(&mut |prefix, suffix, value| {
                    let twice = ranges.entry(prefix.to_vec()).or_default().insert(suffix.to_vec(), value.to_vec());
                    assert!(twice.is_none(), "in two tasks");
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
        }
        let mut expected = self.ranges.clone();
        expected.retain(|_, group| !group.is_empty());
        assert!(points == self.points && ranges == expected, "{} points, {} groups", points.len(), ranges.len());
    }

    /// Brings everything to the store, as for a materialization, and looks at what is there.
    fn check_store(&mut self) {
        let request = self.store.want_image();
        loop {
            self.epoch = self.epoch.next();
            let mut through = true;
            for task in &mut self.tasks {
                let part = task.state.snapshot(&mut [&mut task.points, &mut task.ranges], self.epoch).unwrap();
                through &= part.swept.request >= request;
            }
            if through {
                break;
            }
        }
        self.tasks = tasks(&self.store, 1, &StateOrigin::Handed(HandedTables::default()));
        self.check_all();
    }
}

fn check_group(table: &RangeTable, prefix: &[u8], group: &Group) {
    let mut found = Vec::new();
    table
        .scan(prefix, None, usize::MAX, &mut |suffix, value| {
            found.push((suffix.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(found.iter().map(|(suffix, value)| (suffix, value)).eq(group), "{} entries, {} expected", found.len(), group.len());
    assert_eq!(table.contains_prefix(prefix).unwrap(), !group.is_empty());
    assert_eq!(table.last(prefix).unwrap().map(|(suffix, _)| suffix), group.keys().next_back().cloned());
    assert!(table.group_len(prefix).is_none_or(|len| len == group.len() as u64));
}

#[test]
fn what_is_handed_over_is_found_by_whoever_owns_it() {
    for seed in 0..30 {
        let budget = if seed % 2 == 0 { 64 << 20 } else { 256 << 10 };
        let directory = tempfile::tempdir().unwrap();
        let mut life = Life::new(directory.path(), budget, seed);
        for _ in 0..12 {
            for _ in 0..life.random.random_range(0..100) {
                life.change_points();
                life.change_ranges();
                if life.random.random_bool(0.1) {
                    let chosen = life.random.random_range(0..life.tasks.len());
                    let task = &mut life.tasks[chosen];
                    task.points.relieve().unwrap();
                    task.ranges.relieve().unwrap();
                }
            }
            life.hand_over();
        }
        life.check_all();
        life.hand_over();
        life.check_store();
    }
}

#[test]
fn nothing_is_written_and_memory_is_given_back_as_it_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut life = Life::new(directory.path(), 64 << 20, 0);
    for number in 0..20_000_u32 {
        let key = number.to_be_bytes();
        let task = &mut life.tasks[subtask_of(key_group(&key), 2)];
        task.points.put(&key, &[7; 50]);
        task.ranges.put(&key, b"s", &[7; 50]);
    }
    life.snapshot();
    life.tasks.iter_mut().for_each(|task| (task.points.relieve().unwrap(), task.ranges.relieve().unwrap()).1);
    let used = life.store.budget().used();
    for _ in 0..4 {
        life.hand_over();
        let taken = life.tasks.iter().map(|task| task.points.memory_bytes() + task.ranges.memory_bytes()).sum::<usize>();
        assert!(taken * 10 > used * 8 && life.store.budget().used() < used * 12 / 10, "{taken} of {used}");
        for _ in 0..3000 {
            life.tasks.iter_mut().for_each(|task| (task.points.relieve().unwrap(), task.ranges.relieve().unwrap()).1);
        }
        assert!(life.tasks.iter().all(|task| task.points.inherits_nothing() && task.ranges.inherits_nothing()));
        assert!(life.store.budget().used() < used * 12 / 10, "{} of {used}", life.store.budget().used());
    }
    assert!(life.store.opened().is_none(), "the store was written to");
}
