//! The producer's end of an exchange: which consumer gets a row.

use std::sync::Arc;

use arrow::{array::UInt32Array, compute::take_record_batch, datatypes::SchemaRef};
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec},
    epoch::Epoch,
    key_group::{key_group, subtask_of},
};
use tokio::sync::Notify;

use super::inbox::Sender;
use crate::{
    chunk::{Chunk, Op},
    error::Result,
    graph::Distribution,
    message::Message,
};

/// Sends a producer's messages to the consumers of one edge.
pub struct Router {
    consumers: Vec<Sender>,
    way: Way,
}

enum Way {
    /// Everything to the one consumer.
    Only,
    /// By key group of the encoded key columns.
    Hash(Box<KeySplitter>),
    /// Everything to everyone.
    Broadcast,
    /// Chunk by chunk in turn, beginning at `next`.
    RoundRobin { next: usize },
}

impl Router {
    /// The router of producer `subtask`, which is woken by `wake`, on an edge of rows of `schema`. `consumers` are its channels, one per
    /// consumer in subtask order (exactly one for forward and single edges).
    pub fn new(
        distribution: &Distribution,
        schema: &SchemaRef,
        subtask: usize,
        mut consumers: Vec<Sender>,
        wake: &Arc<Notify>,
    ) -> Result<Self> {
        consumers.iter_mut().for_each(|consumer| consumer.feed_from(wake));
        let way = match distribution {
            Distribution::Broadcast => Way::Broadcast,
            Distribution::RoundRobin if consumers.len() > 1 => Way::RoundRobin { next: subtask % consumers.len() },
            Distribution::Hash(columns) if consumers.len() > 1 => Way::Hash(Box::new(KeySplitter::new(columns, schema)?)),
            Distribution::Forward | Distribution::Single | Distribution::RoundRobin | Distribution::Hash(_) => Way::Only,
        };
        Ok(Self { consumers, way })
    }

    /// How many rows the producer should add at once, `usize::MAX` if any number; `None` while it may take no more input. All of them may be for
    /// one consumer.
    pub fn room(&self) -> Option<usize> {
        self.consumers.iter().try_fold(usize::MAX, |least, consumer| Some(least.min(consumer.room()?)))
    }

    /// The producer's state is taken now for a checkpoint: its barrier passes whatever is on the way.
    pub fn overtake(&self, checkpoint: Epoch) {
        self.consumers.iter().for_each(|consumer| consumer.overtake(checkpoint));
    }

    /// Sends a message, waiting for room where a channel is overfull. Watermarks and barriers go to every consumer.
    pub async fn send(&mut self, message: Message) -> Result<()> {
        match message {
            Message::Chunk(chunk) => self.send_chunk(chunk).await,
            other @ (Message::Watermark(_) | Message::Barrier(_)) => {
                for consumer in &self.consumers {
                    consumer.send(other.clone()).await?;
                }
                Ok(())
            }
        }
    }

    async fn send_chunk(&mut self, chunk: Chunk) -> Result<()> {
        match &mut self.way {
            Way::Only => self.consumers[0].send(Message::Chunk(chunk)).await,
            Way::Broadcast => {
                for consumer in &self.consumers {
                    consumer.send(Message::Chunk(chunk.clone())).await?;
                }
                Ok(())
            }
            Way::RoundRobin { next } => {
                let consumer = *next;
                *next = (consumer + 1) % self.consumers.len();
                self.consumers[consumer].send(Message::Chunk(chunk)).await
            }
            Way::Hash(splitter) => {
                let parts = splitter.split(&chunk, self.consumers.len())?;
                for (consumer, part) in self.consumers.iter().zip(parts) {
                    if let Some(part) = part {
                        consumer.send(Message::Chunk(part)).await?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Cuts chunks by the key groups of their rows.
pub struct KeySplitter {
    columns: Vec<usize>,
    codec: KeyCodec,
    scratch: EncodedRows,
}

impl KeySplitter {
    /// By these columns of rows of `schema`.
    pub fn new(columns: &[usize], schema: &SchemaRef) -> Result<Self> {
        let types: Vec<_> = columns.iter().map(|column| schema.field(*column).data_type().clone()).collect();
        Ok(Self { columns: columns.to_vec(), codec: KeyCodec::ascending(&types)?, scratch: EncodedRows::default() })
    }

    /// The part of a chunk for each of `consumers` subtasks, `None` where it is empty.
    pub fn split(&mut self, chunk: &Chunk, consumers: usize) -> Result<Vec<Option<Chunk>>> {
        let arrays: Vec<_> = self.columns.iter().map(|column| chunk.batch().column(*column).clone()).collect();
        self.scratch.clear();
        self.codec.encode_into(&arrays, &mut self.scratch)?;
        split(chunk, &self.scratch, consumers)
    }
}

/// The part of a chunk for each of `consumers` subtasks, `None` where it is empty.
fn split(chunk: &Chunk, keys: &EncodedRows, consumers: usize) -> Result<Vec<Option<Chunk>>> {
    let mut rows: Vec<Vec<u32>> = vec![Vec::with_capacity(chunk.num_rows() / consumers + 16); consumers];
    for row in 0..chunk.num_rows() {
        rows[subtask_of(key_group(keys.row(row)), consumers)].push(row as u32);
    }
    rows.into_iter()
        .map(|indices| {
            if indices.is_empty() {
                return Ok(None);
            }
            if indices.len() == chunk.num_rows() {
                return Ok(Some(chunk.clone()));
            }
            let ops: Option<Vec<Op>> = chunk.ops().map(|ops| indices.iter().map(|row| ops[*row as usize]).collect());
            let batch = take_record_batch(chunk.batch(), &UInt32Array::from(indices))?;
            Ok(Some(match ops {
                Some(ops) => Chunk::new(batch, ops),
                None => Chunk::inserts(batch),
            }))
        })
        .collect()
}
