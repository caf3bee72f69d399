//! Parameters in binary form.

use std::sync::Arc;

use arrow::array::{Array, ListArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::scalar::ScalarValue;
use millpond_planner::pg_text::{
    DATE_INFINITY, DATE_NEGATIVE_INFINITY, MICROS_PER_DAY, TIMESTAMP_INFINITY, TIMESTAMP_NEGATIVE_INFINITY, normalize_json,
    parse_decimal128, parse_decimal256, sql_type_name,
};

use super::binary_write::{EPOCH_DAYS, EPOCH_MICROS};
use super::message::{utf8, violation};
use super::numeric_binary::read_numeric;
use super::types;
use crate::error::SqlError;

/// Most elements of an array parameter's dimension description that are believed before they are seen.
const MAX_DIMENSIONS: i32 = 6;

/// Reads a value of `data_type`, sent as the type `oid`.
///
/// # Errors
/// 22P03 when the bytes are not a value of the type, 22021 for text that is not UTF-8, 22003 for numbers that do not fit.
pub(crate) fn read_binary(bytes: &[u8], data_type: &DataType, oid: i32) -> Result<ScalarValue, SqlError> {
    Ok(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(fixed::<1>(bytes)?[0] != 0)),
        DataType::Int16 => ScalarValue::Int16(Some(i16::try_from(integer(bytes)?).map_err(|_| out_of_range("smallint"))?)),
        DataType::Int32 => ScalarValue::Int32(Some(i32::try_from(integer(bytes)?).map_err(|_| out_of_range("integer"))?)),
        DataType::Int64 => ScalarValue::Int64(Some(integer(bytes)?)),
        DataType::Float32 => ScalarValue::Float32(Some(f32::from_be_bytes(fixed(bytes)?))),
        DataType::Float64 if bytes.len() == 4 => ScalarValue::Float64(Some(f64::from(f32::from_be_bytes(fixed(bytes)?)))),
        DataType::Float64 => ScalarValue::Float64(Some(f64::from_be_bytes(fixed(bytes)?))),
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(parse_decimal128(&read_numeric(bytes)?, *precision, *scale)?), *precision, *scale)
        }
        DataType::Decimal256(precision, scale) => {
            ScalarValue::Decimal256(Some(parse_decimal256(&read_numeric(bytes)?, *precision, *scale)?), *precision, *scale)
        }
        DataType::Utf8View => ScalarValue::Utf8View(Some(utf8(bytes)?.to_string())),
        DataType::Utf8 => ScalarValue::Utf8(Some(utf8(bytes)?.to_string())),
        DataType::LargeUtf8 => ScalarValue::LargeUtf8(Some(normalize_json(json_text(bytes, oid)?)?)),
        DataType::Binary => ScalarValue::Binary(Some(bytes.to_vec())),
        DataType::BinaryView => ScalarValue::BinaryView(Some(bytes.to_vec())),
        DataType::FixedSizeBinary(16) => ScalarValue::FixedSizeBinary(16, Some(fixed::<16>(bytes)?.to_vec())),
        DataType::Date32 => ScalarValue::Date32(Some(date(i32::from_be_bytes(fixed(bytes)?))?)),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(Some(time(i64::from_be_bytes(fixed(bytes)?))?)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(timestamp(i64::from_be_bytes(fixed(bytes)?))?), zone.clone())
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => ScalarValue::IntervalMonthDayNano(Some(interval(bytes)?)),
        DataType::List(_) => read_list(bytes, data_type)?,
        other => return Err(SqlError::unsupported(format!("no binary input for type {}", sql_type_name(other)))),
    })
}

fn bad_format() -> SqlError {
    SqlError::new("22P03", "incorrect binary data format")
}

fn out_of_range(name: &str) -> SqlError {
    SqlError::new("22003", format!("{name} out of range"))
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| bad_format())
}

/// Drivers send integers in the width that they know, not always the one that was inferred.
fn integer(bytes: &[u8]) -> Result<i64, SqlError> {
    match bytes.len() {
        2 => Ok(i64::from(i16::from_be_bytes(fixed(bytes)?))),
        4 => Ok(i64::from(i32::from_be_bytes(fixed(bytes)?))),
        8 => Ok(i64::from_be_bytes(fixed(bytes)?)),
        _ => Err(bad_format()),
    }
}

/// json is sent as it is, jsonb behind the version of the form.
fn json_text(bytes: &[u8], oid: i32) -> Result<&str, SqlError> {
    match bytes {
        [1, rest @ ..] if oid != types::JSON => utf8(rest),
        [version, ..] if oid == types::JSONB => Err(SqlError::new("XX000", format!("unsupported jsonb version number {version}"))),
        _ => utf8(bytes),
    }
}

fn date(days: i32) -> Result<i32, SqlError> {
    match days {
        DATE_INFINITY | DATE_NEGATIVE_INFINITY => Ok(days),
        _ => days.checked_add(EPOCH_DAYS).filter(|days| *days != DATE_INFINITY).ok_or_else(|| SqlError::new("22008", "date out of range")),
    }
}

fn time(micros: i64) -> Result<i64, SqlError> {
    if (0..=MICROS_PER_DAY).contains(&micros) { Ok(micros) } else { Err(SqlError::new("22008", "time out of range")) }
}

fn timestamp(micros: i64) -> Result<i64, SqlError> {
    match micros {
        TIMESTAMP_INFINITY | TIMESTAMP_NEGATIVE_INFINITY => Ok(micros),
        _ => micros
            .checked_add(EPOCH_MICROS)
            .filter(|micros| *micros != TIMESTAMP_INFINITY)
            .ok_or_else(|| SqlError::new("22008", "timestamp out of range")),
    }
}

fn interval(bytes: &[u8]) -> Result<IntervalMonthDayNano, SqlError> {
    let all: [u8; 16] = fixed(bytes)?;
    let micros = i64::from_be_bytes(fixed(&all[..8])?);
    let nanoseconds = micros.checked_mul(1000).ok_or_else(|| SqlError::new("22008", "interval out of range"))?;
    Ok(IntervalMonthDayNano { days: i32::from_be_bytes(fixed(&all[8..12])?), months: i32::from_be_bytes(fixed(&all[12..])?), nanoseconds })
}

/// What is left of an array's bytes.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SqlError> {
        if self.rest.len() < count {
            return Err(violation("insufficient data left in message"));
        }
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    fn int32(&mut self) -> Result<i32, SqlError> {
        Ok(i32::from_be_bytes(fixed(self.take(4)?)?))
    }
}

fn read_list(bytes: &[u8], data_type: &DataType) -> Result<ScalarValue, SqlError> {
    let mut reader = Reader { rest: bytes };
    let dimensions = reader.int32()?;
    let _has_nulls = reader.int32()?;
    let element_oid = reader.int32()?;
    if !(0..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(SqlError::new("54000", format!("number of array dimensions ({dimensions}) exceeds the maximum allowed (6)")));
    }
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(usize::try_from(reader.int32()?).map_err(|_| bad_format())?);
        let _lower_bound = reader.int32()?;
    }
    let list = read_dimension(&mut reader, &lengths, data_type, element_oid)?;
    if reader.rest.is_empty() { Ok(ScalarValue::List(Arc::new(list))) } else { Err(bad_format()) }
}

/// One array of the remaining dimensions, as a list of one row.
fn read_dimension(reader: &mut Reader<'_>, lengths: &[usize], data_type: &DataType, element_oid: i32) -> Result<ListArray, SqlError> {
    let DataType::List(field) = data_type else {
        return Err(SqlError::unsupported("multidimensional arrays are not supported here"));
    };
    let item_type = field.data_type();
    let (length, inner) = lengths.split_first().map_or((0, lengths), |(length, inner)| (*length, inner));
    // An element has at least its length field.
    let mut values = Vec::with_capacity(length.min(reader.rest.len() / 4));
    for _ in 0..length {
        if !inner.is_empty() {
            values.push(ScalarValue::List(Arc::new(read_dimension(reader, inner, item_type, element_oid)?)));
            continue;
        }
        values.push(match reader.int32()? {
            -1 => ScalarValue::try_from(item_type)?,
            count => {
                let count = usize::try_from(count).map_err(|_| bad_format())?;
                read_binary(reader.take(count)?, item_type, element_oid)?
            }
        });
    }
    let values = if values.is_empty() { new_empty_array(item_type) } else { ScalarValue::iter_to_array(values)? };
    Ok(ListArray::new(Arc::clone(field), OffsetBuffer::from_lengths([values.len()]), values, None))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use millpond_planner::pg_text::{TextSettings, parse_text};

    use super::super::binary_write::write_binary;
    use super::super::types::oid_of;
    use super::*;

    /// What a text's value is in binary form, and what that is read as.
    fn round(text: &str, data_type: &DataType) -> (Vec<u8>, ScalarValue, ScalarValue) {
        let value = parse_text(text, data_type, &TextSettings::default()).expect("a value");
        let array = value.to_array().expect("one row");
        let mut bytes = Vec::new();
        write_binary(array.as_ref(), 0, oid_of(data_type), &mut bytes).expect("a form");
        let back = read_binary(&bytes, data_type, oid_of(data_type)).expect("a value");
        (bytes, value, back)
    }

    #[test]
    fn values_come_back() {
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        let cases = [
            (DataType::Boolean, "t"),
            (DataType::Int16, "-2"),
            (DataType::Int64, "9223372036854775807"),
            (DataType::Float32, "1.5"),
            (DataType::Float64, "NaN"),
            (DataType::Decimal128(20, 4), "-12345.6789"),
            (DataType::Decimal256(76, 20), "123456789012345678901234567890.5"),
            (DataType::Utf8View, "naïve"),
            (DataType::LargeUtf8, "{\"a\": 1}"),
            (DataType::Binary, "\\x00ff"),
            (DataType::FixedSizeBinary(16), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (DataType::Date32, "-infinity"),
            (DataType::Date32, "1999-12-31"),
            (DataType::Time64(TimeUnit::Microsecond), "24:00:00"),
            (DataType::Timestamp(TimeUnit::Microsecond, None), "infinity"),
            (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), "1969-12-31 23:59:59.999999"),
            (DataType::Interval(IntervalUnit::MonthDayNano), "-1 mon 2 days -00:00:03.5"),
            (list(DataType::Int32), "{1,NULL,3}"),
            (list(DataType::Utf8View), "{}"),
            (list(list(DataType::Int16)), "{{1,2},{3,4}}"),
        ];
        for (data_type, text) in cases {
            let (_, value, back) = round(text, &data_type);
            assert_eq!(back, value, "{text} as {data_type}");
        }
    }

    #[test]
    fn forms_are_those_of_postgres() {
        assert_eq!(round("2000-01-02", &DataType::Date32).0, [0, 0, 0, 1]);
        assert_eq!(
            round("1 mon 2 days 00:00:00.000003", &DataType::Interval(IntervalUnit::MonthDayNano)).0,
            [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1]
        );
        assert_eq!(round("true", &DataType::LargeUtf8).0, b"\x01true");
        let array = DataType::List(Arc::new(Field::new("item", DataType::Int16, true)));
        assert_eq!(round("{7,NULL}", &array).0, b"\0\0\0\x01\0\0\0\x01\0\0\0\x15\0\0\0\x02\0\0\0\x01\0\0\0\x02\0\x07\xff\xff\xff\xff");
    }

    #[test]
    fn broken_forms_are_refused() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Int32, true)));
        let broken: [(&DataType, &[u8]); 8] = [
            (&DataType::Int32, &[1, 2, 3]),
            (&DataType::Boolean, &[]),
            (&DataType::Date32, &[0]),
            (&DataType::FixedSizeBinary(16), &[0; 15]),
            (&DataType::Int16, &[0, 1, 0, 0]),
            (&DataType::Utf8View, &[0xff]),
            (&list, b"\0\0\0\x01\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\x01"),
            (&list, b"\0\0\0\x09\0\0\0\0\0\0\0\x17"),
        ];
        for (data_type, bytes) in broken {
            assert!(read_binary(bytes, data_type, oid_of(data_type)).is_err(), "{bytes:?} as {data_type}");
        }
    }
}
