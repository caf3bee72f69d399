//! A table with hash access: key -> value.
//!
//! Entries live as records of [`Resident`]; evicted ones in the store, remembered by [`ColdKeys`]. An entry deleted while changelog or store
//! may have a version of it stays in memory as a tombstone until both have the deletion.

mod inherit;
mod restore;

use super::before_images::BeforeImages;
use super::blocks::{Handle, Loc};
use super::cold::ColdKeys;
use super::context::TableContext;
use super::dirty_queue::DirtyQueue;
use super::flush::FlushOrder;
use super::handed::{Heir, Inherited};
use super::left::LeftTable;
use super::merge::merge_with_store;
use super::resident::{Resident, hash_key};
use super::{ChangeSink, StateTable, TableId, VisitFn};
use crate::encoding::EncodedRows;
use crate::error::Result;
use crate::state_store::WriteOps;

const TOMBSTONE: u8 = 1;
/// The changelog lacks the entry.
const DIRTY: u8 = 1 << 1;
/// The store lacks the entry.
const UNFLUSHED: u8 = 1 << 2;
/// The store has a version of the entry, or may have.
const STORED: u8 = 1 << 3;
/// The changelog has a version of the entry, or may have.
const LOGGED: u8 = 1 << 4;
/// Used since the clock hand last came by.
const REFERENCED: u8 = 1 << 5;

/// Dirty bytes above which the older half goes to the changelog without waiting for the checkpoint.
const DIRTY_BOUND_BYTES: usize = 64 << 20;
/// Tombstones above which they are flushed.
const TOMBSTONE_BOUND: usize = 1 << 16;
const FLUSH_BYTES: usize = 1 << 20;
/// What the set of evicted keys may take of the budget.
const COLD_KEYS_SHARE: usize = 32;

/// A state table with hash access. Keys and values are byte strings; see the module above for the life of an entry.
pub struct PointTable {
    context: TableContext,
    resident: Resident,
    cold: ColdKeys,
    /// Records that became dirty, oldest first; some may have been moved, removed or logged since.
    dirty: DirtyQueue<Handle>,
    dirty_bytes: usize,
    /// Tombstones whose deletion the store lacks; some may be gone.
    tombstones: Vec<Handle>,
    /// Block the clock hand stands at.
    hand: usize,
    /// How many times in a row the table was asked to give back memory.
    pressure: u32,
    /// Next block to sweep.
    sweep: Option<usize>,
    scratch: Vec<u8>,
    /// What there is to go back to, if the task may be put back.
    images: Option<BeforeImages>,
    /// A call is under way, or one has failed: what is in memory may be half changed.
    in_call: bool,
    /// What has still to be taken over from tables of other tasks.
    inherited: Inherited<Self>,
}

impl PointTable {
    pub(crate) fn new(context: TableContext) -> Self {
        let cold = ColdKeys::new(context.memory.limit() / COLD_KEYS_SHARE);
        Self {
            context,
            resident: Resident::new(),
            cold,
            dirty: DirtyQueue::default(),
            dirty_bytes: 0,
            tombstones: Vec::new(),
            hand: 0,
            pressure: 0,
            sweep: None,
            scratch: Vec::new(),
            images: None,
            in_call: false,
            inherited: Inherited::default(),
        }
    }

    /// Makes sure that [`get`](Self::get) answers for `keys`: those that are not in memory are read in one sorted batch. Nearly free while
    /// everything is in memory. What was loaded stays until the next [`relieve`](StateTable::relieve).
    pub fn load(&mut self, keys: &EncodedRows) -> Result<()> {
        self.in_call = true;
        self.load_missing(keys)?;
        self.in_call = false;
        Ok(())
    }

    fn load_missing(&mut self, keys: &EncodedRows) -> Result<()> {
        self.resident.prefetch(keys.iter());
        if self.cold.is_empty() && self.inherited.is_empty() {
            return Ok(());
        }
        let mut missing = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let hash = hash_key(key);
            match self.find(hash, key) {
                Some(loc) => self.set_flags(loc, REFERENCED),
                None if self.cold.may_contain(hash) => {
                    let mut full_key = Vec::with_capacity(4 + key.len());
                    self.context.full_key(key, &mut full_key);
                    missing.push((full_key, index, hash));
                }
                None => {}
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        missing.sort_unstable();
        missing.dedup_by(|a, b| a.0 == b.0);
        let Some(store) = self.context.stored() else { return Ok(()) };
        let sorted: Vec<&[u8]> = missing.iter().map(|(key, ..)| key.as_slice()).collect();
        let (resident, cold) = (&mut self.resident, &mut self.cold);
        store.multi_get_sorted(&sorted, &mut |position, value| {
            let (_, index, hash) = missing[position];
            resident.insert(hash, keys.row(index), value, 0, STORED | LOGGED | REFERENCED);
            cold.remove(hash);
            Ok(())
        })
    }

    /// The value of `key`, if it was loaded or put since the last [`relieve`](StateTable::relieve), or if everything is in memory.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let loc = self.resident.find(hash_key(key), key)?;
        (self.resident.blocks().flags(loc) & TOMBSTONE == 0).then(|| self.resident.blocks().value(loc))
    }

    /// Sets `key` to `value`, whether or not the key was loaded.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.in_call = true;
        let hash = hash_key(key);
        let found = self.find(hash, key);
        self.note(hash, key, found);
        if let Some(loc) = found {
            let moved = self.resident.set_value(loc, value);
            self.touch(moved, moved != loc, 0);
        } else {
            let kept = if self.cold.may_contain(hash) { STORED | LOGGED } else { 0 };
            let loc = self.resident.insert(hash, key, value, 0, kept);
            self.touch(loc, true, 0);
        }
        self.in_call = false;
    }

    /// Removes `key`, if it is there, whether or not it was loaded.
    pub fn delete(&mut self, key: &[u8]) {
        self.in_call = true;
        let hash = hash_key(key);
        let found = self.find(hash, key);
        if found.is_some() || self.cold.may_contain(hash) {
            self.note(hash, key, found);
        }
        match found {
            Some(loc) if self.resident.blocks().flags(loc) & (STORED | LOGGED) == 0 => self.remove(loc),
            Some(loc) => self.bury(loc),
            None if self.cold.may_contain(hash) => {
                let loc = self.resident.insert(hash, key, &[], 0, STORED | LOGGED);
                self.bury(loc);
            }
            None => {}
        }
        self.in_call = false;
    }

    /// Visits all entries in order of key group, then key: in memory and in the store. For restarts and rare full passes.
    pub fn scan_all(&mut self, f: &mut VisitFn<'_>) -> Result<()> {
        while !self.take_over(usize::MAX) {}
        let blocks = self.resident.blocks();
        let mut entries: Vec<(u16, Loc)> = self.resident.locs().map(|loc| (self.context.group(blocks.key(loc)), loc)).collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| blocks.key(a.1).cmp(blocks.key(b.1))));
        let mut in_memory = entries.iter().map(|(group, loc)| {
            let (key, value) = blocks.entry(*loc);
            (*group, key, (blocks.flags(*loc) & TOMBSTONE == 0).then_some(value))
        });
        let store = if self.cold.is_empty() { None } else { self.context.stored() };
        merge_with_store(&self.context, store, &mut in_memory, f)
    }

    /// Writes and evicts what is beyond bounds; see [`StateTable::relieve`].
    pub fn relieve(&mut self) -> Result<()> {
        StateTable::relieve(self)
    }

    fn set_flags(&mut self, loc: Loc, flags: u8) {
        let old = self.resident.blocks().flags(loc);
        if old | flags != old {
            self.resident.blocks_mut().set_flags(loc, old | flags);
        }
    }

    /// Marks a record as changed. `moved`: handles to it are stale.
    fn touch(&mut self, loc: Loc, moved: bool, tombstone: u8) {
        let old = self.resident.blocks().flags(loc);
        let flags = (old & !TOMBSTONE) | DIRTY | UNFLUSHED | REFERENCED | tombstone;
        if flags != old {
            self.resident.blocks_mut().set_flags(loc, flags);
        }
        if old & DIRTY == 0 {
            self.dirty_bytes += self.resident.blocks().slot_bytes(loc);
        }
        if old & DIRTY == 0 || moved {
            self.dirty.push(self.resident.handle(loc));
        }
    }

    /// Turns a record into a tombstone.
    fn bury(&mut self, loc: Loc) {
        self.resident.blocks_mut().set_value_len(loc, 0);
        self.touch(loc, false, TOMBSTONE);
        if self.resident.blocks().flags(loc) & STORED != 0 {
            self.tombstones.push(self.resident.handle(loc));
        }
    }

    fn remove(&mut self, loc: Loc) {
        self.forget_dirt(loc);
        self.resident.remove(loc);
    }

    fn forget_dirt(&mut self, loc: Loc) {
        if self.resident.blocks().flags(loc) & DIRTY != 0 {
            self.dirty_bytes = self.dirty_bytes.saturating_sub(self.resident.blocks().slot_bytes(loc));
        }
    }

    /// Notes that the changelog has the record, and drops it if it is a tombstone that only the changelog needed.
    fn mark_logged(&mut self, loc: Loc) {
        self.forget_dirt(loc);
        let flags = self.resident.blocks().flags(loc) & !DIRTY;
        if flags & TOMBSTONE != 0 && flags & STORED == 0 {
            self.resident.remove(loc);
        } else {
            self.resident.blocks_mut().set_flags(loc, flags | LOGGED);
        }
    }

    /// Logs the records behind `handles` that are dirty.
    fn log_handles(&mut self, handles: &[Handle], sink: &mut ChangeSink<'_>) {
        let mut full_key = std::mem::take(&mut self.scratch);
        for handle in handles {
            let Some(loc) = self.resident.blocks().resolve(*handle) else { continue };
            let flags = self.resident.blocks().flags(loc);
            if flags & DIRTY == 0 {
                continue;
            }
            let (key, value) = self.resident.blocks().entry(loc);
            self.context.full_key(key, &mut full_key);
            sink(&full_key, (flags & TOMBSTONE == 0).then_some(value));
            self.mark_logged(loc);
        }
        self.scratch = full_key;
    }

    fn append_to_log(&mut self, handles: &[Handle]) {
        if !handles.is_empty() {
            let task = self.context.task.clone();
            let mut changelog = task.changelog.lock();
            self.log_handles(handles, &mut |key, value| changelog.append(key, value));
        }
    }

    /// Writes records to the changelog where they are dirty, then to the store, in key order. Tombstones are gone afterwards.
    fn flush(&mut self, locs: &[Loc]) -> Result<()> {
        if locs.is_empty() {
            return Ok(());
        }
        let blocks = self.resident.blocks();
        let order = FlushOrder::new(locs.iter().map(|loc| (blocks.key(*loc), *loc)), |key, out| self.context.full_key(key, out));
        let mut ops = WriteOps::new();
        let task = self.context.task.clone();
        let mut changelog = task.changelog.lock();
        for (full_key, loc) in order.iter() {
            let flags = blocks.flags(loc);
            let value = (flags & TOMBSTONE == 0).then(|| blocks.value(loc));
            if flags & DIRTY != 0 {
                changelog.append(full_key, value);
            }
            match value {
                Some(value) => ops.put(full_key, value),
                None if flags & STORED != 0 => ops.delete(full_key),
                None => {}
            }
        }
        drop(changelog);
        self.context.write(ops)?;
        for loc in locs.iter().copied() {
            self.forget_dirt(loc);
            let flags = self.resident.blocks().flags(loc);
            if flags & TOMBSTONE == 0 {
                self.resident.blocks_mut().set_flags(loc, (flags & !(DIRTY | UNFLUSHED)) | STORED | LOGGED);
            } else {
                self.resident.remove(loc);
            }
        }
        Ok(())
    }

    fn flush_tombstones(&mut self) -> Result<()> {
        let handles = std::mem::take(&mut self.tombstones);
        let blocks = self.resident.blocks();
        let mut locs: Vec<Loc> = handles.iter().filter_map(|handle| blocks.resolve(*handle)).collect();
        locs.retain(|loc| blocks.flags(*loc) & TOMBSTONE != 0);
        // A slot may be listed twice: buried, revived, buried again.
        locs.sort_unstable();
        locs.dedup();
        self.flush(&locs)
    }

    /// Evicts until `wanted` bytes are given back, or the hand has gone round twice.
    fn evict(&mut self, wanted: usize) -> Result<()> {
        let target = self.memory_bytes().saturating_sub(wanted);
        let mut visits = 2 * self.resident.blocks().block_count();
        while self.memory_bytes() > target && visits > 0 {
            let mut victims = Vec::new();
            let mut bytes = 0;
            while bytes < FLUSH_BYTES.min(wanted.max(1)) && visits > 0 && victims.len() < self.resident.blocks().block_count() {
                self.hand = (self.hand + 1) % self.resident.blocks().block_count();
                visits -= 1;
                bytes += self.resident.blocks().block_bytes(self.hand);
                victims.push(self.hand);
            }
            self.evict_blocks(&victims)?;
        }
        Ok(())
    }

    /// Empties blocks: what was used lately moves to other blocks, the rest leaves memory.
    fn evict_blocks(&mut self, victims: &[usize]) -> Result<()> {
        let spared = |flags: u8| flags & REFERENCED != 0;
        let mut unflushed = Vec::new();
        for block in victims {
            let mut offset = 0;
            while let Some((loc, next)) = self.resident.blocks().next_record(*block, offset) {
                offset = next;
                let flags = self.resident.blocks().flags(loc);
                // A record that moves behind the sweep's back would be missed by it.
                if flags & UNFLUSHED != 0 && (!spared(flags) || self.sweep.is_some()) {
                    unflushed.push(loc);
                }
            }
        }
        self.flush(&unflushed)?;
        let inhabited: Vec<usize> = victims.iter().copied().filter(|block| self.resident.blocks_mut().begin_evacuation(*block)).collect();
        for block in &inhabited {
            let mut offset = 0;
            while let Some((loc, next)) = self.resident.blocks().next_record(*block, offset) {
                offset = next;
                let flags = self.resident.blocks().flags(loc);
                if spared(flags) {
                    self.resident.blocks_mut().set_flags(loc, flags & !REFERENCED);
                    let moved = self.resident.relocate(loc);
                    if flags & DIRTY != 0 {
                        self.dirty.push(self.resident.handle(moved));
                    }
                    if flags & TOMBSTONE != 0 {
                        self.tombstones.push(self.resident.handle(moved));
                    }
                } else {
                    self.cold.insert(self.resident.blocks().hash(loc));
                    self.resident.remove(loc);
                }
            }
        }
        Ok(())
    }
}

impl StateTable for PointTable {
    fn id(&self) -> TableId {
        self.context.id
    }

    fn drain_dirty(&mut self, sink: &mut ChangeSink<'_>) {
        self.in_call = true;
        let handles = self.dirty.take_all();
        self.log_handles(&handles, sink);
        self.dirty_bytes = 0;
        self.in_call = false;
    }

    fn log_aged(&mut self, now_us: i64, age_us: i64) {
        self.in_call = true;
        let aged = self.dirty.take_aged(now_us, age_us);
        self.append_to_log(&aged);
        self.in_call = false;
    }

    fn end_segment(&mut self, position: u64) {
        self.context.end_segment(&mut self.images, position);
    }

    fn leave(&mut self) -> Option<LeftTable> {
        let empty = Self::new(self.context.again());
        let left = std::mem::replace(self, empty);
        (!left.in_call && left.images.is_some()).then(|| LeftTable::point(left))
    }

    fn hand_over(&mut self) -> Result<Option<LeftTable>> {
        if self.context.is_single() {
            return self.flush_all().map(|()| None);
        }
        Ok(Some(self.leave_to_heirs()))
    }

    fn memory_bytes(&self) -> usize {
        let handles = self.dirty.memory_bytes() + self.tombstones.capacity() * size_of::<Handle>();
        let inherited = self.inherited.memory_bytes(Self::memory_bytes);
        self.resident.memory_bytes() + self.cold.memory_bytes() + handles + inherited
    }

    fn relieve(&mut self) -> Result<()> {
        self.in_call = true;
        self.context.forget_images(&mut self.images);
        self.take_some();
        if self.dirty_bytes > DIRTY_BOUND_BYTES {
            let older = self.dirty.take_half();
            self.append_to_log(&older);
        }
        if self.tombstones.len() > TOMBSTONE_BOUND {
            self.flush_tombstones()?;
        }
        self.context.memory.resize(self.memory_bytes());
        let crowded = self.resident.blocks().is_crowded();
        if self.context.memory.over_budget() || crowded {
            let own = self.memory_bytes();
            let share = self.context.excess_share(own, self.pressure);
            self.pressure += 1;
            self.evict(if crowded { share.max(own / 8) } else { share })?;
            self.context.memory.resize(self.memory_bytes());
        } else {
            self.pressure = 0;
        }
        self.context.task.changelog.lock().spill()?;
        self.in_call = false;
        Ok(())
    }

    fn begin_sweep(&mut self) {
        self.sweep = Some(0);
    }

    fn sweep(&mut self, bytes: usize) -> Result<bool> {
        let Some(mut block) = self.sweep else { return Ok(true) };
        self.in_call = true;
        if !self.take_over(bytes) {
            self.in_call = false;
            return Ok(false);
        }
        self.flush_tombstones()?;
        let mut flushed = 0;
        while block < self.resident.blocks().block_count() && flushed < bytes {
            let mut unflushed = Vec::new();
            let mut offset = 0;
            while let Some((loc, next)) = self.resident.blocks().next_record(block, offset) {
                offset = next;
                if self.resident.blocks().flags(loc) & UNFLUSHED != 0 {
                    flushed += self.resident.blocks().slot_bytes(loc);
                    unflushed.push(loc);
                }
            }
            self.flush(&unflushed)?;
            block += 1;
            self.sweep = Some(block);
        }
        self.in_call = false;
        if block < self.resident.blocks().block_count() {
            return Ok(false);
        }
        self.sweep = None;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
