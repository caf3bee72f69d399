//! The engine's errors, by what the caller must do.

use millpond_storage::error::StorageError;
use thiserror::Error;

/// Result of the engine.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// What can go wrong in a dataflow.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The user's data or settings are at fault: shown as it is, with its SQLSTATE.
    #[error("{message}")]
    User {
        /// Five characters.
        sqlstate: &'static str,
        /// Postgres' wording.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// Something outside failed and may work again: the job is restarted.
    #[error("{0}")]
    Retryable(String),
    /// Durable state: see the storage error.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The job or query was cancelled.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// A bug of ours.
    #[error("internal error: {0}")]
    Internal(String),
}

impl EngineError {
    /// A user error without a hint.
    pub fn user(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self::User { sqlstate, message: message.into(), hint: None }
    }
}

impl From<arrow::error::ArrowError> for EngineError {
    fn from(error: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError;
        match error {
            ArrowError::DivideByZero => Self::user("22012", "division by zero"),
            ArrowError::ArithmeticOverflow(text) => Self::user("22003", format!("value out of range: {text}")),
            ArrowError::CastError(text) => Self::user("22P02", text),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<datafusion::error::DataFusionError> for EngineError {
    fn from(error: datafusion::error::DataFusionError) -> Self {
        use datafusion::error::DataFusionError;
        match error {
            DataFusionError::ArrowError(arrow, _) => (*arrow).into(),
            DataFusionError::External(inner) => match inner.downcast::<EngineError>() {
                Ok(own) => *own,
                Err(other) => Self::Internal(other.to_string()),
            },
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => (*inner).into(),
            DataFusionError::ResourcesExhausted(text) => Self::user("53200", text),
            other => Self::Internal(other.to_string()),
        }
    }
}
