//! The large groups of a range table: from their numbers to the groups and back, and when a group becomes large or small again.

use super::super::blocks::Loc;
use super::super::large::{LIST_BYTES, LIST_ENTRIES, LargeGroup, Segment};
use super::super::packed::{DIRTY, UNFLUSHED};
use super::{COMPLETE, GROUP_DIRTY, GROUP_STORED, LARGE, Mark, RangeTable};

impl RangeTable {
    pub(super) fn large_id(&self, loc: Loc) -> u32 {
        u32::from_le_bytes(self.groups.blocks().value(loc).try_into().expect("the number of a large group"))
    }

    pub(super) fn large_group(&self, id: u32) -> &LargeGroup {
        self.large[id as usize].as_ref().expect("a large group by its number")
    }

    /// Changes a large group and keeps the sums over all of them right.
    pub(super) fn with_large<R>(&mut self, id: u32, change: impl FnOnce(&mut LargeGroup) -> R) -> R {
        let group = self.large[id as usize].as_mut().expect("a large group by its number");
        let (bytes, complete) = (group.bytes, group.is_complete());
        let result = change(group);
        self.large_bytes = self.large_bytes + group.bytes - bytes;
        self.partial = self.partial + usize::from(complete) - usize::from(group.is_complete());
        result
    }

    pub(super) fn add_large(&mut self, group: LargeGroup) -> u32 {
        self.large_bytes += group.bytes;
        self.partial += usize::from(!group.is_complete());
        if group.dirty {
            self.dirty_large.push(self.unused_large.last().copied().unwrap_or(self.large.len() as u32));
        }
        if let Some(id) = self.unused_large.pop() {
            self.large[id as usize] = Some(group);
            return id;
        }
        self.large.push(Some(group));
        (self.large.len() - 1) as u32
    }

    pub(super) fn take_large(&mut self, id: u32) -> LargeGroup {
        let group = self.large[id as usize].take().expect("a large group by its number");
        self.large_bytes -= group.bytes;
        self.partial -= usize::from(!group.is_complete());
        self.unused_large.push(id);
        group
    }

    /// Makes a small group a large one. Returns where its record is now.
    pub(super) fn promote(&mut self, loc: Loc) -> Loc {
        let blocks = self.groups.blocks();
        let flags = blocks.flags(loc);
        let (prefix, list) = blocks.entry(loc);
        let mut group = LargeGroup::new(prefix, blocks.hash(loc));
        let complete = flags & COMPLETE != 0;
        group.len = complete.then(|| blocks.count(loc) as u64);
        group.dirty = flags & GROUP_DIRTY != 0;
        group.stored = flags & GROUP_STORED != 0;
        group.add(&[], list.to_vec(), complete);
        self.partial -= usize::from(!complete);
        let id = self.add_large(group);
        let moved = self.groups.set_value(loc, &id.to_le_bytes());
        self.groups.blocks_mut().set_count(moved, 0);
        self.groups.blocks_mut().set_flags(moved, LARGE);
        if self.sweep.is_some() {
            self.sweep_again_large.push(id);
        }
        moved
    }

    /// Makes a large group that became small and complete a record again.
    pub(super) fn demote(&mut self, loc: Loc) {
        let id = self.large_id(loc);
        let group = self.large_group(id);
        if !group.is_complete() || group.segments.len() > 1 {
            return;
        }
        let (list, count) = group.segments.values().next().map(|s| (s.list.clone(), s.count)).expect("the first segment");
        if list.len() > LIST_BYTES / 2 || count > LIST_ENTRIES / 2 {
            return;
        }
        let segment = Segment::of(list, true);
        let stored = if group.stored { GROUP_STORED } else { 0 };
        self.take_large(id);
        let moved = self.groups.set_value(loc, &segment.list);
        self.groups.blocks_mut().set_count(moved, segment.count);
        self.groups.blocks_mut().set_flags(moved, COMPLETE | stored);
        let change = if segment.dirty { DIRTY } else { 0 } | if segment.unflushed { UNFLUSHED } else { 0 };
        self.mark_group(moved, true, Mark { change, absent: 0 }, 0);
    }
}
