//! Digits of numeric results, from the digits of the operands.

use super::{NUMERIC_FREE_SCALE, NUMERIC_MAX_PRECISION, SqlType};

/// Digits and scale of a numeric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// All digits.
    pub precision: u8,
    /// Digits after the point.
    pub scale: i8,
}

impl Digits {
    /// Of `numeric` without a declared precision.
    pub const FREE: Self = Self { precision: NUMERIC_MAX_PRECISION, scale: NUMERIC_FREE_SCALE };

    /// What a value of an integer or numeric type needs; for other types, all there are.
    pub fn of(sql_type: &SqlType) -> Self {
        match sql_type {
            SqlType::Numeric(precision, scale) => Self { precision: *precision, scale: *scale },
            SqlType::SmallInt => Self { precision: 5, scale: 0 },
            SqlType::Integer => Self { precision: 10, scale: 0 },
            SqlType::BigInt => Self { precision: 19, scale: 0 },
            _ => Self::FREE,
        }
    }

    /// As a type.
    pub fn sql_type(self) -> SqlType {
        SqlType::Numeric(self.precision, self.scale)
    }

    fn whole(self) -> i32 {
        i32::from(self.precision) - i32::from(self.scale)
    }

    /// Of so many digits before and after the point. When there are too many, the fraction keeps its digits up to those of the free
    /// numeric, and a value that does not fit is an error when it comes.
    fn bounded(whole: i32, scale: i32) -> Self {
        let limit = i32::from(NUMERIC_MAX_PRECISION);
        if whole + scale <= limit {
            let precision = (whole + scale).max(scale).max(1);
            return Self { precision: precision as u8, scale: scale as i8 };
        }
        let least = scale.min(i32::from(NUMERIC_FREE_SCALE));
        let scale = (limit - whole).clamp(least, scale);
        Self { precision: NUMERIC_MAX_PRECISION, scale: scale as i8 }
    }

    /// Wide enough for values of both.
    pub fn union(self, other: Self) -> Self {
        if self == Self::FREE || other == Self::FREE {
            return Self::FREE;
        }
        Self::bounded(self.whole().max(other.whole()), i32::from(self.scale.max(other.scale)))
    }

    /// Of a sum or difference.
    pub fn sum(self, other: Self) -> Self {
        if self == Self::FREE || other == Self::FREE {
            return Self::FREE;
        }
        Self::bounded(self.whole().max(other.whole()) + 1, i32::from(self.scale.max(other.scale)))
    }

    /// Of a product.
    pub fn product(self, other: Self) -> Self {
        if self == Self::FREE || other == Self::FREE {
            return Self::FREE;
        }
        Self::bounded(self.whole() + other.whole(), i32::from(self.scale) + i32::from(other.scale))
    }

    /// Of a remainder.
    pub fn remainder(self, other: Self) -> Self {
        if self == Self::FREE || other == Self::FREE {
            return Self::FREE;
        }
        Self::bounded(self.whole().max(other.whole()), i32::from(self.scale.max(other.scale)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_follow_the_operands() {
        let digits = |precision, scale| Digits { precision, scale };
        let bigint = Digits::of(&SqlType::BigInt);
        assert_eq!(digits(3, 3).product(bigint), digits(22, 3));
        assert_eq!(digits(3, 1).sum(digits(5, 3)), digits(6, 3));
        assert_eq!(digits(5, 2).union(bigint), digits(21, 2));
        assert_eq!(Digits::FREE.product(bigint), Digits::FREE);
        assert_eq!(digits(76, 30).product(digits(76, 30)), digits(76, 20));
    }
}
