//! How long a session may take for what it does, and leave unused what it holds.

use std::time::Duration;

use super::{
    Session, TransactionStatus,
    cancel::{Cancel, Limit, Timeout},
    settings,
    transaction::Phase,
    variables::Variables,
};
use crate::error::SqlError;

/// How long a client may leave a statement's lock unused before others get it.
const IDLE_LOCK: Duration = Duration::from_millis(50);

/// The timeouts among a session's settings; `None` for one that is off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// The variables' generation that they were read from.
    generation: u64,
    statement: Option<Duration>,
    lock: Option<Duration>,
    transaction: Option<Duration>,
    idle_in_transaction: Option<Duration>,
    idle_session: Option<Duration>,
}

impl Timeouts {
    /// As the settings are now.
    pub(super) fn of(variables: &Variables) -> Self {
        let read = |name: &str| variables.get(name).and_then(|value| settings::duration(&value));
        Self {
            generation: variables.generation(),
            statement: read("statement_timeout"),
            lock: read("lock_timeout"),
            transaction: read("transaction_timeout"),
            idle_in_transaction: read("idle_in_transaction_session_timeout"),
            idle_session: read("idle_session_timeout"),
        }
    }
}

impl Session {
    fn timeouts(&mut self) -> Timeouts {
        if self.timeouts.generation != self.variables.generation() {
            self.timeouts = Timeouts::of(&self.variables);
        }
        self.timeouts
    }

    /// For a statement that starts now. Its parsing is a part of it, and was before.
    pub(super) fn start_cancel(&mut self) -> Cancel {
        let parsing = std::mem::take(&mut self.parsing);
        let timeouts = self.timeouts();
        let statement = timeouts.statement.map(|timeout| timeout.saturating_sub(parsing));
        let transaction = match self.transaction.phase() {
            Phase::Idle => timeouts.transaction,
            _ => self.transaction_left(timeouts),
        };
        // Of two that end at once the transaction's counts.
        let limits = [(transaction, Timeout::Transaction), (statement, Timeout::Statement)];
        let limit =
            limits.into_iter().filter_map(|(after, timeout)| Some(Limit { after: after?, timeout })).min_by_key(|limit| limit.after);
        self.cancel.start_statement(limit, timeouts.lock)
    }

    /// For how long the client may say nothing now, and the error that the session ends with then. `at_rest` says that it has been answered to all
    /// that it had sent.
    pub(crate) fn patience(&mut self, at_rest: bool) -> Option<(Duration, SqlError)> {
        let timeouts = self.timeouts();
        let transaction = self.transaction_left(timeouts).map(|left| (left, SqlError::transaction_timeout()));
        let idle = match self.transaction_status() {
            _ if !at_rest => None,
            TransactionStatus::Idle => timeouts.idle_session.map(|timeout| (timeout, SqlError::idle_session_timeout())),
            TransactionStatus::InBlock | TransactionStatus::Failed => {
                timeouts.idle_in_transaction.map(|timeout| (timeout, SqlError::idle_in_transaction_timeout()))
            }
        };
        [transaction, idle].into_iter().flatten().min_by_key(|(after, _)| *after)
    }

    /// How much longer the transaction may last. One that has failed holds nothing that others wait for.
    fn transaction_left(&self, timeouts: Timeouts) -> Option<Duration> {
        match self.transaction.phase() {
            Phase::Implicit | Phase::Block => {
                timeouts.transaction.map(|timeout| (self.transaction.began + timeout).saturating_sub(self.clock.monotonic()))
            }
            Phase::Idle | Phase::Failed => None,
        }
    }

    /// A client that leaves a lock unused for long loses it: its work is validated at commit then.
    pub(super) fn watch_locks(&self) {
        let Some(work) = &self.transaction.work else { return };
        if !work.holds_guards() {
            return;
        }
        let guards = std::sync::Arc::downgrade(&work.guards());
        tokio::spawn(async move {
            tokio::time::sleep(IDLE_LOCK).await;
            if let Some(guards) = guards.upgrade() {
                guards.lock().clear();
            }
        });
    }
}
