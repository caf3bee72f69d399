//! A consumer's bounded input queues.
//!
//! A queue has room while it holds fewer than [`CHANNEL_ROWS`] rows, so that a producer is slowed down by its slowest consumer and memory is
//! bounded. Watermarks and barriers always pass: there are few of them, and a barrier must not wait for room behind nothing.
//!
//! A subtask takes input only while every output has room, and between two messages: so it never waits in the midst of one, where its state
//! could not be taken. What it makes of that one message may go beyond the room, up to [`OVERFULL_ROWS`].

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::channel::{Channel, Taken};
use crate::{
    chunk::CHUNK_ROWS,
    error::{EngineError, Result},
    message::{BarrierKind, Message},
    scan::place::{Place, Position},
};

/// Rows a channel may hold before its producer takes no more input.
pub const CHANNEL_ROWS: usize = 8 * CHUNK_ROWS;

/// Rows a channel may hold before its producer waits in the midst of what it does.
const OVERFULL_ROWS: usize = 4 * CHANNEL_ROWS;

/// Index of a channel in its inbox.
pub type ChannelId = usize;

struct Shared {
    channels: Mutex<Vec<Channel>>,
    /// Rows in each channel.
    rows: Vec<AtomicUsize>,
    /// Wakes the consumer.
    wake: Arc<Notify>,
    room: Vec<Notify>,
    /// Wakes the subtask that feeds a channel, if one does.
    producers: Vec<OnceLock<Arc<Notify>>>,
    closed: AtomicBool,
}

/// The receiving end of all channels of one subtask.
pub struct Inbox {
    shared: Arc<Shared>,
    next: ChannelId,
}

/// The sending end of one channel.
pub struct Sender {
    shared: Arc<Shared>,
    channel: ChannelId,
    bound_rows: usize,
}

/// A message with the channel it came on and its number there.
#[derive(Debug)]
pub struct Received {
    /// The channel.
    pub channel: ChannelId,
    /// Its number in the channel, from 0.
    pub sequence: u64,
    /// The message, or the first rows of it.
    pub message: Message,
    /// Where the reader stood behind it, on the channel of a scan.
    pub positions: Vec<Position>,
    /// It was the last one of a channel restored from a checkpoint.
    pub is_last: bool,
}

impl Inbox {
    /// An inbox with `channels` empty channels, and their senders in order; behind them the rests of earlier channels.
    pub fn new(channels: usize, restored: Vec<Channel>) -> (Self, Vec<Sender>) {
        let queues: Vec<Channel> = (0..channels).map(|_| Channel::default()).chain(restored).collect();
        let count = queues.len();
        let shared = Arc::new(Shared {
            rows: queues.iter().map(|queue| AtomicUsize::new(queue.rows())).collect(),
            channels: Mutex::new(queues),
            wake: Arc::new(Notify::new()),
            room: (0..count).map(|_| Notify::new()).collect(),
            producers: (0..count).map(|_| OnceLock::new()).collect(),
            closed: AtomicBool::new(false),
        });
        let senders = (0..channels).map(|channel| Sender { shared: shared.clone(), channel, bound_rows: CHANNEL_ROWS });
        let senders = senders.collect();
        (Self { shared, next: 0 }, senders)
    }

    /// What wakes the consumer: a message, room in one of its outputs, a checkpoint that waits no longer.
    pub fn wake(&self) -> Arc<Notify> {
        self.shared.wake.clone()
    }

    /// Waits until something may have changed.
    pub async fn wait(&self) {
        self.shared.wake.notified().await;
    }

    /// The next message of any channel that is not blocked, channels taken in turn. Waits until there is one.
    pub async fn receive(&mut self, blocked: &[bool]) -> Received {
        loop {
            if let Some(received) = self.try_receive(blocked, |_| usize::MAX) {
                return received;
            }
            self.wait().await;
        }
    }

    /// The next message of any channel that is not blocked, or its first rows, `limits` per channel; channels are taken in turn.
    pub fn try_receive(&mut self, blocked: &[bool], limits: impl Fn(ChannelId) -> usize) -> Option<Received> {
        let mut channels = self.shared.channels.lock();
        let count = channels.len();
        for step in 0..count {
            let channel = (self.next + step) % count;
            if blocked[channel] {
                continue;
            }
            let queue = &mut channels[channel];
            let before = queue.rows();
            if let Some(Taken { sequence, message, positions }) = queue.take(limits(channel)) {
                let (after, is_last) = (queue.rows(), queue.is_drained());
                self.shared.rows[channel].store(after, Ordering::Release);
                if before >= CHANNEL_ROWS && after < CHANNEL_ROWS || before >= OVERFULL_ROWS && after < OVERFULL_ROWS {
                    self.shared.room[channel].notify_one();
                    if let Some(producer) = self.shared.producers[channel].get() {
                        producer.notify_one();
                    }
                }
                self.next = (channel + 1) % count;
                return Some(Received { channel, sequence, message, positions, is_last });
            }
        }
        None
    }

    /// Whether the barrier of a checkpoint has come on all these channels.
    pub fn have_barrier(&self, checkpoint: Epoch, mut channels: impl Iterator<Item = ChannelId>) -> bool {
        let queues = self.shared.channels.lock();
        channels.all(|channel| queues[channel].has_barrier(checkpoint))
    }

    /// What the barrier of a checkpoint has overtaken on a channel.
    pub fn overtaken(&self, checkpoint: Epoch, channel: ChannelId) -> Vec<Message> {
        self.shared.channels.lock()[channel].overtaken(checkpoint)
    }

    /// Channels restored from a checkpoint that have nothing left.
    pub fn drained(&self) -> Vec<ChannelId> {
        let queues = self.shared.channels.lock();
        queues.iter().enumerate().filter(|(_, queue)| queue.is_drained()).map(|(channel, _)| channel).collect()
    }

    /// The consumer's state has been taken for a checkpoint.
    pub fn pass(&self, checkpoint: Epoch) {
        self.shared.channels.lock().iter_mut().for_each(|queue| queue.pass(checkpoint));
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.room.iter().for_each(Notify::notify_one);
        self.shared.producers.iter().filter_map(OnceLock::get).for_each(|producer| producer.notify_one());
    }
}

impl Sender {
    /// The channel's producer is a subtask that is woken by `wake`, and that takes input only when it [has room](Self::has_room).
    pub fn feed_from(&mut self, wake: &Arc<Notify>) {
        self.bound_rows = OVERFULL_ROWS;
        // A channel has one producer: nobody was there before.
        let _ = self.shared.producers[self.channel].set(wake.clone());
    }

    /// Whether the producer may take more input. A consumer that is gone is noticed by the next message.
    pub fn has_room(&self) -> bool {
        self.shared.rows[self.channel].load(Ordering::Acquire) < CHANNEL_ROWS || self.shared.closed.load(Ordering::Acquire)
    }

    /// Sends a message, waiting for room if it is a chunk.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] when the consumer is gone.
    pub async fn send(&self, message: Message) -> Result<()> {
        self.send_placed(message, None).await
    }

    /// Sends a message of a scan with the place of its reader.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] when the consumer is gone.
    pub async fn send_placed(&self, message: Message, place: Option<Place>) -> Result<()> {
        let needs_room = match &message {
            Message::Chunk(chunk) => chunk.num_rows() > 0,
            Message::Watermark(_) | Message::Barrier(_) => false,
        };
        loop {
            let room = self.shared.room[self.channel].notified();
            if self.shared.closed.load(Ordering::Acquire) {
                return Err(EngineError::Cancelled);
            }
            if !needs_room || self.shared.rows[self.channel].load(Ordering::Acquire) < self.bound_rows {
                break;
            }
            room.await;
        }
        // Only this sender adds to the channel, so the room found above is still there.
        let mut channels = self.shared.channels.lock();
        let queue = &mut channels[self.channel];
        let checkpoint = match &message {
            Message::Barrier(barrier) if barrier.kind.is_checkpoint() => Some(barrier.epoch),
            Message::Barrier(barrier) => {
                debug_assert!(matches!(barrier.kind, BarrierKind::Epoch | BarrierKind::Round));
                None
            }
            Message::Chunk(_) | Message::Watermark(_) => None,
        };
        queue.push(message, place);
        if let Some(checkpoint) = checkpoint {
            queue.overtake(checkpoint);
        }
        self.shared.rows[self.channel].store(queue.rows(), Ordering::Release);
        drop(channels);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// The producer's state is taken now, wherever in its epoch it is.
    pub fn overtake(&self, checkpoint: Epoch) {
        self.shared.channels.lock()[self.channel].overtake(checkpoint);
        self.shared.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{array::Int64Array, record_batch::RecordBatch};
    use millpond_storage::epoch::Epoch;

    use super::*;
    use crate::{chunk::Chunk, message::Barrier};

    fn chunk(rows: usize) -> Message {
        let column: Arc<dyn arrow::array::Array> = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        Message::Chunk(Chunk::inserts(RecordBatch::try_from_iter([("a", column)]).expect("one column")))
    }

    fn sequence(inbox: &mut Inbox, blocked: &[bool]) -> Option<u64> {
        inbox.try_receive(blocked, |_| usize::MAX).map(|received| received.sequence)
    }

    #[tokio::test]
    async fn a_full_channel_holds_back_chunks_but_not_barriers() {
        let (mut inbox, mut senders) = Inbox::new(2, Vec::new());
        let second = senders.pop().expect("two senders");
        let first = senders.pop().expect("two senders");
        first.send(chunk(CHANNEL_ROWS)).await.expect("room");
        let barrier = Barrier { epoch: Epoch(1), time_us: 0, kind: BarrierKind::Epoch };
        first.send(Message::Barrier(barrier)).await.expect("barriers pass");
        let blocked = tokio::spawn(async move { first.send(chunk(1)).await });
        tokio::task::yield_now().await;
        assert!(!blocked.is_finished(), "the channel is full");
        second.send(chunk(3)).await.expect("the other channel has room");
        inbox.wait().await;
        let received = inbox.try_receive(&[true, false], |_| usize::MAX).expect("a message");
        assert_eq!(received.channel, 1);
        assert!(sequence(&mut inbox, &[true, false]).is_none(), "channel 0 is blocked");
        assert_eq!(sequence(&mut inbox, &[false, false]), Some(0));
        blocked.await.expect("no panic").expect("room again");
        assert_eq!(sequence(&mut inbox, &[false, true]), Some(1));
        assert_eq!(sequence(&mut inbox, &[false, true]), Some(2));
    }

    #[tokio::test]
    async fn senders_learn_that_the_consumer_is_gone() {
        let (inbox, senders) = Inbox::new(1, Vec::new());
        drop(inbox);
        assert!(matches!(senders[0].send(chunk(1)).await, Err(EngineError::Cancelled)));
    }

    #[tokio::test]
    async fn a_subtask_is_woken_when_its_output_has_room_again() {
        let (mut inbox, mut senders) = Inbox::new(1, Vec::new());
        let wake = Arc::new(Notify::new());
        let mut sender = senders.pop().expect("one sender");
        sender.feed_from(&wake);
        sender.send(chunk(CHANNEL_ROWS)).await.expect("room");
        assert!(!sender.has_room());
        sender.send(chunk(1)).await.expect("what one message makes goes beyond the room");
        assert_eq!(inbox.try_receive(&[false], |_| 7).map(|received| received.sequence), Some(0));
        wake.notified().await;
        assert!(sender.has_room());
    }
}
