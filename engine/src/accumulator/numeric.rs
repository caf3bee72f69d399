//! Exact integers with a decimal scale, brought into the announced output type: division rounds half away from zero as Postgres' numeric
//! does, and what does not fit is SQLSTATE 22003.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Decimal128Array, Decimal256Array, Float64Array, Int64Array},
    datatypes::{DataType, Decimal128Type, Decimal256Type, DecimalType, i256},
};

use crate::error::{EngineError, Result};

/// `total * 10^shift / count`, rounded half away from zero; `None` when it does not fit 256 bits. `count` is not zero.
pub(crate) fn quotient(total: i256, count: i128, shift: i32) -> Option<i256> {
    let factor = i32::try_from(shift.unsigned_abs()).ok().filter(|digits| *digits <= 76)?;
    let small = total.to_i128().filter(|_| factor <= 38).and_then(|total| quotient_small(total, count, shift));
    if let Some(result) = small {
        return Some(i256::from_i128(result));
    }
    let power = i256::from_i128(10).checked_pow(factor as u32)?;
    let count = i256::from_i128(count);
    let (numerator, divisor) = if shift >= 0 { (total.checked_mul(power)?, count) } else { (total, count.checked_mul(power)?) };
    let whole = numerator.checked_div(divisor)?;
    let rest = numerator.checked_rem(divisor)?;
    let twice = rest.checked_abs()?.checked_mul(i256::from_i128(2))?;
    let away = if (numerator < i256::ZERO) == (divisor < i256::ZERO) { i256::ONE } else { i256::MINUS_ONE };
    if twice >= divisor.checked_abs()? { whole.checked_add(away) } else { Some(whole) }
}

fn quotient_small(total: i128, count: i128, shift: i32) -> Option<i128> {
    let power = 10i128.checked_pow(shift.unsigned_abs())?;
    let (numerator, divisor) = if shift >= 0 { (total.checked_mul(power)?, count) } else { (total, count.checked_mul(power)?) };
    let (whole, rest) = (numerator.checked_div(divisor)?, numerator.checked_rem(divisor)?);
    let away = if (numerator < 0) == (divisor < 0) { 1 } else { -1 };
    if rest.unsigned_abs() * 2 >= divisor.unsigned_abs() { whole.checked_add(away) } else { Some(whole) }
}

/// Digits after the point of an exact type.
pub(crate) fn scale_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => i32::from(*scale),
        _ => 0,
    }
}

/// The largest power of ten that a double holds exactly.
const EXACT_POWER_OF_TEN: i32 = 22;

/// `value / 10^scale` as a double, rounded once where the power is exact.
pub(crate) fn to_double(value: i256, scale: i32) -> f64 {
    let double = value.to_i128().map_or_else(|| wide_to_double(value), |value| value as f64);
    if scale.abs() <= EXACT_POWER_OF_TEN { double / 10f64.powi(scale) } else { double * 10f64.powi(-scale) }
}

fn wide_to_double(value: i256) -> f64 {
    let (low, high) = value.to_parts();
    high as f64 * 2f64.powi(128) + low as f64
}

/// An array of the output type from integers that carry the output type's scale (whole numbers for integers, `scale` digits for floats).
pub(crate) fn to_output(values: Vec<Option<i256>>, scale: i32, output: &DataType) -> Result<ArrayRef> {
    let values = values.into_iter();
    match output {
        DataType::Int64 => {
            let narrow = |value: i256| value.to_i128().and_then(|value| i64::try_from(value).ok()).ok_or_else(|| out_of_range("bigint"));
            let array = values.map(|value| value.map(narrow).transpose()).collect::<Result<Int64Array>>()?;
            Ok(Arc::new(array))
        }
        DataType::Decimal128(precision, _) => {
            let narrow = |value: i256| {
                let value = value.to_i128().filter(|value| Decimal128Type::is_valid_decimal_precision(*value, *precision));
                value.ok_or_else(numeric_overflow)
            };
            let array = values.map(|value| value.map(narrow).transpose()).collect::<Result<Decimal128Array>>()?;
            Ok(Arc::new(array.with_data_type(output.clone())))
        }
        DataType::Decimal256(precision, _) => {
            let check = |value: i256| match Decimal256Type::is_valid_decimal_precision(value, *precision) {
                true => Ok(value),
                false => Err(numeric_overflow()),
            };
            let array = values.map(|value| value.map(check).transpose()).collect::<Result<Decimal256Array>>()?;
            Ok(Arc::new(array.with_data_type(output.clone())))
        }
        DataType::Float64 => Ok(Arc::new(values.map(|value| value.map(|value| to_double(value, scale))).collect::<Float64Array>())),
        other => Err(EngineError::Internal(format!("an exact result cannot have the type {other}"))),
    }
}

/// The announced type is too small for the result.
pub(crate) fn out_of_range(type_name: &str) -> EngineError {
    EngineError::user("22003", format!("{type_name} out of range"))
}

/// A numeric result has too many digits.
pub(crate) fn numeric_overflow() -> EngineError {
    EngineError::user("22003", "value overflows numeric format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_round_half_away_from_zero() {
        let cases = [
            (7, 2, 0, 4),
            (-7, 2, 0, -4),
            (5, 3, 2, 167),
            (-5, 3, 2, -167),
            (1, 3, 0, 0),
            (14, 1, -1, 1),
            (15, 1, -1, 2),
            (-15, 1, -1, -2),
        ];
        for (total, count, shift, expected) in cases {
            assert_eq!(quotient(i256::from_i128(total), count, shift), Some(i256::from_i128(expected)), "{total}/{count} e{shift}");
        }
        let huge = i256::from_i128(i128::MAX);
        assert_eq!(quotient(huge, 1, 20), huge.checked_mul(i256::from_i128(10i128.pow(20))));
        assert_eq!(quotient(i256::MAX, 1, 5), None);
    }

    #[test]
    fn results_that_do_not_fit_are_errors() {
        let too_big = vec![Some(i256::from_i128(i128::from(i64::MAX) + 1))];
        assert!(to_output(too_big, 0, &DataType::Int64).is_err());
        assert!(to_output(vec![Some(i256::from_i128(1000))], 0, &DataType::Decimal128(3, 0)).is_err());
        assert!(to_output(vec![Some(i256::from_i128(999)), None], 0, &DataType::Decimal128(3, 0)).is_ok());
    }
}
