//! The gate between a source reader and the epoch coordinator.
//!
//! At the tick the coordinator must know how far each job has read each split, and from then on nobody may read further until the barrier. A
//! gate makes that one short critical section instead of a round trip: the reader passes it before each chunk it emits, the coordinator
//! stops it, takes the reading, and settles it.
//!
//! Invariant: a reader emits rows of its own accord only after its job has passed the newest closed epoch, by its barrier or, if nothing of the
//! job's inputs changed in it, without one; behind that it reads up to bindings. So no row can slip into an epoch that is closed: also one
//! that bound nothing of this source may have a barrier, for a checkpoint or for another input, and rows before it would be in its state.

use std::sync::Arc;

use millpond_storage::epoch::Epoch;
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

/// Whether a reader may emit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Yes; the offset is noted.
    Open,
    /// A tick is being decided: in a moment.
    Ticking,
    /// A barrier must be passed first.
    Behind,
}

#[derive(Debug)]
struct GateState {
    reading: GateReading,
    ticking: bool,
    passed: Epoch,
    must_pass: Epoch,
}

impl SplitGate {
    /// The gate of a reader that stands at `offset` and whose job has passed the barrier of epoch `passed`.
    pub fn new(split: String, offset: Offset, watermark_us: i64, passed: Epoch) -> Arc<Self> {
        let reading = GateReading { emitted: offset, watermark_us, idle: false, finished: false };
        Arc::new(Self { split, state: Mutex::new(GateState { reading, ticking: false, passed, must_pass: Epoch(0) }) })
    }

    /// Coordinator: stops the reader and takes the reading.
    pub fn stop(&self) -> GateReading {
        let mut state = self.state.lock();
        state.ticking = true;
        state.reading
    }

    /// Coordinator: the tick is decided. `closed` is the newest closed epoch.
    pub fn settle(&self, closed: Epoch) {
        let mut state = self.state.lock();
        state.ticking = false;
        state.must_pass = state.must_pass.max(closed);
    }

    /// Reader: asks to emit rows up to `offset`.
    pub fn pass(&self, offset: Offset, watermark_us: i64) -> Pass {
        let mut state = self.state.lock();
        if state.ticking {
            return Pass::Ticking;
        }
        if state.passed < state.must_pass {
            return Pass::Behind;
        }
        state.reading.emitted = offset;
        state.reading.watermark_us = watermark_us;
        state.reading.idle = false;
        Pass::Open
    }

    /// Reader: there is nothing to emit.
    pub fn set_waiting(&self, idle: bool, finished: bool) {
        let mut state = self.state.lock();
        state.reading.idle = idle;
        state.reading.finished = finished;
    }

    /// Reader: the job passes `epoch` without a barrier, for nothing of its inputs changed in it.
    pub fn epoch_skipped(&self, epoch: Epoch) {
        self.state.lock().passed = epoch;
    }

    /// Reader: has read up to the bindings of `epoch` and sent its barrier.
    pub fn barrier_passed(&self, epoch: Epoch, offset: Offset, watermark_us: i64) {
        let mut state = self.state.lock();
        state.reading.emitted = offset;
        state.reading.watermark_us = watermark_us;
        state.passed = epoch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_emits_between_the_reading_and_the_barrier() {
        let gate = SplitGate::new("s".into(), 0, i64::MIN, Epoch(0));
        assert_eq!(gate.pass(10, 1), Pass::Open);
        assert_eq!(gate.stop().emitted, 10);
        assert_eq!(gate.pass(20, 2), Pass::Ticking);
        gate.settle(Epoch(7));
        assert_eq!(gate.pass(20, 2), Pass::Behind);
        gate.barrier_passed(Epoch(7), 10, 1);
        assert_eq!(gate.pass(20, 2), Pass::Open);
        assert_eq!(gate.stop().emitted, 20);
        gate.settle(Epoch(7));
        assert_eq!(gate.pass(30, 3), Pass::Open, "a tick that closed nothing holds nobody back");
        gate.settle(Epoch(8));
        assert_eq!(gate.pass(40, 4), Pass::Behind);
        gate.epoch_skipped(Epoch(8));
        assert_eq!(gate.pass(40, 4), Pass::Open);
    }

    #[test]
    fn a_reader_behind_stays_behind_through_quiet_ticks() {
        let gate = SplitGate::new("s".into(), 0, i64::MIN, Epoch(0));
        gate.stop();
        gate.settle(Epoch(3));
        gate.stop();
        gate.settle(Epoch(3));
        assert_eq!(gate.pass(5, 0), Pass::Behind);
    }
}
