//! Order-preserving bytes of fixed-width values.
//!
//! Integers are big-endian with the sign bit flipped. Floats follow Postgres' order (-0.0 equals 0.0; one NaN, above infinity). Wide
//! integers (decimals, and intervals as their length) are cut to their significant bytes behind a byte that holds sign and length.

use arrow::datatypes::{IntervalMonthDayNano, i256};

use crate::encoding::primitive::array;

/// Bytes of a value that sort as the values do, and end where they say.
pub(in crate::encoding) trait KeyValue: Copy + Default {
    /// Bytes of every value, if all take the same.
    const KEY_WIDTH: Option<usize>;

    /// Bytes of this value.
    fn key_length(self) -> usize;

    /// Writes `key_length` bytes.
    fn write_key(self, out: &mut [u8]);

    /// Length of the value that starts with `first`.
    fn length_from(first: u8) -> Option<usize>;

    /// Reads exactly the bytes of one value.
    fn read_key(bytes: &[u8]) -> Option<Self>;
}

impl KeyValue for i16 {
    const KEY_WIDTH: Option<usize> = Some(2);
    fn key_length(self) -> usize {
        2
    }
    fn write_key(self, out: &mut [u8]) {
        out.copy_from_slice(&(self ^ Self::MIN).to_be_bytes());
    }
    fn length_from(_: u8) -> Option<usize> {
        Some(2)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_be_bytes(array(bytes)) ^ Self::MIN)
    }
}

impl KeyValue for i32 {
    const KEY_WIDTH: Option<usize> = Some(4);
    fn key_length(self) -> usize {
        4
    }
    fn write_key(self, out: &mut [u8]) {
        out.copy_from_slice(&(self ^ Self::MIN).to_be_bytes());
    }
    fn length_from(_: u8) -> Option<usize> {
        Some(4)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_be_bytes(array(bytes)) ^ Self::MIN)
    }
}

impl KeyValue for i64 {
    const KEY_WIDTH: Option<usize> = Some(8);
    fn key_length(self) -> usize {
        8
    }
    fn write_key(self, out: &mut [u8]) {
        out.copy_from_slice(&(self ^ Self::MIN).to_be_bytes());
    }
    fn length_from(_: u8) -> Option<usize> {
        Some(8)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        Some(Self::from_be_bytes(array(bytes)) ^ Self::MIN)
    }
}

/// Floats by Postgres' order: -0.0 equals 0.0, and there is one NaN, above infinity. Negative numbers have all bits flipped, others the sign.
impl KeyValue for f32 {
    const KEY_WIDTH: Option<usize> = Some(4);
    fn key_length(self) -> usize {
        4
    }
    fn write_key(self, out: &mut [u8]) {
        let value = if self.is_nan() { f32::NAN.abs() } else { self + 0.0 };
        let bits = value.to_bits() as i32;
        out.copy_from_slice(&(bits ^ ((bits >> 31) | i32::MIN)).to_be_bytes());
    }
    fn length_from(_: u8) -> Option<usize> {
        Some(4)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        let bits = i32::from_be_bytes(array(bytes));
        Some(f32::from_bits((bits ^ ((!bits >> 31) | i32::MIN)) as u32))
    }
}

impl KeyValue for f64 {
    const KEY_WIDTH: Option<usize> = Some(8);
    fn key_length(self) -> usize {
        8
    }
    fn write_key(self, out: &mut [u8]) {
        let value = if self.is_nan() { f64::NAN.abs() } else { self + 0.0 };
        let bits = value.to_bits() as i64;
        out.copy_from_slice(&(bits ^ ((bits >> 63) | i64::MIN)).to_be_bytes());
    }
    fn length_from(_: u8) -> Option<usize> {
        Some(8)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        let bits = i64::from_be_bytes(array(bytes));
        Some(f64::from_bits((bits ^ ((!bits >> 63) | i64::MIN)) as u64))
    }
}

/// First byte of a wide integer that is not negative and takes no further byte (zero). Each further byte adds one. A negative
/// number has one less than this, minus its further bytes.
const WIDE_ZERO: u8 = 0x80;

/// Writes the significant bytes of a big-endian two's complement number behind a byte that says how many there are and the sign: most
/// decimals are short. Longer positive numbers are larger, longer negative ones smaller, so order is kept.
fn write_wide(big_endian: &[u8], negative: bool, out: &mut [u8]) {
    let significant = out.len() - 1;
    out[0] = if negative { WIDE_ZERO - 1 - significant as u8 } else { WIDE_ZERO + significant as u8 };
    out[1..].copy_from_slice(&big_endian[big_endian.len() - significant..]);
}

/// Length of a wide integer by its first byte.
fn wide_length(first: u8) -> usize {
    1 + usize::from(if first >= WIDE_ZERO { first - WIDE_ZERO } else { WIDE_ZERO - 1 - first })
}

/// The big-endian two's complement number that [`write_wide`] wrote; `None` if it is longer than `N` bytes.
fn read_wide<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let fill = if bytes[0] >= WIDE_ZERO { 0 } else { 0xFF };
    let mut wide = [fill; N];
    let start = (N + 1).checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(&bytes[1..]);
    Some(wide)
}

impl KeyValue for i128 {
    const KEY_WIDTH: Option<usize> = None;
    fn key_length(self) -> usize {
        let sign_bits = (self ^ (self >> 127)).leading_zeros();
        17 - sign_bits as usize / 8
    }
    fn write_key(self, out: &mut [u8]) {
        write_wide(&self.to_be_bytes(), self < 0, out);
    }
    fn length_from(first: u8) -> Option<usize> {
        Some(wide_length(first)).filter(|length| *length <= 17)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        read_wide(bytes).map(Self::from_be_bytes)
    }
}

impl KeyValue for i256 {
    const KEY_WIDTH: Option<usize> = None;
    fn key_length(self) -> usize {
        let (low, high) = self.to_parts();
        let sign = high >> 127;
        let (low, high) = (low ^ sign as u128, high ^ sign);
        let sign_bits = if high == 0 { 128 + low.leading_zeros() } else { high.leading_zeros() };
        33 - sign_bits as usize / 8
    }
    fn write_key(self, out: &mut [u8]) {
        write_wide(&self.to_be_bytes(), self.to_parts().1 < 0, out);
    }
    fn length_from(first: u8) -> Option<usize> {
        Some(wide_length(first)).filter(|length| *length <= 33)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        read_wide(bytes).map(Self::from_be_bytes)
    }
}

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const NANOS_PER_MONTH: i128 = 30 * NANOS_PER_DAY;

/// The length Postgres compares intervals by: a month is 30 days, a day 24 hours.
fn interval_span(interval: IntervalMonthDayNano) -> i128 {
    i128::from(interval.months) * NANOS_PER_MONTH + i128::from(interval.days) * NANOS_PER_DAY + i128::from(interval.nanoseconds)
}

/// The interval of this length with as many months, then days, as possible; `None` if there is none.
fn interval_of_span(span: i128) -> Option<IntervalMonthDayNano> {
    let bound = |count: i128| count.clamp(i128::from(i32::MIN), i128::from(i32::MAX));
    let months = bound(span / NANOS_PER_MONTH);
    let rest = span - months * NANOS_PER_MONTH;
    let days = bound(rest / NANOS_PER_DAY);
    let nanoseconds = i64::try_from(rest - days * NANOS_PER_DAY).ok()?;
    Some(IntervalMonthDayNano::new(months as i32, days as i32, nanoseconds))
}

impl KeyValue for IntervalMonthDayNano {
    const KEY_WIDTH: Option<usize> = None;
    fn key_length(self) -> usize {
        interval_span(self).key_length()
    }
    fn write_key(self, out: &mut [u8]) {
        interval_span(self).write_key(out);
    }
    fn length_from(first: u8) -> Option<usize> {
        i128::length_from(first)
    }
    fn read_key(bytes: &[u8]) -> Option<Self> {
        i128::read_key(bytes).and_then(interval_of_span)
    }
}
