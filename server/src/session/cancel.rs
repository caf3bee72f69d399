//! Ending a session's running statement: by the user from another connection, by `statement_timeout`, or because nobody waits for it any more.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
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

/// Reaches one session's running statement. A session that runs none is not disturbed.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    running: Arc<Mutex<CancellationToken>>,
    abandoned: Abandoned,
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
        self.running.lock().cancel();
    }

    /// Lets a statement end when `asked`, which must not wait, says that nobody waits for its answer. It is for what keeps the thread to itself: while a
    /// statement waits, whoever has the socket sees it. Said once.
    pub(crate) fn give_up_when(&self, asked: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.abandoned.0.set(Box::new(asked));
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
        Cancel { token, timed_out, abandoned: self.abandoned.clone(), _timer: timer }
    }
}

/// Held by everything that works for one statement; the timeout runs until the last of it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Cancel {
    token: CancellationToken,
    timed_out: Arc<AtomicBool>,
    abandoned: Abandoned,
    _timer: Option<Arc<AbortOnDropHandle<()>>>,
}

impl Cancel {
    /// One that never fires.
    pub(crate) fn never() -> Self {
        Self { token: CancellationToken::new(), timed_out: Arc::default(), abandoned: Abandoned::default(), _timer: None }
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
            self.token.cancel();
        }
    }

    fn error(&self) -> SqlError {
        if self.timed_out.load(Ordering::Acquire) { SqlError::statement_timeout() } else { SqlError::cancelled() }
    }
}

/// When planning looks for the first time, in microseconds since it began.
fn first_look_us() -> AtomicU64 {
    AtomicU64::new(LOOK_EVERY.as_micros() as u64)
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

    #[test]
    fn planning_ends_when_nobody_waits_for_it() {
        let handle = CancelHandle::default();
        let gone = Arc::new(AtomicBool::new(false));
        let asked = gone.clone();
        handle.give_up_when(move || asked.load(Ordering::Relaxed));
        let (cancel, next_look_us) = (handle.start_statement(None), first_look_us());
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
        let cancel = CancelHandle::default().start_statement(Some(Duration::from_millis(5)));
        let result: Result<()> = cancel.race(std::future::pending::<Result<()>>()).await;
        assert_eq!(result.unwrap_err().message, "canceling statement due to statement timeout");
    }
}
