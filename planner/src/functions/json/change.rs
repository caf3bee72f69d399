//! Changing jsonb.

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::Int32Type,
};
use serde_json::Value;

use super::{
    super::kernel::Call,
    tree::{self, parse, write_json, write_jsonb},
};
use crate::error::{PlanError, Result, sqlstate};

fn invalid(message: &str) -> PlanError {
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

pub(super) fn concatenate(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.jsons(0)?, call.jsons(1)?);
    call.build_jsons(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        let joined = match (parse(left)?, parse(right)?) {
            (Value::Object(mut left), Value::Object(right)) => {
                left.extend(right);
                Value::Object(left)
            }
            (Value::Array(mut left), Value::Array(right)) => {
                left.extend(right);
                Value::Array(left)
            }
            (Value::Array(mut left), right) => {
                left.push(right);
                Value::Array(left)
            }
            (left, Value::Array(mut right)) => {
                right.insert(0, left);
                Value::Array(right)
            }
            (Value::Object(_), _) | (_, Value::Object(_)) => return Err(invalid("invalid concatenation of jsonb objects")),
            (left, right) => Value::Array(vec![left, right]),
        };
        write_jsonb(&joined).map(Some)
    })
}

fn without_key(value: &mut Value, key: &str) -> Result<()> {
    match value {
        Value::Object(fields) => {
            fields.shift_remove(key);
            Ok(())
        }
        Value::Array(list) => {
            list.retain(|element| element.as_str() != Some(key));
            Ok(())
        }
        _ => Err(invalid("cannot delete from scalar")),
    }
}

pub(super) fn delete_key(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, keys) = (call.jsons(0)?, call.texts(1)?);
    call.build_jsons(|row| {
        let (Some(text), Some(key)) = (values.get(row), keys.get(row)) else { return Ok(None) };
        let mut value = parse(text)?;
        without_key(&mut value, key)?;
        write_jsonb(&value).map(Some)
    })
}

pub(super) fn delete_keys(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, keys) = (call.jsons(0)?, call.lists(1)?);
    call.build_jsons(|row| {
        let (Some(text), Some(list)) = (values.get(row), keys.get(row)) else { return Ok(None) };
        let mut value = parse(text)?;
        list.as_string_view().iter().flatten().try_for_each(|key| without_key(&mut value, key))?;
        write_jsonb(&value).map(Some)
    })
}

/// The place that a number means in a list; `None` if it is outside.
fn place_in(length: usize, place: i64) -> Option<usize> {
    let place = if place < 0 { length as i64 + place } else { place };
    usize::try_from(place).ok().filter(|place| *place < length)
}

pub(super) fn delete_element(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, places) = (call.jsons(0)?, call.values::<Int32Type>(1)?);
    call.build_jsons(|row| {
        let (Some(text), Some(place)) = (values.get(row), places.get(row)) else { return Ok(None) };
        let mut value = parse(text)?;
        match &mut value {
            Value::Array(list) => {
                if let Some(place) = place_in(list.len(), i64::from(place)) {
                    list.remove(place);
                }
            }
            Value::Object(_) => return Err(invalid("cannot delete from object using integer index")),
            _ => return Err(invalid("cannot delete from scalar")),
        }
        write_jsonb(&value).map(Some)
    })
}

/// The steps of a path; NULL steps are refused.
fn steps(list: &ArrayRef) -> Result<Vec<String>> {
    let step = |(at, step): (usize, Option<&str>)| {
        step.map(str::to_owned).ok_or_else(|| PlanError::new("22004", format!("path element at position {} is null", at + 1)))
    };
    list.as_string_view().iter().enumerate().map(step).collect()
}

fn list_place(length: usize, step: &str, number: usize) -> Result<i64> {
    step.trim().parse::<i64>().map(|place| if place < 0 { length as i64 + place } else { place }).map_err(|_| {
        PlanError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("path element at position {number} is not an integer: \"{step}\""))
    })
}

/// The parent of the last step, if there is one.
fn parent<'v>(value: &'v mut Value, path: &[String]) -> Result<Option<&'v mut Value>> {
    let mut current = value;
    for (number, step) in path.iter().enumerate() {
        let next = match current {
            Value::Object(fields) => fields.get_mut(step),
            Value::Array(list) => {
                let place = list_place(list.len(), step, number + 1)?;
                usize::try_from(place).ok().and_then(|place| list.get_mut(place))
            }
            _ => None,
        };
        match next {
            Some(next) => current = next,
            None => return Ok(None),
        }
    }
    Ok(Some(current))
}

pub(super) fn delete_path(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths) = (call.jsons(0)?, call.lists(1)?);
    call.build_jsons(|row| {
        let (Some(text), Some(path)) = (values.get(row), paths.get(row)) else { return Ok(None) };
        let mut value = parse(text)?;
        let path = steps(&path)?;
        if let Some((last, before)) = path.split_last() {
            match parent(&mut value, before)? {
                Some(Value::Object(fields)) => {
                    fields.shift_remove(last);
                }
                Some(Value::Array(list)) => {
                    let place = list_place(list.len(), last, path.len())?;
                    if let Some(place) = place_in(list.len(), place) {
                        list.remove(place);
                    }
                }
                _ => {}
            }
        }
        write_jsonb(&value).map(Some)
    })
}

fn flag(call: &Call<'_>, default: bool) -> Result<impl Fn(usize) -> Option<bool>> {
    let flags = if call.arguments.len() > 3 { Some(call.booleans(3)?) } else { None };
    Ok(move |row| match &flags {
        None => Some(default),
        Some(flags) => flags.get(row),
    })
}

/// Replaces what a path leads to; a last step that is not there is added unless that is forbidden.
pub(super) fn set(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths, news) = (call.jsons(0)?, call.lists(1)?, call.jsons(2)?);
    let creates = flag(call, true)?;
    call.build_jsons(|row| {
        let (Some(text), Some(path), Some(new), Some(create)) = (values.get(row), paths.get(row), news.get(row), creates(row)) else {
            return Ok(None);
        };
        let (mut value, new, path) = (parse(text)?, parse(new)?, steps(&path)?);
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return Err(invalid("cannot set path in scalar"));
        }
        if let Some((last, before)) = path.split_last() {
            match parent(&mut value, before)? {
                Some(Value::Object(fields)) if create || fields.contains_key(last) => {
                    fields.insert(last.clone(), new);
                }
                Some(Value::Array(list)) => {
                    let place = list_place(list.len(), last, path.len())?;
                    match usize::try_from(place).ok() {
                        Some(place) if place < list.len() => list[place] = new,
                        Some(_) if create => list.push(new),
                        None if create => list.insert(0, new),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        write_jsonb(&value).map(Some)
    })
}

/// Adds a key that is not there, or an element before or after a place.
pub(super) fn insert(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, paths, news) = (call.jsons(0)?, call.lists(1)?, call.jsons(2)?);
    let afters = flag(call, false)?;
    call.build_jsons(|row| {
        let (Some(text), Some(path), Some(new), Some(after)) = (values.get(row), paths.get(row), news.get(row), afters(row)) else {
            return Ok(None);
        };
        let (mut value, new, path) = (parse(text)?, parse(new)?, steps(&path)?);
        if let Some((last, before)) = path.split_last() {
            match parent(&mut value, before)? {
                Some(Value::Object(fields)) => {
                    if fields.contains_key(last) {
                        return Err(
                            invalid("cannot replace existing key").with_hint("Try using the function jsonb_set to replace key value.")
                        );
                    }
                    fields.insert(last.clone(), new);
                }
                Some(Value::Array(list)) => {
                    let place = list_place(list.len(), last, path.len())?;
                    let at = if after { place.saturating_add(1) } else { place };
                    list.insert(usize::try_from(at).unwrap_or(0).min(list.len()), new);
                }
                _ => {}
            }
        }
        write_jsonb(&value).map(Some)
    })
}

pub(super) fn strip_nulls(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    call.build_jsons(|row| {
        let Some(text) = values.get(row) else { return Ok(None) };
        let stripped = tree::strip_nulls(parse(text)?);
        if text.contains(": ") { write_jsonb(&stripped).map(Some) } else { Ok(Some(write_json(&stripped))) }
    })
}

/// Indented by four blanks.
pub(super) fn pretty(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    call.build_texts(|row| {
        let Some(text) = values.get(row) else { return Ok(None) };
        let mut out = String::new();
        write_pretty(&parse(text)?, 0, &mut out);
        Ok(Some(out))
    })
}

fn write_pretty(value: &Value, depth: usize, out: &mut String) {
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("    ", depth));
    };
    match value {
        Value::Object(fields) => {
            out.push('{');
            for (number, (key, value)) in fields.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                out.push_str(&super::super::text::json_string(key));
                out.push_str(": ");
                write_pretty(value, depth + 1, out);
            }
            line(out, depth);
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (number, value) in list.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                write_pretty(value, depth + 1, out);
            }
            line(out, depth);
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}
