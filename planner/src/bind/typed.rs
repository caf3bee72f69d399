//! A bound expression with its SQL type.

use arrow::datatypes::DataType;
use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, lit},
};
use sqlparser::tokenizer::Span;

use crate::types::{SqlType, modifier};

/// An expression of DataFusion's and what SQL knows of it. Unless the type is [`SqlType::Unknown`], the expression's Arrow type is
/// [`SqlType::arrow`] of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// What is evaluated.
    pub expr: Expr,
    /// Its type.
    pub sql_type: SqlType,
    /// Its typmod, where Postgres keeps one: columns and casts.
    pub modifier: i32,
    /// Where it is written, if it is a string constant whose type its place still has to tell.
    pub(super) written: Option<Span>,
}

impl Typed {
    /// An expression of a type.
    pub fn new(expr: Expr, sql_type: SqlType) -> Self {
        Self { expr, sql_type, modifier: modifier::NONE, written: None }
    }

    /// The same with a typmod.
    #[must_use]
    pub fn with_modifier(mut self, modifier: i32) -> Self {
        self.modifier = modifier;
        self
    }

    /// A constant.
    pub fn literal(value: ScalarValue, sql_type: SqlType) -> Self {
        Self::new(Expr::Literal(value, None), sql_type)
    }

    /// A string constant of no type yet, written at `span`.
    pub(super) fn unknown(text: &str, span: Option<Span>) -> Self {
        Self { written: span, ..Self::literal(ScalarValue::Utf8View(Some(text.to_owned())), SqlType::Unknown) }
    }

    /// NULL of a type.
    pub fn null(sql_type: SqlType) -> Self {
        Self::literal(null_of(&sql_type.arrow()), sql_type)
    }

    /// A boolean expression.
    pub fn boolean(expr: Expr) -> Self {
        Self::new(expr, SqlType::Boolean)
    }

    /// A text constant.
    pub fn text(value: &str) -> Self {
        Self::literal(ScalarValue::Utf8View(Some(value.to_owned())), SqlType::Text)
    }

    /// An integer constant.
    pub fn integer(value: i32) -> Self {
        Self::new(lit(value), SqlType::Integer)
    }

    /// A bigint constant.
    pub fn bigint(value: i64) -> Self {
        Self::new(lit(value), SqlType::BigInt)
    }

    /// Whether its place still has to tell its type.
    pub fn is_unknown(&self) -> bool {
        self.sql_type == SqlType::Unknown
    }

    /// The constant, if it is one.
    pub fn constant(&self) -> Option<&ScalarValue> {
        match &self.expr {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        }
    }

    /// The text of a string constant.
    pub fn constant_text(&self) -> Option<&str> {
        self.constant().and_then(|value| value.try_as_str().flatten())
    }

    /// The number of an integer constant.
    pub fn constant_integer(&self) -> Option<i64> {
        match self.constant()? {
            ScalarValue::Int16(Some(value)) => Some(i64::from(*value)),
            ScalarValue::Int32(Some(value)) => Some(i64::from(*value)),
            ScalarValue::Int64(Some(value)) => Some(*value),
            _ => None,
        }
    }

    /// Whether it is the constant NULL.
    pub fn is_null_constant(&self) -> bool {
        self.constant().is_some_and(ScalarValue::is_null)
    }
}

/// NULL of an Arrow type.
pub(super) fn null_of(data_type: &DataType) -> ScalarValue {
    ScalarValue::try_new_null(data_type).unwrap_or(ScalarValue::Null)
}
