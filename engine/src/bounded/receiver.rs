//! The consumer's end of a bounded exchange.

use std::sync::Arc;

use arrow::{compute::BatchCoalescer, datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::error::Result;
use futures::Stream;
use tokio::{sync::Semaphore, task::JoinSet};

use super::{exchange::Outcome, producer::kib};
use crate::{exchange::inbox::Inbox, message::Message};

/// The rows for one consumer.
pub(super) struct Receiver {
    inbox: Inbox,
    /// Channels on which nothing follows.
    ended: Vec<bool>,
    room: Arc<Semaphore>,
    outcome: Arc<Outcome>,
    /// The producers, which die with their last consumer.
    _subtasks: Arc<JoinSet<()>>,
    /// Gathers small pieces.
    coalescer: Option<BatchCoalescer>,
}

impl Receiver {
    /// `target` is the number of rows to which small batches are gathered.
    pub(super) fn new(
        inbox: Inbox,
        channels: usize,
        room: Arc<Semaphore>,
        outcome: Arc<Outcome>,
        subtasks: Arc<JoinSet<()>>,
        schema: SchemaRef,
        target: Option<usize>,
    ) -> Self {
        // Rows without columns have nothing to be gathered.
        let coalescer = target.filter(|_| !schema.fields().is_empty()).map(|rows| BatchCoalescer::new(schema, rows));
        Self { inbox, ended: vec![false; channels], room, outcome, _subtasks: subtasks, coalescer }
    }

    /// All rows, in the order in which they come.
    pub(super) fn into_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send {
        futures::stream::try_unfold(self, |mut receiver| async move {
            let batch = receiver.next().await?;
            Ok(batch.map(|batch| (batch, receiver)))
        })
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.coalescer.as_mut().and_then(BatchCoalescer::next_completed_batch) {
                return Ok(Some(batch));
            }
            if self.ended.iter().all(|ended| *ended) {
                return self.last();
            }
            let received = self.inbox.receive(&self.ended).await;
            match received.message {
                Message::Chunk(chunk) => {
                    self.room.add_permits(kib(chunk.batch()) as usize);
                    let batch = chunk.batch().clone();
                    match &mut self.coalescer {
                        Some(coalescer) => coalescer.push_batch(batch)?,
                        None => return Ok(Some(batch)),
                    }
                }
                Message::Barrier(_) => {
                    self.ended[received.channel] = true;
                    self.outcome.check()?;
                }
                // Bounded input promises nothing about event time.
                Message::Watermark(_) => {}
            }
        }
    }

    /// What is left when every channel has ended.
    fn last(&mut self) -> Result<Option<RecordBatch>> {
        let Some(mut coalescer) = self.coalescer.take() else { return Ok(None) };
        coalescer.finish_buffered_batch()?;
        Ok(coalescer.next_completed_batch())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Producers that wait for room learn that nobody takes their rows.
        self.room.close();
    }
}
