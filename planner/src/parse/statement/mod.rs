//! The statements Millpond knows, as read: names not yet resolved, expressions not yet bound.

mod copy;
mod definition;
mod session;

use std::sync::Arc;

use sqlparser::ast::{self, Expr, Ident, ObjectName, Query};

pub use self::{copy::*, definition::*, session::*};

/// A statement that WITH may stand before.
#[derive(Clone, Debug, PartialEq)]
pub struct WithCommon<T> {
    /// What WITH defines.
    pub with: Option<ast::With>,
    /// The statement itself.
    pub statement: T,
}

/// A statement with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedStatement {
    /// What it says.
    pub statement: Statement,
    /// Its own text, without the semicolon.
    pub text: String,
    /// The whole script it stands in: positions of errors count from its start.
    pub script: Arc<str>,
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// SELECT, VALUES, TABLE, WITH
    Query(Box<Query>),
    /// INSERT
    Insert(Box<ast::Insert>),
    /// UPDATE
    Update(Box<WithCommon<ast::Update>>),
    /// DELETE
    Delete(Box<WithCommon<ast::Delete>>),
    /// TRUNCATE
    Truncate {
        /// The tables.
        tables: Vec<ObjectName>,
        /// Dependants too.
        cascade: bool,
    },
    /// COPY
    Copy(Box<Copy>),
    /// CREATE TABLE
    CreateTable(Box<CreateTable>),
    /// CREATE TABLE .. AS, SELECT INTO
    CreateTableAs(Box<CreateTableAs>),
    /// CREATE SOURCE
    CreateSource(Box<CreateSource>),
    /// CREATE SINK
    CreateSink(Box<CreateSink>),
    /// CREATE VIEW and CREATE MATERIALIZED VIEW
    CreateView(Box<CreateView>),
    /// CREATE SCHEMA
    CreateSchema {
        /// Its name.
        name: Ident,
        /// No error if it is there.
        if_not_exists: bool,
    },
    /// CREATE INDEX
    CreateIndex(Box<CreateIndex>),
    /// DROP
    Drop(Drop),
    /// ALTER
    Alter(Box<Alter>),
    /// COMMENT ON
    Comment(Box<Comment>),
    /// BEGIN, COMMIT, SAVEPOINT ..
    Transaction(Transaction),
    /// SET
    Set(Set),
    /// SHOW of a setting or of a list of objects
    Show(Show),
    /// RESET
    Reset(ResetTarget),
    /// DISCARD
    Discard(DiscardTarget),
    /// PREPARE
    Prepare(Box<Prepare>),
    /// EXECUTE
    Execute {
        /// The prepared statement.
        name: Ident,
        /// Values of its parameters.
        arguments: Vec<Expr>,
    },
    /// DEALLOCATE; `None` means ALL
    Deallocate(Option<Ident>),
    /// DECLARE .. CURSOR
    DeclareCursor(Box<DeclareCursor>),
    /// FETCH and MOVE
    Fetch(Fetch),
    /// CLOSE; `None` means ALL
    CloseCursor(Option<Ident>),
    /// EXPLAIN
    Explain(Box<Explain>),
    /// ANALYZE; no tables means all
    Analyze(Vec<ObjectName>),
    /// VACUUM, which has nothing to do
    Vacuum,
    /// REFRESH MATERIALIZED VIEW, which has nothing to do either
    Refresh(ObjectName),
    /// FLUSH: returns when what was written before is in every view
    Flush,
    /// LISTEN, UNLISTEN and NOTIFY, which are accepted for drivers' sake; the tag to answer
    Notification(&'static str),
}

impl Statement {
    /// The tag of CommandComplete; for statements with counts, its first word.
    pub fn tag(&self) -> String {
        match self {
            Self::Query(_) => "SELECT".into(),
            Self::Insert(_) => "INSERT".into(),
            Self::Update(_) => "UPDATE".into(),
            Self::Delete(_) => "DELETE".into(),
            Self::Truncate { .. } => "TRUNCATE TABLE".into(),
            Self::Copy(_) => "COPY".into(),
            Self::CreateTable(_) => "CREATE TABLE".into(),
            Self::CreateTableAs(_) => "CREATE TABLE AS".into(),
            Self::CreateSource(_) => "CREATE SOURCE".into(),
            Self::CreateSink(_) => "CREATE SINK".into(),
            Self::CreateView(view) if view.materialized => "CREATE MATERIALIZED VIEW".into(),
            Self::CreateView(_) => "CREATE VIEW".into(),
            Self::CreateSchema { .. } => "CREATE SCHEMA".into(),
            Self::CreateIndex(_) => "CREATE INDEX".into(),
            Self::Drop(drop) => format!("DROP {}", drop.kind.keyword()),
            Self::Alter(alter) => format!("ALTER {}", alter.kind.keyword()),
            Self::Comment(_) => "COMMENT".into(),
            Self::Transaction(transaction) => transaction.tag().into(),
            Self::Set(_) => "SET".into(),
            Self::Show(_) => "SHOW".into(),
            Self::Reset(_) => "RESET".into(),
            Self::Discard(target) => match target {
                DiscardTarget::All => "DISCARD ALL".into(),
                DiscardTarget::Plans => "DISCARD PLANS".into(),
                DiscardTarget::Sequences => "DISCARD SEQUENCES".into(),
                DiscardTarget::Temp => "DISCARD TEMP".into(),
            },
            Self::Prepare(_) => "PREPARE".into(),
            Self::Execute { .. } => "EXECUTE".into(),
            Self::Deallocate(Some(_)) => "DEALLOCATE".into(),
            Self::Deallocate(None) => "DEALLOCATE ALL".into(),
            Self::DeclareCursor(_) => "DECLARE CURSOR".into(),
            Self::Fetch(fetch) if fetch.moves => "MOVE".into(),
            Self::Fetch(_) => "FETCH".into(),
            Self::CloseCursor(Some(_)) => "CLOSE CURSOR".into(),
            Self::CloseCursor(None) => "CLOSE CURSOR ALL".into(),
            Self::Explain(_) => "EXPLAIN".into(),
            Self::Analyze(_) => "ANALYZE".into(),
            Self::Vacuum => "VACUUM".into(),
            Self::Refresh(_) => "REFRESH MATERIALIZED VIEW".into(),
            Self::Flush => "FLUSH".into(),
            Self::Notification(tag) => (*tag).into(),
        }
    }

    /// Whether it may run in a transaction block that has failed.
    pub fn ends_failed_block(&self) -> bool {
        matches!(self, Self::Transaction(Transaction::Commit { .. } | Transaction::Rollback { .. } | Transaction::RollbackTo(_)))
    }
}
