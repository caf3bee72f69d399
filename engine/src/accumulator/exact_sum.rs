//! A sum of doubles with all its bits: a fixed-point number that spans the whole range of finite doubles.
//!
//! Floating-point addition rounds, so a running float sum depends on the order of its values and keeps traces of values that were taken away
//! again. This one is an integer multiple of the smallest double, kept as digits of 32 bits in words of 64 bits, so that many values can be
//! added before carries must move. Most data spans few digits: six of them are kept in place, and the full range only where it is needed.
//! NaN and the infinities are counted apart and leave again like any value.

use super::bytes::{corrupt, get_i64, put_integer};
use crate::error::Result;

/// Digits kept in place.
const NEAR: usize = 6;
/// Digits that cover every finite double and its carries.
const FULL: usize = 68;
/// Additions after which carries are moved: each adds less than 2^32 to a word.
const ADDITIONS: u32 = 1 << 29;
const DIGIT_BITS: u32 = 32;
const DIGIT_MASK: i64 = (1 << DIGIT_BITS) - 1;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactSum {
    digits: [i64; NEAR],
    /// Place of `digits[0]`.
    place: u8,
    /// Whether `place` has been chosen.
    placed: bool,
    additions: u32,
    rare: Option<Box<Rare>>,
}

/// What few sums have.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// All digits; empty while the near ones suffice.
    full: Vec<i64>,
    nans: i64,
    infinities: i64,
    negative_infinities: i64,
}

impl ExactSum {
    /// Adds `value` if `sign` is positive, takes it away otherwise.
    #[inline]
    pub(crate) fn add(&mut self, value: f64, sign: i64) {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as u32;
        if exponent == 0x7ff {
            self.add_special(value, sign);
            return;
        }
        let fraction = bits & ((1 << 52) - 1);
        let mantissa = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        if mantissa == 0 {
            return;
        }
        let position = exponent.max(1) - 1;
        let shifted = u128::from(mantissa) << (position % DIGIT_BITS);
        let negative = (value < 0.0) != (sign < 0);
        self.add_digits((position / DIGIT_BITS) as usize, shifted, negative);
    }

    #[inline]
    fn add_digits(&mut self, place: usize, shifted: u128, negative: bool) {
        if !self.placed {
            self.place = (place.saturating_sub(1)).min(FULL - NEAR) as u8;
            self.placed = true;
        }
        if self.additions >= ADDITIONS {
            self.carry();
        }
        self.additions += 1;
        let near = place.wrapping_sub(self.place as usize);
        let words = match &mut self.rare {
            Some(rare) if !rare.full.is_empty() => &mut rare.full[place..place + 3],
            _ if near <= NEAR - 3 => &mut self.digits[near..near + 3],
            _ => {
                self.spread();
                let rare = self.rare.as_mut().expect("spreading makes all digits");
                &mut rare.full[place..place + 3]
            }
        };
        let digits = [shifted as i64 & DIGIT_MASK, (shifted >> 32) as i64 & DIGIT_MASK, (shifted >> 64) as i64];
        for (word, digit) in words.iter_mut().zip(digits) {
            *word += if negative { -digit } else { digit };
        }
    }

    #[cold]
    fn add_special(&mut self, value: f64, sign: i64) {
        let rare = self.rare.get_or_insert_default();
        let count = match (value.is_nan(), value > 0.0) {
            (true, _) => &mut rare.nans,
            (false, true) => &mut rare.infinities,
            (false, false) => &mut rare.negative_infinities,
        };
        *count += sign;
    }

    /// Moves from the near digits to all of them.
    #[cold]
    fn spread(&mut self) {
        let full = self.all_digits();
        self.digits = [0; NEAR];
        self.rare.get_or_insert_default().full = full;
    }

    /// All digits as they are, carries not moved.
    fn all_digits(&self) -> Vec<i64> {
        if let Some(rare) = self.rare.as_ref().filter(|rare| !rare.full.is_empty()) {
            return rare.full.clone();
        }
        let mut full = vec![0; FULL];
        let place = self.place as usize;
        full[place..place + NEAR].copy_from_slice(&self.digits);
        full
    }

    /// Moves carries, so that as many additions fit again.
    #[cold]
    fn carry(&mut self) {
        self.additions = 0;
        match &mut self.rare {
            Some(rare) if !rare.full.is_empty() => move_carries(&mut rare.full),
            _ => {
                move_carries(&mut self.digits);
                if self.digits[NEAR - 1].unsigned_abs() >= 1 << 61 {
                    self.spread();
                    self.carry();
                }
            }
        }
    }

    /// Digits with carries moved: all between 0 and 2^32 but the last, which carries the sign.
    fn settled(&self) -> Vec<i64> {
        let mut full = self.all_digits();
        move_carries(&mut full);
        full
    }

    /// The sum, rounded once to the nearest double; infinite beyond the largest. NaN if a NaN or both infinities are in it.
    pub(crate) fn to_double(&self) -> f64 {
        if let Some(rare) = &self.rare {
            let (up, down) = (rare.infinities != 0, rare.negative_infinities != 0);
            match (rare.nans != 0 || (up && down), up, down) {
                (true, _, _) => return f64::NAN,
                (false, true, _) => return f64::INFINITY,
                (false, _, true) => return f64::NEG_INFINITY,
                (false, false, false) => {}
            }
        }
        let mut digits = self.settled();
        let negative = digits[FULL - 1] < 0;
        if negative {
            digits.iter_mut().for_each(|digit| *digit = -*digit);
            move_carries(&mut digits);
        }
        let magnitude = round(&digits);
        if negative { -magnitude } else { magnitude }
    }

    /// Whether NaN or an infinity is in the sum.
    pub(crate) fn is_special(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.nans != 0 || rare.infinities != 0 || rare.negative_infinities != 0)
    }

    /// The sum as two doubles, the second being what rounding the first left.
    pub(crate) fn to_pair(&self) -> (f64, f64) {
        let high = self.to_double();
        if !high.is_finite() {
            return (high, 0.0);
        }
        let mut rest = self.clone();
        rest.add(high, -1);
        (high, rest.to_double())
    }

    /// Appends the sum in a form that depends on its value only.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let digits = self.settled();
        let start = digits.iter().position(|digit| *digit != 0).unwrap_or(FULL);
        let fill = if digits[FULL - 1] < 0 { DIGIT_MASK } else { 0 };
        let top = if digits[FULL - 1] < 0 { -1 } else { 0 };
        let last = digits.iter().rposition(|digit| *digit != fill && *digit != top).map_or(start, |last| last + 1);
        put_integer(out, start as i128);
        put_integer(out, last.max(start) as i128 - start as i128);
        out.push(u8::from(top < 0));
        for digit in &digits[start..last.max(start)] {
            out.extend_from_slice(&(*digit as u32).to_le_bytes());
        }
        let empty = Rare::default();
        let rare = self.rare.as_deref().unwrap_or(&empty);
        [rare.nans, rare.infinities, rare.negative_infinities].iter().for_each(|count| put_integer(out, (*count).into()));
    }

    /// Reads what `encode` wrote.
    pub(crate) fn decode(input: &mut &[u8]) -> Result<Self> {
        let start = usize::try_from(get_i64(input)?).map_err(|_| corrupt())?;
        let length = usize::try_from(get_i64(input)?).map_err(|_| corrupt())?;
        let negative = super::bytes::get_array(input, 1)?[0] != 0;
        if start > FULL || length > FULL || start + length > FULL {
            return Err(corrupt());
        }
        let mut sum = Self::default();
        let digits = super::bytes::get_array(input, length * 4)?.chunks_exact(4);
        let digits = digits.map(|digit| i64::from(u32::from_le_bytes([digit[0], digit[1], digit[2], digit[3]])));
        sum.restore(start, digits.collect(), negative);
        let counts = [get_i64(input)?, get_i64(input)?, get_i64(input)?];
        if counts != [0; 3] {
            let rare = sum.rare.get_or_insert_default();
            [rare.nans, rare.infinities, rare.negative_infinities] = counts;
        }
        Ok(sum)
    }

    fn restore(&mut self, start: usize, mut digits: Vec<i64>, negative: bool) {
        if negative {
            // The digits above are all ones: the value is the digits minus one at the next place.
            digits.push(-1);
        }
        if digits.is_empty() {
            return;
        }
        self.placed = true;
        self.place = start.saturating_sub(1).min(FULL - NEAR) as u8;
        let near = start - self.place as usize;
        if near + digits.len() < NEAR {
            self.digits[near..near + digits.len()].copy_from_slice(&digits);
        } else {
            let mut full = vec![0; FULL];
            digits.truncate(FULL - start);
            full[start..start + digits.len()].copy_from_slice(&digits);
            self.rare.get_or_insert_default().full = full;
        }
    }

    /// Bytes held outside of the struct.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| size_of::<Rare>() + rare.full.capacity() * 8)
    }
}

fn move_carries(words: &mut [i64]) {
    let mut carry = 0;
    let (last, lower) = words.split_last_mut().expect("a sum has digits");
    for word in lower {
        *word += carry;
        carry = *word >> DIGIT_BITS;
        *word &= DIGIT_MASK;
    }
    *last += carry;
}

/// The nearest double (ties to even) of settled, non-negative digits.
fn round(digits: &[i64]) -> f64 {
    let Some(top) = digits.iter().rposition(|digit| *digit != 0) else { return 0.0 };
    let digit = |place: usize| digits.get(place).map_or(0, |digit| *digit as u64);
    let highest = top as u32 * DIGIT_BITS + 63 - digit(top).leading_zeros();
    if highest <= 52 {
        // As many multiples of the smallest double as fit its bits: also the encoding of the double.
        return f64::from_bits(digit(0) | digit(1) << DIGIT_BITS);
    }
    let lowest = highest - 52;
    let bit = |position: u32| digit((position / DIGIT_BITS) as usize) >> (position % DIGIT_BITS) & 1;
    let (place, shift) = ((lowest / DIGIT_BITS) as usize, lowest % DIGIT_BITS);
    let window = u128::from(digit(place)) | u128::from(digit(place + 1)) << 32 | u128::from(digit(place + 2)) << 64;
    let mantissa = (window >> shift) as u64 & ((1 << 53) - 1);
    let half = bit(lowest - 1) == 1;
    let below = lowest - 1;
    let sticky = (0..(below / DIGIT_BITS) as usize).any(|place| digit(place) != 0)
        || digit((below / DIGIT_BITS) as usize) & ((1 << (below % DIGIT_BITS)) - 1) != 0;
    let up = half && (sticky || mantissa & 1 == 1);
    // A mantissa that rounds up to 2^53 carries into the exponent, which is just what the next double is.
    let bits = (u64::from(lowest) << 52) + mantissa + u64::from(up);
    if bits >= f64::INFINITY.to_bits() { f64::INFINITY } else { f64::from_bits(bits) }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    fn sum(values: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        values.iter().for_each(|value| sum.add(*value, 1));
        sum
    }

    fn reread(sum: &ExactSum) -> ExactSum {
        let mut out = Vec::new();
        sum.encode(&mut out);
        let mut input = out.as_slice();
        let copy = ExactSum::decode(&mut input).unwrap();
        assert!(input.is_empty());
        let mut again = Vec::new();
        copy.encode(&mut again);
        assert_eq!(out, again);
        copy
    }

    #[test]
    fn single_values_come_back() {
        let values = [0.0, 1.0, -1.0, 0.1, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324, 2.225073858507201e-308, 1e300, 123.456];
        for value in values {
            assert_eq!(sum(&[value]).to_double(), value);
            assert_eq!(reread(&sum(&[value])).to_double(), value);
        }
    }

    #[test]
    fn nothing_is_lost_and_rounding_is_to_even() {
        assert_eq!(sum(&[1e16, 1.0, -1e16]).to_double(), 1.0);
        assert_eq!(sum(&[1e308, 1e308, -1e308]).to_double(), 1e308);
        assert_eq!(sum(&[f64::MAX, f64::MAX]).to_double(), f64::INFINITY);
        assert_eq!(sum(&[9007199254740992.0, 1.0]).to_double(), 9007199254740992.0);
        assert_eq!(sum(&[9007199254740994.0, 1.0]).to_double(), 9007199254740996.0);
        assert_eq!(sum(&[9007199254740992.0, 1.0, 1e-300]).to_double(), 9007199254740994.0);
    }

    #[test]
    fn special_values_leave_again() {
        let mut sum = sum(&[1.5, f64::NAN, f64::INFINITY]);
        assert!(sum.to_double().is_nan());
        sum.add(f64::NAN, -1);
        assert_eq!(sum.to_double(), f64::INFINITY);
        assert_eq!(reread(&sum).to_double(), f64::INFINITY);
        sum.add(f64::NEG_INFINITY, 1);
        assert!(sum.to_double().is_nan());
        sum.add(f64::INFINITY, -1);
        sum.add(f64::NEG_INFINITY, -1);
        assert_eq!(sum.to_double(), 1.5);
    }

    #[test]
    fn order_and_retractions_do_not_matter() {
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let range = random.random_range(1..300);
            let mut draw = || random.random_range(-1.0..1.0) * 10f64.powi(random.random_range(-range..=range.min(290)));
            let values: Vec<f64> = (0..50).map(|_| draw()).collect();
            let others: Vec<f64> = (0..50).map(|_| draw()).collect();
            let expected = sum(&values);
            let mut mixed = sum(&others);
            values.iter().rev().for_each(|value| mixed.add(*value, 1));
            mixed = reread(&mixed);
            others.iter().rev().for_each(|value| mixed.add(*value, -1));
            assert_eq!(expected.to_double().to_bits(), mixed.to_double().to_bits(), "seed {seed}");
            let (high, low) = expected.to_pair();
            assert_eq!(high, expected.to_double());
            assert!(low.abs() <= high.abs() * f64::EPSILON, "seed {seed}");
        }
    }
}
