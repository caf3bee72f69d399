//! External inputs. A source has *splits* (a file, a partition, a generator's lane); each split is an ordered sequence of rows with offsets.
//!
//! A reader gives the rows of one split from an offset on and stops exactly at a limit, so that every job that reads a split up to the same
//! *binding* (epoch log) has seen the same rows. Contents are a function of (split, offset): a second reader, now or years later, gives
//! the same rows. Pacing (`rate`, `replay_speed`) decides only *when* rows become available to the reader that leads.

pub mod datagen;
pub mod file;
pub mod nexmark;
mod open;
pub mod options;
mod pacing;

use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use async_trait::async_trait;

pub use self::{
    open::{infer_schema, open_source, open_source_with},
    options::{BadRows, ConnectorSpec, FormatClause, LateRows, SourceOptions, SourceSpec, WatermarkSpec},
};
use crate::error::{EngineError, Result};

/// A position in a split: the number after the last row read, in an order of the connector's own choice (not necessarily row counts).
pub type Offset = u64;

/// One split of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Stable name, unique in the source (a path, `lane-0`).
    pub id: String,
    /// Where it ends, if it is bounded and the end is known without reading it.
    pub end: Option<Offset>,
    /// Nothing will ever be appended: the reader says `Finished` at its end.
    pub bounded: bool,
}

/// What a read gave.
#[derive(Debug)]
pub enum ReadOutcome {
    /// Rows, and the offset after them.
    Rows {
        /// Columns of the projection, in its order. May be empty when only bad rows were met.
        batch: RecordBatch,
        /// The offset after the last of them.
        end: Offset,
        /// Rows that could not be decoded.
        bad: Vec<BadRow>,
    },
    /// No row is available now; ask again after this many microseconds (or when woken). The split counts as idle if `idle`.
    Pending {
        /// Microseconds until asking again makes sense.
        retry_after_us: u64,
        /// The source said that there is no more for now (as opposed to pacing).
        idle: bool,
    },
    /// The limit was reached.
    AtLimit,
    /// The split has ended.
    Finished,
}

/// A row that could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Its text, cut to 1,024 bytes.
    pub text: String,
    /// Why.
    pub reason: String,
    /// Offset after it.
    pub offset: Offset,
}

impl BadRow {
    /// The error of a reader that does not put such rows aside. `place` is what [`Source::row_at`] says.
    pub fn refusal(&self, source: &str, place: &str) -> EngineError {
        let Self { text, reason, .. } = self;
        EngineError::user("22P02", format!("source \"{source}\": bad row in {place}: {reason} (row: {text})"))
    }
}

/// A connector with its options, checked.
#[async_trait]
pub trait Source: Send + Sync + std::fmt::Debug {
    /// All columns a reader can give.
    fn schema(&self) -> SchemaRef;

    /// Whether rows become available at a pace of the source's own (`rate`, `replay_speed`), so that nobody should wait for its end.
    fn paced(&self) -> bool {
        false
    }

    /// The splits that exist now; those found earlier are found again. `complete` when none will come later.
    async fn discover(&self) -> Result<Discovery>;

    /// A reader of `split` from `from` (0 = the beginning) that gives the columns of `projection`.
    async fn open(&self, split: &Split, from: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>>;

    /// Where a person finds the row that ends at an offset of a split.
    async fn row_at(&self, split: &Split, offset: Offset) -> String {
        format!("\"{}\" at offset {offset}", split.id)
    }
}

/// What discovery found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Splits in a stable order.
    pub splits: Vec<Split>,
    /// No more will come.
    pub complete: bool,
}

/// Reads one split.
#[async_trait]
pub trait SplitReader: Send {
    /// The next rows: at most about `max_rows`, none beyond `limit`. With a limit, pacing does not apply (the rows were available to another reader).
    async fn read(&mut self, max_rows: usize, limit: Option<Offset>) -> Result<ReadOutcome>;
}
