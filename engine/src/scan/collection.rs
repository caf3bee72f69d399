//! The reader of a collection: contents first, in key order and bounded steps, then its changes.
//!
//! Each step of the backfill is taken at the epoch the job advances to: changes up to it are applied for keys already read and skipped for the
//! others, which will be read with them. So nothing is pinned for long, and the position (a key) is all that must be kept to go on
//! after a crash.

use std::sync::Arc;

use arrow::{array::BooleanArray, compute::filter_record_batch, record_batch::RecordBatch};
use millpond_storage::{
    collection::{Collection, CollectionKey, Delta, ScanRequest},
    epoch::Epoch,
    signed_batch::SignedBatch,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::place::{Place, Position};
use crate::{
    chunk::{CHUNK_ROWS, Chunk, Op},
    error::Result,
    exchange::inbox::Sender,
    message::{Barrier, BarrierKind, Message, Watermark},
};

/// Rows one step of a backfill reads before it passes the barrier.
const STEP_ROWS: usize = 16 * CHUNK_ROWS;

/// How far a reader is, as it is kept in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionPosition {
    /// Changes up to this epoch have been read.
    pub at: u64,
    /// Backfill: the key read last (`Some(empty)` before the first); `None` when contents have been read.
    pub backfill_after: Option<Vec<u8>>,
    /// Rows read by the backfill.
    pub rows: u64,
    /// Rows of the changes after `at` that have been emitted too: a checkpoint may be taken in the midst of an epoch.
    #[serde(default)]
    pub emitted: u64,
}

impl CollectionPosition {
    /// Before everything.
    pub fn start() -> Self {
        Self { at: 0, backfill_after: Some(Vec::new()), rows: 0, emitted: 0 }
    }
}

/// What the driver tells a reader: give the changes up to the barrier's epoch, one step of the backfill, and the barrier.
#[derive(Clone, Copy, Debug)]
pub struct CollectionAdvance {
    /// The barrier.
    pub barrier: Barrier,
}

/// What a reader tells the driver when it has passed a barrier.
#[derive(Clone, Debug)]
pub struct CollectionPassed {
    /// The scan's node.
    pub node: usize,
    /// The barrier's epoch.
    pub epoch: Epoch,
    /// Where it stands now.
    pub position: CollectionPosition,
}

/// A reader task. Only subtask 0 of a scan reads; the others pass barriers.
pub struct CollectionReader {
    /// Node of the scan in the graph.
    pub node: usize,
    /// The collection.
    pub collection: Arc<Collection>,
    /// Columns to emit.
    pub projection: Vec<usize>,
    /// Whether this subtask reads.
    pub reads: bool,
    /// Where to start.
    pub position: CollectionPosition,
    /// Where rows go.
    pub output: Sender,
    /// Orders of the driver.
    pub commands: mpsc::UnboundedReceiver<CollectionAdvance>,
    /// Answers to the driver.
    pub passed: mpsc::UnboundedSender<CollectionPassed>,
    /// Rows of the changes that are still to be left out, since they were emitted before the checkpoint that it started from.
    pub skip: u64,
}

impl CollectionReader {
    /// Runs until the final barrier or until the driver is gone.
    pub async fn run(mut self) -> Result<()> {
        while let Some(CollectionAdvance { barrier }) = self.commands.recv().await {
            let mut watermark = None;
            // A reader that is restored is told of barriers again that it may have passed.
            if self.reads && barrier.epoch.0 > self.position.at {
                watermark = self.changes(barrier.epoch).await?;
                if self.position.backfill_after.is_some() {
                    self.backfill_step(barrier.epoch).await?;
                }
                self.position.at = barrier.epoch.0;
                self.position.emitted = 0;
            }
            if self.position.backfill_after.is_none() || !self.reads {
                self.send_watermark(watermark, barrier).await?;
            }
            // Told before the barrier leaves, so that the driver knows the position when the barrier has passed the job.
            let passed = CollectionPassed { node: self.node, epoch: barrier.epoch, position: self.position.clone() };
            if self.reads && self.passed.send(passed).is_err() {
                return Ok(());
            }
            let place = self.reads.then(|| Place::Barrier(vec![Position::Collection(self.position.clone())]));
            self.output.send_placed(Message::Barrier(barrier), place).await?;
            if barrier.kind == BarrierKind::Final {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn send_watermark(&self, watermark: Option<(usize, i64)>, barrier: Barrier) -> Result<()> {
        let Some((column, micros)) = watermark.or_else(|| self.collection.watermark_us(barrier.epoch)) else { return Ok(()) };
        let Some(column) = self.projection.iter().position(|c| *c == column) else { return Ok(()) };
        let micros = if barrier.kind == BarrierKind::Final { i64::MAX } else { micros };
        self.output.send(Message::Watermark(Watermark { column, micros })).await
    }

    /// Emits the changes in (position, upto] that concern keys already read. Answers the newest watermark met.
    async fn changes(&mut self, upto: Epoch) -> Result<Option<(usize, i64)>> {
        let mut watermark = None;
        if upto.0 <= self.position.at {
            return Ok(None);
        }
        // Before the first step there is nothing to change, and an append-only collection is read in order: changes come with the contents.
        let skip = match &self.position.backfill_after {
            Some(after) => after.is_empty() || matches!(self.collection.key(), CollectionKey::AppendOnly),
            None => false,
        };
        if skip {
            return Ok(None);
        }
        for delta in self.collection.deltas(Epoch(self.position.at), upto)? {
            self.emit_delta(&delta).await?;
            watermark = delta.watermark_us.or(watermark);
        }
        Ok(watermark)
    }

    async fn emit_delta(&mut self, delta: &Delta) -> Result<()> {
        for signed in &delta.batches {
            let signed = match &self.position.backfill_after {
                Some(after) => match self.only_read_keys(signed, after)? {
                    Some(part) => part,
                    None => continue,
                },
                None => signed.clone(),
            };
            self.emit(signed.batch, signed.signs).await?;
        }
        Ok(())
    }

    fn only_read_keys(&self, signed: &SignedBatch, after: &[u8]) -> Result<Option<SignedBatch>> {
        let columns: Vec<_> = match self.collection.key() {
            CollectionKey::Columns(columns) => columns.iter().map(|c| signed.batch.column(*c).clone()).collect(),
            CollectionKey::WholeRow | CollectionKey::AppendOnly => signed.batch.columns().to_vec(),
        };
        let keys = self.collection.key_codec().encode(&columns)?;
        let keep: Vec<bool> = keys.iter().map(|key| key <= after).collect();
        if !keep.contains(&true) {
            return Ok(None);
        }
        let signs = signed.signs.as_ref().map(|signs| signs.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(sign, _)| *sign).collect());
        Ok(Some(SignedBatch { batch: filter_record_batch(&signed.batch, &BooleanArray::from(keep))?, signs }))
    }

    /// Reads the next rows of the contents at `at`.
    async fn backfill_step(&mut self, at: Epoch) -> Result<()> {
        let after = self.position.backfill_after.clone().filter(|key| !key.is_empty());
        let request = ScanRequest { after_key: after, limit: Some(STEP_ROWS), batch_rows: CHUNK_ROWS, ..ScanRequest::default() };
        let mut rows = 0;
        let scan = self.collection.scan(at, request)?;
        for step in scan {
            let step = step?;
            rows += step.batch.num_rows();
            self.position.backfill_after = Some(step.last_key);
            self.emit(step.batch, None).await?;
        }
        self.position.rows += rows as u64;
        if rows < STEP_ROWS {
            self.position.backfill_after = None;
        }
        Ok(())
    }

    async fn emit(&mut self, batch: RecordBatch, signs: Option<Vec<i8>>) -> Result<()> {
        let batch = batch.project(&self.projection)?;
        let chunk = match signs {
            Some(signs) => Chunk::new(batch, signs.into_iter().map(Op::from_sign).collect()),
            None => Chunk::inserts(batch),
        };
        let mut offset = self.skip.min(chunk.num_rows() as u64) as usize;
        self.skip -= offset as u64;
        while offset < chunk.num_rows() {
            let length = CHUNK_ROWS.min(chunk.num_rows() - offset);
            let before = Position::Collection(self.position.clone());
            self.position.emitted += length as u64;
            let place = Place::Rows { before, after: Position::Collection(self.position.clone()) };
            self.output.send_placed(Message::Chunk(chunk.slice(offset, length)), Some(place)).await?;
            offset += length;
        }
        Ok(())
    }
}
