//! A consumer's bounded input queues.
//!
//! A queue has room while it holds fewer rows than its [bounds](Bounds) say, so that a producer is slowed down by its slowest consumer and memory
//! is bounded. Watermarks and barriers always pass: there are few of them, and a barrier must not wait for room behind nothing.
//!
//! A subtask takes input only while every output has room, and between two messages: so it never waits in the midst of one, where its state
//! could not be taken. What it makes of that one message may go beyond the room, up to [`OVERFULL_ROWS`].

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    channel::{Channel, Taken},
    debloat::{Bounds, CHANNEL_ROWS},
};
use crate::{
    error::{EngineError, Result},
    message::{BarrierKind, Message},
    scan::place::{Place, Position},
};

/// Rows a channel may hold before its producer waits in the midst of what it does.
const OVERFULL_ROWS: usize = 4 * CHANNEL_ROWS;

/// Index of a channel in its inbox.
pub type ChannelId = usize;

struct Shared {
    channels: Mutex<Vec<Channel>>,
    gauges: Vec<Gauge>,
    /// Wakes the consumer.
    wake: Arc<Notify>,
    room: Vec<Notify>,
    /// Wakes the subtask that feeds a channel, if one does.
    producers: Vec<OnceLock<Arc<Notify>>>,
    closed: AtomicBool,
}

/// What is read of a channel without its lock.
struct Gauge {
    /// Rows in it.
    rows: AtomicUsize,
    /// Its bounds; only the consumer changes them.
    bound_rows: AtomicUsize,
    chunk_rows: AtomicUsize,
    /// Bits of the throughput in rows per second; 0 while nothing is known.
    throughput: AtomicU64,
}

impl Gauge {
    fn of(queue: &Channel) -> Self {
        Self {
            rows: AtomicUsize::new(queue.rows()),
            bound_rows: AtomicUsize::new(Bounds::LARGEST.rows),
            chunk_rows: AtomicUsize::new(Bounds::LARGEST.chunk_rows),
            throughput: AtomicU64::new(0),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds { rows: self.bound_rows.load(Ordering::Relaxed), chunk_rows: self.chunk_rows.load(Ordering::Relaxed) }
    }
}

/// What the consumer has seen of a channel since it asked last.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Rows taken.
    pub taken: usize,
    /// There was no room in it when it was looked at.
    pub was_full: bool,
    /// Rows in it now.
    pub rows: usize,
}

/// A channel as an operator sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ChannelStatus {
    /// Rows in it.
    pub buffered_rows: usize,
    /// Their bytes.
    pub buffered_bytes: usize,
    /// What it may hold.
    pub bounds: Bounds,
    /// What its consumer takes of it, if that is known.
    pub rows_per_second: Option<f64>,
}

/// Looks at a channel from outside, as long as there is one.
#[derive(Clone)]
pub struct ChannelView {
    shared: Weak<Shared>,
    channel: ChannelId,
}

impl ChannelView {
    /// The channel now; `None` if it is gone.
    pub fn status(&self) -> Option<ChannelStatus> {
        let shared = self.shared.upgrade().filter(|shared| !shared.closed.load(Ordering::Acquire))?;
        let gauge = &shared.gauges[self.channel];
        let (buffered_rows, buffered_bytes) = {
            let channels = shared.channels.lock();
            (channels[self.channel].rows(), channels[self.channel].bytes())
        };
        let throughput = f64::from_bits(gauge.throughput.load(Ordering::Relaxed));
        let rows_per_second = (throughput > 0.0).then_some(throughput);
        Some(ChannelStatus { buffered_rows, buffered_bytes, bounds: gauge.bounds(), rows_per_second })
    }
}

/// The receiving end of all channels of one subtask.
pub struct Inbox {
    shared: Arc<Shared>,
    traffic: Vec<Traffic>,
    next: ChannelId,
}

/// The sending end of one channel.
pub struct Sender {
    shared: Arc<Shared>,
    channel: ChannelId,
    /// Its producer is a subtask.
    is_fed: bool,
}

/// A message with the channel it came on and its number there.
#[derive(Clone, Debug)]
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
            gauges: queues.iter().map(Gauge::of).collect(),
            channels: Mutex::new(queues),
            wake: Arc::new(Notify::new()),
            room: (0..count).map(|_| Notify::new()).collect(),
            producers: (0..count).map(|_| OnceLock::new()).collect(),
            closed: AtomicBool::new(false),
        });
        let senders = (0..channels).map(|channel| Sender { shared: shared.clone(), channel, is_fed: false });
        let senders = senders.collect();
        (Self { shared, traffic: vec![Traffic::default(); count], next: 0 }, senders)
    }

    /// Looks at a channel from outside.
    pub fn view(&self, channel: ChannelId) -> ChannelView {
        ChannelView { shared: Arc::downgrade(&self.shared), channel }
    }

    /// What has passed on each channel since this was asked last.
    pub fn traffic(&mut self) -> Vec<Traffic> {
        let seen = std::mem::replace(&mut self.traffic, vec![Traffic::default(); self.shared.gauges.len()]).into_iter();
        seen.zip(&self.shared.gauges).map(|(seen, gauge)| Traffic { rows: gauge.rows.load(Ordering::Acquire), ..seen }).collect()
    }

    /// A channel is to hold so much from now on, because of this throughput.
    pub fn bound(&self, channel: ChannelId, bounds: Bounds, rows_per_second: Option<f64>) {
        let gauge = &self.shared.gauges[channel];
        gauge.throughput.store(rows_per_second.unwrap_or(0.0).to_bits(), Ordering::Relaxed);
        gauge.chunk_rows.store(bounds.chunk_rows, Ordering::Relaxed);
        let before = gauge.bound_rows.swap(bounds.rows, Ordering::Relaxed);
        // The producer may wait for room that it has now.
        if bounds.rows > before {
            self.shared.notify_room(channel);
        }
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
                let gauge = &self.shared.gauges[channel];
                gauge.rows.store(after, Ordering::Release);
                let bound = gauge.bound_rows.load(Ordering::Relaxed);
                let traffic = &mut self.traffic[channel];
                traffic.taken += before - after;
                traffic.was_full |= before >= bound;
                if before >= bound && after < bound || before >= OVERFULL_ROWS && after < OVERFULL_ROWS {
                    self.shared.notify_room(channel);
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

impl Shared {
    /// The producer of a channel may have room again.
    fn notify_room(&self, channel: ChannelId) {
        self.room[channel].notify_one();
        if let Some(producer) = self.producers[channel].get() {
            producer.notify_one();
        }
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
    /// The channel's producer is a subtask that is woken by `wake`, and that takes input only when it [has room](Self::room).
    pub fn feed_from(&mut self, wake: &Arc<Notify>) {
        self.is_fed = true;
        // A channel has one producer: nobody was there before.
        let _ = self.shared.producers[self.channel].set(wake.clone());
    }

    /// How many rows the producer should add at once, `usize::MAX` if any number; `None` while it may take no more input. A consumer that is gone
    /// is noticed by the next message.
    pub fn room(&self) -> Option<usize> {
        let gauge = &self.shared.gauges[self.channel];
        let bounds = gauge.bounds();
        if gauge.rows.load(Ordering::Acquire) >= bounds.rows && !self.shared.closed.load(Ordering::Acquire) {
            return None;
        }
        Some(if bounds.is_debloated() { bounds.chunk_rows } else { usize::MAX })
    }

    /// Sends a message, waiting for room if it is a chunk.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] when the consumer is gone.
    pub async fn send(&self, message: Message) -> Result<()> {
        self.send_placed(message, None).await
    }

    /// Sends a message of a scan with the place of its reader. A debloated channel takes a chunk in parts, and the reader waits for room before
    /// each.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] when the consumer is gone.
    pub async fn send_placed(&self, message: Message, mut place: Option<Place>) -> Result<()> {
        let mut chunk = match message {
            Message::Chunk(chunk) => chunk,
            other @ (Message::Watermark(_) | Message::Barrier(_)) => return self.push(other, place),
        };
        loop {
            let bounds = self.wait_for_room(chunk.num_rows()).await?;
            if self.is_fed || !bounds.is_debloated() || chunk.num_rows() <= bounds.chunk_rows {
                return self.push(Message::Chunk(chunk), place);
            }
            let part = chunk.slice(0, bounds.chunk_rows);
            chunk = chunk.slice(bounds.chunk_rows, chunk.num_rows() - bounds.chunk_rows);
            let part_place = place.as_mut().map(|place| place.split_off_first(bounds.chunk_rows as u64));
            self.push(Message::Chunk(part), part_place)?;
        }
    }

    /// Waits until some of `rows` rows may be added, and answers by which bounds. A subtask, which has looked before it took its input, waits only
    /// where its output has become far too much.
    async fn wait_for_room(&self, rows: usize) -> Result<Bounds> {
        let gauge = &self.shared.gauges[self.channel];
        loop {
            let room = self.shared.room[self.channel].notified();
            if self.shared.closed.load(Ordering::Acquire) {
                return Err(EngineError::Cancelled);
            }
            let bounds = gauge.bounds();
            let limit = if self.is_fed { OVERFULL_ROWS } else { bounds.rows };
            if rows == 0 || gauge.rows.load(Ordering::Acquire) < limit {
                return Ok(bounds);
            }
            room.await;
        }
    }

    /// Only this sender adds to the channel, so room that was found is still there.
    fn push(&self, message: Message, place: Option<Place>) -> Result<()> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(EngineError::Cancelled);
        }
        let checkpoint = match &message {
            Message::Barrier(barrier) if barrier.kind.is_checkpoint() => Some(barrier.epoch),
            Message::Barrier(barrier) => {
                debug_assert!(matches!(barrier.kind, BarrierKind::Epoch | BarrierKind::Round));
                None
            }
            Message::Chunk(_) | Message::Watermark(_) => None,
        };
        let mut channels = self.shared.channels.lock();
        let queue = &mut channels[self.channel];
        queue.push(message, place);
        if let Some(checkpoint) = checkpoint {
            queue.overtake(checkpoint);
        }
        self.shared.gauges[self.channel].rows.store(queue.rows(), Ordering::Release);
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
    use crate::{chunk::Chunk, message::Barrier, scan::collection::CollectionPosition};

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
        assert_eq!(sender.room(), None);
        sender.send(chunk(1)).await.expect("what one message makes goes beyond the room");
        assert_eq!(inbox.try_receive(&[false], |_| 7).map(|received| received.sequence), Some(0));
        wake.notified().await;
        assert_eq!(sender.room(), Some(usize::MAX));
    }

    #[tokio::test]
    async fn a_debloated_channel_takes_a_readers_chunk_in_parts_that_know_their_place() {
        let (mut inbox, mut senders) = Inbox::new(1, Vec::new());
        inbox.bound(0, Bounds { rows: 5, chunk_rows: 4 }, Some(7.0));
        let view = inbox.view(0);
        let position = |emitted| Position::Collection(CollectionPosition { emitted, ..CollectionPosition::start() });
        let place = Place::Rows { before: position(100), after: position(110) };
        let sender = senders.pop().expect("one sender");
        let sending = tokio::spawn(async move {
            sender.send_placed(chunk(10), Some(place)).await?;
            sender.send(Message::Barrier(Barrier { epoch: Epoch(1), time_us: 0, kind: BarrierKind::Epoch })).await
        });
        tokio::task::yield_now().await;
        let status = view.status().expect("it is there");
        assert_eq!((status.buffered_rows, status.buffered_bytes, status.rows_per_second), (8, 64, Some(7.0)), "two parts have had room");
        let mut taken = Vec::new();
        while taken.len() < 5 {
            let received = match inbox.try_receive(&[false], |_| 3) {
                Some(received) => received,
                None => {
                    inbox.wait().await;
                    continue;
                }
            };
            if let Message::Chunk(chunk) = received.message {
                taken.push((chunk.num_rows(), received.positions));
            }
        }
        let expected = [(3, 103), (1, 104), (3, 107), (1, 108), (2, 110)].map(|(rows, emitted)| (rows, vec![position(emitted)]));
        assert_eq!(taken, expected);
        assert_eq!(inbox.traffic(), [Traffic { taken: 10, was_full: true, rows: 0 }]);
        assert_eq!(inbox.traffic(), [Traffic::default()]);
        sending.await.expect("no panic").expect("all is sent");
        drop(inbox);
        assert_eq!(view.status(), None);
    }

    #[tokio::test]
    async fn a_subtask_adds_as_much_as_the_bounds_say_and_is_woken_when_they_grow() {
        let (inbox, mut senders) = Inbox::new(1, Vec::new());
        inbox.bound(0, Bounds { rows: 64, chunk_rows: 16 }, None);
        let wake = Arc::new(Notify::new());
        let mut sender = senders.pop().expect("one sender");
        sender.feed_from(&wake);
        assert_eq!(sender.room(), Some(16));
        sender.send(chunk(64)).await.expect("what one message makes goes whole");
        assert_eq!(sender.room(), None);
        inbox.bound(0, Bounds { rows: 65, chunk_rows: 16 }, None);
        wake.notified().await;
        assert_eq!(sender.room(), Some(16));
        inbox.bound(0, Bounds::LARGEST, None);
        assert_eq!(sender.room(), Some(usize::MAX));
    }
}
