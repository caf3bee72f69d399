//! Taking over what point tables of other tasks have in memory: see [`handed`](super::super::handed).

use super::super::StateTable;
use super::super::blocks::{Blocks, Loc};
use super::super::context::TableContext;
use super::super::handed::{Heir, Inherited};
use super::super::left::LeftTable;
use super::{DIRTY, FLUSH_BYTES, PointTable, TOMBSTONE};
use crate::error::Result;

impl PointTable {
    /// Begins with what other tables have. `self` is empty.
    pub(in super::super) fn inherit(&mut self, mut inherited: Inherited<Self>) {
        let is_all = inherited.width() == self.context.groups().len();
        if let Some(share) = inherited.pop_whole() {
            let mut old = share.lock();
            let empty = Self::new(old.context.again());
            let old = std::mem::replace(&mut *old, empty);
            (self.resident, self.cold, self.tombstones, self.inherited) = (old.resident, old.cold, old.tombstones, old.inherited);
        }
        while let Some(share) = inherited.pop() {
            self.cold.add(&share.lock().cold);
            self.inherited.push(share);
        }
        if !is_all && self.context.stored().is_some() {
            self.cold.give_up();
        }
        self.context.memory.resize(self.memory_bytes());
    }

    /// Leaves everything to other tables.
    pub(super) fn leave_to_heirs(&mut self) -> LeftTable {
        let empty = Self::new(self.context.again());
        let mut left = std::mem::replace(self, empty);
        (left.images, left.sweep) = (None, None);
        // Heirs count it.
        left.context.memory.resize(0);
        LeftTable::point(left)
    }

    /// Writes everything to the store, for others that see the same entries.
    pub(super) fn flush_all(&mut self) -> Result<()> {
        self.begin_sweep();
        while !self.sweep(FLUSH_BYTES)? {}
        Ok(())
    }

    /// The record of a key, also if it had still to be taken over.
    pub(super) fn find(&mut self, hash: u32, key: &[u8]) -> Option<Loc> {
        self.resident.find(hash, key).or_else(|| self.claim(hash, key))
    }

    fn claim(&mut self, hash: u32, key: &[u8]) -> Option<Loc> {
        if self.inherited.is_empty() {
            return None;
        }
        let inherited = std::mem::take(&mut self.inherited);
        let taken = inherited.with(self.context.group(key)).and_then(|share| {
            let mut old = share.lock();
            let loc = old.find(hash, key)?;
            Some(self.receive(&mut old, loc))
        });
        self.inherited = inherited;
        taken
    }

    /// Moves a record of another table here.
    fn receive(&mut self, from: &mut Self, loc: Loc) -> Loc {
        let blocks = from.resident.blocks();
        let (hash, flags, (key, value)) = (blocks.hash(loc), blocks.flags(loc), blocks.entry(loc));
        debug_assert!(flags & DIRTY == 0 && self.resident.find(hash, key).is_none(), "an entry is in one table, and logged");
        let moved = self.resident.insert(hash, key, value, 0, flags);
        if flags & TOMBSTONE != 0 {
            self.tombstones.push(self.resident.handle(moved));
        }
        from.resident.remove(loc);
        moved
    }

    #[cfg(test)]
    pub(in super::super) fn inherits_nothing(&self) -> bool {
        self.inherited.is_empty()
    }
}

impl Heir for PointTable {
    fn context(&self) -> &TableContext {
        &self.context
    }

    fn blocks(&self) -> &Blocks {
        self.resident.blocks()
    }

    fn inherited(&mut self) -> &mut Inherited<Self> {
        &mut self.inherited
    }

    fn take(&mut self, from: &mut Self, loc: Loc) {
        self.receive(from, loc);
    }
}
