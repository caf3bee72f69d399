//! The listening socket and the connections that come from it.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attend::{Failure, Line};
use super::cancel::CancelRegistry;
use super::connection::Connection;
use super::frame::Inbox;
use super::outbox::Outbox;
use super::scram::Verifier;
use super::startup::{self, Admission, Opening, Parameters};
use crate::error::{Severity, SqlError};
use crate::session::Session;
use crate::session::cancel::CancelHandle;
use crate::state::ServerState;

/// A client must have said who it is, and proved it, after this long.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections in their startup beyond the sessions; more are dropped at once.
const STARTUPS: usize = 200;
/// When the system has no more sockets to give.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Settings of the listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerConfig {
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) database: String,
    /// Asked for with SCRAM-SHA-256; without one only loopback connections are let in.
    pub(crate) password: Option<String>,
    pub(crate) max_sessions: usize,
}

/// What the listener counts.
#[derive(Debug, Default)]
pub(crate) struct WireCounters {
    /// Sessions now.
    pub(crate) sessions: AtomicI64,
    /// Connections accepted since the start.
    pub(crate) connections: AtomicU64,
    /// Connections that were refused or failed in their startup.
    pub(crate) refused: AtomicU64,
}

/// A running listener.
pub(crate) struct Listener {
    address: SocketAddr,
    accepting: CancellationToken,
    sessions: CancellationToken,
    tracker: TaskTracker,
}

struct Shared {
    state: Arc<ServerState>,
    admission: Admission,
    registry: CancelRegistry,
    permits: Arc<Semaphore>,
    max_sessions: usize,
    counters: Arc<WireCounters>,
    shutdown: CancellationToken,
}

impl Listener {
    /// Binds the socket and begins to accept.
    ///
    /// # Errors
    /// What the system says when the address cannot be had.
    pub(crate) async fn start(config: ListenerConfig, state: Arc<ServerState>, counters: Arc<WireCounters>) -> std::io::Result<Self> {
        let socket = TcpListener::bind(config.address).await?;
        let address = socket.local_addr()?;
        let sessions = CancellationToken::new();
        let shared = Arc::new(Shared {
            state,
            admission: Admission { user: config.user, database: config.database, verifier: config.password.as_deref().map(Verifier::new) },
            registry: CancelRegistry::default(),
            permits: Arc::new(Semaphore::new(config.max_sessions)),
            max_sessions: config.max_sessions,
            counters,
            shutdown: sessions.clone(),
        });
        let accepting = CancellationToken::new();
        let tracker = TaskTracker::new();
        tracker.spawn(accept(socket, shared, accepting.clone(), tracker.clone()));
        Ok(Self { address, accepting, sessions, tracker })
    }

    /// The address it listens on, with the port that was given.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the socket; sessions go on.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.cancel();
    }

    /// Cancels what runs, tells every client, and returns when all have gone or the time is up.
    pub(crate) async fn close_sessions(&self, patience: Duration) {
        self.stop_accepting();
        self.sessions.cancel();
        self.tracker.close();
        if tokio::time::timeout(patience, self.tracker.wait()).await.is_err() {
            tracing::warn!(connections = self.tracker.len(), "connections did not end in time");
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepting.cancel();
        self.sessions.cancel();
    }
}

async fn accept(socket: TcpListener, shared: Arc<Shared>, stop: CancellationToken, tracker: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                shared.counters.connections.fetch_add(1, Ordering::Relaxed);
                if tracker.len() > shared.max_sessions + STARTUPS {
                    shared.counters.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                tracker.spawn(serve(stream, peer, Arc::clone(&shared)));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// One connection from its first byte to its last.
async fn serve(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let (reading, writing) = stream.into_split();
    let mut inbox = Inbox::new(reading);
    let mut outbox = Outbox::new(writing);
    let opening = tokio::select! {
        biased;
        () = shared.shutdown.cancelled() => return,
        opening = tokio::time::timeout(STARTUP_TIMEOUT, enter(&mut inbox, &mut outbox, peer, &shared)) => opening,
    };
    let parameters = match opening {
        Ok(Ok(Some(parameters))) => parameters,
        Ok(Ok(None)) => return,
        Ok(Err(failure)) => return refuse(failure, &mut outbox, &shared).await,
        Err(_elapsed) => return refuse(Failure::Gone, &mut outbox, &shared).await,
    };
    let Ok(_permit) = Arc::clone(&shared.permits).try_acquire_owned() else {
        let full = SqlError::new("53300", "sorry, too many clients already");
        return refuse(Failure::Fatal(full), &mut outbox, &shared).await;
    };
    let counters = Arc::clone(&shared.counters);
    counters.sessions.fetch_add(1, Ordering::Relaxed);
    run_session(inbox, outbox, peer, parameters, &shared).await;
    counters.sessions.fetch_sub(1, Ordering::Relaxed);
}

/// Opening and authentication. None: there is nothing more to do on this connection.
async fn enter(inbox: &mut Inbox, outbox: &mut Outbox, peer: SocketAddr, shared: &Shared) -> Result<Option<Parameters>, Failure> {
    match startup::open(inbox, outbox).await? {
        Opening::Cancel { process_id, secret } => {
            shared.registry.cancel(process_id, secret);
            Ok(None)
        }
        Opening::Session(parameters) => {
            shared.admission.admit(&parameters, peer, inbox, outbox).await?;
            Ok(Some(parameters))
        }
    }
}

async fn refuse(failure: Failure, outbox: &mut Outbox, shared: &Shared) {
    shared.counters.refused.fetch_add(1, Ordering::Relaxed);
    match failure {
        Failure::Gone => {}
        Failure::Error(error) | Failure::Fatal(error) => {
            outbox.error(&SqlError { severity: Severity::Fatal, ..error });
            outbox.close().await;
        }
    }
}

async fn run_session(inbox: Inbox, outbox: Outbox, peer: SocketAddr, parameters: Parameters, shared: &Shared) {
    let registration = shared.registry.reserve();
    let (sender, notices) = mpsc::unbounded_channel();
    let info = parameters.session_info(registration.process_id, registration.secret, Some(peer));
    let session = Session::new(Arc::clone(&shared.state), info, sender);
    let cancel: CancelHandle = session.cancel_token();
    registration.attach(cancel.clone());
    let (hung_up, shutdown) = (outbox.hang_up(), shared.shutdown.clone());
    cancel.give_up_when(move || shutdown.is_cancelled() || hung_up());
    let line = Line { inbox, outbox, notices, shutdown: shared.shutdown.clone(), cancel };
    let mut connection = Connection::new(line, session);
    let served = async {
        match connection.begin(&parameters, registration.process_id, registration.secret).await {
            Ok(()) => connection.run().await,
            Err(failure) => refuse(failure, &mut connection.line.outbox, shared).await,
        }
    };
    // A bug in one statement ends its session, not the server, and not silently.
    if AssertUnwindSafe(served).catch_unwind().await.is_err() {
        tracing::error!(process_id = registration.process_id, "a session ended by a panic");
        let error = SqlError { severity: Severity::Fatal, ..SqlError::internal("the session met a bug; see the server's log") };
        refuse(Failure::Fatal(error), &mut connection.line.outbox, shared).await;
    }
    drop(registration);
    // Portals hold queries of the session: they end first.
    connection.portals.clear();
    connection.session.close().await;
}
