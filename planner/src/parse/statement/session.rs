//! Statements about the session: transactions, settings, prepared statements, cursors, EXPLAIN.

use sqlparser::ast::{self, Ident, ObjectName, Query};

use super::{ObjectKind, ParsedStatement};

/// Isolation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationLevel {
    /// As READ COMMITTED
    ReadUncommitted,
    /// READ COMMITTED
    ReadCommitted,
    /// REPEATABLE READ
    RepeatableRead,
    /// SERIALIZABLE
    Serializable,
}

impl IsolationLevel {
    /// As SHOW shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

/// Modes of a transaction; what is not said is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// ISOLATION LEVEL
    pub isolation: Option<IsolationLevel>,
    /// READ ONLY or READ WRITE
    pub read_only: Option<bool>,
    /// [NOT] DEFERRABLE
    pub deferrable: Option<bool>,
}

/// Transaction control.
#[derive(Clone, Debug, PartialEq)]
pub enum Transaction {
    /// BEGIN, START TRANSACTION; the tag tells them apart
    Begin {
        /// Its modes.
        modes: TransactionModes,
        /// START TRANSACTION.
        start: bool,
    },
    /// COMMIT, END
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK, ABORT
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT
    Savepoint(Ident),
    /// RELEASE SAVEPOINT
    Release(Ident),
    /// ROLLBACK TO SAVEPOINT
    RollbackTo(Ident),
}

/// How long SET lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetScope {
    /// For the session, undone by ROLLBACK.
    Session,
    /// To the end of the transaction.
    Local,
}

/// SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Set {
    /// SET name = value; `None` means DEFAULT. Lists are joined by `, `.
    Setting {
        /// How long.
        scope: SetScope,
        /// Lower case.
        name: String,
        /// The value as text.
        value: Option<String>,
    },
    /// SET TRANSACTION
    Transaction(TransactionModes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION
    SessionTransaction(TransactionModes),
    /// SET CONSTRAINTS, which has nothing to do
    Constraints,
}

/// SHOW.
#[derive(Clone, Debug, PartialEq)]
pub enum Show {
    /// SHOW name
    Setting(String),
    /// SHOW ALL
    AllSettings,
    /// SHOW TABLES, SOURCES, SINKS, VIEWS, MATERIALIZED VIEWS, INDEXES, SCHEMAS [FROM schema] [LIKE pattern]
    Objects {
        /// What kind.
        kind: ObjectKind,
        /// FROM schema.
        schema: Option<Ident>,
        /// LIKE pattern.
        like: Option<String>,
    },
    /// SHOW JOBS
    Jobs,
    /// SHOW DATABASES
    Databases,
    /// SHOW COLUMNS FROM relation, DESCRIBE relation
    Columns(ObjectName),
    /// SHOW CREATE kind name
    Create {
        /// What kind.
        kind: ObjectKind,
        /// Which one.
        name: ObjectName,
    },
}

/// RESET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResetTarget {
    /// RESET ALL
    All,
    /// RESET name
    Setting(String),
}

/// DISCARD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardTarget {
    /// Everything of the session
    All,
    /// Cached plans
    Plans,
    /// Sequences
    Sequences,
    /// Temporary tables
    Temp,
}

/// PREPARE.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// Its name.
    pub name: Ident,
    /// Declared types of the first parameters.
    pub types: Vec<ast::DataType>,
    /// What is prepared.
    pub statement: ParsedStatement,
}

/// DECLARE .. CURSOR.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclareCursor {
    /// Its name.
    pub name: Ident,
    /// BINARY.
    pub binary: bool,
    /// SCROLL (`Some(true)`), NO SCROLL (`Some(false)`).
    pub scroll: Option<bool>,
    /// WITH HOLD.
    pub hold: bool,
    /// What it shows.
    pub query: Box<Query>,
}

/// How far FETCH and MOVE go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDirection {
    /// So many rows forward (`NEXT` is 1); negative goes back.
    Forward(i64),
    /// All that are left.
    ForwardAll,
    /// So many rows back (`PRIOR` is 1).
    Backward(i64),
    /// All before.
    BackwardAll,
    /// The row of this number; negative counts from the end (`FIRST` is 1, `LAST` is -1).
    Absolute(i64),
    /// The row so many from here.
    Relative(i64),
}

/// FETCH and MOVE.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetch {
    /// The cursor.
    pub cursor: Ident,
    /// How far.
    pub direction: FetchDirection,
    /// MOVE: only the position changes.
    pub moves: bool,
}

/// EXPLAIN.
#[derive(Clone, Debug, PartialEq)]
pub struct Explain {
    /// ANALYZE.
    pub analyze: bool,
    /// VERBOSE.
    pub verbose: bool,
    /// FORMAT, lower case.
    pub format: String,
    /// Other options, lower case, with their values.
    pub options: Vec<(String, Option<String>)>,
    /// What is explained.
    pub statement: ParsedStatement,
}

impl Transaction {
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Begin { start: false, .. } => "BEGIN",
            Self::Begin { start: true, .. } => "START TRANSACTION",
            Self::Commit { .. } => "COMMIT",
            Self::Rollback { .. } | Self::RollbackTo(_) => "ROLLBACK",
            Self::Savepoint(_) => "SAVEPOINT",
            Self::Release(_) => "RELEASE",
        }
    }
}
