//! Exact arithmetic on numerics: unscaled integers with a scale.
//!
//! Values that fit 128 bits take the short way; the others go through integers of any length and are checked against the 76 digits of the
//! widest numeric at the end.

use std::cmp::Ordering;

use arrow::datatypes::i256;
pub(crate) use millpond_engine::quotient::digit_count;
use millpond_engine::quotient::{quotient_scale, shown_scale};
use num_bigint::{BigInt, Sign};

use crate::{
    error::{PlanError, Result, sqlstate},
    types::{NUMERIC_FREE_SCALE, NUMERIC_MAX_PRECISION},
};

/// A numeric: `unscaled / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    pub(crate) unscaled: i256,
    pub(crate) scale: i32,
}

/// 22003 for a value of more digits than there can be.
pub(crate) fn overflow() -> PlanError {
    PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

/// 22012.
pub(crate) fn division_by_zero() -> PlanError {
    PlanError::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
}

/// The error that a value has too many digits for its declared type.
pub(crate) fn field_overflow(precision: u8, scale: i8) -> PlanError {
    let whole = i32::from(precision) - i32::from(scale);
    let limit = if whole == 0 { "1".to_owned() } else { format!("10^{whole}") };
    PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow")
        .with_detail(format!("A field with precision {precision}, scale {scale} must round to an absolute value less than {limit}."))
}

/// 10^exponent, for exponents up to 76.
pub(crate) fn power_of_ten(exponent: u32) -> i256 {
    i256::from_i128(10).wrapping_pow(exponent)
}

/// 10^exponent, for exponents up to 38.
pub(crate) fn small_power_of_ten(exponent: u32) -> i128 {
    10_i128.pow(exponent)
}

pub(crate) fn to_big(value: i256) -> BigInt {
    BigInt::from_signed_bytes_le(&value.to_le_bytes())
}

/// The integer in 256 bits, if it has no more digits than a numeric can have.
pub(crate) fn from_big(value: &BigInt) -> Result<i256> {
    let bytes = value.to_signed_bytes_le();
    if bytes.len() > 32 {
        return Err(overflow());
    }
    let fill = if value.sign() == Sign::Minus { 0xff } else { 0 };
    let mut full = [fill; 32];
    full[..bytes.len()].copy_from_slice(&bytes);
    let value = i256::from_le_bytes(full);
    check_digits(value, NUMERIC_MAX_PRECISION).then_some(value).ok_or_else(overflow)
}

pub(crate) fn big_power_of_ten(exponent: u32) -> BigInt {
    BigInt::from(10).pow(exponent)
}

/// Whether a value has at most so many digits.
pub(crate) fn check_digits(value: i256, precision: u8) -> bool {
    if precision > NUMERIC_MAX_PRECISION {
        return true;
    }
    let limit = power_of_ten(u32::from(precision));
    value < limit && value > limit.wrapping_neg()
}

/// Divides rounding half away from zero.
pub(crate) fn divide_rounded(numerator: &BigInt, denominator: &BigInt) -> BigInt {
    let (quotient, remainder) = (numerator / denominator, numerator % denominator);
    let twice: BigInt = remainder.magnitude().clone().into();
    let twice: BigInt = twice * 2;
    let limit: BigInt = denominator.magnitude().clone().into();
    if twice >= limit {
        let negative = (numerator.sign() == Sign::Minus) != (denominator.sign() == Sign::Minus);
        quotient + if negative { -1 } else { 1 }
    } else {
        quotient
    }
}

fn divide_rounded_small(numerator: i128, denominator: i128) -> i128 {
    let (quotient, remainder) = (numerator / denominator, numerator % denominator);
    let away = remainder.unsigned_abs() >= denominator.unsigned_abs() - remainder.unsigned_abs();
    match away && remainder != 0 {
        true if (numerator < 0) != (denominator < 0) => quotient - 1,
        true => quotient + 1,
        false => quotient,
    }
}

impl Decimal {
    pub(crate) fn new(unscaled: i256, scale: i32) -> Self {
        Self { unscaled, scale }
    }

    pub(crate) fn from_i128(unscaled: i128, scale: i32) -> Self {
        Self { unscaled: i256::from_i128(unscaled), scale }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.unscaled == i256::ZERO
    }

    pub(crate) fn is_negative(self) -> bool {
        self.unscaled < i256::ZERO
    }

    /// The same value with another scale, rounded half away from zero.
    pub(crate) fn rescale(self, scale: i32) -> Result<Self> {
        let steps = (scale - self.scale).unsigned_abs();
        match scale.cmp(&self.scale) {
            Ordering::Equal => Ok(self),
            Ordering::Greater => {
                if steps <= 38
                    && let Some(small) = self.unscaled.to_i128()
                    && let Some(scaled) = small.checked_mul(small_power_of_ten(steps))
                {
                    return Ok(Self::from_i128(scaled, scale));
                }
                if self.is_zero() {
                    return Ok(Self { unscaled: i256::ZERO, scale });
                }
                if steps > u32::from(NUMERIC_MAX_PRECISION) {
                    return Err(overflow());
                }
                let scaled = self.unscaled.checked_mul(power_of_ten(steps)).ok_or_else(overflow)?;
                Ok(Self { unscaled: scaled, scale })
            }
            Ordering::Less => {
                if steps <= 38
                    && let Some(small) = self.unscaled.to_i128()
                {
                    return Ok(Self::from_i128(divide_rounded_small(small, small_power_of_ten(steps)), scale));
                }
                let rounded = divide_rounded(&to_big(self.unscaled), &big_power_of_ten(steps));
                Ok(Self { unscaled: from_big(&rounded)?, scale })
            }
        }
    }

    /// The same value with a scale, the digits behind it cut off.
    pub(crate) fn truncate(self, scale: i32) -> Result<Self> {
        if scale >= self.scale {
            return self.rescale(scale);
        }
        let cut = to_big(self.unscaled) / big_power_of_ten((self.scale - scale).unsigned_abs());
        Ok(Self { unscaled: from_big(&cut)?, scale })
    }

    /// The largest integer not above it (`up`: the smallest not below it).
    pub(crate) fn whole(self, up: bool) -> Result<Self> {
        let cut = self.truncate(0)?;
        let exact = cut.rescale(self.scale.max(0))? == self.rescale(self.scale.max(0))?;
        let step = i256::from_i128(match (exact, up, self.is_negative()) {
            (true, ..) | (false, true, true) | (false, false, false) => 0,
            (false, true, false) => 1,
            (false, false, true) => -1,
        });
        Ok(Self { unscaled: cut.unscaled.checked_add(step).ok_or_else(overflow)?, scale: 0 })
    }

    pub(crate) fn negate(self) -> Self {
        Self { unscaled: self.unscaled.wrapping_neg(), scale: self.scale }
    }

    pub(crate) fn add(self, other: Self) -> Result<Self> {
        let scale = self.scale.max(other.scale);
        let (left, right) = (self.rescale(scale)?, other.rescale(scale)?);
        Ok(Self { unscaled: left.unscaled.checked_add(right.unscaled).ok_or_else(overflow)?, scale })
    }

    pub(crate) fn subtract(self, other: Self) -> Result<Self> {
        self.add(other.negate())
    }

    /// The product, rounded to `scale` if it has more digits after the point.
    pub(crate) fn multiply(self, other: Self, scale: i32) -> Result<Self> {
        let full = self.scale + other.scale;
        if let (Some(left), Some(right)) = (self.unscaled.to_i128(), other.unscaled.to_i128())
            && let Some(product) = left.checked_mul(right)
        {
            return Self::from_i128(product, full).rescale(scale);
        }
        let product = to_big(self.unscaled) * to_big(other.unscaled);
        let rounded = if scale < full { divide_rounded(&product, &big_power_of_ten((full - scale).unsigned_abs())) } else { product };
        let kept = scale.min(full);
        Self { unscaled: from_big(&rounded)?, scale: kept }.rescale(scale)
    }

    /// The quotient with so many digits after the point.
    pub(crate) fn divide(self, other: Self, scale: i32) -> Result<Self> {
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let exponent = scale + other.scale - self.scale;
        if let (Some(left), Some(right)) = (self.unscaled.to_i128(), other.unscaled.to_i128())
            && (0..=38).contains(&exponent)
            && let Some(numerator) = left.checked_mul(small_power_of_ten(exponent.unsigned_abs()))
        {
            return Ok(Self::from_i128(divide_rounded_small(numerator, right), scale));
        }
        let (mut numerator, mut denominator) = (to_big(self.unscaled), to_big(other.unscaled));
        if exponent >= 0 {
            numerator *= big_power_of_ten(exponent.unsigned_abs());
        } else {
            denominator *= big_power_of_ten(exponent.unsigned_abs());
        }
        Ok(Self { unscaled: from_big(&divide_rounded(&numerator, &denominator))?, scale })
    }

    pub(crate) fn remainder(self, other: Self) -> Result<Self> {
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let scale = self.scale.max(other.scale);
        let (left, right) = (self.rescale(scale)?, other.rescale(scale)?);
        Ok(Self { unscaled: left.unscaled.checked_rem(right.unscaled).ok_or_else(overflow)?, scale })
    }

    /// Digits after the point that are not trailing zeros.
    pub(crate) fn shown_scale(self) -> i32 {
        shown_scale(self.unscaled, self.scale)
    }

    /// Digits after the point that Postgres would show: those of the declared type, or, where none are declared, those that there are.
    pub(crate) fn display_scale(self) -> i32 {
        if self.scale < i32::from(NUMERIC_FREE_SCALE) { self.scale.max(0) } else { self.shown_scale() }
    }

    /// The digits after the point that Postgres gives a quotient; `scales` are those that the operands show.
    pub(crate) fn quotient_scale(self, other: Self, scales: (i32, i32)) -> i32 {
        quotient_scale((self.unscaled, self.scale), (other.unscaled, other.scale), scales.0.max(scales.1))
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        let scale = self.scale.max(other.scale);
        match (self.rescale(scale), other.rescale(scale)) {
            (Ok(left), Ok(right)) => left.unscaled.cmp(&right.unscaled),
            _ => {
                let raise = |value: Self| to_big(value.unscaled) * big_power_of_ten((scale - value.scale).unsigned_abs());
                raise(self).cmp(&raise(other))
            }
        }
    }

    /// The nearest double.
    pub(crate) fn to_f64(self) -> f64 {
        if let Some(small) = self.unscaled.to_i128()
            && small.unsigned_abs() < 1 << 53
            && (0..=22).contains(&self.scale)
        {
            return small as f64 / 10_f64.powi(self.scale);
        }
        format!("{}e{}", self.unscaled, -self.scale).parse().unwrap_or(f64::NAN)
    }

    /// The value with 15 (`real`: 6) significant digits, as Postgres makes numerics of floats.
    pub(crate) fn from_float(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let unscaled: i128 = digits.parse().ok()?;
        let scale = fraction.len() as i32 - exponent;
        let value = Self::from_i128(unscaled, scale);
        if scale < 0 { value.rescale(0).ok() } else { Some(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::from_float(text).unwrap()
    }

    #[test]
    fn rounding_goes_away_from_zero() {
        for (text, scale, expected) in
            [("999.96", 1, "1000.0"), ("2.5", 0, "3"), ("-2.5", 0, "-3"), ("1.449", 1, "1.4"), ("1265.5", -2, "13")]
        {
            let rounded = decimal(text).rescale(scale).unwrap();
            assert_eq!(rounded.unscaled, decimal(expected).unscaled, "{text}");
        }
        assert_eq!(decimal("-1.5").whole(false).unwrap().unscaled, i256::from_i128(-2));
        assert_eq!(decimal("-1.5").whole(true).unwrap().unscaled, i256::from_i128(-1));
        assert_eq!(decimal("1.5").whole(true).unwrap().unscaled, i256::from_i128(2));
        assert_eq!(decimal("2.0").whole(true).unwrap().unscaled, i256::from_i128(2));
    }
}
