//! Where the root subtasks of a view hand over the changes of an epoch.

use std::{collections::BTreeMap, sync::Arc};

use millpond_storage::{epoch::Epoch, signed_batch::SignedBatch};
use parking_lot::Mutex;

use crate::{
    chunk::Chunk,
    error::Result,
    message::{Barrier, Watermark},
    operator::{Operator, Output, Progress},
};

/// Changes per epoch, until the driver seals them.
#[derive(Default)]
pub struct Collector {
    epochs: Mutex<BTreeMap<Epoch, Vec<SignedBatch>>>,
    watermarks: Mutex<BTreeMap<usize, (usize, i64)>>,
}

impl Collector {
    /// Takes what all subtasks handed over up to `epoch`.
    pub fn take(&self, epoch: Epoch) -> Vec<SignedBatch> {
        let mut epochs = self.epochs.lock();
        let later = epochs.split_off(&epoch.next());
        std::mem::replace(&mut *epochs, later).into_values().flatten().collect()
    }

    /// The minimum watermark of `subtasks` root subtasks, once all have one.
    pub fn watermark(&self, subtasks: usize) -> Option<(usize, i64)> {
        let watermarks = self.watermarks.lock();
        if watermarks.len() < subtasks {
            return None;
        }
        watermarks.values().copied().min_by_key(|(_, micros)| *micros)
    }
}

/// The operator at the root of a view: keeps the changes of the open epoch and hands them over at its barrier.
///
/// Input: any changelog; output: nothing. State: none, since what is not sealed is recomputed after a crash.
pub struct Materialize {
    collector: Arc<Collector>,
    subtask: usize,
    open: Vec<SignedBatch>,
}

impl Materialize {
    /// The operator of one subtask.
    pub fn new(collector: Arc<Collector>, subtask: usize) -> Self {
        Self { collector, subtask, open: Vec::new() }
    }
}

impl Operator for Materialize {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        let signs = chunk.ops().map(|ops| ops.iter().map(|op| op.sign()).collect());
        self.open.push(SignedBatch { batch: chunk.batch().clone(), signs });
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, _out: &mut Output) -> Result<Progress> {
        self.collector.watermarks.lock().insert(self.subtask, (watermark.column, watermark.micros));
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, barrier: &Barrier, _out: &mut Output) -> Result<Progress> {
        let batches = std::mem::take(&mut self.open);
        if !batches.is_empty() {
            self.collector.epochs.lock().entry(barrier.epoch).or_default().extend(batches);
        }
        Ok(Progress::Done)
    }
}

/// The operator of a scan: its reader feeds the channel, so there is nothing to do but to let pass.
pub struct PassThrough;

impl Operator for PassThrough {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress> {
        out.emit(chunk);
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, out: &mut Output) -> Result<Progress> {
        out.emit_watermark(watermark);
        Ok(Progress::Done)
    }
}
