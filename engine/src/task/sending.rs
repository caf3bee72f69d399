//! How a message leaves a subtask.

use super::{revival::Sending, subtask::Running};
use crate::{error::Result, exchange::router::Router, message::Message};

impl Running {
    /// Sends a message on every edge that starts here, as far as it was not sent before.
    pub(super) async fn send(&mut self, message: Message) -> Result<()> {
        let is_muted = matches!(self.sending, Sending::Muted);
        match message {
            Message::Chunk(chunk) => {
                let chunk = match &mut self.sending {
                    Sending::Live => Some(chunk),
                    Sending::Muted => None,
                    Sending::Filtered(filter) => filter.only_new(chunk)?,
                };
                let Some(chunk) = chunk else { return Ok(()) };
                if !self.determinants.serves() {
                    return forward(&mut self.task.routers, Message::Chunk(chunk)).await;
                }
                self.sent.sending();
                forward(&mut self.task.routers, Message::Chunk(chunk.clone())).await?;
                self.sent.sent(chunk);
                Ok(())
            }
            Message::Watermark(_) if is_muted => Ok(()),
            Message::Watermark(_) => forward(&mut self.task.routers, message).await,
            Message::Barrier(barrier) if barrier.epoch <= self.sent_barrier => Ok(()),
            Message::Barrier(barrier) => {
                forward(&mut self.task.routers, message).await?;
                self.sent_barrier = barrier.epoch;
                Ok(())
            }
        }
    }
}

/// Sends a message on every edge that starts here.
async fn forward(routers: &mut [Router], message: Message) -> Result<()> {
    let Some((last, others)) = routers.split_last_mut() else { return Ok(()) };
    for router in others {
        router.send(message.clone()).await?;
    }
    last.send(message).await
}
