//! Text of one value -> native value, for the types whose text has no structure worth a file of its own. All parsers take Postgres' input
//! forms, surrounding blanks included, and answer `None` for anything else.

use arrow::{
    array::ArrowNativeTypeOp,
    datatypes::{ArrowNativeType, DecimalType},
};

/// A decimal integer that fits 64 bits.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    // Up to 18 digits cannot overflow: the common case needs no checks.
    let (negative, digits) = match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 {
        return parse_i64_slowly(text);
    }
    let mut value = 0i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return parse_i64_slowly(text);
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

fn parse_i64_slowly(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// Whether a text that is no `bigint` is at least an integer, so that the reason can be "out of range".
pub fn is_integer(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A floating point number; `NaN` and `[-]Infinity` in any case. A number whose magnitude is out of range is refused.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii();
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() || !text.iter().any(u8::is_ascii_digit)).then_some(value)
}

/// The same for `real`.
pub fn parse_f32(text: &[u8]) -> Option<f32> {
    let text = text.trim_ascii();
    let value: f32 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.is_finite() || !text.iter().any(u8::is_ascii_digit)).then_some(value)
}

/// A boolean, in any spelling and unique abbreviation of Postgres.
pub fn parse_bool(text: &[u8]) -> Option<bool> {
    let text = text.trim_ascii();
    let starts = |word: &str, least: usize| {
        text.len() >= least && text.len() <= word.len() && word.as_bytes()[..text.len()].eq_ignore_ascii_case(text)
    };
    if starts("true", 1) || starts("yes", 1) || starts("on", 2) || text == b"1" {
        Some(true)
    } else if starts("false", 1) || starts("no", 1) || starts("off", 2) || text == b"0" {
        Some(false)
    } else {
        None
    }
}

/// A decimal number at `scale`, rounded half away from zero, if it has at most `precision` digits. Takes exponents (`1.5e3`).
pub fn parse_decimal<T: DecimalType>(text: &[u8], precision: u8, scale: i8) -> Option<T::Native> {
    let text = text.trim_ascii();
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match digits.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&digits[..at], i32::try_from(parse_i64(&digits[at + 1..])?).ok()?),
        None => (digits, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = point.map_or((mantissa, &b""[..]), |at| (&mantissa[..at], &mantissa[at + 1..]));
    if whole.is_empty() && fraction.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    // The digit at place p (counted from the first) has weight 10^(last - p); places behind `last` only round.
    let last = i64::try_from(whole.len()).ok()? - 1 + i64::from(exponent) + i64::from(scale);
    let ten = T::Native::usize_as(10);
    let mut value = T::Native::usize_as(0);
    let mut places = 0;
    for digit in whole.iter().chain(fraction).take(usize::try_from(last + 1).unwrap_or(0)) {
        value = value.mul_checked(ten).ok()?.add_checked(T::Native::usize_as(usize::from(digit - b'0'))).ok()?;
        places += 1;
    }
    if !value.is_zero() {
        for _ in places..=last {
            value = value.mul_checked(ten).ok()?;
        }
    }
    let behind = usize::try_from(last + 1).ok().and_then(|place| whole.iter().chain(fraction).nth(place));
    if behind.is_some_and(|digit| *digit >= b'5') {
        value = value.add_checked(T::Native::usize_as(1)).ok()?;
    }
    let value = if negative { value.neg_checked().ok()? } else { value };
    T::is_valid_decimal_precision(value, precision).then_some(value)
}

/// A uuid: 32 hexadecimal digits, optionally in braces and with hyphens between groups of four.
pub fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"{").and_then(|inner| inner.strip_suffix(b"}")).unwrap_or(text);
    let mut bytes = [0; 16];
    let mut count = 0;
    for byte in text {
        if *byte == b'-' {
            if count % 4 != 0 || count == 0 || count == 32 {
                return None;
            }
            continue;
        }
        let nibble = hex_digit(*byte)?;
        *bytes.get_mut(count / 2)? |= if count % 2 == 0 { nibble << 4 } else { nibble };
        count += 1;
    }
    (count == 32).then_some(bytes)
}

/// Bytes in Postgres' hex form (`\x0aff`) or escape form (`\\`, `\ooo`).
pub fn parse_bytea(text: &[u8]) -> Option<Vec<u8>> {
    if let Some(hex) = text.strip_prefix(b"\\x") {
        let (pairs, rest) = hex.as_chunks::<2>();
        return if rest.is_empty() {
            pairs.iter().map(|pair| Some(hex_digit(pair[0])? << 4 | hex_digit(pair[1])?)).collect()
        } else {
            None
        };
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
        } else if let Some(tail) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = tail;
        } else {
            let octal = rest.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)) && digits[0] < b'4')?;
            bytes.push(octal.iter().fold(0, |value, digit| value * 8 + (digit - b'0')));
            rest = &rest[3..];
        }
    }
    Some(bytes)
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Decimal128Type, Decimal256Type, i256};

    use super::*;

    #[test]
    fn integers() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-42", Some(-42)),
            ("+7", Some(7)),
            (" 12 ", Some(12)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("1.0", None),
            ("1x", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), expected, "{text}");
        }
        assert!(is_integer(b"9223372036854775808") && !is_integer(b"12a") && !is_integer(b"-"));
    }

    #[test]
    fn floats_and_booleans() {
        assert_eq!(parse_f64(b" 1.5e3"), Some(1500.0));
        assert_eq!(parse_f64(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert!(parse_f64(b"NaN").unwrap().is_nan());
        assert_eq!((parse_f64(b"1e400"), parse_f32(b"1e39"), parse_f64(b"1,5")), (None, None, None));
        for (text, expected) in
            [("t", Some(true)), ("YES", Some(true)), ("on", Some(true)), ("o", None), ("of", Some(false)), ("0", Some(false)), ("", None)]
        {
            assert_eq!(parse_bool(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn decimals_round_half_away_from_zero_and_keep_their_precision() {
        let parse = |text: &str| parse_decimal::<Decimal128Type>(text.as_bytes(), 5, 2);
        for (text, expected) in [
            ("1.5", Some(150)),
            ("-1.005", Some(-101)),
            ("1.004999", Some(100)),
            ("0.005", Some(1)),
            (".5", Some(50)),
            ("5.", Some(500)),
            ("1.5e2", Some(15_000)),
            ("12345e-3", Some(1235)),
            ("999.99", Some(99_999)),
            ("999.995", None),
            ("1e9", None),
            ("0e9999", Some(0)),
            ("1e-9999", Some(0)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("0x10", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert_eq!(parse_decimal::<Decimal256Type>(b"1.5", 76, 20), Some(i256::from_i128(15 * 10i128.pow(19))));
    }

    #[test]
    fn uuids_and_bytes() {
        let expected = Some([0xa0, 0xee, 0xbc, 0x99, 0x9c, 0x0b, 0x4e, 0xf8, 0xbb, 0x6d, 0x6b, 0xb9, 0xbd, 0x38, 0x0a, 0x11]);
        assert_eq!(parse_uuid(b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), expected);
        assert_eq!(parse_uuid(b"{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"), expected);
        assert_eq!((parse_uuid(b"a0eebc99"), parse_uuid(b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1111")), (None, None));
        assert_eq!(parse_bytea(b"\\x00fF"), Some(vec![0, 255]));
        assert_eq!(parse_bytea(b"a\\\\b\\001"), Some(b"a\\b\x01".to_vec()));
        assert_eq!((parse_bytea(b"\\x0"), parse_bytea(b"\\9")), (None, None));
    }
}
