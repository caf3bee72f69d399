//! The epoch log: the one durable record of what each epoch contains. Everything else is a function of it.
//!
//! - A [`LogRecord::Dml`] carries the epoch it belongs to; a [`LogRecord::Close`] ends the epoch, with the one clock time and the position of
//!   every split that moved. An epoch in which nothing happened writes nothing. Replay re-creates the same epochs; the first new one is above
//!   [`EpochLog::highest_epoch`].
//! - `append` puts records into a queue and returns; one writer thread writes all that has gathered as one frame, with one fsync, and then tells all
//!   who wait. What one `append` gave is in one frame: it is there after a crash as a whole or not at all.
//! - A write that fails (disk full) or an fsync that fails takes with it everything queued behind it, since that may rest on it; what was written in
//!   part is cut off. Later appends try again: after a failed fsync in a new segment, once the old one could be cut to what is durable.
//! - Space is allocated ahead: an fsync need not change the file's length, and a full disk is met while there is room left to end the epochs
//!   that have acknowledged changes.
//!
//! The log is a sequence of segments `<n>.log` ([`segment`]), each a file of frames. [`EpochLog::cut_below`] removes whole segments from the front.

mod commit;
mod record;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Condvar, Mutex};

pub use self::{
    commit::LogTicket,
    record::{Binding, LogRecord, SourceWatermark},
};
use self::{
    segment::Segments,
    writer::{Queue, Writer},
};
use crate::{
    durable_file::corrupt,
    env,
    epoch::Epoch,
    error::{Result, StorageError},
};
pub use crate::{frame_file::FileFaults, signed_batch::SignedBatch};

/// Bytes that may wait for the writer before `append` itself waits.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// How a log is written.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// A segment is closed behind the commit that fills it. The log can be cut at the ends of segments.
    pub segment_bytes: u64,
    /// For tests: how its files fail.
    pub faults: FileFaults,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, faults: FileFaults::default() }
    }
}

/// The open log. Closing (drop) writes what is queued.
#[derive(Debug)]
pub struct EpochLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

/// What appenders and the writer thread share.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something was queued, or the log is being closed.
    queued: Condvar,
    /// The queue was taken.
    taken: Condvar,
    segments: Mutex<Segments>,
    /// Only one cut at a time.
    cutting: Mutex<()>,
    /// The disk was full when last something was written.
    full: AtomicBool,
}

impl EpochLog {
    /// Opens the log in `directory`, creating it if it is not there, and gives all records in order. A torn tail, which nobody was told of, is
    /// cut; damage before it is [`StorageError::Corrupt`](crate::error::StorageError::Corrupt) with file and offset.
    pub fn open(directory: &Path) -> Result<(Arc<Self>, Vec<LogRecord>)> {
        Self::open_with(directory, LogOptions::default())
    }

    /// The same with other options.
    pub fn open_with(directory: &Path, options: LogOptions) -> Result<(Arc<Self>, Vec<LogRecord>)> {
        let (segments, current, records) = Segments::open(directory, options)?;
        let notes = current_notes(&records);
        let highest = records.iter().filter_map(LogRecord::epoch).max().unwrap_or_default().max(segments.highest_epoch());
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue::new(highest, notes)),
            queued: Condvar::new(),
            taken: Condvar::new(),
            segments: Mutex::new(segments),
            cutting: Mutex::new(()),
            full: AtomicBool::new(false),
        });
        let writer = Writer::new(shared.clone(), current);
        let writer = env::spawn_thread("epoch-log", move || writer.run());
        Ok((Arc::new(Self { shared, writer: Some(writer) }), records))
    }

    /// Queues records behind all queued before, as a unit. Wait for the ticket to know that they are durable.
    pub fn append(&self, records: &[LogRecord]) -> LogTicket {
        self.append_if(records, None)
    }

    /// As [`Self::append`], but refused if any commit has failed since [`Self::failures`] said `failures`: the caller's view of what is in
    /// the log, on which these records rest, would be wrong.
    pub fn append_unless_failed(&self, records: &[LogRecord], failures: u64) -> LogTicket {
        self.append_if(records, Some(failures))
    }

    fn append_if(&self, records: &[LogRecord], failures: Option<u64>) -> LogTicket {
        let mut bytes = Vec::new();
        for record in records {
            if let Err(error) = record.write(&mut bytes) {
                return LogTicket::failed(&error);
            }
        }
        let mut queue = self.shared.queue.lock();
        while queue.bytes() > MAX_QUEUED_BYTES {
            self.shared.taken.wait(&mut queue);
        }
        if failures.is_some_and(|failures| failures != queue.failures) {
            return LogTicket::failed(&queue.failure_since());
        }
        let (ticket, wake) = queue.push(&bytes, records);
        drop(queue);
        if wake {
            self.shared.queued.notify_one();
        }
        ticket
    }

    /// Waits until the records of the ticket are durable, or have failed.
    pub async fn durable(&self, ticket: LogTicket) -> Result<()> {
        ticket.wait().await
    }

    /// As [`Self::durable`], for a thread that may block.
    pub fn durable_blocking(&self, ticket: LogTicket) -> Result<()> {
        ticket.wait_blocking()
    }

    /// How many commits have failed since the log was opened.
    pub fn failures(&self) -> u64 {
        self.shared.queue.lock().failures
    }

    /// Whether the disk was full when last something was written: changes of tables are refused, and the rest is to be brief. Known to be
    /// over when something could be written again.
    pub fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Acquire)
    }

    /// The highest epoch that any record, also of segments that were cut, belongs to.
    pub fn highest_epoch(&self) -> Epoch {
        self.shared.queue.lock().highest_epoch
    }

    /// Whether there was no log in the directory before it was opened.
    pub fn is_new(&self) -> bool {
        self.shared.segments.lock().is_new()
    }

    /// The highest epoch of segments that were removed, or are missing.
    pub fn removed_through(&self) -> Epoch {
        self.shared.segments.lock().removed_through()
    }

    /// Fails unless the log goes as far as something that was made from it has come.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`](crate::error::StorageError::Corrupt) that names the log's directory and `what`.
    pub fn must_reach(&self, epoch: Epoch, what: &str) -> Result<()> {
        let highest = self.highest_epoch();
        if epoch <= highest {
            return Ok(());
        }
        Err(self.corrupt(format!("it ends at epoch {highest}, but {what} is at epoch {epoch}")))
    }

    /// An error about the log as a whole.
    pub fn corrupt(&self, detail: String) -> StorageError {
        corrupt(self.shared.segments.lock().directory(), detail)
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.shared.segments.lock().bytes()
    }

    /// Whether [`Self::cut_below`] would remove anything.
    pub fn can_cut_below(&self, epoch: Epoch) -> bool {
        !self.shared.segments.lock().closed_below(epoch).is_empty()
    }

    /// Removes whole segments at the front whose epochs are all below `epoch`. Notes that would go with them are written again first.
    pub fn cut_below(&self, epoch: Epoch) -> Result<()> {
        let _one = self.shared.cutting.lock();
        let cut = self.shared.segments.lock().closed_below(epoch);
        if cut.is_empty() {
            return Ok(());
        }
        let notes = self.shared.queue.lock().notes_of(cut.iter().flat_map(|segment| &segment.notes));
        if !notes.is_empty() {
            self.append(&notes).wait_blocking()?;
        }
        self.shared.segments.lock().remove(&cut)
    }
}

impl Drop for EpochLog {
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.queued.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has failed its tickets.
            let _ = writer.join();
        }
    }
}

/// The last value of each note.
fn current_notes(records: &[LogRecord]) -> BTreeMap<String, Vec<u8>> {
    let mut notes = BTreeMap::new();
    for record in records {
        if let LogRecord::Note { key, value } = record {
            notes.insert(key.clone(), value.clone());
        }
    }
    notes
}
