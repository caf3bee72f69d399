//! The groups in memory: key -> slot, typed columns per slot, and their way to and from the state tables.
//!
//! A group's columns are changed in place. What differs from the state table is *dirty* and written as bytes at a snapshot, a few groups at
//! each barrier, and when memory is short. What an open epoch has changed is *touched*: the values last emitted stay in a second slot, the
//! *shadow*, until the epoch closes.

use std::{collections::VecDeque, ops::ControlFlow};

use arrow::array::ArrayRef;
use millpond_storage::{
    encoding::EncodedRows,
    epoch::Epoch,
    memory::MemoryHandle,
    state_table::{PointTable, StateTable},
};

use crate::{
    accumulator::{
        Accumulator, CallState,
        bytes::{get_array, get_i64, put_integer},
    },
    error::Result,
    operator::slot_map::SlotMap,
};

/// No shadow.
pub(super) const NO_SHADOW: u32 = u32::MAX;
/// Groups of so many bytes stay in memory even when others have taken the whole budget: a chunk's worth, a few times over.
const BYTES_KEPT: usize = 1 << 20;
/// Groups written at each barrier, so that a checkpoint finds little left.
const WRITTEN_PER_BARRIER: usize = 2_048;

/// Bytes of an epoch in front of an entry of the table of open changes.
const EPOCH_BYTES: usize = 8;

/// The state table has an entry for the group.
pub(super) const STORED: u8 = 1;
/// The entry differs from the slot.
pub(super) const DIRTY: u8 = 2;
/// Changed in the open epoch.
pub(super) const TOUCHED: u8 = 4;
/// The output holds a row of the group as of the last barrier.
pub(super) const EMITTED: u8 = 8;
/// The table of open changes has an entry for the group.
pub(super) const OPEN_STORED: u8 = 16;

#[derive(Clone, Copy)]
pub(super) struct Meta {
    pub(super) shadow: u32,
    /// Number of the chunk that used the group last.
    pub(super) used: u32,
    pub(super) flags: u8,
}

const EMPTY: Meta = Meta { shadow: NO_SHADOW, used: 0, flags: 0 };

/// See the module.
pub(super) struct Groups {
    pub(super) map: SlotMap,
    pub(super) meta: Vec<Meta>,
    /// Rows of the group, inserts minus deletes.
    pub(super) rows: Vec<i64>,
    /// Event time of the group, if groups die by it; else empty.
    pub(super) times: Vec<i64>,
    tracks_times: bool,
    /// No group in memory is earlier.
    earliest: i64,
    pub(super) calls: Vec<CallState>,
    /// Groups changed in the open epoch, in the order in which they were.
    pub(super) touched: Vec<u32>,
    dirty: VecDeque<u32>,
    /// group key -> flags, rows, accumulators.
    pub(super) states: PointTable,
    /// group key -> the last epoch that was closed and what was last emitted; for groups changed in the open epoch, when it was snapshotted or
    /// they were evicted.
    pub(super) open: PointTable,
    /// The last epoch that was closed.
    pub(super) closed: Epoch,
    /// Entries of `open` whose group is not in memory.
    pub(super) open_evicted: usize,
    pub(super) chunks: u32,
    memory: MemoryHandle,
}

impl Groups {
    pub(super) fn new(
        calls: Vec<CallState>,
        tracks_times: bool,
        (states, open): (PointTable, PointTable),
        closed: Epoch,
        memory: MemoryHandle,
    ) -> Self {
        Self {
            tracks_times,
            times: Vec::new(),
            earliest: i64::MAX,
            map: SlotMap::new(),
            meta: Vec::new(),
            rows: Vec::new(),
            calls,
            touched: Vec::new(),
            dirty: VecDeque::new(),
            states,
            open,
            closed,
            open_evicted: 0,
            chunks: 0,
            memory,
        }
    }

    fn accumulators(&mut self) -> impl Iterator<Item = &mut dyn Accumulator> {
        self.calls.iter_mut().map(CallState::accumulator_mut)
    }

    /// Makes all columns as long as the map has slots.
    pub(super) fn resize(&mut self) {
        let slots = self.map.capacity();
        if slots == self.meta.len() {
            return;
        }
        self.meta.resize(slots, EMPTY);
        self.rows.resize(slots, 0);
        if self.tracks_times {
            self.times.resize(slots, i64::MAX);
        }
        self.accumulators().for_each(|accumulator| accumulator.resize(slots));
    }

    /// A slot without a key, for a shadow.
    fn allocate_shadow(&mut self) -> u32 {
        let shadow = self.map.allocate();
        self.resize();
        shadow
    }

    /// Empties a slot and gives it back.
    pub(super) fn release(&mut self, slot: u32) {
        let shadow = self.meta[slot as usize].shadow;
        if shadow != NO_SHADOW {
            self.release_one(shadow);
        }
        self.release_one(slot);
    }

    fn release_one(&mut self, slot: u32) {
        self.meta[slot as usize] = EMPTY;
        self.rows[slot as usize] = 0;
        if self.tracks_times {
            self.times[slot as usize] = i64::MAX;
        }
        self.accumulators().for_each(|accumulator| accumulator.clear(slot));
        self.map.release(slot);
    }

    /// Reads the states of slots that have just got their key. `now_touched` takes those whose change was still open.
    pub(super) fn load(&mut self, fresh: &[u32]) -> Result<()> {
        if fresh.is_empty() {
            return Ok(());
        }
        let keys: EncodedRows = fresh.iter().map(|slot| self.map.key(*slot)).collect();
        self.states.load(&keys)?;
        if self.open_evicted > 0 {
            self.open.load(&keys)?;
        }
        for (row, slot) in fresh.iter().enumerate() {
            let key = keys.row(row);
            if let Some(state) = self.states.get(key) {
                let input = &mut &*state;
                let flags = get_array(input, 1)?[0];
                self.meta[*slot as usize].flags = STORED | (flags & EMITTED);
                read_slot(&mut self.rows, &mut self.calls, *slot, input)?;
            }
            if self.open_evicted > 0 && self.open.get(key).is_some() {
                self.reopen(*slot, key)?;
            }
        }
        Ok(())
    }

    /// Puts a group back among the touched ones, with what was last emitted of it.
    fn reopen(&mut self, slot: u32, key: &[u8]) -> Result<()> {
        let bytes = self.open.get(key).map(<[u8]>::to_vec).unwrap_or_default();
        let input = &mut bytes.as_slice();
        get_array(input, EPOCH_BYTES)?;
        if get_array(input, 1)?[0] != 0 {
            let shadow = self.allocate_shadow();
            read_slot(&mut self.rows, &mut self.calls, shadow, input)?;
            self.meta[slot as usize].shadow = shadow;
        }
        self.meta[slot as usize].flags |= TOUCHED | OPEN_STORED;
        self.touched.push(slot);
        self.open_evicted -= 1;
        Ok(())
    }

    /// Notes that a group changes in the open epoch; keeps what was last emitted of it. Returns its shadow when one was made now.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32, keep_emitted: bool) -> Option<u32> {
        let meta = &mut self.meta[slot as usize];
        meta.used = self.chunks;
        if meta.flags & DIRTY == 0 {
            meta.flags |= DIRTY;
            self.dirty.push_back(slot);
        }
        if !keep_emitted || meta.flags & TOUCHED != 0 {
            return None;
        }
        meta.flags |= TOUCHED;
        self.touched.push(slot);
        (meta.flags & EMITTED != 0).then(|| self.make_shadow(slot))
    }

    fn make_shadow(&mut self, slot: u32) -> u32 {
        let shadow = self.allocate_shadow();
        self.meta[slot as usize].shadow = shadow;
        self.rows[shadow as usize] = self.rows[slot as usize];
        self.accumulators().for_each(|accumulator| accumulator.copy(slot, shadow));
        shadow
    }

    /// Ends the open change of a group: its row is, or is not, in the output now.
    pub(super) fn settle(&mut self, slot: u32, emitted: bool) {
        let meta = self.meta[slot as usize];
        if meta.shadow != NO_SHADOW {
            self.release_one(meta.shadow);
        }
        if meta.flags & OPEN_STORED != 0 {
            self.open.delete(self.map.key(slot));
        }
        let was_emitted = meta.flags & EMITTED != 0;
        let meta = &mut self.meta[slot as usize];
        meta.shadow = NO_SHADOW;
        meta.flags &= !(TOUCHED | OPEN_STORED | EMITTED);
        meta.flags |= if emitted { EMITTED } else { 0 };
        if was_emitted != emitted && meta.flags & DIRTY == 0 {
            // The entry was written while the epoch was open.
            meta.flags |= DIRTY;
            self.dirty.push_back(slot);
        }
    }

    /// Whether the state table has an entry for the group.
    pub(super) fn is_stored(&self, slot: u32) -> bool {
        self.meta[slot as usize].flags & STORED != 0
    }

    /// Whether the output holds a row of the group as of the last barrier.
    pub(super) fn is_emitted(&self, slot: u32) -> bool {
        self.meta[slot as usize].flags & EMITTED != 0
    }

    /// Groups in memory whose time is before `below`, in the order of their slots.
    pub(super) fn due(&mut self, below: i64) -> Vec<u32> {
        if self.earliest >= below {
            return Vec::new();
        }
        let mut due = Vec::new();
        self.earliest = i64::MAX;
        for (slot, time) in self.times.iter().enumerate() {
            if *time >= below {
                self.earliest = self.earliest.min(*time);
            } else if self.map.is_keyed(slot as u32) {
                due.push(slot as u32);
            }
        }
        due
    }

    /// Sets the event time of a group.
    pub(super) fn set_time(&mut self, slot: u32, time: i64) {
        self.times[slot as usize] = time;
        self.earliest = self.earliest.min(time);
    }

    /// Counts the open changes that a restored state holds.
    pub(super) fn find_open(&mut self) -> Result<()> {
        self.open_evicted = self.open_keys(Epoch(u64::MAX))?.len();
        Ok(())
    }

    /// Keys of the groups in the table whose open change ends with the epoch `closing`. A subtask that was restored may have some of another
    /// one that had closed it before.
    pub(super) fn open_keys(&mut self, closing: Epoch) -> Result<EncodedRows> {
        let mut keys = EncodedRows::new();
        self.open.scan_all(&mut |key, value| {
            let closed = value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            if Epoch(closed) < closing {
                keys.push(key);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(keys)
    }

    /// Forgets the results of ordered calls, which are computed anew when needed.
    pub(super) fn forget_ordered(&mut self, slots: &[u32]) {
        for call in &mut self.calls {
            if let CallState::Ordered(ordered) = call {
                ordered.forget(slots);
            }
        }
    }

    /// Removes a group and its state.
    pub(super) fn remove(&mut self, slot: u32) {
        if self.meta[slot as usize].flags & STORED != 0 {
            self.states.delete(self.map.key(slot));
        }
        if self.meta[slot as usize].flags & OPEN_STORED != 0 {
            self.open.delete(self.map.key(slot));
        }
        self.release(slot);
    }

    /// Results of slots, one array per call.
    pub(super) fn evaluate(&self, slots: &[u32]) -> Result<Vec<ArrayRef>> {
        self.calls.iter().map(|call| call.accumulator().evaluate(slots)).collect()
    }

    /// Writes the state of a group, if it is dirty. Returns whether the table had no entry for it before.
    fn write(&mut self, slot: u32, buffer: &mut Vec<u8>) -> bool {
        let flags = self.meta[slot as usize].flags;
        if flags & DIRTY == 0 {
            return false;
        }
        buffer.clear();
        buffer.push(flags & EMITTED);
        write_slot(&self.rows, &self.calls, slot, buffer);
        self.states.put(self.map.key(slot), buffer);
        self.meta[slot as usize].flags = (flags & !DIRTY) | STORED;
        flags & STORED == 0
    }

    /// Writes what was last emitted of a group that the open epoch has changed.
    fn write_open(&mut self, slot: u32, buffer: &mut Vec<u8>) {
        let Meta { shadow, flags, .. } = self.meta[slot as usize];
        if flags & TOUCHED == 0 || flags & OPEN_STORED != 0 {
            return;
        }
        buffer.clear();
        buffer.extend_from_slice(&self.closed.0.to_be_bytes());
        buffer.push(u8::from(shadow != NO_SHADOW));
        if shadow != NO_SHADOW {
            write_slot(&self.rows, &self.calls, shadow, buffer);
        }
        self.open.put(self.map.key(slot), buffer);
        self.meta[slot as usize].flags |= OPEN_STORED;
    }

    /// Writes everything that the state tables do not have yet. `stored` gets the groups that are new to them.
    pub(super) fn write_all(&mut self, stored: &mut Vec<u32>) {
        let mut buffer = Vec::new();
        while let Some(slot) = self.dirty.pop_front() {
            if self.write(slot, &mut buffer) {
                stored.push(slot);
            }
        }
        for index in 0..self.touched.len() {
            self.write_open(self.touched[index], &mut buffer);
        }
    }

    /// Writes a few groups that have been dirty longest.
    pub(super) fn write_some(&mut self, stored: &mut Vec<u32>) {
        let mut buffer = Vec::new();
        for _ in 0..WRITTEN_PER_BARRIER.min(self.dirty.len() / 8) {
            let Some(slot) = self.dirty.pop_front() else { return };
            if self.write(slot, &mut buffer) {
                stored.push(slot);
            }
        }
    }

    /// Counts the memory held; when the budget is exceeded, writes and drops the groups used longest ago. `stored` gets the
    /// written groups that are new to the table, with their keys still in place; `evict` must follow.
    pub(super) fn relieve(&mut self, other_bytes: usize) -> bool {
        self.memory.resize(self.memory_bytes() + other_bytes);
        self.memory.over_budget() && self.memory_bytes() + other_bytes > BYTES_KEPT
    }

    /// Chooses the groups to drop and writes them; the caller drops them with [`Groups::evict`].
    pub(super) fn write_oldest(&mut self, stored: &mut Vec<u32>) -> Vec<u32> {
        let used = |slot: u32| self.chunks.wrapping_sub(self.meta[slot as usize].used);
        let oldest = self.map.keyed_slots().map(used).max().unwrap_or(0);
        let victims: Vec<u32> = self.map.keyed_slots().filter(|slot| used(*slot) >= oldest.div_ceil(2).max(1)).collect();
        let mut buffer = Vec::new();
        for slot in &victims {
            if self.write(*slot, &mut buffer) {
                stored.push(*slot);
            }
            self.write_open(*slot, &mut buffer);
        }
        victims
    }

    /// Drops groups that were written, and gives memory back.
    pub(super) fn evict(&mut self, victims: &[u32]) {
        for slot in victims {
            if self.meta[*slot as usize].flags & TOUCHED != 0 {
                self.open_evicted += 1;
            }
            self.release(*slot);
        }
        let meta = &self.meta;
        let map = &self.map;
        self.touched.retain(|slot| map.is_keyed(*slot) && meta[*slot as usize].flags & TOUCHED != 0);
        self.dirty.retain(|slot| map.is_keyed(*slot) && meta[*slot as usize].flags & DIRTY != 0);
        if self.map.len() < self.map.capacity() / 3 {
            self.compact();
        }
    }

    /// Moves all slots in use to the front, so that columns become short.
    fn compact(&mut self) {
        let before = self.map.capacity();
        let moves = self.map.compact();
        let mut renumbered = vec![NO_SHADOW; before];
        for (old, new) in &moves {
            renumbered[*old as usize] = *new;
            self.meta[*new as usize] = self.meta[*old as usize];
            self.rows[*new as usize] = self.rows[*old as usize];
            if self.tracks_times {
                self.times[*new as usize] = self.times[*old as usize];
            }
            if old != new {
                self.accumulators().for_each(|accumulator| accumulator.copy(*old, *new));
            }
        }
        for slot in moves.len()..before {
            self.accumulators().for_each(|accumulator| accumulator.clear(slot as u32));
        }
        for (_, new) in &moves {
            let shadow = &mut self.meta[*new as usize].shadow;
            if *shadow != NO_SHADOW {
                *shadow = renumbered[*shadow as usize];
            }
        }
        self.touched.iter_mut().for_each(|slot| *slot = renumbered[*slot as usize]);
        self.dirty.iter_mut().for_each(|slot| *slot = renumbered[*slot as usize]);
        self.resize();
        self.meta.shrink_to_fit();
        self.rows.shrink_to_fit();
    }

    fn memory_bytes(&self) -> usize {
        let accumulators: usize = self.calls.iter().map(|call| call.accumulator().memory_bytes()).sum();
        let columns = self.meta.capacity() * size_of::<Meta>() + (self.rows.capacity() + self.times.capacity()) * 8;
        accumulators + columns + self.map.memory_bytes() + (self.touched.capacity() + self.dirty.capacity()) * 4
    }

    pub(super) fn tables(&mut self) -> [&mut dyn StateTable; 2] {
        [&mut self.states, &mut self.open]
    }
}

fn write_slot(rows: &[i64], calls: &[CallState], slot: u32, out: &mut Vec<u8>) {
    put_integer(out, rows[slot as usize].into());
    calls.iter().for_each(|call| call.accumulator().encode(slot, out));
}

fn read_slot(rows: &mut [i64], calls: &mut [CallState], slot: u32, input: &mut &[u8]) -> Result<()> {
    rows[slot as usize] = get_i64(input)?;
    calls.iter_mut().try_for_each(|call| call.accumulator_mut().decode(slot, input))
}
