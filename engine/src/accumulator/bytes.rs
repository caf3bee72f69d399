//! Bytes of operator state: variable-length signed integers and byte strings. The layout of what is written with them is fixed by the
//! writers; a state that cannot be read back is reported as corrupt.

use millpond_storage::error::StorageError;

use crate::error::Result;

/// Appends a signed integer in 1 to 19 bytes, small magnitudes in few.
pub(crate) fn put_integer(out: &mut Vec<u8>, value: i128) {
    let mut rest = ((value << 1) ^ (value >> 127)) as u128;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads what [`put_integer`] wrote.
pub(crate) fn get_integer(input: &mut &[u8]) -> Result<i128> {
    let mut value = 0u128;
    let mut shift = 0;
    loop {
        let (first, rest) = input.split_first().ok_or_else(corrupt)?;
        *input = rest;
        value |= u128::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok((value >> 1) as i128 ^ -((value & 1) as i128));
        }
        shift += 7;
        if shift > 126 {
            return Err(corrupt());
        }
    }
}

/// Reads an integer that was an `i64`.
pub(crate) fn get_i64(input: &mut &[u8]) -> Result<i64> {
    get_integer(input)?.try_into().map_err(|_| corrupt())
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_integer(out, bytes.len() as i128);
    out.extend_from_slice(bytes);
}

/// Reads what [`put_bytes`] wrote.
pub(crate) fn get_bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8]> {
    let length = usize::try_from(get_integer(input)?).map_err(|_| corrupt())?;
    get_array(input, length)
}

/// Reads `length` bytes.
pub(crate) fn get_array<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8]> {
    if length > input.len() {
        return Err(corrupt());
    }
    let (bytes, rest) = input.split_at(length);
    *input = rest;
    Ok(bytes)
}

/// State bytes that are not what was written.
pub(crate) fn corrupt() -> crate::error::EngineError {
    StorageError::Corrupt { file: "operator state".into(), detail: "unexpected end or value".into() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_bytes_survive_a_round_trip() {
        let values = [0, 1, -1, 63, 64, -65, i128::from(i64::MAX), i128::from(i64::MIN), (1 << 124) - 1, -(1 << 124)];
        let mut out = Vec::new();
        for value in values {
            put_integer(&mut out, value);
        }
        put_bytes(&mut out, b"abc");
        let mut input = out.as_slice();
        for value in values {
            assert_eq!(get_integer(&mut input).unwrap(), value);
        }
        assert_eq!(get_bytes(&mut input).unwrap(), b"abc");
        assert!(input.is_empty());
        assert!(get_integer(&mut input).is_err());
        assert!(get_bytes(&mut [0xff, 0xff].as_slice()).is_err());
    }
}
