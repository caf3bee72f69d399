//! Ending a session's running statement: by the user from another connection, by a timeout, or because nobody waits for it any more.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use millpond_planner::{PlanError, interrupt::Interrupt};
use millpond_storage::env::Clock;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::error::{Result, SqlError};

/// How often planning looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Which timeout ends a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timeout {
    /// `statement_timeout`.
    Statement,
    /// `transaction_timeout`, with which the session ends.
    Transaction,
}

/// When a statement is to end if it has not ended before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    /// Counted from its start.
    pub(crate) after: Duration,
    /// Whose time is up then.
    pub(crate) timeout: Timeout,
}

/// One statement, for those who end it and those who are to stop.
#[derive(Clone, Debug, Default)]
struct Running {
    token: CancellationToken,
    /// It was no user who ended it.
    timed_out: Arc<OnceLock<Timeout>>,
}

impl Running {
    /// The error that a statement ends with.
    fn error(&self) -> SqlError {
        match self.timed_out.get() {
            None => SqlError::cancelled(),
            Some(Timeout::Statement) => SqlError::statement_timeout(),
            Some(Timeout::Transaction) => SqlError::transaction_timeout(),
        }
    }
}

/// Reaches one session's running statement. A session that runs none is not disturbed.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    running: Arc<Mutex<Running>>,
    abandoned: Abandoned,
    /// The session is to end, whatever it does.
    terminated: CancellationToken,
}

/// Says whether anybody still waits for the session's answers; without it somebody does.
#[derive(Clone, Default)]
struct Abandoned(Arc<OnceLock<Box<dyn Fn() -> bool + Send + Sync>>>);

impl Abandoned {
    fn is_so(&self) -> bool {
        self.0.get().is_some_and(|asked| asked())
    }
}

impl fmt::Debug for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Abandoned")
    }
}

impl CancelHandle {
    /// Ends the running statement with 57014.
    pub fn fire(&self) {
        self.running.lock().token.cancel();
    }

    /// Ends the session, and what it runs, with 57P01.
    pub(crate) fn terminate(&self) {
        self.terminated.cancel();
        self.fire();
    }

    /// Returns when the session is to end, with the error it ends with.
    pub(crate) async fn terminated(&self) -> SqlError {
        self.terminated.cancelled().await;
        SqlError::terminated()
    }

    /// Lets a statement end when `asked`, which must not wait, says that nobody waits for its answer. It is for what keeps the thread to itself: while a
    /// statement waits, whoever has the socket sees it. Said once.
    pub(crate) fn give_up_when(&self, asked: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.abandoned.0.set(Box::new(asked));
    }

    /// Returns when the running statement has been cancelled, with the error it ends with; for those who wait on its behalf.
    pub async fn fired(&self) -> SqlError {
        let running = self.running.lock().clone();
        running.token.cancelled().await;
        running.error()
    }

    /// The error with which not only the statement that runs, or ran last, is to end, but its session.
    pub(crate) fn ends_session(&self) -> Option<SqlError> {
        if self.terminated.is_cancelled() {
            return Some(SqlError::terminated());
        }
        let running = self.running.lock();
        (running.timed_out.get() == Some(&Timeout::Transaction)).then(|| running.error())
    }

    /// For a statement that starts now: what was cancelled before it does not concern it.
    pub(crate) fn start_statement(&self, limit: Option<Limit>, lock_timeout: Option<Duration>) -> Cancel {
        let running = Running::default();
        *self.running.lock() = running.clone();
        if self.terminated.is_cancelled() {
            running.token.cancel();
        }
        let timer = limit.map(|limit| {
            let running = running.clone();
            Arc::new(AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(limit.after).await;
                running.timed_out.get_or_init(|| limit.timeout);
                running.token.cancel();
            })))
        });
        Cancel { running, lock_timeout, abandoned: self.abandoned.clone(), _timer: timer }
    }
}

/// Held by everything that works for one statement; the timeout runs until the last of it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    running: Running,
    /// For how long the statement waits for one lock.
    lock_timeout: Option<Duration>,
    abandoned: Abandoned,
    _timer: Option<Arc<AbortOnDropHandle<()>>>,
}

impl Cancel {
    /// One that never fires.
    pub(crate) fn never() -> Self {
        Self { running: Running::default(), lock_timeout: None, abandoned: Abandoned::default(), _timer: None }
    }

    /// Returns when the statement is to end, with the error it ends with.
    pub(crate) async fn fired(&self) -> SqlError {
        self.running.token.cancelled().await;
        self.running.error()
    }

    /// The error, if the statement is to end.
    pub(crate) fn check(&self) -> Result<()> {
        if self.running.token.is_cancelled() { Err(self.running.error()) } else { Ok(()) }
    }

    /// The future's result, unless the statement is to end first.
    pub(crate) async fn race<T, E: Into<SqlError>>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T> {
        tokio::select! {
            biased;
            result = future => result.map_err(Into::into),
            error = self.fired() => Err(error),
        }
    }

    /// The lock that a future waits for, unless the statement is to end first.
    ///
    /// # Errors
    /// 55P03 when it takes longer than `lock_timeout`, or what the statement ends with.
    pub(crate) async fn locked<T>(&self, lock: impl Future<Output = T>) -> Result<T> {
        let patient = async {
            match self.lock_timeout {
                Some(timeout) => tokio::time::timeout(timeout, lock).await.map_err(|_elapsed| SqlError::lock_timeout()),
                None => Ok(lock.await),
            }
        };
        self.race(patient).await
    }

    /// Asked by what plans on behalf of the statement.
    pub(crate) fn interrupt(&self) -> Interrupt {
        // What is planned may live longer than the statement, whose timer must not.
        let cancel = Self { _timer: None, ..self.clone() };
        let (clock, next_look_us) = (Clock::system(), first_look_us());
        Interrupt::new(move || {
            cancel.look(clock.monotonic(), &next_look_us);
            cancel.check().map_err(|error| PlanError::new("57014", error.message))
        })
    }

    /// Ends the statement if it is time to look and nobody waits for it. What is planned at once is not looked after: who sends a statement and
    /// goes may mean it.
    fn look(&self, now: Duration, next_look_us: &AtomicU64) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if micros(now) < next_look_us.load(Ordering::Relaxed) {
            return;
        }
        next_look_us.store(micros(now + LOOK_EVERY), Ordering::Relaxed);
        if self.abandoned.is_so() {
            self.running.token.cancel();
        }
    }
}

/// When planning looks for the first time, in microseconds since it began.
fn first_look_us() -> AtomicU64 {
    AtomicU64::new(LOOK_EVERY.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_late_cancel_does_not_reach_the_next_statement() {
        let handle = CancelHandle::default();
        let first = handle.start_statement(None, None);
        handle.fire();
        assert_eq!(first.check().unwrap_err().message, "canceling statement due to user request");
        handle.fire();
        assert!(handle.start_statement(None, None).check().is_ok());
    }

    #[test]
    fn planning_ends_when_nobody_waits_for_it() {
        let handle = CancelHandle::default();
        let gone = Arc::new(AtomicBool::new(false));
        let asked = gone.clone();
        handle.give_up_when(move || asked.load(Ordering::Relaxed));
        let (cancel, next_look_us) = (handle.start_statement(None, None), first_look_us());
        let goes_on = |now: Duration| {
            cancel.look(now, &next_look_us);
            cancel.check().is_ok()
        };
        assert!(goes_on(Duration::ZERO) && goes_on(LOOK_EVERY));
        gone.store(true, Ordering::Relaxed);
        assert!(goes_on(LOOK_EVERY * 3 / 2), "it has just been looked");
        assert!(!goes_on(LOOK_EVERY * 2));
        assert_eq!(cancel.check().unwrap_err().sqlstate, "57014");
    }

    #[tokio::test]
    async fn a_timeout_says_so() {
        let handle = CancelHandle::default();
        let after = Duration::from_millis(5);
        let cancel = handle.start_statement(Some(Limit { after, timeout: Timeout::Statement }), None);
        let result: Result<()> = cancel.race(std::future::pending::<Result<()>>()).await;
        assert_eq!(result.unwrap_err().message, "canceling statement due to statement timeout");
        assert_eq!((handle.fired().await.message.as_str(), handle.ends_session()), ("canceling statement due to statement timeout", None));
        let cancel = handle.start_statement(Some(Limit { after, timeout: Timeout::Transaction }), None);
        assert_eq!(cancel.fired().await.sqlstate, "25P04");
        assert_eq!(handle.ends_session().unwrap().message, "terminating connection due to transaction timeout");
    }

    #[tokio::test]
    async fn a_lock_is_waited_for_as_long_as_the_session_wants() {
        let cancel = CancelHandle::default().start_statement(None, Some(Duration::from_millis(5)));
        assert_eq!(cancel.locked(std::future::pending::<()>()).await.unwrap_err().sqlstate, "55P03");
        assert_eq!(cancel.locked(async { 7 }).await.unwrap(), 7);
    }
}
