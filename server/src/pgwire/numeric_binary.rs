//! The binary form of numeric: digits in base 10000, their weight, sign and scale.

use super::message::violation;
use crate::error::SqlError;

const NEGATIVE: u16 = 0x4000;
const NOT_A_NUMBER: u16 = 0xc000;

/// Writes a decimal number given by its text: a sign, digits, perhaps a point and digits.
pub(super) fn write_numeric(text: &[u8], out: &mut Vec<u8>) {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    let whole = &text[..point];
    let fraction = text.get(point + 1..).unwrap_or_default();
    let whole = &whole[whole.iter().take_while(|digit| **digit == b'0').count()..];
    // Groups of four digits, counted from the point in both directions.
    let mut groups: Vec<u16> = Vec::with_capacity(whole.len() / 4 + fraction.len() / 4 + 2);
    let head = whole.len() % 4;
    let number = |digits: &[u8]| digits.iter().fold(0_u16, |number, digit| number * 10 + u16::from(digit - b'0'));
    if head > 0 {
        groups.push(number(&whole[..head]));
    }
    groups.extend(whole[head..].chunks(4).map(number));
    let mut weight = groups.len() as i16 - 1;
    for chunk in fraction.chunks(4) {
        groups.push(number(chunk) * 10_u16.pow(4 - chunk.len() as u32));
    }
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    weight -= leading as i16;
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    out.extend_from_slice(&(groups.len() as u16).to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&(if negative && !groups.is_empty() { NEGATIVE } else { 0 }).to_be_bytes());
    out.extend_from_slice(&(fraction.len() as u16).to_be_bytes());
    groups.iter().for_each(|group| out.extend_from_slice(&group.to_be_bytes()));
}

/// The text of a binary number.
///
/// # Errors
/// 08P01 or 22P03 for bytes that are no number; 0A000 for NaN and infinity.
pub(super) fn read_numeric(bytes: &[u8]) -> Result<String, SqlError> {
    let halves: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let [count, weight, sign, scale, groups @ ..] = halves.as_slice() else { return Err(violation("insufficient data left in message")) };
    if usize::from(*count) != groups.len() || !bytes.len().is_multiple_of(2) {
        return Err(violation("insufficient data left in message"));
    }
    if *sign >= NOT_A_NUMBER {
        return Err(SqlError::new("0A000", "numeric value NaN or infinity is not supported").with_hint("Use double precision for it."));
    }
    if (*sign != 0 && *sign != NEGATIVE) || groups.iter().any(|group| *group > 9999) || *scale > 16_383 {
        return Err(SqlError::new("22P03", "invalid digit in external \"numeric\" value"));
    }
    let weight = *weight as i16;
    let mut text = String::new();
    if *sign == NEGATIVE {
        text.push('-');
    }
    let group = |at: i32| usize::try_from(at).ok().and_then(|at| groups.get(at)).copied().unwrap_or(0);
    text.push('0');
    (0..=i32::from(weight)).for_each(|at| text.push_str(&format!("{:04}", group(at))));
    text.push('.');
    let start = text.len();
    let mut at = i32::from(weight) + 1;
    // Groups before the first one given are zeros.
    while text.len() - start < usize::from(*scale) {
        text.push_str(&format!("{:04}", group(at)));
        at += 1;
    }
    text.truncate(start + usize::from(*scale));
    if text.ends_with('.') {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> (Vec<u8>, String) {
        let mut bytes = Vec::new();
        write_numeric(text.as_bytes(), &mut bytes);
        let back = read_numeric(&bytes).expect("a number");
        (bytes, back)
    }

    #[test]
    fn digits_weight_sign_and_scale() {
        assert_eq!(round("0").0, [0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(round("1.25").0, [0, 2, 0, 0, 0, 0, 0, 2, 0, 1, 0x09, 0xc4]);
        assert_eq!(round("-12345.6").0, [0, 3, 0, 1, 0x40, 0, 0, 1, 0, 1, 0x09, 0x29, 0x17, 0x70]);
        assert_eq!(round("0.00001").0, [0, 1, 0xff, 0xfe, 0, 0, 0, 5, 0x03, 0xe8]);
        assert_eq!(round("10000").0, [0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn what_is_written_is_read() {
        for text in ["0", "7", "-7.50", "12345678901234567890.000100", "0.00001", "100000000", "99999999.9999"] {
            let back = round(text).1;
            let plain = |text: &str| text.trim_start_matches('-').trim_start_matches('0').to_string();
            assert_eq!(plain(&back), plain(text));
            assert_eq!(back.starts_with('-'), text.starts_with('-'));
        }
        assert!(read_numeric(&[0, 1]).is_err());
        assert!(read_numeric(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]).is_err());
        assert_eq!(read_numeric(&[0, 0, 0, 0, 0xc0, 0, 0, 0]).expect_err("NaN").sqlstate, "0A000");
    }
}
