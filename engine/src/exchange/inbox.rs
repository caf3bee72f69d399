//! A consumer's bounded input queues.
//!
//! A queue has room while it holds fewer than [`CHANNEL_ROWS`] rows, so that a producer is slowed down by its slowest consumer and memory is
//! bounded. Watermarks and barriers always pass: there are few of them, and a barrier must not wait for room behind nothing.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    chunk::CHUNK_ROWS,
    error::{EngineError, Result},
    message::Message,
};

/// Rows a channel may hold before its producer waits.
pub const CHANNEL_ROWS: usize = 8 * CHUNK_ROWS;

/// Index of a channel in its inbox.
pub type ChannelId = usize;

#[derive(Default)]
struct Queue {
    messages: VecDeque<(u64, Message)>,
    rows: usize,
    sent: u64,
}

struct Shared {
    queues: Mutex<Vec<Queue>>,
    arrived: Notify,
    room: Vec<Notify>,
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
}

/// A message with the channel it came on and its number there.
#[derive(Debug)]
pub struct Received {
    /// The channel.
    pub channel: ChannelId,
    /// Its number in the channel, from 0.
    pub sequence: u64,
    /// The message.
    pub message: Message,
}

impl Inbox {
    /// An inbox with `channels` empty channels, and their senders in order.
    pub fn new(channels: usize) -> (Self, Vec<Sender>) {
        let shared = Arc::new(Shared {
            queues: Mutex::new((0..channels).map(|_| Queue::default()).collect()),
            arrived: Notify::new(),
            room: (0..channels).map(|_| Notify::new()).collect(),
            closed: AtomicBool::new(false),
        });
        let senders = (0..channels).map(|channel| Sender { shared: shared.clone(), channel }).collect();
        (Self { shared, next: 0 }, senders)
    }

    /// The next message of any channel that is not blocked, channels taken in turn. Waits until there is one.
    pub async fn receive(&mut self, blocked: &[bool]) -> Received {
        loop {
            let shared = self.shared.clone();
            let arrived = shared.arrived.notified();
            if let Some(received) = self.try_receive(blocked) {
                return received;
            }
            arrived.await;
        }
    }

    /// The next message, if there is one now.
    pub fn try_receive(&mut self, blocked: &[bool]) -> Option<Received> {
        let mut queues = self.shared.queues.lock();
        let count = queues.len();
        for step in 0..count {
            let channel = (self.next + step) % count;
            if blocked[channel] {
                continue;
            }
            let queue = &mut queues[channel];
            if let Some((sequence, message)) = queue.messages.pop_front() {
                if let Message::Chunk(chunk) = &message {
                    let was_full = queue.rows >= CHANNEL_ROWS;
                    queue.rows -= chunk.num_rows();
                    if was_full && queue.rows < CHANNEL_ROWS {
                        self.shared.room[channel].notify_one();
                    }
                }
                self.next = (channel + 1) % count;
                return Some(Received { channel, sequence, message });
            }
        }
        None
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        for room in &self.shared.room {
            room.notify_one();
        }
    }
}

impl Sender {
    /// Sends a message, waiting for room if it is a chunk.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] when the consumer is gone.
    pub async fn send(&self, message: Message) -> Result<()> {
        let rows = match &message {
            Message::Chunk(chunk) => chunk.num_rows(),
            Message::Watermark(_) | Message::Barrier(_) => 0,
        };
        loop {
            let room = self.shared.room[self.channel].notified();
            if self.shared.closed.load(Ordering::Acquire) {
                return Err(EngineError::Cancelled);
            }
            let has_room = {
                let queues = self.shared.queues.lock();
                rows == 0 || queues[self.channel].rows < CHANNEL_ROWS
            };
            if has_room {
                break;
            }
            room.await;
        }
        // Only this sender adds to the channel, so the room found above is still there.
        let mut queues = self.shared.queues.lock();
        let queue = &mut queues[self.channel];
        queue.rows += rows;
        queue.messages.push_back((queue.sent, message));
        queue.sent += 1;
        drop(queues);
        self.shared.arrived.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{array::Int64Array, record_batch::RecordBatch};
    use millpond_storage::epoch::Epoch;

    use super::*;
    use crate::{
        chunk::Chunk,
        message::{Barrier, BarrierKind},
    };

    fn chunk(rows: usize) -> Message {
        let column: Arc<dyn arrow::array::Array> = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        Message::Chunk(Chunk::inserts(RecordBatch::try_from_iter([("a", column)]).expect("one column")))
    }

    #[tokio::test]
    async fn a_full_channel_holds_back_chunks_but_not_barriers() {
        let (mut inbox, mut senders) = Inbox::new(2);
        let second = senders.pop().expect("two senders");
        let first = senders.pop().expect("two senders");
        first.send(chunk(CHANNEL_ROWS)).await.expect("room");
        let barrier = Barrier { epoch: Epoch(1), time_us: 0, kind: BarrierKind::Epoch };
        first.send(Message::Barrier(barrier)).await.expect("barriers pass");
        let blocked = tokio::spawn(async move { first.send(chunk(1)).await });
        tokio::task::yield_now().await;
        assert!(!blocked.is_finished(), "the channel is full");
        second.send(chunk(3)).await.expect("the other channel has room");
        let received = inbox.receive(&[true, false]).await;
        assert_eq!(received.channel, 1);
        assert!(inbox.try_receive(&[true, false]).is_none(), "channel 0 is blocked");
        assert_eq!(inbox.receive(&[false, false]).await.sequence, 0);
        blocked.await.expect("no panic").expect("room again");
        assert_eq!(inbox.receive(&[false, true]).await.sequence, 1);
        assert_eq!(inbox.receive(&[false, true]).await.sequence, 2);
    }

    #[tokio::test]
    async fn senders_learn_that_the_consumer_is_gone() {
        let (inbox, senders) = Inbox::new(1);
        drop(inbox);
        assert!(matches!(senders[0].send(chunk(1)).await, Err(EngineError::Cancelled)));
    }
}
