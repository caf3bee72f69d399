//! numeric: decimal digits kept in an integer, scaled.

use arrow::datatypes::i256;

use super::integer::{trim, write_padded, write_unsigned};
use super::settings::TextError;

/// Decimal256(76, 20) stands for numeric without precision.
pub(super) const UNCONSTRAINED: (u8, i8) = (76, 20);

const TEN_TO_18: u128 = 1_000_000_000_000_000_000;

/// The value `unscaled` / 10^`scale` with exactly `scale` digits after the point.
pub fn write_decimal128(unscaled: i128, scale: i8, out: &mut Vec<u8>) {
    let mut digits = Vec::with_capacity(40);
    write_u128(unscaled.unsigned_abs(), &mut digits);
    write_scaled(unscaled < 0, &digits, scale, out);
}

/// As [`write_decimal128`]; for numeric without precision (76, 20), without zeros at the end.
pub fn write_decimal256(unscaled: i256, precision: u8, scale: i8, out: &mut Vec<u8>) {
    let mut digits = Vec::with_capacity(80);
    match unscaled.to_i128() {
        Some(small) => write_u128(small.unsigned_abs(), &mut digits),
        None => digits.extend(unscaled.to_string().bytes().filter(u8::is_ascii_digit)),
    }
    let start = out.len();
    write_scaled(unscaled.is_negative(), &digits, scale, out);
    if (precision, scale) == UNCONSTRAINED && out[start..].contains(&b'.') {
        while out.last() == Some(&b'0') {
            out.pop();
        }
        if out.last() == Some(&b'.') {
            out.pop();
        }
    }
}

fn write_u128(value: u128, out: &mut Vec<u8>) {
    if value < TEN_TO_18 {
        return write_unsigned(value as u64, out);
    }
    write_u128(value / TEN_TO_18, out);
    write_padded((value % TEN_TO_18) as u64, 18, out);
}

fn write_scaled(negative: bool, digits: &[u8], scale: i8, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    if scale <= 0 {
        out.extend_from_slice(digits);
        if digits != b"0" {
            out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
        }
        return;
    }
    let scale = scale as usize;
    if digits.len() <= scale {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + scale - digits.len(), b'0');
        out.extend_from_slice(digits);
    } else {
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    }
}

/// numeric(`precision`, `scale`), rounded half away from zero; unscaled.
pub fn parse_decimal128(text: &str, precision: u8, scale: i8) -> Result<i128, TextError> {
    let number = Number::parse(text)?;
    let (digits, negative) = number.rescaled(scale);
    check_precision(&digits, precision, scale)?;
    let value = digits.iter().fold(0_i128, |value, digit| value.wrapping_mul(10).wrapping_add(i128::from(digit - b'0')));
    Ok(if negative { -value } else { value })
}

/// As [`parse_decimal128`], for up to 76 digits.
pub fn parse_decimal256(text: &str, precision: u8, scale: i8) -> Result<i256, TextError> {
    let number = Number::parse(text)?;
    let (digits, negative) = number.rescaled(scale);
    check_precision(&digits, precision, scale)?;
    let ten = i256::from_i128(10);
    let value = match digits.len() {
        0..=37 => i256::from_i128(digits.iter().fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'))),
        _ => digits.iter().fold(i256::ZERO, |value, digit| value.wrapping_mul(ten).wrapping_add(i256::from_i128(i128::from(digit - b'0')))),
    };
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// The digits of a decimal number: 0.d1 d2 d3... times 10^`point`, without zeros in front.
struct Number {
    negative: bool,
    digits: Vec<u8>,
    point: i64,
}

impl Number {
    fn parse(text: &str) -> Result<Self, TextError> {
        let invalid = || TextError::invalid("numeric", text);
        let trimmed = trim(text);
        let (negative, rest) = match trimmed.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            all => (false, all),
        };
        for word in ["nan", "inf", "infinity"] {
            if rest.eq_ignore_ascii_case(word.as_bytes()) && (word != "nan" || rest.len() == trimmed.len()) {
                return Err(TextError::new("0A000", format!("numeric value \"{trimmed}\" is not supported"))
                    .with_hint("Use double precision for NaN and infinity."));
            }
        }
        let end = rest.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(rest.len());
        let (mantissa, exponent) = rest.split_at(end);
        let mut digits = Vec::with_capacity(mantissa.len());
        let mut whole = None;
        let mut seen = false;
        for byte in mantissa {
            match byte {
                b'0'..=b'9' => {
                    seen = true;
                    digits.push(*byte);
                }
                b'.' if whole.is_none() => whole = Some(digits.len()),
                _ => return Err(invalid()),
            }
        }
        if !seen {
            return Err(invalid());
        }
        let mut point = whole.unwrap_or(digits.len()) as i64;
        if !exponent.is_empty() {
            point += parse_exponent(&exponent[1..]).ok_or_else(invalid)?.ok_or_else(overflow_of_format)?;
        }
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..leading);
        Ok(Self { negative, point: point - leading as i64, digits })
    }

    /// Digits of the value times 10^`scale`, rounded half away from zero, without zeros in front; and the sign (zero has none).
    fn rescaled(mut self, scale: i8) -> (Vec<u8>, bool) {
        let wanted = self.point + i64::from(scale);
        if self.digits.is_empty() || wanted < 0 {
            return (Vec::new(), false);
        }
        let wanted = wanted as usize;
        if wanted >= self.digits.len() {
            // The caller refuses more than 76 digits; so many zeros tell it so without being many.
            self.digits.resize(wanted.min(self.digits.len() + 80), b'0');
            return (self.digits, self.negative);
        }
        let up = self.digits[wanted] >= b'5';
        self.digits.truncate(wanted);
        if up {
            let nines = self.digits.iter().rev().take_while(|digit| **digit == b'9').count();
            let kept = wanted - nines;
            self.digits[kept..].fill(b'0');
            match kept.checked_sub(1) {
                Some(last) => self.digits[last] += 1,
                None => self.digits.insert(0, b'1'),
            }
        }
        let negative = self.negative && !self.digits.is_empty();
        (self.digits, negative)
    }
}

/// Outer None: not a number. Inner None: too large a number.
fn parse_exponent(text: &[u8]) -> Option<Option<i64>> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0_i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1 << 40));
    Some((value < i64::from(i32::MAX / 2)).then_some(if negative { -value } else { value }))
}

fn overflow_of_format() -> TextError {
    TextError::new("22003", "value overflows numeric format")
}

fn check_precision(digits: &[u8], precision: u8, scale: i8) -> Result<(), TextError> {
    if digits.len() <= usize::from(precision) {
        return Ok(());
    }
    if (precision, scale) == UNCONSTRAINED {
        return Err(overflow_of_format());
    }
    let whole = i32::from(precision) - i32::from(scale);
    let bound = if whole == 0 { "1".to_string() } else { format!("10^{whole}") };
    Err(TextError::new("22003", "numeric field overflow")
        .with_detail(format!("A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}.")))
}
