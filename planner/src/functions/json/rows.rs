//! Elements and members of JSON as lists, for functions that return rows.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, LargeStringBuilder, ListBuilder, StringViewBuilder, StructArray},
    datatypes::{DataType, Field},
};
use serde_json::Value;

use super::{
    super::kernel::{Call, Evaluate, Kernel, Traits},
    tree::{self, parse, write_json, write_jsonb},
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    types::SqlType,
};

fn json_lists() -> ListBuilder<LargeStringBuilder> {
    ListBuilder::new(LargeStringBuilder::new()).with_field(Field::new("item", DataType::LargeUtf8, true))
}

fn text_lists() -> ListBuilder<StringViewBuilder> {
    ListBuilder::new(StringViewBuilder::new()).with_field(Field::new("item", DataType::Utf8View, true))
}

fn list_of(text: &str, what: &str) -> Result<Vec<Value>> {
    match parse(text)? {
        Value::Array(list) => Ok(list),
        Value::Object(_) => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot {what} an object"))),
        _ => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot {what} a scalar"))),
    }
}

pub(super) fn elements(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    let mut builder = json_lists();
    for row in 0..call.rows {
        if let Some(text) = values.get(row) {
            for value in list_of(text, "extract elements from")? {
                builder.values().append_value(written(&value, text)?);
            }
        }
        builder.append(values.get(row).is_some());
    }
    Ok(Arc::new(builder.finish()))
}

/// A part in the form that the whole has.
fn written(value: &Value, whole: &str) -> Result<String> {
    if whole.contains(", ") || whole.contains(": ") { write_jsonb(value) } else { Ok(write_json(value)) }
}

pub(super) fn elements_text(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    let mut builder = text_lists();
    for row in 0..call.rows {
        if let Some(text) = values.get(row) {
            for value in list_of(text, "extract elements from")? {
                builder.values().append_option(tree::plain(&value, true)?);
            }
        }
        builder.append(values.get(row).is_some());
    }
    Ok(Arc::new(builder.finish()))
}

fn fields_of(text: &str, function: &str) -> Result<serde_json::Map<String, Value>> {
    match parse(text)? {
        Value::Object(fields) => Ok(fields),
        Value::Array(_) => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot call {function} on an array"))),
        _ => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot call {function} on a scalar"))),
    }
}

pub(super) fn keys(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    let mut builder = text_lists();
    for row in 0..call.rows {
        if let Some(text) = values.get(row) {
            fields_of(text, "json_object_keys")?.keys().for_each(|key| builder.values().append_value(key));
        }
        builder.append(values.get(row).is_some());
    }
    Ok(Arc::new(builder.finish()))
}

/// Keys and values as two lists side by side.
pub(super) fn each(binder: &Binder<'_>, name: &'static str, values: Vec<Typed>) -> Result<Typed> {
    let value_type = match name {
        "json_each" => SqlType::Json,
        "jsonb_each" => SqlType::Jsonb,
        _ => SqlType::Text,
    };
    let result = SqlType::Record(vec![SqlType::array(SqlType::Text), SqlType::array(value_type.clone())]);
    let evaluate: Evaluate = if value_type == SqlType::Text { each_text } else { each_value };
    let types = vec![values[0].sql_type.arrow()];
    let kernel = Kernel { name, operator: None, evaluate, traits: Traits::STRICT };
    let arguments = values.into_iter().map(|value| value.expr).collect();
    Ok(Typed::new(kernel.call(arguments, types, result.arrow(), &binder.environment), result))
}

fn record(call: &Call<'_>, keys: ArrayRef, values: ArrayRef) -> Result<ArrayRef> {
    let DataType::Struct(fields) = call.result else { return Err(PlanError::internal("a record was to be given")) };
    Ok(Arc::new(StructArray::try_new(fields.clone(), vec![keys, values], None)?))
}

fn each_value(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    let (mut key_lists, mut value_lists) = (text_lists(), json_lists());
    for row in 0..call.rows {
        if let Some(text) = values.get(row) {
            for (key, value) in fields_of(text, "json_each")? {
                key_lists.values().append_value(key);
                value_lists.values().append_value(written(&value, text)?);
            }
        }
        key_lists.append(true);
        value_lists.append(true);
    }
    record(call, Arc::new(key_lists.finish()), Arc::new(value_lists.finish()))
}

fn each_text(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    let (mut key_lists, mut value_lists) = (text_lists(), text_lists());
    for row in 0..call.rows {
        if let Some(text) = values.get(row) {
            for (key, value) in fields_of(text, "json_each_text")? {
                key_lists.values().append_value(key);
                value_lists.values().append_option(tree::plain(&value, true)?);
            }
        }
        key_lists.append(true);
        value_lists.append(true);
    }
    record(call, Arc::new(key_lists.finish()), Arc::new(value_lists.finish()))
}
