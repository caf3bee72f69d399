//! External outputs. A sink is a reader of a collection's deltas: each write is one external transaction that holds the rows *and* the epoch
//! reached, so that after a crash the target itself says how far it got.

pub mod blackhole;
mod changes;
pub mod file;
pub mod options;

use std::sync::Arc;

use async_trait::async_trait;
use millpond_storage::{collection::Delta, epoch::Epoch};

pub use self::options::{SinkChanges, SinkConnector, SinkOptions, SinkSpec};
use crate::error::Result;

/// A target of changes.
#[async_trait]
pub trait Sink: Send {
    /// Refuses a target that cannot be written, before anything depends on it. What it tries is undone.
    async fn check(&mut self) -> Result<()>;

    /// The epoch the target has committed, asked once after every start. `Epoch(0)` when it is new.
    async fn reached(&mut self) -> Result<Epoch>;

    /// Writes the changes of the deltas (ascending, durable epochs) and `to` in one transaction. When it returns, they are committed.
    async fn write(&mut self, deltas: &[Arc<Delta>], to: Epoch) -> Result<()>;
}

/// A sink with this specification. Nothing is touched before its first call.
pub fn open_sink(spec: &SinkSpec) -> Box<dyn Sink> {
    match &spec.connector {
        SinkConnector::Blackhole => Box::new(blackhole::BlackholeSink),
        SinkConnector::File(file) => Box::new(file::FileSink::new(spec, file)),
    }
}
