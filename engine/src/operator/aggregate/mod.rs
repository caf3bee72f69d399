//! Groups rows and maintains aggregates per group.
//!
//! Any changelog in. Out: per epoch and changed group one update (before, after), an insert for a new group, a delete for one without rows;
//! nothing where the results are equal. Without group columns there is exactly one row, from the first barrier on. With `emit_on_close` a
//! group is emitted once, as an insert, when the watermark has passed it; then the output is append-only.
//!
//! State (keys are the key encoding of the group columns):
//! - table 0: group -> flags, rows, accumulators. Dies when the group has no rows, or when the watermark passes its `expiry` column.
//! - table 1: group -> the last epoch closed, and what was last emitted, for groups that an open epoch has changed. Written by a snapshot
//!   within an epoch and by eviction; an entry dies when its group's change is emitted.
//! - table 2: group -> (set, value) -> counts: the values behind DISTINCT, min, max and ordered aggregates. Dies with the group.
//! - table 3: timers: event time of the groups in table 0. Only with `expiry` or `emit_on_close`.
//!
//! Watermarks on group columns are forwarded at the barrier, after the rows of the epoch. A row of a group that the watermark had passed at
//! the last barrier is late: it goes to the side output.
//!
//! Within a chunk the rows are grouped first; a group's state is looked up once per chunk. Groups in use stay in typed columns in memory
//! ([`groups`]); a change costs the same however large its group is, except for `string_agg` and `array_agg`, whose results are as long as
//! the group.

mod emit;
mod groups;
mod plan;
mod values;

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array},
    buffer::BooleanBuffer,
    compute::filter_record_batch,
    datatypes::SchemaRef,
};
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec},
    epoch::Epoch,
    state_table::StateTable,
};

use self::{
    emit::Stage,
    groups::Groups,
    plan::Route,
    values::{ChunkRows, Values},
};
use super::{
    event_time::{micros, without_late},
    timers::Timers,
};
use crate::{
    accumulator::Rows,
    chunk::Chunk,
    error::Result,
    expression::{keep_rows, without_nulls},
    message::{Barrier, Watermark},
    operator::{Operator, Output, Progress, SideOutput},
};

/// See the module.
pub(crate) struct Aggregate {
    name: String,
    schema: SchemaRef,
    group_by: Vec<usize>,
    codec: KeyCodec,
    routes: Vec<Route>,
    groups: Groups,
    values: Option<Values>,
    timers: Option<Timers>,
    /// Group position of the event time by which groups die.
    time_position: Option<usize>,
    emit_on_close: bool,
    /// Watermark of each group position, as received and as forwarded.
    watermarks: Vec<(Option<i64>, Option<i64>)>,
    /// The watermark of the time position at the last barrier.
    applied: i64,
    /// The epoch that is being closed, or was last.
    closing_epoch: Epoch,
    stage: Stage,
    side: Arc<dyn SideOutput>,
    scratch: Scratch,
}

/// Buffers of one chunk, kept for the next.
#[derive(Default)]
struct Scratch {
    keys: EncodedRows,
    /// Slot of each row.
    slots: Vec<u32>,
    /// Groups of the chunk, each once.
    groups: Vec<u32>,
    /// Groups that are new in memory, and a row of each.
    fresh: Vec<u32>,
    fresh_rows: Vec<u32>,
    signs: Vec<i8>,
    stored: Vec<u32>,
}

impl Aggregate {
    fn is_global(&self) -> bool {
        self.group_by.is_empty()
    }

    /// The rows of `chunk` that are not late.
    fn divert_late(&self, chunk: Chunk, times: &Int64Array) -> Result<Chunk> {
        if self.applied == i64::MIN {
            return Ok(chunk);
        }
        let divert = |row, reason| self.side.late_row(&self.name, row, reason, None);
        let Some(kept) = without_late(chunk.batch(), times, self.applied, divert) else { return Ok(chunk) };
        Ok(keep_rows(&chunk, filter_record_batch(chunk.batch(), &kept)?, &kept))
    }

    /// Event time of each row, if groups die by it.
    fn times(&self, columns: &[ArrayRef]) -> Result<Option<Int64Array>> {
        self.time_position.map(|position| micros(&columns[self.group_by[position]])).transpose()
    }

    /// Gives every row the slot of its group, and loads the groups that were not in memory.
    fn assign_slots(&mut self, columns: &[ArrayRef], rows: usize, times: Option<&Int64Array>) -> Result<()> {
        let Scratch { keys, slots, groups, fresh, fresh_rows, .. } = &mut self.scratch;
        keys.clear();
        slots.clear();
        groups.clear();
        fresh.clear();
        fresh_rows.clear();
        if self.group_by.is_empty() {
            (0..rows).for_each(|_| keys.push(&[]));
        } else {
            let columns: Vec<ArrayRef> = self.group_by.iter().map(|column| Arc::clone(&columns[*column])).collect();
            self.codec.encode_into(&columns, keys)?;
        }
        let mut previous: Option<(&[u8], u32)> = None;
        for (row, key) in keys.iter().enumerate() {
            if let Some((_, slot)) = previous.filter(|(previous, _)| *previous == key) {
                slots.push(slot);
                continue;
            }
            let (slot, is_new) = self.groups.map.intern(key);
            if is_new {
                fresh.push(slot);
                fresh_rows.push(row as u32);
            }
            slots.push(slot);
            previous = Some((key, slot));
        }
        self.groups.resize();
        self.groups.load(fresh)?;
        if let Some(times) = times {
            for (slot, row) in fresh.iter().zip(fresh_rows.iter()) {
                let row = *row as usize;
                self.groups.set_time(*slot, if times.is_valid(row) { times.value(row) } else { i64::MAX });
            }
        }
        Ok(())
    }

    /// Marks the groups of the chunk as changed, keeping what was last emitted of each.
    fn touch_groups(&mut self) -> Result<()> {
        self.groups.chunks = self.groups.chunks.wrapping_add(1);
        let chunk = self.groups.chunks;
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for slot in &self.scratch.slots {
            if self.groups.meta[*slot as usize].used == chunk {
                continue;
            }
            self.scratch.groups.push(*slot);
            if let Some(shadow) = self.groups.touch(*slot, !self.emit_on_close) {
                from.push(*slot);
                to.push(shadow);
            }
        }
        if let Some(values) = self.values.as_mut().filter(|values| values.has_ordered() && !from.is_empty()) {
            values.compute_all_ordered(&from, &to, &mut self.groups)?;
        }
        Ok(())
    }

    fn update_calls(&mut self, chunk: &Chunk) -> Result<()> {
        let columns = chunk.batch().columns();
        let Scratch { slots, signs, groups, .. } = &mut self.scratch;
        signs.clear();
        signs.extend(chunk.ops().unwrap_or_default().iter().map(|op| op.sign()));
        let signs = chunk.ops().map(|_| signs.as_slice());
        let filters = filters_of(&self.routes, columns);
        let rows = Rows { slots, signs, selected: None };
        let counts = &mut self.groups.rows;
        rows.for_each(None, |_, slot, sign| counts[slot] += sign);
        let chunk = ChunkRows { columns, slots, signs, filters: &filters, groups };
        for (call, route) in self.routes.iter().enumerate() {
            if let Route::Rows { arguments, filter } = route {
                let arguments: Vec<ArrayRef> = arguments.iter().map(|column| Arc::clone(&columns[*column])).collect();
                let rows = Rows { slots, signs, selected: chunk.selected(*filter) };
                self.groups.calls[call].accumulator_mut().update(&rows, &arguments)?;
            }
        }
        match &mut self.values {
            Some(values) => values.update(&mut self.groups, &chunk),
            None => Ok(()),
        }
    }

    /// Sets the timers of groups that have just been written to the state table for the first time.
    fn set_timers(&mut self) {
        if let Some(timers) = &mut self.timers {
            for slot in &self.scratch.stored {
                let time = self.groups.times[*slot as usize];
                if time != i64::MAX {
                    let key = self.groups.map.key(*slot);
                    timers.set(time, key, key, &[]);
                }
            }
        }
        self.scratch.stored.clear();
    }

    fn relieve(&mut self) {
        if self.groups.relieve(self.scratch.keys.memory_bytes()) {
            let victims = self.groups.write_oldest(&mut self.scratch.stored);
            self.set_timers();
            self.groups.evict(&victims);
        }
    }

    /// Removes a group from memory and from the state tables. Where it died for lack of rows, its sets of values are empty already.
    fn remove_group(&mut self, slot: u32, with_values: bool) -> Result<()> {
        let key = self.groups.map.key(slot);
        if let Some(timers) = &mut self.timers {
            let time = self.groups.times[slot as usize];
            if self.groups.is_stored(slot) && time != i64::MAX {
                timers.clear(time, key, key);
            }
        }
        if let Some(values) = self.values.as_mut().filter(|_| with_values) {
            values.delete_group(key)?;
        }
        self.groups.remove(slot);
        Ok(())
    }
}

impl Operator for Aggregate {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        let times = self.times(chunk.batch().columns())?;
        let before = chunk.num_rows();
        let chunk = match &times {
            Some(times) => self.divert_late(chunk, times)?,
            None => chunk,
        };
        let times = if chunk.num_rows() == before { times } else { self.times(chunk.batch().columns())? };
        self.assign_slots(chunk.batch().columns(), chunk.num_rows(), times.as_ref())?;
        self.touch_groups()?;
        self.update_calls(&chunk)?;
        self.relieve();
        Ok(Progress::Done)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress> {
        self.close_epoch(out)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, _out: &mut Output) -> Result<Progress> {
        for (column, (received, _)) in self.group_by.iter().zip(&mut self.watermarks) {
            if *column == watermark.column {
                *received = (*received).max(Some(watermark.micros));
            }
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, barrier: &Barrier, out: &mut Output) -> Result<Progress> {
        self.closing_epoch = barrier.epoch;
        self.stage = Stage::Touched(0);
        self.close_epoch(out)
    }

    fn snapshot(&mut self, _epoch: Epoch) -> Result<()> {
        self.groups.write_all(&mut self.scratch.stored);
        self.set_timers();
        Ok(())
    }

    fn applied_watermark(&self) -> Option<i64> {
        Some(self.applied)
    }

    fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        let mut tables: Vec<&mut dyn StateTable> = self.groups.tables().into();
        tables.extend(self.values.as_mut().map(|values| &mut values.table as &mut dyn StateTable));
        tables.extend(self.timers.as_mut().map(Timers::table));
        tables
    }
}

/// The rows that pass each filter column that a call has.
fn filters_of(routes: &[Route], columns: &[ArrayRef]) -> Vec<(usize, BooleanBuffer)> {
    let mut filters: Vec<(usize, BooleanBuffer)> = Vec::new();
    for column in routes.iter().flat_map(Route::filters) {
        if filters.iter().all(|(other, _)| other != column) {
            filters.push((*column, without_nulls(columns[*column].as_boolean()).values().clone()));
        }
    }
    filters
}

#[cfg(test)]
mod tests;
