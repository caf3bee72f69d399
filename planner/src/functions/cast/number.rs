//! Numbers to numbers.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type},
};

use super::{
    super::{
        arithmetic::out_of_range,
        decimal::{Decimal, field_overflow},
        kernel::{Call, Traits},
    },
    Conversion,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    types::{NUMERIC_MAX_PRECISION, SqlType, decimal::Digits},
};

/// Conversions that may lose something.
pub(super) fn find(from: &SqlType, to: &SqlType) -> Option<Conversion> {
    use SqlType as T;
    let code = |name, evaluate| Some(Conversion::Code(name, Traits::STRICT, evaluate));
    match (from, to) {
        (T::Integer | T::BigInt, T::SmallInt) => code("int2", narrow),
        (T::BigInt, T::Integer) => code("int4", narrow),
        (T::Real | T::Double, T::SmallInt) => code("int2", float_to_integer),
        (T::Real | T::Double, T::Integer) => code("int4", float_to_integer),
        (T::Real | T::Double, T::BigInt) => code("int8", float_to_integer),
        (T::Double, T::Real) => code("float4", double_to_real),
        (T::Numeric(..), T::SmallInt) => code("int2", numeric_to_integer),
        (T::Numeric(..), T::Integer) => code("int4", numeric_to_integer),
        (T::Numeric(..), T::BigInt) => code("int8", numeric_to_integer),
        (T::Numeric(..), T::Real) => code("float4", numeric_to_float),
        (T::Numeric(..), T::Double) => code("float8", numeric_to_float),
        (T::Real | T::Double, T::Numeric(..)) => code("numeric", float_to_numeric),
        _ => None,
    }
}

/// Integers of any width as 64 bits.
fn integer(array: &ArrayRef, row: usize) -> Result<Option<i64>> {
    if array.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match array.data_type() {
        DataType::Int16 => i64::from(array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => i64::from(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row),
        other => return Err(PlanError::internal(format!("an integer was expected, not {other}"))),
    }))
}

fn float(array: &ArrayRef, row: usize) -> Result<Option<f64>> {
    if array.is_null(row) {
        return Ok(None);
    }
    Ok(Some(match array.data_type() {
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row),
        other => return Err(PlanError::internal(format!("a float was expected, not {other}"))),
    }))
}

/// A column of integers of the call's result type.
fn build_integers(call: &Call<'_>, mut value: impl FnMut(usize) -> Result<Option<i64>>) -> Result<ArrayRef> {
    let range = || out_of_range(call.result);
    match call.result {
        DataType::Int16 => call.build::<Int16Type>(|row| value(row)?.map(i16::try_from).transpose().map_err(|_| range())),
        DataType::Int32 => call.build::<Int32Type>(|row| value(row)?.map(i32::try_from).transpose().map_err(|_| range())),
        _ => call.build::<Int64Type>(value),
    }
}

fn narrow(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    build_integers(call, |row| integer(&array, row))
}

pub(super) fn integer_to_boolean(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    call.build_booleans(|row| Ok(integer(&array, row)?.map(|value| value != 0)))
}

/// Halves go to the even neighbour.
fn float_to_integer(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    build_integers(call, |row| {
        let Some(value) = float(&array, row)? else { return Ok(None) };
        let rounded = value.round_ties_even();
        // 2^63 itself is a double, the largest bigint is none.
        if rounded.is_nan() || !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded) {
            return Err(out_of_range(call.result));
        }
        Ok(Some(rounded as i64))
    })
}

fn double_to_real(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Float64Type>(0)?;
    call.build::<Float32Type>(|row| {
        let Some(value) = values.get(row) else { return Ok(None) };
        let narrow = value as f32;
        let problem = if narrow.is_infinite() && value.is_finite() {
            "overflow"
        } else if narrow == 0.0 && value != 0.0 {
            "underflow"
        } else {
            return Ok(Some(narrow));
        };
        Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {problem}")))
    })
}

fn numeric_to_integer(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.decimals(0)?;
    build_integers(call, |row| {
        let Some(value) = values.get(row) else { return Ok(None) };
        let whole = value.rescale(0)?.unscaled.to_i128().and_then(|value| i64::try_from(value).ok());
        whole.map(Some).ok_or_else(|| out_of_range(call.result))
    })
}

fn numeric_to_float(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.decimals(0)?;
    match call.result {
        DataType::Float32 => call.build::<Float32Type>(|row| Ok(values.get(row).map(|value| value.to_f64() as f32))),
        _ => call.build::<Float64Type>(|row| Ok(values.get(row).map(Decimal::to_f64))),
    }
}

fn digits_of_result(call: &Call<'_>) -> (u8, i8) {
    match call.result {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => (*precision, *scale),
        _ => (NUMERIC_MAX_PRECISION, 0),
    }
}

/// The value with the digits of the result, or 22003.
fn fitted(call: &Call<'_>, value: Decimal) -> Result<Decimal> {
    let (precision, scale) = digits_of_result(call);
    let value = value.rescale(i32::from(scale)).map_err(|_| field_overflow(precision, scale))?;
    if super::super::decimal::check_digits(value.unscaled, precision) { Ok(value) } else { Err(field_overflow(precision, scale)) }
}

pub(super) fn numeric_to_numeric(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.decimals(0)?;
    call.build_decimals(|row| values.get(row).map(|value| fitted(call, value)).transpose())
}

pub(super) fn integer_to_numeric(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    call.build_decimals(|row| integer(&array, row)?.map(|value| fitted(call, Decimal::from_i128(i128::from(value), 0))).transpose())
}

fn float_to_numeric(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let digits = if call.argument_type(0) == DataType::Float32 { 6 } else { 15 };
    call.build_decimals(|row| {
        let Some(value) = float(&array, row)? else { return Ok(None) };
        if !value.is_finite() {
            let name = if value.is_nan() { "NaN" } else { "infinity" };
            return Err(PlanError::unsupported(format!("cannot convert {name} to numeric")).with_hint("Use double precision."));
        }
        let text = format!("{value:.*e}", digits - 1);
        let exact = Decimal::from_float(&text).ok_or_else(super::super::decimal::overflow)?;
        let shown = exact.rescale(exact.shown_scale())?;
        fitted(call, shown).map(Some)
    })
}

/// The digits that the text of a number needs; `None` if it is none, or needs more than there are.
pub(crate) fn digits_of_text(text: &str) -> Option<Digits> {
    let text = text.trim().trim_start_matches(['+', '-']);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = whole.trim_start_matches('0');
    let scale = (i32::try_from(fraction.len()).ok()?).checked_sub(exponent)?.max(0);
    let digits = if significant.is_empty() {
        let skipped = fraction.len() - fraction.trim_start_matches('0').len();
        (fraction.len() - skipped) as i32 + exponent.max(0)
    } else {
        (significant.len() + fraction.len()) as i32 + (exponent - fraction.len() as i32).max(0)
    };
    let precision = digits.max(scale).max(1);
    if precision > i32::from(NUMERIC_MAX_PRECISION) {
        return None;
    }
    Some(Digits { precision: precision as u8, scale: scale as i8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_literals() {
        for (text, expected) in [
            ("0.908", Some((3, 3))),
            ("1.5", Some((2, 1))),
            ("-12.50", Some((4, 2))),
            ("1e3", Some((4, 0))),
            ("1.5e-2", Some((3, 3))),
            ("0", Some((1, 0))),
            ("0.00", Some((2, 2))),
            ("1e60", Some((61, 0))),
            ("1e100", None),
            ("abc", None),
        ] {
            assert_eq!(digits_of_text(text).map(|digits| (digits.precision, digits.scale)), expected, "{text}");
        }
    }
}
