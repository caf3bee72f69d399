//! Making JSON of SQL values.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, LargeStringArray},
    datatypes::DataType,
};

use super::{
    super::{
        kernel::{Call, Evaluate, Kernel, Traits},
        text::json_string,
    },
    convert::{Texts, key_texts},
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    pg_text,
    types::SqlType,
};

/// A call with arguments of any types.
pub(super) fn call(binder: &Binder<'_>, name: &'static str, values: Vec<Typed>) -> Result<Typed> {
    let (evaluate, traits): (Evaluate, Traits) = match name {
        "json_build_object" => (build_object, Traits::LOCAL_NULLS),
        "jsonb_build_object" => (build_object_b, Traits::LOCAL_NULLS),
        "json_build_array" => (build_array, Traits::LOCAL_NULLS),
        "jsonb_build_array" => (build_array_b, Traits::LOCAL_NULLS),
        "to_jsonb" => (to_jsonb, Traits::LOCAL),
        _ => (to_json, Traits::LOCAL),
    };
    if name.ends_with("build_object") && values.len() % 2 == 1 {
        return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "argument list must have even number of elements")
            .with_hint(format!("The arguments of {name}() must consist of alternating keys and values.")));
    }
    let result = if name.contains("jsonb") { SqlType::Jsonb } else { SqlType::Json };
    let values = values.into_iter().map(|value| plain_oid(binder, value)).collect::<Result<Vec<_>>>()?;
    let types: Vec<DataType> = values.iter().map(|value| value.sql_type.arrow()).collect();
    let arguments = values.into_iter().map(|value| value.expr).collect();
    let kernel = Kernel { name, operator: None, evaluate, traits };
    Ok(Typed::new(kernel.call(arguments, types, result.arrow(), &binder.environment), result))
}

/// Object ids that are shown by name go in by name.
fn plain_oid(binder: &Binder<'_>, value: Typed) -> Result<Typed> {
    match value.sql_type {
        SqlType::RegClass | SqlType::RegType | SqlType::RegProc | SqlType::RegOperator | SqlType::RegNamespace => {
            binder.cast_explicit(value, &SqlType::Text)
        }
        SqlType::Unknown => binder.implicit(value, &SqlType::Text),
        _ => Ok(value),
    }
}

fn columns(call: &Call<'_>) -> Result<Vec<Texts>> {
    (0..call.arguments.len()).map(|index| Texts::of(&call.array(index)?, &call.environment().text)).collect()
}

fn objects(call: &Call<'_>) -> Result<Vec<String>> {
    let settings = &call.environment().text;
    let keys = (0..call.arguments.len()).step_by(2).map(|index| key_texts(&call.array(index)?, settings)).collect::<Result<Vec<_>>>()?;
    let values = (1..call.arguments.len()).step_by(2).map(|index| Texts::of(&call.array(index)?, settings)).collect::<Result<Vec<_>>>()?;
    let object = |row: usize| {
        let members = keys.iter().zip(&values).enumerate().map(|(number, (keys, values))| {
            if keys.is_null(row) {
                let message = format!("argument {}: key must not be null", 2 * number + 1);
                return Err(PlanError::new("22004", message));
            }
            Ok(format!("{} : {}", json_string(keys.value(row)), values.get(row)))
        });
        Ok(format!("{{{}}}", members.collect::<Result<Vec<_>>>()?.join(", ")))
    };
    (0..call.rows).map(object).collect()
}

fn written(texts: Vec<String>) -> Result<ArrayRef> {
    Ok(Arc::new(LargeStringArray::from(texts)))
}

fn normalised(texts: Vec<String>) -> Result<ArrayRef> {
    let texts = texts.iter().map(|text| Ok(pg_text::normalize_json(text)?)).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(LargeStringArray::from(texts)))
}

fn build_object(call: &Call<'_>) -> Result<ArrayRef> {
    written(objects(call)?)
}

fn build_object_b(call: &Call<'_>) -> Result<ArrayRef> {
    normalised(objects(call)?)
}

fn arrays(call: &Call<'_>) -> Result<Vec<String>> {
    let columns = columns(call)?;
    let array = |row: usize| format!("[{}]", columns.iter().map(|column| column.get(row)).collect::<Vec<_>>().join(", "));
    Ok((0..call.rows).map(array).collect())
}

fn build_array(call: &Call<'_>) -> Result<ArrayRef> {
    written(arrays(call)?)
}

fn build_array_b(call: &Call<'_>) -> Result<ArrayRef> {
    normalised(arrays(call)?)
}

fn to_json(call: &Call<'_>) -> Result<ArrayRef> {
    let values = Texts::of(&call.array(0)?, &call.environment().text)?;
    call.build_jsons(|row| Ok((!values.is_null(row)).then(|| values.get(row))))
}

fn to_jsonb(call: &Call<'_>) -> Result<ArrayRef> {
    let values = Texts::of(&call.array(0)?, &call.environment().text)?;
    call.build_jsons(|row| if values.is_null(row) { Ok(None) } else { Ok(Some(pg_text::normalize_json(values.get(row))?)) })
}

/// An object of keys and values that alternate in one array, or stand in two.
fn texts_object(call: &Call<'_>, row: usize) -> Result<Option<String>> {
    let texts = |index: usize| -> Result<Option<Vec<Option<String>>>> {
        let Some(list) = call.lists(index)?.get(row) else { return Ok(None) };
        Ok(Some(list.as_string_view().iter().map(|text| text.map(str::to_owned)).collect()))
    };
    let Some(first) = texts(0)? else { return Ok(None) };
    let pairs: Vec<(Option<String>, Option<String>)> = if call.arguments.len() > 1 {
        let Some(second) = texts(1)? else { return Ok(None) };
        if first.len() != second.len() {
            return Err(PlanError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "mismatched array dimensions"));
        }
        first.into_iter().zip(second).collect()
    } else {
        if first.len() % 2 == 1 {
            return Err(PlanError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, "array must have even number of elements"));
        }
        first.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    };
    let members = pairs.into_iter().map(|(key, value)| {
        let key = key.ok_or_else(|| PlanError::new("22004", "null value not allowed for object key"))?;
        Ok(format!("{} : {}", json_string(&key), value.map_or_else(|| "null".to_owned(), |value| json_string(&value))))
    });
    Ok(Some(format!("{{{}}}", members.collect::<Result<Vec<_>>>()?.join(", "))))
}

pub(super) fn object_of_texts(call: &Call<'_>) -> Result<ArrayRef> {
    call.build_jsons(|row| texts_object(call, row))
}

pub(super) fn object_of_texts_b(call: &Call<'_>) -> Result<ArrayRef> {
    call.build_jsons(|row| match texts_object(call, row)? {
        Some(text) => Ok(Some(pg_text::normalize_json(&text)?)),
        None => Ok(None),
    })
}
