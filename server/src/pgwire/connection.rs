//! One client after its startup: the loop over its messages.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::attend::{Failure, Line};
use super::extended::Portal;
use super::frame::Frame;
use super::message::{Request, violation};
use crate::error::{Severity, SqlError};
use crate::session::{Prepared, Session, TransactionStatus};

/// Portals that a session may have at a time.
pub(super) const MAX_PORTALS: usize = 20_000;

/// How long a client is given to take the error that its connection ends with.
const FAREWELL: Duration = Duration::from_secs(2);

/// A session with its socket.
pub(super) struct Connection {
    pub(super) line: Line,
    pub(super) session: Session,
    /// The statement without a name; those with one are the session's.
    pub(super) unnamed: Option<Arc<Prepared>>,
    pub(super) portals: HashMap<String, Portal>,
    /// After an error in the extended protocol: nothing is heard up to the next Sync.
    pub(super) skipping: bool,
    /// The client has been told that it may go on, and has said nothing since.
    at_rest: bool,
    /// The transaction status after the last statement.
    status: TransactionStatus,
}

impl Connection {
    pub(super) fn new(line: Line, session: Session) -> Self {
        let status = session.transaction_status();
        Self { line, session, unnamed: None, portals: HashMap::new(), skipping: false, at_rest: false, status }
    }

    /// Serves the client until it or the server ends the connection.
    pub(super) async fn run(&mut self) {
        let error = loop {
            let step = match self.next_frame().await {
                Ok(frame) => self.take_frame(frame).await,
                Err(failure) => Err(failure),
            };
            match step {
                Ok(true) => {}
                Ok(false) | Err(Failure::Gone) => return,
                Err(Failure::Error(error) | Failure::Fatal(error)) => break error,
            }
        };
        self.line.outbox.error(&SqlError { severity: Severity::Fatal, ..error });
        // A client that does not read must not keep what its session holds.
        let _ = tokio::time::timeout(FAREWELL, self.line.outbox.close()).await;
    }

    /// The next message; notices that come meanwhile are sent.
    async fn next_frame(&mut self) -> Result<Frame, Failure> {
        if self.line.inbox.has_frame() && !self.line.shutdown.is_cancelled() && self.line.cancel.ends_session().is_none() {
            return Ok(self.line.inbox.next().await?);
        }
        let mut expired = pin!(expiry(self.session.patience(self.at_rest)));
        loop {
            tokio::select! {
                biased;
                () = self.line.shutdown.cancelled() => return Err(Failure::Fatal(SqlError::terminated())),
                error = self.line.cancel.terminated() => return Err(Failure::Fatal(error)),
                frame = self.line.inbox.next() => return Ok(frame?),
                error = &mut expired => return Err(Failure::Fatal(error)),
                Some(notice) = self.line.notices.recv() => {
                    self.line.outbox.notice(&notice);
                    self.line.outbox.flush().await?;
                }
            }
        }
    }

    /// False when the client has said good-bye.
    async fn take_frame(&mut self, frame: Frame) -> Result<bool, Failure> {
        let kind = frame.kind;
        self.at_rest = false;
        if self.skipping && !matches!(kind, b'S' | b'X') {
            return Ok(true);
        }
        let outcome = match Request::decode(frame) {
            Ok(Request::Terminate) => return Ok(false),
            Ok(request) => self.dispatch(request).await,
            Err(error) => Err(error.into()),
        };
        match outcome {
            Err(Failure::Error(error)) => {
                self.fail(&error)?;
                if Request::is_extended(kind) {
                    // The client may wait for this without having sent Sync.
                    self.skipping = true;
                    self.line.outbox.flush().await?;
                } else {
                    self.ready().await?;
                }
                Ok(true)
            }
            other => other.map(|()| true),
        }
    }

    async fn dispatch(&mut self, request: Request) -> Result<(), Failure> {
        match request {
            Request::Query(sql) => self.simple_query(&sql).await?,
            Request::Parse { statement, sql, parameter_types } => self.parse(statement, &sql, &parameter_types).await?,
            Request::Bind(message) => self.bind(message)?,
            Request::DescribeStatement(name) => self.describe_statement(&name)?,
            Request::DescribePortal(name) => self.describe_portal(&name)?,
            Request::Execute { portal, max_rows } => self.execute(portal, max_rows).await?,
            Request::CloseStatement(name) => self.close_statement(&name),
            Request::ClosePortal(name) => self.close_portal(&name),
            Request::Flush => self.line.outbox.flush().await?,
            Request::Sync => self.sync().await?,
            // What is left of a COPY that has failed.
            Request::CopyData(_) | Request::CopyDone | Request::CopyFail(_) => {}
            Request::FunctionCall => return Err(SqlError::unsupported("function call messages are not supported").into()),
            Request::Password => return Err(Failure::Fatal(violation("unexpected password message"))),
            Request::Terminate => return Err(Failure::Gone),
        }
        Ok(())
    }

    /// Tells the client of an error, and the session that its statement has failed; unless the session is to end with it.
    pub(super) fn fail(&mut self, error: &SqlError) -> Result<(), Failure> {
        if let Some(last) = self.line.cancel.ends_session() {
            return Err(Failure::Fatal(last));
        }
        self.session.statement_failed();
        self.line.outbox.error(error);
        self.after_statement();
        Ok(())
    }

    /// What a statement may have changed for the protocol: the transaction, whose end takes the portals, and reported settings.
    pub(super) fn after_statement(&mut self) {
        let status = self.session.transaction_status();
        if status == TransactionStatus::Idle && self.status != TransactionStatus::Idle {
            self.portals.clear();
        }
        self.status = status;
        for (name, value) in self.session.changed_parameters() {
            self.line.outbox.parameter_status(name, value);
        }
    }

    /// ReadyForQuery. Outside of a block the portals have ended with their transaction.
    pub(super) async fn ready(&mut self) -> Result<(), Failure> {
        self.after_statement();
        if self.status == TransactionStatus::Idle {
            self.portals.clear();
        }
        self.line.outbox.ready(self.status);
        self.at_rest = true;
        Ok(self.line.outbox.flush().await?)
    }
}

/// Ends when the client has said nothing for too long, with the error that its session ends with.
async fn expiry(patience: Option<(Duration, SqlError)>) -> SqlError {
    match patience {
        Some((after, error)) => {
            tokio::time::sleep(after).await;
            error
        }
        None => std::future::pending().await,
    }
}
