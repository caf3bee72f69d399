//! Where the subtasks of a job start: from nothing, at the barrier of an aligned checkpoint, or in the midst of several epochs.

use std::{collections::BTreeMap, ops::Range};

use millpond_storage::{
    checkpoint::{InFlight, Segment, SegmentMessage},
    epoch::Epoch,
    key_group::key_group_range,
    signed_batch::SignedBatch,
};
use serde::{Deserialize, Serialize};

use crate::{
    chunk::{Chunk, Op},
    error::{EngineError, Result},
    exchange::{channel::Channel, router::KeySplitter},
    graph::{Distribution, Exchange},
    message::{Barrier, BarrierKind, Message, Watermark},
};

/// What an unaligned checkpoint says of the epochs it was taken in, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutNote {
    /// The lowest last epoch that a subtask had closed, per fragment.
    closed: Vec<u64>,
    /// Barriers that had been injected, and that not all subtasks had closed: epoch and time.
    barriers: Vec<(u64, i64)>,
}

/// Where the subtasks of an attempt start.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    /// Per fragment, the last epoch that all its subtasks had closed.
    closed: Vec<Epoch>,
    /// To be injected again, in order, into fragments that have not closed them.
    pub barriers: Vec<Barrier>,
    segments: Vec<Segment>,
    generation: u32,
    /// Per node, the lowest watermark by which rows were late.
    applied: BTreeMap<usize, i64>,
    /// What the root had collected of epochs that it has still to close.
    pub unsealed: Vec<(Epoch, SignedBatch)>,
}

/// What an earlier life's channel held.
#[derive(Debug)]
pub struct Rest {
    /// The last barrier that was delivered on it.
    pub passed: Epoch,
    /// The watermarks that were delivered on it.
    pub reached: Vec<Watermark>,
    /// In which life it began.
    pub generation: u32,
    /// Its messages.
    pub channel: Channel,
}

impl CutNote {
    /// Of a job of `fragments` fragments. `parts` has the fragment and the last closed epoch of every subtask, `injected` the barriers up to that
    /// of the checkpoint.
    pub fn new(fragments: usize, parts: impl Iterator<Item = (usize, Epoch)>, injected: impl Iterator<Item = Barrier>) -> Self {
        let mut closed = vec![u64::MAX; fragments];
        for (fragment, epoch) in parts {
            closed[fragment] = closed[fragment].min(epoch.0);
        }
        let lowest = closed.iter().copied().min().unwrap_or_default();
        let barriers = injected.filter(|barrier| barrier.epoch.0 > lowest).map(|barrier| (barrier.epoch.0, barrier.time_us)).collect();
        Self { closed, barriers }
    }

    /// The epoch up to which nothing of the inputs is needed any more.
    pub fn consumed(&self) -> Epoch {
        Epoch(self.closed.iter().copied().min().unwrap_or_default())
    }
}

impl Restart {
    /// All subtasks of `fragments` fragments have closed `epoch` and nothing more.
    pub fn aligned(fragments: usize, epoch: Epoch) -> Self {
        Self { closed: vec![epoch; fragments], ..Self::default() }
    }

    /// The same, with the watermark by which rows of each node were late.
    pub fn with_applied(self, applied: BTreeMap<usize, i64>) -> Self {
        Self { applied, ..self }
    }

    /// As an unaligned checkpoint says.
    ///
    /// # Errors
    /// Internal, when it is of a graph with another number of fragments.
    pub fn unaligned(fragments: usize, note: CutNote, flights: Vec<InFlight>) -> Result<Self> {
        if note.closed.len() != fragments {
            return Err(EngineError::Internal(format!("a checkpoint of {} fragments for a graph of {fragments}", note.closed.len())));
        }
        let barrier = |(epoch, time_us)| Barrier { epoch: Epoch(epoch), time_us, kind: BarrierKind::Epoch };
        let mut restart = Self {
            closed: note.closed.into_iter().map(Epoch).collect(),
            barriers: note.barriers.into_iter().map(barrier).collect(),
            ..Self::default()
        };
        let sealed = restart.root_closed();
        for flight in flights {
            restart.segments.extend(flight.segments);
            // All subtasks of the root had closed the others: they are sealed.
            restart.unsealed.extend(flight.unsealed.into_iter().filter(|(epoch, _)| *epoch > sealed));
        }
        restart.generation = restart.segments.iter().map(|segment| segment.generation + 1).max().unwrap_or(0);
        Ok(restart)
    }

    /// The last epoch that all subtasks of a fragment had closed.
    pub fn closed(&self, fragment: usize) -> Epoch {
        self.closed[fragment]
    }

    /// The last epoch that all subtasks of the root had closed.
    pub fn root_closed(&self) -> Epoch {
        self.closed.last().copied().unwrap_or_default()
    }

    /// The watermark by which rows of a node were late at the last barrier that all subtasks had closed.
    pub fn applied_watermark(&self, node: usize) -> i64 {
        self.applied.get(&node).copied().unwrap_or(i64::MIN)
    }

    /// The generation of the channels that begin now: greater than that of any rest.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The rests of the channels of an exchange for consumer `index` of `width`.
    pub fn channels(&self, exchange: &Exchange, index: usize, width: usize) -> Result<Vec<Rest>> {
        let Distribution::Hash(columns) = &exchange.distribution else { return Ok(Vec::new()) };
        let own = key_group_range(index, width);
        let mut splitter = KeySplitter::new(columns, &exchange.schema)?;
        let of_exchange = self.segments.iter().filter(|segment| segment.exchange as usize == exchange.id);
        of_exchange
            .filter(|segment| overlap(&segment.key_groups, &own))
            .map(|segment| {
                let mut messages = Vec::with_capacity(segment.messages.len());
                let contained = own.start <= segment.key_groups.start && segment.key_groups.end <= own.end;
                for message in &segment.messages {
                    messages.extend(match message {
                        SegmentMessage::Watermark { column, micros } => Some(Message::Watermark(watermark(*column, *micros))),
                        SegmentMessage::Barrier { epoch, time_us } => {
                            Some(Message::Barrier(Barrier { epoch: *epoch, time_us: *time_us, kind: BarrierKind::Epoch }))
                        }
                        SegmentMessage::Rows(rows) => {
                            let chunk = chunk(rows);
                            let part = if contained { Some(chunk) } else { splitter.split(&chunk, width)?.swap_remove(index) };
                            part.map(Message::Chunk)
                        }
                    });
                }
                let reached = segment.watermarks.iter().map(|(column, micros)| watermark(*column, *micros)).collect();
                Ok(Rest { passed: segment.passed, reached, generation: segment.generation, channel: Channel::restored(messages) })
            })
            .collect()
    }
}

fn overlap(a: &Range<u16>, b: &Range<u16>) -> bool {
    a.start < b.end && b.start < a.end
}

fn watermark(column: u32, micros: i64) -> Watermark {
    Watermark { column: column as usize, micros }
}

/// The chunk as it was sent.
fn chunk(rows: &SignedBatch) -> Chunk {
    match &rows.signs {
        Some(signs) => Chunk::new(rows.batch.clone(), signs.iter().map(|sign| Op::from_sign(*sign)).collect()),
        None => Chunk::inserts(rows.batch.clone()),
    }
}
