//! Input of intervals: Postgres' own spelling, SQL's year-month and day-time, and ISO 8601.

use arrow::datatypes::IntervalMonthDayNano;

use super::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND};
use super::date_fields::parse_clock;
use super::date_tokens::{DateError, Field, FieldKind, split_fields};
use super::settings::{IntervalStyle, TextError, TextSettings};

/// The unit of a number in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalUnit {
    /// 1/1,000,000 s.
    Microsecond,
    /// 1/1,000 s.
    Millisecond,
    /// Also the unit of a number without one.
    Second,
    /// 60 s.
    Minute,
    /// 60 min.
    Hour,
    /// Not 24 hours: a day of a calendar.
    Day,
    /// 7 days.
    Week,
    /// A month of a calendar.
    Month,
    /// 12 months.
    Year,
    /// 10 years.
    Decade,
    /// 100 years.
    Century,
    /// 1000 years.
    Millennium,
}

impl IntervalUnit {
    /// The unit of a word in lower case.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "us" | "usec" | "usecs" | "useconds" | "usecond" | "microsecond" | "microseconds" | "microsecon" => Self::Microsecond,
            "ms" | "msec" | "msecs" | "mseconds" | "msecond" | "millisecond" | "milliseconds" | "millisecon" => Self::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "d" | "day" | "days" => Self::Day,
            "w" | "week" | "weeks" => Self::Week,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "dec" | "decs" | "decade" | "decades" => Self::Decade,
            "c" | "cent" | "century" | "centuries" => Self::Century,
            "mil" | "mils" | "millennia" | "millennium" => Self::Millennium,
            _ => return None,
        })
    }
}

/// Months, days and microseconds as they add up, and which fields came.
#[derive(Default)]
struct Parts {
    months: i64,
    days: i64,
    micros: i64,
    seen: u16,
}

const TIME_FIELDS: u16 = bit(IntervalUnit::Hour) | bit(IntervalUnit::Minute) | bit(IntervalUnit::Second);

const fn bit(unit: IntervalUnit) -> u16 {
    1 << unit as u16
}

impl Parts {
    fn mark(&mut self, fields: u16) -> Result<(), DateError> {
        if self.seen & fields != 0 {
            return Err(DateError::BadFormat);
        }
        self.seen |= fields;
        Ok(())
    }

    fn add_months(&mut self, months: i64) -> Result<(), DateError> {
        self.months = self.months.checked_add(months).ok_or(DateError::FieldOverflow)?;
        if i32::try_from(self.months).is_ok() { Ok(()) } else { Err(DateError::FieldOverflow) }
    }

    fn add_days(&mut self, days: i64) -> Result<(), DateError> {
        self.days = self.days.checked_add(days).ok_or(DateError::FieldOverflow)?;
        if i32::try_from(self.days).is_ok() { Ok(()) } else { Err(DateError::FieldOverflow) }
    }

    fn add_micros(&mut self, micros: i64) -> Result<(), DateError> {
        self.micros = self.micros.checked_add(micros).ok_or(DateError::FieldOverflow)?;
        Ok(())
    }

    /// `whole` + `fraction` times a unit of `micros` microseconds.
    fn add_time(&mut self, whole: i64, fraction: f64, micros: i64) -> Result<(), DateError> {
        self.add_micros(whole.checked_mul(micros).ok_or(DateError::FieldOverflow)?)?;
        self.add_fraction_of_time(fraction * micros as f64)
    }

    fn add_fraction_of_time(&mut self, micros: f64) -> Result<(), DateError> {
        let mut whole = micros as i64;
        let rest = micros - whole as f64;
        if rest > 0.5 {
            whole += 1;
        } else if rest < -0.5 {
            whole -= 1;
        }
        self.add_micros(whole)
    }

    /// A fraction of a unit of `days` days: whole days, the rest as time.
    fn add_fraction_of_days(&mut self, fraction: f64, days: i64) -> Result<(), DateError> {
        let days = fraction * days as f64;
        let whole = days as i64;
        self.add_days(whole)?;
        self.add_fraction_of_time((days - whole as f64) * MICROS_PER_DAY as f64)
    }

    fn add(&mut self, unit: IntervalUnit, whole: i64, fraction: f64) -> Result<(), DateError> {
        let years = |count: i64| whole.checked_mul(count * 12).ok_or(DateError::FieldOverflow);
        match unit {
            IntervalUnit::Microsecond => self.add_time(whole, fraction, 1),
            IntervalUnit::Millisecond => self.add_time(whole, fraction, 1000),
            IntervalUnit::Second => self.add_time(whole, fraction, MICROS_PER_SECOND),
            IntervalUnit::Minute => self.add_time(whole, fraction, 60 * MICROS_PER_SECOND),
            IntervalUnit::Hour => self.add_time(whole, fraction, 3600 * MICROS_PER_SECOND),
            IntervalUnit::Day => {
                self.add_days(whole)?;
                self.add_fraction_of_time(fraction * MICROS_PER_DAY as f64)
            }
            IntervalUnit::Week => {
                self.add_days(whole.checked_mul(7).ok_or(DateError::FieldOverflow)?)?;
                self.add_fraction_of_days(fraction, 7)
            }
            IntervalUnit::Month => {
                self.add_months(whole)?;
                self.add_fraction_of_days(fraction, 30)
            }
            IntervalUnit::Year => self.add_months(years(1)?).and_then(|()| self.add_months((fraction * 12.0).round_ties_even() as i64)),
            IntervalUnit::Decade => self.add_months(years(10)?).and_then(|()| self.add_months((fraction * 120.0).round_ties_even() as i64)),
            IntervalUnit::Century => {
                self.add_months(years(100)?).and_then(|()| self.add_months((fraction * 1200.0).round_ties_even() as i64))
            }
            IntervalUnit::Millennium => {
                self.add_months(years(1000)?).and_then(|()| self.add_months((fraction * 12_000.0).round_ties_even() as i64))
            }
        }
    }
}

/// An interval; a number without unit counts seconds.
pub fn parse_interval(text: &str, settings: &TextSettings) -> Result<IntervalMonthDayNano, TextError> {
    parse_interval_with_unit(text, IntervalUnit::Second, settings)
}

/// An interval in which a number without unit counts `unit`s, as in `INTERVAL '10' MINUTE`.
pub fn parse_interval_with_unit(text: &str, unit: IntervalUnit, settings: &TextSettings) -> Result<IntervalMonthDayNano, TextError> {
    let decoded = match decode(text, unit, settings) {
        Err(DateError::BadFormat) => decode_iso(text.trim()),
        other => other,
    };
    let parts = decoded.map_err(|error| match error {
        DateError::FieldOverflow | DateError::MonthDayOverflow => {
            TextError::new("22015", format!("interval field value out of range: \"{text}\""))
        }
        other => super::date_parse::describe(other, "interval", text),
    })?;
    let out_of_range = || TextError::new("22008", "interval out of range");
    Ok(IntervalMonthDayNano {
        months: i32::try_from(parts.months).map_err(|_| out_of_range())?,
        days: i32::try_from(parts.days).map_err(|_| out_of_range())?,
        nanoseconds: parts.micros.checked_mul(1000).ok_or_else(out_of_range)?,
    })
}

/// Fields are read from right to left, because a unit stands behind its number.
fn decode(text: &str, default_unit: IntervalUnit, settings: &TextSettings) -> Result<Parts, DateError> {
    let fields = split_fields(text)?;
    let signed = |field: &Field| field.text.starts_with(['+', '-']);
    // In SQL's style one sign in front counts for all, if it is the only one.
    let all_negative = settings.interval_style == IntervalStyle::SqlStandard
        && fields.first().is_some_and(|first| first.text.starts_with('-'))
        && !fields[1..].iter().any(signed);
    let mut parts = Parts::default();
    let mut unit = None;
    let mut unit_needs_number = false;
    let mut ago = false;
    for field in fields.iter().rev() {
        match field.kind {
            FieldKind::Word | FieldKind::SignedWord => {
                if unit_needs_number {
                    return Err(DateError::BadFormat);
                }
                if field.text == "ago" {
                    ago = true;
                } else {
                    unit = Some(IntervalUnit::parse(&field.text).ok_or(DateError::BadFormat)?);
                    unit_needs_number = true;
                }
            }
            FieldKind::Time => {
                take_time(&field.text, all_negative, &mut parts)?;
                unit = Some(IntervalUnit::Day);
                unit_needs_number = false;
            }
            FieldKind::Signed if field.text.contains(':') => {
                take_time(&field.text[1..], all_negative || field.text.starts_with('-'), &mut parts)?;
                unit = Some(IntervalUnit::Day);
                unit_needs_number = false;
            }
            FieldKind::Signed | FieldKind::Date | FieldKind::Number => {
                take_number(&field.text, unit.unwrap_or(default_unit), all_negative, &mut parts)?;
                unit = unit.or(Some(default_unit));
                unit_needs_number = false;
            }
        }
    }
    if parts.seen == 0 || unit_needs_number {
        return Err(DateError::BadFormat);
    }
    if ago {
        (parts.months, parts.days) = (-parts.months, -parts.days);
        parts.micros = parts.micros.checked_neg().ok_or(DateError::FieldOverflow)?;
    }
    Ok(parts)
}

fn take_time(text: &str, negative: bool, parts: &mut Parts) -> Result<(), DateError> {
    let (hours, minutes, seconds, micros) = parse_clock(text)?;
    if minutes > 59 || seconds > 60 {
        return Err(DateError::FieldOverflow);
    }
    parts.mark(TIME_FIELDS)?;
    let total = ((hours * 60 + minutes) * 60 + seconds).checked_mul(MICROS_PER_SECOND).and_then(|total| total.checked_add(micros));
    let total = total.ok_or(DateError::FieldOverflow)?;
    parts.add_micros(if negative { -total } else { total })
}

/// `10`, `-1.5`, or SQL's years and months `1-2`.
fn take_number(text: &str, unit: IntervalUnit, all_negative: bool, parts: &mut Parts) -> Result<(), DateError> {
    let negative = text.starts_with('-') || (all_negative && !text.starts_with('+'));
    let digits = text.trim_start_matches(['+', '-']);
    if let Some((years, months)) = digits.split_once('-') {
        let years: i64 = parse_digits(years)?;
        let months: i64 = parse_digits(months)?;
        if months >= 12 {
            return Err(DateError::FieldOverflow);
        }
        parts.mark(bit(IntervalUnit::Month))?;
        let total = years.checked_mul(12).and_then(|total| total.checked_add(months)).ok_or(DateError::FieldOverflow)?;
        return parts.add_months(if negative { -total } else { total });
    }
    let (whole, fraction) = parse_number(digits)?;
    let mut fields = bit(unit);
    if unit == IntervalUnit::Second && fraction != 0.0 {
        fields |= bit(IntervalUnit::Millisecond) | bit(IntervalUnit::Microsecond);
    }
    parts.mark(fields)?;
    if negative { parts.add(unit, -whole, -fraction) } else { parts.add(unit, whole, fraction) }
}

fn parse_digits(text: &str) -> Result<i64, DateError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DateError::BadFormat);
    }
    text.parse().map_err(|_| DateError::FieldOverflow)
}

/// Digits with an optional point: the whole and the fraction.
fn parse_number(text: &str) -> Result<(i64, f64), DateError> {
    let Some((whole, fraction)) = text.split_once('.') else { return Ok((parse_digits(text)?, 0.0)) };
    if whole.is_empty() && fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DateError::BadFormat);
    }
    let whole = if whole.is_empty() { 0 } else { parse_digits(whole)? };
    let fraction = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().map_err(|_| DateError::BadFormat)? };
    Ok((whole, fraction))
}

/// `P1Y2M3DT4H5M6S`, `P0001-02-03T04:05:06`, `P00010203T040506`.
fn decode_iso(text: &str) -> Result<Parts, DateError> {
    let mut rest = text.strip_prefix(['P', 'p']).filter(|rest| !rest.is_empty()).ok_or(DateError::BadFormat)?;
    let mut parts = Parts::default();
    let mut in_time = false;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(['T', 't']) {
            if in_time || after.is_empty() {
                return Err(DateError::BadFormat);
            }
            in_time = true;
            rest = after;
            continue;
        }
        let end = rest.char_indices().find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && matches!(c, '+' | '-'))));
        let (number, after) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        parse_number(number.trim_start_matches(['+', '-']))?;
        // The fraction of the binary number, as in Postgres, not of the decimal one: 2.8 months have 23 days and 24 hours.
        let value: f64 = number.parse().map_err(|_| DateError::BadFormat)?;
        let (whole, fraction) = (value.trunc() as i64, value.fract());
        let designator = after.chars().next().map(|c| c.to_ascii_uppercase());
        let unit = match (designator, in_time) {
            (Some('Y'), false) => IntervalUnit::Year,
            (Some('M'), false) => IntervalUnit::Month,
            (Some('W'), false) => IntervalUnit::Week,
            (Some('D'), false) => IntervalUnit::Day,
            (Some('H'), true) => IntervalUnit::Hour,
            (Some('M'), true) => IntervalUnit::Minute,
            (Some('S'), true) => IntervalUnit::Second,
            (Some('-' | 'T') | None, false) => {
                rest = take_alternative_date(rest, &mut parts)?;
                continue;
            }
            (Some(':') | None, true) => return take_alternative_time(rest, parts),
            _ => return Err(DateError::BadFormat),
        };
        parts.add(unit, whole, fraction)?;
        parts.seen |= bit(unit);
        rest = &after[1..];
    }
    Ok(parts)
}

/// `0001-02-03` or `00010203` up to a `T` or the end; gives what follows.
fn take_alternative_date<'a>(text: &'a str, parts: &mut Parts) -> Result<&'a str, DateError> {
    let end = text.find(['T', 't']).unwrap_or(text.len());
    let (date, rest) = text.split_at(end);
    let negative = date.starts_with('-');
    let date = date.trim_start_matches(['+', '-']);
    let fields: Vec<&str> = match date.contains('-') {
        true => date.split('-').collect(),
        false if date.len() == 8 && date.is_ascii() => vec![&date[..4], &date[4..6], &date[6..]],
        false => return Err(DateError::BadFormat),
    };
    if fields.len() > 3 {
        return Err(DateError::BadFormat);
    }
    for (field, unit) in fields.iter().zip([IntervalUnit::Year, IntervalUnit::Month, IntervalUnit::Day]) {
        let value = parse_digits(field)?;
        parts.add(unit, if negative { -value } else { value }, 0.0)?;
        parts.seen |= bit(unit);
    }
    Ok(rest)
}

/// `04:05:06.7` or `040506`, to the end.
fn take_alternative_time(text: &str, mut parts: Parts) -> Result<Parts, DateError> {
    let negative = text.starts_with('-');
    let time = text.trim_start_matches(['+', '-']);
    let spelled;
    let time = if time.contains(':') {
        time
    } else if time.len() >= 6 && time.is_ascii() {
        spelled = format!("{}:{}:{}", &time[..2], &time[2..4], &time[4..]);
        &spelled
    } else {
        return Err(DateError::BadFormat);
    };
    take_time(time, negative, &mut parts)?;
    Ok(parts)
}
