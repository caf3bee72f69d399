//! How often a row is there, in front of what a state table keeps of it. The number is negative while a delete has come before its insert.

/// Makes `value` the multiplicity followed by `rest`.
pub(crate) fn write(copies: i64, rest: &[u8], value: &mut Vec<u8>) {
    value.clear();
    write_number(((copies << 1) ^ (copies >> 63)) as u64, value);
    value.extend_from_slice(rest);
}

/// Reads back what [`write`] wrote.
pub(crate) fn read(mut value: &[u8]) -> (i64, &[u8]) {
    let number = read_number(&mut value).unwrap_or(0);
    ((number >> 1) as i64 ^ -((number & 1) as i64), value)
}

/// Appends a number in LEB128.
pub(crate) fn write_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front of `bytes`.
pub(crate) fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let mut out = Vec::new();
        for copies in [0, 1, -1, 63, 64, 300, i64::MAX, i64::MIN] {
            write(copies, b"row", &mut out);
            assert_eq!(read(&out), (copies, &b"row"[..]));
        }
        write(1, b"", &mut out);
        assert_eq!(out.len(), 1);
    }
}
