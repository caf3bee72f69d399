//! One client's line: its socket in both directions and its notices; and the watch over it while a statement runs.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::frame::{Frame, FrameError, Inbox};
use super::outbox::{Gone, Outbox};
use crate::error::{Notice, SqlError};
use crate::session::cancel::CancelHandle;

/// How long the work of a client that has gone may take to notice before it is dropped where it stands.
const ABANDONED_WORK: Duration = Duration::from_secs(10);

/// Why a step of the protocol did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody is there to be told.
    Gone,
    /// The statement failed; the client is told, and the connection goes on.
    Error(SqlError),
    /// The client broke the protocol; it is told, and the connection ends.
    Fatal(SqlError),
}

impl From<Gone> for Failure {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Error(error)
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Closed => Self::Gone,
            FrameError::Broken(message) => {
                Self::Fatal(SqlError { severity: crate::error::Severity::Fatal, ..super::message::violation(message) })
            }
        }
    }
}

/// A connection's socket and what is to be sent beside answers.
pub(super) struct Line {
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) notices: UnboundedReceiver<Notice>,
    /// Fired when the server stops.
    pub(super) shutdown: CancellationToken,
    /// Ends the session's running statement.
    pub(super) cancel: CancelHandle,
}

impl Line {
    /// Runs the work of a statement. Meanwhile notices are sent, and the socket is read ahead; when the client goes or the server stops, the
    /// work is cancelled.
    pub(super) async fn attend<F: Future>(&mut self, work: F) -> Result<F::Output, Gone> {
        let mut work = pin!(work);
        if let Some(done) = work.as_mut().now_or_never() {
            self.take_notices();
            return Ok(done);
        }
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    self.take_notices();
                    return Ok(done);
                }
                Some(notice) = self.notices.recv() => {
                    self.outbox.notice(&notice);
                    self.take_notices();
                    if self.outbox.flush().await.is_err() {
                        break;
                    }
                }
                () = self.shutdown.cancelled(), if !stopping => {
                    stopping = true;
                    self.cancel.fire();
                }
                _ = self.inbox.read_ahead() => break,
            }
        }
        self.cancel.fire();
        let _ = tokio::time::timeout(ABANDONED_WORK, work).await;
        Err(Gone)
    }

    /// Puts waiting notices in front of what comes next.
    pub(super) fn take_notices(&mut self) {
        while let Ok(notice) = self.notices.try_recv() {
            self.outbox.notice(&notice);
        }
    }

    /// Sends what has gathered while a statement's answer is on its way. A client that does not read can be cancelled.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        tokio::select! {
            biased;
            sent = self.outbox.flush() => sent.map_err(Failure::from),
            error = self.cancel.fired() => Err(error.into()),
            () = self.shutdown.cancelled() => Err(SqlError::cancelled().into()),
        }
    }

    /// The next message of a client that the running statement waits for.
    pub(super) async fn next_frame(&mut self) -> Result<Frame, Failure> {
        tokio::select! {
            biased;
            frame = self.inbox.next() => Ok(frame?),
            error = self.cancel.fired() => Err(error.into()),
            () = self.shutdown.cancelled() => Err(SqlError::cancelled().into()),
        }
    }
}
