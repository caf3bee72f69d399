//! The task loop.
//!
//! A chunk that arrives is pushed through the fragment's operators by an explicit stack of calls. After each call the emitted messages of the
//! root leave through the routers; a call that answered `More` is taken up again after what it emitted has been worked
//! off. So memory is bounded by one output per operator, and between two calls the task can be cancelled.
//!
//! Between two messages, when nothing is on the stack, the subtask looks whether a checkpoint waits no longer for its barrier ([`super::cut`]). It
//! takes a message only while every output has room, of a chunk only as many rows as take about 20 ms, and no more than make what a debloated
//! output takes at once ([`crate::exchange::debloat`]).

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use millpond_storage::{
    env::Clock,
    epoch::Epoch,
    memory::MemoryBudget,
    state_table::{HandedTask, StateTable, TaskState},
};
use tokio::sync::mpsc;

use super::{
    cut::CheckpointPart,
    determinants::Determinants,
    fault::Screened,
    flow::Flow,
    inputs::Inputs,
    operators::{OperatorPlan, tables_of},
    orders::{Orders, Recovery},
    revival::{Beginning, Revival, Sending, SubtaskFailure},
    sent::SentInStep,
};
use crate::{
    chunk::{CHUNK_ROWS, Chunk},
    error::{EngineError, Result, panic_text},
    exchange::{
        inbox::{ChannelId, Inbox, Received},
        router::Router,
        switch::Switch,
    },
    job::collector::Collector,
    message::{Barrier, Message, Watermark},
    operator::{Emitted, Operator, Output, Progress},
    scan::place::ScanPlaces,
};

/// Rows an operator may emit in one call before it must answer `More`.
const OUTPUT_ROWS: usize = 2 * CHUNK_ROWS;

/// Chunks between two looks at the memory of the state tables.
const RELIEVE_EVERY: usize = 4;

/// How long operators may be busy before others get the thread.
const YIELD_AFTER: Duration = Duration::from_millis(10);

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
    /// A barrier has passed the subtask; its part is attached if the barrier asked for a checkpoint and the subtask had not given one.
    Barrier {
        /// The subtask.
        id: SubtaskId,
        /// The barrier.
        barrier: Barrier,
        /// The synchronous part of its snapshot.
        part: Option<Box<CheckpointPart>>,
        /// Bytes of state in memory and store, estimated.
        state_bytes: usize,
        /// Its state tables, if it goes no further.
        handed: Option<HandedTask>,
    },
    /// A checkpoint's barrier has overtaken what the subtask had still to take.
    Cut {
        /// The subtask.
        id: SubtaskId,
        /// What it adds to the checkpoint.
        part: Box<CheckpointPart>,
        /// Its state tables, if it goes no further.
        handed: Option<HandedTask>,
    },
    /// The subtask has stopped for an error, a panic being one too, and waits to be told what to go on with.
    Failed {
        /// The subtask.
        id: SubtaskId,
        /// What happened, and what it needs.
        failure: Box<SubtaskFailure>,
    },
    /// It has got its state and runs again.
    Restored {
        /// The subtask.
        id: SubtaskId,
    },
    /// It is where it was when it failed.
    Replayed {
        /// The subtask.
        id: SubtaskId,
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

/// What feeds a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feed {
    /// A subtask, over this exchange.
    Exchange(usize),
    /// The reader of a scan.
    Scan {
        /// Number of the scan in the graph.
        node: usize,
    },
}

/// A channel of a subtask.
#[derive(Clone, Debug)]
pub struct ChannelPlan {
    /// Node of the fragment that it feeds.
    pub node: usize,
    /// Port of the node.
    pub port: usize,
    /// Where its messages come from.
    pub feed: Feed,
    /// The last epoch whose barrier was delivered on it in an earlier life.
    pub passed: Epoch,
    /// The watermarks delivered on it then.
    pub reached: Vec<Watermark>,
    /// In which life of the job it began: the greatest number is this one.
    pub generation: u32,
}

/// A subtask, ready to run.
pub struct Subtask {
    /// Which one.
    pub id: SubtaskId,
    /// Its number in the job, and of all subtasks of its fragment.
    pub number: (u32, usize),
    /// Operators in topological order.
    pub operators: Vec<Box<dyn Operator>>,
    /// Their numbers in the graph.
    pub nodes: Vec<usize>,
    /// Where each operator's output goes.
    pub targets: Vec<Target>,
    /// The channels of the inbox; taken when it starts.
    pub channels: Vec<ChannelPlan>,
    /// Input.
    pub inbox: Inbox,
    /// Output edges.
    pub routers: Vec<Router>,
    /// Owner of the state changelog.
    pub state: TaskState,
    /// The last epoch that was closed in an earlier life.
    pub closed: Epoch,
    /// Barriers above it that were in flight then.
    pub in_flight: Vec<Barrier>,
    /// Its state is taken at barriers only.
    pub is_aligned: bool,
    /// Says which checkpoint waits no longer.
    pub switch: Arc<Switch>,
    /// Where its root's output is collected, if it is one of the root fragment.
    pub collector: Option<Arc<Collector>>,
    /// What the operators are built from.
    pub plan: OperatorPlan,
    /// The epoch of the checkpoint with which the attempt begins, if it does with one.
    pub begins_at: Option<Epoch>,
    /// The newest complete checkpoint.
    pub completed: Arc<AtomicU64>,
    /// Bytes of messages it may keep for a restart, as far as the budget has room.
    pub kept_bytes: usize,
    /// The memory budget.
    pub budget: MemoryBudget,
    /// Tells how long its operators are busy.
    pub clock: Clock,
    /// What it goes on with after a failure.
    pub revivals: mpsc::UnboundedReceiver<Result<Revival>>,
    /// It is to fail, so that it can be seen what follows.
    pub drill: Arc<AtomicBool>,
    /// What the driver says beside messages.
    pub orders: Arc<Orders>,
    /// Rows taken from channels, shown in SQL.
    pub rows_in: Arc<AtomicU64>,
    /// To the driver.
    pub events: mpsc::UnboundedSender<TaskEvent>,
}

/// A subtask at work.
pub(super) struct Running {
    pub(super) task: Subtask,
    pub(super) inputs: Inputs,
    flow: Flow,
    pub(super) places: ScanPlaces,
    /// The newest checkpoint to which it has given its part.
    pub(super) checkpointed: Epoch,
    /// When the first barrier of a checkpoint arrived that is not complete here.
    pub(super) aligning_since: Option<Duration>,
    pub(super) clock: Clock,
    /// Time in which operators were busy with the message at hand.
    busy: Duration,
    /// Rows that it has made leave.
    emitted: usize,
    /// Time that operators may still be busy before others get the thread.
    until_yield: Duration,
    until_relieve: usize,
    pub(super) determinants: Determinants,
    pub(super) sent: SentInStep,
    pub(super) sending: Sending,
    /// The epoch of the last barrier that left.
    pub(super) sent_barrier: Epoch,
    /// The epoch of the last barrier that the driver was told of.
    pub(super) reported: Epoch,
    /// A part of a checkpoint that the driver has not been given.
    pub(super) owed: Option<Box<CheckpointPart>>,
    /// The epoch that was closed before, and the barrier of the one that is being closed.
    pub(super) closing: Option<(Epoch, Barrier)>,
}

/// A call of an operator.
pub(super) enum Call {
    Chunk(usize, Chunk),
    Watermark(usize, Watermark),
    Barrier(Barrier),
    Resume,
}

impl Subtask {
    /// Runs until the final barrier has passed. Dropping the future stops the subtask between two calls. A panic ends one life of it, and after
    /// an error that is its own it has another one, if the driver says so.
    ///
    /// # Errors
    /// What ends the attempt.
    pub async fn run(mut self) -> Result<()> {
        let channels = std::mem::take(&mut self.channels);
        let clock = self.clock.clone();
        let determinants = Determinants::new(self.kept_bytes, self.budget.handle("messages kept for a restart"));
        let mut running = Running {
            flow: Flow::new(channels.len(), clock.monotonic(), self.orders.debloat_target()),
            inputs: Inputs::new(channels, self.closed, &self.in_flight),
            places: ScanPlaces::default(),
            checkpointed: Epoch(0),
            aligning_since: None,
            clock,
            busy: Duration::ZERO,
            emitted: 0,
            until_yield: YIELD_AFTER,
            until_relieve: RELIEVE_EVERY,
            determinants,
            sent: SentInStep::default(),
            sending: Sending::Live,
            sent_barrier: Epoch(0),
            reported: Epoch(0),
            owed: None,
            closing: None,
            task: self,
        };
        for channel in running.task.inbox.drained() {
            running.inputs.aligner.on_drained(channel);
        }
        running.mark_start();
        let mut beginning = Beginning::Start;
        loop {
            let error = match AssertUnwindSafe(running.live(beginning)).catch_unwind().await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(panic) => EngineError::Internal(format!("a subtask panicked: {}", panic_text(&*panic))),
            };
            beginning = running.revive(error).await?;
        }
    }
}

impl Running {
    /// Runs until the final barrier has passed.
    async fn live(&mut self, beginning: Beginning) -> Result<()> {
        let has_ended = match beginning {
            Beginning::Start => {
                self.give_watermarks().await?;
                self.close_all().await?
            }
            Beginning::Replay(checkpoint) => self.replay(checkpoint).await?,
            Beginning::GoOn => self.go_on().await?,
        };
        if !matches!(beginning, Beginning::Start) {
            let _ = self.task.events.send(TaskEvent::Replayed { id: self.task.id });
        }
        if has_ended {
            return Ok(());
        }
        loop {
            if self.cut_if_due().await? {
                continue;
            }
            let Some(room) = self.room() else {
                self.drill();
                self.task.inbox.wait().await;
                continue;
            };
            let flow = &self.flow;
            let received = self.task.inbox.try_receive(self.inputs.aligner.blocked(), |channel| flow.rows(channel, room));
            let Some(received) = received else {
                self.drill();
                let began = self.clock.monotonic();
                self.task.inbox.wait().await;
                self.flow.add_idle(self.clock.monotonic() - began);
                continue;
            };
            self.record(&received);
            self.drill();
            if self.take(received).await? {
                return Ok(());
            }
            self.breathe().await;
        }
    }

    /// How many rows the outputs should get at once; `None` while one of them has no room.
    fn room(&self) -> Option<usize> {
        self.task.routers.iter().try_fold(usize::MAX, |least, router| Some(least.min(router.room()?)))
    }

    /// Looks at what has passed on the channels, if it is time, and lets them hold as much as the target says.
    fn debloat(&mut self) {
        let now = self.clock.monotonic();
        if !self.flow.is_due(now) {
            return;
        }
        let traffic = self.task.inbox.traffic();
        let known = self.flow.look(now, self.task.orders.debloat_target(), self.inputs.aligner.blocked(), &traffic);
        for (channel, debloater) in known {
            self.task.inbox.bound(channel, debloater.bounds(), debloater.rows_per_second());
        }
    }

    /// Fails, if that was asked for.
    fn drill(&self) {
        if self.task.drill.swap(false, Ordering::Relaxed) {
            std::panic::panic_any("it was told to fail");
        }
    }

    /// A subtask with a full inbox must not keep its thread from others.
    pub(super) async fn breathe(&mut self) {
        if self.until_yield.is_zero() {
            self.until_yield = YIELD_AFTER;
            tokio::task::yield_now().await;
        } else {
            tokio::task::coop::consume_budget().await;
        }
    }

    /// A message is about to be worked off.
    fn record(&mut self, received: &Received) {
        self.determinants.complete(Epoch(self.task.completed.load(Ordering::Acquire)));
        match self.task.orders.recovery() {
            Recovery::ExactlyOnce => self.determinants.record(received),
            Recovery::Job | Recovery::Approximate => self.determinants.pass(),
        }
        self.sent.begin();
    }

    /// Tells the operators of the watermarks that are known from an earlier life.
    pub(super) async fn give_watermarks(&mut self) -> Result<()> {
        for ((node, port), watermark) in self.inputs.restored() {
            self.work(node, Call::Watermark(port, watermark)).await?;
        }
        Ok(())
    }

    /// Takes a message. Answers whether it was the end.
    pub(super) async fn take(&mut self, received: Received) -> Result<bool> {
        let Received { channel, message, positions, is_last, .. } = received;
        let ChannelPlan { node, port, feed, .. } = self.inputs.channels[channel];
        if let Feed::Scan { node } = feed {
            self.places.note(node, positions);
        }
        match message {
            Message::Chunk(chunk) => self.take_chunk(channel, (node, port), chunk).await?,
            Message::Watermark(watermark) => {
                if let Some(((node, port), watermark)) = self.inputs.advance(channel, watermark) {
                    self.work(node, Call::Watermark(port, watermark)).await?;
                }
            }
            Message::Barrier(barrier) => {
                if barrier.kind.is_checkpoint() && barrier.epoch > self.checkpointed && self.aligning_since.is_none() {
                    self.aligning_since = Some(self.clock.monotonic());
                }
                self.inputs.aligner.on_barrier(channel, barrier);
            }
        }
        if is_last {
            self.inputs.aligner.on_drained(channel);
        }
        self.close_all().await
    }

    async fn take_chunk(&mut self, channel: ChannelId, (node, port): (usize, usize), chunk: Chunk) -> Result<()> {
        let rows = chunk.num_rows();
        (self.busy, self.emitted) = (Duration::ZERO, 0);
        if matches!(self.sending, Sending::Live) {
            self.task.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
        }
        self.work(node, Call::Chunk(port, chunk)).await?;
        self.flow.record(channel, rows, self.emitted, self.busy);
        self.debloat();
        self.until_yield = self.until_yield.saturating_sub(self.busy);
        self.until_relieve -= 1;
        if self.until_relieve == 0 {
            self.until_relieve = RELIEVE_EVERY;
            self.relieve()?;
        }
        Ok(())
    }

    /// Calls one operator, and all that follows from it, until nothing is owed.
    pub(super) async fn work(&mut self, node: usize, call: Call) -> Result<()> {
        let mut stack = vec![(node, call)];
        let mut out = Output::with_room(OUTPUT_ROWS);
        while let Some((node, call)) = stack.pop() {
            let (number, faults) = (self.task.nodes[node], &self.task.orders.faults);
            let operator = &mut self.task.operators[node];
            let began = self.clock.monotonic();
            let progress = match call {
                Call::Chunk(port, chunk) => match faults.screen(number, port, chunk)? {
                    Screened::Whole(chunk) => faults.watch((number, port), chunk, |chunk| operator.on_chunk(port, chunk, &mut out))?,
                    Screened::Apart(rows) => {
                        stack.extend(rows.into_iter().rev().map(|row| (node, Call::Chunk(port, row))));
                        Progress::Done
                    }
                },
                Call::Watermark(port, watermark) => operator.on_watermark(port, watermark, &mut out)?,
                Call::Barrier(barrier) => operator.on_barrier(&barrier, &mut out)?,
                Call::Resume => operator.resume(&mut out)?,
            };
            self.busy += self.clock.monotonic() - began;
            if progress == Progress::More {
                stack.push((node, Call::Resume));
            }
            match self.task.targets[node] {
                Target::Root => {
                    for emitted in out.take() {
                        let message = match emitted {
                            Emitted::Chunk(chunk) => {
                                self.emitted += chunk.num_rows();
                                Message::Chunk(chunk)
                            }
                            Emitted::Watermark(watermark) => Message::Watermark(watermark),
                        };
                        self.send(message).await?;
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

    pub(super) fn relieve(&mut self) -> Result<()> {
        tables_of(&mut self.task.operators).try_for_each(|table| table.relieve())?;
        if self.task.state.is_sweeping() {
            let mut tables: Vec<&mut dyn StateTable> = tables_of(&mut self.task.operators).collect();
            self.task.state.go_on_sweeping(&mut tables);
        }
        Ok(())
    }
}
