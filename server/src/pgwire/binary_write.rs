//! The binary form of values: big-endian, as each type's send function writes it.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use millpond_planner::pg_text::{
    DATE_INFINITY, DATE_NEGATIVE_INFINITY, TIMESTAMP_INFINITY, TIMESTAMP_NEGATIVE_INFINITY, TextSettings, write_decimal128,
    write_decimal256, write_text,
};

use super::numeric_binary::write_numeric;
use super::types::{self, element_of, oid_of};
use crate::error::SqlError;

/// Days from 1970-01-01 to 2000-01-01, where Postgres' binary dates begin.
pub(super) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(super) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Writes the value at `row`, which is not NULL, as a value of the type `oid`.
///
/// # Errors
/// 0A000 for a type without a binary form, 22003 for a value outside of the form's range.
pub(super) fn write_binary(array: &dyn Array, row: usize, oid: i32, out: &mut Vec<u8>) -> Result<(), SqlError> {
    match array.data_type() {
        DataType::Boolean => out.push(u8::from(array.as_boolean().value(row))),
        DataType::Int8 => write_integer(value::<Int8Type>(array, row).into(), oid, out)?,
        DataType::Int16 => write_integer(value::<Int16Type>(array, row).into(), oid, out)?,
        DataType::Int32 => write_integer(value::<Int32Type>(array, row).into(), oid, out)?,
        DataType::Int64 => write_integer(value::<Int64Type>(array, row), oid, out)?,
        DataType::UInt8 => write_integer(value::<UInt8Type>(array, row).into(), oid, out)?,
        DataType::UInt16 => write_integer(value::<UInt16Type>(array, row).into(), oid, out)?,
        DataType::UInt32 => write_integer(value::<UInt32Type>(array, row).into(), oid, out)?,
        DataType::UInt64 => match i64::try_from(value::<UInt64Type>(array, row)) {
            Ok(value) => write_integer(value, oid, out)?,
            Err(_) if oid == types::NUMERIC => write_numeric(value::<UInt64Type>(array, row).to_string().as_bytes(), out),
            Err(_) => return Err(SqlError::new("22003", "bigint out of range")),
        },
        DataType::Float32 if oid == types::FLOAT8 => {
            out.extend_from_slice(&f64::from(value::<Float32Type>(array, row)).to_be_bytes());
        }
        DataType::Float32 => out.extend_from_slice(&value::<Float32Type>(array, row).to_be_bytes()),
        DataType::Float64 => out.extend_from_slice(&value::<Float64Type>(array, row).to_be_bytes()),
        DataType::Decimal128(_, scale) => {
            let mut text = Vec::with_capacity(48);
            write_decimal128(value::<Decimal128Type>(array, row), *scale, &mut text);
            write_numeric(&text, out);
        }
        DataType::Decimal256(precision, scale) => {
            let mut text = Vec::with_capacity(96);
            write_decimal256(value::<Decimal256Type>(array, row), *precision, *scale, &mut text);
            write_numeric(&text, out);
        }
        DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::Utf8View => out.extend_from_slice(array.as_string_view().value(row).as_bytes()),
        DataType::LargeUtf8 => {
            if oid == types::JSONB {
                // Version of the form.
                out.push(1);
            }
            out.extend_from_slice(array.as_string::<i64>().value(row).as_bytes());
        }
        DataType::Binary => out.extend_from_slice(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => out.extend_from_slice(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => out.extend_from_slice(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => out.extend_from_slice(array.as_fixed_size_binary().value(row)),
        DataType::Date32 => out.extend_from_slice(&date(value::<Date32Type>(array, row))?.to_be_bytes()),
        DataType::Time64(TimeUnit::Microsecond) => out.extend_from_slice(&value::<Time64MicrosecondType>(array, row).to_be_bytes()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            out.extend_from_slice(&timestamp(value::<TimestampMicrosecondType>(array, row))?.to_be_bytes());
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = value::<IntervalMonthDayNanoType>(array, row);
            out.extend_from_slice(&(interval.nanoseconds / 1000).to_be_bytes());
            out.extend_from_slice(&interval.days.to_be_bytes());
            out.extend_from_slice(&interval.months.to_be_bytes());
        }
        DataType::List(_) => write_array(&array.as_list::<i32>().value(row), oid, out)?,
        DataType::LargeList(_) => write_array(&array.as_list::<i64>().value(row), oid, out)?,
        DataType::FixedSizeList(..) => write_array(&array.as_fixed_size_list().value(row), oid, out)?,
        DataType::Struct(_) => write_record(array, row, out)?,
        _ => write_other(array, row, oid, out)?,
    }
    Ok(())
}

fn value<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

/// In the width of the type that was announced.
fn write_integer(value: i64, oid: i32, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let out_of_range = |name: &str| SqlError::new("22003", format!("{name} out of range"));
    match oid {
        types::INT2 => out.extend_from_slice(&i16::try_from(value).map_err(|_| out_of_range("smallint"))?.to_be_bytes()),
        types::INT8 => out.extend_from_slice(&value.to_be_bytes()),
        types::INT4 => out.extend_from_slice(&i32::try_from(value).map_err(|_| out_of_range("integer"))?.to_be_bytes()),
        types::NUMERIC => write_numeric(value.to_string().as_bytes(), out),
        types::TEXT | types::NAME | types::VARCHAR | types::CHAR => out.extend_from_slice(value.to_string().as_bytes()),
        // An OID, or one of the types that are shown by a name and stored as an OID.
        _ => out.extend_from_slice(&(value as u32).to_be_bytes()),
    }
    Ok(())
}

fn date(days: i32) -> Result<i32, SqlError> {
    match days {
        DATE_INFINITY | DATE_NEGATIVE_INFINITY => Ok(days),
        _ => days.checked_sub(EPOCH_DAYS).ok_or_else(|| SqlError::new("22008", "date out of range")),
    }
}

fn timestamp(micros: i64) -> Result<i64, SqlError> {
    match micros {
        TIMESTAMP_INFINITY | TIMESTAMP_NEGATIVE_INFINITY => Ok(micros),
        _ => micros.checked_sub(EPOCH_MICROS).ok_or_else(|| SqlError::new("22008", "timestamp out of range")),
    }
}

/// Dimensions, whether there are NULLs, element type, bounds, elements.
fn write_array(items: &ArrayRef, oid: i32, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let mut lengths = Vec::new();
    let mut leaves = Vec::new();
    flatten(items, 0, &mut lengths, &mut leaves)?;
    let leaf_type = leaf_type(items.data_type());
    let element = element_of(oid).unwrap_or_else(|| oid_of(leaf_type));
    let has_nulls = leaves.iter().any(|(array, row)| array.is_null(*row));
    let dimensions: &[usize] = if leaves.is_empty() { &[] } else { &lengths };
    out.extend_from_slice(&(dimensions.len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(has_nulls).to_be_bytes());
    out.extend_from_slice(&element.to_be_bytes());
    for length in dimensions {
        out.extend_from_slice(&(*length as i32).to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
    }
    leaves.iter().try_for_each(|(array, row)| write_counted(array.as_ref(), *row, element, out))
}

fn leaf_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => leaf_type(item.data_type()),
        other => other,
    }
}

/// The elements of an array of any number of dimensions, in order. Sub-arrays of one level must have one length.
fn flatten(items: &ArrayRef, depth: usize, lengths: &mut Vec<usize>, leaves: &mut Vec<(ArrayRef, usize)>) -> Result<(), SqlError> {
    match lengths.get(depth) {
        None => lengths.push(items.len()),
        Some(length) if *length == items.len() => {}
        Some(_) => return Err(SqlError::new("2202E", "multidimensional arrays must have array expressions with matching dimensions")),
    }
    for row in 0..items.len() {
        match items.data_type() {
            DataType::List(_) if items.is_valid(row) => flatten(&items.as_list::<i32>().value(row), depth + 1, lengths, leaves)?,
            DataType::LargeList(_) if items.is_valid(row) => flatten(&items.as_list::<i64>().value(row), depth + 1, lengths, leaves)?,
            _ => leaves.push((ArrayRef::clone(items), row)),
        }
    }
    Ok(())
}

/// Length, or -1 for NULL, and the value.
fn write_counted(array: &dyn Array, row: usize, oid: i32, out: &mut Vec<u8>) -> Result<(), SqlError> {
    if array.is_null(row) {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    write_binary(array, row, oid, out)?;
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Number of fields, then each with its type.
fn write_record(array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let fields = array.as_struct().columns();
    out.extend_from_slice(&(fields.len() as i32).to_be_bytes());
    for field in fields {
        let oid = oid_of(field.data_type());
        out.extend_from_slice(&oid.to_be_bytes());
        write_counted(field.as_ref(), row, oid, out)?;
    }
    Ok(())
}

/// Layouts that no SQL type has but some function may give: through the layout that the type has.
fn write_other(array: &dyn Array, row: usize, oid: i32, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let usual = match array.data_type() {
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => DataType::Decimal128(*precision, *scale),
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        _ => return write_text(array, row, &TextSettings::default(), out).map_err(SqlError::from),
    };
    let one = arrow::compute::cast(&array.slice(row, 1), &usual)?;
    write_binary(one.as_ref(), 0, oid, out)
}
