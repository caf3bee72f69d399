//! The end of an epoch: what the touched groups owe, groups that the watermark has closed, and then the watermarks themselves. It goes in
//! steps of bounded size, so that it can stop when the output is full.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, UInt32Array, make_comparator},
    buffer::BooleanBuffer,
    compute::{SortOptions, kernels::cmp::distinct, take},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use millpond_storage::encoding::EncodedRows;

use super::{
    Aggregate,
    groups::{NO_SHADOW, TOUCHED},
};
use crate::{
    chunk::{CHUNK_ROWS, Chunk, Op, value_text},
    error::{EngineError, Result},
    message::Watermark,
    operator::{Output, Progress, event_time::micros},
};

/// Groups handled in one step: each gives at most two rows.
const GROUPS_PER_STEP: usize = CHUNK_ROWS / 2;

/// Steps in one call, whether or not anything is emitted.
const STEPS_PER_CALL: usize = 16;

/// How far the end of the epoch has come.
#[derive(Default)]
pub(super) enum Stage {
    /// No epoch is ending.
    #[default]
    Idle,
    /// Touched groups in memory, from this place in the list on.
    Touched(usize),
    /// Touched groups that had to leave memory.
    Evicted { keys: EncodedRows, next: usize },
    /// Groups in memory that the watermark has passed.
    Due { slots: Vec<u32>, next: usize },
    /// Groups that the watermark has passed and that are in the state tables only.
    DueStored,
    /// Watermarks.
    Watermarks,
}

impl Aggregate {
    /// Goes on with the end of the epoch until it is done or the output is full.
    pub(super) fn close_epoch(&mut self, out: &mut Output) -> Result<Progress> {
        for _ in 0..STEPS_PER_CALL {
            if out.is_full() {
                return Ok(Progress::More);
            }
            self.stage = match std::mem::take(&mut self.stage) {
                Stage::Idle => return Ok(Progress::Done),
                Stage::Touched(next) => self.emit_touched(next, out)?,
                Stage::Evicted { keys, next } => self.emit_evicted(keys, next, out)?,
                Stage::Due { slots, next } => self.close_due(slots, next, out)?,
                Stage::DueStored => self.close_due_stored(out)?,
                Stage::Watermarks => self.finish(out),
            };
        }
        Ok(Progress::More)
    }

    fn emit_touched(&mut self, next: usize, out: &mut Output) -> Result<Stage> {
        if next == 0 && self.is_global() {
            self.ensure_global_group()?;
        }
        let end = self.groups.touched.len().min(next + GROUPS_PER_STEP);
        let step: Vec<u32> = self.groups.touched[next..end].to_vec();
        self.emit_changes(&step, out)?;
        if end < self.groups.touched.len() {
            return Ok(Stage::Touched(end));
        }
        self.groups.touched.clear();
        if self.groups.open_evicted > 0 {
            return Ok(Stage::Evicted { keys: self.groups.open_keys(self.closing_epoch)?, next: 0 });
        }
        Ok(self.due_stage())
    }

    /// The only group of an aggregate without group columns exists from the first barrier on.
    fn ensure_global_group(&mut self) -> Result<()> {
        let (slot, is_new) = self.groups.map.intern(&[]);
        if is_new {
            self.groups.resize();
            self.groups.load(&[slot])?;
            if !self.groups.is_emitted(slot) {
                self.groups.touch(slot, true);
            }
        }
        Ok(())
    }

    fn emit_evicted(&mut self, keys: EncodedRows, next: usize, out: &mut Output) -> Result<Stage> {
        let end = keys.len().min(next + GROUPS_PER_STEP);
        let rows: Vec<&[u8]> = (next..end).map(|row| keys.row(row)).collect();
        // Loading a group puts it back among the touched ones.
        self.bring_in(&rows)?;
        let step = std::mem::take(&mut self.groups.touched);
        self.emit_changes(&step, out)?;
        self.relieve();
        Ok(if end < keys.len() { Stage::Evicted { keys, next: end } } else { self.due_stage() })
    }

    /// Loads groups by their keys; returns their slots.
    fn bring_in(&mut self, keys: &[&[u8]]) -> Result<Vec<u32>> {
        let mut fresh = Vec::new();
        let slots = keys.iter().map(|key| {
            let (slot, is_new) = self.groups.map.intern(key);
            if is_new {
                fresh.push(slot);
            }
            slot
        });
        let slots: Vec<u32> = slots.collect();
        self.groups.resize();
        self.groups.load(&fresh)?;
        if let Some(position) = self.time_position {
            let column = self.codec.decode_wanted(fresh.iter().map(|slot| self.groups.map.key(*slot)), &[position])?.swap_remove(0);
            let times = micros(&column)?;
            for (row, slot) in fresh.iter().enumerate() {
                self.groups.set_time(*slot, if times.is_valid(row) { times.value(row) } else { i64::MAX });
            }
        }
        Ok(slots)
    }

    /// Emits what touched groups owe and ends their change.
    fn emit_changes(&mut self, step: &[u32], out: &mut Output) -> Result<()> {
        let global = self.is_global();
        let exists = |aggregate: &Self, slot: u32| global || aggregate.groups.rows[slot as usize] > 0;
        let (mut pairs, mut inserts, mut deletes) = (Vec::new(), Vec::new(), Vec::new());
        for slot in step {
            let meta = self.groups.meta[*slot as usize];
            if meta.flags & TOUCHED == 0 {
                continue;
            }
            match (meta.shadow != NO_SHADOW, exists(self, *slot)) {
                (true, true) => pairs.push(*slot),
                (false, true) => inserts.push(*slot),
                (true, false) => deletes.push(*slot),
                (false, false) => {}
            }
        }
        self.emit_rows(&pairs, &inserts, &deletes, out)?;
        for slot in step {
            if self.groups.meta[*slot as usize].flags & TOUCHED == 0 {
                continue;
            }
            let emitted = exists(self, *slot);
            self.groups.settle(*slot, emitted);
            if !emitted && self.groups.rows[*slot as usize] == 0 {
                self.remove_group(*slot, false)?;
            }
        }
        Ok(())
    }

    /// Emits updates where results differ, inserts and deletes.
    fn emit_rows(&mut self, pairs: &[u32], inserts: &[u32], deletes: &[u32], out: &mut Output) -> Result<()> {
        if let Some(values) = self.values.as_mut().filter(|values| values.has_ordered()) {
            let current: Vec<u32> = pairs.iter().chain(inserts).copied().collect();
            values.compute_all_ordered(&current, &current, &mut self.groups)?;
        }
        let shadow = |slot: &u32| self.groups.meta[*slot as usize].shadow;
        let slots = pairs.iter().map(shadow).chain(pairs.iter().copied()).chain(inserts.iter().copied());
        let slots: Vec<u32> = slots.chain(deletes.iter().map(shadow)).collect();
        let results = match self.groups.evaluate(&slots) {
            Ok(results) => results,
            Err(error) => {
                let groups: Vec<u32> = pairs.iter().chain(pairs).chain(inserts).chain(deletes).copied().collect();
                return Err(self.blame(error, &slots, &groups));
            }
        };
        self.groups.forget_ordered(&slots);
        let changed = differing(&results, pairs.len())?;
        // Rows of `results` and of the group keys, in output order.
        let (mut result_rows, mut key_rows, mut ops) = (Vec::new(), Vec::new(), Vec::new());
        for pair in changed.set_indices() {
            result_rows.extend([pair as u32, (pairs.len() + pair) as u32]);
            key_rows.extend([pair as u32; 2]);
            ops.extend([Op::UpdateBefore, Op::UpdateAfter]);
        }
        for row in 0..inserts.len() + deletes.len() {
            result_rows.push((2 * pairs.len() + row) as u32);
            key_rows.push((pairs.len() + row) as u32);
            ops.push(if row < inserts.len() { Op::Insert } else { Op::Delete });
        }
        if ops.is_empty() {
            return Ok(());
        }
        let groups = pairs.iter().chain(inserts).chain(deletes);
        let keys = self.codec.decode(groups.map(|slot| self.groups.map.key(*slot)))?;
        let gather = |columns: Vec<ArrayRef>, rows: Vec<u32>| -> Result<Vec<ArrayRef>> {
            if pairs.is_empty() {
                return Ok(columns);
            }
            let rows = UInt32Array::from(rows);
            columns.iter().map(|column| Ok(take(column, &rows, None)?)).collect()
        };
        let mut columns = if self.is_global() { Vec::new() } else { gather(keys, key_rows)? };
        columns.extend(gather(results, result_rows)?);
        let options = RecordBatchOptions::new().with_row_count(Some(ops.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        out.emit(Chunk::new(batch, ops));
        Ok(())
    }

    /// The error, saying for which of the groups it is that a result could not be computed.
    fn blame(&self, error: EngineError, slots: &[u32], groups: &[u32]) -> EngineError {
        let EngineError::User { sqlstate, message, hint } = error else { return error };
        let failing = slots.iter().zip(groups).find(|(slot, _)| self.groups.evaluate(&[**slot]).is_err());
        let keys = failing.and_then(|(_, group)| self.codec.decode([self.groups.map.key(*group)].into_iter()).ok());
        let message = match keys.filter(|_| !self.is_global()) {
            Some(keys) => {
                let values: Vec<String> = keys.iter().map(|key| value_text(key, 0)).collect();
                format!("{message} (aggregate of group {})", values.join(", "))
            }
            None => format!("{message} (aggregate of all rows)"),
        };
        EngineError::User { sqlstate, message, hint }
    }

    /// The watermark that closes groups, if it has moved.
    fn closing(&self) -> Option<i64> {
        let (received, _) = self.watermarks[self.time_position?];
        received.filter(|received| *received > self.applied)
    }

    fn due_stage(&mut self) -> Stage {
        match self.closing() {
            Some(below) => Stage::Due { slots: self.groups.due(below), next: 0 },
            None => Stage::Watermarks,
        }
    }

    fn close_due(&mut self, slots: Vec<u32>, next: usize, out: &mut Output) -> Result<Stage> {
        let end = slots.len().min(next + GROUPS_PER_STEP);
        self.close_groups(&slots[next..end], out)?;
        Ok(if end < slots.len() { Stage::Due { slots, next: end } } else { Stage::DueStored })
    }

    fn close_due_stored(&mut self, out: &mut Output) -> Result<Stage> {
        let Some((below, timers)) = self.closing().zip(self.timers.as_mut()) else { return Ok(Stage::Watermarks) };
        let mut keys = EncodedRows::new();
        let more = timers.take_due(below, GROUPS_PER_STEP, |key, _| keys.push(key))?;
        match self.emit_on_close {
            true => {
                let keys: Vec<&[u8]> = keys.iter().collect();
                let slots = self.bring_in(&keys)?;
                self.close_groups(&slots, out)?;
            }
            false => {
                for key in keys.iter() {
                    self.groups.states.delete(key);
                    if let Some(values) = &mut self.values {
                        values.delete_group(key)?;
                    }
                }
            }
        }
        Ok(if more { Stage::DueStored } else { Stage::Watermarks })
    }

    /// Ends groups: with `emit_on_close` they are emitted now; in any case their state dies.
    fn close_groups(&mut self, slots: &[u32], out: &mut Output) -> Result<()> {
        if self.emit_on_close {
            let present: Vec<u32> = slots.iter().copied().filter(|slot| self.groups.rows[*slot as usize] > 0).collect();
            self.emit_rows(&[], &present, &[], out)?;
        }
        slots.iter().try_for_each(|slot| self.remove_group(*slot, true))
    }

    /// Forwards watermarks, after the rows they allow to forget.
    fn finish(&mut self, out: &mut Output) -> Stage {
        self.applied = self.closing().unwrap_or(self.applied);
        for (position, (received, forwarded)) in self.watermarks.iter_mut().enumerate() {
            // Groups held back until their end may still be emitted below the watermark of another column.
            let holds = self.emit_on_close && self.time_position != Some(position);
            if let Some(micros) = received.filter(|micros| !holds && forwarded.is_none_or(|forwarded| forwarded < *micros)) {
                *forwarded = Some(micros);
                out.emit_watermark(Watermark { column: position, micros });
            }
        }
        self.groups.closed = self.closing_epoch;
        self.groups.write_some(&mut self.scratch.stored);
        self.set_timers();
        Stage::Idle
    }
}

/// Which of the first `pairs` rows differ, in any column, from the `pairs` rows that follow.
fn differing(columns: &[ArrayRef], pairs: usize) -> Result<BooleanBuffer> {
    let mut changed = BooleanBuffer::new_unset(pairs);
    for column in columns {
        let (before, after) = (column.slice(0, pairs), column.slice(pairs, pairs));
        let differs = match column.data_type().is_nested() {
            false => distinct(&before, &after)?.values().clone(),
            true => {
                let compare = make_comparator(&before, &after, SortOptions::default()).map_err(EngineError::from)?;
                BooleanBuffer::collect_bool(pairs, |row| compare(row, row).is_ne())
            }
        };
        changed = &changed | &differs;
    }
    Ok(changed)
}
