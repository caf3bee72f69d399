//! The text of one value as a scalar.

use std::sync::Arc;

use arrow::array::{Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::scalar::ScalarValue;

use super::array::{ArrayLiteral, split_array_literal};
use super::binary::{parse_bytea, parse_uuid};
use super::date_parse::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
use super::float::{parse_float4, parse_float8};
use super::integer::{parse_bool, parse_int2, parse_int4, parse_int8};
use super::interval_parse::parse_interval;
use super::json::normalize_json;
use super::numeric::{parse_decimal128, parse_decimal256};
use super::settings::{TextError, TextSettings, sql_type_name};

/// Reads a value of `data_type` as Postgres' input function of the type does.
///
/// # Errors
/// 22P02, 22003, 22007, 22008, 22015, 22023 and so on, in Postgres' words; 0A000 for a type that has no text form to read.
pub fn parse_text(text: &str, data_type: &DataType, settings: &TextSettings) -> Result<ScalarValue, TextError> {
    Ok(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(parse_bool(text)?)),
        DataType::Int16 => ScalarValue::Int16(Some(parse_int2(text)?)),
        DataType::Int32 => ScalarValue::Int32(Some(parse_int4(text)?)),
        DataType::Int64 => ScalarValue::Int64(Some(parse_int8(text)?)),
        DataType::UInt64 => {
            ScalarValue::UInt64(Some(u64::try_from(parse_int8(text)?).map_err(|_| TextError::out_of_range("bigint", text))?))
        }
        DataType::Float32 => ScalarValue::Float32(Some(parse_float4(text)?)),
        DataType::Float64 => ScalarValue::Float64(Some(parse_float8(text)?)),
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(parse_decimal128(text, *precision, *scale)?), *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            ScalarValue::Decimal256(Some(parse_decimal256(text, *precision, *scale)?), *precision, *scale)
        }
        DataType::Utf8View => ScalarValue::Utf8View(Some(text.to_string())),
        DataType::Utf8 => ScalarValue::Utf8(Some(text.to_string())),
        DataType::LargeUtf8 => ScalarValue::LargeUtf8(Some(normalize_json(text)?)),
        DataType::Binary => ScalarValue::Binary(Some(parse_bytea(text)?)),
        DataType::BinaryView => ScalarValue::BinaryView(Some(parse_bytea(text)?)),
        DataType::FixedSizeBinary(16) => ScalarValue::FixedSizeBinary(16, Some(parse_uuid(text)?.to_vec())),
        DataType::Date32 => ScalarValue::Date32(Some(parse_date(text, settings)?)),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(Some(parse_time(text, settings)?)),
        DataType::Timestamp(TimeUnit::Microsecond, None) => ScalarValue::TimestampMicrosecond(Some(parse_timestamp(text, settings)?), None),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) => {
            ScalarValue::TimestampMicrosecond(Some(parse_timestamptz(text, settings)?), Some(Arc::clone(zone)))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => ScalarValue::IntervalMonthDayNano(Some(parse_interval(text, settings)?)),
        DataType::List(_) => ScalarValue::List(Arc::new(parse_list(&split_array_literal(text)?, text, data_type, settings)?)),
        other => return Err(TextError::new("0A000", format!("cannot read a value of type {}", sql_type_name(other)))),
    })
}

/// An array literal as a list of one row.
fn parse_list(literal: &ArrayLiteral, text: &str, data_type: &DataType, settings: &TextSettings) -> Result<ListArray, TextError> {
    let malformed = || TextError::new("22P02", format!("malformed array literal: \"{text}\""));
    let (DataType::List(field), ArrayLiteral::Array(items)) = (data_type, literal) else { return Err(malformed()) };
    let item_type = field.data_type();
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        values.push(match (item, item_type) {
            (ArrayLiteral::Array(_), DataType::List(_)) => ScalarValue::List(Arc::new(parse_list(item, text, item_type, settings)?)),
            (ArrayLiteral::Array(_), _) => {
                return Err(TextError::new(
                    "0A000",
                    format!("multidimensional arrays of {} are not supported here", sql_type_name(item_type)),
                ));
            }
            (ArrayLiteral::Null, _) => ScalarValue::try_from(item_type).map_err(|_| malformed())?,
            (ArrayLiteral::Element(_), DataType::List(_)) => return Err(malformed()),
            (ArrayLiteral::Element(element), _) => parse_text(element, item_type, settings)?,
        });
    }
    let values = if values.is_empty() {
        arrow::array::new_empty_array(item_type)
    } else {
        ScalarValue::iter_to_array(values).map_err(|_| malformed())?
    };
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Ok(ListArray::new(Arc::clone(field), offsets, values, None))
}
