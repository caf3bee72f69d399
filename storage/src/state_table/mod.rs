//! State tables: the only place where an operator may keep what must survive.
//!
//! # What a table is
//! [`PointTable`] maps keys to values with hash access. [`RangeTable`] maps (prefix, suffix) to values, suffixes in byte order within their
//! prefix. Both keep encoded records in memory under the budget; behind them is the job's store, shared by all tables of the job, with keys
//! `(key group, table id, key)`. In memory is the fast path: the store sees only what eviction and materialization write.
//!
//! # The life of a change
//! `put` and `delete` mark an entry *dirty* (the state changelog lacks it) and *unflushed* (the store lacks it). A checkpoint drains the dirty
//! entries into the changelog segment of the epoch; those that have been dirty for long go there before, at a barrier. An entry may leave memory once it is neither. Eviction therefore first appends dirty
//! entries to the changelog, then writes unflushed ones to the store in one sorted batch that also says how far the changelog had come,
//! then drops them. So the store never holds a change that the changelog does not have before it.
//!
//! # Entry flags
//! *Stored*: the store has some version of the entry, or may have. *Logged*: so has the changelog. An entry that is neither can be deleted
//! without a trace; others leave a tombstone until changelog and store have the deletion.
//!
//! # Handing over
//! A task can leave its tables to tasks that go on in the same process with other key groups: see [`handed`] and
//! [`TaskState::hand_over`].
//!
//! # Sweeps
//! A materialization needs every entry in the store. The task starts a sweep at a checkpoint; tables then flush a bounded number of bytes
//! with each `relieve` until they have passed over everything that existed at the start.

mod before_images;
mod blocks;
mod cold;
mod context;
mod dirty_queue;
mod flush;
mod handed;
mod job_store;
mod large;
mod left;
mod merge;
mod packed;
mod point;
mod range;
mod resident;
mod segments;
mod sweep_pace;
pub(crate) mod task_state;
mod tombstones;
pub(crate) mod undo;

use std::ops::ControlFlow;

use crate::error::Result;

pub use context::{KeyDistribution, KeyLengthFn, TableId};
pub(crate) use context::{TableContext, TaskShared};
pub use handed::{HandedTables, HandedTask};
pub(crate) use job_store::ImageFile;
pub use job_store::{JobStore, JobStoreSpec};
pub(crate) use left::ChangedTables;
pub use left::{KeptTables, LeftTable, LeftTables};
pub use point::PointTable;
pub use range::RangeTable;
pub(crate) use task_state::Sweep;
pub use task_state::{StateOrigin, TaskCheckpoint, TaskState};

/// Takes a change: a full key and its value, `None` for a deletion.
pub type ChangeSink<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// Visits a key and its value; `Break` ends the pass.
pub type VisitFn<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Visits a prefix, a suffix and their value; `Break` ends the pass.
pub type VisitGroupsFn<'a> = dyn FnMut(&[u8], &[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// What a table that is being restored did with an entry of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    /// It is in memory.
    InMemory,
    /// It stays in the store, and the table remembers that.
    InStore,
}

/// How a table takes over what a checkpoint has for it, first the materialization, then the changelog, each in order. `key` is the table's
/// own part of the full key.
pub(crate) trait RestoreTable {
    /// An entry of the store.
    fn restore_stored(&mut self, key: &[u8], value: &[u8]) -> Result<Kept>;

    /// There will be no more entries of the store, though it has more: any key may be there.
    fn give_up(&mut self);

    /// A change of the changelog that the store lacks.
    fn restore_logged(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()>;
}

/// What the task loop does with a table, whatever its kind.
pub trait StateTable: Send {
    /// The table's number in the job.
    fn id(&self) -> TableId;

    /// Hands over every entry that changed since it was last handed over, as full key and value (`None`: deleted), in an order that may be
    /// replayed, and takes note that the state changelog has them.
    fn drain_dirty(&mut self, sink: &mut ChangeSink<'_>);

    /// Appends to the state changelog what has been dirty for `age_us` microseconds, so that little is left for the checkpoint. To be called
    /// at each barrier, with its time.
    fn log_aged(&mut self, now_us: i64, age_us: i64);

    /// The changelog has everything, in a segment that ends at `position`: from here on the table notes what its entries were, if the task may be
    /// put back.
    fn end_segment(&mut self, position: u64);

    /// Leaves the table to another task, for [`TaskState::lose`]; an empty one is in its place then. `None` if it failed in the midst of a call, or
    /// has not noted what to go back to.
    fn leave(&mut self) -> Option<LeftTable>;

    /// Leaves the table to others, after the last checkpoint; an empty one is in its place then. `None` if others have it from the store.
    fn hand_over(&mut self) -> Result<Option<LeftTable>>;

    /// Bytes the table takes in memory.
    fn memory_bytes(&self) -> usize;

    /// To be called by the task loop after each few chunks: writes what is beyond bounds, and evicts if over budget. What
    /// `load` brought into memory may be gone afterwards.
    fn relieve(&mut self) -> Result<()>;

    /// Starts a sweep over everything the table holds now.
    fn begin_sweep(&mut self);

    /// Flushes about `bytes` of unflushed entries; true when the sweep is through.
    fn sweep(&mut self, bytes: usize) -> Result<bool>;
}
