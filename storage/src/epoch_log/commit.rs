//! Waiting for a group of appends to become durable together.

use std::{io, pin::pin, sync::Arc};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::error::{Result, StorageError};

/// Names the commit that an append is part of.
#[derive(Clone, Debug)]
pub struct LogTicket(Arc<CommitGroup>);

/// All appends that one fsync makes durable.
#[derive(Debug, Default)]
pub(super) struct CommitGroup {
    outcome: Mutex<Option<Result<(), Failure>>>,
    ended: Condvar,
    ended_async: Notify,
}

/// An error that many can be told of.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    Io { action: &'static str, file: String, kind: io::ErrorKind, detail: String },
    Other(String),
}

impl Failure {
    pub(super) fn of(error: &StorageError) -> Self {
        match error {
            StorageError::Io { action, file, source } => {
                Self::Io { action, file: file.clone(), kind: source.kind(), detail: source.to_string() }
            }
            StorageError::Internal(detail) => Self::Other(detail.clone()),
            other => Self::Other(other.to_string()),
        }
    }

    pub(super) fn error(&self) -> StorageError {
        match self {
            Self::Io { action, file, kind, detail } => {
                StorageError::Io { action, file: file.clone(), source: io::Error::new(*kind, detail.clone()) }
            }
            Self::Other(detail) => StorageError::Internal(detail.clone()),
        }
    }
}

impl CommitGroup {
    /// Tells all who wait, now and later. Only the first outcome counts.
    pub(super) fn end(&self, outcome: Result<(), Failure>) {
        self.outcome.lock().get_or_insert(outcome);
        self.ended.notify_all();
        self.ended_async.notify_waiters();
    }

    fn outcome(&self) -> Option<Result<()>> {
        self.outcome.lock().as_ref().map(|outcome| outcome.clone().map_err(|failure| failure.error()))
    }
}

impl LogTicket {
    pub(super) fn new(group: Arc<CommitGroup>) -> Self {
        Self(group)
    }

    pub(super) fn failed(error: &StorageError) -> Self {
        let group = CommitGroup::default();
        group.end(Err(Failure::of(error)));
        Self(Arc::new(group))
    }

    /// Whether the commit is known to have failed.
    pub fn has_failed(&self) -> bool {
        matches!(&*self.0.outcome.lock(), Some(Err(_)))
    }

    pub(super) async fn wait(self) -> Result<()> {
        let mut ended = pin!(self.0.ended_async.notified());
        // Registered before the check, so that no end falls between.
        ended.as_mut().enable();
        if let Some(outcome) = self.0.outcome() {
            return outcome;
        }
        ended.await;
        self.0.outcome().expect("a group has an outcome before its waiters are woken")
    }

    pub(super) fn wait_blocking(self) -> Result<()> {
        let mut outcome = self.0.outcome.lock();
        while outcome.is_none() {
            self.0.ended.wait(&mut outcome);
        }
        outcome.clone().expect("checked above").map_err(|failure| failure.error())
    }
}
