//! Values to text and back, by the text forms of [`crate::pg_text`].

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;

use super::{
    super::kernel::{Call, Evaluate, Traits},
    Conversion,
};
use crate::{
    bind::Binder,
    error::{PlanError, Result},
    pg_text::{self, TextError},
    types::SqlType,
};

impl From<TextError> for PlanError {
    fn from(error: TextError) -> Self {
        let mut plan = Self::new(error.sqlstate, error.message);
        (plan.detail, plan.hint) = (error.detail, error.hint);
        plan
    }
}

/// The text form of a type.
pub(super) fn to_text(from: &SqlType) -> Conversion {
    let evaluate: Evaluate = match from {
        SqlType::Boolean => boolean_to_text,
        _ => format,
    };
    Conversion::Code("text", Traits::LOCAL, evaluate)
}

/// A cast of a boolean says `true`, its output form says `t`.
fn boolean_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.booleans(0)?;
    call.build_texts(|row| Ok(values.get(row).map(|value| if value { "true" } else { "false" })))
}

fn format(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    Ok(Arc::new(pg_text::format_array(array.as_ref(), &call.environment().text)?))
}

/// Names of the conversions from text, which are those of the types.
pub(super) fn from_text(to: &SqlType) -> Conversion {
    let (name, evaluate): (_, Evaluate) = match to {
        SqlType::Json => ("json", json),
        SqlType::Boolean => ("bool", parse),
        SqlType::SmallInt => ("int2", parse),
        SqlType::Integer => ("int4", parse),
        SqlType::BigInt => ("int8", parse),
        SqlType::Real => ("float4", parse),
        SqlType::Double => ("float8", parse),
        SqlType::Numeric(..) => ("numeric", parse),
        SqlType::Date => ("date", parse),
        SqlType::Time => ("time", parse),
        SqlType::Timestamp => ("timestamp", parse),
        SqlType::TimestampTz => ("timestamptz", parse),
        SqlType::Interval => ("interval", parse),
        SqlType::Uuid => ("uuid", parse),
        SqlType::Jsonb => ("jsonb", parse),
        SqlType::Bytea => ("bytea", parse),
        _ => ("from_text", parse),
    };
    Conversion::Code(name, Traits::LOCAL, evaluate)
}

fn parse(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    Ok(pg_text::parse_text_array(array.as_ref(), call.result, &call.environment().text)?)
}

/// JSON text is checked and kept as it is.
fn json(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build_jsons(|row| match texts.get(row) {
        Some(text) => {
            pg_text::normalize_json(text)?;
            Ok(Some(text))
        }
        None => Ok(None),
    })
}

/// The value of a type that a constant text means.
///
/// # Errors
/// 22P02, 22007, 22008, 22003.
pub(crate) fn read(binder: &Binder<'_>, text: &str, to: &SqlType) -> Result<ScalarValue> {
    match to {
        SqlType::Text | SqlType::Varchar | SqlType::Char | SqlType::Name | SqlType::InternalChar => {
            Ok(ScalarValue::Utf8View(Some(text.to_owned())))
        }
        SqlType::Json => {
            pg_text::normalize_json(text)?;
            Ok(ScalarValue::LargeUtf8(Some(text.to_owned())))
        }
        other if other.is_oid() => super::object::read(binder, text, other),
        other => Ok(pg_text::parse_text(text, &other.arrow(), &binder.environment.text)?),
    }
}
