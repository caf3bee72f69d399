//! Typmods: the number in which Postgres keeps a declared length or precision.

use super::SqlType;

/// No modifier.
pub const NONE: i32 = -1;
const HEADER: i32 = 4;

/// Of an array in a system relation that Postgres holds as a vector: it is shown as its elements with blanks between them, and counted from 0.
pub const VECTOR: i32 = -2;

/// The typmod of `varchar(length)` or `char(length)`.
pub fn of_length(length: u32) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX - HEADER) + HEADER
}

/// The length in a typmod of `varchar` or `char`.
pub fn length(modifier: i32) -> Option<u32> {
    u32::try_from(modifier.checked_sub(HEADER)?).ok()
}

/// The typmod of `numeric(precision, scale)`.
pub fn of_numeric(precision: u8, scale: i8) -> i32 {
    ((i32::from(precision) << 16) | (i32::from(scale) & 0x7ff)) + HEADER
}

/// The precision in a typmod of `time`, `timestamp` or `interval`.
pub fn fraction_digits(modifier: i32) -> Option<u32> {
    u32::try_from(modifier).ok().filter(|digits| *digits <= 6)
}

/// The text in parentheses that Postgres shows after the name of the type, without them.
pub fn text(sql_type: &SqlType, modifier: i32) -> Option<String> {
    if modifier < 0 {
        return None;
    }
    match sql_type {
        SqlType::Varchar | SqlType::Char => length(modifier).map(|length| length.to_string()),
        SqlType::Numeric(..) => {
            let packed = modifier - HEADER;
            Some(format!("{},{}", (packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 1024) - 1024))
        }
        SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => {
            fraction_digits(modifier).map(|digits| digits.to_string())
        }
        SqlType::Array(element) => text(element, modifier),
        _ => None,
    }
}
