//! The reader of constant rows: gives them once, before its first barrier.

use arrow::record_batch::RecordBatch;
use tokio::sync::mpsc;

use super::collection::{CollectionAdvance, CollectionPassed, CollectionPosition};
use crate::{
    chunk::Chunk,
    error::Result,
    exchange::inbox::Sender,
    message::{BarrierKind, Message},
};

/// A reader task. Only subtask 0 gives rows.
pub struct ValuesReader {
    /// Node in the graph.
    pub node: usize,
    /// The rows.
    pub batch: RecordBatch,
    /// Whether this subtask gives them.
    pub reads: bool,
    /// Whether they were given before the restart (`at > 0`).
    pub position: CollectionPosition,
    /// Where rows go.
    pub output: Sender,
    /// Orders of the driver.
    pub commands: mpsc::UnboundedReceiver<CollectionAdvance>,
    /// Answers to the driver.
    pub passed: mpsc::UnboundedSender<CollectionPassed>,
}

impl ValuesReader {
    /// Runs until the final barrier or until the driver is gone.
    pub async fn run(mut self) -> Result<()> {
        while let Some(CollectionAdvance { barrier }) = self.commands.recv().await {
            if self.reads && self.position.at == 0 {
                self.output.send(Message::Chunk(Chunk::inserts(self.batch.clone()))).await?;
            }
            self.position = CollectionPosition { at: barrier.epoch.0, backfill_after: None, rows: self.batch.num_rows() as u64 };
            let passed = CollectionPassed { node: self.node, epoch: barrier.epoch, position: self.position.clone() };
            if self.reads && self.passed.send(passed).is_err() {
                return Ok(());
            }
            self.output.send(Message::Barrier(barrier)).await?;
            if barrier.kind == BarrierKind::Final {
                return Ok(());
            }
        }
        Ok(())
    }
}
