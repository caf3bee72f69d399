//! bytea and uuid.

use super::integer::is_space;
use super::settings::{ByteaOutput, TextError};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// bytea as `\x6b6579` or `key\000`.
pub fn write_bytea(bytes: &[u8], form: ByteaOutput, out: &mut Vec<u8>) {
    match form {
        ByteaOutput::Hex => {
            out.extend_from_slice(b"\\x");
            write_hex(bytes, out);
        }
        ByteaOutput::Escape => {
            for &byte in bytes {
                match byte {
                    b'\\' => out.extend_from_slice(b"\\\\"),
                    0x20..=0x7e => out.push(byte),
                    _ => out.extend_from_slice(&[b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]),
                }
            }
        }
    }
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() * 2);
    for &byte in bytes {
        out.push(HEX[usize::from(byte >> 4)]);
        out.push(HEX[usize::from(byte & 15)]);
    }
}

fn hex_value(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

/// bytea in either form.
pub fn parse_bytea(text: &str) -> Result<Vec<u8>, TextError> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex),
        None => parse_escaped(text.as_bytes()),
    }
}

fn parse_hex(text: &str) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut chars = text.char_indices();
    let digit_at = |at: usize, c: char| {
        let digit = if c.is_ascii() { hex_value(c as u8) } else { None };
        digit.ok_or_else(|| TextError::new("22023", format!("invalid hexadecimal digit: \"{}\"", &text[at..at + c.len_utf8()])))
    };
    while let Some((at, c)) = chars.next() {
        // Space may stand between bytes, not inside of one.
        if c.is_ascii() && is_space(c as u8) {
            continue;
        }
        let high = digit_at(at, c)?;
        let (at, c) = chars.next().ok_or_else(|| TextError::new("22023", "invalid hexadecimal data: odd number of digits"))?;
        bytes.push(high << 4 | digit_at(at, c)?);
    }
    Ok(bytes)
}

fn parse_escaped(text: &[u8]) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                after
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            (b'\\', _) => return Err(TextError::new("22P02", "invalid input syntax for type bytea")),
            _ => {
                bytes.push(first);
                after
            }
        };
    }
    Ok(bytes)
}

/// uuid in lower case with hyphens.
pub fn write_uuid(bytes: &[u8], out: &mut Vec<u8>) {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        write_hex(std::slice::from_ref(byte), out);
    }
}

/// uuid: 32 digits in any case, a hyphen allowed after every fourth, braces allowed round it.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], TextError> {
    let invalid = || TextError::invalid("uuid", text);
    let mut rest = text.as_bytes();
    let braces = rest.first() == Some(&b'{');
    if braces {
        rest = rest[1..].strip_suffix(b"}").ok_or_else(invalid)?;
    }
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let [high, low, after @ ..] = rest else { return Err(invalid()) };
        *byte = hex_value(*high).ok_or_else(invalid)? << 4 | hex_value(*low).ok_or_else(invalid)?;
        rest = match after {
            [b'-', after @ ..] if at % 2 == 1 && at < 15 => after,
            after => after,
        };
    }
    if rest.is_empty() { Ok(bytes) } else { Err(invalid()) }
}
