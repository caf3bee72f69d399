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
//! | `array_agg` | any | array |
//! | `first_value`, `last_value` | any | the same |
//! | `var_samp` (`variance`), `var_pop`, `stddev_samp` (`stddev`), `stddev_pop` | numeric, double | the same |
//! | `single_value` | any | the same; fails on a second row |
//! | `corr`, `covar_pop`, `covar_samp`, `regr_*` | two doubles | double |
//!
//! `string_agg`, the JSON aggregates, percentiles and `mode` are `array_agg` with a function on top ([`collected`]).

pub(crate) mod collected;
mod extreme;
mod function;
mod single;
mod sum;
mod variance;

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
        regr::{
            regr_avgx_udaf, regr_avgy_udaf, regr_intercept_udaf, regr_r2_udaf, regr_slope_udaf, regr_sxx_udaf, regr_sxy_udaf, regr_syy_udaf,
        },
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

pub(crate) const NAMES: &[&str] = &[
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
    "array_agg",
    "first_value",
    "last_value",
    "any_value",
    "variance",
    "var_samp",
    "var_pop",
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
];

/// What the aggregates of all names take and give, as the list of functions shows it; the last argument of those with WITHIN GROUP is what is
/// ordered.
pub(crate) const SIGNATURES: &[&str] = &[
    "count() bigint",
    "count(any) bigint",
    "sum(smallint) bigint",
    "sum(integer) bigint",
    "sum(bigint) numeric",
    "sum(numeric) numeric",
    "sum(real) real",
    "sum(double precision) double precision",
    "sum(interval) interval",
    "avg(smallint) numeric",
    "avg(integer) numeric",
    "avg(bigint) numeric",
    "avg(numeric) numeric",
    "avg(real) double precision",
    "avg(double precision) double precision",
    "avg(interval) interval",
    "min(smallint) smallint",
    "min(integer) integer",
    "min(bigint) bigint",
    "min(numeric) numeric",
    "min(real) real",
    "min(double precision) double precision",
    "min(text) text",
    "min(date) date",
    "min(time) time",
    "min(timestamp) timestamp",
    "min(timestamptz) timestamptz",
    "min(interval) interval",
    "min(bytea) bytea",
    "min(anyarray) anyarray",
    "max(smallint) smallint",
    "max(integer) integer",
    "max(bigint) bigint",
    "max(numeric) numeric",
    "max(real) real",
    "max(double precision) double precision",
    "max(text) text",
    "max(date) date",
    "max(time) time",
    "max(timestamp) timestamp",
    "max(timestamptz) timestamptz",
    "max(interval) interval",
    "max(bytea) bytea",
    "max(anyarray) anyarray",
    "bool_and(boolean) boolean",
    "bool_or(boolean) boolean",
    "every(boolean) boolean",
    "bit_and(smallint) smallint",
    "bit_and(integer) integer",
    "bit_and(bigint) bigint",
    "bit_or(smallint) smallint",
    "bit_or(integer) integer",
    "bit_or(bigint) bigint",
    "bit_xor(smallint) smallint",
    "bit_xor(integer) integer",
    "bit_xor(bigint) bigint",
    "array_agg(anynonarray) anyarray",
    "any_value(anyelement) anyelement",
    "first_value(anyelement) anyelement",
    "last_value(anyelement) anyelement",
    "variance(smallint) numeric",
    "variance(integer) numeric",
    "variance(bigint) numeric",
    "variance(numeric) numeric",
    "variance(real) double precision",
    "variance(double precision) double precision",
    "var_samp(smallint) numeric",
    "var_samp(integer) numeric",
    "var_samp(bigint) numeric",
    "var_samp(numeric) numeric",
    "var_samp(real) double precision",
    "var_samp(double precision) double precision",
    "var_pop(smallint) numeric",
    "var_pop(integer) numeric",
    "var_pop(bigint) numeric",
    "var_pop(numeric) numeric",
    "var_pop(real) double precision",
    "var_pop(double precision) double precision",
    "stddev(smallint) numeric",
    "stddev(integer) numeric",
    "stddev(bigint) numeric",
    "stddev(numeric) numeric",
    "stddev(real) double precision",
    "stddev(double precision) double precision",
    "stddev_samp(smallint) numeric",
    "stddev_samp(integer) numeric",
    "stddev_samp(bigint) numeric",
    "stddev_samp(numeric) numeric",
    "stddev_samp(real) double precision",
    "stddev_samp(double precision) double precision",
    "stddev_pop(smallint) numeric",
    "stddev_pop(integer) numeric",
    "stddev_pop(bigint) numeric",
    "stddev_pop(numeric) numeric",
    "stddev_pop(real) double precision",
    "stddev_pop(double precision) double precision",
    "corr(double precision, double precision) double precision",
    "covar_pop(double precision, double precision) double precision",
    "covar_samp(double precision, double precision) double precision",
    "regr_avgx(double precision, double precision) double precision",
    "regr_avgy(double precision, double precision) double precision",
    "regr_count(double precision, double precision) bigint",
    "regr_intercept(double precision, double precision) double precision",
    "regr_r2(double precision, double precision) double precision",
    "regr_slope(double precision, double precision) double precision",
    "regr_sxx(double precision, double precision) double precision",
    "regr_sxy(double precision, double precision) double precision",
    "regr_syy(double precision, double precision) double precision",
    "string_agg(text, text) text",
    "json_agg(anyelement) json",
    "jsonb_agg(anyelement) jsonb",
    "json_object_agg(any, any) json",
    "jsonb_object_agg(any, any) jsonb",
    "percentile_cont(double precision, double precision) double precision",
    "percentile_cont(double precision[], double precision) double precision[]",
    "percentile_cont(double precision, interval) interval",
    "percentile_cont(double precision[], interval) interval[]",
    "percentile_disc(double precision, anyelement) anyelement",
    "percentile_disc(double precision[], anyelement) anyarray",
    "mode(anyelement) anyelement",
];

/// Names of aggregates.
pub(crate) fn is_aggregate(name: &str) -> bool {
    NAMES.contains(&name) || collected::is_collected(name) || collected::is_ordered_set(name)
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
            chosen(sum::mean(&argument.arrow(), &result.arrow()), vec![argument], result)
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
        ("array_agg", [_]) => Some(list_of(first.filter(|element| !matches!(element, SqlType::Array(_)))?)),
        ("variance" | "var_samp" | "var_pop" | "stddev" | "stddev_samp" | "stddev_pop", [_]) => {
            let (argument, result) = spread_types(&first?)?;
            let name = match name {
                "variance" | "var_samp" => "var_samp",
                "var_pop" => "var_pop",
                "stddev" | "stddev_samp" => "stddev_samp",
                _ => "stddev_pop",
            };
            chosen(variance::variance_of(name, &argument.arrow(), &result.arrow()), vec![argument], result)
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
        (_, [left, right]) if left.is_number() && right.is_number() => {
            let function = regression(name)?;
            chosen(function, vec![SqlType::Double, SqlType::Double], SqlType::Double)
        }
        _ => None,
    }
}

/// `array_agg` of a type.
pub(crate) fn list_of(element: SqlType) -> Chosen {
    Chosen { function: array_agg_udaf(), arguments: vec![element.clone()], result: SqlType::array(element) }
}

fn regression(name: &str) -> Option<Arc<AggregateUDF>> {
    Some(match name {
        "regr_avgx" => regr_avgx_udaf(),
        "regr_avgy" => regr_avgy_udaf(),
        "regr_intercept" => regr_intercept_udaf(),
        "regr_r2" => regr_r2_udaf(),
        "regr_slope" => regr_slope_udaf(),
        "regr_sxx" => regr_sxx_udaf(),
        "regr_sxy" => regr_sxy_udaf(),
        "regr_syy" => regr_syy_udaf(),
        _ => return None,
    })
}

fn is_ordered(sql_type: &SqlType) -> bool {
    !matches!(sql_type, SqlType::Boolean | SqlType::Json | SqlType::Jsonb | SqlType::Uuid | SqlType::Record(_) | SqlType::Void)
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

/// The types of a variance's argument and result.
fn spread_types(value: &SqlType) -> Option<(SqlType, SqlType)> {
    Some(match value {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => (Digits::of(value).sql_type(), SqlType::NUMERIC),
        SqlType::Numeric(..) => (value.clone(), SqlType::NUMERIC),
        SqlType::Real | SqlType::Double => (SqlType::Double, SqlType::Double),
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
