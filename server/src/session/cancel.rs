//! Ending a session's running statement: by the user from another connection, or by `statement_timeout`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use millpond_planner::{PlanError, interrupt::Interrupt};
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::error::{Result, SqlError};

/// Reaches one session's running statement. A session that runs none is not disturbed.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    running: Arc<Mutex<CancellationToken>>,
}

impl CancelHandle {
    /// Ends the running statement with 57014.
    pub fn fire(&self) {
        self.running.lock().cancel();
    }

    /// Returns when the running statement has been cancelled; for those who wait on its behalf.
    pub async fn fired(&self) {
        let token = self.running.lock().clone();
        token.cancelled().await;
    }

    /// For a statement that starts now: what was cancelled before it does not concern it.
    pub(crate) fn start_statement(&self, timeout: Option<Duration>) -> Cancel {
        let token = {
            let mut running = self.running.lock();
            *running = CancellationToken::new();
            running.clone()
        };
        let timed_out = Arc::new(AtomicBool::new(false));
        let timer = timeout.map(|timeout| {
            let (token, timed_out) = (token.clone(), timed_out.clone());
            Arc::new(AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(timeout).await;
                timed_out.store(true, Ordering::Release);
                token.cancel();
            })))
        });
        Cancel { token, timed_out, _timer: timer }
    }
}

/// Held by everything that works for one statement; the timeout runs until the last of it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    token: CancellationToken,
    timed_out: Arc<AtomicBool>,
    _timer: Option<Arc<AbortOnDropHandle<()>>>,
}

impl Cancel {
    /// One that never fires.
    pub(crate) fn never() -> Self {
        Self { token: CancellationToken::new(), timed_out: Arc::default(), _timer: None }
    }

    /// Returns when the statement is to end, with the error it ends with.
    pub(crate) async fn fired(&self) -> SqlError {
        self.token.cancelled().await;
        self.error()
    }

    /// The error, if the statement is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.token.is_cancelled() { Err(self.error()) } else { Ok(()) }
    }

    /// The future's result, unless the statement is to end first.
    pub(crate) async fn race<T, E: Into<SqlError>>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T> {
        tokio::select! {
            biased;
            result = future => result.map_err(Into::into),
            error = self.fired() => Err(error),
        }
    }

    /// Asked by what plans on behalf of the statement.
    pub(crate) fn interrupt(&self) -> Interrupt {
        // What is planned may live longer than the statement, whose timer must not.
        let cancel = Self { _timer: None, ..self.clone() };
        Interrupt::new(move || cancel.check().map_err(|error| PlanError::new("57014", error.message)))
    }

    fn error(&self) -> SqlError {
        if self.timed_out.load(Ordering::Acquire) { SqlError::statement_timeout() } else { SqlError::cancelled() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_cancel_does_not_reach_the_next_statement() {
        let handle = CancelHandle::default();
        let first = handle.start_statement(None);
        handle.fire();
        assert_eq!(first.check().unwrap_err().message, "canceling statement due to user request");
        handle.fire();
        assert!(handle.start_statement(None).check().is_ok());
    }

    #[tokio::test]
    async fn a_timeout_says_so() {
        let cancel = CancelHandle::default().start_statement(Some(Duration::from_millis(5)));
        let result: Result<()> = cancel.race(std::future::pending::<Result<()>>()).await;
        assert_eq!(result.unwrap_err().message, "canceling statement due to statement timeout");
    }
}
