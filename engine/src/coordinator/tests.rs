//! The coordinator on a real log: full disks, cuts, restarts.

use std::{path::Path, sync::atomic::Ordering};

use arrow::{
    array::Int64Array,
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use async_trait::async_trait;
use millpond_storage::{
    collection::{Collection, CollectionKey, CollectionSpec, ScanRequest},
    epoch_log::{FileFaults, LogOptions},
    memory::MemoryBudget,
    rocks::RocksShared,
};

use super::{sources::SourceSettings, *};
use crate::{
    scan::gate::{Pass, SplitGate},
    source::{Discovery, LateRows, Offset, Source, Split, SplitReader},
};

const TABLE: u64 = 1;
const SOURCE: u64 = 2;
const OTHER_TABLE: u64 = 3;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Int64, false)]))
}

fn rows(keys: std::ops::Range<i64>) -> Vec<(u64, Vec<SignedBatch>)> {
    rows_of(TABLE, keys)
}

fn rows_of(table: u64, keys: std::ops::Range<i64>) -> Vec<(u64, Vec<SignedBatch>)> {
    let keys = Arc::new(Int64Array::from_iter_values(keys));
    let batch = RecordBatch::try_new(schema(), vec![keys.clone(), keys]).expect("two columns");
    vec![(table, vec![SignedBatch::inserts(batch)])]
}

/// A coordinator with two keyed tables, as after a start.
async fn open(dir: &Path, faults: &FileFaults, sources: &[Arc<SourceHandle>]) -> Arc<Coordinator> {
    let options = LogOptions { faults: faults.clone(), ..LogOptions::default() };
    let (log, records) = EpochLog::open_with(&dir.join("log"), options).expect("a log");
    let coordinator = Coordinator::new(log.clone(), Clock::manual(1_000_000));
    for id in [TABLE, OTHER_TABLE] {
        let directory = dir.join("collections").join(id.to_string());
        let spec = CollectionSpec { id, schema: schema(), key: CollectionKey::Columns(vec![0]), directory, durable_deltas: false };
        let collection = Collection::open(spec, &MemoryBudget::new(64 << 20), RocksShared::new(1 << 20)).expect("a collection");
        coordinator.add_table(TableHandle::new(id, collection, log.clone(), None, None));
    }
    sources.iter().for_each(|source| coordinator.add_source(source.clone()));
    coordinator.recover(records).await.expect("recovered");
    coordinator
}

fn count(coordinator: &Coordinator) -> usize {
    let collection = coordinator.table(TABLE).expect("the table").collection().clone();
    let scan = collection.scan(collection.upper(), ScanRequest::default()).expect("a scan");
    scan.map(|step| step.expect("a batch").batch.num_rows()).sum()
}

fn state<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result.expect_err("refused") {
        EngineError::User { sqlstate, .. } => sqlstate,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let faults = FileFaults::default();
    let coordinator = open(dir.path(), &faults, &[]).await;
    let failures = || coordinator.log().failures();
    faults.fail_growth.store(true, Ordering::SeqCst);
    let (mut written, step) = (0, 20_000);
    let before = failures();
    let refused = loop {
        match coordinator.append(rows(written..written + step), failures()).await {
            Ok(_) => written += step,
            Err(error) => break error,
        }
        assert!(written < 100 * step, "a full disk is met");
    };
    assert_eq!(state(Err::<(), _>(refused)), "53100");
    // The acknowledged rows can be read: their epoch could be ended.
    coordinator.tick().await.expect("the epoch is closed");
    assert_eq!(count(&coordinator) as i64, written);
    assert_eq!(state(coordinator.append(rows(written..written + step), failures()).await), "53100");
    // There is space again. What was read before the refusals may rest on what was refused.
    faults.fail_growth.store(false, Ordering::SeqCst);
    coordinator.append(rows(written..written + step), failures()).await.expect("appended");
    assert_eq!(state(coordinator.append(rows(-5..0), before).await), "53100");
    coordinator.tick().await.expect("the epoch is closed");
    assert_eq!(count(&coordinator) as i64, written + step);
    drop(coordinator);
    let coordinator = open(dir.path(), &faults, &[]).await;
    assert_eq!(count(&coordinator) as i64, written + step);
}

/// A job may have stood at any epoch that was closed: after a restart the table must be readable there, whatever the open epoch has of it.
#[tokio::test]
async fn closed_epochs_stay_readable_one_by_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let faults = FileFaults::default();
    let coordinator = open(dir.path(), &faults, &[]).await;
    coordinator.append(rows(0..1), 0).await.expect("appended");
    coordinator.tick().await.expect("closed");
    let first = coordinator.closed().epoch;
    for key in 0..4 {
        coordinator.append(rows_of(OTHER_TABLE, key..key + 1), 0).await.expect("appended");
        coordinator.tick().await.expect("closed");
    }
    let last = coordinator.closed().epoch;
    assert_eq!(last.0, first.0 + 4);
    coordinator.append(rows(1..2), 0).await.expect("acknowledged in an epoch that is not closed");
    drop(coordinator);
    let coordinator = open(dir.path(), &faults, &[]).await;
    let table = coordinator.table(TABLE).expect("the table").collection().clone();
    assert!(table.upper() > last);
    for epoch in first.0..=table.upper().0 {
        assert!(table.readable_at(Epoch(epoch)), "epoch {epoch} of {first} to {}", table.upper());
    }
}

#[tokio::test]
async fn who_reads_next_sees_nothing_of_a_refused_commit() {
    let dir = tempfile::tempdir().expect("a folder");
    let faults = FileFaults::default();
    let coordinator = open(dir.path(), &faults, &[]).await;
    let table = coordinator.table(TABLE).expect("the table");
    let keys = table.collection().key_codec().encode(&[Arc::new(Int64Array::from(vec![7]))]).expect("a key");
    coordinator.append(rows(0..1), 0).await.expect("appended");
    faults.fail_writes.store(true, Ordering::SeqCst);
    // Entered, but its session does not get to hear of the failure.
    let mut append = Box::pin(coordinator.append(rows(7..8), 0));
    assert!(futures::poll!(&mut append).is_pending());
    while coordinator.log().failures() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(table.lookup(&keys).expect("a lookup").1, [None]);
    assert_eq!(table.acknowledged().expect("a state").row_estimate(), 0);
    faults.fail_writes.store(false, Ordering::SeqCst);
    coordinator.append(rows(8..9), coordinator.log().failures()).await.expect("appended");
    coordinator.tick().await.expect("the epoch is closed");
    assert_eq!(count(&coordinator), 2);
    assert_eq!(state(append.await), "53100");
}

/// A source whose splits the test says.
#[derive(Debug)]
struct Splits(&'static [&'static str]);

#[async_trait]
impl Source for Splits {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    async fn discover(&self) -> Result<Discovery> {
        let split = |id: &&str| Split { id: (*id).to_string(), end: None, bounded: false };
        Ok(Discovery { splits: self.0.iter().map(split).collect(), complete: false })
    }

    async fn open(&self, _: &Split, _: Offset, _: &[usize]) -> Result<Box<dyn SplitReader>> {
        Err(EngineError::Internal("nothing is read here".into()))
    }
}

async fn source(splits: &'static [&'static str]) -> Arc<SourceHandle> {
    let settings = SourceSettings { watermark: None, late_rows: LateRows::Keep, fail_on_bad_rows: false };
    SourceHandle::open(SOURCE, "s", Arc::new(Splits(splits)), settings).await.expect("a source")
}

/// What is known of the epochs from one on.
fn known(source: &SourceHandle, from: u64, upto: u64) -> Vec<(BTreeMap<String, u64>, Option<i64>, bool)> {
    let at = |epoch| {
        let ends = source.bound_at(Epoch(epoch)).into_iter().map(|(split, bound)| (split, bound.end)).collect();
        (ends, source.watermark_at(Epoch(epoch)), source.moved(Epoch(epoch - 1), Epoch(epoch)))
    };
    (from..=upto).map(at).collect()
}

/// Closes the log's segment, as a failed fsync does.
async fn begin_segment(coordinator: &Coordinator, faults: &FileFaults) {
    faults.fail_syncs.store(true, Ordering::SeqCst);
    assert!(coordinator.log().durable(coordinator.log().append(&[])).await.is_err());
    faults.fail_syncs.store(false, Ordering::SeqCst);
}

/// Rows that came after a tick belong to the next epoch, also when the tick bound nothing of their source: the barrier of a checkpoint or of
/// another input may follow it.
#[tokio::test]
async fn no_reader_emits_into_a_closed_epoch() {
    let dir = tempfile::tempdir().expect("a folder");
    let handle = source(&["a"]).await;
    let coordinator = open(dir.path(), &FileFaults::default(), std::slice::from_ref(&handle)).await;
    let gate = SplitGate::new("a".into(), 0, i64::MIN, coordinator.closed().epoch);
    handle.add_gate(&gate);
    assert_eq!(gate.pass(1, 0), Pass::Open);
    let closed = coordinator.tick().await.expect("a tick").epoch;
    assert_eq!(gate.pass(2, 0), Pass::Behind);
    gate.barrier_passed(closed, 1, 0);
    coordinator.append(rows(0..1), 0).await.expect("appended");
    let closed = coordinator.tick().await.expect("a tick").epoch;
    assert_eq!(gate.pass(2, 0), Pass::Behind, "the epoch of the table's change is closed");
    gate.epoch_skipped(closed);
    assert_eq!(gate.pass(2, 0), Pass::Open);
}

#[tokio::test]
async fn a_cut_log_knows_where_sources_stood() {
    let dir = tempfile::tempdir().expect("a folder");
    let faults = FileFaults::default();
    let handle = source(&["a", "b"]).await;
    let coordinator = open(dir.path(), &faults, std::slice::from_ref(&handle)).await;
    let first = coordinator.closed().epoch;
    let gates = ["a", "b"].map(|split| SplitGate::new(split.into(), 0, i64::MIN, first));
    gates.iter().for_each(|gate| handle.add_gate(gate));
    for step in 1..=6_u64 {
        // Split b stands still after a while.
        for (gate, offset) in gates.iter().zip([step * 10, step.min(3)]) {
            assert_eq!(gate.pass(offset, offset as i64 * 100), Pass::Open);
        }
        let closed = coordinator.tick().await.expect("a tick").epoch;
        gates.iter().zip([step * 10, step.min(3)]).for_each(|(gate, at)| gate.barrier_passed(closed, at, at as i64 * 100));
        if step % 2 == 0 {
            begin_segment(&coordinator, &faults).await;
        }
    }
    let last = coordinator.closed().epoch;
    assert_eq!(last.0, first.0 + 6);
    let cut = last.0 - 2;
    let before = known(&handle, cut, last.0);
    let bytes = coordinator.log().bytes();
    coordinator.forget(Epoch(cut)).await.expect("cut");
    assert!(coordinator.log().bytes() < bytes + 200 && !coordinator.log().can_cut_below(Epoch(cut + 1)));
    assert_eq!(known(&handle, cut + 1, last.0), before[1..]);
    assert!(coordinator.forget(last.next()).await.is_err(), "an open epoch is not forgotten");
    drop((coordinator, gates, handle));

    // A split found after the restart does not change what was.
    let handle = source(&["a", "b", "c"]).await;
    let coordinator = open(dir.path(), &faults, std::slice::from_ref(&handle)).await;
    assert_eq!((coordinator.closed().epoch, handle.known_from()), (last, Epoch(cut)));
    assert_eq!(known(&handle, cut + 1, last.0), before[1..]);
    assert_eq!(handle.bound_at(Epoch(cut)).len(), 2);
    begin_segment(&coordinator, &faults).await;
    coordinator.log().durable(coordinator.log().append(&[])).await.expect("a new segment");
    coordinator.forget(last).await.expect("cut");
    drop((coordinator, handle));

    // Nothing but the note is left.
    let handle = source(&["a", "b"]).await;
    let coordinator = open(dir.path(), &faults, std::slice::from_ref(&handle)).await;
    assert_eq!((coordinator.closed().epoch, coordinator.open_epoch()), (last, last.next()));
    let ends = |(ends, watermark, _): &(BTreeMap<String, u64>, Option<i64>, bool)| (ends.clone(), *watermark);
    assert_eq!(known(&handle, last.0, last.0).iter().map(ends).collect::<Vec<_>>(), [ends(&before[2])]);
}

/// The watermark holds at the slowest split that is not idle, and where all are idle none holds back another: rows that were read and the word
/// that there are no more come in one tick where the files are small.
#[tokio::test]
async fn splits_that_are_all_idle_pass_the_furthest_of_their_watermarks() {
    let dir = tempfile::tempdir().expect("a folder");
    let handle = source(&["a", "b", "c"]).await;
    let coordinator = open(dir.path(), &FileFaults::default(), std::slice::from_ref(&handle)).await;
    let gates = ["a", "b", "c"].map(|split| SplitGate::new(split.into(), 0, i64::MIN, coordinator.closed().epoch));
    gates.iter().for_each(|gate| handle.add_gate(gate));
    let [a, b, c] = &gates;
    let tick = async || {
        let closed = coordinator.tick().await.expect("a tick").epoch;
        gates.iter().for_each(|gate| gate.epoch_skipped(closed));
        handle.watermark_at(closed)
    };
    assert_eq!(a.pass(1, 100), Pass::Open);
    a.set_waiting(true, false);
    // A file that does not grow has ended, but the source has not: others may come.
    assert_eq!(b.pass(1, 300), Pass::Open);
    b.set_waiting(true, true);
    assert_eq!(tick().await, None, "nothing is known of one split");
    c.set_waiting(true, false);
    assert_eq!(tick().await, Some(300));
    assert_eq!(c.pass(1, 400), Pass::Open);
    assert_eq!(a.pass(2, 350), Pass::Open);
    assert_eq!(tick().await, Some(350));
    a.set_waiting(true, false);
    c.set_waiting(true, false);
    assert_eq!(tick().await, Some(400));
    assert_eq!(a.pass(3, 380), Pass::Open);
    assert_eq!(tick().await, Some(400), "a watermark does not go back");
    let before = known(&handle, 1, coordinator.closed().epoch.0);
    drop((coordinator, gates, handle));

    let handle = source(&["a", "b", "c"]).await;
    let coordinator = open(dir.path(), &FileFaults::default(), std::slice::from_ref(&handle)).await;
    assert_eq!(known(&handle, 1, coordinator.closed().epoch.0), before);
}
