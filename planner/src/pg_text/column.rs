//! Text forms of whole columns: casts, COPY and text-like formats.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder, FixedSizeBinaryBuilder,
    LargeStringBuilder, PrimitiveArray, StringViewArray, StringViewBuilder, TimestampMicrosecondBuilder, new_empty_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit,
};
use datafusion::scalar::ScalarValue;

use super::binary::{parse_bytea, parse_uuid};
use super::date_parse::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
use super::float::{parse_float4, parse_float8};
use super::integer::{parse_bool, parse_int2, parse_int4, parse_int8};
use super::interval_parse::parse_interval;
use super::json::normalize_json;
use super::numeric::{parse_decimal128, parse_decimal256};
use super::parse::parse_text;
use super::settings::{TextError, TextSettings};
use super::write::write_text;

/// A text column over any of the string layouts.
enum Strings<'a> {
    View(&'a StringViewArray),
    Small(&'a arrow::array::StringArray),
    Large(&'a arrow::array::LargeStringArray),
}

impl<'a> Strings<'a> {
    fn of(array: &'a dyn Array) -> Option<Self> {
        match array.data_type() {
            DataType::Utf8View => Some(Self::View(array.as_string_view())),
            DataType::Utf8 => Some(Self::Small(array.as_string())),
            DataType::LargeUtf8 => Some(Self::Large(array.as_string())),
            _ => None,
        }
    }

    fn each(&self, mut f: impl FnMut(Option<&str>) -> Result<(), TextError>) -> Result<(), TextError> {
        match self {
            Self::View(array) => array.iter().try_for_each(&mut f),
            Self::Small(array) => array.iter().try_for_each(&mut f),
            Self::Large(array) => array.iter().try_for_each(&mut f),
        }
    }
}

/// Reads every text of a string column as a value of `data_type`; NULL stays NULL. The first bad text is the error.
pub fn parse_text_array(strings: &dyn Array, data_type: &DataType, settings: &TextSettings) -> Result<ArrayRef, TextError> {
    let rows = strings.len();
    let Some(texts) = Strings::of(strings) else {
        return Err(TextError::new("XX000", format!("text was expected, not {}", strings.data_type())));
    };
    Ok(match data_type {
        DataType::Utf8View | DataType::Utf8 => cast(strings, data_type).map_err(|error| TextError::new("XX000", error.to_string()))?,
        DataType::Int16 => primitives::<Int16Type>(&texts, rows, parse_int2)?,
        DataType::Int32 => primitives::<Int32Type>(&texts, rows, parse_int4)?,
        DataType::Int64 => primitives::<Int64Type>(&texts, rows, parse_int8)?,
        DataType::Float32 => primitives::<Float32Type>(&texts, rows, parse_float4)?,
        DataType::Float64 => primitives::<Float64Type>(&texts, rows, parse_float8)?,
        DataType::Time64(TimeUnit::Microsecond) => primitives::<Time64MicrosecondType>(&texts, rows, |text| parse_time(text, settings))?,
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            primitives::<IntervalMonthDayNanoType>(&texts, rows, |text| parse_interval(text, settings))?
        }
        DataType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(rows);
            texts.each(|text| text.map(parse_bool).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        DataType::Date32 => {
            let mut builder = Date32Builder::with_capacity(rows);
            texts.each(|text| text.map(|text| parse_date(text, settings)).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let mut builder = TimestampMicrosecondBuilder::with_capacity(rows).with_timezone_opt(zone.clone());
            let parse = |text: &str| if zone.is_some() { parse_timestamptz(text, settings) } else { parse_timestamp(text, settings) };
            texts.each(|text| text.map(parse).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        _ => parse_rare(&texts, rows, data_type, settings)?,
    })
}

fn parse_rare(texts: &Strings<'_>, rows: usize, data_type: &DataType, settings: &TextSettings) -> Result<ArrayRef, TextError> {
    Ok(match data_type {
        DataType::Decimal128(precision, scale) => {
            let mut builder = Decimal128Builder::with_capacity(rows).with_data_type(data_type.clone());
            let parse = |text: &str| parse_decimal128(text, *precision, *scale);
            texts.each(|text| text.map(parse).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        DataType::Decimal256(precision, scale) => {
            let mut builder = Decimal256Builder::with_capacity(rows).with_data_type(data_type.clone());
            let parse = |text: &str| parse_decimal256(text, *precision, *scale);
            texts.each(|text| text.map(parse).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        DataType::LargeUtf8 => {
            let mut builder = LargeStringBuilder::new();
            texts.each(|text| text.map(normalize_json).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        DataType::Binary => {
            let mut builder = BinaryBuilder::new();
            texts.each(|text| text.map(parse_bytea).transpose().map(|value| builder.append_option(value)))?;
            Arc::new(builder.finish())
        }
        DataType::FixedSizeBinary(16) => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(rows, 16);
            texts.each(|text| {
                match text {
                    Some(text) => builder.append_value(parse_uuid(text)?).expect("16 bytes"),
                    None => builder.append_null(),
                }
                Ok(())
            })?;
            Arc::new(builder.finish())
        }
        _ => {
            let null = ScalarValue::try_from(data_type).map_err(|error| TextError::new("0A000", error.to_string()))?;
            let mut values = Vec::with_capacity(rows);
            texts.each(|text| {
                values.push(text.map_or_else(|| Ok(null.clone()), |text| parse_text(text, data_type, settings))?);
                Ok(())
            })?;
            if values.is_empty() {
                return Ok(new_empty_array(data_type));
            }
            ScalarValue::iter_to_array(values).map_err(|error| TextError::new("XX000", error.to_string()))?
        }
    })
}

fn primitives<T: ArrowPrimitiveType>(
    texts: &Strings<'_>,
    rows: usize,
    parse: impl Fn(&str) -> Result<T::Native, TextError>,
) -> Result<ArrayRef, TextError> {
    let mut builder = PrimitiveArray::<T>::builder(rows);
    texts.each(|text| text.map(&parse).transpose().map(|value| builder.append_option(value)))?;
    Ok(Arc::new(builder.finish()))
}

/// Every value of a column as text, as a cast to text gives it; NULL stays NULL.
///
/// # Errors
/// As [`write_text`].
pub fn format_array(array: &dyn Array, settings: &TextSettings) -> Result<StringViewArray, TextError> {
    if let DataType::Utf8View = array.data_type() {
        return Ok(array.as_string_view().clone());
    }
    let mut builder = StringViewBuilder::with_capacity(array.len());
    // A cast of a boolean spells it out, other than output does.
    if let DataType::Boolean = array.data_type() {
        array.as_boolean().iter().for_each(|value| builder.append_option(value.map(|value| if value { "true" } else { "false" })));
        return Ok(builder.finish());
    }
    let mut text = Vec::with_capacity(32);
    let nulls = array.logical_nulls();
    for row in 0..array.len() {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            builder.append_null();
            continue;
        }
        text.clear();
        write_text(array, row, settings, &mut text)?;
        builder.append_value(std::str::from_utf8(&text).map_err(|error| TextError::new("XX000", error.to_string()))?);
    }
    Ok(builder.finish())
}
