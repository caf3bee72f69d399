//! Aggregates with Postgres' result types.
//!
//! How a stream planner recognises them: by the name of the function ([`datafusion::logical_expr::AggregateUDF::name`]).
//!
//! | name | arguments | result |
//! |---|---|---|
//! | `count` | none (the literal `Int64(1)`) or one | bigint |
//! | `sum` | bigint (of smallint and integer), numeric (of bigint and numeric), real, double, interval | the same; of bigint numeric(38,0) |
//! | `avg` | bigint, numeric, double, interval | numeric, numeric, double, interval |
//! | `min`, `max` | any ordered type | the same |
//! | `bool_and` (`every`), `bool_or` | boolean | boolean |
//! | `bit_and`, `bit_or`, `bit_xor` | integers | the same |
//! | `string_agg` | text and separator | text |
//! | `array_agg` | any | array |
//! | `first_value`, `last_value` | any | the same |
//! | `var_samp` (`variance`), `var_pop`, `stddev_samp` (`stddev`), `stddev_pop` | numeric, double | the same |
//! | `single_value` | any | the same; fails on a second row |
//! | `json_agg`, `jsonb_agg`, `json_object_agg`, `jsonb_object_agg` | | json, jsonb |

mod extreme;
mod function;
mod single;
mod sum;

use std::sync::Arc;

use datafusion::{
    functions_aggregate::{
        array_agg::array_agg_udaf,
        bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf},
        bool_and_or::{bool_and_udaf, bool_or_udaf},
        correlation::corr_udaf,
        count::count_udaf,
        covariance::{covar_pop_udaf, covar_samp_udaf},
        first_last::{first_value_udaf, last_value_udaf},
        string_agg::string_agg_udaf,
    },
    logical_expr::AggregateUDF,
};

use crate::types::{SqlType, decimal::Digits};

/// An aggregate for arguments of certain types.
pub(crate) struct Chosen {
    pub(crate) function: Arc<AggregateUDF>,
    /// Types its arguments have to have.
    pub(crate) arguments: Vec<SqlType>,
    pub(crate) result: SqlType,
}

const NAMES: &[&str] = &[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "every",
    "bit_and",
    "bit_or",
    "bit_xor",
    "string_agg",
    "array_agg",
    "first_value",
    "last_value",
    "any_value",
    "corr",
    "covar_pop",
    "covar_samp",
];

/// Names of aggregates.
pub(crate) fn is_aggregate(name: &str) -> bool {
    NAMES.contains(&name) || is_ordered_set(name)
}

/// Aggregates that need WITHIN GROUP.
pub(crate) fn is_ordered_set(_: &str) -> bool {
    false
}

/// `count`
pub(crate) fn count() -> Arc<AggregateUDF> {
    count_udaf()
}

/// The only value of its input; 21000 if there are several.
pub(crate) fn single_value() -> Arc<AggregateUDF> {
    single::single_value()
}

/// The aggregate of a name for arguments of these types.
pub(crate) fn choose(name: &str, types: &[SqlType]) -> Option<Chosen> {
    let known = |sql_type: &SqlType| if *sql_type == SqlType::Unknown { SqlType::Text } else { sql_type.clone() };
    let chosen = |function: Arc<AggregateUDF>, arguments: Vec<SqlType>, result: SqlType| Some(Chosen { function, arguments, result });
    let first = types.first().map(known);
    match (name, types) {
        ("count", []) => chosen(count_udaf(), vec![], SqlType::BigInt),
        ("count", [_]) => chosen(count_udaf(), vec![first?], SqlType::BigInt),
        ("sum", [_]) => {
            let (argument, result) = sum_types(&first?)?;
            chosen(sum::sum(&argument.arrow(), &result.arrow()), vec![argument], result)
        }
        ("avg", [_]) => {
            let (argument, result) = average_types(&first?)?;
            chosen(sum::average(&argument.arrow(), &result.arrow()), vec![argument], result)
        }
        ("min" | "max", [_]) => {
            let value = first.filter(is_ordered)?;
            chosen(extreme::extreme(name == "max", &value.arrow()), vec![value.clone()], value)
        }
        ("bool_and" | "every", [SqlType::Boolean | SqlType::Unknown]) => chosen(bool_and_udaf(), vec![SqlType::Boolean], SqlType::Boolean),
        ("bool_or", [SqlType::Boolean | SqlType::Unknown]) => chosen(bool_or_udaf(), vec![SqlType::Boolean], SqlType::Boolean),
        ("bit_and" | "bit_or" | "bit_xor", [value]) if value.is_integer() => {
            let function = match name {
                "bit_and" => bit_and_udaf(),
                "bit_or" => bit_or_udaf(),
                _ => bit_xor_udaf(),
            };
            chosen(function, vec![value.clone()], value.clone())
        }
        ("string_agg", [text, separator]) if is_text(text) && is_text(separator) => {
            chosen(string_agg_udaf(), vec![SqlType::Text, SqlType::Text], SqlType::Text)
        }
        ("array_agg", [_]) => {
            let element = first.filter(|element| !matches!(element, SqlType::Array(_)))?;
            chosen(array_agg_udaf(), vec![element.clone()], SqlType::array(element))
        }
        ("first_value" | "any_value", [_]) => chosen(first_value_udaf(), vec![first.clone()?], first?),
        ("last_value", [_]) => chosen(last_value_udaf(), vec![first.clone()?], first?),
        ("corr" | "covar_pop" | "covar_samp", [left, right]) if left.is_number() && right.is_number() => {
            let function = match name {
                "corr" => corr_udaf(),
                "covar_pop" => covar_pop_udaf(),
                _ => covar_samp_udaf(),
            };
            chosen(function, vec![SqlType::Double, SqlType::Double], SqlType::Double)
        }
        _ => None,
    }
}

/// The ordered-set aggregate of a name, with so many direct arguments, over values of a type.
pub(crate) fn choose_ordered_set(_: &str, _: usize, _: &SqlType) -> Option<Chosen> {
    None
}

fn is_text(sql_type: &SqlType) -> bool {
    sql_type.is_text() || *sql_type == SqlType::Unknown
}

fn is_ordered(sql_type: &SqlType) -> bool {
    !matches!(
        sql_type,
        SqlType::Boolean | SqlType::Json | SqlType::Jsonb | SqlType::Uuid | SqlType::Bytea | SqlType::Record(_) | SqlType::Void
    )
}

/// The types of a sum's argument and result.
fn sum_types(value: &SqlType) -> Option<(SqlType, SqlType)> {
    Some(match value {
        SqlType::SmallInt | SqlType::Integer => (SqlType::BigInt, SqlType::BigInt),
        SqlType::BigInt => (SqlType::BigInt, SqlType::Numeric(38, 0)),
        SqlType::Numeric(precision, scale) => {
            let digits = if *precision <= 28 { Digits { precision: 38, scale: *scale } } else { Digits { precision: 76, scale: *scale } };
            (value.clone(), digits.sql_type())
        }
        SqlType::Real | SqlType::Double | SqlType::Interval => (value.clone(), value.clone()),
        SqlType::Time => (SqlType::Interval, SqlType::Interval),
        _ => return None,
    })
}

fn average_types(value: &SqlType) -> Option<(SqlType, SqlType)> {
    Some(match value {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => (SqlType::BigInt, SqlType::NUMERIC),
        SqlType::Numeric(..) => (value.clone(), SqlType::NUMERIC),
        SqlType::Real | SqlType::Double => (SqlType::Double, SqlType::Double),
        SqlType::Interval | SqlType::Time => (SqlType::Interval, SqlType::Interval),
        _ => return None,
    })
}
