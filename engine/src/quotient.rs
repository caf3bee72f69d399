//! How many digits a quotient of exact numbers has, by PostgreSQL's rule, and the results of aggregates that are quotients. Accumulators of
//! views and batch aggregates both take them from here, so that a view shows the digits of its query.
//!
//! PostgreSQL keeps at least 16 significant digits, counted in groups of four, and never fewer behind the point than the operands show.

use arrow::datatypes::i256;

use crate::accumulator::{exact_quotient, square_root};

/// Digits that a quotient has at least.
const MIN_SIGNIFICANT_DIGITS: i32 = 16;
/// Digits of one of PostgreSQL's own digits.
const GROUP_DIGITS: i32 = 4;
/// Most digits behind the point.
const MAX_SCALE: i32 = 1_000;

/// How many decimal digits an integer has; 1 for zero.
pub fn digit_count(value: i256) -> u32 {
    match value.to_i128() {
        Some(small) => small.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1),
        None => value.to_string().trim_start_matches('-').len() as u32,
    }
}

/// Digits behind the point of `value / 10^scale` that are not trailing zeros.
pub fn shown_scale(value: i256, scale: i32) -> i32 {
    if scale <= 0 || value == i256::ZERO {
        return 0;
    }
    let mut scale = scale;
    if let Some(mut small) = value.to_i128() {
        while scale > 0 && small % 10 == 0 {
            small /= 10;
            scale -= 1;
        }
        return scale;
    }
    let (mut value, ten) = (value, i256::from_i128(10));
    while scale > 0 && value.wrapping_rem(ten) == i256::ZERO {
        value = value.wrapping_div(ten);
        scale -= 1;
    }
    scale
}

/// The place of the first group of four digits (0 for the one before the point), and that group.
fn leading_group(value: i256, scale: i32) -> (i32, u32) {
    if value == i256::ZERO {
        return (0, 0);
    }
    let text = value.to_string();
    let digits = text.trim_start_matches('-').as_bytes();
    let exponent = digits.len() as i32 - 1 - scale;
    let place = exponent.div_euclid(GROUP_DIGITS);
    let wanted = (exponent - GROUP_DIGITS * place + 1) as usize;
    let group = (0..wanted).fold(0, |group, at| group * 10 + digits.get(at).map_or(0, |digit| u32::from(digit - b'0')));
    (place, group)
}

/// The digits behind the point of `dividend / divisor`, each an unscaled integer with its scale; `shown` digits are there at least.
pub fn quotient_scale(dividend: (i256, i32), divisor: (i256, i32), shown: i32) -> i32 {
    let ((left_place, left_group), (right_place, right_group)) =
        (leading_group(dividend.0, dividend.1), leading_group(divisor.0, divisor.1));
    let place = left_place - right_place - i32::from(left_group <= right_group);
    (MIN_SIGNIFICANT_DIGITS - place * GROUP_DIGITS).max(shown).clamp(0, MAX_SCALE)
}

/// The digits that a value of an input column shows: those of its declared type, or, in a type as wide as the result's, its own.
fn shown(value: i256, scale: i32, result_scale: i32) -> i32 {
    if scale < result_scale { scale } else { shown_scale(value, scale) }
}

/// `total / 10^scale / count` as an unscaled integer with `result_scale` digits, rounded half away from zero to those digits that PostgreSQL
/// would show. `None` if it does not fit 256 bits. `count` is not zero.
pub fn average(total: i256, scale: i32, count: i64, result_scale: i32) -> Option<i256> {
    let count = i128::from(count);
    let digits = quotient_scale((total, scale), (i256::from_i128(count), 0), shown(total, scale, result_scale)).min(result_scale);
    raise(exact_quotient(total, count, digits - scale)?, result_scale - digits)
}

/// The variance, or its square root, of `n` values whose sum is `sum / 10^scale` and whose squares sum up to `squares / 10^(2 * scale)`;
/// `divisor` is `n` or `n - 1`. An unscaled integer with `result_scale` digits, rounded to those digits that PostgreSQL would show; `None` if it
/// does not fit 256 bits.
pub fn variance(n: i64, sum: i256, squares: i256, scale: i32, divisor: i64, root: bool, result_scale: i32) -> Option<i256> {
    let difference = squares.checked_mul(i256::from_i128(n.into()))?.checked_sub(sum.checked_mul(sum)?)?;
    if difference <= i256::ZERO {
        return Some(i256::ZERO);
    }
    let divisor = i128::from(n) * i128::from(divisor);
    let shown = shown(difference, 2 * scale, result_scale);
    let digits = quotient_scale((difference, 2 * scale), (i256::from_i128(divisor), 0), shown).min(result_scale);
    let variance = exact_quotient(difference, divisor, digits - 2 * scale)?;
    // The root has as many digits as the variance it is taken of.
    let value = if root { square_root(raise(variance, digits)?) } else { variance };
    raise(value, result_scale - digits)
}

/// The same for doubles, from the sums as pairs of doubles (rounded sum, rest).
pub fn double_variance(n: i64, sum: (f64, f64), squares: (f64, f64), divisor: i64, root: bool) -> f64 {
    if !sum.0.is_finite() || !squares.0.is_finite() {
        return f64::NAN;
    }
    let count = n as f64;
    let difference = subtract(multiply(squares, (count, 0.0)), multiply(sum, sum));
    let variance = (difference.0 + difference.1).max(0.0) / count / divisor as f64;
    if root { variance.sqrt() } else { variance }
}

/// The product of two doubles and its rounding error.
pub fn exact_product(a: f64, b: f64) -> (f64, f64) {
    let high = a * b;
    (high, a.mul_add(b, -high))
}

/// The sum of two doubles and its rounding error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

fn multiply(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (high, low) = exact_product(a.0, b.0);
    two_sum(high, low + (a.0 * b.1 + a.1 * b.0))
}

fn subtract(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    let (high, error) = two_sum(a.0, -b.0);
    two_sum(high, error + (a.1 - b.1))
}

fn raise(value: i256, digits: i32) -> Option<i256> {
    value.checked_mul(i256::from_i128(10).checked_pow(digits.unsigned_abs())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(value: i128) -> i256 {
        i256::from_i128(value)
    }

    #[test]
    fn quotients_have_the_digits_of_postgres() {
        for (left, right, scale) in [
            (7, 2, 16),
            (1, 3, 20),
            (2, 3, 20),
            (10, 3, 16),
            (100_000, 3, 12),
            (1, 30_000, 24),
            (123_456_789, 7, 12),
            (99_999, 3, 12),
            (1_000_000_000_000, 3, 8),
        ] {
            assert_eq!(quotient_scale((whole(left), 0), (whole(right), 0), 0), scale, "{left}/{right}");
        }
        assert_eq!(quotient_scale((whole(70), 1), (whole(2), 0), 18), 18);
    }

    /// Expected values are what PostgreSQL 15 prints.
    #[test]
    fn averages_and_variances_are_rounded_like_postgres_does() {
        let text = |value: Option<i256>| value.unwrap().to_string();
        assert_eq!(text(average(whole(14), 0, 3, 20)), "466666666666666670000");
        assert_eq!(text(average(whole(2), 0, 3, 20)), "66666666666666666667");
        assert_eq!(text(average(whole(100_000), 0, 3, 20)), "3333333333333333300000000");
        assert_eq!(text(average(whole(1_234), 2, 3, 20)), "411333333333333330000");
        // var_samp and stddev_samp of 1, 2, 4.
        assert_eq!(text(variance(3, whole(7), whole(21), 0, 2, false, 20)), "233333333333333330000");
        assert_eq!(text(variance(3, whole(7), whole(21), 0, 2, true, 20)), "152752523165194670000");
        assert_eq!(text(variance(3, whole(6), whole(12), 0, 2, false, 20)), "0");
    }
}
