//! External outputs. A sink is a reader of a collection's deltas: each write is one external transaction that holds the rows *and* the epoch
//! reached, so that after a crash the target itself says how far it got.

use async_trait::async_trait;
use millpond_storage::{collection::Delta, epoch::Epoch};

use crate::error::Result;

/// A target of changes.
#[async_trait]
pub trait Sink: Send {
    /// The epoch the target has committed, asked once after every start. `Epoch(0)` when it is new.
    async fn reached(&mut self) -> Result<Epoch>;

    /// Writes the changes of the deltas (ascending, durable epochs) and `to` in one transaction. When it returns, they are committed.
    async fn write(&mut self, deltas: &[std::sync::Arc<Delta>], to: Epoch) -> Result<()>;
}
