//! Roots, powers, exponentials and logarithms of numerics, with the digits that PostgreSQL gives them as far as a numeric can hold them.
//!
//! What has no end is computed on integers that stand for numbers with a fixed count of digits behind the point, some more than are shown.

use arrow::datatypes::i256;
use num_bigint::{BigInt, Sign};

use super::decimal::{Decimal, big_power_of_ten, digit_count, divide_rounded, division_by_zero, from_big, overflow, to_big};
use crate::{
    error::{PlanError, Result, sqlstate},
    types::{NUMERIC_FREE_SCALE, NUMERIC_MAX_PRECISION},
};

/// Digits that a result has at least.
const MIN_SIGNIFICANT_DIGITS: i32 = 16;
/// Digits that are computed beyond those that are shown.
const GUARD_DIGITS: i32 = 16;
/// A power with more digits than this is not computed digit by digit.
const EXACT_DIGITS: u64 = 4_000;

/// Numbers with so many digits behind the point, as integers.
#[derive(Clone, Copy)]
struct Fixed {
    places: i32,
}

impl Fixed {
    fn one(self) -> BigInt {
        big_power_of_ten(self.places.unsigned_abs())
    }

    fn of(self, value: Decimal) -> BigInt {
        shift(to_big(value.unscaled), self.places - value.scale)
    }

    /// The natural logarithm of a number above zero.
    fn logarithm(self, value: Decimal) -> BigInt {
        let exponent = exponent_of(value);
        let mantissa = self.of(Decimal::new(value.unscaled, value.scale + exponent));
        self.logarithm_of_mantissa(mantissa) + self.logarithm_of_mantissa(self.one() * 10) * exponent
    }

    /// That of a number from 1 to 10. Roots bring it close to 1, where the series of the inverse hyperbolic tangent takes few terms.
    fn logarithm_of_mantissa(self, mut value: BigInt) -> BigInt {
        const ROOTS: usize = 4;
        let one = self.one();
        for _ in 0..ROOTS {
            value = (value * &one).sqrt();
        }
        let tangent = (&value - &one) * &one / (&value + &one);
        let square = &tangent * &tangent / &one;
        let (mut power, mut sum, mut divisor) = (tangent.clone(), tangent, 1);
        while power.sign() != Sign::NoSign {
            power = power * &square / &one;
            divisor += 2;
            sum += &power / divisor;
        }
        sum << (ROOTS + 1)
    }

    /// e to the power of a number, as a number from 1 to 10 and the power of ten that it is multiplied by.
    fn exponential(self, value: &BigInt) -> Result<(BigInt, i32)> {
        const HALVINGS: usize = 8;
        let (one, ten) = (self.one(), self.logarithm_of_mantissa(self.one() * 10));
        let mut exponent = value / &ten;
        if &exponent * &ten > *value {
            exponent -= 1;
        }
        let rest = (value - &exponent * &ten) >> HALVINGS;
        let (mut term, mut sum, mut count) = (one.clone(), one.clone(), 0);
        while term.sign() != Sign::NoSign {
            count += 1;
            term = term * &rest / &one / count;
            sum += &term;
        }
        for _ in 0..HALVINGS {
            sum = &sum * &sum / &one;
        }
        Ok((sum, i32::try_from(&exponent).map_err(|_| overflow())?))
    }

    /// A number times a power of ten, rounded to a scale.
    fn rounded(self, value: &BigInt, exponent: i32, scale: i32) -> Result<Decimal> {
        let digits = scale + exponent - self.places;
        let unscaled =
            if digits >= 0 { shift(value.clone(), digits) } else { divide_rounded(value, &big_power_of_ten(digits.unsigned_abs())) };
        Ok(Decimal::new(from_big(&unscaled)?, scale))
    }
}

/// `value * 10^digits`, the digits behind the point cut off.
fn shift(value: BigInt, digits: i32) -> BigInt {
    let factor = big_power_of_ten(digits.unsigned_abs());
    if digits >= 0 { value * factor } else { value / factor }
}

/// The power of ten of a number's first digit.
fn exponent_of(value: Decimal) -> i32 {
    digit_count(value.unscaled) as i32 - 1 - value.scale
}

/// Digits behind the point of a result with so many digits before it, which shows what its operands show.
fn result_scale(weight: i32, operands: &[Decimal]) -> i32 {
    let shown = operands.iter().map(|operand| operand.display_scale()).max().unwrap_or(0);
    (MIN_SIGNIFICANT_DIGITS - weight).max(shown).clamp(0, i32::from(NUMERIC_FREE_SCALE))
}

/// The square root.
///
/// # Errors
/// 2201F below zero.
pub(super) fn square_root(value: Decimal) -> Result<Decimal> {
    if value.is_negative() {
        return Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER, "cannot take square root of a negative number"));
    }
    if value.is_zero() {
        return Ok(value);
    }
    // Weights are counted in groups of four digits.
    let scale = result_scale(exponent_of(value).div_euclid(4) * 2 + 1, &[value]);
    // One more digit than is shown, so that rounding is right: sqrt(u * 10^(2k - s)) has k digits after the point.
    let wanted = scale + 1;
    let root: BigInt = shift(to_big(value.unscaled), 2 * wanted - value.scale).sqrt();
    Decimal::new(from_big(&root)?, wanted).rescale(scale)
}

/// e to the power of a number.
///
/// # Errors
/// 22003 for what is too large.
pub(super) fn exponential(value: Decimal) -> Result<Decimal> {
    let weight = value.to_f64() * std::f64::consts::LOG10_E;
    let Some(scale) = scale_of_weight(weight, &[value])? else { return Ok(Decimal::from_i128(0, 0)) };
    let fixed = Fixed { places: scale + weight.max(0.0) as i32 + GUARD_DIGITS };
    let (mantissa, exponent) = fixed.exponential(&fixed.of(value))?;
    fixed.rounded(&mantissa, exponent, scale)
}

/// The scale of a result of about so many digits before the point; `None` if none of its digits can be seen.
fn scale_of_weight(weight: f64, operands: &[Decimal]) -> Result<Option<i32>> {
    if weight > f64::from(NUMERIC_MAX_PRECISION) {
        return Err(overflow());
    }
    let invisible = -f64::from(NUMERIC_FREE_SCALE) - 2.0;
    Ok((weight > invisible).then(|| result_scale(weight as i32, operands)))
}

/// The natural logarithm.
///
/// # Errors
/// 2201E for what is not above zero.
pub(super) fn natural_logarithm(value: Decimal) -> Result<Decimal> {
    let value = positive(value)?;
    let scale = result_scale(logarithm_weight(value), &[value]);
    let fixed = Fixed { places: scale + GUARD_DIGITS };
    fixed.rounded(&fixed.logarithm(value), 0, scale)
}

/// The logarithm to a base.
///
/// # Errors
/// 2201E for what is not above zero, 22012 for the base 1.
pub(super) fn logarithm(base: Decimal, value: Decimal) -> Result<Decimal> {
    let (base, value) = (positive(base)?, positive(value)?);
    let (base_weight, weight) = (logarithm_weight(base), logarithm_weight(value));
    let scale = result_scale(weight - base_weight, &[base, value]);
    // A base close to 1 has a small logarithm, whose first digits count.
    let fixed = Fixed { places: scale + GUARD_DIGITS + 2 * (-base_weight).max(0) + weight.max(0) };
    let divisor = fixed.logarithm(base);
    if divisor.sign() == Sign::NoSign {
        return Err(division_by_zero());
    }
    fixed.rounded(&(fixed.logarithm(value) * fixed.one() / divisor), 0, scale)
}

fn positive(value: Decimal) -> Result<Decimal> {
    let refused = |what: &str| Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, format!("cannot take logarithm of {what}")));
    if value.is_zero() {
        return refused("zero");
    }
    if value.is_negative() { refused("a negative number") } else { Ok(value) }
}

/// About the power of ten of the first digit of a number's logarithm.
fn logarithm_weight(value: Decimal) -> i32 {
    let number = value.to_f64();
    if !(0.9..=1.1).contains(&number) {
        return number.ln().abs().log10() as i32;
    }
    match value.subtract(Decimal::from_i128(1, 0)) {
        Ok(distance) if !distance.is_zero() => exponent_of(distance),
        _ => 0,
    }
}

/// A number to the power of another.
///
/// # Errors
/// 2201F for a power of zero or of a negative number that there is not, 22003 for what is too large.
pub(super) fn power(base: Decimal, exponent: Decimal) -> Result<Decimal> {
    let undefined = |message: &str| Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER, message));
    if base.is_zero() && exponent.is_negative() {
        return undefined("zero raised to a negative power is undefined");
    }
    let is_whole = exponent.shown_scale() == 0;
    if base.is_negative() && !is_whole {
        return undefined("a negative number raised to a non-integer power yields a complex result");
    }
    if exponent.is_zero() || base.is_zero() {
        return Ok(Decimal::from_i128(i128::from(exponent.is_zero()), 0));
    }
    let size = if base.is_negative() { base.negate() } else { base };
    let weight = exponent.to_f64() * size.to_f64().log10();
    let Some(scale) = scale_of_weight(weight, &[base, exponent])? else { return Ok(Decimal::from_i128(0, 0)) };
    let steps = if is_whole { exponent.rescale(0)?.unscaled.to_i128().and_then(|steps| i32::try_from(steps).ok()) } else { None };
    // Of a whole power the digits before the point do not count.
    let scale = if steps.is_some() { result_scale(0, &[base]) } else { scale };
    let is_odd = exponent.rescale(0)?.unscaled.wrapping_rem(i256::from_i128(2)) != i256::ZERO;
    let signed = |value: Decimal| if base.is_negative() && is_odd { value.negate() } else { value };
    if let Some(steps) = steps
        && let Some(exact) = whole_power(size, steps, scale)?
    {
        return Ok(signed(exact));
    }
    // The more digits the exponent has, the more of the logarithm count.
    let places = scale + weight.max(0.0) as i32 + GUARD_DIGITS + exponent_of(exponent).max(0);
    let fixed = Fixed { places };
    let product = fixed.logarithm(size) * to_big(exponent.unscaled) / big_power_of_ten(exponent.scale.unsigned_abs());
    let (mantissa, tens) = fixed.exponential(&product)?;
    fixed.rounded(&mantissa, tens, scale).map(signed)
}

/// A whole power of a number above zero, from all its digits; `None` if there are too many.
fn whole_power(base: Decimal, steps: i32, scale: i32) -> Result<Option<Decimal>> {
    let base = base.rescale(base.shown_scale())?;
    let count = steps.unsigned_abs();
    if u64::from(count) * u64::from(digit_count(base.unscaled)) > EXACT_DIGITS {
        return Ok(None);
    }
    let digits = base.scale * count as i32;
    let power = to_big(base.unscaled).pow(count);
    let unscaled = if steps > 0 {
        if scale >= digits {
            shift(power, scale - digits)
        } else {
            divide_rounded(&power, &big_power_of_ten((digits - scale).unsigned_abs()))
        }
    } else {
        divide_rounded(&big_power_of_ten((scale + digits).unsigned_abs()), &power)
    };
    Ok(Some(Decimal::new(from_big(&unscaled)?, scale)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        Decimal::from_i128(format!("{whole}{fraction}").parse().unwrap(), fraction.len() as i32)
    }

    fn shown(value: Result<Decimal>) -> String {
        match value {
            Ok(value) => {
                let (unscaled, scale) = (to_big(value.unscaled), value.scale.unsigned_abs());
                let one = big_power_of_ten(scale);
                let rest = (&unscaled % &one).magnitude().to_string();
                let sign = if unscaled.sign() == Sign::Minus { "-" } else { "" };
                format!("{sign}{}.{rest:0>width$}", (&unscaled / &one).magnitude(), width = scale as usize)
            }
            Err(error) => error.sqlstate.to_owned(),
        }
    }

    /// Expected values are what PostgreSQL 15 prints.
    #[test]
    fn results_have_the_digits_of_postgres() {
        for (function, value, expected) in [
            (exponential as fn(Decimal) -> Result<Decimal>, "1.0", "2.7182818284590452"),
            (exponential, "10.0", "22026.465794806717"),
            (exponential, "-5.5", "0.004086771438464067"),
            (exponential, "100.25", "34516107331259239871361985995265746750923963.19"),
            (natural_logarithm, "2.0", "0.6931471805599453"),
            (natural_logarithm, "0.5", "-0.6931471805599453"),
            (natural_logarithm, "123456789.123", "18.631401767164318"),
            (natural_logarithm, "0.00001", "-11.512925464970228"),
            (natural_logarithm, "0", "2201E"),
            (square_root, "2.0", "1.414213562373095"),
            (square_root, "0.0001", "0.01000000000000000"),
            (square_root, "123456789.5", "11111.11108305556"),
        ] {
            assert_eq!(shown(function(decimal(value))), expected, "{value}");
        }
        for (function, left, right, expected) in [
            (logarithm as fn(Decimal, Decimal) -> Result<Decimal>, "10", "2.0", "0.3010299956639812"),
            (logarithm, "10", "0.001", "-3.0000000000000000"),
            (logarithm, "2.0", "8.0", "3.0000000000000000"),
            (logarithm, "1.5", "1000000.0", "34.073241523605437"),
            (logarithm, "1", "2", "22012"),
            (power, "9.0", "3.0", "729.0000000000000000"),
            (power, "2.0", "-3.0", "0.1250000000000000"),
            (power, "1.5", "2.5", "2.7556759606310754"),
            (power, "-2.0", "3.0", "-8.0000000000000000"),
            (power, "1.0001", "100000", "22015.4560485521986457"),
            (power, "1.23456789012345678", "3", "1.88167637235365773"),
            (power, "0", "-1", "2201F"),
            (power, "-2", "0.5", "2201F"),
            (power, "10", "200", "22003"),
        ] {
            assert_eq!(shown(function(decimal(left), decimal(right))), expected, "{left}, {right}");
        }
    }

    #[test]
    fn powers_of_many_digits_are_right_to_the_last() {
        // 1.0001 ^ 400, by the exponential and digit by digit.
        let base = decimal("1.0001");
        let scale = 16;
        let exact = whole_power(base, 400, scale).unwrap().unwrap();
        let fixed = Fixed { places: 40 };
        let (mantissa, tens) = fixed.exponential(&(fixed.logarithm(base) * 400)).unwrap();
        assert_eq!(fixed.rounded(&mantissa, tens, scale).unwrap(), exact);
    }
}
