//! Dates, times and intervals to each other.

use arrow::{
    array::ArrayRef,
    datatypes::{Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType},
};
use datafusion::common::ScalarValue;
use sqlparser::ast::DateTimeField;

use super::{
    super::{
        datetime,
        kernel::{Call, Evaluate, Traits},
    },
    Conversion,
};
use crate::{
    bind::Binder,
    error::{PlanError, Result, sqlstate},
    pg_text::{self, IntervalUnit, MICROS_PER_DAY},
    types::SqlType,
};

pub(super) fn find(from: &SqlType, to: &SqlType) -> Option<Conversion> {
    use SqlType as T;
    let (name, traits, evaluate): (_, _, Evaluate) = match (from, to) {
        (T::Date, T::Timestamp) => ("timestamp", Traits::STRICT, date_to_timestamp),
        (T::Date, T::TimestampTz) => ("timestamptz", Traits::LOCAL, date_to_timestamptz),
        (T::Timestamp, T::Date) => ("date", Traits::STRICT, timestamp_to_date),
        (T::TimestampTz, T::Date) => ("date", Traits::LOCAL, timestamptz_to_date),
        (T::Timestamp, T::TimestampTz) => ("timestamptz", Traits::LOCAL, timestamp_to_timestamptz),
        (T::TimestampTz, T::Timestamp) => ("timestamp", Traits::LOCAL, timestamptz_to_timestamp),
        (T::Timestamp, T::Time) => ("time", Traits::STRICT, timestamp_to_time),
        (T::TimestampTz, T::Time) => ("time", Traits::LOCAL, timestamptz_to_time),
        (T::Time, T::Interval) => ("interval", Traits::STRICT, time_to_interval),
        (T::Interval, T::Time) => ("time", Traits::STRICT, interval_to_time),
        _ => return None,
    };
    Some(Conversion::Code(name, traits, evaluate))
}

fn date_to_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let days = call.values::<Date32Type>(0)?;
    call.build::<TimestampMicrosecondType>(|row| days.get(row).map(datetime::timestamp_of_date).transpose())
}

fn date_to_timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let (days, zone) = (call.values::<Date32Type>(0)?, &call.environment().text.time_zone);
    call.build::<TimestampMicrosecondType>(|row| {
        let local = days.get(row).map(datetime::timestamp_of_date).transpose()?;
        local.map(|local| datetime::to_utc(zone, local)).transpose()
    })
}

fn timestamp_to_date(call: &Call<'_>) -> Result<ArrayRef> {
    let moments = call.values::<TimestampMicrosecondType>(0)?;
    call.build::<Date32Type>(|row| moments.get(row).map(datetime::date_of_timestamp).transpose())
}

fn timestamptz_to_date(call: &Call<'_>) -> Result<ArrayRef> {
    let (moments, zone) = (call.values::<TimestampMicrosecondType>(0)?, &call.environment().text.time_zone);
    call.build::<Date32Type>(|row| {
        let local = moments.get(row).map(|moment| datetime::to_local(zone, moment)).transpose()?;
        local.map(datetime::date_of_timestamp).transpose()
    })
}

fn timestamp_to_timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let (moments, zone) = (call.values::<TimestampMicrosecondType>(0)?, &call.environment().text.time_zone);
    call.build::<TimestampMicrosecondType>(|row| moments.get(row).map(|moment| datetime::to_utc(zone, moment)).transpose())
}

fn timestamptz_to_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let (moments, zone) = (call.values::<TimestampMicrosecondType>(0)?, &call.environment().text.time_zone);
    call.build::<TimestampMicrosecondType>(|row| moments.get(row).map(|moment| datetime::to_local(zone, moment)).transpose())
}

fn timestamp_to_time(call: &Call<'_>) -> Result<ArrayRef> {
    let moments = call.values::<TimestampMicrosecondType>(0)?;
    call.build::<Time64MicrosecondType>(|row| {
        Ok(moments.get(row).filter(|moment| datetime::is_finite(*moment)).map(|moment| moment.rem_euclid(MICROS_PER_DAY)))
    })
}

fn timestamptz_to_time(call: &Call<'_>) -> Result<ArrayRef> {
    let (moments, zone) = (call.values::<TimestampMicrosecondType>(0)?, &call.environment().text.time_zone);
    call.build::<Time64MicrosecondType>(|row| {
        let finite = moments.get(row).filter(|moment| datetime::is_finite(*moment));
        Ok(finite.map(|moment| datetime::to_local(zone, moment)).transpose()?.map(|local| local.rem_euclid(MICROS_PER_DAY)))
    })
}

fn time_to_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let times = call.values::<Time64MicrosecondType>(0)?;
    call.build::<IntervalMonthDayNanoType>(|row| Ok(times.get(row).map(|micros| IntervalMonthDayNano::new(0, 0, micros * 1_000))))
}

fn interval_to_time(call: &Call<'_>) -> Result<ArrayRef> {
    let intervals = call.values::<IntervalMonthDayNanoType>(0)?;
    call.build::<Time64MicrosecondType>(|row| {
        Ok(intervals.get(row).map(|interval| (interval.nanoseconds / 1_000).rem_euclid(MICROS_PER_DAY)))
    })
}

/// The value of `INTERVAL '1-2' YEAR TO MONTH`: bare numbers count in the last field, what is finer than that is cut off.
pub(crate) fn read_interval_with_fields(
    binder: &Binder<'_>,
    text: &str,
    leading: Option<&DateTimeField>,
    last: Option<&DateTimeField>,
) -> Result<ScalarValue> {
    let field = last.or(leading).ok_or_else(|| PlanError::internal("an interval literal without fields"))?;
    let name = field.to_string().to_lowercase();
    let name = name.strip_suffix('s').unwrap_or(&name);
    let invalid = || PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{field}\""));
    let unit = IntervalUnit::parse(name).ok_or_else(invalid)?;
    let minutes = matches!((leading, last), (Some(DateTimeField::Minute | DateTimeField::Minutes), Some(_)));
    let clock = if minutes { with_hours(text) } else { text.to_owned() };
    let mut interval = pg_text::parse_interval_with_unit(&clock, unit, &binder.environment.text)?;
    const MINUTE: i64 = 60_000_000_000;
    match name {
        "year" => interval = IntervalMonthDayNano::new(interval.months / 12 * 12, 0, 0),
        "month" => interval = IntervalMonthDayNano::new(interval.months, 0, 0),
        "day" => interval.nanoseconds = 0,
        "hour" => interval.nanoseconds -= interval.nanoseconds % (60 * MINUTE),
        "minute" => interval.nanoseconds -= interval.nanoseconds % MINUTE,
        _ => {}
    }
    Ok(ScalarValue::IntervalMonthDayNano(Some(interval)))
}

/// An interval's text of minutes and seconds, in which `12:34` has no hours, with hours.
fn with_hours(text: &str) -> String {
    let part = |part: &str| {
        let digits = part.trim_start_matches(['+', '-']);
        let sign = &part[..part.len() - digits.len()];
        if digits.matches(':').count() == 1 { format!("{sign}0:{digits}") } else { part.to_owned() }
    };
    text.split_whitespace().map(part).collect::<Vec<_>>().join(" ")
}
