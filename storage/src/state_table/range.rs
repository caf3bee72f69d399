//! A table of ordered groups: (prefix, suffix) -> value.
//!
//! A *group* is all entries under one prefix. A small group is one record whose value is a [packed list](super::packed); one with more
//! entries is a [tree of segments](super::large). A group that is not complete in memory holds only changes, over what the store has. Whole
//! groups that were evicted are remembered by [`ColdKeys`].
//!
//! Deletions of entries that memory holds go to [`Tombstones`], those of others stay in the list as dead entries. A group that
//! becomes empty stays as a record until the store has forgotten its entries, or a later load would bring them back.

mod evict;
mod groups;
mod inherit;
mod load;
mod notes;
mod read;
mod restore;

use std::ops::Bound;

use super::StateTable;
use super::before_images::BeforeImages;
use super::blocks::{Handle, Loc};
use super::cold::ColdKeys;
use super::context::TableContext;
use super::dirty_queue::DirtyQueue;
use super::handed::Inherited;
use super::large::{LIST_BYTES, LIST_ENTRIES, LargeGroup, Segment};
use super::packed::{self, DEAD, DIRTY, LOGGED, PackedList, STORED, UNFLUSHED};
use super::resident::{Resident, hash_key};
use super::tombstones::Tombstones;
use crate::error::Result;
use crate::state_store::prefix_end;
use evict::SweepPlace;

/// Memory has all entries of the group.
const COMPLETE: u8 = 1;
/// Some entry may be dirty; the record is listed.
const GROUP_DIRTY: u8 = 1 << 1;
/// Some entry may be unflushed.
const GROUP_UNFLUSHED: u8 = 1 << 2;
/// The store may have entries of the group, live or not yet deleted.
const GROUP_STORED: u8 = 1 << 3;
/// The value is the number of a [`LargeGroup`].
const LARGE: u8 = 1 << 4;
/// Used since the clock hand last came by.
const REFERENCED: u8 = 1 << 5;

/// Bytes of changes above which they go to the changelog without waiting for the checkpoint.
const DIRTY_BOUND_BYTES: usize = 64 << 20;
const TOMBSTONE_BOUND_BYTES: usize = 4 << 20;
const EMPTIED_BOUND: usize = 1 << 16;
const COLD_KEYS_SHARE: usize = 32;

/// How a change marks an entry.
#[derive(Clone, Copy)]
struct Mark {
    /// Flags the entry gets in any case.
    change: u8,
    /// Flags it gets if it was not there and memory knows all entries.
    absent: u8,
}

const CHANGED: Mark = Mark { change: DIRTY | UNFLUSHED, absent: 0 };

/// A state table of ordered groups. Suffixes are in byte order within their prefix.
pub struct RangeTable {
    context: TableContext,
    groups: Resident,
    large: Vec<Option<LargeGroup>>,
    unused_large: Vec<u32>,
    large_bytes: usize,
    cold: ColdKeys,
    /// Groups in memory that are not complete.
    partial: usize,
    tombstones: Tombstones,
    /// Small groups with dirty entries; some may have been moved or logged since.
    dirty: DirtyQueue<Handle>,
    /// Large groups with dirty entries; some may be gone.
    dirty_large: DirtyQueue<u32>,
    /// What has been changed since it was last logged, more or less.
    dirty_bytes: usize,
    /// Groups that became empty, to be forgotten once the tombstones are flushed.
    emptied: Vec<Handle>,
    /// Block and large group the clock hands stand at.
    hand: usize,
    large_hand: (usize, Box<[u8]>),
    pressure: u32,
    sweep: Option<SweepPlace>,
    /// Small groups with unflushed entries that moved while a sweep was going on, and small groups that became large.
    sweep_again: Vec<Handle>,
    sweep_again_large: Vec<u32>,
    /// While restoring: the group that did not fit whole, after which no other is taken.
    restore_refused: Option<Box<[u8]>>,
    scratch: Vec<u8>,
    /// What there is to go back to, if the task may be put back.
    images: Option<BeforeImages>,
    /// A call is under way, or one has failed: what is in memory may be half changed.
    in_call: bool,
    /// What has still to be taken over from tables of other tasks.
    inherited: Inherited<Self>,
}

/// A small group's list in its record, which moves when it outgrows it.
struct SmallList<'a> {
    groups: &'a mut Resident,
    loc: Loc,
}

impl PackedList for SmallList<'_> {
    fn list(&self) -> &[u8] {
        self.groups.blocks().value(self.loc)
    }

    fn splice(&mut self, at: usize, old: usize, new: usize) -> &mut [u8] {
        let len = self.list().len();
        let grown = len + new - old;
        self.loc = self.groups.make_room(self.loc, grown);
        self.groups.blocks_mut().set_value_len(self.loc, grown);
        let room = self.groups.blocks_mut().value_room_mut(self.loc);
        packed::shift(room, len, at, old, new);
        &mut room[at..at + new]
    }
}

impl RangeTable {
    pub(crate) fn new(context: TableContext) -> Self {
        let cold = ColdKeys::new(context.memory.limit() / COLD_KEYS_SHARE);
        Self {
            context,
            groups: Resident::new(),
            large: Vec::new(),
            unused_large: Vec::new(),
            large_bytes: 0,
            cold,
            partial: 0,
            tombstones: Tombstones::default(),
            dirty: DirtyQueue::default(),
            dirty_large: DirtyQueue::default(),
            dirty_bytes: 0,
            emptied: Vec::new(),
            hand: 0,
            large_hand: (0, Box::default()),
            pressure: 0,
            sweep: None,
            sweep_again: Vec::new(),
            sweep_again_large: Vec::new(),
            restore_refused: None,
            scratch: Vec::new(),
            images: None,
            in_call: false,
            inherited: Inherited::default(),
        }
    }

    /// Sets the value at (`prefix`, `suffix`), whether or not there is one. Never reads the store.
    pub fn put(&mut self, prefix: &[u8], suffix: &[u8], value: &[u8]) {
        self.in_call = true;
        self.claim(prefix);
        self.note(prefix, suffix);
        self.set(prefix, suffix, value, CHANGED);
        self.in_call = false;
    }

    /// Removes the entry at (`prefix`, `suffix`), if there is one. Never reads the store.
    pub fn delete(&mut self, prefix: &[u8], suffix: &[u8]) {
        self.in_call = true;
        self.claim(prefix);
        self.note(prefix, suffix);
        self.unset(prefix, suffix, true);
        self.in_call = false;
    }

    /// Removes all entries under `prefix`. Reads the keys of those that are not in memory.
    pub fn delete_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.claim(prefix);
        let hash = hash_key(prefix);
        if self.groups.find(hash, prefix).is_none() && !self.cold.may_contain(hash) {
            return Ok(());
        }
        self.in_call = true;
        self.note_group(prefix);
        let stored = self.bury_stored(prefix)?;
        let loc = match self.groups.find(hash, prefix) {
            Some(loc) => {
                self.bury_resident(prefix, loc);
                self.clear_group(loc);
                loc
            }
            None => {
                if stored {
                    self.cold.remove(hash);
                }
                self.groups.insert(hash, prefix, &[], 0, COMPLETE | GROUP_STORED)
            }
        };
        self.note_empty(loc);
        self.in_call = false;
        Ok(())
    }

    fn set(&mut self, prefix: &[u8], suffix: &[u8], value: &[u8], mark: Mark) {
        let hash = hash_key(prefix);
        match self.groups.find(hash, prefix) {
            None => self.set_first(hash, prefix, suffix, value, mark),
            Some(loc) if self.groups.blocks().flags(loc) & LARGE != 0 => self.set_large(loc, suffix, value, mark),
            Some(loc) => self.set_small(loc, suffix, value, mark),
        }
    }

    /// Begins a group in memory with one entry.
    fn set_first(&mut self, hash: u32, prefix: &[u8], suffix: &[u8], value: &[u8], mark: Mark) {
        let (group, absent) =
            if self.cold.may_contain(hash) { (GROUP_STORED, mark.absent | STORED | LOGGED) } else { (COMPLETE, mark.absent) };
        self.partial += usize::from(group & COMPLETE == 0);
        let mut list = std::mem::take(&mut self.scratch);
        list.clear();
        packed::push_entry(&mut list, (absent & !DEAD) | mark.change, suffix, value);
        if list.len() > LIST_BYTES {
            let loc = self.groups.insert(hash, prefix, &[], 0, group);
            self.promote(loc);
            self.set_large(loc, suffix, value, mark);
        } else {
            let loc = self.groups.insert(hash, prefix, &list, 0, group);
            self.groups.blocks_mut().set_count(loc, 1);
            self.mark_group(loc, false, mark, list.len());
        }
        self.scratch = list;
    }

    fn set_small(&mut self, loc: Loc, suffix: &[u8], value: &[u8], mark: Mark) {
        let blocks = self.groups.blocks();
        let bytes = packed::entry_bytes(suffix, value);
        if blocks.value(loc).len() + bytes > LIST_BYTES || blocks.count(loc) >= LIST_ENTRIES {
            let loc = self.promote(loc);
            return self.set_large(loc, suffix, value, mark);
        }
        let absent = if blocks.flags(loc) & COMPLETE != 0 { mark.absent } else { mark.absent | STORED | LOGGED };
        let mut list = SmallList { groups: &mut self.groups, loc };
        let outcome = packed::put(&mut list, suffix, value, mark.change, absent);
        let moved = list.loc;
        if outcome.replaced.is_none() {
            let count = self.groups.blocks().count(moved) + 1;
            self.groups.blocks_mut().set_count(moved, count);
        }
        self.mark_group(moved, moved != loc, mark, bytes);
    }

    fn set_large(&mut self, loc: Loc, suffix: &[u8], value: &[u8], mark: Mark) {
        let id = self.large_id(loc);
        self.with_large(id, |group| group.put(suffix, value, mark.change, mark.absent));
        self.mark_large(id, mark, packed::entry_bytes(suffix, value));
    }

    /// Notes a change to a small group. `moved`: handles to its record are stale.
    fn mark_group(&mut self, loc: Loc, moved: bool, mark: Mark, bytes: usize) {
        let old = self.groups.blocks().flags(loc);
        let mut flags = old | REFERENCED;
        if mark.change & DIRTY != 0 {
            flags |= GROUP_DIRTY;
            self.dirty_bytes += bytes;
        }
        if mark.change & UNFLUSHED != 0 {
            flags |= GROUP_UNFLUSHED;
        }
        if mark.absent & STORED != 0 {
            flags |= GROUP_STORED;
        }
        if flags != old {
            self.groups.blocks_mut().set_flags(loc, flags);
        }
        if flags & GROUP_DIRTY != 0 && (moved || old & GROUP_DIRTY == 0) {
            self.dirty.push(self.groups.handle(loc));
        }
        if moved && self.sweep.is_some() && flags & GROUP_UNFLUSHED != 0 {
            self.sweep_again.push(self.groups.handle(loc));
        }
    }

    fn mark_large(&mut self, id: u32, mark: Mark, bytes: usize) {
        let group = self.large[id as usize].as_mut().expect("a large group by its number");
        group.stored |= mark.absent & STORED != 0;
        if mark.change & DIRTY != 0 {
            self.dirty_bytes += bytes;
            if !std::mem::replace(&mut group.dirty, true) {
                self.dirty_large.push(id);
            }
        }
    }

    /// Removes an entry; `dirty`: the changelog does not know of it yet.
    fn unset(&mut self, prefix: &[u8], suffix: &[u8], dirty: bool) {
        let hash = hash_key(prefix);
        let dead = Mark { change: DEAD | UNFLUSHED | if dirty { DIRTY } else { LOGGED }, absent: STORED | LOGGED };
        let Some(loc) = self.groups.find(hash, prefix) else {
            if self.cold.may_contain(hash) {
                self.set_first(hash, prefix, suffix, &[], dead);
            }
            return;
        };
        let flags = self.groups.blocks().flags(loc);
        let removed = if flags & LARGE != 0 {
            let id = self.large_id(loc);
            if !self.large_group(id).segment_of(suffix).1.complete {
                return self.set_large(loc, suffix, &[], dead);
            }
            self.with_large(id, |group| group.take(suffix))
        } else if flags & COMPLETE == 0 {
            return self.set_small(loc, suffix, &[], dead);
        } else {
            self.take_small(loc, suffix)
        };
        let Some(removed) = removed else { return };
        if removed & (STORED | LOGGED) != 0 {
            self.bury(prefix, suffix, dirty, removed & STORED != 0);
        }
        if self.is_empty_group(loc) {
            self.note_empty(loc);
        } else if flags & LARGE != 0 && self.large_group(self.large_id(loc)).segments.len() == 1 {
            self.demote(loc);
        }
    }

    /// Takes an entry out of a small, complete group and returns its flags.
    fn take_small(&mut self, loc: Loc, suffix: &[u8]) -> Option<u8> {
        let entry = packed::find(self.groups.blocks().value(loc), suffix).ok()?;
        let (flags, range) = (entry.flags, entry.range());
        SmallList { groups: &mut self.groups, loc }.splice(range.start, range.len(), 0);
        let count = self.groups.blocks().count(loc) - 1;
        self.groups.blocks_mut().set_count(loc, count);
        Some(flags)
    }

    /// Adds a tombstone.
    fn bury(&mut self, prefix: &[u8], suffix: &[u8], dirty: bool, stored: bool) {
        let mut key = std::mem::take(&mut self.scratch);
        self.context.full_prefix(prefix, &mut key);
        key.extend_from_slice(suffix);
        self.tombstones.push(&key, dirty, stored);
        self.scratch = key;
    }

    /// Adds tombstones for all entries of a group in memory that changelog or store know of.
    fn bury_resident(&mut self, prefix: &[u8], loc: Loc) {
        let mut key = std::mem::take(&mut self.scratch);
        self.context.full_prefix(prefix, &mut key);
        let start = key.len();
        let tombstones = &mut self.tombstones;
        let mut bury = |list: &[u8]| {
            for entry in packed::entries(list).filter(|entry| entry.flags & (STORED | LOGGED) != 0) {
                key.truncate(start);
                key.extend_from_slice(entry.suffix);
                tombstones.push(&key, entry.is_live() || entry.flags & DIRTY != 0, entry.flags & STORED != 0);
            }
        };
        if self.groups.blocks().flags(loc) & LARGE == 0 {
            bury(self.groups.blocks().value(loc));
        } else {
            let id = u32::from_le_bytes(self.groups.blocks().value(loc).try_into().expect("the number of a large group"));
            let group = self.large[id as usize].as_ref().expect("a large group by its number");
            group.segments.values().for_each(|segment| bury(&segment.list));
        }
        self.scratch = key;
    }

    /// Forgets an empty group, now or when the store has forgotten its entries.
    fn note_empty(&mut self, loc: Loc) {
        let flags = self.groups.blocks().flags(loc);
        let stored = flags & GROUP_STORED != 0 || (flags & LARGE != 0 && self.large_group(self.large_id(loc)).stored);
        if stored {
            self.emptied.push(self.groups.handle(loc));
        } else {
            self.forget(loc);
        }
    }

    /// Removes a group's record, and its tree if it has one.
    fn forget(&mut self, loc: Loc) {
        let flags = self.groups.blocks().flags(loc);
        if flags & LARGE != 0 {
            self.take_large(self.large_id(loc));
        } else if flags & COMPLETE == 0 {
            self.partial -= 1;
        }
        self.groups.remove(loc);
    }

    /// Makes a group a complete one without entries.
    fn clear_group(&mut self, loc: Loc) {
        let old = self.groups.blocks().flags(loc);
        let mut stored = old & GROUP_STORED;
        if old & LARGE != 0 {
            let id = self.large_id(loc);
            stored = if self.large_group(id).stored { GROUP_STORED } else { 0 };
            self.take_large(id);
        } else if old & COMPLETE == 0 {
            self.partial -= 1;
        }
        self.groups.blocks_mut().set_value_len(loc, 0);
        self.groups.blocks_mut().set_count(loc, 0);
        self.groups.blocks_mut().set_flags(loc, COMPLETE | stored);
    }

    /// Bounds of the full keys of a group.
    fn group_bounds(&self, prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut from = Vec::new();
        self.context.full_prefix(prefix, &mut from);
        let to = prefix_end(&from).expect("a key group is below the highest number");
        (from, to)
    }
}

/// Bounds of full keys from bounds of suffixes under a full prefix whose last key is below `end`.
fn full_bounds(prefix: &[u8], end: &[u8], lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let full = |suffix: &[u8]| [prefix, suffix].concat();
    let from = match lower {
        Bound::Unbounded => Bound::Included(prefix.to_vec()),
        other => other.map(full),
    };
    let to = match upper {
        Bound::Unbounded => Bound::Excluded(end.to_vec()),
        other => other.map(full),
    };
    (from, to)
}

#[cfg(test)]
mod tests;
