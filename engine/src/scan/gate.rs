//! The gate between a source reader and the epoch coordinator.
//!
//! At the tick the coordinator must know how far each job has read each split, and from then on nobody may read further until the barrier. A
//! gate makes that one short critical section instead of a round trip: the reader passes it before each chunk it emits, the coordinator
//! closes it and takes the reading.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::source::Offset;

/// The gate of one split in one job.
#[derive(Debug)]
pub struct SplitGate {
    /// Name of the split.
    pub split: String,
    state: Mutex<GateState>,
}

/// What the coordinator learns from a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateReading {
    /// Offset after the last row emitted.
    pub emitted: Offset,
    /// The split's own watermark at that offset, `i64::MIN` before the first row.
    pub watermark_us: i64,
    /// The source said that there is no more for now.
    pub idle: bool,
    /// The split has ended.
    pub finished: bool,
}

#[derive(Debug)]
struct GateState {
    reading: GateReading,
    closed: bool,
}

impl SplitGate {
    /// An open gate of a reader that stands at `offset`.
    pub fn new(split: String, offset: Offset, watermark_us: i64) -> Arc<Self> {
        let reading = GateReading { emitted: offset, watermark_us, idle: false, finished: false };
        Arc::new(Self { split, state: Mutex::new(GateState { reading, closed: false }) })
    }

    /// Coordinator: closes the gate and takes the reading.
    pub fn close(&self) -> GateReading {
        let mut state = self.state.lock();
        state.closed = true;
        state.reading
    }

    /// Coordinator: the tick bound nothing new of this source, so no barrier will come for it.
    pub fn reopen(&self) {
        self.state.lock().closed = false;
    }

    /// The reading, gate left as it is.
    pub fn reading(&self) -> GateReading {
        self.state.lock().reading
    }

    /// Reader: asks to emit rows up to `offset`. `false` while the gate is closed.
    pub fn pass(&self, offset: Offset, watermark_us: i64) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        state.reading.emitted = offset;
        state.reading.watermark_us = watermark_us;
        state.reading.idle = false;
        true
    }

    /// Reader: whether rows could be emitted now.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Reader: there is nothing to emit.
    pub fn set_waiting(&self, idle: bool, finished: bool) {
        let mut state = self.state.lock();
        state.reading.idle = idle;
        state.reading.finished = finished;
    }

    /// Reader: has read up to a binding and sent the barrier; the gate opens.
    pub fn open_at(&self, offset: Offset, watermark_us: i64) {
        let mut state = self.state.lock();
        state.reading.emitted = offset;
        state.reading.watermark_us = watermark_us;
        state.closed = false;
    }
}
