//! The queue of appends, and the thread that writes it out.
//!
//! The writer takes all that has gathered while it wrote the commit before: under load one fsync serves many. A session that was just told of its
//! commit needs a moment to come back with the next one; after a commit of several, the writer waits for as many again, for a small part of what
//! a commit takes at most, instead of leaving with the first two.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::MutexGuard;

use super::{
    Shared,
    commit::{CommitGroup, Failure, LogTicket},
    record::{LogRecord, RECORD_VERSION},
    segment::CurrentSegment,
};
use crate::{epoch::Epoch, error::StorageError, frame_file::FrameBuffer};

/// A group is waited for at most this part of the last commit's duration.
const GATHER_DIVISOR: u32 = 8;
/// And at most this long.
const MAX_GATHER: Duration = Duration::from_millis(1);
/// The segment's note lags by at most so much behind what is durable.
const NOTE_AGE: Duration = Duration::from_millis(100);

/// Appends that wait for the writer.
#[derive(Debug)]
pub(super) struct Queue {
    frame: FrameBuffer,
    group: Arc<CommitGroup>,
    appends: usize,
    /// Highest epoch, and keys of notes, of what is queued.
    contents: Contents,
    /// The writer sleeps until there are this many appends.
    wanted: usize,
    /// Highest epoch ever appended.
    pub(super) highest_epoch: Epoch,
    /// The last value of every note.
    notes: BTreeMap<String, Vec<u8>>,
    pub(super) failures: u64,
    last_failure: Option<Failure>,
    pub(super) closing: bool,
}

/// What some frames contain, as far as cutting the log needs to know.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) highest_epoch: Epoch,
    /// Changes of tables, which a full disk refuses.
    pub(super) has_changes: bool,
    pub(super) notes: BTreeSet<String>,
}

impl Contents {
    pub(super) fn add(&mut self, record: &LogRecord) {
        self.highest_epoch = self.highest_epoch.max(record.epoch().unwrap_or_default());
        self.has_changes |= matches!(record, LogRecord::Dml { .. });
        if let LogRecord::Note { key, .. } = record {
            self.notes.insert(key.clone());
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.highest_epoch = self.highest_epoch.max(other.highest_epoch);
        self.has_changes |= other.has_changes;
        self.notes.extend(other.notes);
    }
}

fn empty_frame() -> FrameBuffer {
    let mut frame = FrameBuffer::new();
    frame.payload().push(RECORD_VERSION);
    frame
}

impl Queue {
    pub(super) fn new(highest_epoch: Epoch, notes: BTreeMap<String, Vec<u8>>) -> Self {
        Self {
            frame: empty_frame(),
            group: Arc::default(),
            appends: 0,
            contents: Contents::default(),
            wanted: 1,
            highest_epoch,
            notes,
            failures: 0,
            last_failure: None,
            closing: false,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.frame.payload_length()
    }

    /// Queues encoded records; the flag says whether the writer should be woken.
    pub(super) fn push(&mut self, bytes: &[u8], records: &[LogRecord]) -> (LogTicket, bool) {
        if self.closing {
            return (LogTicket::failed(&StorageError::Internal("the epoch log is closed".into())), false);
        }
        self.frame.payload().extend_from_slice(bytes);
        self.appends += 1;
        for record in records {
            self.contents.add(record);
            if let LogRecord::Note { key, value } = record {
                self.notes.insert(key.clone(), value.clone());
            }
        }
        self.highest_epoch = self.highest_epoch.max(self.contents.highest_epoch);
        (LogTicket::new(self.group.clone()), self.appends == self.wanted)
    }

    /// Records of the current values of these notes.
    pub(super) fn notes_of<'a>(&self, keys: impl Iterator<Item = &'a String>) -> Vec<LogRecord> {
        let keys: BTreeSet<_> = keys.collect();
        let value = |key: &String| self.notes.get(key).cloned();
        keys.into_iter().filter_map(|key| Some(LogRecord::Note { key: key.clone(), value: value(key)? })).collect()
    }

    /// The error of who appends on top of a failed commit.
    pub(super) fn failure_since(&self) -> StorageError {
        self.last_failure.as_ref().map_or_else(|| StorageError::Internal("a commit before this one failed".into()), Failure::error)
    }

    fn take(&mut self) -> Batch {
        Batch {
            frame: std::mem::replace(&mut self.frame, empty_frame()),
            group: WrittenGroup(std::mem::take(&mut self.group)),
            appends: std::mem::take(&mut self.appends),
            contents: std::mem::take(&mut self.contents),
        }
    }

    /// Fails what is queued, because what it rests on has failed.
    fn fail(&mut self, failure: &Failure) {
        self.failures += 1;
        self.last_failure = Some(failure.clone());
        self.take().group.0.end(Err(failure.clone()));
    }
}

/// What is written with one fsync.
struct Batch {
    frame: FrameBuffer,
    group: WrittenGroup,
    appends: usize,
    contents: Contents,
}

/// Makes sure that nobody waits for ever: a group that is dropped without an outcome (the writer panics) has failed.
struct WrittenGroup(Arc<CommitGroup>);

impl Drop for WrittenGroup {
    fn drop(&mut self) {
        self.0.end(Err(Failure::Other("the epoch log's writer has stopped".into())));
    }
}

/// The writer thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    segment: CurrentSegment,
    /// Appends and duration of the last commit.
    last: (usize, Duration),
    /// When the segment's note was written last.
    noted_at: Instant,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, segment: CurrentSegment) -> Self {
        Self { shared, segment, last: (1, Duration::ZERO), noted_at: Instant::now() }
    }

    /// Writes until the log is closed and the queue is empty.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.next_batch() {
            self.shared.taken.notify_all();
            let started = Instant::now();
            let appends = batch.appends;
            match self.segment.commit(batch.frame, batch.contents, &self.shared.segments) {
                Ok(()) => {
                    self.shared.full.store(self.segment.is_full(), Ordering::Release);
                    batch.group.0.end(Ok(()));
                    if self.noted_at.elapsed() >= NOTE_AGE {
                        self.note();
                    }
                }
                Err(error) => {
                    let failure = Failure::of(&error);
                    let is_full = matches!(&error, StorageError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull);
                    // Told once: whoever wants to write is told each time.
                    if !self.shared.full.swap(is_full, Ordering::AcqRel) {
                        tracing::error!(%error, "a commit of the epoch log failed");
                    }
                    // Under the lock: nothing is queued behind the failed commit without being failed, too, or seeing the count.
                    let mut queue = self.shared.queue.lock();
                    batch.group.0.end(Err(failure.clone()));
                    queue.fail(&failure);
                }
            }
            self.last = (appends, started.elapsed());
        }
        if let Err(error) = self.segment.close() {
            tracing::debug!(%error, "space that was allocated for the epoch log stays");
        }
    }

    fn note(&mut self) {
        self.noted_at = Instant::now();
        if let Err(error) = self.segment.note() {
            tracing::debug!(%error, "the length of the epoch log could not be noted");
        }
    }

    /// Waits for appends; `None` when the log is closed and nothing is left.
    fn next_batch(&mut self) -> Option<Batch> {
        let shared = self.shared.clone();
        let mut queue = shared.queue.lock();
        queue.wanted = 1;
        while queue.appends == 0 {
            if queue.closing {
                return None;
            }
            if self.segment.is_noted() {
                shared.queued.wait(&mut queue);
            } else if shared.queued.wait_for(&mut queue, NOTE_AGE).timed_out() {
                MutexGuard::unlocked(&mut queue, || self.note());
            }
        }
        let (appends, duration) = self.last;
        let deadline = Instant::now() + (duration / GATHER_DIVISOR).min(MAX_GATHER);
        while queue.appends < appends && !queue.closing {
            queue.wanted = appends;
            if shared.queued.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
        Some(queue.take())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closing = true;
        drop(queue.take());
        self.shared.taken.notify_all();
    }
}
