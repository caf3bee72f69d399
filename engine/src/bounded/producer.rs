//! A subtask of a fragment below an exchange: reads one partition and sends its rows to their consumers.

use std::{panic::AssertUnwindSafe, sync::Arc};

use arrow::record_batch::RecordBatch;
use datafusion::{
    error::{DataFusionError, Result},
    execution::SendableRecordBatchStream,
    physical_plan::{metrics::BaselineMetrics, metrics::RecordOutput, repartition::BatchPartitioner},
};
use futures::{FutureExt, StreamExt};
use millpond_storage::epoch::Epoch;
use tokio::sync::Semaphore;

use super::exchange::{KIB_IN_FLIGHT, Outcome, Route};
use crate::{
    chunk::Chunk,
    error::panic_text,
    exchange::inbox::Sender,
    message::{Barrier, BarrierKind, Message},
};

/// What nothing follows on an edge.
const END: Message = Message::Barrier(Barrier { epoch: Epoch(u64::MAX), time_us: 0, kind: BarrierKind::Final });

/// One consumer of a producer.
pub(super) struct Consumer {
    sender: Sender,
    room: Arc<Semaphore>,
}

impl Consumer {
    pub(super) fn new(sender: Sender, room: Arc<Semaphore>) -> Self {
        Self { sender, room }
    }

    /// Waits for room and sends; `false` when the consumer is gone.
    async fn send(&self, batch: RecordBatch) -> bool {
        let Ok(permit) = self.room.acquire_many(kib(&batch)).await else { return false };
        // The consumer gives it back when it takes the batch.
        permit.forget();
        self.sender.send(Message::Chunk(Chunk::inserts(batch))).await.is_ok()
    }
}

/// What a batch counts for in flight, in KiB.
pub(super) fn kib(batch: &RecordBatch) -> u32 {
    u32::try_from(batch.get_array_memory_size() / 1024).map_or(KIB_IN_FLIGHT, |size| size.clamp(1, KIB_IN_FLIGHT))
}

/// Which of the consumers.
enum Way {
    Partitioner(Box<BatchPartitioner>),
    First,
}

/// The sending half of a subtask.
pub(super) struct Producer {
    way: Way,
    /// `None` when the consumer has gone.
    consumers: Vec<Option<Consumer>>,
    metrics: BaselineMetrics,
}

impl Producer {
    pub(super) fn new(
        route: &Route,
        partition: usize,
        producers: usize,
        consumers: Vec<Consumer>,
        metrics: &BaselineMetrics,
    ) -> Result<Self> {
        let time = metrics.elapsed_compute().clone();
        let way = match route {
            Route::Hash(keys) => Way::Partitioner(Box::new(BatchPartitioner::new_hash_partitioner(keys.clone(), consumers.len(), time)?)),
            Route::RoundRobin => {
                let partitioner = BatchPartitioner::new_round_robin_partitioner(consumers.len(), time, partition, producers);
                Way::Partitioner(Box::new(partitioner))
            }
            Route::Single | Route::Forward => Way::First,
        };
        Ok(Self { way, consumers: consumers.into_iter().map(Some).collect(), metrics: metrics.clone() })
    }

    /// Sends all rows. A failure or a panic is told to the consumers, whose streams end with it.
    pub(super) async fn run(mut self, rows: SendableRecordBatchStream, outcome: Arc<Outcome>) {
        match AssertUnwindSafe(self.send_all(rows)).catch_unwind().await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => outcome.fail(error),
            Err(panic) => outcome.fail(DataFusionError::Internal(format!("a subtask panicked: {}", panic_text(&*panic)))),
        }
        for consumer in self.consumers.iter().flatten() {
            // One that is gone does not wait for an end.
            let _ = consumer.sender.send(END).await;
        }
    }

    async fn send_all(&mut self, mut rows: SendableRecordBatchStream) -> Result<()> {
        let mut parts = Vec::new();
        while let Some(batch) = rows.next().await {
            let batch = batch?.record_output(&self.metrics);
            match &mut self.way {
                Way::First => parts.push((0, batch)),
                Way::Partitioner(partitioner) => partitioner.partition(batch, |consumer, part| {
                    parts.push((consumer, part));
                    Ok(())
                })?,
            }
            for (number, part) in parts.drain(..) {
                let Some(consumer) = &self.consumers[number] else { continue };
                if part.num_rows() > 0 && !consumer.send(part).await {
                    self.consumers[number] = None;
                }
            }
            if self.consumers.iter().all(Option::is_none) {
                break;
            }
        }
        Ok(())
    }
}
