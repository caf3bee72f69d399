//! Functions that return rows. Each is a list of its rows' values, which the binder expands.

use std::sync::Arc;

use arrow::{
    array::{ArrayBuilder, ArrayRef, ListBuilder, PrimitiveBuilder},
    datatypes::{
        ArrowPrimitiveType, DataType, Field, Float64Type, Int32Type, Int64Type, IntervalMonthDayNanoType, TimestampMicrosecondType,
    },
};
use datafusion::{
    common::ScalarValue,
    logical_expr::{
        Expr,
        expr::{ScalarFunction, Unnest},
        lit,
    },
};
use sqlparser::tokenizer::Span;

use super::{
    datetime,
    decimal::Decimal,
    dimensions,
    interval::{parts, total_micros},
    kernel::{Call, Traits},
    session::datafusion_function,
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    pg_text::MICROS_PER_DAY,
    types::{SqlType, modifier},
};

/// The function behind `generate_series`, which gives the whole series as a list.
pub(crate) const SERIES_LIST: &str = "generate_series_list";

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("unnest(anyarray) anyelement", |binder, mut values| rows_of(one_dimension(binder, values.swap_remove(0))?)),
    Entry::rewrite("generate_series(integer, integer) integer", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(integer, integer, integer) integer", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(bigint, bigint) bigint", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(bigint, bigint, bigint) bigint", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(numeric, numeric) numeric", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(numeric, numeric, numeric) numeric", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(timestamp, timestamp, interval) timestamp", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::rewrite("generate_series(timestamptz, timestamptz, interval) timestamptz", |binder, values| expand(binder, SERIES_LIST, values)),
    Entry::strict("generate_series_list(integer, integer) integer[]", integers::<Int32Type>),
    Entry::strict("generate_series_list(integer, integer, integer) integer[]", integers::<Int32Type>),
    Entry::strict("generate_series_list(bigint, bigint) bigint[]", integers::<Int64Type>),
    Entry::strict("generate_series_list(bigint, bigint, bigint) bigint[]", integers::<Int64Type>),
    Entry::strict("generate_series_list(numeric, numeric) numeric[]", numerics),
    Entry::strict("generate_series_list(numeric, numeric, numeric) numeric[]", numerics),
    Entry::strict("generate_series_list(timestamp, timestamp, interval) timestamp[]", |call| moments(call, None)),
    Entry::kernel("generate_series_list(timestamptz, timestamptz, interval) timestamptz[]", Traits::LOCAL, |call| {
        moments(call, Some(&call.environment().text.time_zone))
    }),
    Entry::rewrite("generate_subscripts(anyarray, integer) integer", |binder, mut values| {
        let first = if values[0].modifier == modifier::VECTOR { 0 } else { 1 };
        values.push(Typed::integer(first));
        expand(binder, "generate_subscripts_list", values)
    }),
    Entry::strict("generate_subscripts_list(anyarray, integer, integer) integer[]", subscripts),
    Entry::rewrite("string_to_table(text, text) text", |binder, values| expand(binder, "string_to_array", values)),
    Entry::rewrite("string_to_table(text, text, text) text", |binder, values| expand(binder, "string_to_array", values)),
];

/// Names of the functions that return rows of one column.
pub(crate) fn is_set_returning(name: &str) -> bool {
    matches!(
        name,
        "unnest"
            | "generate_series"
            | "generate_subscripts"
            | "regexp_matches"
            | "regexp_split_to_table"
            | "string_to_table"
            | "json_array_elements"
            | "json_array_elements_text"
            | "jsonb_array_elements"
            | "jsonb_array_elements_text"
            | "json_object_keys"
            | "jsonb_object_keys"
    )
}

/// Functions that return rows of several columns, and the columns' names.
const OF_SEVERAL_COLUMNS: &[(&[&str], &[&str])] = &[
    (&["json_each", "jsonb_each", "json_each_text", "jsonb_each_text"], &["key", "value"]),
    (&["pg_options_to_table"], &["option_name", "option_value"]),
    (&["pg_partition_tree"], &["relid", "parentrelid", "isleaf", "level"]),
    (&["_pg_expandarray"], &["x", "n"]),
];

/// Typmods from here downwards say whose columns a record has.
const FIRST_RECORD: i32 = -16;

/// The columns of functions that return rows of several.
pub(crate) fn columns_of(name: &str) -> Option<&'static [&'static str]> {
    OF_SEVERAL_COLUMNS.iter().find(|(functions, _)| functions.contains(&name)).map(|(_, columns)| *columns)
}

/// The typmod of the records that such a function returns.
pub(crate) fn modifier_of(name: &str) -> i32 {
    let place = (0..).zip(OF_SEVERAL_COLUMNS).find(|(_, (functions, _))| functions.contains(&name));
    place.map_or(modifier::NONE, |(place, _)| FIRST_RECORD - place)
}

/// The names of a record's fields, if its typmod tells them.
pub(crate) fn names_of(modifier: i32) -> Option<&'static [&'static str]> {
    let place = usize::try_from(FIRST_RECORD.checked_sub(modifier)?).ok()?;
    OF_SEVERAL_COLUMNS.get(place).map(|(_, columns)| *columns)
}

/// A field of a record, by number.
pub(crate) fn record_field(record: Expr, index: usize) -> Expr {
    let function = datafusion_function("get_field").expect("DataFusion has get_field");
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![record, lit(format!("f{}", index + 1))]))
}

/// The elements of a list as rows.
pub(crate) fn rows_of(list: Typed) -> Result<Typed> {
    let SqlType::Array(element) = list.sql_type.clone() else { return Err(PlanError::internal("rows of no list")) };
    Ok(Typed::new(Expr::Unnest(Unnest::new(list.expr)), *element))
}

/// The elements of an array of several dimensions in one.
pub(crate) fn one_dimension(binder: &Binder<'_>, mut list: Typed) -> Result<Typed> {
    while matches!(list.sql_type.element(), Some(SqlType::Array(_))) {
        list = binder.call("array_elements", vec![list], Span::empty())?;
    }
    Ok(list)
}

/// The elements of the list that another function gives.
pub(super) fn expand(binder: &Binder<'_>, name: &str, values: Vec<Typed>) -> Result<Typed> {
    rows_of(binder.call(name, values, Span::empty())?)
}

/// A constant argument of a series as a number: an integer, or microseconds. `None` for NULL, an infinity, and a step that is not always as
/// long: a month, and a day for times that have a zone.
pub(crate) fn number_of(value: &ScalarValue, zoned: bool) -> Option<i64> {
    match value {
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        ScalarValue::TimestampMicrosecond(value, _) => value.filter(|micros| datetime::is_finite(*micros)),
        ScalarValue::IntervalMonthDayNano(Some(step)) => match parts(*step) {
            (0, 0, micros) => Some(micros),
            (0, days, micros) if !zoned => days.checked_mul(MICROS_PER_DAY)?.checked_add(micros),
            _ => None,
        },
        _ => None,
    }
}

/// Values that one call gives at most, over all its rows: they are made as a whole.
const MAX_SERIES: usize = 1 << 25;

fn too_many() -> PlanError {
    PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("a series may have at most {MAX_SERIES} values"))
        .with_hint("Make it in pieces, or read rows from a datagen source.")
}

pub(crate) fn zero_step() -> PlanError {
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

fn list_of<T: ArrowPrimitiveType>(call: &Call<'_>) -> Result<ListBuilder<PrimitiveBuilder<T>>> {
    let DataType::List(field) = call.result else { return Err(PlanError::internal("a list was to be given")) };
    let values = PrimitiveBuilder::<T>::new().with_data_type(field.data_type().clone());
    Ok(ListBuilder::new(values).with_field(Field::clone(field)))
}

fn integers<T: ArrowPrimitiveType>(call: &Call<'_>) -> Result<ArrayRef>
where
    T::Native: Into<i64> + TryFrom<i64>,
{
    let (starts, ends) = (call.values::<T>(0)?, call.values::<T>(1)?);
    let steps = if call.arguments.len() > 2 { Some(call.values::<T>(2)?) } else { None };
    let mut builder = list_of::<T>(call)?;
    for row in 0..call.rows {
        let (Some(start), Some(end)) = (starts.get(row), ends.get(row)) else {
            builder.append(false);
            continue;
        };
        let step: i64 = match &steps {
            None => 1,
            Some(steps) => steps.get(row).map_or(1, Into::into),
        };
        if step == 0 {
            return Err(zero_step());
        }
        let (mut value, end): (i64, i64) = (start.into(), end.into());
        let count = (i128::from(end) - i128::from(value)) / i128::from(step) + 1;
        if count > MAX_SERIES as i128 - builder.values().len() as i128 {
            return Err(too_many());
        }
        while if step > 0 { value <= end } else { value >= end } {
            let Ok(native) = T::Native::try_from(value) else { break };
            builder.values().append_value(native);
            let Some(next) = value.checked_add(step) else { break };
            value = next;
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

fn numerics(call: &Call<'_>) -> Result<ArrayRef> {
    use arrow::datatypes::Decimal256Type;
    let (starts, ends) = (call.decimals(0)?, call.decimals(1)?);
    let steps = if call.arguments.len() > 2 { Some(call.decimals(2)?) } else { None };
    let mut builder = list_of::<Decimal256Type>(call)?;
    for row in 0..call.rows {
        let (Some(mut value), Some(end)) = (starts.get(row), ends.get(row)) else {
            builder.append(false);
            continue;
        };
        let step = steps.as_ref().and_then(|steps| steps.get(row)).unwrap_or(Decimal::from_i128(1, 0));
        if step.is_zero() {
            return Err(zero_step());
        }
        // What has too many values is refused before they are made.
        let far = Decimal::from_i128((MAX_SERIES - builder.values().len()) as i128, 0);
        let far = far.multiply(step, i32::from(crate::types::NUMERIC_FREE_SCALE)).and_then(|way| value.add(way));
        if far.is_ok_and(|far| if step.is_negative() { far.compare(end).is_gt() } else { far.compare(end).is_lt() }) {
            return Err(too_many());
        }
        while if step.is_negative() { value.compare(end).is_ge() } else { value.compare(end).is_le() } {
            builder.values().append_value(value.rescale(i32::from(crate::types::NUMERIC_FREE_SCALE))?.unscaled);
            value = value.add(step)?;
            if builder.values().len() > MAX_SERIES {
                return Err(too_many());
            }
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

fn moments(call: &Call<'_>, zone: Option<&crate::pg_text::Zone>) -> Result<ArrayRef> {
    let (starts, ends) = (call.values::<TimestampMicrosecondType>(0)?, call.values::<TimestampMicrosecondType>(1)?);
    let steps = call.values::<IntervalMonthDayNanoType>(2)?;
    let mut builder = list_of::<TimestampMicrosecondType>(call)?;
    for row in 0..call.rows {
        let (Some(mut value), Some(end), Some(step)) = (starts.get(row), ends.get(row), steps.get(row)) else {
            builder.append(false);
            continue;
        };
        let direction = total_micros(step);
        if direction == 0 || parts(step) == (0, 0, 0) {
            return Err(zero_step());
        }
        // A step is at most so long: what has too many values is refused before they are made.
        let (months, days, micros) = parts(step);
        let day = i128::from(MICROS_PER_DAY) * 25 / 24;
        let longest = (i128::from(months).abs() * 31 + i128::from(days).abs()) * day + i128::from(micros).abs();
        let way = if direction > 0 { i128::from(end) - i128::from(value) } else { i128::from(value) - i128::from(end) };
        if datetime::is_finite(value) && way / longest > (MAX_SERIES - builder.values().len()) as i128 {
            return Err(too_many());
        }
        while datetime::is_finite(value) && if direction > 0 { value <= end } else { value >= end } {
            builder.values().append_value(value);
            value = match zone {
                Some(zone) => datetime::add_to_timestamptz(value, step, 1, zone)?,
                None => datetime::add_to_timestamp(value, step, 1)?,
            };
            if builder.values().len() > MAX_SERIES {
                return Err(too_many());
            }
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

fn subscripts(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, dimensions, firsts) = (call.lists(0)?, call.values::<Int32Type>(1)?, call.values::<Int32Type>(2)?);
    let mut builder = list_of::<Int32Type>(call)?;
    for row in 0..call.rows {
        if let (Some(list), Some(dimension), Some(first)) = (lists.get(row), dimensions.get(row), firsts.get(row)) {
            let size = dimensions::subscripts(&list, dimension).unwrap_or(0);
            (first..first + size as i32).for_each(|place| builder.values().append_value(place));
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

/// A version 4 uuid is 122 random bits and its version.
pub(super) fn random_uuid(call: &Call<'_>) -> Result<ArrayRef> {
    let values = (0..call.rows).map(|_| *uuid::Uuid::new_v4().as_bytes());
    Ok(Arc::new(arrow::array::FixedSizeBinaryArray::try_from_iter(values)?))
}

/// 53 of those bits make a double below 1.
pub(super) fn random(call: &Call<'_>) -> Result<ArrayRef> {
    call.build::<Float64Type>(|_| {
        let bits = uuid::Uuid::new_v4().as_u128();
        let high = (bits & ((1_u128 << 53) - 1)) as u64;
        Ok(Some(high as f64 / (1_u64 << 53) as f64))
    })
}
