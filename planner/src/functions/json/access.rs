//! Reading JSON: fields, elements, paths, keys, containment.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Int32Type},
};
use serde_json::Value;

use super::{
    super::kernel::Call,
    tree::{self, parse, write_json, write_jsonb},
};
use crate::error::{PlanError, Result, sqlstate};

/// How a part of a value is written. A part of json keeps its text's order of keys; of jsonb it is normalised.
fn part(value: Option<&Value>, normalised: bool) -> Result<Option<String>> {
    match value {
        None => Ok(None),
        Some(value) if normalised => write_jsonb(value).map(Some),
        Some(value) => Ok(Some(write_json(value))),
    }
}

fn text_part(value: Option<&Value>, normalised: bool) -> Result<Option<String>> {
    match value {
        None => Ok(None),
        Some(value) => tree::plain(value, normalised),
    }
}

/// Whether values look normalised: a normalised text with several members has blanks after its separators. Writing a part the other way
/// would only change blanks.
fn is_normalised(text: &str) -> bool {
    !text.contains(":\"") && !text.contains("\":{") && !text.contains(",\"") && !text.contains("\":[")
}

pub(super) fn field(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, keys) = (call.jsons(0)?, call.texts(1)?);
    call.build_jsons(|row| {
        let (Some(text), Some(key)) = (values.get(row), keys.get(row)) else { return Ok(None) };
        let value = parse(text)?;
        part(value.as_object().and_then(|fields| fields.get(key)), is_normalised(text))
    })
}

pub(super) fn field_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, keys) = (call.jsons(0)?, call.texts(1)?);
    call.build_texts(|row| {
        let (Some(text), Some(key)) = (values.get(row), keys.get(row)) else { return Ok(None) };
        let value = parse(text)?;
        text_part(value.as_object().and_then(|fields| fields.get(key)), is_normalised(text))
    })
}

pub(super) fn element(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, places) = (call.jsons(0)?, call.values::<Int32Type>(1)?);
    call.build_jsons(|row| {
        let (Some(text), Some(place)) = (values.get(row), places.get(row)) else { return Ok(None) };
        let value = parse(text)?;
        part(value.as_array().and_then(|list| tree::element(list, i64::from(place))), is_normalised(text))
    })
}

pub(super) fn element_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, places) = (call.jsons(0)?, call.values::<Int32Type>(1)?);
    call.build_texts(|row| {
        let (Some(text), Some(place)) = (values.get(row), places.get(row)) else { return Ok(None) };
        let value = parse(text)?;
        text_part(value.as_array().and_then(|list| tree::element(list, i64::from(place))), is_normalised(text))
    })
}

/// The steps of a path given as an array; `None` if one of them is NULL.
fn steps(list: &ArrayRef) -> Option<Vec<String>> {
    let texts = list.as_string_view_opt()?;
    (0..texts.len()).map(|at| texts.is_valid(at).then(|| texts.value(at).to_owned())).collect()
}

fn follow_path(
    call: &Call<'_>,
    row: usize,
    values: &super::super::columns::Jsons,
    paths: &super::super::columns::Lists,
) -> Result<Option<(Value, bool)>> {
    let _ = call;
    let (Some(text), Some(path)) = (values.get(row), paths.get(row)) else { return Ok(None) };
    let Some(path) = steps(&path) else { return Ok(None) };
    let value = parse(text)?;
    Ok(tree::follow(&value, path.iter().map(String::as_str)).cloned().map(|found| (found, is_normalised(text))))
}

pub(super) fn path(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths) = (call.jsons(0)?, call.lists(1)?);
    call.build_jsons(|row| match follow_path(call, row, &values, &paths)? {
        Some((value, normalised)) => part(Some(&value), normalised),
        None => Ok(None),
    })
}

pub(super) fn path_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths) = (call.jsons(0)?, call.lists(1)?);
    call.build_texts(|row| match follow_path(call, row, &values, &paths)? {
        Some((value, normalised)) => text_part(Some(&value), normalised),
        None => Ok(None),
    })
}

fn variadic(call: &Call<'_>, write: fn(Option<&Value>, bool) -> Result<Option<String>>) -> Result<Vec<Option<String>>> {
    let values = call.jsons(0)?;
    let paths = (1..call.arguments.len()).map(|index| call.texts(index)).collect::<Result<Vec<_>>>()?;
    let one = |row: usize| {
        let Some(text) = values.get(row) else { return Ok(None) };
        let Some(path) = paths.iter().map(|step| step.get(row)).collect::<Option<Vec<&str>>>() else { return Ok(None) };
        let value = parse(text)?;
        write(tree::follow(&value, path), is_normalised(text))
    };
    (0..call.rows).map(one).collect()
}

pub(super) fn path_of_texts(call: &Call<'_>) -> Result<ArrayRef> {
    let found = variadic(call, part)?;
    call.build_jsons(|row| Ok(found[row].as_deref()))
}

pub(super) fn path_of_texts_text(call: &Call<'_>) -> Result<ArrayRef> {
    let found = variadic(call, text_part)?;
    call.build_texts(|row| Ok(found[row].as_deref()))
}

/// A key of an object, a string among elements, or the string itself.
fn has(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(key),
        Value::Array(list) => list.iter().any(|element| element.as_str() == Some(key)),
        Value::String(text) => text == key,
        _ => false,
    }
}

pub(super) fn has_key(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, keys) = (call.jsons(0)?, call.texts(1)?);
    call.build_booleans(|row| {
        let (Some(text), Some(key)) = (values.get(row), keys.get(row)) else { return Ok(None) };
        Ok(Some(has(&parse(text)?, key)))
    })
}

fn has_keys(call: &Call<'_>, all: bool) -> Result<ArrayRef> {
    let (values, keys) = (call.jsons(0)?, call.lists(1)?);
    call.build_booleans(|row| {
        let (Some(text), Some(list)) = (values.get(row), keys.get(row)) else { return Ok(None) };
        let value = parse(text)?;
        let texts = list.as_string_view();
        let mut present = texts.iter().flatten().map(|key| has(&value, key));
        Ok(Some(if all { present.all(|found| found) } else { present.any(|found| found) }))
    })
}

pub(super) fn has_any_key(call: &Call<'_>) -> Result<ArrayRef> {
    has_keys(call, false)
}

pub(super) fn has_all_keys(call: &Call<'_>) -> Result<ArrayRef> {
    has_keys(call, true)
}

fn containment(call: &Call<'_>, outer: usize, inner: usize) -> Result<ArrayRef> {
    let (outers, inners) = (call.jsons(outer)?, call.jsons(inner)?);
    call.build_booleans(|row| {
        let (Some(outer), Some(inner)) = (outers.get(row), inners.get(row)) else { return Ok(None) };
        Ok(Some(tree::contains(&parse(outer)?, &parse(inner)?)))
    })
}

pub(super) fn contains(call: &Call<'_>) -> Result<ArrayRef> {
    containment(call, 0, 1)
}

pub(super) fn contained(call: &Call<'_>) -> Result<ArrayRef> {
    containment(call, 1, 0)
}

pub(super) fn type_of(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    call.build_texts(|row| values.get(row).map(|text| parse(text).map(|value| tree::kind(&value))).transpose())
}

pub(super) fn array_length(call: &Call<'_>) -> Result<ArrayRef> {
    debug_assert_eq!(*call.result, DataType::Int32);
    let values = call.jsons(0)?;
    call.build::<Int32Type>(|row| {
        let Some(text) = values.get(row) else { return Ok(None) };
        match parse(text)? {
            Value::Array(list) => Ok(Some(list.len() as i32)),
            Value::Object(_) => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "cannot get array length of a non-array")),
            _ => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "cannot get array length of a scalar")),
        }
    })
}
