//! The process: arguments, logs, the runtime, signals, exit codes.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::config::{CommandLine, Config};
use crate::server::{Server, ServerError};

/// Deep expressions are planned recursively.
const STACK_BYTES: usize = 16 << 20;
/// Threads that are still busy when everything has been shut down are left behind after this.
const RUNTIME_PATIENCE: Duration = Duration::from_millis(300);

/// Runs a server as the arguments say, until a signal ends it. 0: ended in order; 1: could not start; 2: wrong arguments.
pub fn main() -> ExitCode {
    let config = match CommandLine::parse().into_config() {
        Ok(config) => config,
        Err(error) => return complain(&error, 2),
    };
    let filter = EnvFilter::try_from_env("MILLPOND_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(STACK_BYTES).thread_name("millpond").build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error, 1),
    };
    let outcome = runtime.block_on(run(config));
    runtime.shutdown_timeout(RUNTIME_PATIENCE);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

/// Serves until a signal asks for the end.
async fn run(config: Config) -> Result<(), ServerError> {
    let signals = signal(SignalKind::terminate()).and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) =
        signals.map_err(|source| ServerError::Listen { address: "signals of the process".to_string(), source })?;
    let directory = config.data_dir.display().to_string();
    let server = Server::start(config).await?;
    let address = server.addr();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %directory, http = ?server.http_addr(), "millpond is ready");
    tracing::info!("connect with: psql postgresql://millpond@{address}/millpond");
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down"),
    }
    server.shutdown().await;
    tracing::info!("bye");
    Ok(())
}

/// The log may not be set up yet, so errors of the start go straight to standard error.
fn complain(error: &dyn std::error::Error, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "millpond: {error}");
    ExitCode::from(code)
}
