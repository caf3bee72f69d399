//! Writing a range table's changes to changelog and store, and letting entries go.

use std::ops::Bound;

use super::super::blocks::{Handle, Loc};
use super::super::flush::FlushOrder;
use super::super::handed::Heir;
use super::super::large::LargeGroup;
use super::super::left::LeftTable;
use super::super::packed::{self, DIRTY, UNFLUSHED};
use super::super::{ChangeSink, StateTable, TableId};
use super::{
    DIRTY_BOUND_BYTES, EMPTIED_BOUND, GROUP_DIRTY, GROUP_STORED, GROUP_UNFLUSHED, LARGE, REFERENCED, RangeTable, TOMBSTONE_BOUND_BYTES,
};
use crate::error::Result;
use crate::state_changelog::ChangelogWriter;
use crate::state_store::WriteOps;

const FLUSH_BYTES: usize = 1 << 20;

/// What a sweep comes to next.
pub(super) enum SweepPlace {
    /// This block of small groups.
    Block(usize),
    /// This large group, its segments above the lower bound.
    Large(usize, Bound<Box<[u8]>>),
}

/// Adds the dirty entries of a list to the changelog and the unflushed ones to a batch.
fn write_list(key: &mut Vec<u8>, list: &[u8], changelog: &mut ChangelogWriter, ops: &mut WriteOps) {
    let start = key.len();
    for entry in packed::entries(list).filter(|entry| entry.flags & UNFLUSHED != 0) {
        key.truncate(start);
        key.extend_from_slice(entry.suffix);
        let value = entry.is_live().then_some(entry.value);
        if entry.flags & DIRTY != 0 {
            changelog.append(key, value);
        }
        match value {
            Some(value) => ops.put(key, value),
            None => ops.delete(key),
        }
    }
    key.truncate(start);
}

/// Hands the dirty entries of a list to `sink` and marks them as logged.
fn log_list(key: &mut Vec<u8>, list: &mut [u8], sink: &mut ChangeSink<'_>) {
    let start = key.len();
    for entry in packed::entries(list).filter(|entry| entry.flags & DIRTY != 0) {
        key.truncate(start);
        key.extend_from_slice(entry.suffix);
        sink(key, entry.is_live().then_some(entry.value));
    }
    key.truncate(start);
    packed::mark_logged(list);
}

impl RangeTable {
    /// Writes and evicts what is beyond bounds; see [`StateTable::relieve`].
    pub fn relieve(&mut self) -> Result<()> {
        StateTable::relieve(self)
    }

    pub(super) fn tombstone_bound(&self) -> usize {
        TOMBSTONE_BOUND_BYTES.min(self.context.memory.limit() / 16)
    }

    /// Logs and flushes all tombstones, and forgets the groups they left empty.
    pub(super) fn flush_tombstones(&mut self) -> Result<()> {
        if !self.tombstones.is_empty() {
            let task = self.context.task.clone();
            let mut changelog = task.changelog.lock();
            self.tombstones.log(&mut |key, value| changelog.append(key, value));
            drop(changelog);
            let mut ops = WriteOps::new();
            self.tombstones.add_to(&mut ops);
            self.context.write(ops)?;
            self.tombstones.flushed();
        }
        self.drop_emptied();
        Ok(())
    }

    /// Logs and flushes small groups. Tombstones go first; see [`Tombstones`](super::super::tombstones::Tombstones).
    fn flush_small(&mut self, locs: &[Loc]) -> Result<()> {
        if locs.is_empty() {
            return Ok(());
        }
        self.log_tombstones();
        let blocks = self.groups.blocks();
        let order = FlushOrder::new(locs.iter().map(|loc| (blocks.key(*loc), *loc)), |key, out| self.context.full_prefix(key, out));
        let mut ops = WriteOps::new();
        self.tombstones.add_to(&mut ops);
        let task = self.context.task.clone();
        let mut changelog = task.changelog.lock();
        let mut key = Vec::new();
        for (prefix, loc) in order.iter() {
            key.clear();
            key.extend_from_slice(prefix);
            write_list(&mut key, blocks.value(loc), &mut changelog, &mut ops);
        }
        drop(changelog);
        self.context.write(ops)?;
        self.tombstones.flushed();
        for loc in locs {
            let len = self.groups.blocks().value(*loc).len();
            let list = &mut self.groups.blocks_mut().value_room_mut(*loc)[..len];
            let len = packed::mark_flushed(list);
            let count = packed::entries(&list[..len]).count();
            self.groups.blocks_mut().set_value_len(*loc, len);
            self.groups.blocks_mut().set_count(*loc, count);
            let flags = self.groups.blocks().flags(*loc) & !(GROUP_DIRTY | GROUP_UNFLUSHED);
            self.groups.blocks_mut().set_flags(*loc, flags | GROUP_STORED);
        }
        Ok(())
    }

    /// Logs and flushes segments of a large group.
    fn flush_segments(&mut self, id: u32, lowers: &[Box<[u8]>]) -> Result<()> {
        if lowers.is_empty() {
            return Ok(());
        }
        self.log_tombstones();
        let group = self.large_group(id);
        let mut key = Vec::new();
        self.context.full_prefix(&group.prefix, &mut key);
        let mut ops = WriteOps::new();
        self.tombstones.add_to(&mut ops);
        let task = self.context.task.clone();
        let mut changelog = task.changelog.lock();
        for lower in lowers {
            write_list(&mut key, &group.segments.get(lower).expect("the segment is there").list, &mut changelog, &mut ops);
        }
        drop(changelog);
        self.context.write(ops)?;
        self.tombstones.flushed();
        self.with_large(id, |group| {
            group.stored = true;
            for lower in lowers {
                group.with_list(lower, |segment| {
                    let len = packed::mark_flushed(&mut segment.list);
                    segment.list.truncate(len);
                    segment.count = packed::entries(&segment.list).count();
                    (segment.dirty, segment.unflushed) = (false, false);
                });
            }
        });
        Ok(())
    }

    fn log_tombstones(&mut self) {
        let task = self.context.task.clone();
        let mut changelog = task.changelog.lock();
        self.tombstones.log(&mut |key, value| changelog.append(key, value));
    }

    fn evict(&mut self, wanted: usize) -> Result<()> {
        self.flush_tombstones()?;
        let total = self.memory_bytes().max(1);
        let target = total.saturating_sub(wanted);
        let of_large = (wanted as u128 * self.large_bytes as u128 / total as u128) as usize;
        self.evict_large(of_large)?;
        let mut visits = 2 * self.groups.blocks().block_count();
        while self.memory_bytes() > target && visits > 0 {
            let mut victims = Vec::new();
            let mut bytes = 0;
            while bytes < FLUSH_BYTES.min(wanted.max(1)) && visits > 0 && victims.len() < self.groups.blocks().block_count() {
                self.hand = (self.hand + 1) % self.groups.blocks().block_count();
                visits -= 1;
                bytes += self.groups.blocks().block_bytes(self.hand);
                victims.push(self.hand);
            }
            self.evict_blocks(&victims)?;
        }
        let missed = self.memory_bytes().saturating_sub(target);
        self.evict_large(missed)
    }

    /// Empties blocks: what was used lately, and the records of large groups, move to other blocks, the rest leaves memory.
    fn evict_blocks(&mut self, victims: &[usize]) -> Result<()> {
        let sweeping = self.sweep.is_some();
        let unflushed = self.small_in_blocks(victims, |flags| flags & GROUP_UNFLUSHED != 0 && (flags & REFERENCED == 0 || sweeping));
        self.flush_small(&unflushed)?;
        let inhabited: Vec<usize> = victims.iter().copied().filter(|block| self.groups.blocks_mut().begin_evacuation(*block)).collect();
        for block in &inhabited {
            let mut offset = 0;
            while let Some((loc, next)) = self.groups.blocks().next_record(*block, offset) {
                offset = next;
                self.evict_record(loc);
            }
        }
        Ok(())
    }

    /// Records of small groups in `blocks` whose flags satisfy `wanted`.
    fn small_in_blocks(&self, blocks: &[usize], wanted: impl Fn(u8) -> bool) -> Vec<Loc> {
        let mut found = Vec::new();
        for block in blocks {
            let mut offset = 0;
            while let Some((loc, next)) = self.groups.blocks().next_record(*block, offset) {
                offset = next;
                let flags = self.groups.blocks().flags(loc);
                if flags & LARGE == 0 && wanted(flags) {
                    found.push(loc);
                }
            }
        }
        found
    }

    fn evict_record(&mut self, loc: Loc) {
        let flags = self.groups.blocks().flags(loc);
        if flags & (LARGE | REFERENCED) != 0 {
            let empty = self.is_empty_group(loc);
            self.groups.blocks_mut().set_flags(loc, flags & !REFERENCED);
            let moved = self.groups.relocate(loc);
            if flags & GROUP_DIRTY != 0 {
                self.dirty.push(self.groups.handle(moved));
            }
            if empty {
                self.emptied.push(self.groups.handle(moved));
            }
            return;
        }
        if !self.is_empty_group(loc) {
            self.cold.insert(self.groups.blocks().hash(loc));
        }
        self.forget(loc);
    }

    /// Evicts segments of large groups until `wanted` bytes are given back, or the hand has gone round twice.
    fn evict_large(&mut self, wanted: usize) -> Result<()> {
        let target = self.large_bytes.saturating_sub(wanted);
        let mut visits = 2 * self.large.len();
        while self.large_bytes > target && visits > 0 {
            let (id, lower) = std::mem::take(&mut self.large_hand);
            let behind = self.evict_segments(id, &lower, self.large_bytes - target)?;
            match behind {
                Some(behind) => self.large_hand = (id, behind),
                None => {
                    visits -= 1;
                    self.large_hand = ((id + 1) % self.large.len().max(1), Box::default());
                }
            }
        }
        Ok(())
    }

    /// Evicts from one large group, from `lower` on, about `wanted` bytes. Returns where to go on in the group.
    fn evict_segments(&mut self, id: usize, lower: &[u8], wanted: usize) -> Result<Option<Box<[u8]>>> {
        let Some(group) = self.large.get_mut(id).and_then(Option::as_mut) else { return Ok(None) };
        let (mut victims, mut unflushed, mut bytes, mut behind) = (Vec::new(), Vec::new(), 0, None);
        for (lower, segment) in group.segments.range_mut((Bound::Included(lower), Bound::Unbounded)) {
            if bytes >= wanted.min(FLUSH_BYTES) {
                behind = Some(lower.into());
                break;
            }
            if segment.is_empty_cold() || std::mem::take(&mut segment.referenced) {
                continue;
            }
            bytes += segment.list.capacity() + lower.len();
            victims.push(Box::<[u8]>::from(lower));
            if segment.unflushed {
                unflushed.push(Box::<[u8]>::from(lower));
            }
        }
        let id = id as u32;
        self.flush_segments(id, &unflushed)?;
        self.with_large(id, |group| victims.iter().for_each(|lower| group.evict(lower)));
        let group = self.large_group(id);
        if group.is_evicted() {
            let (hash, prefix) = (group.hash, group.prefix.clone());
            let loc = self.groups.find(hash, &prefix).expect("a large group has a record");
            self.cold.insert(hash);
            self.forget(loc);
            return Ok(None);
        }
        Ok(behind)
    }

    fn log_group(&mut self, handle: Handle, key: &mut Vec<u8>, sink: &mut ChangeSink<'_>) {
        let Some(loc) = self.groups.blocks().resolve(handle) else { return };
        let flags = self.groups.blocks().flags(loc);
        if flags & GROUP_DIRTY == 0 {
            return;
        }
        let (prefix, list) = self.groups.blocks().entry(loc);
        let len = list.len();
        self.context.full_prefix(prefix, key);
        log_list(key, &mut self.groups.blocks_mut().value_room_mut(loc)[..len], sink);
        self.groups.blocks_mut().set_flags(loc, flags & !GROUP_DIRTY);
    }

    /// Logs the dirty entries of groups, after all tombstones: an entry may have been put again after it was deleted.
    fn log_all(&mut self, small: &[Handle], large: &[u32], sink: &mut ChangeSink<'_>) {
        let mut key = Vec::new();
        self.tombstones.log(sink);
        small.iter().for_each(|handle| self.log_group(*handle, &mut key, sink));
        large.iter().for_each(|id| self.log_large(*id, &mut key, sink));
    }

    fn log_large(&mut self, id: u32, key: &mut Vec<u8>, sink: &mut ChangeSink<'_>) {
        let Some(group) = self.large[id as usize].as_mut().filter(|group| group.dirty) else { return };
        self.context.full_prefix(&group.prefix, key);
        for segment in group.segments.values_mut().filter(|segment| segment.dirty) {
            log_list(key, &mut segment.list, sink);
            segment.dirty = false;
        }
        group.dirty = false;
    }

    /// Flushes about `bytes` of a large group behind `from`. Returns how many it were and where to go on.
    fn sweep_segments(&mut self, id: u32, from: Bound<&[u8]>, bytes: usize) -> Result<(usize, Option<Box<[u8]>>)> {
        let (mut unflushed, mut flushed, mut behind) = (Vec::new(), 0, None);
        for (lower, segment) in self.large_group(id).segments.range((from, Bound::Unbounded)) {
            if flushed >= bytes {
                behind = Some(lower.into());
                break;
            }
            if segment.unflushed {
                flushed += segment.list.len();
                unflushed.push(Box::<[u8]>::from(lower));
            }
        }
        self.flush_segments(id, &unflushed)?;
        if behind.is_none() && std::mem::take(&mut self.large[id as usize].as_mut().expect("a large group by its number").rekeyed) {
            behind = Some(Box::default());
        }
        Ok((flushed, behind))
    }

    /// Flushes what moved during the sweep.
    fn finish_sweep(&mut self) -> Result<()> {
        let handles = std::mem::take(&mut self.sweep_again);
        let blocks = self.groups.blocks();
        let mut locs: Vec<Loc> = handles.iter().filter_map(|handle| blocks.resolve(*handle)).collect();
        locs.retain(|loc| blocks.flags(*loc) & (LARGE | GROUP_UNFLUSHED) == GROUP_UNFLUSHED);
        locs.sort_unstable();
        locs.dedup();
        self.flush_small(&locs)?;
        for id in std::mem::take(&mut self.sweep_again_large) {
            let Some(group) = &self.large[id as usize] else { continue };
            let unflushed = group.segments.iter().filter(|(_, segment)| segment.unflushed);
            let lowers: Vec<Box<[u8]>> = unflushed.map(|(lower, _)| lower.into()).collect();
            self.flush_segments(id, &lowers)?;
        }
        self.flush_tombstones()
    }
}

impl StateTable for RangeTable {
    fn id(&self) -> TableId {
        self.context.id
    }

    fn drain_dirty(&mut self, sink: &mut ChangeSink<'_>) {
        self.in_call = true;
        let (small, large) = (self.dirty.take_all(), self.dirty_large.take_all());
        self.log_all(&small, &large, sink);
        self.dirty_bytes = 0;
        self.in_call = false;
    }

    fn end_segment(&mut self, position: u64) {
        self.context.end_segment(&mut self.images, position);
    }

    fn leave(&mut self) -> Option<LeftTable> {
        let empty = Self::new(self.context.again());
        let left = std::mem::replace(self, empty);
        (!left.in_call && left.images.is_some()).then(|| LeftTable::range(left))
    }

    fn hand_over(&mut self) -> Result<Option<LeftTable>> {
        self.leave_to_heirs().map(Some)
    }

    fn log_aged(&mut self, now_us: i64, age_us: i64) {
        self.in_call = true;
        let (small, large) = (self.dirty.take_aged(now_us, age_us), self.dirty_large.take_aged(now_us, age_us));
        if !small.is_empty() || !large.is_empty() {
            let task = self.context.task.clone();
            let mut changelog = task.changelog.lock();
            let mut bytes = 0;
            self.log_all(&small, &large, &mut |key, value| {
                bytes += key.len() + value.map_or(0, <[u8]>::len);
                changelog.append(key, value);
            });
            self.dirty_bytes = self.dirty_bytes.saturating_sub(bytes);
        }
        self.in_call = false;
    }

    fn memory_bytes(&self) -> usize {
        let handles = self.dirty.memory_bytes() + (self.emptied.capacity() + self.sweep_again.capacity()) * size_of::<Handle>();
        let slots = self.large.capacity() * size_of::<Option<LargeGroup>>() + self.inherited.memory_bytes(Self::memory_bytes);
        self.groups.memory_bytes() + self.large_bytes + slots + self.cold.memory_bytes() + self.tombstones.memory_bytes() + handles
    }

    fn relieve(&mut self) -> Result<()> {
        self.context.forget_images(&mut self.images);
        let task = self.context.task.clone();
        if self.dirty_bytes + self.tombstones.unlogged_bytes() > DIRTY_BOUND_BYTES {
            let mut changelog = task.changelog.lock();
            self.drain_dirty(&mut |key, value| changelog.append(key, value));
        }
        self.in_call = true;
        self.take_some();
        if self.tombstones.memory_bytes() > self.tombstone_bound() || self.emptied.len() > EMPTIED_BOUND {
            self.flush_tombstones()?;
        } else if self.tombstones.is_empty() && !self.emptied.is_empty() {
            self.drop_emptied();
        }
        self.context.memory.resize(self.memory_bytes());
        let crowded = self.groups.blocks().is_crowded();
        if self.context.memory.over_budget() || crowded {
            let own = self.memory_bytes();
            let share = self.context.excess_share(own, self.pressure);
            self.pressure += 1;
            self.evict(if crowded { share.max(own / 8) } else { share })?;
            self.context.memory.resize(self.memory_bytes());
        } else {
            self.pressure = 0;
        }
        task.changelog.lock().spill()?;
        self.in_call = false;
        Ok(())
    }

    fn begin_sweep(&mut self) {
        self.sweep_again.clear();
        self.sweep_again_large.clear();
        self.large.iter_mut().flatten().for_each(|group| group.rekeyed = false);
        self.sweep = Some(SweepPlace::Block(0));
    }

    fn sweep(&mut self, bytes: usize) -> Result<bool> {
        self.in_call = true;
        let is_through = self.take_over(bytes) && self.sweep_on(bytes)?;
        self.in_call = false;
        Ok(is_through)
    }
}

impl RangeTable {
    fn sweep_on(&mut self, bytes: usize) -> Result<bool> {
        let mut flushed = 0;
        while flushed < bytes {
            match self.sweep.take() {
                None => return Ok(true),
                Some(SweepPlace::Block(block)) if block < self.groups.blocks().block_count() => {
                    self.sweep = Some(SweepPlace::Block(block));
                    let unflushed = self.small_in_blocks(&[block], |flags| flags & GROUP_UNFLUSHED != 0);
                    flushed += unflushed.iter().map(|loc| self.groups.blocks().slot_bytes(*loc)).sum::<usize>();
                    self.flush_small(&unflushed)?;
                    self.sweep = Some(SweepPlace::Block(block + 1));
                }
                Some(SweepPlace::Block(_)) => self.sweep = Some(SweepPlace::Large(0, Bound::Unbounded)),
                Some(SweepPlace::Large(id, from)) if id < self.large.len() => {
                    if self.large[id].is_none() {
                        self.sweep = Some(SweepPlace::Large(id + 1, Bound::Unbounded));
                        continue;
                    }
                    let bound = from.as_ref().map(|lower| &**lower);
                    self.sweep = Some(SweepPlace::Large(id, from.clone()));
                    let (more, behind) = self.sweep_segments(id as u32, bound, bytes - flushed)?;
                    flushed += more;
                    self.sweep = Some(match behind {
                        Some(behind) => SweepPlace::Large(id, Bound::Included(behind)),
                        None => SweepPlace::Large(id + 1, Bound::Unbounded),
                    });
                }
                Some(place @ SweepPlace::Large(..)) => {
                    self.sweep = Some(place);
                    self.finish_sweep()?;
                    self.sweep = None;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
