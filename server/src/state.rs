//! What all sessions share.

/// The open server: catalog, engine and the threads that run queries.
pub struct ServerState {}

impl ServerState {
    /// A state without a data directory, for tests of the wire layer.
    pub fn empty() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {})
    }
}
