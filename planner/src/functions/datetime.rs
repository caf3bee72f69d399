//! Dates and times: arithmetic, truncation, age, time zones.

use arrow::{
    array::ArrayRef,
    datatypes::{
        Date32Type, Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use sqlparser::tokenizer::Span;

use super::{
    clock,
    interval::{of_parts, parts},
    kernel::{Call, Traits},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    pg_text::{
        DATE_INFINITY, DATE_NEGATIVE_INFINITY, MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_INFINITY, TIMESTAMP_NEGATIVE_INFINITY, Zone,
        civil_from_days, days_from_civil, days_in_month, is_date,
    },
    types::SqlType,
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::operator("+(date, integer) date", "date_pli", |call| shift_date(call, 0, 1, 1)),
    Entry::operator("+(integer, date) date", "integer_pl_date", |call| shift_date(call, 1, 0, 1)),
    Entry::operator("-(date, integer) date", "date_mii", |call| shift_date(call, 0, 1, -1)),
    Entry::operator("-(date, date) integer", "date_mi", date_difference),
    Entry::rewrite("+(date, interval) timestamp", |binder, values| with_timestamp(binder, "+", values, 0)),
    Entry::rewrite("-(date, interval) timestamp", |binder, values| with_timestamp(binder, "-", values, 0)),
    Entry::rewrite("+(interval, date) timestamp", swapped),
    Entry::operator("+(date, time) timestamp", "datetime_pl", |call| date_and_time(call, 0, 1)),
    Entry::operator("+(time, date) timestamp", "timedate_pl", |call| date_and_time(call, 1, 0)),
    Entry::operator("+(timestamp, interval) timestamp", "timestamp_pl_interval", |call| shift_timestamp(call, 1)),
    Entry::operator("-(timestamp, interval) timestamp", "timestamp_mi_interval", |call| shift_timestamp(call, -1)),
    Entry::rewrite("+(interval, timestamp) timestamp", swapped),
    Entry::kernel("+(timestamptz, interval) timestamptz", Traits::LOCAL, |call| shift_timestamptz(call, 1))
        .named("timestamptz_pl_interval"),
    Entry::kernel("-(timestamptz, interval) timestamptz", Traits::LOCAL, |call| shift_timestamptz(call, -1))
        .named("timestamptz_mi_interval"),
    Entry::rewrite("+(interval, timestamptz) timestamptz", swapped),
    Entry::operator("-(timestamp, timestamp) interval", "timestamp_mi", timestamp_difference),
    Entry::operator("-(timestamptz, timestamptz) interval", "timestamptz_mi", timestamp_difference),
    Entry::operator("+(time, interval) time", "time_pl_interval", |call| shift_time(call, 1)),
    Entry::operator("-(time, interval) time", "time_mi_interval", |call| shift_time(call, -1)),
    Entry::rewrite("+(interval, time) time", swapped),
    Entry::operator("-(time, time) interval", "time_mi_time", time_difference),
    Entry::strict("age(timestamp, timestamp) interval", age),
    Entry::kernel("age(timestamptz, timestamptz) interval", Traits::LOCAL, age_with_zone),
    Entry::rewrite("age(timestamp) interval", |binder, values| age_of_today(binder, values, &SqlType::Timestamp)),
    Entry::rewrite("age(timestamptz) interval", |binder, values| age_of_today(binder, values, &SqlType::TimestampTz)),
    Entry::strict("date_bin(interval, timestamp, timestamp) timestamp", date_bin),
    Entry::strict("date_bin(interval, timestamptz, timestamptz) timestamptz", date_bin),
    Entry::kernel("timezone(text, timestamp) timestamptz", Traits::STRICT, |call| at_zone(call, to_utc)),
    Entry::kernel("timezone(text, timestamptz) timestamp", Traits::STRICT, |call| at_zone(call, to_local)),
    Entry::kernel("timezone(interval, timestamp) timestamptz", Traits::STRICT, |call| at_offset(call, -1)),
    Entry::kernel("timezone(interval, timestamptz) timestamp", Traits::STRICT, |call| at_offset(call, 1)),
    Entry::strict("to_timestamp(double precision) timestamptz", of_epoch),
    Entry::strict("make_date(integer, integer, integer) date", make_date),
    Entry::strict("make_time(integer, integer, double precision) time", make_time),
    Entry::strict("make_timestamp(integer, integer, integer, integer, integer, double precision) timestamp", make_timestamp),
    Entry::kernel(
        "make_timestamptz(integer, integer, integer, integer, integer, double precision) timestamptz",
        Traits::LOCAL,
        make_timestamptz,
    ),
    Entry::strict("make_timestamptz(integer, integer, integer, integer, integer, double precision, text) timestamptz", make_in_zone),
    Entry::strict("isfinite(date) boolean", |call| {
        let days = call.values::<Date32Type>(0)?;
        call.build_booleans(|row| Ok(days.get(row).map(|days| days != DATE_INFINITY && days != DATE_NEGATIVE_INFINITY)))
    })
    .named("date_isfinite"),
    Entry::strict("isfinite(timestamp) boolean", finite).named("timestamp_isfinite"),
    Entry::strict("isfinite(timestamptz) boolean", finite).named("timestamp_isfinite"),
    Entry::rewrite("now() timestamptz", clock::transaction_time),
    Entry::rewrite("transaction_timestamp() timestamptz", clock::transaction_time),
    Entry::rewrite("current_timestamp() timestamptz", clock::transaction_time),
    Entry::rewrite("current_timestamp(integer) timestamptz", clock::transaction_time),
    Entry::rewrite("statement_timestamp() timestamptz", clock::statement_time),
    Entry::rewrite("clock_timestamp() timestamptz", clock::statement_time),
    Entry::rewrite("current_date() date", |binder, _| clock::transaction_time_as(binder, &SqlType::Date)),
    Entry::rewrite("current_time() time", |binder, _| clock::transaction_time_as(binder, &SqlType::Time)),
    Entry::rewrite("localtime() time", |binder, _| clock::transaction_time_as(binder, &SqlType::Time)),
    Entry::rewrite("localtimestamp() timestamp", |binder, _| clock::transaction_time_as(binder, &SqlType::Timestamp)),
];

pub(super) fn timestamp_out_of_range() -> PlanError {
    PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range")
}

fn date_out_of_range() -> PlanError {
    PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "date out of range")
}

/// Days since 1970 that Postgres' calendar has.
fn checked_date(days: i64) -> Result<i32> {
    i32::try_from(days).ok().filter(|_| is_date(days)).ok_or_else(date_out_of_range)
}

/// Whether a timestamp is neither infinity.
pub(super) fn is_finite(micros: i64) -> bool {
    micros != TIMESTAMP_INFINITY && micros != TIMESTAMP_NEGATIVE_INFINITY
}

/// The instant of a local time; infinities stay.
pub(super) fn to_utc(zone: &Zone, local: i64) -> Result<i64> {
    if is_finite(local) { zone.to_utc(local).filter(|utc| is_finite(*utc)).ok_or_else(timestamp_out_of_range) } else { Ok(local) }
}

/// The local time of an instant; infinities stay.
pub(super) fn to_local(zone: &Zone, utc: i64) -> Result<i64> {
    if is_finite(utc) { zone.to_local(utc).filter(|local| is_finite(*local)).ok_or_else(timestamp_out_of_range) } else { Ok(utc) }
}

pub(super) fn timestamp_of_date(days: i32) -> Result<i64> {
    match days {
        DATE_INFINITY => Ok(TIMESTAMP_INFINITY),
        DATE_NEGATIVE_INFINITY => Ok(TIMESTAMP_NEGATIVE_INFINITY),
        days => i64::from(days)
            .checked_mul(MICROS_PER_DAY)
            .ok_or_else(|| PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp")),
    }
}

pub(super) fn date_of_timestamp(micros: i64) -> Result<i32> {
    match micros {
        TIMESTAMP_INFINITY => Ok(DATE_INFINITY),
        TIMESTAMP_NEGATIVE_INFINITY => Ok(DATE_NEGATIVE_INFINITY),
        micros => i32::try_from(micros.div_euclid(MICROS_PER_DAY)).map_err(|_| date_out_of_range()),
    }
}

fn swapped(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    values.reverse();
    binder.call("+", values, Span::empty())
}

/// An operator with a date, by way of the timestamp of its midnight.
fn with_timestamp(binder: &Binder<'_>, symbol: &str, mut values: Vec<Typed>, date: usize) -> Result<Typed> {
    values[date] = binder.implicit(values[date].clone(), &SqlType::Timestamp)?;
    binder.call(symbol, values, Span::empty())
}

fn shift_date(call: &Call<'_>, date: usize, number: usize, sign: i64) -> Result<ArrayRef> {
    let (dates, numbers) = (call.values::<Date32Type>(date)?, call.values::<Int32Type>(number)?);
    call.build::<Date32Type>(|row| {
        let (Some(days), Some(number)) = (dates.get(row), numbers.get(row)) else { return Ok(None) };
        if days == DATE_INFINITY || days == DATE_NEGATIVE_INFINITY {
            return Ok(Some(days));
        }
        checked_date(i64::from(days) + sign * i64::from(number)).map(Some)
    })
}

fn date_difference(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.values::<Date32Type>(0)?, call.values::<Date32Type>(1)?);
    call.build::<Int32Type>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        let infinite = |days: i32| days == DATE_INFINITY || days == DATE_NEGATIVE_INFINITY;
        if infinite(left) || infinite(right) {
            return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
        }
        left.checked_sub(right).map(Some).ok_or_else(date_out_of_range)
    })
}

fn date_and_time(call: &Call<'_>, date: usize, time: usize) -> Result<ArrayRef> {
    let (dates, times) = (call.values::<Date32Type>(date)?, call.values::<Time64MicrosecondType>(time)?);
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(days), Some(micros)) = (dates.get(row), times.get(row)) else { return Ok(None) };
        let midnight = timestamp_of_date(days)?;
        if is_finite(midnight) { midnight.checked_add(micros).map(Some).ok_or_else(timestamp_out_of_range) } else { Ok(Some(midnight)) }
    })
}

/// Moves a local time by months, keeping the day or taking the last one of a shorter month.
fn add_months(micros: i64, months: i64) -> Result<i64> {
    if months == 0 {
        return Ok(micros);
    }
    let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
    let (year, month, day) = civil_from_days(days);
    let total = year * 12 + i64::from(month) - 1 + months;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
    let day = day.min(days_in_month(year, month));
    let days = days_from_civil(year, month, day);
    days.checked_mul(MICROS_PER_DAY).and_then(|midnight| midnight.checked_add(time)).ok_or_else(timestamp_out_of_range)
}

/// `micros + sign * interval` for a timestamp without time zone.
pub(super) fn add_to_timestamp(micros: i64, interval: IntervalMonthDayNano, sign: i64) -> Result<i64> {
    if !is_finite(micros) {
        return Ok(micros);
    }
    let (months, days, time) = parts(interval);
    let moved = add_months(micros, sign * months)?;
    let moved =
        days.checked_mul(sign * MICROS_PER_DAY).and_then(|days| moved.checked_add(days)).and_then(|moved| moved.checked_add(sign * time));
    moved.filter(|moved| is_finite(*moved)).ok_or_else(timestamp_out_of_range)
}

/// The same for an instant: months and days move the local time, hours the instant.
pub(super) fn add_to_timestamptz(micros: i64, interval: IntervalMonthDayNano, sign: i64, zone: &Zone) -> Result<i64> {
    if !is_finite(micros) {
        return Ok(micros);
    }
    let (months, days, time) = parts(interval);
    let mut moved = micros;
    if months != 0 {
        moved = to_utc(zone, add_months(to_local(zone, moved)?, sign * months)?)?;
    }
    if days != 0 {
        let local = days.checked_mul(sign * MICROS_PER_DAY).and_then(|days| to_local(zone, moved).ok()?.checked_add(days));
        moved = to_utc(zone, local.ok_or_else(timestamp_out_of_range)?)?;
    }
    moved.checked_add(sign * time).filter(|moved| is_finite(*moved)).ok_or_else(timestamp_out_of_range)
}

fn shift_timestamp(call: &Call<'_>, sign: i64) -> Result<ArrayRef> {
    let (moments, intervals) = (call.values::<TimestampMicrosecondType>(0)?, call.values::<IntervalMonthDayNanoType>(1)?);
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(moment), Some(interval)) = (moments.get(row), intervals.get(row)) else { return Ok(None) };
        add_to_timestamp(moment, interval, sign).map(Some)
    })
}

fn shift_timestamptz(call: &Call<'_>, sign: i64) -> Result<ArrayRef> {
    let (moments, intervals) = (call.values::<TimestampMicrosecondType>(0)?, call.values::<IntervalMonthDayNanoType>(1)?);
    let zone = &call.environment().text.time_zone;
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(moment), Some(interval)) = (moments.get(row), intervals.get(row)) else { return Ok(None) };
        add_to_timestamptz(moment, interval, sign, zone).map(Some)
    })
}

/// Days and time; months are never made of days here.
fn timestamp_difference(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.values::<TimestampMicrosecondType>(0)?, call.values::<TimestampMicrosecondType>(1)?);
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        if !is_finite(left) || !is_finite(right) {
            return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite timestamps"));
        }
        let micros = left.checked_sub(right).ok_or_else(timestamp_out_of_range)?;
        of_parts(0, micros / MICROS_PER_DAY, micros % MICROS_PER_DAY).map(Some)
    })
}

fn shift_time(call: &Call<'_>, sign: i64) -> Result<ArrayRef> {
    let (times, intervals) = (call.values::<Time64MicrosecondType>(0)?, call.values::<IntervalMonthDayNanoType>(1)?);
    call.build::<Time64MicrosecondType>(|row| {
        let (Some(time), Some(interval)) = (times.get(row), intervals.get(row)) else { return Ok(None) };
        Ok(Some((time + sign * (interval.nanoseconds / 1_000)).rem_euclid(MICROS_PER_DAY)))
    })
}

fn time_difference(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.values::<Time64MicrosecondType>(0)?, call.values::<Time64MicrosecondType>(1)?);
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        of_parts(0, 0, left - right).map(Some)
    })
}

/// Years, months, days and time between two local times, as a person would count them.
fn age_between(left: i64, right: i64) -> Result<IntervalMonthDayNano> {
    if !is_finite(left) || !is_finite(right) {
        return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "interval out of range"));
    }
    let split = |micros: i64| {
        let (days, time) = (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
        (civil_from_days(days), time)
    };
    let negative = left < right;
    let (later, earlier) = if negative { (right, left) } else { (left, right) };
    let (((later_year, later_month, later_day), later_time), ((year, month, day), time)) = (split(later), split(earlier));
    let mut months = (later_year - year) * 12 + i64::from(later_month) - i64::from(month);
    let mut days = i64::from(later_day) - i64::from(day);
    let mut micros = later_time - time;
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(days_in_month(year, month));
        months -= 1;
    }
    if negative { of_parts(-months, -days, -micros) } else { of_parts(months, days, micros) }
}

fn age(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.values::<TimestampMicrosecondType>(0)?, call.values::<TimestampMicrosecondType>(1)?);
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        age_between(left, right).map(Some)
    })
}

fn age_with_zone(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.values::<TimestampMicrosecondType>(0)?, call.values::<TimestampMicrosecondType>(1)?);
    let zone = &call.environment().text.time_zone;
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        age_between(to_local(zone, left)?, to_local(zone, right)?).map(Some)
    })
}

/// Since midnight of today.
fn age_of_today(binder: &Binder<'_>, mut values: Vec<Typed>, sql_type: &SqlType) -> Result<Typed> {
    let today = binder.implicit(clock::transaction_time_as(binder, &SqlType::Date)?, sql_type)?;
    values.insert(0, today);
    binder.call("age", values, Span::empty())
}

fn date_bin(call: &Call<'_>) -> Result<ArrayRef> {
    let (strides, moments) = (call.values::<IntervalMonthDayNanoType>(0)?, call.values::<TimestampMicrosecondType>(1)?);
    let origins = call.values::<TimestampMicrosecondType>(2)?;
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(stride), Some(moment), Some(origin)) = (strides.get(row), moments.get(row), origins.get(row)) else { return Ok(None) };
        if !is_finite(moment) {
            return Ok(Some(moment));
        }
        if !is_finite(origin) {
            return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "origin out of range"));
        }
        let (months, days, micros) = parts(stride);
        if months != 0 {
            return Err(PlanError::unsupported("timestamps cannot be binned into intervals containing months or years"));
        }
        let stride = days.checked_mul(MICROS_PER_DAY).and_then(|days| days.checked_add(micros)).ok_or_else(timestamp_out_of_range)?;
        if stride <= 0 {
            return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "stride must be greater than zero"));
        }
        let distance = moment.checked_sub(origin).ok_or_else(timestamp_out_of_range)?;
        Ok(Some(origin + distance.div_euclid(stride) * stride))
    })
}

/// The zone of a name.
pub(super) fn zone_of(name: &str) -> Result<Zone> {
    Zone::parse_with_abbreviations(name)
        .ok_or_else(|| PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized")))
}

fn at_zone(call: &Call<'_>, convert: fn(&Zone, i64) -> Result<i64>) -> Result<ArrayRef> {
    let (zones, moments) = (call.texts(0)?, call.values::<TimestampMicrosecondType>(1)?);
    let constant = zones.constant().map(zone_of).transpose()?;
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(name), Some(moment)) = (zones.get(row), moments.get(row)) else { return Ok(None) };
        match &constant {
            Some(zone) => convert(zone, moment).map(Some),
            None => convert(&zone_of(name)?, moment).map(Some),
        }
    })
}

fn at_offset(call: &Call<'_>, sign: i64) -> Result<ArrayRef> {
    let (offsets, moments) = (call.values::<IntervalMonthDayNanoType>(0)?, call.values::<TimestampMicrosecondType>(1)?);
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(offset), Some(moment)) = (offsets.get(row), moments.get(row)) else { return Ok(None) };
        let (months, days, micros) = parts(offset);
        if months != 0 || days != 0 {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "interval time zone must not include months or days"));
        }
        if is_finite(moment) { moment.checked_add(sign * micros).map(Some).ok_or_else(timestamp_out_of_range) } else { Ok(Some(moment)) }
    })
}

fn of_epoch(call: &Call<'_>) -> Result<ArrayRef> {
    let seconds = call.values::<Float64Type>(0)?;
    call.build::<TimestampMicrosecondType>(|row| {
        let Some(seconds) = seconds.get(row) else { return Ok(None) };
        if seconds.is_nan() {
            return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp cannot be NaN"));
        }
        if seconds.is_infinite() {
            return Ok(Some(if seconds > 0.0 { TIMESTAMP_INFINITY } else { TIMESTAMP_NEGATIVE_INFINITY }));
        }
        let micros = (seconds * MICROS_PER_SECOND as f64).round_ties_even();
        if micros.abs() > 9.2e18 { Err(timestamp_out_of_range()) } else { Ok(Some(micros as i64)) }
    })
}

fn day_of(year: i32, month: i32, day: i32) -> Result<i64> {
    let invalid =
        || PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date field value out of range: {year}-{month:02}-{day:02}"));
    // Years before Christ are negative; there is no year 0.
    let civil = match year {
        0 => return Err(invalid()),
        year if year < 0 => i64::from(year) + 1,
        year => i64::from(year),
    };
    let (Ok(month), Ok(day)) = (u32::try_from(month), u32::try_from(day)) else { return Err(invalid()) };
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(civil, month) {
        return Err(invalid());
    }
    Ok(days_from_civil(civil, month, day))
}

fn time_of(hour: i32, minute: i32, second: f64) -> Result<i64> {
    let valid = (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    let micros = (i64::from(hour) * 3_600 + i64::from(minute) * 60) * MICROS_PER_SECOND + (second * 1e6).round_ties_even() as i64;
    if !valid || micros > MICROS_PER_DAY {
        let message = format!("time field value out of range: {hour}:{minute:02}:{second:02}");
        return Err(PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, message));
    }
    Ok(micros)
}

fn make_date(call: &Call<'_>) -> Result<ArrayRef> {
    let (years, months, days) = (call.values::<Int32Type>(0)?, call.values::<Int32Type>(1)?, call.values::<Int32Type>(2)?);
    call.build::<Date32Type>(|row| {
        let (Some(year), Some(month), Some(day)) = (years.get(row), months.get(row), days.get(row)) else { return Ok(None) };
        let found = checked_date(day_of(year, month, day)?);
        found.map(Some).map_err(|error| PlanError::new(error.sqlstate, format!("{}: {year}-{month:02}-{day:02}", error.message)))
    })
}

fn make_time(call: &Call<'_>) -> Result<ArrayRef> {
    let (hours, minutes, seconds) = (call.values::<Int32Type>(0)?, call.values::<Int32Type>(1)?, call.values::<Float64Type>(2)?);
    call.build::<Time64MicrosecondType>(|row| {
        let (Some(hour), Some(minute), Some(second)) = (hours.get(row), minutes.get(row), seconds.get(row)) else { return Ok(None) };
        time_of(hour, minute, second).map(Some)
    })
}

fn local_of(call: &Call<'_>) -> Result<Vec<Option<i64>>> {
    let integers = (0..5).map(|index| call.values::<Int32Type>(index)).collect::<Result<Vec<_>>>()?;
    let seconds = call.values::<Float64Type>(5)?;
    let local = |row: usize| {
        let mut numbers = [0; 5];
        for (number, column) in numbers.iter_mut().zip(&integers) {
            let Some(value) = column.get(row) else { return Ok(None) };
            *number = value;
        }
        let Some(second) = seconds.get(row) else { return Ok(None) };
        let midnight = day_of(numbers[0], numbers[1], numbers[2])?.checked_mul(MICROS_PER_DAY).ok_or_else(timestamp_out_of_range)?;
        Ok(Some(midnight + time_of(numbers[3], numbers[4], second)?))
    };
    (0..call.rows).map(local).collect()
}

fn make_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let locals = local_of(call)?;
    call.build::<TimestampMicrosecondType>(|row| Ok(locals[row]))
}

fn make_timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let (locals, zone) = (local_of(call)?, &call.environment().text.time_zone);
    call.build::<TimestampMicrosecondType>(|row| locals[row].map(|local| to_utc(zone, local)).transpose())
}

fn make_in_zone(call: &Call<'_>) -> Result<ArrayRef> {
    let (locals, zones) = (local_of(call)?, call.texts(6)?);
    call.build::<TimestampMicrosecondType>(|row| match (locals[row], zones.get(row)) {
        (Some(local), Some(zone)) => to_utc(&zone_of(zone)?, local).map(Some),
        _ => Ok(None),
    })
}

fn finite(call: &Call<'_>) -> Result<ArrayRef> {
    let moments = call.values::<TimestampMicrosecondType>(0)?;
    call.build_booleans(|row| Ok(moments.get(row).map(is_finite)))
}
