//! Which types become which by themselves, on assignment, or by a cast only; and the common type of several values.

use super::{SqlType, decimal::Digits};

/// How a conversion came to be wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoercionContext {
    /// By the place of a value in an expression.
    Implicit,
    /// By storing it in a column.
    Assignment,
    /// By a cast.
    Explicit,
}

/// Postgres' type categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Arrays
    Array,
    /// boolean
    Boolean,
    /// Dates and times
    DateTime,
    /// Numbers and object ids
    Numeric,
    /// Text
    String,
    /// interval
    Timespan,
    /// All others
    Other,
    /// Not known yet
    Unknown,
}

/// The category of a type.
pub fn category(sql_type: &SqlType) -> Category {
    match sql_type {
        SqlType::Array(_) => Category::Array,
        SqlType::Boolean => Category::Boolean,
        SqlType::Date | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => Category::DateTime,
        SqlType::Interval => Category::Timespan,
        SqlType::Unknown => Category::Unknown,
        other if other.is_number() || other.is_oid() => Category::Numeric,
        other if other.is_text() => Category::String,
        _ => Category::Other,
    }
}

/// Whether a type is the preferred one of its category.
pub fn is_preferred(sql_type: &SqlType) -> bool {
    matches!(sql_type, SqlType::Boolean | SqlType::Double | SqlType::Text | SqlType::TimestampTz | SqlType::Interval | SqlType::Oid)
}

/// Whether a value of one type may become one of another.
pub fn can_coerce(from: &SqlType, to: &SqlType, context: CoercionContext) -> bool {
    if from.same(to) || *from == SqlType::Unknown {
        return true;
    }
    match needed_context(from, to) {
        Some(needed) => needed <= context,
        None => false,
    }
}

/// The weakest context in which a conversion is allowed; `None` if there is none at all.
fn needed_context(from: &SqlType, to: &SqlType) -> Option<CoercionContext> {
    use CoercionContext::{Assignment, Explicit, Implicit};
    use SqlType as T;
    Some(match (from, to) {
        (T::Record(_), _) | (_, T::Record(_) | T::Void) => return None,
        (T::Array(from), T::Array(to)) if can_coerce(from, to, Implicit) => Implicit,
        (T::Array(from), T::Array(to)) if can_coerce(from, to, Assignment) => Assignment,
        (T::Array(from), T::Array(to)) if can_coerce(from, to, Explicit) => Explicit,
        (from, to) if from.is_number() && to.is_number() => {
            if number_rank(from) < number_rank(to) {
                Implicit
            } else {
                Assignment
            }
        }
        (T::Integer, T::Boolean) | (T::Boolean, T::Integer) => Explicit,
        (T::Text | T::Varchar, T::Text | T::Varchar | T::Char) | (T::Char, T::Text | T::Varchar | T::Char) => Implicit,
        (T::Name, T::Text) => Implicit,
        (T::Name, T::Varchar | T::Char) => Assignment,
        (T::Text | T::Varchar | T::Char, T::Name) => Implicit,
        (T::InternalChar, T::Text) => Implicit,
        (T::InternalChar, T::Varchar | T::Char) | (T::Text | T::Varchar | T::Char, T::InternalChar) => Assignment,
        (T::InternalChar, T::Integer) | (T::Integer, T::InternalChar) => Explicit,
        (T::Text | T::Varchar, T::RegClass) => Implicit,
        (T::Date, T::Timestamp | T::TimestampTz) | (T::Timestamp, T::TimestampTz) => Implicit,
        (T::Timestamp, T::Date | T::Time) | (T::TimestampTz, T::Timestamp | T::Date | T::Time) => Assignment,
        (T::Time, T::Interval) => Implicit,
        (T::Interval, T::Time) => Assignment,
        (T::Json, T::Jsonb) | (T::Jsonb, T::Json) => Assignment,
        (T::Jsonb, T::Boolean) => Explicit,
        (T::Jsonb, to) if to.is_number() => Explicit,
        (T::SmallInt | T::Integer | T::BigInt, to) if to.is_oid() => Implicit,
        (T::Oid, T::Integer | T::BigInt) => Assignment,
        (from, T::Oid) if from.is_oid() => Implicit,
        (T::Oid, to) if to.is_oid() => Implicit,
        (from, T::Integer | T::BigInt) if from.is_oid() => Assignment,
        // Through the text form: on assignment to text types, by a cast from them.
        (_, T::Text | T::Varchar | T::Char | T::Name) => Assignment,
        (from, _) if from.is_text() => Explicit,
        _ => return None,
    })
}

/// Numbers in the order in which they become each other by themselves.
fn number_rank(sql_type: &SqlType) -> u8 {
    match sql_type {
        SqlType::SmallInt => 0,
        SqlType::Integer => 1,
        SqlType::BigInt => 2,
        SqlType::Numeric(..) => 3,
        SqlType::Real => 4,
        _ => 5,
    }
}

/// The type that values of several types all become, as in UNION, CASE and VALUES; `None` if there is none.
pub fn common_type(types: &[SqlType]) -> Option<SqlType> {
    use SqlType as T;
    let mut known = types.iter().filter(|sql_type| **sql_type != SqlType::Unknown);
    let Some(mut chosen) = known.next().cloned() else { return Some(SqlType::Text) };
    for next in known {
        if next.same(&chosen) {
            chosen = widen(&chosen, next);
            continue;
        }
        // What is neither becomes the type that both become: there is no operator of the two.
        if let (T::InternalChar, T::Varchar | T::Char) | (T::Varchar | T::Char, T::InternalChar) = (&chosen, next) {
            chosen = T::Text;
            continue;
        }
        if category(next) != category(&chosen) {
            return None;
        }
        if !is_preferred(&chosen)
            && can_coerce(&chosen, next, CoercionContext::Implicit)
            && !can_coerce(next, &chosen, CoercionContext::Implicit)
        {
            chosen = next.clone();
        }
    }
    if chosen.is_numeric() {
        let digits = types.iter().filter(|sql_type| sql_type.is_integer() || sql_type.is_numeric()).map(Digits::of).reduce(Digits::union);
        chosen = digits.unwrap_or(Digits::FREE).sql_type();
    }
    types.iter().all(|sql_type| can_coerce(sql_type, &chosen, CoercionContext::Implicit)).then_some(chosen)
}

/// The same type with digits for both.
fn widen(left: &SqlType, right: &SqlType) -> SqlType {
    match (left, right) {
        (SqlType::Numeric(..), SqlType::Numeric(..)) => Digits::of(left).union(Digits::of(right)).sql_type(),
        (SqlType::Array(left), SqlType::Array(right)) => SqlType::array(widen(left, right)),
        _ => left.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_types_are_those_of_postgres() {
        use SqlType as T;
        for (types, expected) in [
            (vec![T::Integer, T::BigInt], Some(T::BigInt)),
            (vec![T::BigInt, T::Numeric(5, 2), T::Integer], Some(T::Numeric(21, 2))),
            (vec![T::Numeric(5, 2), T::Real], Some(T::Real)),
            (vec![T::Unknown, T::Unknown], Some(T::Text)),
            (vec![T::Unknown, T::Date, T::TimestampTz], Some(T::TimestampTz)),
            (vec![T::Integer, T::Text], None),
            // Each becomes the other by itself, so the first one stays.
            (vec![T::Varchar, T::Text], Some(T::Varchar)),
            (vec![T::InternalChar, T::Varchar], Some(T::Text)),
            (vec![T::Char, T::Char, T::InternalChar], Some(T::Text)),
            (vec![T::array(T::Integer), T::array(T::BigInt)], Some(T::array(T::BigInt))),
        ] {
            assert_eq!(common_type(&types), expected, "{types:?}");
        }
    }

    #[test]
    fn conversions_need_their_context() {
        use CoercionContext::{Assignment, Explicit, Implicit};
        use SqlType as T;
        assert!(can_coerce(&T::Integer, &T::BigInt, Implicit));
        assert!(!can_coerce(&T::BigInt, &T::Integer, Implicit) && can_coerce(&T::BigInt, &T::Integer, Assignment));
        assert!(!can_coerce(&T::Text, &T::Integer, Assignment) && can_coerce(&T::Text, &T::Integer, Explicit));
        assert!(can_coerce(&T::Integer, &T::Text, Assignment) && !can_coerce(&T::Integer, &T::Text, Implicit));
        assert!(!can_coerce(&T::Boolean, &T::Date, Explicit));
    }
}
