//! What all sessions share: the catalog, the engine, and the threads that run queries.

use std::{path::PathBuf, sync::Arc, time::Duration};

use millpond_engine::engine::{Engine, EngineConfig};
use millpond_storage::{env::Clock, epoch_log::LogOptions, memory::MemoryBudget, object::ObjectStorage};

use crate::{
    act::dml::target::Targets,
    batch::BatchRuntime,
    catalog_store::CatalogStore,
    error::Result,
    jobs::{self, Jobs},
    query::engine::QueryEngine,
    session::activity::Sessions,
    system_tables::registry::SystemRelations,
};

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
    /// Sessions at a time, as sessions are told.
    pub max_connections: usize,
}

/// The open server.
pub struct ServerState {
    pub(crate) config: StateConfig,
    pub(crate) catalog: CatalogStore,
    /// Epochs, tables, sources, jobs.
    pub engine: Arc<Engine>,
    pub(crate) memory: MemoryBudget,
    pub(crate) batch: BatchRuntime,
    pub(crate) queries: QueryEngine,
    pub(crate) targets: Targets,
    pub(crate) jobs: Jobs,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) system: Arc<SystemRelations>,
    /// When it was opened, microseconds since 1970.
    pub(crate) started_us: i64,
}

impl ServerState {
    /// Opens the data directory: the catalog, then tables and sources, then what the epoch log holds of them, then jobs in the order in which
    /// they need each other. Relations are readable when this returns; jobs may still be catching up.
    ///
    /// # Errors
    /// Files that are corrupt or unreadable, named.
    pub async fn open(config: StateConfig) -> Result<Arc<Self>> {
        let memory = MemoryBudget::new(config.memory_limit);
        let catalog = CatalogStore::open(&config.data_dir.join("catalog").join("log"), Engine::has_started(&config.data_dir))?;
        let engine = Engine::open(EngineConfig {
            data_dir: config.data_dir.clone(),
            objects: config.objects.clone(),
            memory: memory.clone(),
            parallelism: config.parallelism,
            tick: config.tick,
            log: LogOptions::default(),
            clock: Clock::system(),
        })
        .await?;
        let batch = BatchRuntime::start(config.parallelism, &memory)?;
        let state = Arc::new(Self {
            queries: QueryEngine::new(&batch),
            targets: Targets::default(),
            jobs: Jobs::default(),
            sessions: Arc::default(),
            system: Arc::new(SystemRelations::load()?),
            started_us: Clock::system().wall_micros(),
            config,
            catalog,
            engine,
            memory,
            batch,
        });
        jobs::recover(&state).await?;
        Ok(state)
    }

    /// Takes a checkpoint of every job and stops. Bounded by the caller.
    ///
    /// # Errors
    /// What kept a checkpoint from completing; nothing acknowledged is lost by it.
    pub async fn close(&self) -> Result<()> {
        let checkpointed = self.engine.checkpoint_all().await;
        self.engine.stop().await;
        Ok(checkpointed?)
    }

    /// About how many rows a relation has; `None` if that is not known.
    pub(crate) fn row_estimate(&self, id: u64) -> Option<u64> {
        self.engine.collection(id).map(|collection| collection.row_estimate())
    }

    /// About how many bytes a relation has.
    pub(crate) fn byte_estimate(&self, id: u64) -> Option<u64> {
        self.engine.collection(id).map(|collection| collection.bytes())
    }

    /// Whether a view can be read.
    pub(crate) fn is_populated(&self, id: u64) -> bool {
        self.engine.collection(id).is_some_and(|collection| collection.published())
    }
}
