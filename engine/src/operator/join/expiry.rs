//! Which stored rows of a join side die at which time.
//!
//! Rows of one chunk, key group and second of event time share one timer, whose value lists their keys: a timer per row would cost as much as the
//! row. So a row may outlive its time by up to a second of event time, in which it matches nothing.

use arrow::{
    array::{Array, Int64Array},
    record_batch::RecordBatch,
};
use hashbrown::HashMap;
use millpond_storage::state_table::StateTable;

use crate::{
    accumulator::bytes::put_bytes,
    error::Result,
    operator::{event_time::micros, timers::Timers},
};

/// Rows whose times agree above this many bits of microseconds share a timer: about a second.
const SHARED_BITS: u32 = 20;
/// Timers handled in one step.
const TIMERS_PER_STEP: usize = 256;
/// Timers that an epoch may handle in any case.
const TIMERS_PER_EPOCH: usize = 1024;

/// See the module.
pub(super) struct Expiry {
    /// Input column with the event time.
    pub(super) column: usize,
    /// Rows without a time match each other, and stay.
    null_matches: bool,
    timers: Timers,
    /// Notes of the chunk at hand: (place of the key group, due time) -> index into `notes`.
    open: HashMap<(usize, i64), usize>,
    notes: Vec<Note>,
    /// Timers set in this epoch.
    set: usize,
    /// Timers that this epoch may still handle.
    allowed: usize,
}

struct Note {
    due: i64,
    /// A key of the note's key group.
    key: Vec<u8>,
    entries: Vec<u8>,
}

/// What is left of the notes that are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Nothing.
    Done,
    /// Perhaps some.
    More,
    /// Perhaps some, which have to wait.
    NextEpoch,
}

impl Expiry {
    pub(super) fn new(column: usize, null_matches: bool, timers: Timers) -> Self {
        Self { column, null_matches, timers, open: HashMap::new(), notes: Vec::new(), set: 0, allowed: 0 }
    }

    /// Event time of each row in microseconds.
    pub(super) fn times(&self, batch: &RecordBatch) -> Result<Int64Array> {
        micros(batch.column(self.column))
    }

    /// Notes when row `row` dies. A row without a time matches nothing and dies at once, unless NULLs match.
    pub(super) fn note(&mut self, times: &Int64Array, row: usize, key: &[u8], suffix: &[u8]) {
        let time = match times.is_valid(row) {
            true => times.value(row),
            false if self.null_matches => return,
            false => i64::MIN,
        };
        let due = ((time >> SHARED_BITS) + 1).saturating_mul(1 << SHARED_BITS);
        let index = *self.open.entry((self.timers.place_of(key), due)).or_insert_with(|| {
            self.notes.push(Note { due, key: key.to_vec(), entries: Vec::new() });
            self.notes.len() - 1
        });
        let entries = &mut self.notes[index].entries;
        put_bytes(entries, key);
        put_bytes(entries, suffix);
    }

    /// Writes the notes of the chunk under numbers that were never used.
    pub(super) fn write(&mut self, mut number: impl FnMut() -> [u8; 8]) {
        self.open.clear();
        self.set += self.notes.len();
        for note in self.notes.drain(..) {
            self.timers.set(note.due, &note.key, &number(), &note.entries);
        }
    }

    /// An epoch ends. What may die in it is twice what came: so all that is due is gone soon, but when the watermark passes a second of rows, no
    /// single epoch waits for the lot.
    pub(super) fn end_epoch(&mut self) {
        self.allowed = (2 * std::mem::take(&mut self.set)).max(TIMERS_PER_EPOCH);
    }

    /// Takes some of the notes due before `reached`, as far as this epoch may.
    pub(super) fn take_due(&mut self, reached: i64, mut f: impl FnMut(&[u8])) -> Result<Due> {
        let limit = self.allowed.min(TIMERS_PER_STEP);
        if limit == 0 {
            return Ok(Due::NextEpoch);
        }
        self.allowed -= limit;
        Ok(if self.timers.take_due(reached, limit, |_, entries| f(entries))? { Due::More } else { Due::Done })
    }

    pub(super) fn table(&mut self) -> &mut dyn StateTable {
        self.timers.table()
    }
}
