//! bytea.

use arrow::{array::ArrayRef, datatypes::Int32Type};
use base64::Engine;
use md5::{Digest, Md5};
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::{
    kernel::{Call, Traits},
    signature::Entry,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    pg_text::{self, ByteaOutput},
};

/// Characters of a line of base64, as in MIME.
const BASE64_LINE: usize = 76;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::strict("length(bytea) integer", |call| count(call, 1)).named("bytea_length"),
    Entry::strict("octet_length(bytea) integer", |call| count(call, 1)).named("bytea_length"),
    Entry::strict("bit_length(bytea) integer", |call| count(call, 8)).named("bytea_bit_length"),
    Entry::operator("||(bytea, bytea) bytea", "byteacat", |call| {
        let (left, right) = (call.binaries(0)?, call.binaries(1)?);
        call.build_binaries(|row| {
            let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
            Ok(Some([left, right].concat()))
        })
    }),
    Entry::strict("encode(bytea, text) text", encode),
    Entry::strict("decode(text, text) bytea", decode),
    Entry::strict("get_byte(bytea, integer) integer", get_byte),
    Entry::strict("set_byte(bytea, integer, integer) bytea", set_byte),
    Entry::strict("substr(bytea, integer) bytea", substring).named("bytea_substr"),
    Entry::strict("substr(bytea, integer, integer) bytea", substring).named("bytea_substr"),
    Entry::strict("substring(bytea, integer) bytea", substring).named("bytea_substr"),
    Entry::strict("substring(bytea, integer, integer) bytea", substring).named("bytea_substr"),
    Entry::strict("position(bytea, bytea) integer", position).named("bytea_position"),
    Entry::strict("md5(bytea) text", |call| {
        let values = call.binaries(0)?;
        call.build_texts(|row| Ok(values.get(row).map(md5_hex)))
    })
    .named("bytea_md5"),
    Entry::strict("sha224(bytea) bytea", |call| hash(call, |bytes| Sha224::digest(bytes).to_vec())),
    Entry::strict("sha256(bytea) bytea", |call| hash(call, |bytes| Sha256::digest(bytes).to_vec())),
    Entry::strict("sha384(bytea) bytea", |call| hash(call, |bytes| Sha384::digest(bytes).to_vec())),
    Entry::strict("sha512(bytea) bytea", |call| hash(call, |bytes| Sha512::digest(bytes).to_vec())),
    Entry::strict("convert_from(bytea, text) text", convert_from),
    Entry::strict("convert_to(text, text) bytea", |call| {
        let texts = call.texts(0)?;
        call.build_binaries(|row| Ok(texts.get(row).map(|text| text.as_bytes().to_vec())))
    }),
    Entry::kernel("gen_random_uuid() uuid", Traits::VOLATILE, super::sequence::random_uuid),
];

/// The MD5 of bytes in hexadecimal digits.
pub(super) fn md5_hex(bytes: &[u8]) -> String {
    hex(&Md5::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn count(call: &Call<'_>, unit: usize) -> Result<ArrayRef> {
    let values = call.binaries(0)?;
    call.build::<Int32Type>(|row| Ok(values.get(row).map(|bytes| (bytes.len() * unit) as i32)))
}

fn hash(call: &Call<'_>, function: fn(&[u8]) -> Vec<u8>) -> Result<ArrayRef> {
    let values = call.binaries(0)?;
    call.build_binaries(|row| Ok(values.get(row).map(function)))
}

fn unknown_encoding(name: &str) -> PlanError {
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{name}\""))
}

fn encode(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, formats) = (call.binaries(0)?, call.texts(1)?);
    call.build_texts(|row| {
        let (Some(bytes), Some(format)) = (values.get(row), formats.get(row)) else { return Ok(None) };
        Ok(Some(match format.to_lowercase().as_str() {
            "hex" => hex(bytes),
            "base64" => {
                let text = base64::engine::general_purpose::STANDARD.encode(bytes);
                let lines: Vec<&str> = text.as_bytes().chunks(BASE64_LINE).filter_map(|line| std::str::from_utf8(line).ok()).collect();
                lines.join("\n")
            }
            "escape" => {
                let mut out = Vec::new();
                pg_text::write_bytea(bytes, ByteaOutput::Escape, &mut out);
                String::from_utf8_lossy(&out).into_owned()
            }
            _ => return Err(unknown_encoding(format)),
        }))
    })
}

fn decode(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, formats) = (call.texts(0)?, call.texts(1)?);
    call.build_binaries(|row| {
        let (Some(text), Some(format)) = (texts.get(row), formats.get(row)) else { return Ok(None) };
        Ok(Some(match format.to_lowercase().as_str() {
            "hex" => {
                let digits: String = text.chars().filter(|character| !character.is_whitespace()).collect();
                pg_text::parse_bytea(&format!("\\x{digits}"))?
            }
            "base64" => {
                let digits: String = text.chars().filter(|character| !character.is_whitespace()).collect();
                base64::engine::general_purpose::STANDARD
                    .decode(digits)
                    .map_err(|_| PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "invalid base64 end sequence"))?
            }
            "escape" => pg_text::parse_bytea(text)?,
            _ => return Err(unknown_encoding(format)),
        }))
    })
}

fn index_error(index: i32, length: usize) -> PlanError {
    PlanError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, format!("index {index} out of valid range, 0..{}", length as i64 - 1))
}

fn get_byte(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, indexes) = (call.binaries(0)?, call.values::<Int32Type>(1)?);
    call.build::<Int32Type>(|row| {
        let (Some(bytes), Some(index)) = (values.get(row), indexes.get(row)) else { return Ok(None) };
        let byte = usize::try_from(index).ok().and_then(|index| bytes.get(index));
        byte.map(|byte| Some(i32::from(*byte))).ok_or_else(|| index_error(index, bytes.len()))
    })
}

fn set_byte(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, indexes, news) = (call.binaries(0)?, call.values::<Int32Type>(1)?, call.values::<Int32Type>(2)?);
    call.build_binaries(|row| {
        let (Some(bytes), Some(index), Some(new)) = (values.get(row), indexes.get(row), news.get(row)) else { return Ok(None) };
        let mut bytes = bytes.to_vec();
        let length = bytes.len();
        match usize::try_from(index).ok().and_then(|index| bytes.get_mut(index)) {
            Some(byte) => *byte = new as u8,
            None => return Err(index_error(index, length)),
        }
        Ok(Some(bytes))
    })
}

fn substring(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, starts) = (call.binaries(0)?, call.values::<Int32Type>(1)?);
    let lengths = if call.arguments.len() > 2 { Some(call.values::<Int32Type>(2)?) } else { None };
    call.build_binaries(|row| {
        let (Some(bytes), Some(start)) = (values.get(row), starts.get(row)) else { return Ok(None) };
        let start = i64::from(start) - 1;
        let end = match &lengths {
            None => i64::MAX,
            Some(lengths) => match lengths.get(row) {
                None => return Ok(None),
                Some(length) if length < 0 => return Err(PlanError::new("22011", "negative substring length not allowed")),
                Some(length) => start + i64::from(length),
            },
        };
        let bound = |place: i64| usize::try_from(place.max(0)).unwrap_or(usize::MAX).min(bytes.len());
        let (first, last) = (bound(start), bound(end));
        Ok(Some(bytes[first..last.max(first)].to_vec()))
    })
}

fn position(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, parts) = (call.binaries(0)?, call.binaries(1)?);
    call.build::<Int32Type>(|row| {
        let (Some(bytes), Some(part)) = (values.get(row), parts.get(row)) else { return Ok(None) };
        if part.is_empty() {
            return Ok(Some(1));
        }
        Ok(Some(bytes.windows(part.len()).position(|window| window == part).map_or(0, |at| at as i32 + 1)))
    })
}

fn convert_from(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, encodings) = (call.binaries(0)?, call.texts(1)?);
    call.build_texts(|row| {
        let (Some(bytes), Some(encoding)) = (values.get(row), encodings.get(row)) else { return Ok(None) };
        match encoding.to_uppercase().replace('-', "").as_str() {
            "UTF8" | "UNICODE" | "SQL_ASCII" => match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => Ok(Some(text.to_owned())),
                _ => Err(PlanError::new("22021", "invalid byte sequence for encoding \"UTF8\"")),
            },
            "LATIN1" | "ISO88591" => Ok(Some(bytes.iter().map(|byte| char::from(*byte)).collect())),
            _ => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid source encoding name \"{encoding}\""))),
        }
    })
}
