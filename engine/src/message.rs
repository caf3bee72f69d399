//! What travels on an exchange: chunks, watermarks and barriers, and nothing else.

use millpond_storage::epoch::Epoch;

use crate::chunk::Chunk;

/// One message of an edge. Every consumer matches it exhaustively.
#[derive(Clone, Debug)]
pub enum Message {
    /// Row changes.
    Chunk(Chunk),
    /// A promise about event time.
    Watermark(Watermark),
    /// The end of an epoch on this edge.
    Barrier(Barrier),
}

/// Event time in `column` of later rows of this edge will not fall below `micros`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermark {
    /// The column of the edge's schema that carries the event time.
    pub column: usize,
    /// Microseconds since 1970-01-01 00:00:00 (UTC for timestamptz). `i64::MAX` says that the input has ended.
    pub micros: i64,
}

/// The control record that closes every epoch up to and including `epoch` on an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Barrier {
    /// The epoch that ends here.
    pub epoch: Epoch,
    /// The epoch's one clock time, microseconds since 1970 UTC. `now()` is this, wherever it is asked.
    pub time_us: i64,
    /// What else the barrier asks for.
    pub kind: BarrierKind,
}

/// What a barrier asks for besides closing its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierKind {
    /// Nothing else.
    Epoch,
    /// State is snapshotted too.
    Checkpoint,
    /// A superstep of an iteration ends.
    Round,
    /// State is snapshotted, and nothing follows on this edge.
    Final,
}

impl BarrierKind {
    /// Whether state is snapshotted at this barrier.
    pub fn is_checkpoint(self) -> bool {
        matches!(self, BarrierKind::Checkpoint | BarrierKind::Final)
    }
}
