//! real and double precision: the shortest digits that read back as the same number, laid out as Postgres lays them out.

use super::integer::{trim, write_integer, write_unsigned};
use super::settings::TextError;

/// One binary floating point format.
#[derive(Clone, Copy)]
struct Format {
    /// Bits of the significand with the hidden one.
    significand_bits: u32,
    /// Exponent of the significand's lowest bit in the smallest numbers.
    least_exponent: i32,
    /// From this decimal exponent on, scientific notation.
    scientific_from: i32,
    /// Digits that any decimal number keeps (DBL_DIG, FLT_DIG).
    safe_digits: i32,
}

const DOUBLE: Format = Format { significand_bits: 53, least_exponent: -1074, scientific_from: 15, safe_digits: 15 };
const SINGLE: Format = Format { significand_bits: 24, least_exponent: -149, scientific_from: 6, safe_digits: 6 };

/// double precision with the session's `extra_float_digits`.
pub fn write_float8(value: f64, extra_float_digits: i32, out: &mut Vec<u8>) {
    if write_special(value, out) {
        return;
    }
    if extra_float_digits <= 0 {
        return write_general(value, DOUBLE, extra_float_digits, out);
    }
    if value.fract() == 0.0 && value.abs() < 1e15 && value != 0.0 {
        return write_integer(value as i64, out);
    }
    let positive = value.abs();
    let with_places = |places: Option<usize>| places.map_or_else(|| format!("{positive:e}"), |places| format!("{positive:.places$e}"));
    let digits = shortest_digits(with_places, |text| text.parse() == Ok(positive), split_double(positive), DOUBLE);
    write_digits(value.is_sign_negative(), &digits, DOUBLE, out);
}

/// real with the session's `extra_float_digits`.
pub fn write_float4(value: f32, extra_float_digits: i32, out: &mut Vec<u8>) {
    if write_special(f64::from(value), out) {
        return;
    }
    if extra_float_digits <= 0 {
        return write_general(f64::from(value), SINGLE, extra_float_digits, out);
    }
    let positive = value.abs();
    let with_places = |places: Option<usize>| places.map_or_else(|| format!("{positive:e}"), |places| format!("{positive:.places$e}"));
    let digits = shortest_digits(with_places, |text| text.parse() == Ok(positive), split_single(positive), SINGLE);
    write_digits(value.is_sign_negative(), &digits, SINGLE, out);
}

/// Decimal digits without a point, and the decimal exponent of the first.
struct Digits {
    digits: String,
    exponent: i32,
}

impl Digits {
    /// From Rust's `1.234e5`.
    fn from_scientific(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        Self { digits: mantissa.chars().filter(char::is_ascii_digit).collect(), exponent: exponent.parse().unwrap_or(0) }
    }
}

/// Rust's shortest digits as Postgres chooses them: of two equally near numbers the one with the even last digit; and never a number that lies
/// exactly half way to a neighbour, though it would be read back rightly by rounding to even.
fn shortest_digits(
    with_places: impl Fn(Option<usize>) -> String,
    reads_back: impl Fn(&str) -> bool,
    (significand, exponent): (u64, i32),
    format: Format,
) -> Digits {
    let mut digits = Digits::from_scientific(&with_places(None));
    if (digits.digits.len() as i32) < format.safe_digits {
        return digits;
    }
    // Below a power of two neighbours are nearer than above it, and the nearest number of so many digits may belong to the one below.
    let nearest = with_places(Some(digits.digits.len() - 1));
    if !significand.is_power_of_two() || reads_back(&nearest) {
        digits = Digits::from_scientific(&nearest);
    }
    while is_half_way(&digits, significand, exponent, format) {
        digits = Digits::from_scientific(&with_places(Some(digits.digits.len())));
    }
    while digits.digits.len() > 1 && digits.digits.ends_with('0') {
        digits.digits.pop();
    }
    digits
}

/// Whether the decimal number is exactly between the binary one and its neighbour above or below.
fn is_half_way(decimal: &Digits, significand: u64, exponent: i32, format: Format) -> bool {
    if !significand.is_multiple_of(2) {
        return false;
    }
    let above = (2 * u128::from(significand) + 1, exponent - 1);
    let lowest_of_binade = significand == 1 << (format.significand_bits - 1) && exponent > format.least_exponent;
    let below =
        if lowest_of_binade { (4 * u128::from(significand) - 1, exponent - 2) } else { (2 * u128::from(significand) - 1, exponent - 1) };
    equals_decimal(decimal, above) || equals_decimal(decimal, below)
}

/// Whether digits * 10^k = odd * 2^power, exactly. `odd` is odd.
fn equals_decimal(decimal: &Digits, (odd, power): (u128, i32)) -> bool {
    let Ok(mut number) = decimal.digits.parse::<u128>() else { return false };
    if number == 0 {
        return false;
    }
    let ten_power = decimal.exponent - (decimal.digits.len() as i32 - 1);
    let twos = number.trailing_zeros();
    number >>= twos;
    // 10^k is 5^k * 2^k: compare the odd parts and the powers of two.
    let fives = 5_u128.checked_pow(ten_power.unsigned_abs());
    let odd_parts = match (fives, ten_power >= 0) {
        (None, _) => None,
        (Some(fives), true) => number.checked_mul(fives).map(|left| (left, odd)),
        (Some(fives), false) => odd.checked_mul(fives).map(|right| (number, right)),
    };
    odd_parts.is_some_and(|(left, right)| left == right) && twos as i32 + ten_power == power
}

/// Significand and the exponent of its lowest bit, of a positive number.
fn split_double(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let (biased, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    if biased == 0 { (fraction, DOUBLE.least_exponent) } else { (fraction | 1 << 52, biased as i32 - 1075) }
}

/// As [`split_double`].
fn split_single(value: f32) -> (u64, i32) {
    let bits = value.to_bits();
    let (biased, fraction) = ((bits >> 23) & 0xff, u64::from(bits & 0x7f_ffff));
    if biased == 0 { (fraction, SINGLE.least_exponent) } else { (fraction | 1 << 23, biased as i32 - 150) }
}

/// NaN, infinities and zeros.
fn write_special(value: f64, out: &mut Vec<u8>) -> bool {
    let text: &[u8] = if value.is_nan() {
        b"NaN"
    } else if value == f64::INFINITY {
        b"Infinity"
    } else if value == f64::NEG_INFINITY {
        b"-Infinity"
    } else if value == 0.0 {
        if value.is_sign_negative() { b"-0" } else { b"0" }
    } else {
        return false;
    };
    out.extend_from_slice(text);
    true
}

fn write_digits(negative: bool, number: &Digits, format: Format, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    if number.exponent < -4 || number.exponent >= format.scientific_from {
        write_scientific(number, out);
    } else {
        write_fixed(number, out);
    }
}

fn write_scientific(number: &Digits, out: &mut Vec<u8>) {
    let digits = number.digits.as_bytes();
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.push(b'e');
    out.push(if number.exponent < 0 { b'-' } else { b'+' });
    if number.exponent.unsigned_abs() < 10 {
        out.push(b'0');
    }
    write_unsigned(u64::from(number.exponent.unsigned_abs()), out);
}

fn write_fixed(number: &Digits, out: &mut Vec<u8>) {
    let digits = number.digits.as_bytes();
    if number.exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-number.exponent - 1) as usize, b'0');
        out.extend_from_slice(digits);
        return;
    }
    let whole = number.exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(digits);
        out.resize(out.len() + whole - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

/// C's `%.*g` with safe_digits + extra_float_digits digits.
fn write_general(value: f64, format: Format, extra_float_digits: i32, out: &mut Vec<u8>) {
    let precision = (format.safe_digits + extra_float_digits).max(1);
    let mut number = Digits::from_scientific(&format!("{:.*e}", precision as usize - 1, value.abs()));
    while number.digits.len() > 1 && number.digits.ends_with('0') {
        number.digits.pop();
    }
    write_digits(value.is_sign_negative(), &number, Format { scientific_from: precision, ..format }, out);
}

/// double precision.
pub fn parse_float8(text: &str) -> Result<f64, TextError> {
    const NAME: &str = "double precision";
    let trimmed = checked(text, NAME)?;
    let value: f64 = trimmed.parse().map_err(|_| TextError::invalid(NAME, text))?;
    if (value.is_infinite() && has_digits(trimmed)) || (value == 0.0 && has_nonzero_digit(trimmed)) {
        return Err(out_of_range(text, NAME));
    }
    Ok(value)
}

/// real.
pub fn parse_float4(text: &str) -> Result<f32, TextError> {
    const NAME: &str = "real";
    let trimmed = checked(text, NAME)?;
    let value: f32 = trimmed.parse().map_err(|_| TextError::invalid(NAME, text))?;
    if (value.is_infinite() && has_digits(trimmed)) || (value == 0.0 && has_nonzero_digit(trimmed)) {
        return Err(out_of_range(text, NAME));
    }
    Ok(value)
}

fn checked<'a>(text: &'a str, name: &str) -> Result<&'a str, TextError> {
    let trimmed = trim(text);
    if trimmed.is_empty() { Err(TextError::invalid(name, text)) } else { Ok(trimmed) }
}

fn out_of_range(text: &str, name: &str) -> TextError {
    TextError::new("22003", format!("\"{text}\" is out of range for type {name}"))
}

fn has_digits(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

fn has_nonzero_digit(text: &str) -> bool {
    text.bytes().take_while(|byte| !matches!(byte, b'e' | b'E')).any(|byte| matches!(byte, b'1'..=b'9'))
}
