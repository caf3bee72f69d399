//! The reader of constant rows: gives them once, before its first barrier.

use arrow::record_batch::RecordBatch;
use tokio::sync::mpsc;

use super::{
    collection::{CollectionAdvance, CollectionPassed, CollectionPosition},
    place::{Place, Position},
};
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
            let rows = self.batch.num_rows() as u64;
            if self.reads && self.position.at == 0 && self.position.emitted < rows {
                let rest = self.batch.slice(self.position.emitted as usize, (rows - self.position.emitted) as usize);
                let before = Position::Collection(self.position.clone());
                let after = Position::Collection(CollectionPosition { emitted: rows, ..self.position.clone() });
                let place = Place::Rows { before, after };
                self.output.send_placed(Message::Chunk(Chunk::inserts(rest)), Some(place)).await?;
            }
            let at = barrier.epoch.0.max(self.position.at);
            self.position = CollectionPosition { at, backfill_after: None, rows, emitted: 0 };
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
}
