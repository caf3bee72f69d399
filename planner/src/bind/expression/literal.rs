//! Constants and parameters.

use arrow::datatypes::i256;
use datafusion::{common::ScalarValue, logical_expr::lit};
use sqlparser::{
    ast::{self, Spanned, Value, ValueWithSpan},
    tokenizer::Span,
};

use super::{Place, strip};
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    error::{PlanError, Result, sqlstate},
    functions::cast,
    types::{NUMERIC_MAX_PRECISION, SqlType, coercion::CoercionContext, decimal::Digits, modifier, name::from_ast},
};

impl Binder<'_> {
    pub(super) fn value(&self, value: &ValueWithSpan) -> Result<Typed> {
        match &value.value {
            Value::Number(text, _) => number(text, value.span),
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => Ok(Typed::unknown(text, Some(value.span))),
            Value::DollarQuotedString(text) => Ok(Typed::unknown(&text.value, Some(value.span))),
            Value::Boolean(value) => Ok(Typed::boolean(lit(*value))),
            Value::Null => Ok(Typed::literal(ScalarValue::Null, SqlType::Unknown)),
            Value::Placeholder(text) => self.parameter(text, value.span),
            Value::SingleQuotedByteStringLiteral(_) | Value::HexStringLiteral(_) => {
                Err(PlanError::unsupported("bit strings are not supported").with_hint("Use bytea or an integer.").at(value.span))
            }
            other => Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{other}\"")).at(value.span)),
        }
    }

    /// `DATE '2031-01-01'`
    pub(super) fn typed_string(&self, typed: &ast::TypedString) -> Result<Typed> {
        let span = typed.value.span;
        let (sql_type, declared) = from_ast(&typed.data_type).map_err(|error| error.at(span))?;
        let text = self.value(&typed.value)?;
        self.cast_to(text, &sql_type, declared, span)
    }

    /// `INTERVAL '10' SECOND`, `INTERVAL '1 day'`
    pub(super) fn interval(&self, interval: &ast::Interval, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = interval.value.span();
        let value = self.expression(&interval.value, scope, &place.in_value())?;
        if interval.leading_field.is_none() {
            return self.coerce(value, &SqlType::Interval, CoercionContext::Explicit, span);
        }
        let text = match value.constant() {
            Some(constant) if value.is_unknown() => constant.try_as_str().flatten().map(str::to_owned),
            Some(ScalarValue::Int32(Some(number))) => Some(number.to_string()),
            Some(ScalarValue::Int64(Some(number))) => Some(number.to_string()),
            _ => None,
        };
        let Some(text) = text else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "the value of an interval literal has to be a string").at(span));
        };
        let (leading, last) = (interval.leading_field.as_ref(), interval.last_field.as_ref());
        let literal = cast::read_interval_with_fields(self, &text, leading, last).map_err(|error| error.at(span))?;
        let value = Typed::literal(literal, SqlType::Interval);
        match interval.fractional_seconds_precision {
            Some(digits) => self.fit_modifier(value, digits.min(6) as i32, true, span),
            None => Ok(value),
        }
    }

    /// `-1` as one constant, so that the smallest integers can be written.
    pub(super) fn negative_literal(&self, operand: &ast::Expr) -> Result<Option<Typed>> {
        match strip(operand) {
            ast::Expr::Value(ValueWithSpan { value: Value::Number(text, _), span }) if !matches!(operand, ast::Expr::Nested(_)) => {
                number(&format!("-{text}"), *span).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// A number that is no integer, as the text that it is written as.
pub(super) fn fraction(value: &ValueWithSpan) -> Option<Typed> {
    let Value::Number(text, _) = &value.value else { return None };
    text.parse::<i64>().is_err().then(|| Typed::unknown(&text.replace('_', ""), None))
}

/// An integer of the smallest type that holds it, or a numeric with its own digits. A number too long for a numeric becomes a double.
fn number(text: &str, span: Span) -> Result<Typed> {
    let text: String = text.chars().filter(|character| *character != '_').collect();
    if let Ok(value) = text.parse::<i32>() {
        return Ok(Typed::integer(value));
    }
    if let Ok(value) = text.parse::<i64>() {
        return Ok(Typed::bigint(value));
    }
    let invalid = || PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{text}\"")).at(span);
    match decimal(&text) {
        Some((value, digits)) => Ok(Typed::literal(value, digits.sql_type()).with_modifier(modifier::NONE)),
        None => {
            let value: f64 = text.parse().map_err(|_| invalid())?;
            if value.is_infinite() {
                return Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format").at(span));
            }
            Ok(Typed::new(lit(value), SqlType::Double))
        }
    }
}

fn decimal(text: &str) -> Option<(ScalarValue, Digits)> {
    let digits = cast::digits_of_text(text)?;
    if digits.precision > NUMERIC_MAX_PRECISION {
        return None;
    }
    let value = match digits.sql_type() {
        SqlType::Numeric(precision, scale) if precision <= 38 => {
            let value: i128 = crate::pg_text::parse_decimal128(text, precision, scale).ok()?;
            ScalarValue::Decimal128(Some(value), precision, scale)
        }
        _ => {
            let value: i256 = crate::pg_text::parse_decimal256(text, digits.precision, digits.scale).ok()?;
            ScalarValue::Decimal256(Some(value), digits.precision, digits.scale)
        }
    };
    Some((value, digits))
}
