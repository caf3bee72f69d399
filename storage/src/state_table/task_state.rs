//! The state of one subtask: its tables, and the checkpoint of what changed in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::checkpoint::{LostTask, RestoredState};
use crate::env::Clock;
use crate::epoch::Epoch;
use crate::error::{Result, StorageError};
use crate::state_changelog::{ChangelogWriter, SegmentPart};
use crate::state_table::JobStore;
use crate::state_table::sweep_pace::{self, SweepPace};
use crate::state_table::{
    HandedTables, HandedTask, Kept, KeptTables, KeyDistribution, LeftTable, LeftTables, PointTable, RangeTable, RestoreTable, StateTable,
    TableContext, TableId, TaskShared,
};

/// A sweep pauses while the store has so many full buffers to flush.
const WAITING_BUFFERS: u64 = 1;
/// The same of a sweep that somebody waits for.
const URGENT_WAITING_BUFFERS: u64 = 2;
const RELIEVE_EVERY: usize = 4096;
/// A subtask that is restarted alone reads all that is its own at once if the store of its job has no more bytes than this. Tests have small stores.
const SMALL_STORE_BYTES: u64 = if cfg!(test) { 32 << 10 } else { 4 << 20 };
/// The same of a job that is restarted as a whole. Of a larger store subtasks read what they need when they need it, so that a restart takes as long as its log
/// is, however large the state.
const EAGER_STORE_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };
/// Entries beyond those that fit in memory that a restart reads, so as to know that other keys are not in the store.
const REMEMBERED_ENTRIES: usize = 1 << 20;

/// Where the state of a new subtask comes from.
#[derive(Clone, Default)]
pub enum StateOrigin {
    /// There is none.
    #[default]
    Empty,
    /// A checkpoint, whose materialization has been brought into the store.
    Checkpoint(RestoredState),
    /// Other subtasks of the same life of the job, which have ended; see [`TaskState::hand_over`].
    Handed(HandedTables),
    /// A subtask of the same key groups that has failed, whose tables have been put back to a checkpoint; see [`TaskState::lose`].
    Kept(KeptTables),
}

/// Creates the state tables of one subtask and takes their checkpoints. One thread at a time uses it and its tables.
pub struct TaskState {
    shared: Arc<TaskShared>,
    subtask: u32,
    /// Until the first checkpoint: then all tables have been created and have taken what is theirs.
    origin: StateOrigin,
    is_complete: bool,
    tables: BTreeSet<TableId>,
    sequence: u64,
    sweep: Option<Sweep>,
    swept: Sweep,
    pace: SweepPace,
    clock: Clock,
}

/// A pass that brings everything into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    /// The request it answers.
    pub(crate) request: u64,
    /// Every change up to here is in the store when it is through.
    pub(crate) base: Epoch,
}

/// What one subtask adds to a checkpoint: the segment of its changelog since the one before.
///
/// It has to reach [`Checkpointer::complete`](crate::checkpoint::Checkpointer::complete), in the order of epochs: the changes in it are
/// nowhere else. If one is lost, the job has to restart from its last checkpoint; `complete` notices a gap.
#[must_use]
pub struct TaskCheckpoint {
    pub(crate) store: Arc<JobStore>,
    pub(crate) writer: u32,
    pub(crate) subtask: u32,
    pub(crate) epoch: Epoch,
    pub(crate) sequence: u64,
    pub(crate) parts: Vec<SegmentPart>,
    /// End of the segment in the writer's changelog.
    pub(crate) position: u64,
    /// The last sweep that was finished.
    pub(crate) swept: Sweep,
    pub(crate) memory_bytes: usize,
}

impl TaskCheckpoint {
    /// Bytes of changelog in it.
    pub fn log_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Bytes the subtask's tables take in memory.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

impl TaskState {
    /// The state of a subtask that owns `key_groups`. `subtask` is its number in names of objects.
    pub fn new(store: Arc<JobStore>, subtask: u32, key_groups: Range<u16>, origin: StateOrigin) -> Result<Self> {
        let writer = store.new_writer();
        let part_bytes = (store.budget().limit() / 16).clamp(128 << 10, 8 << 20);
        let mut changelog = ChangelogWriter::new(store.scratch("log")?, format!("{subtask}-{writer}"), part_bytes, store.budget());
        if store.undo().named_if_kept(writer).is_some() {
            // From the first change on it is known which they are.
            changelog.changed_behind(0);
        }
        Ok(Self {
            shared: Arc::new(TaskShared { store, writer, key_groups, changelog: Mutex::new(changelog) }),
            subtask,
            origin,
            is_complete: false,
            tables: BTreeSet::new(),
            sequence: 0,
            sweep: None,
            swept: Sweep { request: 0, base: Epoch(0) },
            pace: SweepPace::default(),
            clock: Clock::system(),
        })
    }

    /// A table with hash access whose whole key decides the subtask. Holds what the checkpoint has for it.
    pub fn point_table(&mut self, id: TableId) -> Result<PointTable> {
        self.point_table_by(id, KeyDistribution::Whole)
    }

    /// A table with hash access, distributed by a part of its key.
    pub fn point_table_by(&mut self, id: TableId, distribution: KeyDistribution) -> Result<PointTable> {
        let context = self.context(id, distribution)?;
        if let StateOrigin::Kept(tables) = &self.origin {
            return take_kept(tables, id, LeftTable::into_point).map(|table| table.adopt(context));
        }
        let mut table = PointTable::new(context);
        match &self.origin {
            StateOrigin::Handed(handed) => table.inherit(handed.points(id, &self.shared.key_groups)),
            StateOrigin::Empty | StateOrigin::Checkpoint(_) | StateOrigin::Kept(_) => self.restore(&mut table)?,
        }
        table.end_segment(0);
        Ok(table)
    }

    /// A table of ordered groups whose whole prefix decides the subtask. Holds what the checkpoint has for it.
    pub fn range_table(&mut self, id: TableId) -> Result<RangeTable> {
        self.range_table_by(id, KeyDistribution::Whole)
    }

    /// A table of ordered groups, distributed by a part of its prefix.
    pub fn range_table_by(&mut self, id: TableId, distribution: KeyDistribution) -> Result<RangeTable> {
        let context = self.context(id, distribution)?;
        if let StateOrigin::Kept(tables) = &self.origin {
            return take_kept(tables, id, LeftTable::into_range).map(|table| table.adopt(context));
        }
        let mut table = RangeTable::new(context);
        match &self.origin {
            StateOrigin::Handed(handed) => table.inherit(handed.ranges(id, &self.shared.key_groups)),
            StateOrigin::Empty | StateOrigin::Checkpoint(_) | StateOrigin::Kept(_) => self.restore(&mut table)?,
        }
        table.end_segment(0);
        Ok(table)
    }

    /// A table for what has no distribution key (positions, offsets). After a restart every subtask sees the entries of all; an entry may
    /// be changed by one subtask only until the next restart.
    pub fn singleton_table(&mut self, id: TableId) -> Result<PointTable> {
        let context = self.context(id, KeyDistribution::Single)?;
        if let StateOrigin::Kept(tables) = &self.origin {
            return take_kept(tables, id, LeftTable::into_point).map(|table| table.adopt(context));
        }
        let mut table = PointTable::new(context);
        // Other subtasks hold the same entries. Were each to flush its own copy, an old copy could replace a newer one in the store.
        if let StateOrigin::Checkpoint(restored) = &self.origin {
            restored.replay_into(&self.shared.store, id)?;
        }
        self.restore_stored(&mut table, id, 0..1)?;
        Ok(table)
    }

    /// The task's number among all that write to the job's store.
    pub fn writer(&self) -> u32 {
        self.shared.writer
    }

    /// Key groups the subtask owns.
    pub fn key_groups(&self) -> Range<u16> {
        self.shared.key_groups.clone()
    }

    /// The synchronous part of a checkpoint: takes the changes of all `tables` of the subtask since the one before.
    pub fn snapshot(&mut self, tables: &mut [&mut dyn StateTable], epoch: Epoch) -> Result<TaskCheckpoint> {
        self.origin = StateOrigin::Empty;
        self.is_complete = true;
        let mut memory_bytes = 0;
        let mut changelog = self.shared.changelog.lock();
        for table in tables.iter_mut() {
            table.drain_dirty(&mut |key, value| changelog.append(key, value));
            memory_bytes += table.memory_bytes();
            changelog.spill()?;
        }
        let parts = changelog.finish_segment();
        let position = changelog.position();
        drop(changelog);
        tables.iter_mut().for_each(|table| table.end_segment(position));
        // Past this point nothing may fail: the changes are only in `parts` now.
        self.sweep_at(tables, epoch);
        self.sequence += 1;
        Ok(TaskCheckpoint {
            store: self.shared.store.clone(),
            writer: self.shared.writer,
            subtask: self.subtask,
            epoch,
            sequence: self.sequence,
            parts,
            position,
            swept: self.swept,
            memory_bytes,
        })
    }

    /// Leaves everything to subtasks that begin with [`StateOrigin::Handed`]: no entry is encoded anew, only who owns it changes.
    /// To be called after a last [`snapshot`](Self::snapshot); the tables must not be used afterwards.
    pub fn hand_over(&mut self, tables: &mut [&mut dyn StateTable]) -> Result<HandedTask> {
        let mut handed = BTreeMap::new();
        for table in tables.iter_mut() {
            if let Some(left) = table.hand_over()? {
                handed.insert(table.id(), left);
            }
        }
        Ok(HandedTask { key_groups: self.shared.key_groups.clone(), tables: handed })
    }

    /// The task has failed. Takes over `tables`, which are all it has as far as they can be had, for the task in its place; what
    /// [`Checkpointer::rewind`](crate::checkpoint::Checkpointer::rewind) needs. Neither it nor they are to be used afterwards.
    pub fn lose(&mut self, tables: &mut [&mut dyn StateTable]) -> LostTask {
        let left = tables.iter_mut().filter_map(|table| Some((table.id(), table.leave()?)));
        let left: BTreeMap<TableId, LeftTable> = left.collect();
        // All of them or none: one may have been lost with what failed.
        let tables = left.keys().eq(&self.tables).then_some(LeftTables { tables: left });
        LostTask { writer: self.shared.writer, key_groups: self.shared.key_groups.clone(), tables }
    }

    /// Tells the time by another clock: by one that stands still a sweep has nothing to rest from.
    #[cfg(test)]
    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Whether everything is being brought into the store, a little at a time.
    pub fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// A step of a sweep if one is under way, in proportion to what has been logged. To be called every few chunks, with all tables.
    pub fn go_on_sweeping(&mut self, tables: &mut [&mut dyn StateTable]) {
        let Some(sweep) = self.sweep else { return };
        let is_urgent = self.shared.store.is_image_urgent(sweep.request);
        // The records behind a sweep must not wait for the disk because of it; what is left undone is made good with the next step.
        if self.shared.store.waiting_buffers() >= if is_urgent { URGENT_WAITING_BUFFERS } else { WAITING_BUFFERS } {
            return;
        }
        let position = self.shared.changelog.lock().position();
        let began = self.clock.monotonic();
        let bytes = self.pace.next_bytes(position, is_urgent, began);
        if bytes > 0 {
            self.sweep_some(tables, bytes);
            let ended = self.clock.monotonic();
            self.pace.rest(ended - began, is_urgent, ended);
        }
    }

    fn sweep_at(&mut self, tables: &mut [&mut dyn StateTable], epoch: Epoch) {
        let request = self.shared.store.image_wanted();
        if self.sweep.is_none() && request > self.swept.request {
            self.sweep = Some(Sweep { request, base: epoch });
            self.pace = SweepPace::new(self.shared.changelog.lock().position());
            tables.iter_mut().for_each(|table| table.begin_sweep());
        }
        // What was logged just now is paid for later: everybody waits for a snapshot. A job that has nothing else to do goes on as well.
        if self.shared.store.waiting_buffers() < WAITING_BUFFERS {
            self.sweep_some(tables, sweep_pace::STEP_BYTES);
        }
    }

    /// Flushes about `bytes` of the first table that is not through.
    fn sweep_some(&mut self, tables: &mut [&mut dyn StateTable], bytes: usize) {
        let Some(sweep) = self.sweep else { return };
        let mut through = true;
        for table in tables.iter_mut() {
            match table.sweep(bytes) {
                Ok(true) => {}
                Ok(false) => {
                    through = false;
                    break;
                }
                Err(error) => {
                    tracing::warn!(table = %table.id(), %error, "state could not be flushed for a materialization; trying again later");
                    through = false;
                }
            }
        }
        if through {
            self.swept = sweep;
            self.sweep = None;
        }
    }

    fn context(&mut self, id: TableId, distribution: KeyDistribution) -> Result<TableContext> {
        if !self.tables.insert(id) {
            return Err(StorageError::Internal(format!("state table {id} is created twice in one subtask")));
        }
        if self.is_complete {
            return Err(StorageError::Internal(format!("state table {id} is created after the first checkpoint")));
        }
        let memory = self.shared.store.budget().handle(&format!("state table {id}"));
        Ok(TableContext { id, task: self.shared.clone(), distribution, memory })
    }

    fn restore(&self, table: &mut (impl RestoreTable + StateTable)) -> Result<()> {
        let StateOrigin::Checkpoint(restored) = &self.origin else { return Ok(()) };
        let groups = self.shared.key_groups.clone();
        // Others wait for a subtask that is restarted alone.
        let most = if restored.is_rewound() { SMALL_STORE_BYTES } else { EAGER_STORE_BYTES };
        if self.shared.store.approximate_bytes() > most {
            table.give_up();
        } else {
            restored.count_read(self.restore_stored(table, table.id(), groups.clone())?);
        }
        let mut changes = 0_usize;
        restored.claim(table.id(), groups.clone());
        restored.for_each(table.id(), &groups, &mut |_, key, value| {
            table.restore_logged(key, value)?;
            changes += 1;
            if changes.is_multiple_of(RELIEVE_EVERY) { table.relieve() } else { Ok(()) }
        })?;
        restored.count_read(changes);
        table.relieve()
    }

    /// Brings what a materialization has of a table into memory as far as it fits, and a bounded number of keys more into its set of keys that
    /// are not in memory. Answers how many entries it has read.
    fn restore_stored(&self, table: &mut impl RestoreTable, id: TableId, groups: Range<u16>) -> Result<usize> {
        let Some(store) = self.shared.store.opened() else { return Ok(0) };
        let (mut left_in_store, mut read) = (0_usize, 0_usize);
        for group in groups {
            let (from, to) = TableContext::range_of(id, group);
            let mut outcome = Ok(());
            store.scan_with((Bound::Included(&from), Bound::Excluded(&to)), false, &mut |key, value| {
                read += 1;
                match table.restore_stored(&key[from.len()..], value) {
                    Ok(kept) => left_in_store += usize::from(kept == Kept::InStore),
                    Err(error) => outcome = Err(error),
                }
                if outcome.is_ok() && left_in_store <= REMEMBERED_ENTRIES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
            if left_in_store > REMEMBERED_ENTRIES {
                table.give_up();
                break;
            }
        }
        Ok(read)
    }
}

/// Takes a table that was kept.
fn take_kept<T>(tables: &KeptTables, id: TableId, kind: impl FnOnce(LeftTable) -> Option<T>) -> Result<T> {
    let missing = || StorageError::Internal(format!("state table {id} was not kept"));
    tables.take(id).and_then(kind).ok_or_else(missing)
}

#[cfg(test)]
pub(crate) mod tests;
