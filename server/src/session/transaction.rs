//! The transaction of a session: idle, implicit, in a block, or failed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use millpond_planner::parse::statement::{IsolationLevel, TransactionModes};

use crate::{
    act::{
        definitions::Definitions,
        dml::work::{Work, WorkMark},
    },
    error::{Result, SqlError},
    session::{
        TransactionStatus,
        variables::{Variables, VariablesMark},
    },
};

/// Most savepoints a transaction may have.
const SAVEPOINT_LIMIT: usize = 10_000;

/// Where a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// No transaction: every statement is its own.
    Idle,
    /// Statements of one script, or between two Syncs.
    Implicit,
    /// After BEGIN.
    Block,
    /// In a block in which a statement failed.
    Failed,
}

struct Savepoint {
    name: String,
    work: WorkMark,
    variables: VariablesMark,
    definitions: usize,
}

/// A session's transaction.
pub(crate) struct Transaction {
    phase: Phase,
    /// What it has done; `None` before its first statement that reads or writes.
    pub(crate) work: Option<Work>,
    savepoints: Vec<Savepoint>,
    /// What it has created, altered and dropped.
    pub(crate) definitions: Definitions,
    /// Whether it may write.
    pub(crate) read_only: bool,
    /// Its isolation level, which is shown and otherwise always at least repeatable read.
    pub(crate) isolation: IsolationLevel,
    /// When it began, microseconds since 1970: what `now()` says in it.
    pub(crate) began_us: i64,
    /// The same by the clock that nobody sets.
    pub(super) began: Duration,
    /// An answer of the block failed while it was streamed.
    stream_failed: Arc<AtomicBool>,
}

impl Transaction {
    /// Idle.
    pub(crate) fn idle() -> Self {
        Self {
            phase: Phase::Idle,
            work: None,
            savepoints: Vec::new(),
            definitions: Definitions::default(),
            read_only: false,
            isolation: IsolationLevel::ReadCommitted,
            began_us: 0,
            began: Duration::ZERO,
            stream_failed: Arc::default(),
        }
    }

    /// Where it stands now.
    pub(crate) fn phase(&self) -> Phase {
        if self.phase == Phase::Block && self.stream_failed.load(Ordering::Acquire) { Phase::Failed } else { self.phase }
    }

    /// For ReadyForQuery.
    pub(crate) fn status(&self) -> TransactionStatus {
        match self.phase() {
            Phase::Idle | Phase::Implicit => TransactionStatus::Idle,
            Phase::Block => TransactionStatus::InBlock,
            Phase::Failed => TransactionStatus::Failed,
        }
    }

    /// Set by an answer of the block that fails while it is streamed.
    pub(crate) fn stream_failure(&self) -> Arc<AtomicBool> {
        self.stream_failed.clone()
    }

    /// Begins an implicit transaction, or a block. A block may take over an implicit transaction. `now` is by both clocks.
    pub(super) fn begin(&mut self, phase: Phase, now: (i64, Duration), variables: &mut Variables) {
        if self.phase == Phase::Idle {
            variables.begin();
            (self.began_us, self.began) = now;
            self.read_only = variables.get("default_transaction_read_only").is_some_and(|value| value == "on");
            self.isolation =
                variables.get("default_transaction_isolation").and_then(|name| level(&name)).unwrap_or(IsolationLevel::ReadCommitted);
        }
        self.phase = phase;
        self.stream_failed = Arc::default();
    }

    /// Takes the modes of BEGIN or SET TRANSACTION.
    ///
    /// # Errors
    /// 25001 when the transaction has read already and the level would change.
    pub(crate) fn set_modes(&mut self, modes: TransactionModes) -> Result<()> {
        if let Some(isolation) = modes.isolation {
            let has_read = self.work.as_ref().is_some_and(|work| work.snapshot.is_some());
            if has_read && isolation != self.isolation {
                return Err(SqlError::new("25001", "SET TRANSACTION ISOLATION LEVEL must be called before any query"));
            }
            self.isolation = isolation;
        }
        if let Some(read_only) = modes.read_only {
            if self.read_only && !read_only && self.work.as_ref().is_some_and(|work| work.snapshot.is_some()) {
                return Err(SqlError::new("25001", "transaction read-write mode must be set before any query"));
            }
            self.read_only = read_only;
        }
        Ok(())
    }

    /// A statement has failed: a block waits for its end, anything else is undone at once.
    pub(crate) fn fail(&mut self, variables: &mut Variables) {
        match self.phase {
            Phase::Block | Phase::Failed => {
                self.phase = Phase::Failed;
                // Locks and memory go now; savepoints stay to go back to.
                if let Some(work) = &mut self.work {
                    work.release_guards();
                }
            }
            Phase::Implicit => self.end(false, variables),
            Phase::Idle => {}
        }
    }

    /// Ends the transaction: what it has not committed is gone.
    pub(crate) fn end(&mut self, committed: bool, variables: &mut Variables) {
        if self.phase != Phase::Idle {
            if committed {
                variables.commit();
            } else {
                variables.rollback();
            }
        }
        *self = Self::idle();
    }

    /// SAVEPOINT name.
    pub(crate) fn savepoint(&mut self, name: &str, variables: &Variables) -> Result<()> {
        if self.savepoints.len() >= SAVEPOINT_LIMIT {
            return Err(SqlError::new("54000", "too many savepoints in one transaction"));
        }
        let work = self.work.as_ref().map(Work::mark).unwrap_or_default();
        let definitions = self.definitions.mark();
        self.savepoints.push(Savepoint { name: name.to_owned(), work, variables: variables.mark(), definitions });
        Ok(())
    }

    /// RELEASE name: it and all after it are forgotten, their changes stay.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        let position = self.find(name)?;
        self.savepoints.truncate(position);
        Ok(())
    }

    /// ROLLBACK TO name: what came after it is undone, and a failed block goes on. Answers the mark that definitions are to go back to.
    pub(crate) fn rollback_to(&mut self, name: &str, variables: &mut Variables) -> Result<usize> {
        let position = self.find(name)?;
        self.savepoints.truncate(position + 1);
        let savepoint = &self.savepoints[position];
        variables.restore(&savepoint.variables);
        if let Some(work) = &mut self.work {
            work.undo_to(&savepoint.work);
        }
        self.phase = Phase::Block;
        self.stream_failed = Arc::default();
        Ok(savepoint.definitions)
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.savepoints
            .iter()
            .rposition(|savepoint| savepoint.name == name)
            .ok_or_else(|| SqlError::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }
}

/// The level of that name.
pub(crate) fn level(name: &str) -> Option<IsolationLevel> {
    [IsolationLevel::ReadUncommitted, IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
        .into_iter()
        .find(|level| level.name() == name)
}
