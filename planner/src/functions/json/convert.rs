//! SQL values as JSON text: numbers and booleans as they are, JSON inside of JSON, dates in the form of ISO 8601, all else as strings.

use arrow::{
    array::{Array, ArrayRef, AsArray, StringViewArray},
    datatypes::{DataType, Field},
};

use super::super::text::json_string;
use crate::{
    error::Result,
    pg_text::{self, DateStyle, TextSettings},
};

/// A column as JSON texts.
pub(crate) struct Texts {
    texts: Vec<Option<String>>,
}

impl Texts {
    /// The JSON text of each value; NULL stays NULL.
    pub(crate) fn of(array: &ArrayRef, settings: &TextSettings) -> Result<Self> {
        let iso = TextSettings { date_style: DateStyle::Iso, ..settings.clone() };
        let texts = (0..array.len()).map(|row| json_text_of(array, row, &iso)).collect::<Result<_>>()?;
        Ok(Self { texts })
    }

    /// The text of a row, or `null`.
    pub(crate) fn get(&self, row: usize) -> &str {
        self.texts[row].as_deref().unwrap_or("null")
    }

    /// Whether the value of a row is NULL.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.texts[row].is_none()
    }
}

/// The JSON text of one value.
pub(crate) fn json_text_of(array: &ArrayRef, row: usize, settings: &TextSettings) -> Result<Option<String>> {
    if array.is_null(row) {
        return Ok(None);
    }
    let plain = || -> Result<String> {
        let mut out = Vec::new();
        pg_text::write_text(array.as_ref(), row, settings, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    };
    Ok(Some(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => plain()?,
        DataType::Decimal128(..) | DataType::Decimal256(..) => plain()?,
        DataType::Float32 | DataType::Float64 => {
            let text = plain()?;
            if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') && !text.ends_with("Infinity") {
                text
            } else {
                json_string(&text)
            }
        }
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).to_owned(),
        DataType::Timestamp(..) => json_string(&iso_moment(&plain()?)),
        DataType::List(_) => {
            let values = array.as_list::<i32>().value(row);
            let elements = (0..values.len())
                .map(|at| Ok(json_text_of(&values, at, settings)?.unwrap_or_else(|| "null".to_owned())))
                .collect::<Result<Vec<_>>>()?;
            format!("[{}]", elements.join(","))
        }
        DataType::Struct(fields) => {
            let record = array.as_struct();
            let members = fields.iter().zip(record.columns()).map(|(field, column): (&std::sync::Arc<Field>, &ArrayRef)| {
                let value = json_text_of(column, row, settings)?.unwrap_or_else(|| "null".to_owned());
                Ok(format!("{}:{value}", json_string(field.name())))
            });
            format!("{{{}}}", members.collect::<Result<Vec<_>>>()?.join(","))
        }
        DataType::Utf8View => json_string(array.as_string_view().value(row)),
        _ => json_string(&plain()?),
    }))
}

/// `2031-01-01 10:00:00+00` as `2031-01-01T10:00:00+00:00`.
fn iso_moment(text: &str) -> String {
    let Some((date, time)) = text.split_once(' ') else { return text.to_owned() };
    let zone = time.find(['+', '-']).map(|at| time.split_at(at));
    match zone {
        Some((clock, offset)) if offset.len() == 3 => format!("{date}T{clock}{offset}:00"),
        _ => format!("{date}T{time}"),
    }
}

/// Keys of an object, which are texts.
pub(in crate::functions) fn key_texts(array: &ArrayRef, settings: &TextSettings) -> Result<StringViewArray> {
    Ok(pg_text::format_array(array.as_ref(), settings)?)
}
