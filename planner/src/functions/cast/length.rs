//! Declared lengths: `varchar(n)`, `char(n)`, `timestamp(p)`.

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType},
};
use datafusion::{
    common::ScalarValue,
    logical_expr::{ColumnarValue, Expr, lit},
};

use super::super::kernel::{Call, Evaluate, Kernel, Traits};
use crate::{
    bind::Binder,
    error::{PlanError, Result, sqlstate},
    types::{SqlType, modifier},
};

/// The value as a declared length wants it: cut if that is asked for, otherwise checked.
///
/// # Errors
/// 22001 for a constant that is too long.
pub(crate) fn fit(binder: &Binder<'_>, expr: Expr, sql_type: &SqlType, declared: i32, explicit: bool) -> Result<Expr> {
    let (name, evaluate, parameter): (_, Evaluate, u32) = match sql_type {
        SqlType::Varchar | SqlType::Char => {
            let Some(length) = modifier::length(declared) else { return Ok(expr) };
            match (sql_type, explicit) {
                (SqlType::Varchar, true) => ("varchar_cut", cut, length),
                (SqlType::Varchar, false) => ("varchar_check", check, length),
                (_, true) => ("bpchar_cut", pad_cut, length),
                (_, false) => ("bpchar_check", pad_check, length),
            }
        }
        SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => {
            let Some(digits) = modifier::fraction_digits(declared).filter(|digits| *digits < 6) else { return Ok(expr) };
            ("round_fraction", round_fraction, digits)
        }
        SqlType::Array(element) if matches!(**element, SqlType::Varchar | SqlType::Char) => return Ok(expr),
        _ => return Ok(expr),
    };
    let length = lit(i32::try_from(parameter).unwrap_or(i32::MAX));
    if let Expr::Literal(value, _) = &expr {
        if value.is_null() {
            return Ok(expr);
        }
        let arguments = [ColumnarValue::Scalar(value.clone()), ColumnarValue::Scalar(ScalarValue::Int32(Some(parameter as i32)))];
        let result = sql_type.arrow();
        let array = evaluate(&Call::new(&arguments, 1, &result, None))?;
        return Ok(Expr::Literal(ScalarValue::try_from_array(&array, 0)?, None));
    }
    let arrow = sql_type.arrow();
    let kernel = Kernel { name, operator: None, evaluate, traits: Traits::STRICT };
    Ok(kernel.call(vec![expr, length], vec![arrow.clone(), DataType::Int32], arrow, &binder.environment))
}

/// The byte at which a text has had so many characters.
fn byte_at(text: &str, characters: usize) -> usize {
    if text.len() <= characters {
        return text.len();
    }
    text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at)
}

fn limit(call: &Call<'_>) -> Result<usize> {
    let length = call.values::<Int32Type>(1)?;
    Ok(usize::try_from(length.get(0).unwrap_or(0)).unwrap_or(0))
}

/// The blanks that fill up a `char(n)` mean nothing, and do not go with it into another type of text.
pub(super) fn without_blanks(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build_texts(|row| Ok(texts.get(row).map(|text| text.trim_end_matches(' '))))
}

/// What fits into a `"char"`.
pub(super) fn first_character(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build_texts(|row| Ok(texts.get(row).map(|text| &text[..byte_at(text, 1)])))
}

fn too_long(name: &str, limit: usize) -> PlanError {
    PlanError::new(sqlstate::STRING_DATA_RIGHT_TRUNCATION, format!("value too long for type {name}({limit})"))
}

fn cut(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, limit) = (call.texts(0)?, limit(call)?);
    call.build_texts(|row| Ok(texts.get(row).map(|text| &text[..byte_at(text, limit)])))
}

/// Blanks beyond the length are cut off; anything else there is an error.
fn check(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, limit) = (call.texts(0)?, limit(call)?);
    call.build_texts(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        let (kept, rest) = text.split_at(byte_at(text, limit));
        if rest.bytes().all(|byte| byte == b' ') { Ok(Some(kept)) } else { Err(too_long("character varying", limit)) }
    })
}

fn padded(text: &str, limit: usize) -> String {
    let missing = limit.saturating_sub(text.chars().count());
    let mut padded = String::with_capacity(text.len() + missing);
    padded.push_str(text);
    padded.extend(std::iter::repeat_n(' ', missing));
    padded
}

fn pad_cut(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, limit) = (call.texts(0)?, limit(call)?);
    call.build_texts(|row| Ok(texts.get(row).map(|text| padded(&text[..byte_at(text, limit)], limit))))
}

fn pad_check(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, limit) = (call.texts(0)?, limit(call)?);
    call.build_texts(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        let (kept, rest) = text.split_at(byte_at(text, limit));
        if rest.bytes().all(|byte| byte == b' ') { Ok(Some(padded(kept, limit))) } else { Err(too_long("character", limit)) }
    })
}

/// Rounds microseconds to so many digits, halves away from zero.
fn rounded(micros: i64, digits: u32) -> i64 {
    let step = 10_i64.pow(6 - digits.min(6));
    let half = if micros < 0 { -(step / 2) } else { step / 2 };
    micros.checked_add(half).map_or(micros, |micros| micros / step * step)
}

fn round_fraction(call: &Call<'_>) -> Result<ArrayRef> {
    let digits = u32::try_from(limit(call)?).unwrap_or(6);
    match call.argument_type(0) {
        DataType::Time64(_) => {
            let values = call.values::<Time64MicrosecondType>(0)?;
            call.build::<Time64MicrosecondType>(|row| Ok(values.get(row).map(|micros| rounded(micros, digits))))
        }
        DataType::Timestamp(..) => {
            let values = call.values::<TimestampMicrosecondType>(0)?;
            let round = |micros: i64| if super::super::datetime::is_finite(micros) { rounded(micros, digits) } else { micros };
            call.build::<TimestampMicrosecondType>(|row| Ok(values.get(row).map(round)))
        }
        _ => {
            let values = call.values::<IntervalMonthDayNanoType>(0)?;
            let round = |interval: IntervalMonthDayNano| {
                IntervalMonthDayNano::new(interval.months, interval.days, rounded(interval.nanoseconds / 1_000, digits) * 1_000)
            };
            call.build::<IntervalMonthDayNanoType>(|row| Ok(values.get(row).map(round)))
        }
    }
}
