//! One connection's session: its settings, its transaction, its prepared statements and cursors. The wire layer owns the socket and calls
//! in here; everything a statement does beyond parsing messages happens behind this seam.

pub(crate) mod activity;
pub mod cancel;
pub(crate) mod notices;
mod parsing;
pub(crate) mod prepared;
pub(crate) mod settings;
pub(crate) mod text;
pub(crate) mod time_zone;
mod timeouts;
pub(crate) mod transaction;
pub(crate) mod variables;
pub(crate) mod view;

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use millpond_planner::{
    catalog::Catalog,
    functions::clock::Clock,
    parse::{self, Statement},
    pg_text::TextSettings,
};
use millpond_storage::env::Clock as SystemClock;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    act::{copy::Lent, cursor::Cursors, dml::work::Work},
    answer::{Answer, Column},
    error::{Notice, Result, SqlError},
    session::{
        activity::SessionEntry,
        cancel::{Cancel, CancelHandle},
        notices::Notices,
        prepared::PreparedStatements,
        timeouts::Timeouts,
        transaction::{Phase, Transaction},
        variables::Variables,
        view::SessionView,
    },
    state::ServerState,
    statement::{self, Parameters},
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

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterType {
    /// The Arrow type of its values.
    pub data_type: arrow::datatypes::DataType,
    /// OID of the Postgres type.
    pub oid: i32,
}

/// A statement of a simple query.
#[derive(Clone, Debug)]
pub struct ParsedStatement(pub(crate) Arc<parse::ParsedStatement>);

/// A statement with its parameter and result types. It may be executed any number of times.
#[derive(Clone)]
pub struct Prepared {
    /// Types of `$1`, `$2`, ...
    pub parameter_types: Vec<ParameterType>,
    /// The columns of the answer, `None` when there are none.
    pub columns: Option<Vec<Column>>,
    /// The statement with its plan; `None` for an empty one.
    pub(crate) plan: Option<Arc<statement::PreparedPlan>>,
}

/// Which protocol a statement came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    /// As the last of its script, or not.
    Simple { is_last: bool },
    /// Its transaction ends at the next Sync.
    Extended,
}

/// One per connection.
pub struct Session {
    pub(crate) server: Arc<ServerState>,
    info: SessionInfo,
    notices: UnboundedSender<Notice>,
    pub(crate) variables: Variables,
    pub(crate) transaction: Transaction,
    pub(crate) cursors: Cursors,
    /// Those with a name.
    pub(crate) prepared: PreparedStatements,
    cancel: CancelHandle,
    clock: SystemClock,
    activity: SessionEntry,
    /// A COPY that has the transaction's work.
    lent: Option<Arc<Mutex<Lent>>>,
    /// How long the text of the next statement took to parse.
    parsing: Duration,
    timeouts: Timeouts,
    /// When the statement that runs began, microseconds since 1970.
    statement_us: i64,
    /// The text settings, with the variables' generation they were made from.
    text: (u64, TextSettings),
}

impl Session {
    /// A session for a client that has been let in. Notices go out as they come, also while a statement runs.
    pub fn new(server: Arc<ServerState>, info: SessionInfo, notices: UnboundedSender<Notice>) -> Self {
        let requested = [("application_name".to_owned(), info.application_name.clone())];
        let mut variables = Variables::new(&requested).unwrap_or_else(|_| Variables::new(&[]).expect("the defaults are legal"));
        variables.preset("session_authorization", &info.user);
        variables.preset("max_connections", &server.config.max_connections.to_string());
        let clock = SystemClock::system();
        let now_us = clock.wall_micros();
        let cancel = CancelHandle::default();
        let activity = server.sessions.enter(&info, &cancel, now_us);
        let text = (variables.generation(), text::of_variables(&variables, now_us));
        let timeouts = Timeouts::of(&variables);
        Self {
            server,
            info,
            notices,
            variables,
            transaction: Transaction::idle(),
            cursors: Cursors::default(),
            prepared: PreparedStatements::default(),
            cancel,
            clock,
            activity,
            lent: None,
            parsing: Duration::ZERO,
            timeouts,
            statement_us: now_us,
            text,
        }
    }

    /// Takes a setting that the client asked for at its start. Unknown ones are ignored.
    ///
    /// # Errors
    /// 22023 for a value that the setting cannot have.
    pub fn set_at_start(&mut self, name: &str, value: &str) -> Result<()> {
        self.variables.set_at_start(name, value)
    }

    /// For ReadyForQuery.
    pub fn transaction_status(&self) -> TransactionStatus {
        match &self.lent {
            Some(lent) if lent.lock().failed && self.transaction.phase() == Phase::Block => TransactionStatus::Failed,
            _ => self.transaction.status(),
        }
    }

    /// The value of a setting.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.variables.get(name)
    }

    /// Reported settings that have changed since the last call, with their new values.
    pub fn changed_parameters(&mut self) -> Vec<(String, String)> {
        self.variables.take_changed()
    }

    /// How the session wants values to look.
    pub fn text_settings(&self) -> TextSettings {
        self.text.1.clone()
    }

    /// Ends the statement that runs.
    pub fn cancel_token(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// The statements of a simple query. None of it is executed if any of it does not parse.
    ///
    /// # Errors
    /// 42601 with the position in the text.
    pub fn parse_script(&mut self, sql: &str) -> Result<Vec<ParsedStatement>> {
        Ok(self.parse(sql)?.into_iter().map(|statement| ParsedStatement(Arc::new(statement))).collect())
    }

    /// Executes a statement of a simple query. All statements of a script are one transaction unless it says otherwise.
    ///
    /// # Errors
    /// The statement's. A block has then failed; outside of one the statement has not happened.
    pub async fn execute_simple(&mut self, statement: ParsedStatement, is_last_of_script: bool) -> Result<Answer> {
        let text: Arc<str> = Arc::from(statement.0.text.as_str());
        let cancel = self.start(&statement.0.statement, text)?;
        let result = Box::pin(statement::execute(self, &statement.0, Parameters::none(), &cancel)).await;
        self.end(result, Protocol::Simple { is_last: is_last_of_script }, &cancel).await
    }

    /// Parses and binds a statement with parameters; a type that is not given is inferred.
    ///
    /// # Errors
    /// Whatever is wrong with the statement, 42P18 for a parameter whose type nothing tells.
    pub async fn prepare(&mut self, sql: &str, parameter_types: &[Option<i32>]) -> Result<Prepared> {
        let result = self.prepare_statement(sql, parameter_types).await;
        if result.is_err() {
            self.transaction.fail(&mut self.variables);
        }
        result
    }

    async fn prepare_statement(&mut self, sql: &str, parameter_types: &[Option<i32>]) -> Result<Prepared> {
        let mut statements = self.parse(sql)?;
        let Some(parsed) = statements.pop() else {
            return Ok(Prepared { parameter_types: Vec::new(), columns: None, plan: None });
        };
        if !statements.is_empty() {
            return Err(SqlError::new("42601", "cannot insert multiple commands into a prepared statement"));
        }
        self.take_back();
        if self.transaction.phase() == Phase::Failed && !parsed.statement.ends_failed_block() {
            return Err(SqlError::failed_transaction());
        }
        self.statement_us = self.clock.wall_micros();
        self.refresh_text();
        let cancel = self.start_cancel();
        statement::prepare(self, parsed, parameter_types, &cancel).await
    }

    /// Executes a prepared statement.
    ///
    /// # Errors
    /// As [`Self::execute_simple`].
    pub async fn execute_prepared(&mut self, prepared: &Prepared, parameters: Vec<Option<ScalarValue>>) -> Result<Answer> {
        let Some(plan) = prepared.plan.clone() else { return Ok(Answer::Empty) };
        let cancel = self.start(&plan.parsed.statement, plan.text.clone())?;
        let result = Box::pin(statement::execute_prepared(self, &plan, parameters, &cancel)).await;
        self.end(result, Protocol::Extended, &cancel).await
    }

    /// The client's Sync: the implicit transaction is committed. An error is to be sent before ReadyForQuery, in the place of nothing.
    ///
    /// # Errors
    /// What kept it from being committed; nothing of it has happened then.
    pub async fn sync(&mut self) -> Result<()> {
        self.take_back();
        if self.transaction.phase() != Phase::Implicit {
            return Ok(());
        }
        let cancel = self.start_cancel();
        let result = self.commit(&cancel).await;
        self.note_idle();
        result
    }

    /// A statement whose answer had been given has failed after all, or its parameters were no values of their types: the transaction
    /// fails with it. Called after every error that a client is told; a second time changes nothing.
    pub fn statement_failed(&mut self) {
        self.take_back();
        self.transaction.fail(&mut self.variables);
        self.note_idle();
    }

    /// The connection has ended: an open transaction is rolled back.
    pub async fn close(mut self) {
        self.rollback().await;
        self.cursors.clear();
    }

    /// Sends a notice, unless the client does not want to hear of its kind.
    pub(crate) fn notify(&self, notice: Notice) {
        self.notices().send(notice);
    }

    /// For who has something to say when the statement has been answered already.
    pub(crate) fn notices(&self) -> Notices {
        Notices::new(self.notices.clone(), self.variables.get("client_min_messages").as_deref())
    }

    /// Who is on the other side.
    pub(crate) fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// When the transaction began: what `now()` says.
    pub(crate) fn now_us(&self) -> i64 {
        if self.transaction.phase() == Phase::Idle { self.statement_us } else { self.transaction.began_us }
    }

    /// When the statement began: what `statement_timestamp()` says.
    pub(crate) fn statement_us(&self) -> i64 {
        self.statement_us
    }

    /// The times that a statement sees.
    pub(crate) fn times(&self) -> Clock {
        Clock { transaction_us: self.now_us(), statement_us: self.statement_us }
    }

    /// The transaction's work; it begins here if it has not begun.
    pub(crate) fn work(&mut self) -> &mut Work {
        let memory = &self.server.memory;
        self.transaction.work.get_or_insert_with(|| Work::new(memory))
    }

    /// Outside of a block a statement that writes begins an implicit transaction.
    pub(crate) fn begin_implicit(&mut self) {
        if self.transaction.phase() == Phase::Idle {
            self.begin_transaction(Phase::Implicit);
        }
    }

    /// Begins a transaction, or takes over the implicit one.
    pub(crate) fn begin_transaction(&mut self, phase: Phase) {
        let now = (self.statement_us, self.clock.monotonic());
        self.transaction.begin(phase, now, &mut self.variables);
    }

    /// Statements that write are refused in a read-only transaction.
    pub(crate) fn require_writable(&self, what: &str) -> Result<()> {
        let read_only = match self.transaction.phase() {
            Phase::Idle => self.variables.get("default_transaction_read_only").is_some_and(|value| value == "on"),
            _ => self.transaction.read_only,
        };
        if read_only { Err(SqlError::new("25006", format!("cannot execute {what} in a read-only transaction"))) } else { Ok(()) }
    }

    /// Schemas in which names are looked for.
    pub(crate) fn search_path(&self) -> Vec<String> {
        let listed = settings::split_names(&self.variables.get("search_path").unwrap_or_default());
        // The server's own schema is nobody's, though it has the name of its user.
        let own = |user: &str| ["millpond", "pg_catalog", "information_schema"].contains(&user);
        let named = listed.into_iter().filter(|name| name != "$user" || !own(&self.info.user));
        named.map(|name| if name == "$user" { self.info.user.clone() } else { name }).collect()
    }

    /// The catalog as the session's transaction sees it.
    pub(crate) fn catalog(&self) -> Catalog {
        self.transaction.definitions.seen(self.server.catalog.snapshot())
    }

    /// Commits the transaction, whatever it is. While it waits for locks it can be cancelled.
    pub(crate) async fn commit(&mut self, cancel: &Cancel) -> Result<()> {
        let server = self.server.clone();
        let result = match self.transaction.work.take() {
            Some(work) => work.commit(&server.engine, cancel).await,
            None => Ok(()),
        };
        let result = match result {
            Ok(()) => self.transaction.definitions.finish(&server).await,
            Err(error) => {
                self.transaction.definitions.undo_to(&server, 0).await;
                Err(error)
            }
        };
        self.transaction.end(result.is_ok(), &mut self.variables);
        self.cursors.end_transaction(result.is_ok());
        result
    }

    /// Rolls the transaction back.
    pub(crate) async fn rollback(&mut self) {
        let server = self.server.clone();
        self.transaction.work = None;
        self.transaction.definitions.undo_to(&server, 0).await;
        self.transaction.end(false, &mut self.variables);
        self.cursors.end_transaction(false);
    }

    /// Lends the transaction's work to a COPY.
    pub(crate) fn lend_work(&mut self) -> Arc<Mutex<Lent>> {
        let lent = Arc::new(Mutex::new(Lent { work: self.transaction.work.take(), failed: false, ended: false }));
        self.lent = Some(lent.clone());
        lent
    }

    /// The session as system relations and functions see it.
    pub(crate) fn view(&self) -> SessionView {
        SessionView {
            user: self.info.user.clone(),
            database: self.info.database.clone(),
            settings: self.variables.show_all().into_iter().map(|(name, value, _)| (name.to_owned(), value)).collect(),
            cursors: self.cursors.list(),
            prepared: self.prepared.list(),
        }
    }

    fn start(&mut self, statement: &Statement, text: Arc<str>) -> Result<Cancel> {
        self.take_back();
        if self.transaction.phase() == Phase::Failed && !statement.ends_failed_block() {
            return Err(SqlError::failed_transaction());
        }
        self.statement_us = self.clock.wall_micros();
        self.refresh_text();
        self.activity.start(text, self.statement_us);
        // A second statement before the Sync does not rest on the lock of the first.
        if let Some(work) = &mut self.transaction.work {
            work.release_guards();
        }
        Ok(self.start_cancel())
    }

    /// A script's statements after the first, and those before a Sync, are of one transaction; a statement alone is committed here.
    async fn end(&mut self, result: Result<Answer>, protocol: Protocol, cancel: &Cancel) -> Result<Answer> {
        let result = match (result, protocol, self.transaction.phase()) {
            (Ok(answer), Protocol::Simple { is_last: true }, Phase::Implicit) if !matches!(answer, Answer::CopyIn { .. }) => {
                self.commit(cancel).await.map(|()| answer)
            }
            (Ok(answer), Protocol::Simple { is_last: false }, Phase::Idle) => {
                self.begin_implicit();
                Ok(answer)
            }
            (Ok(answer), Protocol::Extended, Phase::Implicit) => {
                self.watch_locks();
                Ok(answer)
            }
            (other, ..) => other,
        };
        match result {
            Ok(Answer::Rows { columns, stream, tag }) if self.transaction.phase() == Phase::Block => {
                // A failure while rows are sent fails the block.
                let failure = self.transaction.stream_failure();
                let stream = stream.inspect(move |batch| {
                    if batch.is_err() {
                        failure.store(true, Ordering::Release);
                    }
                });
                self.note_idle();
                Ok(Answer::Rows { columns, stream: stream.boxed(), tag })
            }
            Ok(answer) => {
                self.note_idle();
                Ok(answer)
            }
            Err(error) => {
                self.transaction.fail(&mut self.variables);
                self.note_idle();
                // A statement that was cancelled may have failed otherwise first: the cancel is what the client asked for.
                if error.sqlstate == "XX000" { Err(cancel.check().err().unwrap_or(error)) } else { Err(error) }
            }
        }
    }

    /// Takes the transaction's work back from a COPY that has ended.
    fn take_back(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        let mut lent = lent.lock();
        self.transaction.work = lent.work.take();
        if lent.failed || !lent.ended {
            self.transaction.fail(&mut self.variables);
        }
    }

    fn note_idle(&mut self) {
        let state = match self.transaction.status() {
            TransactionStatus::Idle => "idle",
            TransactionStatus::InBlock => "idle in transaction",
            TransactionStatus::Failed => "idle in transaction (aborted)",
        };
        let began = (self.transaction.phase() != Phase::Idle).then_some(self.transaction.began_us);
        self.activity.end(state, began, self.statement_us);
        if self.text.0 != self.variables.generation() {
            self.refresh_text();
        }
    }
}
