//! Operators on the bits of integers, and between booleans.

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Int16Type, Int32Type, Int64Type},
};

use super::{arithmetic::zip, kernel::Call, signature::Entry};
use crate::error::Result;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::operator("&(smallint, smallint) smallint", "int2and", |call| bits(call, |left, right| left & right)),
    Entry::operator("&(integer, integer) integer", "int4and", |call| bits(call, |left, right| left & right)),
    Entry::operator("&(bigint, bigint) bigint", "int8and", |call| bits(call, |left, right| left & right)),
    Entry::operator("|(smallint, smallint) smallint", "int2or", |call| bits(call, |left, right| left | right)),
    Entry::operator("|(integer, integer) integer", "int4or", |call| bits(call, |left, right| left | right)),
    Entry::operator("|(bigint, bigint) bigint", "int8or", |call| bits(call, |left, right| left | right)),
    Entry::operator("#(smallint, smallint) smallint", "int2xor", |call| bits(call, |left, right| left ^ right)),
    Entry::operator("#(integer, integer) integer", "int4xor", |call| bits(call, |left, right| left ^ right)),
    Entry::operator("#(bigint, bigint) bigint", "int8xor", |call| bits(call, |left, right| left ^ right)),
    Entry::operator("<<(smallint, integer) smallint", "int2shl", |call| shift(call, true)),
    Entry::operator("<<(integer, integer) integer", "int4shl", |call| shift(call, true)),
    Entry::operator("<<(bigint, integer) bigint", "int8shl", |call| shift(call, true)),
    Entry::operator(">>(smallint, integer) smallint", "int2shr", |call| shift(call, false)),
    Entry::operator(">>(integer, integer) integer", "int4shr", |call| shift(call, false)),
    Entry::operator(">>(bigint, integer) bigint", "int8shr", |call| shift(call, false)),
    Entry::operator("~(smallint) smallint", "int2not", invert),
    Entry::operator("~(integer) integer", "int4not", invert),
    Entry::operator("~(bigint) bigint", "int8not", invert),
];

/// Wider bits, cut, are the bits of the narrower integer.
fn bits(call: &Call<'_>, operation: fn(i64, i64) -> i64) -> Result<ArrayRef> {
    match call.result {
        DataType::Int16 => zip::<Int16Type>(call, |left, right| Ok(operation(i64::from(left), i64::from(right)) as i16)),
        DataType::Int32 => zip::<Int32Type>(call, |left, right| Ok(operation(i64::from(left), i64::from(right)) as i32)),
        _ => zip::<Int64Type>(call, |left, right| Ok(operation(left, right))),
    }
}

fn shift(call: &Call<'_>, left: bool) -> Result<ArrayRef> {
    let counts = call.values::<Int32Type>(1)?;
    // As the processor does: only so many bits of the count as the width has.
    match call.result {
        DataType::Int16 => {
            let values = call.values::<Int16Type>(0)?;
            call.build::<Int16Type>(|row| {
                let (Some(value), Some(count)) = (values.get(row), counts.get(row)) else { return Ok(None) };
                let wide = i32::from(value);
                Ok(Some(if left { wide.wrapping_shl(count as u32) as i16 } else { wide.wrapping_shr(count as u32) as i16 }))
            })
        }
        DataType::Int32 => {
            let values = call.values::<Int32Type>(0)?;
            call.build::<Int32Type>(|row| {
                let (Some(value), Some(count)) = (values.get(row), counts.get(row)) else { return Ok(None) };
                Ok(Some(if left { value.wrapping_shl(count as u32) } else { value.wrapping_shr(count as u32) }))
            })
        }
        _ => {
            let values = call.values::<Int64Type>(0)?;
            call.build::<Int64Type>(|row| {
                let (Some(value), Some(count)) = (values.get(row), counts.get(row)) else { return Ok(None) };
                Ok(Some(if left { value.wrapping_shl(count as u32) } else { value.wrapping_shr(count as u32) }))
            })
        }
    }
}

fn invert(call: &Call<'_>) -> Result<ArrayRef> {
    match call.result {
        DataType::Int16 => {
            let values = call.values::<Int16Type>(0)?;
            call.build::<Int16Type>(|row| Ok(values.get(row).map(|value| !value)))
        }
        DataType::Int32 => {
            let values = call.values::<Int32Type>(0)?;
            call.build::<Int32Type>(|row| Ok(values.get(row).map(|value| !value)))
        }
        _ => {
            let values = call.values::<Int64Type>(0)?;
            call.build::<Int64Type>(|row| Ok(values.get(row).map(|value| !value)))
        }
    }
}
