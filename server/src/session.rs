//! One connection's session: its settings, its transaction, its prepared statements and cursors. The wire layer owns the socket and calls
//! in here; everything a statement does beyond parsing messages happens behind this seam.

pub mod cancel;
pub(crate) mod settings;
pub(crate) mod time_zone;
pub(crate) mod variables;

use std::{net::SocketAddr, sync::Arc};

use datafusion::scalar::ScalarValue;
use millpond_planner::pg_text::TextSettings;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    answer::{Answer, Column},
    error::{Notice, Result, SqlError},
    session::{cancel::CancelHandle, variables::Variables},
    state::ServerState,
};

/// Who is on the other side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The user.
    pub user: String,
    /// The database.
    pub database: String,
    /// What the client calls itself.
    pub application_name: String,
    /// The number the client cancels by.
    pub process_id: i32,
    /// The secret that goes with it.
    pub secret_key: i32,
    /// Where it comes from.
    pub peer: Option<SocketAddr>,
}

/// What ReadyForQuery says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionStatus {
    /// Not in a transaction block.
    Idle,
    /// In a transaction block.
    InBlock,
    /// In a failed transaction block.
    Failed,
}

/// A Postgres type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlType {
    /// The Arrow type of its values.
    pub data_type: arrow::datatypes::DataType,
    /// Its OID.
    pub oid: i32,
}

/// A statement of a simple query.
#[derive(Clone, Debug)]
pub struct ParsedStatement {
    pub(crate) text: String,
}

/// A statement with its parameter and result types. It may be executed any number of times.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The statement.
    pub statement: ParsedStatement,
    /// Types of `$1`, `$2`, ...
    pub parameter_types: Vec<SqlType>,
    /// The columns of the answer, `None` when there are none.
    pub columns: Option<Vec<Column>>,
}

/// One per connection.
pub struct Session {
    server: Arc<ServerState>,
    info: SessionInfo,
    notices: UnboundedSender<Notice>,
    variables: Variables,
    cancel: CancelHandle,
}

impl Session {
    /// A session for a client that has been let in. Notices go out as they come, also while a statement runs.
    pub fn new(server: Arc<ServerState>, info: SessionInfo, notices: UnboundedSender<Notice>) -> Self {
        let requested = [("application_name".to_owned(), info.application_name.clone())];
        let mut variables = Variables::new(&requested).unwrap_or_else(|_| Variables::new(&[]).expect("the defaults are legal"));
        variables.preset("session_authorization", &info.user);
        Self { server, info, notices, variables, cancel: CancelHandle::default() }
    }

    /// For ReadyForQuery.
    pub fn transaction_status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }

    /// The value of a setting.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.variables.get(name)
    }

    /// Reported settings that have changed since the last call, with their new values.
    pub fn changed_parameters(&mut self) -> Vec<(String, String)> {
        self.variables.take_changed()
    }

    /// Takes a setting that the client asked for at its start. Unknown ones are ignored.
    ///
    /// # Errors
    /// 22023 for a value that the setting cannot have.
    pub fn set_at_start(&mut self, name: &str, value: &str) -> Result<()> {
        self.variables.set(name, value, false)
    }

    /// How the session wants values to look.
    pub fn text_settings(&self) -> TextSettings {
        TextSettings::default()
    }

    /// Ends the statement that runs.
    pub fn cancel_token(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The statements of a simple query. None of it is executed if any of it does not parse.
    pub fn parse_script(&mut self, sql: &str) -> Result<Vec<ParsedStatement>> {
        Ok(vec![ParsedStatement { text: sql.to_owned() }])
    }

    /// Executes a statement of a simple query. All statements of a script are one transaction unless it says otherwise.
    pub async fn execute_simple(&mut self, statement: ParsedStatement, _is_last_of_script: bool) -> Result<Answer> {
        Err(SqlError::unsupported(format!("not supported: {}", statement.text)))
    }

    /// Parses and binds a statement with parameters; a type that is not given is inferred.
    pub async fn prepare(&mut self, sql: &str, _parameter_types: &[Option<i32>]) -> Result<Prepared> {
        Ok(Prepared { statement: ParsedStatement { text: sql.to_owned() }, parameter_types: Vec::new(), columns: None })
    }

    /// Executes a prepared statement.
    pub async fn execute_prepared(&mut self, prepared: &Prepared, _parameters: Vec<Option<ScalarValue>>) -> Result<Answer> {
        Err(SqlError::unsupported(format!("not supported: {}", prepared.statement.text)))
    }

    /// The client's Sync: the implicit transaction is committed. An error is to be sent before ReadyForQuery, in the place of nothing.
    pub async fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// A statement whose answer had been given has failed after all, or its parameters were no values of their types: the transaction
    /// fails with it. Called after every error that a client is told, so a second time must change nothing.
    pub fn statement_failed(&mut self) {}

    /// The connection has ended: an open transaction is rolled back.
    pub async fn close(self) {
        let _ = (self.server, self.info, self.notices);
    }
}
