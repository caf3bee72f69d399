//! Intervals: months, days and time apart, compared as if a month had 30 days and a day 24 hours.

use arrow::{
    array::ArrayRef,
    datatypes::{Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType},
};

use super::{
    arithmetic::same,
    kernel::{Call, Kernel},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    pg_text::{MICROS_PER_DAY, MICROS_PER_SECOND},
    types::SqlType,
};

/// Name of the kernel that gives the normal form.
pub(super) const NORMAL_FORM: &str = "interval_normal_form";
const DAYS_PER_MONTH: i64 = 30;
const SECONDS_PER_DAY: f64 = 86_400.0;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::operator("+(interval, interval) interval", "interval_pl", |call| combine(call, 1)),
    Entry::operator("-(interval, interval) interval", "interval_mi", |call| combine(call, -1)),
    Entry::operator("-(interval) interval", "interval_um", negate),
    Entry::rewrite("+(interval) interval", |_, values| same(values)),
    Entry::operator("*(interval, double precision) interval", "interval_mul", |call| scale(call, 0, 1, false)),
    Entry::operator("*(double precision, interval) interval", "mul_d_interval", |call| scale(call, 1, 0, false)),
    Entry::operator("/(interval, double precision) interval", "interval_div", |call| scale(call, 0, 1, true)),
    Entry::strict("justify_hours(interval) interval", |call| each(call, |value| justify(value, false, true))),
    Entry::strict("justify_days(interval) interval", |call| each(call, |value| justify(value, true, false))),
    Entry::strict("justify_interval(interval) interval", |call| each(call, |value| justify(value, true, true))),
    Entry::strict("make_interval() interval", make),
    Entry::strict("make_interval(integer) interval", make),
    Entry::strict("make_interval(integer, integer) interval", make),
    Entry::strict("make_interval(integer, integer, integer) interval", make),
    Entry::strict("make_interval(integer, integer, integer, integer) interval", make),
    Entry::strict("make_interval(integer, integer, integer, integer, integer) interval", make),
    Entry::strict("make_interval(integer, integer, integer, integer, integer, integer) interval", make),
    Entry::strict("make_interval(integer, integer, integer, integer, integer, integer, double precision) interval", make),
    Entry::strict("isfinite(interval) boolean", |call| {
        let values = call.values::<IntervalMonthDayNanoType>(0)?;
        call.build_booleans(|row| Ok(values.get(row).map(|_| true)))
    })
    .named("interval_isfinite"),
];

fn out_of_range() -> PlanError {
    PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

/// Months, days and microseconds.
pub(super) fn parts(value: IntervalMonthDayNano) -> (i64, i64, i64) {
    (i64::from(value.months), i64::from(value.days), value.nanoseconds / 1_000)
}

/// An interval of months, days and microseconds.
pub(super) fn of_parts(months: i64, days: i64, micros: i64) -> Result<IntervalMonthDayNano> {
    let (Ok(months), Ok(days), Some(nanos)) = (i32::try_from(months), i32::try_from(days), micros.checked_mul(1_000)) else {
        return Err(out_of_range());
    };
    Ok(IntervalMonthDayNano::new(months, days, nanos))
}

/// The microseconds an interval stands for when it is compared.
pub(super) fn total_micros(value: IntervalMonthDayNano) -> i128 {
    let (months, days, micros) = parts(value);
    i128::from(months * DAYS_PER_MONTH + days) * i128::from(MICROS_PER_DAY) + i128::from(micros)
}

/// The one form of all intervals that are equal: whole months, then whole days, then time, all of one sign. Its parts, compared one after
/// the other, order as the intervals do.
pub(super) fn normal(value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let total = total_micros(value);
    let day = i128::from(MICROS_PER_DAY);
    let (days, micros) = (total / day, total % day);
    let (months, days) = (days / i128::from(DAYS_PER_MONTH), days % i128::from(DAYS_PER_MONTH));
    of_parts(months as i64, days as i64, micros as i64)
}

pub(super) fn normal_form(binder: &Binder<'_>, value: Typed) -> Typed {
    let arrow = SqlType::Interval.arrow();
    let kernel = Kernel::strict(NORMAL_FORM, |call| each(call, normal));
    Typed::new(kernel.call(vec![value.expr], vec![arrow.clone()], arrow, &binder.environment), SqlType::Interval)
}

fn each(call: &Call<'_>, change: impl Fn(IntervalMonthDayNano) -> Result<IntervalMonthDayNano>) -> Result<ArrayRef> {
    let values = call.values::<IntervalMonthDayNanoType>(0)?;
    call.build::<IntervalMonthDayNanoType>(|row| values.get(row).map(&change).transpose())
}

fn combine(call: &Call<'_>, sign: i64) -> Result<ArrayRef> {
    let (left, right) = (call.values::<IntervalMonthDayNanoType>(0)?, call.values::<IntervalMonthDayNanoType>(1)?);
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        add(left, right, sign).map(Some)
    })
}

/// `left + sign * right`, part by part.
pub(super) fn add(left: IntervalMonthDayNano, right: IntervalMonthDayNano, sign: i64) -> Result<IntervalMonthDayNano> {
    let ((months, days, micros), (more_months, more_days, more_micros)) = (parts(left), parts(right));
    let micros = more_micros.checked_mul(sign).and_then(|more| micros.checked_add(more)).ok_or_else(out_of_range)?;
    of_parts(months + sign * more_months, days + sign * more_days, micros)
}

fn negate(call: &Call<'_>) -> Result<ArrayRef> {
    each(call, |value| add(IntervalMonthDayNano::new(0, 0, 0), value, -1))
}

/// Rounds to microseconds, as Postgres does between the steps of a product.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round_ties_even() / 1e6
}

fn scale(call: &Call<'_>, interval: usize, factor: usize, divide: bool) -> Result<ArrayRef> {
    let (intervals, factors) = (call.values::<IntervalMonthDayNanoType>(interval)?, call.values::<Float64Type>(factor)?);
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(value), Some(factor)) = (intervals.get(row), factors.get(row)) else { return Ok(None) };
        if divide && factor == 0.0 {
            return Err(super::decimal::division_by_zero());
        }
        multiply(value, factor, divide).map(Some)
    })
}

/// What is left of a month becomes days of 30, what is left of a day becomes time.
pub(super) fn multiply(value: IntervalMonthDayNano, factor: f64, divide: bool) -> Result<IntervalMonthDayNano> {
    let apply = |number: f64| if divide { number / factor } else { number * factor };
    let (months, days, micros) = parts(value);
    let exact_months = apply(months as f64);
    let exact_days = apply(days as f64);
    if !exact_months.is_finite() || !exact_days.is_finite() || exact_months.abs() > 2e9 || exact_days.abs() > 2e9 {
        return Err(out_of_range());
    }
    let (whole_months, mut whole_days) = (exact_months.trunc(), exact_days.trunc());
    let month_rest = rounded((exact_months - whole_months) * DAYS_PER_MONTH as f64);
    let mut seconds = rounded((exact_days - whole_days + month_rest - month_rest.trunc()) * SECONDS_PER_DAY);
    if seconds.abs() >= SECONDS_PER_DAY {
        let more = (seconds / SECONDS_PER_DAY).trunc();
        whole_days += more;
        seconds -= more * SECONDS_PER_DAY;
    }
    whole_days += month_rest.trunc();
    let time = (apply(micros as f64) + seconds * MICROS_PER_SECOND as f64).round_ties_even();
    if !time.is_finite() || time.abs() > 9.2e15 {
        return Err(out_of_range());
    }
    of_parts(whole_months as i64, whole_days as i64, time as i64)
}

/// Days of 24 hours become days, 30 days become months, with one sign for all.
fn justify(value: IntervalMonthDayNano, days_to_months: bool, hours_to_days: bool) -> Result<IntervalMonthDayNano> {
    let (mut months, mut days, mut micros) = parts(value);
    if hours_to_days {
        days += micros / MICROS_PER_DAY;
        micros %= MICROS_PER_DAY;
    }
    if days_to_months {
        months += days / DAYS_PER_MONTH;
        days %= DAYS_PER_MONTH;
        if months > 0 && (days < 0 || (days == 0 && micros < 0 && hours_to_days)) {
            days += DAYS_PER_MONTH;
            months -= 1;
        } else if months < 0 && (days > 0 || (days == 0 && micros > 0 && hours_to_days)) {
            days -= DAYS_PER_MONTH;
            months += 1;
        }
    }
    if hours_to_days {
        if days > 0 && micros < 0 {
            micros += MICROS_PER_DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= MICROS_PER_DAY;
            days += 1;
        }
    }
    of_parts(months, days, micros)
}

/// Years, months, weeks, days, hours, minutes, seconds; those that are not given are 0.
fn make(call: &Call<'_>) -> Result<ArrayRef> {
    let integers = (0..call.arguments.len().min(6)).map(|index| call.values::<Int32Type>(index)).collect::<Result<Vec<_>>>()?;
    let seconds = if call.arguments.len() > 6 { Some(call.values::<Float64Type>(6)?) } else { None };
    call.build::<IntervalMonthDayNanoType>(|row| {
        let mut numbers = [0_i64; 6];
        for (number, column) in numbers.iter_mut().zip(&integers) {
            let Some(value) = column.get(row) else { return Ok(None) };
            *number = i64::from(value);
        }
        let seconds = match &seconds {
            None => 0.0,
            Some(column) => match column.get(row) {
                Some(value) => value,
                None => return Ok(None),
            },
        };
        let [years, months, weeks, days, hours, minutes] = numbers;
        let micros = (hours * 3_600 + minutes * 60) * MICROS_PER_SECOND + (seconds * MICROS_PER_SECOND as f64).round_ties_even() as i64;
        of_parts(years * 12 + months, weeks * 7 + days, micros).map(Some)
    })
}
