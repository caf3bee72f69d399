//! One value of any Arrow array as text.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::array::{quote_array_element, quote_record_field};
use super::binary::{write_bytea, write_uuid};
use super::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND};
use super::date_write::{write_date, write_time, write_timestamp, write_timestamptz};
use super::float::{write_float4, write_float8};
use super::integer::{write_bool, write_integer, write_unsigned};
use super::interval_write::write_interval;
use super::numeric::{write_decimal128, write_decimal256};
use super::settings::{TextError, TextSettings};

/// Writes the value at `row`, which must not be NULL.
///
/// # Errors
/// 0A000 for an Arrow type that no SQL type has.
pub fn write_text(array: &dyn Array, row: usize, settings: &TextSettings, out: &mut Vec<u8>) -> Result<(), TextError> {
    match array.data_type() {
        DataType::Boolean => write_bool(array.as_boolean().value(row), out),
        DataType::Int8 => write_integer(primitive::<Int8Type>(array, row).into(), out),
        DataType::Int16 => write_integer(primitive::<Int16Type>(array, row).into(), out),
        DataType::Int32 => write_integer(primitive::<Int32Type>(array, row).into(), out),
        DataType::Int64 => write_integer(primitive::<Int64Type>(array, row), out),
        DataType::UInt8 => write_unsigned(primitive::<UInt8Type>(array, row).into(), out),
        DataType::UInt16 => write_unsigned(primitive::<UInt16Type>(array, row).into(), out),
        DataType::UInt32 => write_unsigned(primitive::<UInt32Type>(array, row).into(), out),
        DataType::UInt64 => write_unsigned(primitive::<UInt64Type>(array, row), out),
        DataType::Float16 => write_float4(primitive::<Float16Type>(array, row).to_f32(), settings.extra_float_digits, out),
        DataType::Float32 => write_float4(primitive::<Float32Type>(array, row), settings.extra_float_digits, out),
        DataType::Float64 => write_float8(primitive::<Float64Type>(array, row), settings.extra_float_digits, out),
        DataType::Decimal32(_, scale) => write_decimal128(primitive::<Decimal32Type>(array, row).into(), *scale, out),
        DataType::Decimal64(_, scale) => write_decimal128(primitive::<Decimal64Type>(array, row).into(), *scale, out),
        DataType::Decimal128(_, scale) => write_decimal128(primitive::<Decimal128Type>(array, row), *scale, out),
        DataType::Decimal256(precision, scale) => write_decimal256(primitive::<Decimal256Type>(array, row), *precision, *scale, out),
        DataType::Utf8View => out.extend_from_slice(array.as_string_view().value(row).as_bytes()),
        DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => out.extend_from_slice(array.as_string::<i64>().value(row).as_bytes()),
        DataType::Binary => write_bytea(array.as_binary::<i32>().value(row), settings.bytea_output, out),
        DataType::LargeBinary => write_bytea(array.as_binary::<i64>().value(row), settings.bytea_output, out),
        DataType::BinaryView => write_bytea(array.as_binary_view().value(row), settings.bytea_output, out),
        DataType::FixedSizeBinary(16) => write_uuid(array.as_fixed_size_binary().value(row), out),
        DataType::FixedSizeBinary(_) => write_bytea(array.as_fixed_size_binary().value(row), settings.bytea_output, out),
        DataType::Date32 => write_date(primitive::<Date32Type>(array, row), settings, out),
        DataType::Date64 => write_date((primitive::<Date64Type>(array, row).div_euclid(86_400_000)) as i32, settings, out),
        DataType::Time32(_) | DataType::Time64(_) => write_time(time_micros(array, row), out),
        DataType::Timestamp(_, None) => write_timestamp(timestamp_micros(array, row), settings, out),
        DataType::Timestamp(_, Some(_)) => write_timestamptz(timestamp_micros(array, row), settings, out),
        DataType::Interval(_) | DataType::Duration(_) => {
            let (months, days, nanos) = interval_parts(array, row);
            write_interval(months, days, nanos, settings.interval_style, out);
        }
        DataType::List(_) => write_array(&array.as_list::<i32>().value(row), settings, out)?,
        DataType::LargeList(_) => write_array(&array.as_list::<i64>().value(row), settings, out)?,
        DataType::FixedSizeList(_, _) => write_array(&array.as_fixed_size_list().value(row), settings, out)?,
        DataType::Struct(_) => write_record(array, row, settings, out)?,
        DataType::Dictionary(_, value_type) => {
            let plain = cast(&array.slice(row, 1), value_type).map_err(|error| TextError::new("XX000", error.to_string()))?;
            write_text(plain.as_ref(), 0, settings, out)?;
        }
        other => return Err(TextError::new("0A000", format!("values of type {other} cannot be shown"))),
    }
    Ok(())
}

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn time_micros(array: &dyn Array, row: usize) -> i64 {
    match array.data_type() {
        DataType::Time32(TimeUnit::Second) => i64::from(primitive::<Time32SecondType>(array, row)) * MICROS_PER_SECOND,
        DataType::Time32(_) => i64::from(primitive::<Time32MillisecondType>(array, row)) * 1000,
        DataType::Time64(TimeUnit::Nanosecond) => primitive::<Time64NanosecondType>(array, row) / 1000,
        _ => primitive::<Time64MicrosecondType>(array, row),
    }
}

fn timestamp_micros(array: &dyn Array, row: usize) -> i64 {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => primitive::<TimestampSecondType>(array, row).saturating_mul(MICROS_PER_SECOND),
        DataType::Timestamp(TimeUnit::Millisecond, _) => primitive::<TimestampMillisecondType>(array, row).saturating_mul(1000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => primitive::<TimestampNanosecondType>(array, row).div_euclid(1000),
        _ => primitive::<TimestampMicrosecondType>(array, row),
    }
}

/// (months, days, nanoseconds)
fn interval_parts(array: &dyn Array, row: usize) -> (i32, i32, i64) {
    match array.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => (primitive::<IntervalYearMonthType>(array, row), 0, 0),
        DataType::Interval(IntervalUnit::DayTime) => {
            let value = primitive::<IntervalDayTimeType>(array, row);
            (0, value.days, i64::from(value.milliseconds) * 1_000_000)
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let value = primitive::<IntervalMonthDayNanoType>(array, row);
            (value.months, value.days, value.nanoseconds)
        }
        DataType::Duration(TimeUnit::Second) => {
            duration_parts(primitive::<DurationSecondType>(array, row).saturating_mul(MICROS_PER_SECOND))
        }
        DataType::Duration(TimeUnit::Millisecond) => duration_parts(primitive::<DurationMillisecondType>(array, row).saturating_mul(1000)),
        DataType::Duration(TimeUnit::Nanosecond) => duration_parts(primitive::<DurationNanosecondType>(array, row) / 1000),
        _ => duration_parts(primitive::<DurationMicrosecondType>(array, row)),
    }
}

/// As Postgres shows a difference of timestamps: days, then the rest.
fn duration_parts(micros: i64) -> (i32, i32, i64) {
    (0, (micros / MICROS_PER_DAY) as i32, micros % MICROS_PER_DAY * 1000)
}

fn write_array(items: &ArrayRef, settings: &TextSettings, out: &mut Vec<u8>) -> Result<(), TextError> {
    out.push(b'{');
    for row in 0..items.len() {
        if row > 0 {
            out.push(b',');
        }
        if items.is_null(row) {
            out.extend_from_slice(b"NULL");
            continue;
        }
        let start = out.len();
        write_text(items.as_ref(), row, settings, out)?;
        if !matches!(items.data_type(), DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _)) {
            quote_array_element(start, out);
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_record(array: &dyn Array, row: usize, settings: &TextSettings, out: &mut Vec<u8>) -> Result<(), TextError> {
    out.push(b'(');
    for (at, column) in array.as_struct().columns().iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if column.is_valid(row) {
            let start = out.len();
            write_text(column.as_ref(), row, settings, out)?;
            quote_record_field(start, out);
        }
    }
    out.push(b')');
    Ok(())
}
