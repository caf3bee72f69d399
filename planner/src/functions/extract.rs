//! EXTRACT, `date_part` and `date_trunc`.

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType},
};
use sqlparser::tokenizer::Span;

use super::{
    datetime::{is_finite, to_local, to_utc, zone_of},
    decimal::Decimal,
    interval::{of_parts, parts},
    kernel::{Call, Kernel, Traits},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    pg_text::{MICROS_PER_DAY, MICROS_PER_SECOND, Zone, civil_from_days, days_from_civil},
    types::{SqlType, coercion::CoercionContext},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("extract(text, date) numeric", |binder, values| extract(binder, values, SqlType::Date)),
    Entry::rewrite("extract(text, time) numeric", |binder, values| extract(binder, values, SqlType::Time)),
    Entry::rewrite("extract(text, timestamp) numeric", |binder, values| extract(binder, values, SqlType::Timestamp)),
    Entry::rewrite("extract(text, timestamptz) numeric", |binder, values| extract(binder, values, SqlType::TimestampTz)),
    Entry::rewrite("extract(text, interval) numeric", |binder, values| extract(binder, values, SqlType::Interval)),
    Entry::rewrite("date_part(text, date) double precision", |binder, values| date_part(binder, values, SqlType::Date)),
    Entry::rewrite("date_part(text, time) double precision", |binder, values| date_part(binder, values, SqlType::Time)),
    Entry::rewrite("date_part(text, timestamp) double precision", |binder, values| date_part(binder, values, SqlType::Timestamp)),
    Entry::rewrite("date_part(text, timestamptz) double precision", |binder, values| date_part(binder, values, SqlType::TimestampTz)),
    Entry::rewrite("date_part(text, interval) double precision", |binder, values| date_part(binder, values, SqlType::Interval)),
    Entry::strict("date_trunc(text, timestamp) timestamp", truncate_timestamp),
    Entry::kernel("date_trunc(text, timestamptz) timestamptz", Traits::LOCAL, truncate_timestamptz),
    Entry::strict("date_trunc(text, timestamptz, text) timestamptz", truncate_in_zone),
    Entry::strict("date_trunc(text, interval) interval", truncate_interval),
];

/// A part of a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    Dow,
    Isodow,
    Doy,
    Isoyear,
    Julian,
    Epoch,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

impl Field {
    fn parse(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Self::Microseconds,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Self::Milliseconds,
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Second,
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Minute,
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Hour,
            "day" | "days" | "d" => Self::Day,
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "quarter" | "qtr" => Self::Quarter,
            "year" | "years" | "yr" | "yrs" | "y" => Self::Year,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "century" | "centuries" | "cent" | "c" => Self::Century,
            "millennium" | "millennia" | "millenium" | "mil" | "mils" => Self::Millennium,
            "dow" => Self::Dow,
            "isodow" => Self::Isodow,
            "doy" => Self::Doy,
            "isoyear" => Self::Isoyear,
            "julian" => Self::Julian,
            "epoch" => Self::Epoch,
            "timezone" => Self::Timezone,
            "timezone_h" | "timezone_hour" => Self::TimezoneHour,
            "timezone_m" | "timezone_minute" => Self::TimezoneMinute,
            _ => return None,
        })
    }

    /// The digits of its values.
    fn result(self, source: &SqlType) -> SqlType {
        match self {
            Self::Second => SqlType::Numeric(8, 6),
            Self::Milliseconds => SqlType::Numeric(8, 3),
            Self::Epoch if *source == SqlType::Date => SqlType::Numeric(18, 0),
            Self::Epoch => SqlType::Numeric(20, 6),
            Self::Julian if *source != SqlType::Date => SqlType::NUMERIC,
            _ => SqlType::Numeric(10, 0),
        }
    }
}

fn unrecognized(field: &str, sql_type: &SqlType) -> PlanError {
    let message = format!("unit \"{field}\" not recognized for type {}", sql_type.name());
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
}

fn unsupported(field: &str, sql_type: &SqlType) -> PlanError {
    PlanError::unsupported(format!("unit \"{field}\" not supported for type {}", sql_type.name()))
}

/// The value of a field, which has to be a constant: it decides the digits of the result.
fn extract(binder: &Binder<'_>, mut values: Vec<Typed>, source: SqlType) -> Result<Typed> {
    let Some(name) = values[0].constant_text().map(str::to_owned) else {
        return Err(PlanError::unsupported("extract with a field that is no constant is not supported"));
    };
    let field = Field::parse(&name).ok_or_else(|| unrecognized(&name, &source))?;
    check(field, &name, &source)?;
    let result = field.result(&source);
    let value = values.swap_remove(1);
    let evaluate = match source {
        SqlType::Date => of_date,
        SqlType::Time => of_time,
        SqlType::Timestamp => of_timestamp,
        SqlType::TimestampTz => of_timestamptz,
        _ => of_interval,
    };
    let traits = if source == SqlType::TimestampTz { Traits::LOCAL } else { Traits::STRICT };
    let kernel = Kernel { name: "extract", operator: None, evaluate, traits };
    let arguments = vec![Typed::text(&name).expr, value.expr];
    let types = vec![DataType::Utf8View, source.arrow()];
    Ok(Typed::new(kernel.call(arguments, types, result.arrow(), &binder.environment), result))
}

fn date_part(binder: &Binder<'_>, values: Vec<Typed>, source: SqlType) -> Result<Typed> {
    let value = extract(binder, values, source)?;
    binder.coerce(value, &SqlType::Double, CoercionContext::Explicit, Span::empty())
}

/// Which types have which fields.
fn check(field: Field, name: &str, source: &SqlType) -> Result<()> {
    use Field as F;
    let time = matches!(field, F::Microseconds | F::Milliseconds | F::Second | F::Minute | F::Hour);
    let zone = matches!(field, F::Timezone | F::TimezoneHour | F::TimezoneMinute);
    let fits = match source {
        SqlType::Date => !time && !zone,
        SqlType::Time => time || field == F::Epoch,
        SqlType::Timestamp => !zone,
        SqlType::TimestampTz => true,
        _ => !zone && !matches!(field, F::Dow | F::Isodow | F::Doy | F::Isoyear | F::Julian | F::Week),
    };
    if fits { Ok(()) } else { Err(unsupported(name, source)) }
}

fn field_of(call: &Call<'_>) -> Result<Field> {
    let name = call.texts(0)?;
    name.get(0).and_then(Field::parse).ok_or_else(|| PlanError::internal("extract without a field"))
}

fn whole(value: i64) -> Decimal {
    Decimal::from_i128(i128::from(value), 0)
}

/// The week and year of ISO 8601 that a day is in.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday of a week decides its year.
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let (year, _, _) = civil_from_days(thursday);
    ((thursday - days_from_civil(year, 1, 1)) / 7 + 1, year)
}

/// Years of our calendar count from 1 backwards to -1.
pub(super) fn shown_year(year: i64) -> i64 {
    if year > 0 { year } else { year - 1 }
}

/// Fields of days, for local dates.
fn of_days(field: Field, days: i64) -> Option<i64> {
    let (year, month, day) = civil_from_days(days);
    Some(match field {
        Field::Day => i64::from(day),
        Field::Month => i64::from(month),
        Field::Quarter => i64::from(month - 1) / 3 + 1,
        Field::Year => shown_year(year),
        Field::Decade => year.div_euclid(10),
        Field::Century => {
            if year > 0 {
                (year + 99) / 100
            } else {
                -((99 - (year - 1)) / 100)
            }
        }
        Field::Millennium => {
            if year > 0 {
                (year + 999) / 1_000
            } else {
                -((999 - (year - 1)) / 1_000)
            }
        }
        Field::Week => iso_week(days).0,
        Field::Isoyear => shown_year(iso_week(days).1),
        Field::Dow => (days + 4).rem_euclid(7),
        Field::Isodow => (days + 3).rem_euclid(7) + 1,
        Field::Doy => days - days_from_civil(year, 1, 1) + 1,
        _ => return None,
    })
}

/// Fields of the time of day.
fn of_micros(field: Field, micros: i64) -> Option<Decimal> {
    let second = micros % (60 * MICROS_PER_SECOND);
    Some(match field {
        Field::Microseconds => whole(second),
        Field::Milliseconds => Decimal::from_i128(i128::from(second), 3),
        Field::Second => Decimal::from_i128(i128::from(second), 6),
        Field::Minute => whole(micros / (60 * MICROS_PER_SECOND) % 60),
        Field::Hour => whole(micros / (3_600 * MICROS_PER_SECOND)),
        _ => return None,
    })
}

const JULIAN_OF_EPOCH: i64 = 2_440_588;

/// A field of a local time. `epoch_us` is what EPOCH counts.
fn of_local(field: Field, local: i64, epoch_us: i64) -> Result<Decimal> {
    let (days, micros) = (local.div_euclid(MICROS_PER_DAY), local.rem_euclid(MICROS_PER_DAY));
    if let Some(value) = of_days(field, days) {
        return Ok(whole(value));
    }
    if let Some(value) = of_micros(field, micros) {
        return Ok(value);
    }
    match field {
        Field::Epoch => Ok(Decimal::from_i128(i128::from(epoch_us), 6)),
        Field::Julian => {
            let part = Decimal::from_i128(i128::from(micros), 0).divide(Decimal::from_i128(i128::from(MICROS_PER_DAY), 0), 20)?;
            whole(days + JULIAN_OF_EPOCH).add(part)
        }
        _ => Err(PlanError::internal("a field that the type has not")),
    }
}

fn of_date(call: &Call<'_>) -> Result<ArrayRef> {
    let (field, dates) = (field_of(call)?, call.values::<Date32Type>(1)?);
    call.build_decimals(|row| {
        let Some(days) = dates.get(row) else { return Ok(None) };
        if days == i32::MAX || days == i32::MIN {
            return Ok(None);
        }
        let days = i64::from(days);
        Ok(Some(match field {
            Field::Epoch => whole(days * 86_400),
            Field::Julian => whole(days + JULIAN_OF_EPOCH),
            _ => whole(of_days(field, days).ok_or_else(|| PlanError::internal("a field that dates have not"))?),
        }))
    })
}

fn of_time(call: &Call<'_>) -> Result<ArrayRef> {
    let (field, times) = (field_of(call)?, call.values::<Time64MicrosecondType>(1)?);
    call.build_decimals(|row| {
        let Some(micros) = times.get(row) else { return Ok(None) };
        match field {
            Field::Epoch => Ok(Some(Decimal::from_i128(i128::from(micros), 6))),
            _ => Ok(of_micros(field, micros)),
        }
    })
}

fn of_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let (field, moments) = (field_of(call)?, call.values::<TimestampMicrosecondType>(1)?);
    call.build_decimals(|row| match moments.get(row) {
        Some(moment) if is_finite(moment) => of_local(field, moment, moment).map(Some),
        _ => Ok(None),
    })
}

fn of_timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let (field, moments) = (field_of(call)?, call.values::<TimestampMicrosecondType>(1)?);
    let zone = &call.environment().text.time_zone;
    call.build_decimals(|row| {
        let Some(moment) = moments.get(row).filter(|moment| is_finite(*moment)) else { return Ok(None) };
        let offset = i64::from(zone.offset_at(moment));
        Ok(Some(match field {
            Field::Timezone => whole(offset),
            Field::TimezoneHour => whole(offset / 3_600),
            Field::TimezoneMinute => whole(offset % 3_600 / 60),
            _ => of_local(field, to_local(zone, moment)?, moment)?,
        }))
    })
}

fn of_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let (field, intervals) = (field_of(call)?, call.values::<IntervalMonthDayNanoType>(1)?);
    call.build_decimals(|row| {
        let Some(interval) = intervals.get(row) else { return Ok(None) };
        let (months, days, micros) = parts(interval);
        let (years, rest) = (months / 12, months % 12);
        Ok(Some(match field {
            Field::Year => whole(years),
            Field::Month => whole(rest),
            Field::Quarter => whole(rest / 3 + 1),
            Field::Decade => whole(years / 10),
            Field::Century => whole(years / 100),
            Field::Millennium => whole(years / 1_000),
            Field::Day => whole(days),
            Field::Epoch => {
                // A year has 365.25 days here, a month 30.
                let seconds = years * 31_557_600 + rest * 30 * 86_400 + days * 86_400;
                Decimal::from_i128(i128::from(seconds) * i128::from(MICROS_PER_SECOND) + i128::from(micros), 6)
            }
            _ => of_micros(field, micros).ok_or_else(|| PlanError::internal("a field that intervals have not"))?,
        }))
    })
}

/// The start of the period that a local time is in.
fn truncate_local(field: Field, local: i64) -> Option<i64> {
    let unit = match field {
        Field::Microseconds => 1,
        Field::Milliseconds => 1_000,
        Field::Second => MICROS_PER_SECOND,
        Field::Minute => 60 * MICROS_PER_SECOND,
        Field::Hour => 3_600 * MICROS_PER_SECOND,
        Field::Day => MICROS_PER_DAY,
        _ => 0,
    };
    if unit > 0 {
        return Some(local.div_euclid(unit) * unit);
    }
    let days = local.div_euclid(MICROS_PER_DAY);
    let (year, month, _) = civil_from_days(days);
    let start = match field {
        Field::Week => days - (days + 3).rem_euclid(7),
        Field::Month => days_from_civil(year, month, 1),
        Field::Quarter => days_from_civil(year, (month - 1) / 3 * 3 + 1, 1),
        Field::Year => days_from_civil(year, 1, 1),
        Field::Decade => days_from_civil(year.div_euclid(10) * 10, 1, 1),
        Field::Century => days_from_civil((year - 1).div_euclid(100) * 100 + 1, 1, 1),
        Field::Millennium => days_from_civil((year - 1).div_euclid(1_000) * 1_000 + 1, 1, 1),
        _ => return None,
    };
    Some(start * MICROS_PER_DAY)
}

/// The field that `date_trunc` is asked for.
fn truncation(name: &str, sql_type: &SqlType) -> Result<Field> {
    let field = Field::parse(name).ok_or_else(|| unrecognized(name, sql_type))?;
    if truncate_local(field, 0).is_some() { Ok(field) } else { Err(unsupported(name, sql_type)) }
}

fn truncate_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, moments) = (call.texts(0)?, call.values::<TimestampMicrosecondType>(1)?);
    let constant = names.constant().map(|name| truncation(name, &SqlType::Timestamp)).transpose()?;
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(name), Some(moment)) = (names.get(row), moments.get(row)) else { return Ok(None) };
        let field = match constant {
            Some(field) => field,
            None => truncation(name, &SqlType::Timestamp)?,
        };
        Ok(if is_finite(moment) { truncate_local(field, moment) } else { Some(moment) })
    })
}

/// Hours and less keep the offset that is in force, so that the repeated hour of a clock change stays apart.
fn truncate_instant(field: Field, moment: i64, zone: &Zone) -> Result<i64> {
    if !is_finite(moment) {
        return Ok(moment);
    }
    let local = to_local(zone, moment)?;
    let start = truncate_local(field, local).ok_or_else(|| PlanError::internal("a field that cannot be truncated to"))?;
    match field {
        Field::Microseconds | Field::Milliseconds | Field::Second | Field::Minute | Field::Hour => Ok(moment - (local - start)),
        _ => to_utc(zone, start),
    }
}

fn truncate_timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, moments) = (call.texts(0)?, call.values::<TimestampMicrosecondType>(1)?);
    let zone = &call.environment().text.time_zone;
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(name), Some(moment)) = (names.get(row), moments.get(row)) else { return Ok(None) };
        truncate_instant(truncation(name, &SqlType::TimestampTz)?, moment, zone).map(Some)
    })
}

fn truncate_in_zone(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, moments, zones) = (call.texts(0)?, call.values::<TimestampMicrosecondType>(1)?, call.texts(2)?);
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(name), Some(moment), Some(zone)) = (names.get(row), moments.get(row), zones.get(row)) else { return Ok(None) };
        truncate_instant(truncation(name, &SqlType::TimestampTz)?, moment, &zone_of(zone)?).map(Some)
    })
}

fn truncated_interval(field: Field, value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let (months, days, micros) = parts(value);
    let cut_months = |unit: i64| of_parts(months / unit * unit, 0, 0);
    let cut_time = |unit: i64| of_parts(months, days, micros / unit * unit);
    match field {
        Field::Millennium => cut_months(12_000),
        Field::Century => cut_months(1_200),
        Field::Decade => cut_months(120),
        Field::Year => cut_months(12),
        Field::Quarter => cut_months(3),
        Field::Month => cut_months(1),
        Field::Day => of_parts(months, days, 0),
        Field::Hour => cut_time(3_600 * MICROS_PER_SECOND),
        Field::Minute => cut_time(60 * MICROS_PER_SECOND),
        Field::Second => cut_time(MICROS_PER_SECOND),
        Field::Milliseconds => cut_time(1_000),
        Field::Microseconds => Ok(value),
        _ => {
            Err(PlanError::unsupported("unit \"week\" not supported for type interval")
                .with_detail("Months usually have fractional weeks."))
        }
    }
}

fn truncate_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, intervals) = (call.texts(0)?, call.values::<IntervalMonthDayNanoType>(1)?);
    call.build::<IntervalMonthDayNanoType>(|row| {
        let (Some(name), Some(value)) = (names.get(row), intervals.get(row)) else { return Ok(None) };
        truncated_interval(truncation(name, &SqlType::Interval)?, value).map(Some)
    })
}
