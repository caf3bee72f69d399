//! The engine's errors, by what the caller must do.

use std::{any::Any, error::Error};

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
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

/// DataFusion's or Arrow's error out of a box, as one's own; the box if something else is in it.
pub fn unboxed<E: From<DataFusionError> + From<ArrowError>>(
    inner: Box<dyn Error + Send + Sync>,
) -> Result<E, Box<dyn Error + Send + Sync>> {
    match inner.downcast::<DataFusionError>() {
        Ok(known) => Ok((*known).into()),
        Err(other) => other.downcast::<ArrowError>().map(|known| (*known).into()),
    }
}

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_default()
}

/// An error of the code inside of an expression, which knows its SQLSTATE. Such code is written above the engine and reports its own errors
/// through DataFusion, in this box, so that the engine can tell what a row is to blame for, and who gets the error in the end finds it
/// as it was.
#[derive(Debug, Error)]
#[error("{inner}")]
pub struct EvaluationError {
    /// Five characters.
    pub sqlstate: &'static str,
    /// What to do about it.
    pub hint: Option<String>,
    /// The error; its text is the message.
    #[source]
    pub inner: Box<dyn Error + Send + Sync>,
}

/// SQLSTATE of a bug.
const INTERNAL_ERROR: &str = "XX000";

impl EngineError {
    /// An error that crossed DataFusion or Arrow in a box.
    fn from_boxed(inner: Box<dyn Error + Send + Sync>) -> Self {
        match inner.downcast::<Self>() {
            Ok(own) => *own,
            Err(other) => unboxed(other).unwrap_or_else(|other| Self::from_source(&*other)),
        }
    }

    /// An error that cannot be taken apart: what is known of it is looked for in its chain of sources.
    fn from_source(error: &(dyn Error + 'static)) -> Self {
        let mut link = Some(error);
        while let Some(error) = link {
            if let Some(known) = error.downcast_ref::<EvaluationError>()
                && known.sqlstate != INTERNAL_ERROR
            {
                return Self::User { sqlstate: known.sqlstate, message: known.to_string(), hint: known.hint.clone() };
            }
            if let Some(Self::User { sqlstate, message, hint }) = error.downcast_ref::<Self>() {
                return Self::User { sqlstate, message: message.clone(), hint: hint.clone() };
            }
            link = error.source();
        }
        Self::Internal(error.to_string())
    }
}

impl From<ArrowError> for EngineError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => Self::from_boxed(inner),
            ArrowError::DivideByZero => Self::user("22012", "division by zero"),
            ArrowError::ArithmeticOverflow(text) => Self::user("22003", format!("value out of range: {text}")),
            ArrowError::CastError(text) => Self::user("22P02", text),
            other => Self::Internal(other.to_string()),
        }
    }
}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::ArrowError(arrow, _) => (*arrow).into(),
            DataFusionError::External(inner) => Self::from_boxed(inner),
            DataFusionError::Shared(inner) => Self::from_source(&*inner),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => (*inner).into(),
            DataFusionError::ResourcesExhausted(text) => Self::user("53200", text),
            other => Self::Internal(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn state(error: impl Into<EngineError>) -> Option<(&'static str, String)> {
        match error.into() {
            EngineError::User { sqlstate, message, .. } => Some((sqlstate, message)),
            _ => None,
        }
    }

    #[test]
    fn an_error_of_expression_code_keeps_its_state() {
        let error = |sqlstate| EvaluationError { sqlstate, hint: None, inner: "integer out of range".into() };
        let boxed = |sqlstate| DataFusionError::External(Box::new(error(sqlstate)));
        let expected = Some(("22003", "integer out of range".to_owned()));
        assert_eq!(state(boxed("22003")), expected);
        assert_eq!(state(boxed("22003").context("while projecting")), expected);
        assert_eq!(state(DataFusionError::Shared(Arc::new(boxed("22003")))), expected);
        assert_eq!(state(ArrowError::ExternalError(Box::new(error("22003")))), expected);
        assert_eq!(state(boxed("XX000")), None);
    }
}
