//! A server inside of the test's process.

use std::net::SocketAddr;
use std::path::Path;

use millpond_server::config::Config;
use millpond_server::server::{Server, ServerError};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::wire_client::{ClientError, WireClient};

/// Deep expressions are planned recursively, as in the real process.
const STACK_BYTES: usize = 16 << 20;

/// A running server with a runtime of its own. Dropping it is a crash.
pub struct TestServer {
    server: Option<Server>,
    runtime: Runtime,
    /// Dropped last; None when the test keeps the directory itself.
    _directory: Option<TempDir>,
}

impl TestServer {
    /// A server on a fresh directory, which goes with it.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory for the server");
        let config = Config::for_tests(directory.path().join("data"));
        let mut server = Self::start_with(config).expect("a server on a fresh directory");
        server._directory = Some(directory);
        server
    }

    /// A server on a directory that the test keeps.
    pub fn start_on(directory: &Path) -> Result<Self, ServerError> {
        Self::start_with(Config::for_tests(directory))
    }

    /// A server with other settings.
    pub fn start_with(config: Config) -> Result<Self, ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .expect("threads for the server");
        let server = runtime.block_on(Server::start(config))?;
        Ok(Self { server: Some(server), runtime, _directory: None })
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("shut down only when dropped or consumed")
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.server().addr()
    }

    /// Where `/healthz` and `/metrics` are.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.server().http_addr()
    }

    /// Sessions that are connected now.
    pub fn session_count(&self) -> i64 {
        self.server().session_count()
    }

    /// A new session.
    pub fn connect(&self) -> WireClient {
        self.try_connect().expect("a session")
    }

    /// A new session, or why not.
    pub fn try_connect(&self) -> Result<WireClient, ClientError> {
        WireClient::connect(self.address())
    }

    /// Ends it in order.
    pub fn shutdown(mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.shutdown());
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _in_runtime = self.runtime.enter();
            drop(server);
        }
    }
}
