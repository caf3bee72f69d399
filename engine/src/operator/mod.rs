//! Incremental operators, one per file. An operator is a set of synchronous callbacks, called by the task loop (`task/`), which owns
//! receiving, aligning, snapshotting and forwarding.
//!
//! Rules every operator keeps: its net result of an epoch is a function of its state and the multiset of rows of the epoch, never of their
//! order across inputs; it has no clock, no randomness and no dependence on hash-map order; what must survive is in its state tables; a
//! callback ends after about 20 ms or when the output is full, and then answers [`Progress::More`].

mod aggregate;
mod build;
mod closing_time;
mod discard;
mod distinct_keys;
mod emit_on_window_close;
pub(crate) mod event_time;
mod filter;
mod hop_window;
mod join;
mod key_groups;
#[cfg(test)]
mod large_state;
mod multiplicity;
mod project;
mod scalar_subquery;
mod slot_map;
mod state;
mod timers;
mod top_n;
mod union;

use std::sync::{Arc, atomic::AtomicI64};

use arrow::datatypes::SchemaRef;
use millpond_storage::{
    epoch::Epoch,
    memory::MemoryBudget,
    state_table::{StateTable, TaskState},
};

pub use build::build;
pub use state::TableIds;

use crate::{
    chunk::Chunk,
    error::Result,
    message::{Barrier, Watermark},
    source::Offset,
};

/// Whether a callback has finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Progress {
    /// All that the call owed has been emitted.
    Done,
    /// The output is full, or time is up: [`Operator::resume`] goes on from the place kept in the operator.
    More,
}

/// One operator of a subtask.
pub trait Operator: Send {
    /// Takes a chunk from input `port`.
    fn on_chunk(&mut self, port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress>;

    /// Goes on with a callback that answered `More`.
    fn resume(&mut self, _out: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// Event time of input `port` has advanced. The task loop calls it with a port's minimum over all its channels; the default forwards
    /// nothing: an operator that keeps a watermark emits it under its own output column, after the rows it owes.
    fn on_watermark(&mut self, _port: usize, _watermark: Watermark, _out: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// All inputs have delivered this barrier: what the operator owes of the epoch is emitted here.
    fn on_barrier(&mut self, _barrier: &Barrier, _out: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    /// Writes what it withholds into its state tables. May come in mid-epoch: `closed` is the last epoch that was closed, and what is withheld
    /// belongs to an epoch above it.
    fn snapshot(&mut self, _closed: Epoch) -> Result<()> {
        Ok(())
    }

    /// The watermark that counts since the last barrier, of an operator to which rows can be late (`i64::MIN` before the first).
    fn applied_watermark(&self) -> Option<i64> {
        None
    }

    /// Its state tables, for the task loop to drain at a snapshot and to relieve of memory between chunks.
    fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        Vec::new()
    }
}

/// Messages an operator emits, bounded by what its consumer has room for.
#[derive(Debug, Default)]
pub struct Output {
    emitted: Vec<Emitted>,
    rows: usize,
    budget_rows: usize,
}

/// What an operator may emit; barriers are forwarded by the task loop.
#[derive(Clone, Debug)]
pub enum Emitted {
    /// Row changes.
    Chunk(Chunk),
    /// Event time.
    Watermark(Watermark),
}

impl Output {
    /// An output with room for `budget_rows` rows before it counts as full.
    pub fn with_room(budget_rows: usize) -> Self {
        Self { emitted: Vec::new(), rows: 0, budget_rows }
    }

    /// Emits row changes; an empty chunk is dropped.
    pub fn emit(&mut self, chunk: Chunk) {
        if chunk.num_rows() > 0 {
            self.rows += chunk.num_rows();
            self.emitted.push(Emitted::Chunk(chunk));
        }
    }

    /// Emits a watermark.
    pub fn emit_watermark(&mut self, watermark: Watermark) {
        self.emitted.push(Emitted::Watermark(watermark));
    }

    /// Whether the operator should stop emitting and answer `More`.
    pub fn is_full(&self) -> bool {
        self.rows >= self.budget_rows
    }

    /// Takes what was emitted, in order, and makes room again.
    pub fn take(&mut self) -> Vec<Emitted> {
        self.rows = 0;
        std::mem::take(&mut self.emitted)
    }
}

/// What an operator is built with.
pub struct OperatorContext {
    /// The subtask's state: state tables are created here.
    pub state: TaskState,
    /// Where late and failed rows go.
    pub side: Arc<dyn SideOutput>,
    /// The one memory budget.
    pub budget: MemoryBudget,
    /// The last epoch that the subtask has closed. What operators withheld when a checkpoint was taken in mid-epoch may be of subtasks that had
    /// closed others, above it: it is written with their last one, and stays withheld until a barrier above that.
    pub closed: Epoch,
    /// What [`Operator::applied_watermark`] of the operator that is built next had been in an earlier life. Set before each call of `build`.
    pub applied_watermark: i64,
    /// The time of the epoch that is open, microseconds since 1970.
    pub epoch_time_us: Arc<AtomicI64>,
    /// Index of this subtask in its fragment.
    pub subtask: usize,
    /// Subtasks of the fragment.
    pub parallelism: usize,
    /// Columns of each input port of the operator that is built next, in port order. Set before each call of `build`.
    pub inputs: Vec<SchemaRef>,
}

/// Receives rows that an operator refused. Bounded: counts always, keeps the newest rows only.
pub trait SideOutput: Send + Sync {
    /// A row whose event time was below the watermark; `origin` where an operator knows it.
    fn late_row(&self, operator: &str, row_text: String, reason: String, origin: Option<Origin<'_>>);

    /// A row that could not be decoded or computed; `origin` where an operator knows it.
    fn bad_row(&self, operator: &str, row_text: String, reason: String, origin: Option<Origin<'_>>);
}

/// Where in a source a row was read.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The split: for files, the name of the file.
    pub split: &'a str,
    /// The offset behind the row, if it is known: for text files, its bytes.
    pub offset: Option<Offset>,
}
