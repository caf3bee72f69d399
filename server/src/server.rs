//! The server as a value: opened on a directory, reachable by its addresses, shut down in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millpond_storage::error::StorageError;
use millpond_storage::lock::DirectoryLock;
use millpond_storage::object::ObjectStorage;
use thiserror::Error;

use crate::config::{Config, StateBackend};
use crate::http::HttpServer;
use crate::metrics::Metrics;
use crate::pgwire::{Listener, ListenerConfig, WireCounters};
use crate::state::{ServerState, StateConfig};

/// The one user, until roles can be created.
const USER: &str = "millpond";
/// The one database.
const DATABASE: &str = "millpond";
/// How long sessions have to end once they have been told.
const SESSIONS_PATIENCE: Duration = Duration::from_millis(1500);
/// How long the last checkpoint may take; what it would have spared is replayed at the next start.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(8);

/// Why a server did not start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The data directory: locked, corrupt, not writable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What the directory holds could not be brought to life.
    #[error("{0}")]
    Open(#[from] crate::error::SqlError),
    /// An address that cannot be listened on.
    #[error("could not listen on \"{address}\": {source} (--listen and --http choose other addresses)")]
    Listen {
        /// As it was given.
        address: String,
        /// The cause.
        source: std::io::Error,
    },
}

/// A running server. Dropping it without [`Server::shutdown`] is like a crash, which loses nothing that was acknowledged.
pub struct Server {
    listener: Listener,
    http: Option<HttpServer>,
    state: Arc<ServerState>,
    counters: Arc<WireCounters>,
    /// Given back last.
    _lock: DirectoryLock,
}

impl Server {
    /// Opens the data directory, recovers what it holds, and listens.
    ///
    /// # Errors
    /// A directory in use by another server or with damaged files, addresses that are taken.
    pub async fn start(config: Config) -> Result<Self, ServerError> {
        std::fs::create_dir_all(&config.data_dir).map_err(|source| StorageError::Io {
            action: "create",
            file: config.data_dir.display().to_string(),
            source,
        })?;
        let lock = DirectoryLock::acquire(&config.data_dir)?;
        let listen = resolve(&config.listen).await?;
        let http_address = match &config.http {
            Some(address) => Some((address.clone(), resolve(address).await?)),
            None => None,
        };
        let state = ServerState::open(state_config(&config)?).await?;
        let counters = Arc::new(WireCounters::default());
        let metrics = Arc::new(Metrics::new(Arc::clone(&counters), Arc::clone(&state.engine), state.memory.clone()));
        let http = match http_address {
            Some((address, resolved)) => {
                Some(HttpServer::start(resolved, metrics).await.map_err(|source| ServerError::Listen { address, source })?)
            }
            None => None,
        };
        let listener_config = ListenerConfig {
            address: listen,
            user: USER.to_string(),
            database: DATABASE.to_string(),
            password: config.password,
            max_sessions: config.max_connections,
        };
        let listener = Listener::start(listener_config, Arc::clone(&state), Arc::clone(&counters))
            .await
            .map_err(|source| ServerError::Listen { address: config.listen, source })?;
        Ok(Self { listener, http, state, counters, _lock: lock })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Where `/healthz` and `/metrics` are, if anywhere.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Sessions that are connected now.
    pub fn session_count(&self) -> i64 {
        self.counters.sessions.load(Ordering::Relaxed)
    }

    /// What sessions share; for tests that look behind the wire.
    pub fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// Stops accepting, ends the sessions, takes a last checkpoint within bounded time, and lets go of the directory.
    pub async fn shutdown(self) {
        self.listener.stop_accepting();
        self.listener.close_sessions(SESSIONS_PATIENCE).await;
        match tokio::time::timeout(CHECKPOINT_PATIENCE, self.state.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last checkpoint failed; the next start replays what it would have spared"),
            Err(_elapsed) => tracing::warn!("the last checkpoint was given up; the next start replays what it would have spared"),
        }
    }
}

/// The part of the settings that the state is opened with.
fn state_config(config: &Config) -> Result<StateConfig, ServerError> {
    let objects = match &config.object_store {
        Some(url) => ObjectStorage::open(url)?,
        None => ObjectStorage::local(&config.data_dir.join("objects"))?,
    };
    let state_backend = match config.state_backend {
        StateBackend::Rocksdb => "rocksdb",
        StateBackend::Memory => "memory",
    };
    Ok(StateConfig {
        data_dir: config.data_dir.clone(),
        objects,
        memory_limit: config.memory_limit_bytes,
        parallelism: config.parallelism,
        tick: config.tick,
        checkpoint_interval: config.checkpoint_interval,
        state_backend: state_backend.to_string(),
        max_connections: config.max_connections,
    })
}

async fn resolve(address: &str) -> Result<SocketAddr, ServerError> {
    let listen_error = |source| ServerError::Listen { address: address.to_string(), source };
    let mut found = tokio::net::lookup_host(address).await.map_err(listen_error)?;
    let missing = || listen_error(std::io::Error::new(std::io::ErrorKind::AddrNotAvailable, "the name has no address"));
    found.next().ok_or_else(missing)
}
