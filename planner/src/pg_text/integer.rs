//! boolean, smallint, int and bigint.

use super::settings::TextError;

/// Decimal digits of 00 to 99, two bytes each.
const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// White space as C's isspace sees it.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// `text` without C white space on either side.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii() && is_space(c as u8))
}

/// `t` or `f`.
pub fn write_bool(value: bool, out: &mut Vec<u8>) {
    out.push(if value { b't' } else { b'f' });
}

/// A signed number.
pub fn write_integer(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_unsigned(value.unsigned_abs(), out);
}

/// An unsigned number.
pub(super) fn write_unsigned(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// An unsigned number with zeros in front up to `width` digits.
pub(super) fn write_padded(value: u64, width: usize, out: &mut Vec<u8>) {
    if width == 2 && value < 100 {
        let pair = value as usize * 2;
        out.extend_from_slice(&PAIRS[pair..pair + 2]);
        return;
    }
    let mut bound = 10_u64;
    let mut digits = 1;
    while value >= bound && digits < 19 {
        bound *= 10;
        digits += 1;
    }
    out.resize(out.len() + width.saturating_sub(digits), b'0');
    write_unsigned(value, out);
}

/// smallint.
pub fn parse_int2(text: &str) -> Result<i16, TextError> {
    let value = parse_signed(text, "smallint")?;
    i16::try_from(value).map_err(|_| TextError::out_of_range("smallint", text))
}

/// integer.
pub fn parse_int4(text: &str) -> Result<i32, TextError> {
    let value = parse_signed(text, "integer")?;
    i32::try_from(value).map_err(|_| TextError::out_of_range("integer", text))
}

/// bigint.
pub fn parse_int8(text: &str) -> Result<i64, TextError> {
    parse_signed(text, "bigint")
}

fn parse_signed(text: &str, type_name: &str) -> Result<i64, TextError> {
    let trimmed = trim(text);
    let (negative, digits) = match trimmed.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(TextError::invalid(type_name, text));
    }
    if digits.len() <= 18 {
        let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Ok(if negative { -value } else { value });
    }
    // Counting downwards reaches the lowest value too.
    let lowest = digits.iter().try_fold(0_i64, |value, digit| value.checked_mul(10)?.checked_sub(i64::from(digit - b'0')));
    let value = lowest.and_then(|value| if negative { Some(value) } else { value.checked_neg() });
    value.ok_or_else(|| TextError::out_of_range(type_name, text))
}

/// boolean: any unique prefix of true, false, yes, no, on, off, or 1 and 0, in any case.
pub fn parse_bool(text: &str) -> Result<bool, TextError> {
    let word = trim(text).to_ascii_lowercase();
    let begins = |whole: &str, least: usize| word.len() >= least && whole.starts_with(&word);
    if begins("true", 1) || begins("yes", 1) || word == "on" || word == "1" {
        Ok(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(TextError::invalid("boolean", text))
    }
}
