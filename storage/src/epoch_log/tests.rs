use std::sync::{
    Barrier,
    atomic::{AtomicU64, Ordering},
};

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringViewArray},
    datatypes::{DataType, Field, Schema},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::error::StorageError;

fn batch(values: &[i64]) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8View, true)]);
    let names = StringViewArray::from_iter(values.iter().map(|value| (value % 3 != 0).then(|| format!("the name of row {value}"))));
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(values.to_vec())), Arc::new(names)];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

fn dml(epoch: u64, values: &[i64]) -> LogRecord {
    LogRecord::Dml { epoch: Epoch(epoch), table: 7, delta: vec![SignedBatch::inserts(batch(values))] }
}

fn close(epoch: u64) -> LogRecord {
    let binding = Binding { source: 3, split: "part-1".into(), end: epoch.to_be_bytes().into(), idle: epoch.is_multiple_of(2) };
    LogRecord::Close {
        epoch: Epoch(epoch),
        time_us: 1_000_000 + epoch as i64,
        bindings: vec![binding],
        watermarks: vec![SourceWatermark { source: 3, micros: epoch as i64 }],
    }
}

fn note(key: &str, value: &[u8]) -> LogRecord {
    LogRecord::Note { key: key.into(), value: value.into() }
}

fn with(faults: &FileFaults) -> LogOptions {
    LogOptions { faults: faults.clone(), ..LogOptions::default() }
}

/// The only segment, or the last.
fn last_segment(directory: &Path) -> std::path::PathBuf {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).max().unwrap()
}

#[test]
fn records_come_back_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let signed = SignedBatch::new(batch(&[1, 2]), vec![-1, 1]);
    let written = vec![
        dml(1, &[1, 2, 3]),
        note("late split", b"x"),
        LogRecord::Dml { epoch: Epoch(1), table: 8, delta: vec![signed.clone(), SignedBatch::inserts(batch(&[]))] },
        close(1),
        dml(2, &[4]),
    ];
    let (log, records) = EpochLog::open(directory.path()).unwrap();
    assert!(records.is_empty());
    log.append(&written[..2]);
    let ticket = log.append(&written[2..]);
    log.durable_blocking(ticket).unwrap();
    drop(log);
    let (log, records) = EpochLog::open(directory.path()).unwrap();
    assert_eq!(records, written);
    assert_eq!(log.highest_epoch(), Epoch(2));
}

#[test]
fn an_append_survives_a_crash_whole_or_not_at_all() {
    for seed in 0..100 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = EpochLog::open(directory.path()).unwrap();
        let mut appends = Vec::new();
        for epoch in 1..rng.random_range(2..8) {
            let records = vec![dml(epoch, &[epoch as i64, 5]), dml(epoch, &[-1]), close(epoch)];
            let ticket = log.append(&records);
            log.durable_blocking(ticket).unwrap();
            appends.push(records);
        }
        drop(log);
        let path = last_segment(directory.path());
        let mut bytes = std::fs::read(&path).unwrap();
        // The crash came before the log's length was noted.
        bytes[8..24].fill(0);
        std::fs::write(&path, &bytes[..rng.random_range(0..=bytes.len())]).unwrap();
        let (log, records) = EpochLog::open(directory.path()).unwrap();
        assert_eq!(records.len() % 3, 0, "seed {seed}");
        assert!(appends.concat().starts_with(&records), "seed {seed}");
        let ticket = log.append(&[close(100)]);
        log.durable_blocking(ticket).unwrap();
        drop(log);
        let (_, again) = EpochLog::open(directory.path()).unwrap();
        assert_eq!(again, [records, vec![close(100)]].concat(), "seed {seed}");
    }
}

#[test]
fn damage_before_the_tail_names_file_and_offset() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EpochLog::open(directory.path()).unwrap();
    for epoch in 1..5 {
        let ticket = log.append(&[dml(epoch, &[1]), close(epoch)]);
        log.durable_blocking(ticket).unwrap();
    }
    drop(log);
    let path = last_segment(directory.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = EpochLog::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("at offset 80 is damaged"), "{error}");
}

#[test]
fn a_full_disk_fails_what_is_queued_and_nothing_later() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    let ticket = log.append(&[dml(1, &[1])]);
    log.durable_blocking(ticket).unwrap();
    faults.fail_writes.store(true, Ordering::SeqCst);
    let before = log.failures();
    let ticket = log.append(&[dml(1, &[2])]);
    let error = log.durable_blocking(ticket).unwrap_err();
    assert!(matches!(error, StorageError::Io { action: "write", .. }), "{error}");
    faults.fail_writes.store(false, Ordering::SeqCst);
    assert!(log.failures() > before);
    let ticket = log.append_unless_failed(&[dml(1, &[3])], before);
    assert!(matches!(log.durable_blocking(ticket), Err(StorageError::Io { .. })));
    let ticket = log.append_unless_failed(&[dml(1, &[4])], log.failures());
    log.durable_blocking(ticket).unwrap();
    drop(log);
    assert_eq!(EpochLog::open(directory.path()).unwrap().1, [dml(1, &[1]), dml(1, &[4])]);
}

#[test]
fn after_a_failed_fsync_a_new_segment_is_begun_behind_what_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    let commit = |record: LogRecord| log.durable_blocking(log.append(&[record]));
    commit(dml(1, &[1])).unwrap();
    faults.fail_syncs.store(true, Ordering::SeqCst);
    assert!(matches!(commit(dml(2, &[2])), Err(StorageError::Io { action: "fsync", .. })));
    assert!(commit(dml(2, &[3])).is_err());
    faults.fail_syncs.store(false, Ordering::SeqCst);
    commit(dml(3, &[4])).unwrap();
    drop(log);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    assert_eq!(EpochLog::open(directory.path()).unwrap().1, [dml(1, &[1]), dml(3, &[4])]);
}

/// Closes the current segment, as a failed fsync does.
fn begin_segment(log: &EpochLog, faults: &FileFaults) {
    faults.fail_syncs.store(true, Ordering::SeqCst);
    assert!(log.durable_blocking(log.append(&[])).is_err());
    faults.fail_syncs.store(false, Ordering::SeqCst);
}

#[test]
fn cutting_keeps_notes_and_the_highest_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    let commit = |records: &[LogRecord]| log.durable_blocking(log.append(records)).unwrap();
    commit(&[dml(5, &[1]), note("a", b"old"), note("b", b"kept")]);
    begin_segment(&log, &faults);
    commit(&[dml(6, &[2]), note("a", b"new")]);
    begin_segment(&log, &faults);
    commit(&[close(7)]);
    let bytes = log.bytes();
    log.cut_below(Epoch(6)).unwrap();
    assert!(log.bytes() < bytes + 100);
    log.cut_below(Epoch(6)).unwrap();
    drop(log);
    let (log, records) = EpochLog::open(directory.path()).unwrap();
    assert_eq!(records, [dml(6, &[2]), note("a", b"new"), close(7), note("a", b"new"), note("b", b"kept")]);
    log.cut_below(Epoch(100)).unwrap();
    drop(log);
    let (log, records) = EpochLog::open(directory.path()).unwrap();
    assert_eq!(records, [close(7), note("a", b"new"), note("b", b"kept"), note("a", b"new")]);
    assert_eq!(log.highest_epoch(), Epoch(7));
}

#[test]
fn a_missing_or_shortened_segment_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    for epoch in 1..4 {
        log.durable_blocking(log.append(&[close(epoch)])).unwrap();
        begin_segment(&log, &faults);
    }
    log.durable_blocking(log.append(&[close(4)])).unwrap();
    drop(log);
    let second = directory.path().join("00000002.log");
    let bytes = std::fs::read(&second).unwrap();
    std::fs::remove_file(&second).unwrap();
    let error = EpochLog::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("00000002.log") && error.contains("missing"), "{error}");
    std::fs::write(&second, &bytes[..bytes.len() - 8]).unwrap();
    assert!(EpochLog::open(directory.path()).unwrap_err().to_string().contains("00000002.log"));
    // Cut at a frame's border it is whole by itself, but not what was written.
    std::fs::write(&second, &bytes[..80]).unwrap();
    assert!(EpochLog::open(directory.path()).unwrap_err().to_string().contains("were written"));
    std::fs::write(&second, &bytes).unwrap();
    assert_eq!(EpochLog::open(directory.path()).unwrap().1, [close(1), close(2), close(3), close(4)]);
}

#[test]
fn eight_threads_share_fsyncs_and_each_keeps_its_order() {
    const THREADS: u64 = 8;
    const APPENDS: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EpochLog::open(directory.path()).unwrap();
    let barrier = Barrier::new(THREADS as usize);
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, barrier, acknowledged) = (&log, &barrier, &acknowledged);
            scope.spawn(move || {
                barrier.wait();
                for index in 0..APPENDS {
                    let record =
                        LogRecord::Dml { epoch: Epoch(1), table: thread, delta: vec![SignedBatch::inserts(batch(&[index as i64]))] };
                    log.durable_blocking(log.append(&[record])).unwrap();
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(acknowledged.load(Ordering::SeqCst), THREADS * APPENDS);
    drop(log);
    let (_, records) = EpochLog::open(directory.path()).unwrap();
    for thread in 0..THREADS {
        let of_thread: Vec<_> =
            records.iter().filter(|record| matches!(record, LogRecord::Dml { table, .. } if *table == thread)).collect();
        assert_eq!(of_thread.len() as u64, APPENDS);
        for (index, record) in of_thread.into_iter().enumerate() {
            let LogRecord::Dml { delta, .. } = record else { unreachable!() };
            assert_eq!(delta[0].batch, batch(&[index as i64]));
        }
    }
}

#[tokio::test]
async fn sessions_wait_without_blocking_their_thread() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EpochLog::open(directory.path()).unwrap();
    let tickets: Vec<_> = (0..20).map(|value| log.append(&[dml(1, &[value])])).collect();
    for ticket in tickets {
        log.durable(ticket.clone()).await.unwrap();
        log.durable(ticket).await.unwrap();
    }
}

#[test]
fn on_a_full_disk_epochs_can_still_be_ended() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    let commit = |record: LogRecord| log.durable_blocking(log.append(&[record]));
    commit(dml(1, &[1])).unwrap();
    assert!(!log.is_full());
    faults.fail_growth.store(true, Ordering::SeqCst);
    let many: Vec<i64> = (0..20_000).collect();
    let mut written = 0;
    let error = loop {
        match commit(dml(1, &many)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "a full disk is met");
    };
    assert!(matches!(&error, StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull), "{error}");
    assert!(log.is_full());
    commit(close(1)).unwrap();
    assert!(log.is_full() && commit(dml(2, &many)).is_err());
    faults.fail_growth.store(false, Ordering::SeqCst);
    commit(dml(2, &many)).unwrap();
    assert!(!log.is_full());
    drop(log);
    let (_, records) = EpochLog::open(directory.path()).unwrap();
    assert_eq!(records.len(), 1 + written + 1 + 1);
    assert_eq!(records[1 + written], close(1));
}

#[test]
fn space_that_was_allocated_and_not_used_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    log.durable_blocking(log.append(&[close(1)])).unwrap();
    let first = last_segment(directory.path());
    begin_segment(&log, &faults);
    log.durable_blocking(log.append(&[close(2)])).unwrap();
    drop(log);
    // As a crash leaves it: neither the closed segment nor the last one was trimmed.
    for path in [first, last_segment(directory.path())] {
        let length = std::fs::metadata(&path).unwrap().len();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(length + 4096).unwrap();
    }
    assert_eq!(EpochLog::open(directory.path()).unwrap().1, [close(1), close(2)]);
}

#[test]
fn a_log_that_was_cut_off_after_it_was_closed_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let faults = FileFaults::default();
    let (log, _) = EpochLog::open_with(directory.path(), with(&faults)).unwrap();
    log.durable_blocking(log.append(&[close(1)])).unwrap();
    begin_segment(&log, &faults);
    for epoch in 2..6 {
        log.durable_blocking(log.append(&[close(epoch)])).unwrap();
    }
    drop(log);
    let path = last_segment(directory.path());
    let bytes = std::fs::read(&path).unwrap();
    // The zeros at the end of the last frame may be missing.
    for length in 0..bytes.len() - 7 {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let error = EpochLog::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("00000002.log"), "{length}: {error}");
    }
    std::fs::remove_file(&path).unwrap();
    let error = EpochLog::open(directory.path()).unwrap_err().to_string();
    assert!(error.contains("00000002.log") && error.contains("missing"), "{error}");
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(EpochLog::open(directory.path()).unwrap().1.len(), 5);
}

#[test]
fn an_idle_log_notes_its_length() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = EpochLog::open(directory.path()).unwrap();
    log.durable_blocking(log.append(&[close(1)])).unwrap();
    let path = last_segment(directory.path());
    let noted = |path: &Path| u64::from_le_bytes(std::fs::read(path).unwrap()[8..16].try_into().unwrap());
    while noted(&path) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(noted(&path), log.bytes());
}
