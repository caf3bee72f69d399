//! Which Arrow types are stored, which arrays pass for them, and how a type is written down in a log.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef},
    datatypes::{DataType, Field, IntervalUnit, TimeUnit},
};

use super::{
    cursor::Cursor,
    primitive::{PrimitiveVisitor, visit_primitive},
};
use crate::error::{Result, StorageError};

struct IsPrimitive;

impl PrimitiveVisitor for IsPrimitive {
    type Output = ();
    fn visit<T: arrow::array::ArrowPrimitiveType>(self) {}
}

/// Whether the type is a string of bytes of varying length.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// An error unless values of the type can be stored.
pub(super) fn check_supported(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Null | DataType::Boolean | DataType::FixedSizeBinary(_) => Ok(()),
        DataType::List(element) => check_supported(element.data_type()),
        other if is_bytes(other) || visit_primitive(other, IsPrimitive).is_some() => Ok(()),
        other => Err(StorageError::Internal(format!("values of type {other} cannot be stored"))),
    }
}

/// Whether arrays of type `actual` can be encoded as `declared`: the layout of strings, time zones, decimal precision and field
/// names do not matter.
pub(super) fn is_compatible(declared: &DataType, actual: &DataType) -> bool {
    let text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    match (declared, actual) {
        (DataType::Timestamp(left, _), DataType::Timestamp(right, _)) => left == right,
        (DataType::Decimal128(_, left), DataType::Decimal128(_, right)) => left == right,
        (DataType::Decimal256(_, left), DataType::Decimal256(_, right)) => left == right,
        (DataType::List(left), DataType::List(right)) => is_compatible(left.data_type(), right.data_type()),
        (left, right) if is_bytes(left) && is_bytes(right) => text(left) == text(right),
        (left, right) => left == right,
    }
}

/// An error unless the columns have the declared types and one length; returns that length.
pub(super) fn check_columns<'a>(declared: impl ExactSizeIterator<Item = &'a DataType>, columns: &[ArrayRef]) -> Result<usize> {
    if declared.len() != columns.len() {
        return Err(StorageError::Internal(format!("{} columns were given, {} are declared", columns.len(), declared.len())));
    }
    let rows = columns.first().map_or(0, |column| column.len());
    for (index, (declared, column)) in declared.zip(columns).enumerate() {
        if column.len() != rows {
            return Err(StorageError::Internal(format!("column {index} has {} rows, the first has {rows}", column.len())));
        }
        if !is_compatible(declared, column.data_type()) {
            return Err(StorageError::Internal(format!("column {index} is {}, but declared {declared}", column.data_type())));
        }
    }
    Ok(rows)
}

/// Appends a type to `out`: a tag, and its parameters.
pub(crate) fn write_data_type(data_type: &DataType, out: &mut Vec<u8>) -> Result<()> {
    check_supported(data_type)?;
    match data_type {
        DataType::Null => out.push(0),
        DataType::Boolean => out.push(1),
        DataType::Int16 => out.push(2),
        DataType::Int32 => out.push(3),
        DataType::Int64 => out.push(4),
        DataType::Float32 => out.push(5),
        DataType::Float64 => out.push(6),
        DataType::Decimal128(precision, scale) => out.extend([7, *precision, *scale as u8]),
        DataType::Decimal256(precision, scale) => out.extend([8, *precision, *scale as u8]),
        DataType::Date32 => out.push(9),
        DataType::Time64(unit) => out.extend([10, unit_tag(*unit)]),
        DataType::Timestamp(unit, None) => out.extend([11, unit_tag(*unit)]),
        DataType::Timestamp(unit, Some(zone)) => {
            out.extend([12, unit_tag(*unit), zone.len() as u8]);
            out.extend_from_slice(zone.as_bytes());
        }
        DataType::Interval(_) => out.push(13),
        DataType::Utf8 => out.push(14),
        DataType::LargeUtf8 => out.push(15),
        DataType::Utf8View => out.push(16),
        DataType::Binary => out.push(17),
        DataType::LargeBinary => out.push(18),
        DataType::BinaryView => out.push(19),
        DataType::FixedSizeBinary(width) => {
            out.push(20);
            out.extend_from_slice(&width.to_le_bytes());
        }
        DataType::List(element) => {
            out.push(21);
            write_data_type(element.data_type(), out)?;
        }
        other => return Err(StorageError::Internal(format!("{other} has no tag"))),
    }
    Ok(())
}

/// Reads what [`write_data_type`] wrote.
pub(super) fn read_data_type(from: &mut Cursor<'_>) -> Result<DataType> {
    Ok(match from.u8()? {
        0 => DataType::Null,
        1 => DataType::Boolean,
        2 => DataType::Int16,
        3 => DataType::Int32,
        4 => DataType::Int64,
        5 => DataType::Float32,
        6 => DataType::Float64,
        7 => DataType::Decimal128(from.u8()?, from.u8()? as i8),
        8 => DataType::Decimal256(from.u8()?, from.u8()? as i8),
        9 => DataType::Date32,
        10 => DataType::Time64(read_unit(from)?),
        11 => DataType::Timestamp(read_unit(from)?, None),
        12 => {
            let unit = read_unit(from)?;
            let length = from.u8()?;
            DataType::Timestamp(unit, Some(from.text(usize::from(length))?.into()))
        }
        13 => DataType::Interval(IntervalUnit::MonthDayNano),
        14 => DataType::Utf8,
        15 => DataType::LargeUtf8,
        16 => DataType::Utf8View,
        17 => DataType::Binary,
        18 => DataType::LargeBinary,
        19 => DataType::BinaryView,
        20 => DataType::FixedSizeBinary(from.u32()? as i32),
        21 => DataType::List(Arc::new(Field::new_list_field(read_data_type(from)?, true))),
        tag => return Err(from.corrupt(format!("unknown type tag {tag}"))),
    })
}

fn unit_tag(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

fn read_unit(from: &mut Cursor<'_>) -> Result<TimeUnit> {
    Ok(match from.u8()? {
        0 => TimeUnit::Second,
        1 => TimeUnit::Millisecond,
        2 => TimeUnit::Microsecond,
        3 => TimeUnit::Nanosecond,
        tag => return Err(from.corrupt(format!("unknown time unit {tag}"))),
    })
}
