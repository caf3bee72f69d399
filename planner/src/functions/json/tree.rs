//! JSON values in memory: parsed with numbers kept as their digits and keys in the order given.

use serde_json::{Map, Value};

use crate::{
    error::{PlanError, Result, sqlstate},
    pg_text,
};

/// The value of a JSON text. Texts in columns have been checked before.
pub(crate) fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|_| {
        PlanError::new(sqlstate::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json")
            .with_detail(format!("The value is: {}", text.chars().take(100).collect::<String>()))
    })
}

/// Text in the form of jsonb: `{"a": 1, "b": [1, 2]}`, keys by length and then bytes, the last of equal ones.
pub(crate) fn write_jsonb(value: &Value) -> Result<String> {
    Ok(pg_text::normalize_json(&value.to_string())?)
}

/// Text without blanks, keys as they came.
pub(crate) fn write_json(value: &Value) -> String {
    value.to_string()
}

/// A value as `->>` gives it: a string without quotes, NULL for null.
pub(super) fn plain(value: &Value, normalised: bool) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other if normalised => write_jsonb(other).map(Some),
        other => Ok(Some(write_json(other))),
    }
}

/// The element of a number, which counts from the end if it is negative.
pub(super) fn element(list: &[Value], place: i64) -> Option<&Value> {
    let place = if place < 0 { list.len() as i64 + place } else { place };
    usize::try_from(place).ok().and_then(|place| list.get(place))
}

/// The value that a path leads to.
pub(super) fn follow<'v, 'p>(value: &'v Value, path: impl IntoIterator<Item = &'p str>) -> Option<&'v Value> {
    path.into_iter().try_fold(value, |value, step| match value {
        Value::Object(fields) => fields.get(step),
        Value::Array(list) => element(list, step.trim().parse().ok()?),
        _ => None,
    })
}

/// Whether two values are the same, numbers by value.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            let (left, right) = (left.to_string(), right.to_string());
            left == right || left.parse::<f64>().ok() == right.parse::<f64>().ok()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len() && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| equal(value, other)))
        }
        (left, right) => left == right,
    }
}

/// Whether `inner` is contained in `outer`, in the sense of `@>`.
pub(super) fn contains(outer: &Value, inner: &Value) -> bool {
    match (outer, inner) {
        (Value::Object(outer), Value::Object(inner)) => {
            inner.iter().all(|(key, value)| outer.get(key).is_some_and(|other| contains_nested(other, value)))
        }
        (Value::Array(outer), Value::Array(inner)) => inner.iter().all(|value| outer.iter().any(|other| contains_nested(other, value))),
        // A list contains a scalar that is among its elements, at the top only.
        (Value::Array(outer), scalar @ (Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null)) => {
            outer.iter().any(|other| equal(other, scalar))
        }
        (outer, inner) => equal(outer, inner),
    }
}

fn contains_nested(outer: &Value, inner: &Value) -> bool {
    match (outer, inner) {
        (Value::Object(_), Value::Object(_)) | (Value::Array(_), Value::Array(_)) => contains(outer, inner),
        (outer, inner) => equal(outer, inner),
    }
}

/// The kind of a value, as `json_typeof` names it.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Removes fields that are null, at all depths.
pub(super) fn strip_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept: Map<String, Value> =
                fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, strip_nulls(value))).collect();
            Value::Object(kept)
        }
        Value::Array(list) => Value::Array(list.into_iter().map(strip_nulls).collect()),
        other => other,
    }
}
