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
    let mut count = 0;
    let bounds = (Bound::Unbounded, Bound::Excluded(&[0xff][..]));
    store
        .opened()
        .unwrap()
        .scan_with(bounds, false, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(count, 1000);
    assert_eq!(store.positions().get(&0), Some(&checkpoint.position));
}
