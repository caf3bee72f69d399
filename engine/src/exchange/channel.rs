//! One channel: a queue of messages and the lane on which the barriers of checkpoints pass them. Pure.
//!
//! A barrier on the lane has the sequence number it stands at: messages below it were sent before the producer's state was taken, the others
//! after. The consumer never takes a message beyond the first barrier of the lane before its own state is taken too. Whether it waits until it
//! has taken all that is below (an aligned checkpoint), or makes of that a segment of the checkpoint (an unaligned one), is its own choice.

use std::collections::VecDeque;

use millpond_storage::epoch::Epoch;

use crate::{
    message::Message,
    scan::place::{Place, Position},
};

/// A barrier on the lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LaneBarrier {
    /// The epoch that names the checkpoint.
    checkpoint: Epoch,
    /// Messages from this number on were sent behind it.
    at: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    sequence: u64,
    message: Message,
    place: Option<Place>,
    /// Rows of the chunk that were taken before.
    taken: usize,
}

/// A message, or the first rows of one, taken from a channel.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its number in the channel, from 0.
    pub sequence: u64,
    /// The message.
    pub message: Message,
    /// Where the channel's reader stood behind it, if it is the channel of a scan.
    pub positions: Vec<Position>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Channel {
    messages: VecDeque<Entry>,
    lane: VecDeque<LaneBarrier>,
    rows: usize,
    sent: u64,
    /// The newest checkpoint for which the consumer's state has been taken.
    passed: Epoch,
    /// Nothing is ever added: it ends with its last message.
    is_restored: bool,
}

impl Channel {
    /// The rest of a channel of an earlier life of the job.
    pub fn restored(messages: impl IntoIterator<Item = Message>) -> Self {
        let mut channel = Self::default();
        messages.into_iter().for_each(|message| channel.push(message, None));
        channel.is_restored = true;
        channel
    }

    /// Whether it is the rest of an earlier life's channel and has been drained.
    pub fn is_drained(&self) -> bool {
        self.is_restored && self.messages.is_empty()
    }

    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the rows in it.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|entry| byte_count(&entry.message)).sum()
    }

    /// Adds a message.
    pub fn push(&mut self, message: Message, place: Option<Place>) {
        self.rows += row_count(&message);
        self.messages.push_back(Entry { sequence: self.sent, message, place, taken: 0 });
        self.sent += 1;
    }

    /// The state of the producer is taken now: what comes later is behind the barrier. The reader of a scan may come to it long after the consumer,
    /// which has not waited for it: then the barrier stands in nobody's way.
    pub fn overtake(&mut self, checkpoint: Epoch) {
        if checkpoint > self.passed {
            self.lane.push_back(LaneBarrier { checkpoint, at: self.sent });
        }
    }

    /// Whether the barrier of a checkpoint has come. No more is ever added to the rest of an earlier channel.
    pub fn has_barrier(&self, checkpoint: Epoch) -> bool {
        self.is_restored || self.lane.iter().any(|barrier| barrier.checkpoint >= checkpoint)
    }

    /// The next message, or its first `limit` rows, unless the lane's barrier stands before it.
    pub fn take(&mut self, limit: usize) -> Option<Taken> {
        let first = self.lane.front().map_or(u64::MAX, |barrier| barrier.at);
        let head = self.messages.front_mut().filter(|head| head.sequence < first)?;
        if let Message::Chunk(chunk) = &head.message
            && chunk.num_rows() > limit
        {
            let (part, rest) = (chunk.slice(0, limit), chunk.slice(limit, chunk.num_rows() - limit));
            self.rows -= limit;
            head.taken += limit;
            head.message = Message::Chunk(rest);
            let positions = head.place.as_ref().map_or(Vec::new(), |place| place.positions(Some(head.taken as u64)));
            return Some(Taken { sequence: head.sequence, message: Message::Chunk(part), positions });
        }
        let Entry { sequence, message, place, .. } = self.messages.pop_front()?;
        self.rows -= row_count(&message);
        let positions = place.as_ref().map_or(Vec::new(), |place| place.positions(None));
        Some(Taken { sequence, message, positions })
    }

    /// What the barrier of a checkpoint has overtaken: all that was sent before it and has not been taken.
    pub fn overtaken(&self, checkpoint: Epoch) -> Vec<Message> {
        let barrier = self.lane.iter().find(|barrier| barrier.checkpoint >= checkpoint);
        let end = barrier.map_or(if self.is_restored { u64::MAX } else { 0 }, |barrier| barrier.at);
        self.messages.iter().take_while(|entry| entry.sequence < end).map(|entry| entry.message.clone()).collect()
    }

    /// The consumer's state has been taken for a checkpoint: its barrier, and those before, stand in the way no longer.
    pub fn pass(&mut self, checkpoint: Epoch) {
        self.passed = self.passed.max(checkpoint);
        while self.lane.front().is_some_and(|barrier| barrier.checkpoint <= checkpoint) {
            self.lane.pop_front();
        }
    }
}

/// Rows of a message.
fn row_count(message: &Message) -> usize {
    match message {
        Message::Chunk(chunk) => chunk.num_rows(),
        Message::Watermark(_) | Message::Barrier(_) => 0,
    }
}

/// Bytes of a message's rows.
fn byte_count(message: &Message) -> usize {
    match message {
        Message::Chunk(chunk) => chunk.bytes(),
        Message::Watermark(_) | Message::Barrier(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{array::Int64Array, record_batch::RecordBatch};

    use super::*;
    use crate::{
        chunk::Chunk,
        message::{Barrier, BarrierKind},
    };

    fn chunk(rows: usize) -> Message {
        let column: Arc<dyn arrow::array::Array> = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        Message::Chunk(Chunk::inserts(RecordBatch::try_from_iter([("a", column)]).expect("one column")))
    }

    fn barrier(epoch: u64) -> Message {
        Message::Barrier(Barrier { epoch: Epoch(epoch), time_us: 0, kind: BarrierKind::Epoch })
    }

    #[test]
    fn a_barrier_on_the_lane_stands_where_its_producer_stood() {
        let mut channel = Channel::default();
        channel.push(chunk(5), None);
        channel.push(barrier(1), None);
        channel.push(chunk(3), None);
        assert!(!channel.has_barrier(Epoch(2)));
        channel.overtake(Epoch(2));
        channel.push(chunk(7), None);
        assert!(channel.has_barrier(Epoch(2)) && !channel.has_barrier(Epoch(3)));
        assert_eq!(channel.take(2).map(|taken| taken.sequence), Some(0));
        assert_eq!((channel.rows(), channel.bytes()), (13, 13 * 8));
        let overtaken = channel.overtaken(Epoch(2));
        assert!(matches!(&overtaken[..], [Message::Chunk(rest), Message::Barrier(_), Message::Chunk(_)] if rest.num_rows() == 3));
        for sequence in [0, 1, 2] {
            assert_eq!(channel.take(10).map(|taken| taken.sequence), Some(sequence));
        }
        assert!(channel.take(10).is_none(), "what is behind the barrier waits");
        channel.pass(Epoch(2));
        assert_eq!(channel.take(10).map(|taken| taken.sequence), Some(3));
    }

    #[test]
    fn a_barrier_that_comes_after_its_checkpoint_stands_in_nobodys_way() {
        let mut channel = Channel::default();
        channel.push(chunk(5), None);
        channel.pass(Epoch(2));
        channel.push(barrier(2), None);
        channel.overtake(Epoch(2));
        channel.push(chunk(3), None);
        for sequence in [0, 1, 2] {
            assert_eq!(channel.take(10).map(|taken| taken.sequence), Some(sequence));
        }
    }

    #[test]
    fn the_rest_of_an_earlier_channel_ends() {
        let mut channel = Channel::restored([chunk(1), barrier(4)]);
        assert!(channel.has_barrier(Epoch(9)) && !channel.is_drained());
        assert_eq!(channel.overtaken(Epoch(9)).len(), 2);
        channel.take(10);
        assert_eq!(channel.overtaken(Epoch(9)).len(), 1);
        channel.take(10);
        assert!(channel.is_drained());
    }
}
