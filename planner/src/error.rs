//! The planner's error: what the user wrote cannot be planned.

use datafusion::error::DataFusionError;

/// Result of the planner.
pub type Result<T, E = PlanError> = std::result::Result<T, E>;

/// An error with everything a Postgres client shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// Five characters.
    pub sqlstate: &'static str,
    /// What is wrong.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Position in the statement's text, in characters from 1.
    pub position: Option<u32>,
}

impl PlanError {
    /// An error with a code and a message.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None, position: None }
    }

    /// Something that is not supported (0A000).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("0A000", message)
    }

    /// A bug (XX000).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new("XX000", message)
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
}

impl From<PlanError> for DataFusionError {
    fn from(error: PlanError) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<DataFusionError> for PlanError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Self::from(*inner),
            DataFusionError::External(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::internal(other.to_string()),
            },
            DataFusionError::NotImplemented(text) => Self::unsupported(text),
            DataFusionError::Plan(text) => Self::new("42601", text),
            other => Self::internal(other.to_string()),
        }
    }
}
