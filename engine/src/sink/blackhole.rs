//! A sink that keeps nothing: for measurements. It claims to have reached whatever it was given, and after a restart nothing.

use std::sync::Arc;

use async_trait::async_trait;
use millpond_storage::{collection::Delta, epoch::Epoch};

use super::Sink;
use crate::error::Result;

/// Drops all changes.
#[derive(Debug, Default)]
pub struct BlackholeSink;

#[async_trait]
impl Sink for BlackholeSink {
    async fn check(&mut self) -> Result<()> {
        Ok(())
    }

    async fn reached(&mut self) -> Result<Epoch> {
        Ok(Epoch(0))
    }

    async fn write(&mut self, _deltas: &[Arc<Delta>], _to: Epoch) -> Result<()> {
        Ok(())
    }
}
