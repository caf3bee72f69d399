//! The reader of one file as the engine sees it: decoding runs one block ahead on a blocking thread, and what was decoded is cut to the limit,
//! to the number of rows asked for, and to what the replay has reached.
//!
//! [`SplitReader::read`] may be dropped at any point and called again: the block under way stays in the reader.

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use tokio::task::JoinHandle;

use super::replay::{Due, Replay};
use crate::{
    error::{EngineError, Result},
    source::{BadRow, Offset, ReadOutcome, SplitReader},
};

/// How long a file that may grow is left alone when it had nothing new.
const WATCH_INTERVAL_US: u64 = 100_000;

/// Decodes one file block by block. Calls may block on the disk.
pub(super) trait BlockReader: Send {
    /// The next rows, about a chunk of them.
    fn next(&mut self) -> Result<Block>;

    /// Opens the file, so that one without the wanted columns is found out.
    fn check(&mut self) -> Result<()>;
}

/// What a file gave.
#[derive(Debug)]
pub(super) enum Block {
    /// Rows, good or bad.
    Rows(BlockRows),
    /// Nothing more now; the file may grow.
    Later,
    /// Nothing more ever.
    End,
}

/// Decoded rows with their offsets.
#[derive(Debug)]
pub(super) struct BlockRows {
    /// The good ones.
    pub batch: RecordBatch,
    /// Where each of them ends.
    pub ends: RowEnds,
    /// The others, by offset.
    pub bad: Vec<BadRow>,
    /// Where the block ends; behind the last row, good or bad.
    pub end: Offset,
}

/// Offsets behind the rows of a block.
#[derive(Debug)]
pub(super) enum RowEnds {
    /// Distances from a base.
    Listed {
        /// Offset from which they count.
        base: Offset,
        /// One per row.
        ends: Vec<u32>,
    },
    /// Row i ends at `before + i + 1`.
    Counted {
        /// Rows of the split before the block.
        before: Offset,
    },
}

impl RowEnds {
    /// The offset behind row `row`.
    fn of(&self, row: usize) -> Offset {
        match self {
            RowEnds::Listed { base, ends } => base + u64::from(ends[row]),
            RowEnds::Counted { before } => before + row as u64 + 1,
        }
    }

    /// How many of `rows` rows end at or before `limit`.
    fn within(&self, rows: usize, limit: Offset) -> usize {
        match self {
            RowEnds::Listed { base, ends } => ends.partition_point(|end| base + u64::from(*end) <= limit),
            RowEnds::Counted { before } => usize::try_from(limit.saturating_sub(*before)).unwrap_or(usize::MAX).min(rows),
        }
    }
}

enum Stage {
    Idle(Box<dyn BlockReader>),
    Decoding(JoinHandle<(Box<dyn BlockReader>, Result<Block>)>),
    /// A decoder that panicked is not asked again.
    Lost,
}

/// Rows decoded and not all handed out.
struct Current {
    rows: BlockRows,
    /// Good rows handed out.
    given: usize,
    /// Bad rows handed out.
    reported: usize,
}

/// A [`SplitReader`] over a [`BlockReader`].
pub(super) struct AheadReader {
    /// Named in errors.
    file: String,
    stage: Stage,
    current: Option<Current>,
    replay: Option<Replay>,
    /// Columns to hand out: those decoded, without one that only the replay needs.
    columns: usize,
    position: Offset,
    finished: bool,
}

impl AheadReader {
    /// A reader of `file` from offset `from` that hands out the first `columns` columns of what `blocks` gives.
    pub(super) fn new(file: String, blocks: Box<dyn BlockReader>, from: Offset, columns: usize, replay: Option<Replay>) -> Self {
        Self { file, stage: Stage::Idle(blocks), current: None, replay, columns, position: from, finished: false }
    }

    fn start(&mut self, mut blocks: Box<dyn BlockReader>) {
        self.stage = Stage::Decoding(tokio::task::spawn_blocking(move || {
            let block = blocks.next();
            (blocks, block)
        }));
    }

    /// The next block; the one after it is begun.
    async fn fetch(&mut self) -> Result<Block> {
        match std::mem::replace(&mut self.stage, Stage::Lost) {
            Stage::Idle(blocks) => self.start(blocks),
            other => self.stage = other,
        }
        let Stage::Decoding(handle) = &mut self.stage else {
            return Err(EngineError::user("XX001", format!("could not read file \"{}\": its decoder failed before", self.file)));
        };
        match handle.await {
            Ok((blocks, block)) => {
                if matches!(block, Ok(Block::Rows(_))) {
                    self.start(blocks);
                } else {
                    self.stage = Stage::Idle(blocks);
                }
                block
            }
            Err(_) => {
                self.stage = Stage::Lost;
                Err(EngineError::user("XX001", format!("could not read file \"{}\": its contents are corrupt", self.file)))
            }
        }
    }

    /// What can be handed out of the current block; `None` when it is used up.
    fn give(&mut self, max_rows: usize, limit: Option<Offset>) -> Result<Option<ReadOutcome>> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let rows = current.rows.batch.num_rows();
        let allowed = limit.map_or(rows, |limit| current.rows.ends.within(rows, limit)).max(current.given);
        let mut until = allowed.min(current.given + max_rows.max(1));
        if let (Some(replay), None) = (&self.replay, limit) {
            match replay.due(&current.rows.batch, current.given, until)? {
                Due::Rows(due) => until = due,
                Due::After { micros } => return Ok(Some(ReadOutcome::Pending { retry_after_us: micros, idle: false })),
            }
        }
        let whole = until == rows && limit.is_none_or(|limit| current.rows.end <= limit);
        let end = match limit {
            _ if whole => current.rows.end,
            // All rows within the limit are out: what lies between them and the limit are bad rows and blank lines.
            Some(limit) if until == allowed => limit,
            _ => current.rows.ends.of(until - 1),
        };
        let bad_until = current.rows.bad.partition_point(|row| row.offset <= end).max(current.reported);
        let bad = current.rows.bad[current.reported..bad_until].to_vec();
        let batch = current.rows.batch.slice(current.given, until - current.given);
        (current.given, current.reported) = (until, bad_until);
        self.position = end;
        if whole {
            self.current = None;
        } else if batch.num_rows() == 0 && bad.is_empty() {
            return Ok(Some(ReadOutcome::AtLimit));
        }
        let batch = if batch.num_columns() > self.columns { batch.project(&(0..self.columns).collect::<Vec<_>>())? } else { batch };
        Ok(Some(ReadOutcome::Rows { batch, end, bad }))
    }
}

#[async_trait]
impl SplitReader for AheadReader {
    async fn read(&mut self, max_rows: usize, limit: Option<Offset>) -> Result<ReadOutcome> {
        loop {
            if limit.is_some_and(|limit| limit <= self.position) {
                return Ok(ReadOutcome::AtLimit);
            }
            if let Some(outcome) = self.give(max_rows, limit)? {
                return Ok(outcome);
            }
            if self.finished {
                return Ok(ReadOutcome::Finished);
            }
            match self.fetch().await? {
                Block::Rows(rows) => self.current = Some(Current { rows, given: 0, reported: 0 }),
                Block::Later => return Ok(ReadOutcome::Pending { retry_after_us: WATCH_INTERVAL_US, idle: true }),
                Block::End => self.finished = true,
            }
        }
    }
}
