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
    inner: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    /// What each subtask handed over.
    epochs: BTreeMap<Epoch, Vec<(usize, SignedBatch)>>,
    /// What a checkpoint held of epochs that were not sealed.
    restored: BTreeMap<Epoch, Vec<SignedBatch>>,
    /// The last epoch that each subtask had handed over before it was put back.
    handed: BTreeMap<usize, Epoch>,
    /// What each subtask has of its open epoch.
    open: BTreeMap<usize, Vec<SignedBatch>>,
    /// The watermark of each subtask at the epochs it handed over.
    watermarks: BTreeMap<Epoch, BTreeMap<usize, (usize, i64)>>,
    /// The watermark of each subtask at the last epoch taken.
    sealed: BTreeMap<usize, (usize, i64)>,
}

impl Collector {
    /// A collector that begins with what a checkpoint holds of epochs that were not sealed.
    pub fn restored(unsealed: impl IntoIterator<Item = (Epoch, SignedBatch)>) -> Self {
        let mut collected = Collected::default();
        for (epoch, batch) in unsealed {
            collected.restored.entry(epoch).or_default().push(batch);
        }
        Self { inner: Mutex::new(collected) }
    }

    /// Takes what all subtasks handed over up to `epoch`.
    pub fn take(&self, epoch: Epoch) -> Vec<SignedBatch> {
        let mut inner = self.inner.lock();
        let later = inner.restored.split_off(&epoch.next());
        let restored = std::mem::replace(&mut inner.restored, later).into_values().flatten();
        let later = inner.epochs.split_off(&epoch.next());
        let handed = std::mem::replace(&mut inner.epochs, later).into_values().flatten().map(|(_, batch)| batch);
        restored.chain(handed).collect()
    }

    /// The minimum watermark of `subtasks` root subtasks at `epoch`, once all have one. Epochs are asked for in order.
    pub fn watermark(&self, epoch: Epoch, subtasks: usize) -> Option<(usize, i64)> {
        let mut inner = self.inner.lock();
        let later = inner.watermarks.split_off(&epoch.next());
        let reached = std::mem::replace(&mut inner.watermarks, later);
        reached.into_values().for_each(|watermarks| inner.sealed.extend(watermarks));
        if inner.sealed.len() < subtasks {
            return None;
        }
        inner.sealed.values().copied().min_by_key(|(_, micros)| *micros)
    }

    /// What a subtask, which has closed every epoch up to `closed`, has given of epochs that are not sealed: the rows, each with the epoch whose
    /// barrier, or that of a later one, ends theirs.
    pub fn unsealed(&self, subtask: usize, closed: Epoch) -> Vec<(Epoch, SignedBatch)> {
        let inner = self.inner.lock();
        let handed = inner.epochs.iter().flat_map(|(epoch, batches)| batches.iter().map(move |(from, batch)| (*epoch, *from, batch)));
        let handed = handed.filter(|(_, from, _)| *from == subtask).map(|(epoch, _, batch)| (epoch, batch.clone()));
        let open = inner.open.get(&subtask).into_iter().flatten().map(|batch| (closed.next(), batch.clone()));
        // Any one of the subtasks stands for what an earlier life had.
        let restored =
            inner.restored.iter().filter(|_| subtask == 0).flat_map(|(epoch, batches)| batches.iter().map(|b| (*epoch, b.clone())));
        restored.chain(handed).chain(open).collect()
    }

    /// What a subtask has of its open epoch.
    pub fn open(&self, subtask: usize) -> Vec<SignedBatch> {
        self.inner.lock().open.get(&subtask).cloned().unwrap_or_default()
    }

    /// A subtask goes back to where it had `open` of its open epoch, and comes to the same once more. It has told of every epoch up to
    /// `reported`: what it handed over of these stays, and is not taken again.
    pub fn rewind(&self, subtask: usize, reported: Epoch, open: Vec<SignedBatch>) {
        let inner = &mut *self.inner.lock();
        for (_, batches) in inner.epochs.range_mut(reported.next()..) {
            batches.retain(|(from, _)| *from != subtask);
        }
        inner.open.insert(subtask, open);
        inner.handed.insert(subtask, reported);
    }

    fn add(&self, subtask: usize, batch: SignedBatch) {
        self.inner.lock().open.entry(subtask).or_default().push(batch);
    }

    fn close(&self, subtask: usize, epoch: Epoch, watermark: Option<(usize, i64)>) {
        let inner = &mut *self.inner.lock();
        let batches = inner.open.get_mut(&subtask).map(std::mem::take).unwrap_or_default();
        if inner.handed.get(&subtask).is_some_and(|handed| epoch <= *handed) {
            return;
        }
        if !batches.is_empty() {
            inner.epochs.entry(epoch).or_default().extend(batches.into_iter().map(|batch| (subtask, batch)));
        }
        if let Some(watermark) = watermark {
            inner.watermarks.entry(epoch).or_default().insert(subtask, watermark);
        }
    }
}

/// The operator at the root of a view: gives the changes of the open epoch to the collector, and hands them over at its barrier.
///
/// Input: any changelog; output: nothing. State: none. What is not sealed is recomputed after a crash, or is in the checkpoint
/// ([`Collector::unsealed`]).
pub struct Materialize {
    collector: Arc<Collector>,
    subtask: usize,
    watermark_column: Option<usize>,
    watermark: Option<(usize, i64)>,
}

impl Materialize {
    /// The operator of one subtask. A collection has a watermark on one column at most: those on others are not taken.
    pub fn new(collector: Arc<Collector>, subtask: usize, watermark_column: Option<usize>) -> Self {
        Self { collector, subtask, watermark_column, watermark: None }
    }
}

impl Operator for Materialize {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        let signs = chunk.ops().map(|ops| ops.iter().map(|op| op.sign()).collect());
        self.collector.add(self.subtask, SignedBatch { batch: chunk.batch().clone(), signs });
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, _out: &mut Output) -> Result<Progress> {
        if self.watermark_column == Some(watermark.column) {
            self.watermark = Some((watermark.column, watermark.micros));
        }
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, barrier: &Barrier, _out: &mut Output) -> Result<Progress> {
        self.collector.close(self.subtask, barrier.epoch, self.watermark);
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

#[cfg(test)]
mod tests {
    use arrow::{array::Int64Array, record_batch::RecordBatch};

    use super::*;
    use crate::message::BarrierKind;

    fn batch(value: i64) -> RecordBatch {
        let column: Arc<dyn arrow::array::Array> = Arc::new(Int64Array::from(vec![value]));
        RecordBatch::try_from_iter([("a", column)]).expect("one column")
    }

    fn barrier(epoch: u64) -> Barrier {
        Barrier { epoch: Epoch(epoch), time_us: 0, kind: BarrierKind::Epoch }
    }

    #[test]
    fn an_epoch_is_sealed_with_the_watermark_it_closed_with() {
        let collector = Arc::new(Collector::default());
        let out = &mut Output::default();
        let mut roots: Vec<_> = (0..2).map(|subtask| Materialize::new(collector.clone(), subtask, Some(3))).collect();
        let mut at = |root: usize, micros: i64, epoch: u64| {
            let _ = roots[root].on_watermark(0, Watermark { column: 3, micros }, out).expect("a watermark");
            let _ = roots[root].on_watermark(0, Watermark { column: 2, micros: 1 }, out).expect("a watermark of no interest");
            let _ = roots[root].on_barrier(&barrier(epoch), out).expect("a barrier");
        };
        at(0, 10, 1);
        at(0, 20, 2);
        assert_eq!(collector.watermark(Epoch(0), 2), None);
        at(1, 12, 1);
        at(1, 18, 2);
        assert_eq!(collector.watermark(Epoch(1), 2), Some((3, 10)), "one subtask is an epoch ahead");
        assert_eq!(collector.watermark(Epoch(2), 2), Some((3, 18)));
        assert_eq!(collector.watermark(Epoch(3), 2), Some((3, 18)));
    }

    #[test]
    fn a_subtask_that_goes_back_hands_over_once() {
        let earlier = vec![(Epoch(2), SignedBatch::inserts(batch(9)))];
        let collector = Arc::new(Collector::restored(earlier));
        let out = &mut Output::default();
        let mut roots: Vec<_> = (0..2).map(|subtask| Materialize::new(collector.clone(), subtask, Some(3))).collect();
        let chunk = |value| Chunk::inserts(batch(value));
        let _ = roots[0].on_chunk(0, chunk(1), out).expect("a chunk");
        let open = collector.open(0);
        // Of these, the barriers of 1 and 2 are reported, that of 3 is not.
        for epoch in 1..4 {
            for (root, value) in [(0, 10), (1, 20)] {
                let _ = roots[root].on_chunk(0, chunk(value + epoch), out).expect("a chunk");
                let _ = roots[root].on_barrier(&barrier(epoch as u64), out).expect("a barrier");
            }
        }
        assert_eq!(collector.take(Epoch(1)).len(), 3);
        collector.rewind(0, Epoch(2), open);
        assert_eq!(collector.take(Epoch(2)), [9, 12, 22].map(|value| SignedBatch::inserts(batch(value))));
        for epoch in 1..4 {
            let _ = roots[0].on_chunk(0, chunk(10 + epoch), out).expect("a chunk");
            let _ = roots[0].on_barrier(&barrier(epoch as u64), out).expect("a barrier");
        }
        assert_eq!(collector.take(Epoch(9)), [23, 13].map(|value| SignedBatch::inserts(batch(value))));
    }

    #[test]
    fn what_is_not_sealed_comes_back_in_its_epoch() {
        let collector = Arc::new(Collector::default());
        let out = &mut Output::default();
        let mut root = Materialize::new(collector.clone(), 1, Some(3));
        for epoch in 1..4 {
            let _ = root.on_chunk(0, Chunk::inserts(batch(epoch)), out).expect("a chunk");
            if epoch < 3 {
                let _ = root.on_barrier(&barrier(epoch as u64), out).expect("a barrier");
            }
        }
        assert_eq!(collector.take(Epoch(1)).len(), 1);
        let unsealed = collector.unsealed(1, Epoch(2));
        assert!(collector.unsealed(0, Epoch(2)).is_empty());
        assert_eq!(unsealed.iter().map(|(epoch, _)| epoch.0).collect::<Vec<_>>(), [2, 3]);
        let again = Collector::restored(unsealed.clone());
        assert_eq!(again.unsealed(0, Epoch(1)), unsealed, "also before it is sealed a second checkpoint has it");
        assert_eq!(again.take(Epoch(2)), [SignedBatch::inserts(batch(2))]);
        assert_eq!(again.take(Epoch(8)), [SignedBatch::inserts(batch(3))]);
    }
}
