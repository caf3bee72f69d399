//! What tasks leave in memory to tasks of other key groups, when a job goes on with another number of them.
//!
//! A table of a new task owns key groups of one or several tables of old tasks. It takes over the first one whole, if that has no other heirs. Of each
//! other it takes an entry, or a group of entries, when it is asked for it, changed or not; and a bounded number of bytes with each `relieve`, until
//! nothing of its key groups is left. So a task begins at once, however much there is, and nothing is read or encoded anew.
//!
//! An entry is in one table only: who looks for it in memory takes it out of the old table first. What the changelog lacks is nobody's: the old task has
//! taken its last checkpoint. What the store lacks an entry says as before, and a sweep is through only when everything has been taken. What the old
//! table had in the store only may be there for all heirs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::blocks::{Blocks, Loc};
use super::context::TableContext;
use super::left::{Kind, LeftTable};
use super::{PointTable, RangeTable, TableId};

/// Bytes of an old table that are gone through with each `relieve`. Tests have small tables.
const TAKE_BYTES: usize = if cfg!(test) { 2 << 10 } else { 1 << 20 };
/// The same while the budget is exceeded: only what has been taken over can leave memory.
const TAKE_BYTES_IN_NEED: usize = 8 * TAKE_BYTES;

/// All tables of a task that has taken its last checkpoint; see [`TaskState::hand_over`](super::TaskState::hand_over).
pub struct HandedTask {
    pub(super) key_groups: Range<u16>,
    pub(super) tables: BTreeMap<TableId, LeftTable>,
}

/// The tables of all tasks of a job, for those that go on.
#[derive(Clone, Default)]
pub struct HandedTables {
    tables: Arc<Handed>,
}

#[derive(Default)]
struct Handed {
    points: BTreeMap<TableId, Vec<Old<PointTable>>>,
    ranges: BTreeMap<TableId, Vec<Old<RangeTable>>>,
}

/// A table of an old task.
struct Old<T> {
    key_groups: Range<u16>,
    table: Arc<Mutex<T>>,
}

impl HandedTables {
    /// Of all tasks of a job.
    pub fn new(tasks: Vec<HandedTask>) -> Self {
        let mut handed = Handed::default();
        for HandedTask { key_groups, tables } in tasks {
            for (id, table) in tables {
                let key_groups = key_groups.clone();
                match table.0 {
                    Kind::Point(table) => handed.points.entry(id).or_default().push(Old::new(key_groups, *table)),
                    Kind::Range(table) => handed.ranges.entry(id).or_default().push(Old::new(key_groups, *table)),
                }
            }
        }
        Self { tables: Arc::new(handed) }
    }

    /// What a table of a new task takes over.
    pub(super) fn points(&self, id: TableId, key_groups: &Range<u16>) -> Inherited<PointTable> {
        Inherited::of(self.tables.points.get(&id), key_groups)
    }

    /// The same of ordered groups.
    pub(super) fn ranges(&self, id: TableId, key_groups: &Range<u16>) -> Inherited<RangeTable> {
        Inherited::of(self.tables.ranges.get(&id), key_groups)
    }
}

impl<T> Old<T> {
    fn new(key_groups: Range<u16>, table: T) -> Self {
        Self { key_groups, table: Arc::new(Mutex::new(table)) }
    }
}

/// A table that takes over what others have in memory, record by record.
pub(super) trait Heir: Sized {
    fn context(&self) -> &TableContext;

    /// Where its records lie.
    fn blocks(&self) -> &Blocks;

    /// What is still to be taken over.
    fn inherited(&mut self) -> &mut Inherited<Self>;

    /// Moves a record of another table here.
    fn take(&mut self, from: &mut Self, loc: Loc);

    /// Takes over a little more with each relieve, or more if there is need.
    fn take_some(&mut self) {
        let is_in_need = self.context().memory.over_budget();
        self.take_over(if is_in_need { TAKE_BYTES_IN_NEED } else { TAKE_BYTES });
    }

    /// Goes through about `bytes` of what is still to be taken over. Answers whether that was all.
    fn take_over(&mut self, bytes: usize) -> bool {
        let mut inherited = std::mem::take(self.inherited());
        if let Some(mut share) = inherited.pop()
            && !self.take_of(&mut share, bytes)
        {
            inherited.push(share);
        }
        *self.inherited() = inherited;
        self.inherited().is_empty()
    }

    /// Answers whether nothing of the share is left.
    fn take_of(&mut self, share: &mut Share<Self>, bytes: usize) -> bool {
        let mut old = share.lock();
        // First to there, then from there.
        if !old.take_over(bytes) {
            return false;
        }
        let (mut place, mut passed) = (share.place, 0);
        while place.0 < old.blocks().block_count() && passed < bytes {
            let Some((loc, next)) = old.blocks().next_record(place.0, place.1) else {
                place = (place.0 + 1, 0);
                continue;
            };
            place.1 = next;
            passed += old.blocks().slot_bytes(loc);
            if share.key_groups.contains(&old.context().group(old.blocks().key(loc))) {
                self.take(&mut old, loc);
            }
        }
        let is_through = place.0 >= old.blocks().block_count();
        drop(old);
        share.place = place;
        is_through
    }
}

/// One heir's part of an old table.
pub(super) struct Share<T> {
    /// The key groups of the part.
    pub(super) key_groups: Range<u16>,
    /// Those of the table.
    of: Range<u16>,
    table: Arc<Mutex<T>>,
    /// Block and byte up to which the part has been taken.
    place: (usize, usize),
}

impl<T> Share<T> {
    /// Whether nobody else has a part of the table.
    pub(super) fn is_whole(&self) -> bool {
        self.key_groups == self.of
    }

    /// The table. Locks are taken from newer tables to older ones, so nobody waits for ever.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.table.lock()
    }
}

/// What a table has still to take over.
pub(super) struct Inherited<T> {
    shares: Vec<Share<T>>,
}

impl<T> Default for Inherited<T> {
    fn default() -> Self {
        Self { shares: Vec::new() }
    }
}

impl<T> Inherited<T> {
    fn of(old: Option<&Vec<Old<T>>>, key_groups: &Range<u16>) -> Self {
        let shares = old.into_iter().flatten().filter_map(|old| {
            let common = old.key_groups.start.max(key_groups.start)..old.key_groups.end.min(key_groups.end);
            let (of, table) = (old.key_groups.clone(), old.table.clone());
            (!common.is_empty()).then_some(Share { key_groups: common, of, table, place: (0, 0) })
        });
        Self { shares: shares.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    /// How many key groups there are, taken or not.
    pub(super) fn width(&self) -> usize {
        self.shares.iter().map(|share| share.key_groups.len()).sum()
    }

    /// The part that has this key group.
    pub(super) fn with(&self, key_group: u16) -> Option<&Share<T>> {
        self.shares.iter().find(|share| share.key_groups.contains(&key_group))
    }

    pub(super) fn pop(&mut self) -> Option<Share<T>> {
        self.shares.pop()
    }

    pub(super) fn push(&mut self, share: Share<T>) {
        self.shares.push(share);
    }

    /// Takes out a part that is a whole table, if there is one.
    pub(super) fn pop_whole(&mut self) -> Option<Share<T>> {
        let at = self.shares.iter().position(Share::is_whole)?;
        Some(self.shares.remove(at))
    }

    /// This table's part of what old tables take in memory, `bytes` of each, as if it were spread evenly.
    pub(super) fn memory_bytes(&self, bytes: impl Fn(&T) -> usize) -> usize {
        self.shares.iter().map(|share| bytes(&share.lock()) * share.key_groups.len() / share.of.len().max(1)).sum()
    }
}

#[cfg(test)]
mod tests;
