//! The task loop.
//!
//! A chunk that arrives is pushed through the fragment's operators by an explicit stack of calls. After each call the emitted messages of the
//! root leave through the routers, waiting for room; a call that answered `More` is taken up again after what it emitted has been worked
//! off. So memory is bounded by one output per operator, and between two calls the task can be cancelled.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use millpond_storage::{
    epoch::Epoch,
    state_table::{StateTable, TaskCheckpoint, TaskState},
};
use tokio::sync::mpsc;

use super::{align::Aligner, watermark::WatermarkMinimum};
use crate::{
    chunk::{CHUNK_ROWS, Chunk},
    error::Result,
    exchange::{inbox::Inbox, router::Router},
    message::{Barrier, BarrierKind, Message, Watermark},
    operator::{Emitted, Operator, Output, Progress},
};

/// Rows an operator may emit in one call before it must answer `More`.
const OUTPUT_ROWS: usize = 2 * CHUNK_ROWS;

/// Chunks between two looks at the memory of the state tables.
const RELIEVE_EVERY: usize = 4;

/// Which subtask of a graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubtaskId {
    /// Fragment of the graph.
    pub fragment: usize,
    /// Index in the fragment.
    pub index: usize,
}

/// What a subtask tells its job's driver.
pub enum TaskEvent {
    /// A barrier has passed the subtask; its state is attached if the barrier asked for a checkpoint.
    Barrier {
        /// The subtask.
        id: SubtaskId,
        /// The barrier.
        barrier: Barrier,
        /// The synchronous part of its snapshot.
        checkpoint: Option<TaskCheckpoint>,
        /// Bytes of state in memory and store, estimated.
        state_bytes: usize,
    },
    /// The subtask has ended with an error; a panic is one too.
    Failed {
        /// What happened.
        error: crate::error::EngineError,
    },
}

/// Where the output of a node goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Port of another node of the fragment.
    Node(usize, usize),
    /// Out of the fragment.
    Root,
}

/// A subtask, ready to run.
pub struct Subtask {
    /// Which one.
    pub id: SubtaskId,
    /// Operators in topological order.
    pub operators: Vec<Box<dyn Operator>>,
    /// Where each operator's output goes.
    pub targets: Vec<Target>,
    /// Node and port that each channel of the inbox feeds.
    pub channels: Vec<(usize, usize)>,
    /// Input.
    pub inbox: Inbox,
    /// Output edges.
    pub routers: Vec<Router>,
    /// Owner of the state changelog.
    pub state: TaskState,
    /// Time of the open epoch, shared with the operators.
    pub epoch_time_us: Arc<AtomicI64>,
    /// Age in microseconds at which a change of state goes to the changelog without waiting for a checkpoint.
    pub log_age_us: Arc<AtomicI64>,
    /// Rows taken from channels, shown in SQL.
    pub rows_in: Arc<AtomicU64>,
    /// To the driver.
    pub events: mpsc::UnboundedSender<TaskEvent>,
}

enum Call {
    Chunk(usize, Chunk),
    Watermark(usize, Watermark),
    Barrier(Barrier),
    Resume,
}

impl Subtask {
    /// Runs until the final barrier has passed. Dropping the future stops the subtask between two calls.
    pub async fn run(mut self) -> Result<()> {
        let mut aligner = Aligner::new(self.channels.len());
        let (ports, port_of) = number_ports(&self.channels);
        let mut minimum = WatermarkMinimum::new(port_of);
        let mut until_relieve = RELIEVE_EVERY;
        loop {
            let received = self.inbox.receive(aligner.blocked()).await;
            match received.message {
                Message::Chunk(chunk) => {
                    self.rows_in.fetch_add(chunk.num_rows() as u64, Ordering::Relaxed);
                    let (node, port) = self.channels[received.channel];
                    self.work(node, Call::Chunk(port, chunk)).await?;
                    until_relieve -= 1;
                    if until_relieve == 0 {
                        until_relieve = RELIEVE_EVERY;
                        self.relieve()?;
                    }
                }
                Message::Watermark(watermark) => {
                    if let Some((flat, watermark)) = minimum.advance(received.channel, watermark) {
                        let (node, port) = ports[flat];
                        self.work(node, Call::Watermark(port, watermark)).await?;
                    }
                }
                Message::Barrier(barrier) => {
                    if let Some(barrier) = aligner.on_barrier(received.channel, barrier) {
                        self.close(barrier).await?;
                        if barrier.kind == BarrierKind::Final {
                            return Ok(());
                        }
                    }
                }
            }
            // A subtask with a full inbox must not keep its thread from others.
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Calls one operator, and all that follows from it, until nothing is owed.
    async fn work(&mut self, node: usize, call: Call) -> Result<()> {
        let mut stack = vec![(node, call)];
        let mut out = Output::with_room(OUTPUT_ROWS);
        while let Some((node, call)) = stack.pop() {
            let operator = &mut self.operators[node];
            let progress = match call {
                Call::Chunk(port, chunk) => operator.on_chunk(port, chunk, &mut out)?,
                Call::Watermark(port, watermark) => operator.on_watermark(port, watermark, &mut out)?,
                Call::Barrier(barrier) => operator.on_barrier(&barrier, &mut out)?,
                Call::Resume => operator.resume(&mut out)?,
            };
            if progress == Progress::More {
                stack.push((node, Call::Resume));
            }
            match self.targets[node] {
                Target::Root => {
                    for emitted in out.take() {
                        let message = match emitted {
                            Emitted::Chunk(chunk) => Message::Chunk(chunk),
                            Emitted::Watermark(watermark) => Message::Watermark(watermark),
                        };
                        send(&mut self.routers, message).await?;
                    }
                }
                Target::Node(target, port) => {
                    // The stack is last in, first out: the first message emitted must come off first.
                    for emitted in out.take().into_iter().rev() {
                        let call = match emitted {
                            Emitted::Chunk(chunk) => Call::Chunk(port, chunk),
                            Emitted::Watermark(watermark) => Call::Watermark(port, watermark),
                        };
                        stack.push((target, call));
                    }
                }
            }
            if progress == Progress::More {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Closes an epoch: every operator pays what it owes, the barrier leaves, and state is snapshotted if it is asked for.
    async fn close(&mut self, barrier: Barrier) -> Result<()> {
        self.epoch_time_us.store(barrier.time_us, Ordering::Relaxed);
        for node in 0..self.operators.len() {
            self.work(node, Call::Barrier(barrier)).await?;
        }
        send(&mut self.routers, Message::Barrier(barrier)).await?;
        let checkpoint = if barrier.kind.is_checkpoint() {
            Some(self.snapshot(barrier.epoch)?)
        } else {
            let age_us = self.log_age_us.load(Ordering::Relaxed);
            let tables = self.operators.iter_mut().flat_map(|operator| operator.tables());
            tables.for_each(|table| table.log_aged(barrier.time_us, age_us));
            None
        };
        self.relieve()?;
        let state_bytes = self.operators.iter_mut().flat_map(|operator| operator.tables()).map(|table| table.memory_bytes()).sum();
        // A driver that is gone has cancelled the job; the subtask is about to be dropped.
        let _ = self.events.send(TaskEvent::Barrier { id: self.id, barrier, checkpoint, state_bytes });
        Ok(())
    }

    fn snapshot(&mut self, epoch: Epoch) -> Result<TaskCheckpoint> {
        for operator in &mut self.operators {
            operator.snapshot(epoch)?;
        }
        let mut tables: Vec<&mut dyn StateTable> = self.operators.iter_mut().flat_map(|operator| operator.tables()).collect();
        Ok(self.state.snapshot(&mut tables, epoch)?)
    }

    fn relieve(&mut self) -> Result<()> {
        for table in self.operators.iter_mut().flat_map(|operator| operator.tables()) {
            table.relieve()?;
        }
        Ok(())
    }
}

/// Sends a message on every edge that starts here.
async fn send(routers: &mut [Router], message: Message) -> Result<()> {
    let Some((last, others)) = routers.split_last_mut() else { return Ok(()) };
    for router in others {
        router.send(message.clone()).await?;
    }
    last.send(message).await
}

/// Distinct (node, port) pairs in order, and for each channel the position of its pair.
fn number_ports(channels: &[(usize, usize)]) -> (Vec<(usize, usize)>, Vec<usize>) {
    let mut ports: Vec<(usize, usize)> = channels.to_vec();
    ports.sort_unstable();
    ports.dedup();
    let port_of = channels.iter().map(|channel| ports.iter().position(|port| port == channel).expect("taken from the same list")).collect();
    (ports, port_of)
}
