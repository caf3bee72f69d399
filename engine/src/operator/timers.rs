//! Event-time timers: which keys of an operator's state tables die (or are due) when the watermark passes a time.
//!
//! Table: one prefix per key group -> (time, key) -> a value of the operator's choice, so that the due ones of a group lie at its head. The earliest time of each
//! group is kept in memory, so a watermark that makes nothing due reads nothing.

use std::ops::{ControlFlow, Range};

use millpond_storage::{
    encoding::EncodedRows,
    state_table::{RangeTable, StateTable},
};

use super::key_groups::GroupKeys;
use crate::error::Result;

const TIME_BYTES: usize = 8;

/// See the module.
pub(crate) struct Timers {
    table: RangeTable,
    groups: GroupKeys,
    /// No timer of the key group is earlier.
    earliest: Vec<i64>,
}

impl Timers {
    /// Timers of the key groups that a subtask owns.
    pub(crate) fn new(table: RangeTable, groups: Range<u16>) -> Self {
        let earliest = vec![i64::MIN; groups.len()];
        Self { table, groups: GroupKeys::new(groups), earliest }
    }

    /// Place of the key group of a distribution key among those of the subtask.
    pub(crate) fn place_of(&self, distribution_key: &[u8]) -> usize {
        self.groups.place_of(distribution_key)
    }

    /// Sets a timer. `distribution_key` is the part of `key` that decides its key group.
    pub(crate) fn set(&mut self, time: i64, distribution_key: &[u8], key: &[u8], value: &[u8]) {
        let place = self.groups.place_of(distribution_key);
        self.earliest[place] = self.earliest[place].min(time);
        self.table.put(&self.groups.keys()[place], &suffix(time, key), value);
    }

    /// Takes a timer back.
    pub(crate) fn clear(&mut self, time: i64, distribution_key: &[u8], key: &[u8]) {
        let place = self.groups.place_of(distribution_key);
        self.table.delete(&self.groups.keys()[place], &suffix(time, key));
    }

    /// Removes up to `limit` timers before `below` and gives them to `f` as (key, value). Returns whether there may be more.
    pub(crate) fn take_due(&mut self, below: i64, limit: usize, mut f: impl FnMut(&[u8], &[u8])) -> Result<bool> {
        let mut taken = 0;
        let mut due = EncodedRows::new();
        for place in 0..self.earliest.len() {
            if self.earliest[place] >= below {
                continue;
            }
            if taken >= limit {
                return Ok(true);
            }
            due.clear();
            let mut next = i64::MAX;
            let room = limit - taken;
            self.table.scan(&self.groups.keys()[place], None, room + 1, &mut |suffix, value| {
                let time = time_of(suffix);
                if time >= below || due.len() == room {
                    next = time;
                    return ControlFlow::Break(());
                }
                due.push(suffix);
                f(&suffix[TIME_BYTES..], value);
                ControlFlow::Continue(())
            })?;
            self.earliest[place] = next;
            taken += due.len();
            due.iter().for_each(|suffix| self.table.delete(&self.groups.keys()[place], suffix));
            if next < below {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The state table.
    pub(crate) fn table(&mut self) -> &mut dyn StateTable {
        &mut self.table
    }
}

/// Times in byte order, then the key.
fn suffix(time: i64, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TIME_BYTES + key.len());
    bytes.extend_from_slice(&((time as u64) ^ (1 << 63)).to_be_bytes());
    bytes.extend_from_slice(key);
    bytes
}

fn time_of(suffix: &[u8]) -> i64 {
    let bytes = suffix.first_chunk::<TIME_BYTES>().copied().unwrap_or_default();
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}
