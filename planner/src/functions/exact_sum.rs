//! A sum of floats without rounding, so that it does not depend on the order of its terms and a term can be taken away again.
//!
//! The finite part is a list of floats that do not overlap (Shewchuk's expansions), whose exact sum is the exact sum of all terms; it is
//! rounded once, when the value is asked for. NaN and infinities are counted apart.

/// The sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ExactSum {
    /// Parts of increasing magnitude that do not overlap.
    parts: Vec<f64>,
    nans: i64,
    positive_infinities: i64,
    negative_infinities: i64,
}

impl ExactSum {
    /// Adds (`sign` 1) or takes away (-1) a term.
    pub(crate) fn add(&mut self, term: f64, sign: i64) {
        if term.is_nan() {
            self.nans += sign;
        } else if term == f64::INFINITY {
            self.positive_infinities += sign;
        } else if term == f64::NEG_INFINITY {
            self.negative_infinities += sign;
        } else {
            self.add_finite(if sign < 0 { -term } else { term });
        }
    }

    fn add_finite(&mut self, term: f64) {
        let mut rest = term;
        let mut kept = 0;
        for index in 0..self.parts.len() {
            let (mut large, mut small) = (rest, self.parts[index]);
            if large.abs() < small.abs() {
                (large, small) = (small, large);
            }
            let high = large + small;
            let low = small - (high - large);
            if low != 0.0 {
                self.parts[kept] = low;
                kept += 1;
            }
            rest = high;
        }
        self.parts.truncate(kept);
        if rest != 0.0 {
            self.parts.push(rest);
        }
    }

    /// Whether an infinity is among the terms.
    pub(crate) fn has_infinity(&self) -> bool {
        self.positive_infinities != 0 || self.negative_infinities != 0
    }

    /// The sum, rounded to the nearest double.
    pub(crate) fn value(&self) -> f64 {
        if self.nans > 0 || (self.positive_infinities > 0 && self.negative_infinities > 0) {
            return f64::NAN;
        }
        if self.positive_infinities > 0 {
            return f64::INFINITY;
        }
        if self.negative_infinities > 0 {
            return f64::NEG_INFINITY;
        }
        let mut rest = self.parts.iter().rev();
        let Some(mut sum) = rest.next().copied() else { return 0.0 };
        let mut low = 0.0;
        let mut following = rest;
        for part in following.by_ref() {
            let high = sum + part;
            low = part - (high - sum);
            sum = high;
            if low != 0.0 {
                break;
            }
        }
        // A tie is decided by the sign of what is left.
        if let Some(next) = following.next()
            && ((low < 0.0 && *next < 0.0) || (low > 0.0 && *next > 0.0))
        {
            let doubled = low * 2.0;
            let candidate = sum + doubled;
            if doubled == candidate - sum {
                sum = candidate;
            }
        }
        sum
    }

    /// The sum as a pair: rounded to the nearest double, and what that leaves, rounded in its turn.
    pub(crate) fn to_pair(&self) -> (f64, f64) {
        let high = self.value();
        if !high.is_finite() {
            return (high, 0.0);
        }
        let mut rest = self.clone();
        rest.add_finite(-high);
        (high, rest.value())
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<f64>()
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for count in [self.nans, self.positive_infinities, self.negative_infinities] {
            out.extend_from_slice(&count.to_le_bytes());
        }
        self.parts.iter().for_each(|part| out.extend_from_slice(&part.to_le_bytes()));
    }

    /// Adds what [`ExactSum::write`] wrote; `None` if that cannot be read.
    pub(crate) fn merge(&mut self, bytes: &[u8]) -> Option<()> {
        let word = |index: usize| -> Option<[u8; 8]> { bytes.get(index * 8..index * 8 + 8)?.try_into().ok() };
        self.nans += i64::from_le_bytes(word(0)?);
        self.positive_infinities += i64::from_le_bytes(word(1)?);
        self.negative_infinities += i64::from_le_bytes(word(2)?);
        if !bytes.len().is_multiple_of(8) {
            return None;
        }
        for index in 3..bytes.len() / 8 {
            self.add_finite(f64::from_le_bytes(word(index)?));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_can_be_taken_away_exactly() {
        let mut sum = ExactSum::default();
        for term in [1e16, 1.0, -1e16, 0.1, f64::NAN, f64::INFINITY] {
            sum.add(term, 1);
        }
        assert!(sum.value().is_nan());
        sum.add(f64::NAN, -1);
        assert_eq!(sum.value(), f64::INFINITY);
        sum.add(f64::INFINITY, -1);
        assert_eq!(sum.value(), 1.1);
        sum.add(0.1, -1);
        sum.add(1.0, -1);
        assert_eq!(sum.value(), 0.0);
    }

    #[test]
    fn the_order_of_terms_does_not_matter() {
        let terms = [0.1, 1e100, 0.2, -1e100, 0.3, 1e-20, -0.6];
        let mut forward = ExactSum::default();
        terms.iter().for_each(|term| forward.add(*term, 1));
        let mut backward = ExactSum::default();
        terms.iter().rev().for_each(|term| backward.add(*term, 1));
        assert_eq!(forward.value(), backward.value());
        let mut bytes = Vec::new();
        forward.write(&mut bytes);
        let mut merged = ExactSum::default();
        assert!(merged.merge(&bytes).is_some());
        assert_eq!(merged.value(), forward.value());
    }
}
