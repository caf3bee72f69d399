//! What a subtask has taken since its last complete checkpoint: each message, or slice of one, with the channel it came on, in the order in
//! which it was taken. Operators are functions of their state and this order, so a subtask that begins again with the state of the
//! checkpoint and takes the same once more comes to the same state and has made the same output. Pure.
//!
//! Within a process what a producer has sent and what its consumer takes are the same columns in memory, and what is kept here outlives the
//! operators that have failed. So it stands for both the producers' copy of what is in flight and the log of the order, and
//! nothing of it has to travel on with the output.
//!
//! It is bounded. Where it would grow beyond, all of it is dropped, and nothing is kept until the subtask gives its part of the next
//! checkpoint: a failure before that is one of the whole job.

use std::collections::{BTreeMap, VecDeque};

use millpond_storage::{epoch::Epoch, memory::MemoryHandle, signed_batch::SignedBatch};

use super::inputs::Inputs;
use crate::{chunk::Chunk, exchange::inbox::Received, message::Message, scan::place::ScanPlaces};

/// Where a subtask stood when its state was taken for a checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// The epoch that names the checkpoint.
    pub(super) checkpoint: Epoch,
    /// Messages taken before.
    pub(super) at: u64,
    /// The attempt began here: what the operators make of the watermarks known from before has to be sent too.
    pub(super) is_start: bool,
    pub(super) inputs: Inputs,
    pub(super) places: ScanPlaces,
    /// Per node, the watermark by which its rows are late.
    pub(super) applied: BTreeMap<usize, i64>,
    /// What the root had collected of its open epoch.
    pub(super) collected: Vec<SignedBatch>,
    /// Time of the open epoch.
    pub(super) time_us: i64,
}

/// See the module.
pub(super) struct Determinants {
    taken: VecDeque<Received>,
    /// Messages taken before the first that is kept.
    first: u64,
    /// In the order of checkpoints; empty while nothing can be kept.
    marks: VecDeque<Mark>,
    limit_bytes: usize,
    memory: MemoryHandle,
}

impl Determinants {
    /// Keeps up to `limit_bytes`, as far as the budget behind `memory` has room.
    pub(super) fn new(limit_bytes: usize, memory: MemoryHandle) -> Self {
        Self { taken: VecDeque::new(), first: 0, marks: VecDeque::new(), limit_bytes, memory }
    }

    /// Messages taken so far.
    pub(super) fn count(&self) -> u64 {
        self.first + self.taken.len() as u64
    }

    /// Whether there is a place to go back to.
    pub(super) fn serves(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Whether the place of this complete checkpoint, or of one before it, is kept, and all that was taken since.
    pub(super) fn serves_since(&self, checkpoint: Epoch) -> bool {
        self.marks.front().is_some_and(|mark| mark.checkpoint <= checkpoint)
    }

    /// A message is about to be worked off.
    pub(super) fn record(&mut self, received: &Received) {
        if !self.serves() {
            return self.pass();
        }
        let bytes = received_bytes(received);
        if self.memory.used() + bytes > self.limit_bytes || !self.memory.try_grow(bytes) {
            return self.pass();
        }
        self.taken.push_back(received.clone());
    }

    /// A message is taken that is not kept, nor is what was taken before.
    pub(super) fn pass(&mut self) {
        self.first = self.count() + 1;
        if self.serves() {
            self.taken.clear();
            self.marks.clear();
            self.memory.resize(0);
        }
    }

    /// The subtask's state has been taken.
    pub(super) fn mark(&mut self, mark: Mark) {
        debug_assert_eq!(mark.at, self.count(), "a mark is set where the subtask stands");
        self.marks.push_back(mark);
    }

    /// A checkpoint is complete: what was taken before it is not needed any more.
    pub(super) fn complete(&mut self, checkpoint: Epoch) {
        while self.marks.get(1).is_some_and(|mark| mark.checkpoint <= checkpoint) {
            self.marks.pop_front();
        }
        let Some(mark) = self.marks.front() else { return };
        let gone = (mark.at - self.first) as usize;
        let bytes = self.taken.drain(..gone).map(|received| received_bytes(&received)).sum();
        self.memory.shrink(bytes);
        self.first = mark.at;
    }

    /// The place where the subtask's state was taken for a checkpoint.
    pub(super) fn place_of(&self, checkpoint: Epoch) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.checkpoint == checkpoint)
    }

    /// The message that was taken as number `number`, from 0.
    pub(super) fn get(&self, number: u64) -> Option<&Received> {
        self.taken.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

fn received_bytes(received: &Received) -> usize {
    size_of::<Received>()
        + match &received.message {
            Message::Chunk(chunk) => chunk_bytes(chunk),
            Message::Watermark(_) | Message::Barrier(_) => 0,
        }
}

/// Bytes that a chunk takes with its change kinds, estimated.
pub(super) fn chunk_bytes(chunk: &Chunk) -> usize {
    chunk.num_rows() + chunk.bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{Array, Int64Array},
        record_batch::RecordBatch,
    };
    use millpond_storage::memory::MemoryBudget;

    use super::*;

    fn received(rows: usize) -> Received {
        let column: Arc<dyn Array> = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let chunk = Chunk::inserts(RecordBatch::try_from_iter([("a", column)]).expect("one column"));
        Received { channel: 0, sequence: 0, message: Message::Chunk(chunk), positions: Vec::new(), is_last: false }
    }

    fn mark(determinants: &mut Determinants, checkpoint: u64) {
        determinants.mark(Mark {
            checkpoint: Epoch(checkpoint),
            at: determinants.count(),
            is_start: false,
            inputs: Inputs::new(Vec::new(), Epoch(checkpoint), &[]),
            places: ScanPlaces::default(),
            applied: BTreeMap::new(),
            collected: Vec::new(),
            time_us: 0,
        });
    }

    #[test]
    fn keeps_what_follows_the_last_complete_checkpoint() {
        let budget = MemoryBudget::new(1 << 20);
        let mut determinants = Determinants::new(1 << 20, budget.handle("test"));
        determinants.record(&received(1));
        assert!(!determinants.serves() && determinants.get(0).is_none() && budget.used() == 0, "there is no place to go back to");
        mark(&mut determinants, 3);
        (2..6).for_each(|rows| determinants.record(&received(rows)));
        mark(&mut determinants, 7);
        determinants.record(&received(6));
        let rows = |determinants: &Determinants, number| match determinants.get(number).map(|received| &received.message) {
            Some(Message::Chunk(chunk)) => chunk.num_rows(),
            _ => 0,
        };
        assert_eq!([0, 1, 4, 5, 6].map(|number| rows(&determinants, number)), [0, 2, 5, 6, 0]);
        determinants.complete(Epoch(6));
        assert_eq!((determinants.place_of(Epoch(3)).map(|mark| mark.at), rows(&determinants, 1)), (Some(1), 2), "7 is not complete");
        determinants.complete(Epoch(7));
        assert!(determinants.place_of(Epoch(3)).is_none());
        assert_eq!((determinants.place_of(Epoch(7)).map(|mark| mark.at), rows(&determinants, 5)), (Some(5), 6));
        assert_eq!(budget.used(), received_bytes(&received(6)));
    }

    #[test]
    fn what_grows_beyond_its_bound_is_dropped_until_the_next_checkpoint() {
        let budget = MemoryBudget::new(1 << 20);
        let mut determinants = Determinants::new(4 << 10, budget.handle("test"));
        mark(&mut determinants, 1);
        (0..4).for_each(|_| determinants.record(&received(200)));
        assert!(!determinants.serves() && budget.used() == 0 && determinants.count() == 4);
        determinants.record(&received(1));
        determinants.complete(Epoch(1));
        assert!(!determinants.serves() && determinants.count() == 5);
        mark(&mut determinants, 2);
        determinants.record(&received(9));
        assert!(determinants.serves() && determinants.get(5).is_some() && determinants.get(4).is_none());
        assert!(determinants.serves_since(Epoch(2)) && !determinants.serves_since(Epoch(1)), "2 is not complete");
    }
}
