//! Taking over what range tables of other tasks have in memory: see [`handed`](super::super::handed). Large groups are taken at the beginning, each as
//! it is, small ones one after the other. Who reads a small group that has not been taken gets a copy of it.

use super::super::StateTable;
use super::super::blocks::{Blocks, Loc};
use super::super::context::TableContext;
use super::super::handed::{Heir, Inherited, Share};
use super::super::left::LeftTable;
use super::super::resident::hash_key;
use super::{COMPLETE, GROUP_DIRTY, LARGE, RangeTable};
use crate::error::Result;

/// A small group that is still in another table.
pub(super) struct Untaken {
    pub(super) list: Vec<u8>,
    pub(super) count: usize,
    pub(super) complete: bool,
}

impl RangeTable {
    /// Begins with what other tables have. `self` is empty.
    pub(in super::super) fn inherit(&mut self, mut inherited: Inherited<Self>) {
        let is_all = inherited.width() == self.context.groups().len();
        if let Some(share) = inherited.pop_whole() {
            let mut old = share.lock();
            let empty = Self::new(old.context.again());
            let old = std::mem::replace(&mut *old, empty);
            (self.groups, self.large, self.unused_large, self.large_bytes) = (old.groups, old.large, old.unused_large, old.large_bytes);
            (self.cold, self.partial, self.emptied, self.inherited) = (old.cold, old.partial, old.emptied, old.inherited);
        }
        while let Some(share) = inherited.pop() {
            let mut old = share.lock();
            self.cold.add(&old.cold);
            self.receive_large(&mut old, &share);
            drop(old);
            self.inherited.push(share);
        }
        if !is_all && self.context.stored().is_some() {
            self.cold.give_up();
        }
        self.context.memory.resize(self.memory_bytes());
    }

    /// Leaves everything to other tables. Deletions go to the store: they belong to no group.
    pub(super) fn leave_to_heirs(&mut self) -> Result<LeftTable> {
        self.flush_tombstones()?;
        let empty = Self::new(self.context.again());
        let mut left = std::mem::replace(self, empty);
        (left.images, left.sweep) = (None, None);
        left.sweep_again.clear();
        left.sweep_again_large.clear();
        // Heirs count it.
        left.context.memory.resize(0);
        Ok(LeftTable::range(left))
    }

    /// Takes a group over, if it had still to be.
    pub(super) fn claim(&mut self, prefix: &[u8]) {
        let hash = hash_key(prefix);
        if self.inherited.is_empty() || self.groups.find(hash, prefix).is_some() {
            return;
        }
        let inherited = std::mem::take(&mut self.inherited);
        if let Some(share) = inherited.with(self.context.group(prefix)) {
            let mut old = share.lock();
            old.claim(prefix);
            if let Some(loc) = old.groups.find(hash, prefix) {
                self.receive(&mut old, loc);
            }
        }
        self.inherited = inherited;
    }

    /// A group that has still to be taken over.
    pub(super) fn untaken(&self, hash: u32, prefix: &[u8]) -> Option<Untaken> {
        if self.inherited.is_empty() {
            return None;
        }
        let old = self.inherited.with(self.context.group(prefix))?.lock();
        let Some(loc) = old.groups.find(hash, prefix) else { return old.untaken(hash, prefix) };
        let blocks = old.groups.blocks();
        Some(Untaken { list: blocks.value(loc).to_vec(), count: blocks.count(loc), complete: blocks.flags(loc) & COMPLETE != 0 })
    }

    /// Adds the prefixes of a key group that have still to be taken over.
    pub(super) fn untaken_prefixes(&self, key_group: u16, add: &mut dyn FnMut(&[u8])) {
        let Some(share) = self.inherited.with(key_group) else { return };
        let old = share.lock();
        let prefixes = old.groups.locs().map(|loc| old.groups.blocks().key(loc));
        prefixes.filter(|prefix| old.context.group(prefix) == key_group).for_each(&mut *add);
        old.untaken_prefixes(key_group, add);
    }

    /// Moves a group of another table here.
    fn receive(&mut self, from: &mut Self, loc: Loc) {
        let blocks = from.groups.blocks();
        let (hash, flags, count, (prefix, list)) = (blocks.hash(loc), blocks.flags(loc), blocks.count(loc), blocks.entry(loc));
        debug_assert!(flags & GROUP_DIRTY == 0 && self.groups.find(hash, prefix).is_none(), "a group is in one table, and logged");
        let moved = if flags & LARGE == 0 {
            let is_partial = usize::from(flags & COMPLETE == 0);
            self.partial += is_partial;
            let moved = self.groups.insert(hash, prefix, list, 0, flags);
            self.groups.blocks_mut().set_count(moved, count);
            from.partial -= is_partial;
            moved
        } else {
            let group = from.take_large(from.large_id(loc));
            let id = self.add_large(group);
            self.groups.insert(hash, from.groups.blocks().key(loc), &id.to_le_bytes(), 0, flags)
        };
        from.groups.remove(loc);
        if self.is_empty_group(moved) {
            self.note_empty(moved);
        }
    }

    /// Moves all large groups of a share here.
    fn receive_large(&mut self, from: &mut Self, share: &Share<Self>) {
        for id in 0..from.large.len() {
            let Some(group) = &from.large[id] else { continue };
            if share.key_groups.contains(&from.context.group(&group.prefix))
                && let Some(loc) = from.groups.find(group.hash, &group.prefix)
            {
                self.receive(from, loc);
            }
        }
    }

    #[cfg(test)]
    pub(in super::super) fn inherits_nothing(&self) -> bool {
        self.inherited.is_empty()
    }
}

impl Heir for RangeTable {
    fn context(&self) -> &TableContext {
        &self.context
    }

    fn blocks(&self) -> &Blocks {
        self.groups.blocks()
    }

    fn inherited(&mut self) -> &mut Inherited<Self> {
        &mut self.inherited
    }

    fn take(&mut self, from: &mut Self, loc: Loc) {
        self.receive(from, loc);
    }
}
