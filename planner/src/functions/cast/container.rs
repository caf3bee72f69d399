//! Arrays, records and JSON.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, StringViewArray},
    compute::cast,
    datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type},
};

use super::{
    super::{
        arithmetic::out_of_range,
        decimal::Decimal,
        kernel::{Call, Traits},
    },
    Conversion,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    pg_text,
    types::SqlType,
};

/// An array whose elements are converted.
pub(super) fn find(from: &SqlType, to: &SqlType) -> Option<Conversion> {
    match super::find(from, to)? {
        Conversion::Same => Some(Conversion::Same),
        Conversion::Native => Some(Conversion::Code("array", Traits::STRICT, by_arrow)),
        Conversion::Code(..) if to.is_text() => Some(Conversion::Code("array", Traits::LOCAL, to_text)),
        Conversion::Code(..) if from.is_text() => Some(Conversion::Code("array", Traits::LOCAL, from_text)),
        // By way of the text form of each element.
        Conversion::Code(..) if from.is_number() && to.is_number() => Some(Conversion::Code("array", Traits::LOCAL, by_text)),
        Conversion::Code(..) => None,
    }
}

fn with_elements(call: &Call<'_>, convert: impl Fn(&ArrayRef, &DataType) -> Result<ArrayRef>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let list = array.as_list_opt::<i32>().ok_or_else(|| PlanError::internal("an array was expected"))?;
    let DataType::List(field) = call.result else { return Err(PlanError::internal("an array was to be given")) };
    let values = convert(list.values(), field.data_type())?;
    Ok(Arc::new(ListArray::new(Arc::clone(field), list.offsets().clone(), values, list.nulls().cloned())))
}

fn by_arrow(call: &Call<'_>) -> Result<ArrayRef> {
    with_elements(call, |values, element| Ok(cast(values, element)?))
}

fn to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = &call.environment().text;
    with_elements(call, |values, _| match values.data_type() {
        DataType::Boolean => {
            let words: StringViewArray =
                values.as_boolean().iter().map(|value| value.map(|value| if value { "true" } else { "false" })).collect();
            Ok(Arc::new(words))
        }
        _ => Ok(Arc::new(pg_text::format_array(values.as_ref(), settings)?)),
    })
}

fn from_text(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = &call.environment().text;
    with_elements(call, |values, element| Ok(pg_text::parse_text_array(values.as_ref(), element, settings)?))
}

fn by_text(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = &call.environment().text;
    with_elements(call, |values, element| {
        let texts = pg_text::format_array(values.as_ref(), settings)?;
        Ok(pg_text::parse_text_array(&texts, element, settings)?)
    })
}

/// `(1,abc,"x y")`
pub(super) fn record_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let record = array.as_struct_opt().ok_or_else(|| PlanError::internal("a record was expected"))?;
    let columns = record
        .columns()
        .iter()
        .map(|column| pg_text::format_array(column.as_ref(), &call.environment().text))
        .collect::<Result<Vec<_>, _>>()?;
    call.build_texts(|row| {
        if record.is_null(row) {
            return Ok(None);
        }
        let fields = columns.iter().map(|column| if column.is_null(row) { String::new() } else { quoted_field(column.value(row)) });
        Ok(Some(format!("({})", fields.collect::<Vec<_>>().join(","))))
    })
}

fn quoted_field(text: &str) -> String {
    let needs = text.is_empty() || text.contains(['(', ')', ',', '"', '\\']) || text.contains(char::is_whitespace);
    if needs { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\"\"")) } else { text.to_owned() }
}

pub(super) fn json_to_jsonb(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    call.build_jsons(|row| Ok(values.get(row).map(pg_text::normalize_json).transpose()?))
}

fn wrong_json(text: &str, wanted: &str) -> PlanError {
    let kind = match text.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b'n') => "null",
        Some(b't' | b'f') => "boolean",
        _ => "numeric",
    };
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("cannot cast jsonb {kind} to type {wanted}"))
}

pub(super) fn jsonb_to_boolean(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    call.build_booleans(|row| match values.get(row) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => Err(wrong_json(other, "boolean")),
    })
}

pub(super) fn jsonb_to_number(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.jsons(0)?;
    let name = pg_text::sql_type_name(call.result);
    let number = |row: usize| -> Result<Option<Decimal>> {
        match values.get(row) {
            None => Ok(None),
            Some(text) => Decimal::from_float(text).map(Some).ok_or_else(|| wrong_json(text, &name)),
        }
    };
    let whole = |row: usize| -> Result<Option<i64>> {
        let Some(value) = number(row)? else { return Ok(None) };
        let whole = value.rescale(0)?.unscaled.to_i128().and_then(|value| i64::try_from(value).ok());
        whole.map(Some).ok_or_else(|| out_of_range(call.result))
    };
    match call.result {
        DataType::Int16 => call.build::<Int16Type>(|row| whole(row)?.map(i16::try_from).transpose().map_err(|_| out_of_range(call.result))),
        DataType::Int32 => call.build::<Int32Type>(|row| whole(row)?.map(i32::try_from).transpose().map_err(|_| out_of_range(call.result))),
        DataType::Int64 => call.build::<Int64Type>(whole),
        DataType::Float32 => call.build::<Float32Type>(|row| Ok(number(row)?.map(|value| value.to_f64() as f32))),
        DataType::Float64 => call.build::<Float64Type>(|row| Ok(number(row)?.map(Decimal::to_f64))),
        _ => call.build_decimals(number),
    }
}
