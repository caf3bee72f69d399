//! What can go wrong between SQL text and a plan, in Postgres' words.
//!
//! Everything here is the user's to mend, except [`sqlstate::INTERNAL_ERROR`], which is a bug. Functions that are evaluated over rows wrap
//! the same error in `DataFusionError::External`, in the engine's box, so that [`PlanError::from`] finds it again wherever an expression was run.

use std::error::Error;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use millpond_engine::error::{EvaluationError, unboxed};
use sqlparser::tokenizer::{Location, Span};

/// Result of the planner.
pub type Result<T, E = PlanError> = std::result::Result<T, E>;

/// The SQLSTATE codes that the planner gives.
pub mod sqlstate {
    /// Not built yet, or never.
    pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
    /// More than one row where one was wanted.
    pub const CARDINALITY_VIOLATION: &str = "21000";
    /// A value longer than its type.
    pub const STRING_DATA_RIGHT_TRUNCATION: &str = "22001";
    /// A number outside its type.
    pub const NUMERIC_VALUE_OUT_OF_RANGE: &str = "22003";
    /// Text that is no date or time.
    pub const INVALID_DATETIME_FORMAT: &str = "22007";
    /// A date or time outside its type.
    pub const DATETIME_FIELD_OVERFLOW: &str = "22008";
    /// Division by zero.
    pub const DIVISION_BY_ZERO: &str = "22012";
    /// Nothing of that kind, e.g. a time zone name.
    pub const INVALID_PARAMETER_VALUE: &str = "22023";
    /// A regular expression that is none.
    pub const INVALID_REGULAR_EXPRESSION: &str = "2201B";
    /// LIMIT below zero.
    pub const INVALID_ROW_COUNT_IN_LIMIT: &str = "2201W";
    /// OFFSET below zero.
    pub const INVALID_ROW_COUNT_IN_OFFSET: &str = "2201X";
    /// Logarithm of zero or less.
    pub const INVALID_ARGUMENT_FOR_LOGARITHM: &str = "2201E";
    /// A root or power that has no real value.
    pub const INVALID_ARGUMENT_FOR_POWER: &str = "2201F";
    /// Text that is no value of the type.
    pub const INVALID_TEXT_REPRESENTATION: &str = "22P02";
    /// Array subscripts that are wrong.
    pub const ARRAY_SUBSCRIPT_ERROR: &str = "2202E";
    /// A trailing escape in a LIKE pattern.
    pub const INVALID_ESCAPE_SEQUENCE: &str = "22025";
    /// JSON text that is none.
    pub const INVALID_JSON_TEXT: &str = "22032";
    /// A NULL in a column that has none.
    pub const NOT_NULL_VIOLATION: &str = "23502";
    /// A CHECK that is false.
    pub const CHECK_VIOLATION: &str = "23514";
    /// Other objects depend on it.
    pub const DEPENDENT_OBJECTS_STILL_EXIST: &str = "2BP01";
    /// No such database.
    pub const INVALID_CATALOG_NAME: &str = "3D000";
    /// No such schema.
    pub const INVALID_SCHEMA_NAME: &str = "3F000";
    /// The text is no SQL.
    pub const SYNTAX_ERROR: &str = "42601";
    /// A column outside GROUP BY, or an aggregate where none may be.
    pub const GROUPING_ERROR: &str = "42803";
    /// A window function where none may be.
    pub const WINDOWING_ERROR: &str = "42P20";
    /// A recursive query that is wrong.
    pub const INVALID_RECURSION: &str = "42P19";
    /// Types that do not fit.
    pub const DATATYPE_MISMATCH: &str = "42804";
    /// A type that cannot become another.
    pub const CANNOT_COERCE: &str = "42846";
    /// Not that kind of object.
    pub const WRONG_OBJECT_TYPE: &str = "42809";
    /// No such function or operator.
    pub const UNDEFINED_FUNCTION: &str = "42883";
    /// Several functions or operators fit.
    pub const AMBIGUOUS_FUNCTION: &str = "42725";
    /// No such column.
    pub const UNDEFINED_COLUMN: &str = "42703";
    /// Several columns of that name.
    pub const AMBIGUOUS_COLUMN: &str = "42702";
    /// A column twice.
    pub const DUPLICATE_COLUMN: &str = "42701";
    /// No such relation.
    pub const UNDEFINED_TABLE: &str = "42P01";
    /// No such parameter.
    pub const UNDEFINED_PARAMETER: &str = "42P02";
    /// No such type, setting or other object.
    pub const UNDEFINED_OBJECT: &str = "42704";
    /// A relation of that name is there.
    pub const DUPLICATE_TABLE: &str = "42P07";
    /// A schema of that name is there.
    pub const DUPLICATE_SCHEMA: &str = "42P06";
    /// A FROM item twice.
    pub const DUPLICATE_ALIAS: &str = "42712";
    /// An object of that name is there.
    pub const DUPLICATE_OBJECT: &str = "42710";
    /// A column reference that cannot be, e.g. ON CONFLICT without a key.
    pub const INVALID_COLUMN_REFERENCE: &str = "42P10";
    /// A table definition that cannot be.
    pub const INVALID_TABLE_DEFINITION: &str = "42P16";
    /// An object definition that cannot be.
    pub const INVALID_OBJECT_DEFINITION: &str = "42P17";
    /// A parameter or literal whose type nothing tells.
    pub const INDETERMINATE_DATATYPE: &str = "42P18";
    /// Two uses of a parameter that do not agree.
    pub const AMBIGUOUS_PARAMETER: &str = "42P08";
    /// A name that is not for users.
    pub const RESERVED_NAME: &str = "42939";
    /// A table that must not be changed.
    pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
    /// Too deep.
    pub const STATEMENT_TOO_COMPLEX: &str = "54001";
    /// Too long.
    pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    /// Too many columns.
    pub const TOO_MANY_COLUMNS: &str = "54011";
    /// Memory.
    pub const OUT_OF_MEMORY: &str = "53200";
    /// The server's own fault.
    pub const INTERNAL_ERROR: &str = "XX000";
}

/// An error with everything a Postgres client shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlanError {
    /// Five characters, see [`sqlstate`].
    pub sqlstate: &'static str,
    /// Postgres' wording, lower case, no full stop.
    pub message: String,
    /// A second sentence.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Character in the script, counted from 1.
    pub position: Option<u32>,
    /// Line and column in the script, until [`PlanError::located_in`] turns them into a position.
    location: Option<(u32, u32)>,
}

impl PlanError {
    /// An error with a code and a message.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None, position: None, location: None }
    }

    /// Something that is not supported (0A000).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
    }

    /// A bug (XX000).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(sqlstate::INTERNAL_ERROR, message)
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

    /// The same at the start of `span`, unless it already has a place or the span is empty.
    #[must_use]
    pub fn at(self, span: Span) -> Self {
        self.at_location(span.start)
    }

    /// The same at `location`, unless it already has a place or the location is empty.
    #[must_use]
    pub fn at_location(mut self, location: Location) -> Self {
        if self.location.is_none() && self.position.is_none() && location.line > 0 {
            let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            self.location = Some((bounded(location.line), bounded(location.column)));
        }
        self
    }

    /// The same with its location, if it has one, turned into a position in `script`.
    #[must_use]
    pub fn located_in(mut self, script: &str) -> Self {
        if let Some((line, column)) = self.location.take() {
            let before: usize = script.split_inclusive('\n').take(line as usize - 1).map(|line| line.chars().count()).sum();
            self.position = u32::try_from(before).ok().and_then(|before| before.checked_add(column));
        }
        self
    }

    /// The same without a place: it was met in text that the user did not send.
    #[must_use]
    pub fn without_position(mut self) -> Self {
        (self.location, self.position) = (None, None);
        self
    }
}

impl From<PlanError> for EvaluationError {
    fn from(error: PlanError) -> Self {
        Self { sqlstate: error.sqlstate, hint: error.hint.clone(), inner: Box::new(error) }
    }
}

impl From<PlanError> for DataFusionError {
    fn from(error: PlanError) -> Self {
        Self::External(Box::new(EvaluationError::from(error)))
    }
}

impl From<PlanError> for ArrowError {
    fn from(error: PlanError) -> Self {
        Self::ExternalError(Box::new(EvaluationError::from(error)))
    }
}

impl From<ArrowError> for PlanError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => Self::from_boxed(inner),
            ArrowError::DivideByZero => Self::new(sqlstate::DIVISION_BY_ZERO, "division by zero"),
            ArrowError::ArithmeticOverflow(_) => Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range"),
            ArrowError::CastError(message) => Self::new(sqlstate::INVALID_TEXT_REPRESENTATION, message),
            ArrowError::ParseError(message) => Self::new(sqlstate::INVALID_TEXT_REPRESENTATION, message),
            ArrowError::ComputeError(message) => Self::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message),
            ArrowError::NotYetImplemented(message) => Self::unsupported(message),
            other => Self::internal(other.to_string()),
        }
    }
}

impl From<DataFusionError> for PlanError {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::External(inner) => Self::from_boxed(inner),
            DataFusionError::ArrowError(error, _) => Self::from(*error),
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => Self::from(*inner),
            DataFusionError::Shared(inner) => Self::from_shared(&inner),
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => Self::from(first),
                None => Self::internal("an empty collection of errors"),
            },
            DataFusionError::NotImplemented(message) => Self::unsupported(message),
            DataFusionError::ResourcesExhausted(message) => Self::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(message),
            DataFusionError::Plan(message) => Self::new(sqlstate::FEATURE_NOT_SUPPORTED, message),
            DataFusionError::Execution(message) => Self::from_execution(message),
            other => Self::internal(other.strip_backtrace()),
        }
    }
}

impl PlanError {
    /// An error that crossed DataFusion or Arrow in a box.
    fn from_boxed(inner: Box<dyn Error + Send + Sync>) -> Self {
        let inner = match inner.downcast::<EvaluationError>() {
            Ok(own) => own.inner,
            Err(other) => other,
        };
        match inner.downcast::<Self>() {
            Ok(own) => *own,
            Err(other) => unboxed(other).unwrap_or_else(|other| Self::internal(other.to_string())),
        }
    }

    /// A shared error cannot be taken apart; what it wraps is looked for in its chain of sources.
    fn from_shared(error: &DataFusionError) -> Self {
        let mut source: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(inner) = source {
            if let Some(found) = inner.downcast_ref::<Self>() {
                return found.clone();
            }
            source = inner.source();
        }
        match error.find_root() {
            DataFusionError::ResourcesExhausted(message) => {
                Self::new(sqlstate::OUT_OF_MEMORY, "out of memory").with_detail(message.clone())
            }
            DataFusionError::ArrowError(error, _) if matches!(error.as_ref(), ArrowError::DivideByZero) => {
                Self::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
            }
            DataFusionError::Execution(message) => Self::from_execution(message.clone()),
            DataFusionError::NotImplemented(message) => Self::unsupported(message.clone()),
            other => Self::internal(other.to_string()),
        }
    }

    /// DataFusion reports a few data errors as plain text only.
    fn from_execution(message: String) -> Self {
        if message.contains("returned more than one row") {
            return Self::new(sqlstate::CARDINALITY_VIOLATION, "more than one row returned by a subquery used as an expression");
        }
        Self::new(sqlstate::INTERNAL_ERROR, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_becomes_a_character_position() {
        let error = PlanError::new(sqlstate::SYNTAX_ERROR, "x").at_location(Location { line: 2, column: 3 });
        assert_eq!(error.located_in("né\nab c").position, Some(6));
    }

    #[test]
    fn an_error_survives_the_way_through_datafusion() {
        let error = PlanError::new(sqlstate::DIVISION_BY_ZERO, "division by zero").with_hint("h");
        let wrapped = DataFusionError::from(error.clone()).context("while projecting");
        assert_eq!(PlanError::from(wrapped), error);
        let arrow = DataFusionError::from(ArrowError::from(error.clone()));
        assert_eq!(PlanError::from(arrow), error);
        let shared = DataFusionError::Shared(std::sync::Arc::new(DataFusionError::from(error.clone()).context("c")));
        assert_eq!(PlanError::from(shared), error);
    }
}
