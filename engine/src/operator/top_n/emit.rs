//! The end of an epoch: what the touched partitions owe, partitions that the watermark has closed, and then the watermarks themselves. It goes in
//! steps of bounded size, so that it can stop when the output is full.

use millpond_storage::encoding::EncodedRows;

use super::{TopN, layout::OutputRow, packed, rank::differences, touched::Bound};
use crate::{
    chunk::{CHUNK_ROWS, Chunk, Op},
    error::Result,
    message::Watermark,
    operator::{Output, Progress},
};

/// Partitions that are compared, or dropped, in one step.
const PARTITIONS_PER_STEP: usize = 1024;

/// How far the end of the epoch has come.
#[derive(Default)]
pub(super) enum Stage {
    /// No epoch is ending.
    #[default]
    Idle,
    /// Touched partitions, from this one on.
    Touched(usize),
    /// Partitions that the watermark has passed.
    Expired,
    /// Watermarks.
    Watermarks,
}

/// Changes that have been found and not been put out.
#[derive(Default)]
pub(super) struct Pending {
    /// Number of the touched partition.
    partitions: Vec<usize>,
    keys: EncodedRows,
    exact: EncodedRows,
    ranks: Vec<u64>,
    /// Multiplicities, negative for rows that go.
    changes: Vec<i64>,
    next: usize,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.next == self.changes.len()
    }

    fn clear(&mut self) {
        self.partitions.clear();
        self.keys.clear();
        self.exact.clear();
        self.ranks.clear();
        self.changes.clear();
        self.next = 0;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.exact.memory_bytes() + self.changes.capacity() * 24
    }
}

impl TopN {
    /// Goes on with the end of the epoch until it is done or the output is full.
    pub(super) fn close_epoch(&mut self, out: &mut Output) -> Result<Progress> {
        loop {
            while !self.pending.is_empty() {
                if out.is_full() {
                    return Ok(Progress::More);
                }
                self.emit_pending(out)?;
            }
            if out.is_full() {
                return Ok(Progress::More);
            }
            self.stage = match std::mem::take(&mut self.stage) {
                Stage::Idle => return Ok(Progress::Done),
                Stage::Touched(next) => self.compare(next)?,
                Stage::Expired => self.expire()?,
                Stage::Watermarks => self.finish(out),
            };
        }
    }

    /// Compares some touched partitions with what they were at the start of the epoch.
    fn compare(&mut self, next: usize) -> Result<Stage> {
        self.pending.clear();
        let end = self.touched.len().min(next + PARTITIONS_PER_STEP);
        let mut keys = EncodedRows::new();
        (next..end).for_each(|number| keys.push(self.touched.key(number)));
        self.partitions.load(&keys)?;
        let mut list = Vec::new();
        let mut number = next;
        while number < end && self.pending.changes.len() < CHUNK_ROWS {
            let bound = self.partitions.head(self.touched.key(number), &self.window, &mut list)?;
            let (mut old, mut new) = (Vec::new(), Vec::new());
            self.window.select(packed::entries(self.touched.head(number)), &mut old)?;
            self.window.select(packed::entries(&list), &mut new)?;
            let pending = &mut self.pending;
            differences(&old, &new, |row, change| {
                pending.partitions.push(number);
                pending.keys.push(row.key);
                pending.exact.push(row.exact);
                pending.ranks.push(row.rank);
                pending.changes.push(change);
            });
            if let (true, Bound::After(last)) = (self.append_only, bound) {
                self.partitions.prune(self.touched.key(number), &last)?;
            }
            number += 1;
        }
        self.account();
        Ok(if number < self.touched.len() { Stage::Touched(number) } else { Stage::Expired })
    }

    /// Puts out the next chunk of what was found.
    fn emit_pending(&mut self, out: &mut Output) -> Result<()> {
        let pending = &mut self.pending;
        let (mut rows, mut ops) = (Vec::new(), Vec::new());
        while rows.len() < CHUNK_ROWS && pending.next < pending.changes.len() {
            let place = pending.next;
            let change = pending.changes[place];
            let copies = change.unsigned_abs().min((CHUNK_ROWS - rows.len()) as u64);
            let row = OutputRow {
                partition: self.touched.key(pending.partitions[place]),
                key: pending.keys.row(place),
                exact: pending.exact.row(place),
                rank: pending.ranks[place],
            };
            rows.extend(std::iter::repeat_n(row, copies as usize));
            ops.extend(std::iter::repeat_n(Op::from_sign(change.signum() as i8), copies as usize));
            pending.changes[place] -= change.signum() * copies as i64;
            if pending.changes[place] == 0 {
                pending.next += 1;
            }
        }
        out.emit(Chunk::new(self.layout.decode(&rows)?, ops));
        Ok(())
    }

    /// Drops some partitions that the watermark has passed. Their rows stay in the output.
    fn expire(&mut self) -> Result<Stage> {
        let Some((below, timers)) = self.event_time.closing().zip(self.timers.as_mut()) else { return Ok(Stage::Watermarks) };
        let mut keys = EncodedRows::new();
        let more = timers.take_due(below, PARTITIONS_PER_STEP, |key, _| keys.push(key))?;
        for key in keys.iter() {
            self.partitions.remove(key)?;
        }
        Ok(if more { Stage::Expired } else { Stage::Watermarks })
    }

    /// Forgets the epoch, and forwards watermarks after the rows they allow to forget.
    fn finish(&mut self, out: &mut Output) -> Stage {
        if self.open_written {
            (0..self.touched.len()).for_each(|number| self.open.delete(self.touched.key(number)));
            self.open_written = false;
        }
        self.touched.clear();
        self.pending.clear();
        self.adopt_open();
        self.account();
        for (column, micros) in self.event_time.close() {
            out.emit_watermark(Watermark { column, micros });
        }
        Stage::Idle
    }

    /// Tells the budget what the open epoch takes.
    pub(super) fn account(&self) {
        self.memory.resize(self.touched.memory_bytes() + self.pending.memory_bytes());
    }
}
