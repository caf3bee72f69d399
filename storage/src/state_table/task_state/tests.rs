//! A small task for the tests of tables and checkpoints.

use std::path::Path;

use super::*;
use crate::key_group::KEY_GROUPS;
use crate::memory::MemoryBudget;
use crate::rocks::RocksShared;
use crate::state_store::StateBackend;
use crate::state_table::JobStoreSpec;

pub(crate) fn open_store(directory: &Path, backend: StateBackend, budget_bytes: usize) -> Arc<JobStore> {
    let spec = JobStoreSpec {
        directory: directory.to_owned(),
        backend,
        budget: MemoryBudget::new(budget_bytes),
        shared: RocksShared::new(4 << 20),
    };
    JobStore::open(spec).unwrap()
}

/// A job of one subtask that owns everything.
pub(crate) fn single_task(directory: &Path, backend: StateBackend, budget_bytes: usize) -> TaskState {
    TaskState::new(open_store(directory, backend, budget_bytes), 0, 0..KEY_GROUPS, StateOrigin::Empty).unwrap()
}

#[test]
fn a_table_is_created_once_and_before_the_first_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::Memory, 1 << 20);
    task.point_table(TableId(1)).unwrap();
    assert!(matches!(task.range_table(TableId(1)), Err(StorageError::Internal(_))));
    drop(task.snapshot(&mut [], Epoch(1)).unwrap());
    assert!(matches!(task.range_table(TableId(2)), Err(StorageError::Internal(_))));
}

#[test]
fn a_sweep_is_done_over_several_checkpoints_and_says_its_base() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, 64 << 20);
    let store = task.shared.store.clone();
    let mut table = task.point_table(TableId(1)).unwrap();
    for i in 0..1000_u32 {
        table.put(&i.to_be_bytes(), &[1; 100]);
    }
    assert_eq!(task.snapshot(&mut [&mut table], Epoch(1)).unwrap().swept.request, 0);
    assert!(store.opened().is_none());
    let request = store.want_image();
    table.put(&0_u32.to_be_bytes(), &[2; 100]);
    let mut epoch = Epoch(2);
    let mut checkpoint = task.snapshot(&mut [&mut table], epoch).unwrap();
    while checkpoint.swept.request < request {
        epoch = epoch.next();
        checkpoint = task.snapshot(&mut [&mut table], epoch).unwrap();
    }
    assert!(epoch > Epoch(2), "a snapshot takes a step only");
    assert_eq!(checkpoint.swept, Sweep { request, base: Epoch(2) });
    assert_eq!(flushed(&store), 1000);
    assert_eq!(store.positions().get(&0), Some(&checkpoint.position));
}

#[test]
fn a_snapshot_does_not_wait_for_a_sweep_that_owes_much() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = single_task(directory.path(), StateBackend::RocksDb, 256 << 20);
    task.set_clock(Clock::manual(0));
    let store = task.shared.store.clone();
    let mut table = task.point_table(TableId(1)).unwrap();
    let fill = |table: &mut PointTable| (0..200_000_u32).for_each(|i| table.put(&i.to_be_bytes(), &[1; 100]));
    fill(&mut table);
    store.want_image();
    drop(task.snapshot(&mut [&mut table], Epoch(1)).unwrap());
    fill(&mut table);
    store.hurry_image();
    drop(task.snapshot(&mut [&mut table], Epoch(2)).unwrap());
    // A block of records is flushed at once.
    assert!(flushed(&store) < 10_000, "{} entries in two snapshots", flushed(&store));
    let mut steps = 0;
    while task.is_sweeping() {
        // It pauses while the store is behind, and how long that is says nothing of its steps.
        while store.waiting_buffers() > 0 {
            std::thread::yield_now();
        }
        task.go_on_sweeping(&mut [&mut table]);
        steps += 1;
    }
    assert_eq!(flushed(&store), 200_000);
    assert!(steps < 200_000 * 150 / sweep_pace::MOST_URGENT_BYTES + 20, "what was logged is paid for: {steps}");
}

fn flushed(store: &JobStore) -> usize {
    let mut count = 0;
    let mut counted = |_: &[u8], _: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    store.opened().unwrap().scan_with((Bound::Unbounded, Bound::Excluded(&[0xff][..])), false, &mut counted).unwrap();
    count
}
