//! `coalesce`, `nullif`, `greatest`, `least` and `num_nulls`.

use datafusion::logical_expr::{Case, Expr, lit};
use sqlparser::tokenizer::Span;

use super::{comparison, signature::Entry};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    types::SqlType,
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("coalesce(anycompatible, variadic anycompatible) anycompatible", coalesce),
    Entry::rewrite("nullif(any, any) anyelement", nullif),
    Entry::rewrite("greatest(anycompatible, variadic anycompatible) anycompatible", |binder, values| extreme(binder, ">", values)),
    Entry::rewrite("least(anycompatible, variadic anycompatible) anycompatible", |binder, values| extreme(binder, "<", values)),
    Entry::rewrite("num_nulls(variadic any) integer", |binder, values| count_nulls(binder, values, true)),
    Entry::rewrite("num_nonnulls(variadic any) integer", |binder, values| count_nulls(binder, values, false)),
];

/// `CASE WHEN condition THEN result .. ELSE otherwise END`
pub(super) fn case(branches: Vec<(Expr, Expr)>, otherwise: Option<Expr>) -> Expr {
    let branches = branches.into_iter().map(|(condition, result)| (Box::new(condition), Box::new(result))).collect();
    Expr::Case(Case::new(None, branches, otherwise.map(Box::new)))
}

fn coalesce(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    let last = values.pop().ok_or_else(|| PlanError::internal("coalesce without arguments"))?;
    if values.is_empty() {
        return Ok(last);
    }
    let sql_type = last.sql_type.clone();
    let modifier = if values.iter().all(|value| value.modifier == last.modifier) { last.modifier } else { crate::types::modifier::NONE };
    let branch = |value: Typed| Ok((binder.repeat(&value)?.expr.is_not_null(), value.expr));
    let branches = values.into_iter().map(branch).collect::<Result<_>>()?;
    Ok(Typed::new(case(branches, Some(last.expr)), sql_type).with_modifier(modifier))
}

/// The first value, unless it equals the second one. Its type is the first one's, or what Postgres' operator `=` of the two takes there.
fn nullif(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let [left, right] = comparison::pair(values)?;
    let left = match compared_as(&left.sql_type, &right.sql_type) {
        Some(sql_type) => binder.implicit(left, &sql_type)?,
        None => left,
    };
    let equal = binder.call("=", vec![binder.repeat(&left)?, right], Span::empty())?;
    let null = Typed::null(left.sql_type.clone());
    Ok(Typed::new(case(vec![(equal.expr, null.expr)], Some(left.expr)), left.sql_type))
}

/// The type in which the first value is compared with the second, if it is not its own.
fn compared_as(left: &SqlType, right: &SqlType) -> Option<SqlType> {
    let is_integer = matches!(left, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    match (left, right) {
        (SqlType::Unknown, SqlType::Unknown) => Some(SqlType::Text),
        (SqlType::Unknown, right) => Some(right.clone()),
        (_, SqlType::Real | SqlType::Double) if is_integer || matches!(left, SqlType::Numeric(..)) => Some(SqlType::Double),
        (_, SqlType::Numeric(..)) if is_integer => Some(SqlType::NUMERIC),
        _ => None,
    }
}

/// The largest or smallest of the values that are not NULL: that of the first half or that of the second, as each is repeated.
fn extreme(binder: &Binder<'_>, symbol: &str, mut values: Vec<Typed>) -> Result<Typed> {
    let second = values.split_off(values.len().div_ceil(2));
    let first = match values.len() {
        0 => return Err(PlanError::internal("greatest without arguments")),
        1 => values.swap_remove(0),
        _ => extreme(binder, symbol, values)?,
    };
    if second.is_empty() {
        return Ok(first);
    }
    let second = extreme(binder, symbol, second)?;
    let better = binder.call(symbol, vec![binder.repeat(&second)?, binder.repeat(&first)?], Span::empty())?;
    let takes = better.expr.or(binder.repeat(&first)?.expr.is_null());
    // A NULL among the later values is passed over.
    let takes = binder.repeat(&second)?.expr.is_not_null().and(takes);
    Ok(Typed::new(case(vec![(takes, second.expr)], Some(first.expr)), first.sql_type))
}

fn count_nulls(binder: &Binder<'_>, values: Vec<Typed>, nulls: bool) -> Result<Typed> {
    let mut total = Typed::integer(0);
    for value in values {
        let test = if nulls { value.expr.is_null() } else { value.expr.is_not_null() };
        let one = Typed::new(case(vec![(test, lit(1_i32))], Some(lit(0_i32))), SqlType::Integer);
        total = binder.call("+", vec![total, one], Span::empty())?;
    }
    Ok(total)
}
