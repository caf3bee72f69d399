//! Errors and notices as a client sees them, and the one place where errors of the lower crates become such.

use std::{fmt, num::NonZeroU32};

use datafusion::{arrow::error::ArrowError, error::DataFusionError};
use millpond_engine::error::{EngineError, EvaluationError, unboxed};
use millpond_planner::{error::PlanError, pg_text::TextError};
use millpond_storage::error::StorageError;

/// Result of the session layer.
pub type Result<T, E = SqlError> = std::result::Result<T, E>;

/// How grave an error or notice is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The session ends.
    Fatal,
    /// Something to look at.
    Warning,
    /// Information.
    Notice,
    /// Information the user asked for.
    Info,
}

impl Severity {
    /// The word of the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
            Severity::Info => "INFO",
        }
    }
}

/// An error with everything the protocol can say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// How grave.
    pub severity: Severity,
    /// Five characters.
    pub sqlstate: String,
    /// Postgres' wording.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Where in the statement's text, in characters from 1.
    pub position: Option<NonZeroU32>,
    /// What was being done, e.g. which line of a COPY was read.
    pub context: Option<Box<str>>,
}

impl SqlError {
    /// An error with nothing but a state and a message.
    pub fn new(sqlstate: impl Into<String>, message: impl Into<String>) -> Self {
        let (sqlstate, message) = (sqlstate.into(), message.into());
        Self { severity: Severity::Error, sqlstate, message, detail: None, hint: None, position: None, context: None }
    }

    /// The same with a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with a context.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<Box<str>>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Not there yet (0A000).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("0A000", message)
    }

    /// A bug of ours (XX000).
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new("XX000", format!("internal error: {message}"))
    }

    /// The user cancelled (57014).
    pub fn cancelled() -> Self {
        Self::new("57014", "canceling statement due to user request")
    }

    /// `statement_timeout` has passed (57014).
    pub fn statement_timeout() -> Self {
        Self::new("57014", "canceling statement due to statement timeout")
    }

    /// The session ends because the server does, or because another session says so (57P01).
    pub fn terminated() -> Self {
        Self { severity: Severity::Fatal, ..Self::new("57P01", "terminating connection due to administrator command") }
    }

    /// `lock_timeout` has passed (55P03).
    pub fn lock_timeout() -> Self {
        Self::new("55P03", "canceling statement due to lock timeout")
    }

    /// `transaction_timeout` has passed (25P04).
    pub fn transaction_timeout() -> Self {
        Self { severity: Severity::Fatal, ..Self::new("25P04", "terminating connection due to transaction timeout") }
    }

    /// `idle_in_transaction_session_timeout` has passed (25P03).
    pub fn idle_in_transaction_timeout() -> Self {
        Self { severity: Severity::Fatal, ..Self::new("25P03", "terminating connection due to idle-in-transaction timeout") }
    }

    /// `idle_session_timeout` has passed (57P05).
    pub fn idle_session_timeout() -> Self {
        Self { severity: Severity::Fatal, ..Self::new("57P05", "terminating connection due to idle-session timeout") }
    }

    /// A statement other than ROLLBACK in a failed transaction block (25P02).
    pub fn failed_transaction() -> Self {
        Self::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
    }

    /// A transaction that cannot be committed because of what others did (40001).
    pub fn serialization(reason: &str) -> Self {
        Self::new("40001", format!("could not serialize access due to {reason}")).with_hint("The transaction might succeed if retried.")
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity.as_str(), self.message, self.sqlstate)
    }
}

impl std::error::Error for SqlError {}

/// Something said to the client beside the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How grave.
    pub severity: Severity,
    /// Five characters.
    pub sqlstate: String,
    /// The text.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Notice {
    /// A NOTICE (00000).
    pub fn information(message: impl Into<String>) -> Self {
        Self { severity: Severity::Notice, sqlstate: "00000".to_owned(), message: message.into(), hint: None }
    }

    /// A WARNING with a state of its own.
    pub fn warning(sqlstate: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, sqlstate: sqlstate.to_owned(), message: message.into(), hint: None }
    }
}

impl From<PlanError> for SqlError {
    fn from(error: PlanError) -> Self {
        let (detail, hint, position) = (error.detail, error.hint, error.position.and_then(NonZeroU32::new));
        Self { detail, hint, position, ..Self::new(error.sqlstate, error.message) }
    }
}

impl From<StorageError> for SqlError {
    fn from(error: StorageError) -> Self {
        let state = match &error {
            StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => "53100",
            StorageError::Io { .. } | StorageError::ObjectStore { .. } => "58030",
            StorageError::Corrupt { .. } | StorageError::Incompatible { .. } => "XX001",
            StorageError::Locked { .. } | StorageError::Fenced { .. } => "55006",
            StorageError::FallenBehind { .. } | StorageError::GivenUp { .. } => "55000",
            StorageError::Store(_) => "58000",
            StorageError::Internal(_) => "XX000",
        };
        Self::new(state, error.to_string())
    }
}

impl From<EngineError> for SqlError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::User { sqlstate, message, hint } => Self { hint, ..Self::new(sqlstate, message) },
            EngineError::Retryable(message) => Self::new("58000", message),
            EngineError::Storage(inner) => inner.into(),
            EngineError::Cancelled => Self::cancelled(),
            EngineError::Internal(message) => Self::internal(message),
        }
    }
}

impl From<ArrowError> for SqlError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::DivideByZero => Self::new("22012", "division by zero"),
            ArrowError::ArithmeticOverflow(_) => Self::new("22003", "value out of range"),
            ArrowError::ExternalError(inner) => from_boxed(inner),
            ArrowError::CastError(text) => Self::new("22P02", text),
            ArrowError::ParseError(text) => Self::new("22P02", text),
            ArrowError::ComputeError(text) => Self::new("22000", text),
            ArrowError::InvalidArgumentError(text) => Self::new("22023", text),
            ArrowError::MemoryError(text) => out_of_memory(text),
            other => Self::internal(other),
        }
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::ArrowError(arrow, _) => (*arrow).into(),
            DataFusionError::External(inner) => from_boxed(inner),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => (*inner).into(),
            DataFusionError::Shared(shared) => from_shared(&shared),
            DataFusionError::Collection(errors) => {
                errors.into_iter().next().map_or_else(|| Self::internal("an empty list of errors"), Self::from)
            }
            DataFusionError::ResourcesExhausted(text) => out_of_memory(text),
            DataFusionError::NotImplemented(text) => Self::unsupported(text),
            DataFusionError::Plan(text) => Self::new("42601", text),
            DataFusionError::SchemaError(inner, _) => Self::new("42703", inner.to_string()),
            DataFusionError::SQL(inner, _) => Self::new("42601", inner.to_string()),
            DataFusionError::Execution(text) => from_execution_text(text),
            DataFusionError::IoError(inner) if inner.kind() == std::io::ErrorKind::StorageFull => Self::new("53100", inner.to_string()),
            DataFusionError::IoError(inner) => Self::new("58030", inner.to_string()),
            DataFusionError::Configuration(text) => Self::new("22023", text),
            other => Self::internal(other.strip_backtrace()),
        }
    }
}

fn out_of_memory(detail: String) -> SqlError {
    SqlError::new("53200", "out of memory").with_detail(detail).with_hint("Raise the server's memory limit, or ask for fewer rows.")
}

/// Errors that crossed DataFusion in a box keep what they are.
fn from_boxed(inner: Box<dyn std::error::Error + Send + Sync>) -> SqlError {
    let inner = match inner.downcast::<EvaluationError>() {
        Ok(own) => own.inner,
        Err(other) => other,
    };
    let inner = match inner.downcast::<SqlError>() {
        Ok(own) => return *own,
        Err(other) => other,
    };
    let inner = match inner.downcast::<PlanError>() {
        Ok(own) => return (*own).into(),
        Err(other) => other,
    };
    let inner = match inner.downcast::<TextError>() {
        Ok(own) => return (*own).into(),
        Err(other) => other,
    };
    let inner = match inner.downcast::<EngineError>() {
        Ok(own) => return (*own).into(),
        Err(other) => other,
    };
    let inner = match inner.downcast::<StorageError>() {
        Ok(own) => return (*own).into(),
        Err(other) => other,
    };
    unboxed(inner).unwrap_or_else(SqlError::internal)
}

/// An error shared by several partitions cannot be taken apart, only looked at.
fn from_shared(shared: &DataFusionError) -> SqlError {
    match shared {
        DataFusionError::External(inner) => {
            if let Some(own) = inner.downcast_ref::<SqlError>() {
                return own.clone();
            }
            let evaluated = inner.downcast_ref::<EvaluationError>().map_or(inner, |own| &own.inner);
            if let Some(own) = evaluated.downcast_ref::<PlanError>() {
                return own.clone().into();
            }
            match inner.downcast_ref::<EngineError>() {
                Some(EngineError::User { sqlstate, message, hint }) => SqlError { hint: hint.clone(), ..SqlError::new(*sqlstate, message) },
                Some(EngineError::Cancelled) => SqlError::cancelled(),
                _ => SqlError::internal(inner),
            }
        }
        DataFusionError::ArrowError(inner, _) => match &**inner {
            ArrowError::DivideByZero => ArrowError::DivideByZero.into(),
            ArrowError::ArithmeticOverflow(text) => ArrowError::ArithmeticOverflow(text.clone()).into(),
            ArrowError::CastError(text) => ArrowError::CastError(text.clone()).into(),
            other => SqlError::internal(other),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_shared(inner),
        DataFusionError::Shared(inner) => from_shared(inner),
        DataFusionError::ResourcesExhausted(text) => out_of_memory(text.clone()),
        DataFusionError::Execution(text) => from_execution_text(text.clone()),
        DataFusionError::NotImplemented(text) => SqlError::unsupported(text),
        other => SqlError::internal(other.strip_backtrace()),
    }
}

/// DataFusion's own run-time refusals come as text only.
fn from_execution_text(text: String) -> SqlError {
    let lower = text.to_ascii_lowercase();
    if lower.contains("more than one row") || lower.contains("more than 1 row") {
        return SqlError::new("21000", "more than one row returned by a subquery used as an expression");
    }
    if lower.contains("overflow") {
        return SqlError::new("22003", "value out of range");
    }
    if lower.contains("divide by zero") || lower.contains("division by zero") {
        return SqlError::new("22012", "division by zero");
    }
    SqlError::new("22000", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boxed_error_keeps_its_state() {
        let inner = EngineError::user("23505", "duplicate key value violates unique constraint \"t_pkey\"");
        let outer = DataFusionError::Context("while running".into(), Box::new(DataFusionError::External(Box::new(inner))));
        let error = SqlError::from(outer);
        assert_eq!(error.sqlstate, "23505");
        assert_eq!(error.message, "duplicate key value violates unique constraint \"t_pkey\"");
    }

    #[test]
    fn arithmetic_has_postgres_states() {
        assert_eq!(SqlError::from(DataFusionError::from(ArrowError::DivideByZero)).sqlstate, "22012");
        let shared = DataFusionError::Shared(std::sync::Arc::new(ArrowError::DivideByZero.into()));
        assert_eq!(SqlError::from(shared).sqlstate, "22012");
        assert_eq!(SqlError::from(DataFusionError::ResourcesExhausted("x".into())).sqlstate, "53200");
    }
}
