//! `to_char` of timestamps and intervals.

use std::fmt::Write;

use arrow::{
    array::ArrayRef,
    datatypes::{IntervalMonthDayNanoType, TimestampMicrosecondType},
};

use super::{
    super::{columns::Texts, datetime, kernel::Call},
    fields::{DAYS, DateFields, Fields, MONTHS, ROMAN_MONTHS, ZoneFields},
    pattern::{Case, Field, Piece, pieces},
};
use crate::error::{PlanError, Result, sqlstate};

pub(super) fn of_timestamp(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<TimestampMicrosecondType>(0)?;
    let fields = |row: usize| {
        let local = values.get(row).filter(|local| datetime::is_finite(*local))?;
        Some(Fields::of_timestamp(local, ZoneFields::default()))
    };
    write_all(call, |row| Ok(fields(row)))
}

pub(super) fn of_timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<TimestampMicrosecondType>(0)?;
    let zone = &call.environment().text.time_zone;
    write_all(call, |row| {
        let Some(utc) = values.get(row).filter(|utc| datetime::is_finite(*utc)) else { return Ok(None) };
        let shown = ZoneFields { name: zone.abbreviation_at(utc), offset: i64::from(zone.offset_at(utc)) };
        Ok(Some(Fields::of_timestamp(datetime::to_local(zone, utc)?, shown)))
    })
}

pub(super) fn of_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<IntervalMonthDayNanoType>(0)?;
    write_all(call, |row| Ok(values.get(row).map(Fields::of_interval)))
}

/// Patterns are cut into pieces once where they are constant. An empty pattern gives an empty text, an infinite time NULL.
fn write_all(call: &Call<'_>, fields: impl Fn(usize) -> Result<Option<Fields>>) -> Result<ArrayRef> {
    let patterns: Texts = call.texts(1)?;
    let constant = patterns.constant().map(pieces);
    call.build_texts(|row| {
        let (Some(pattern), Some(fields)) = (patterns.get(row), fields(row)?) else { return Ok(None) };
        match &constant {
            Some(pieces) => write(pieces, &fields).map(Some),
            None => write(&pieces(pattern), &fields).map(Some),
        }
    })
}

fn not_of_intervals() -> PlanError {
    PlanError::new(sqlstate::INVALID_DATETIME_FORMAT, "invalid format specification for an interval value")
        .with_hint("Intervals are not tied to specific calendar dates.")
}

fn write(pieces: &[Piece], fields: &Fields) -> Result<String> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Character(character) | Piece::Separator(character) | Piece::Space(character) => out.push(*character),
            Piece::Exact => {}
            Piece::Field { field, case, fill, ordinal, .. } => {
                let start = out.len();
                write_field(*field, *case, *fill, fields, &mut out)?;
                if let Some(large) = ordinal {
                    let suffix = ordinal_suffix(&out[start..]);
                    out.push_str(&if *large { suffix.to_uppercase() } else { suffix.to_owned() });
                }
            }
        }
    }
    Ok(out)
}

/// `st`, `nd`, `rd`, `th`.
pub(super) fn ordinal_suffix(number: &str) -> &'static str {
    let digits: Vec<u8> = number.bytes().filter(u8::is_ascii_digit).collect();
    let teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    match digits.last() {
        Some(b'1') if !teen => "st",
        Some(b'2') if !teen => "nd",
        Some(b'3') if !teen => "rd",
        _ => "th",
    }
}

fn cased(text: &str, case: Case) -> String {
    match case {
        Case::Upper => text.to_uppercase(),
        Case::Lower => text.to_lowercase(),
        Case::Capital => text.to_owned(),
    }
}

/// A number with zeros in front up to a width, of which a sign is no part.
fn number(out: &mut String, value: i64, width: usize, fill: bool) {
    let width = if fill { 0 } else { width + usize::from(value < 0) };
    let _ = write!(out, "{value:0width$}");
}

fn write_field(field: Field, case: Case, fill: bool, fields: &Fields, out: &mut String) -> Result<()> {
    if let Some(()) = write_time(field, case, fill, fields, out) {
        return Ok(());
    }
    match field {
        Field::Year(digits) => number(out, last_digits(fields.shown_year(fields.year), digits), digits.into(), fill),
        Field::YearWithComma => {
            let year = fields.shown_year(fields.year);
            let _ = write!(out, "{},{:03}", year / 1_000, year % 1_000);
        }
        Field::Month => number(out, fields.month, 2, fill),
        Field::Day => number(out, fields.day, 2, fill),
        Field::Century => {
            let year = fields.year;
            let century = match (&fields.date, year) {
                (Some(_), 1..) => (year - 1) / 100 + 1,
                (Some(_), _) => -((-year) / 100 + 1),
                (None, _) => year / 100,
            };
            number(out, century, if century.abs() < 100 { 2 } else { 0 }, fill);
        }
        Field::Quarter => {
            if fields.month != 0 {
                number(out, (fields.month - 1) / 3 + 1, 1, fill);
            }
        }
        Field::DayOfYear if fields.date.is_none() => {
            number(out, (fields.year * 12 + fields.month) * 30 + fields.day, 3, fill);
        }
        Field::RomanMonth if fields.date.is_none() => {
            if fields.month != 0 || fields.year != 0 {
                let place = if fields.month < 0 { fields.month + 12 } else { fields.month };
                let name = if place == 0 { ROMAN_MONTHS[11] } else { ROMAN_MONTHS[place as usize - 1] };
                padded(out, &roman(name, case), 4, fill);
            }
        }
        other => write_date(other, case, fill, fields, fields.date.as_ref().ok_or_else(not_of_intervals)?, out),
    }
    Ok(())
}

fn roman(name: &str, case: Case) -> String {
    if case == Case::Lower { name.to_lowercase() } else { name.to_owned() }
}

fn last_digits(year: i64, digits: u8) -> i64 {
    if digits >= 4 { year } else { year % 10_i64.pow(digits.into()) }
}

/// Text with blanks behind it up to a width.
fn padded(out: &mut String, text: &str, width: usize, fill: bool) {
    let width = if fill { 0 } else { width };
    let _ = write!(out, "{text:width$}");
}

/// Fields of the time of day.
fn write_time(field: Field, case: Case, fill: bool, fields: &Fields, out: &mut String) -> Option<()> {
    let second_of_day = fields.hour * 3_600 + fields.minute * 60 + fields.second;
    match field {
        Field::Hour12 => {
            let hour = fields.hour % 12;
            number(out, if hour == 0 { 12 } else { hour }, 2, fill);
        }
        Field::Hour24 => number(out, fields.hour, 2, fill),
        Field::Minute => number(out, fields.minute, 2, fill),
        Field::Second => number(out, fields.second, 2, fill),
        Field::Millisecond => number(out, fields.micros / 1_000, 3, false),
        Field::Microsecond => number(out, fields.micros, 6, false),
        Field::Fraction(digits) => number(out, fields.micros / 10_i64.pow(6 - u32::from(digits)), digits.into(), false),
        Field::SecondsOfDay => number(out, second_of_day, 0, fill),
        Field::Meridiem(dots) => {
            let text = match (fields.hour.rem_euclid(24) >= 12, dots) {
                (false, false) => "AM",
                (false, true) => "A.M.",
                (true, false) => "PM",
                (true, true) => "P.M.",
            };
            out.push_str(&cased(text, if case == Case::Lower { Case::Lower } else { Case::Upper }));
        }
        _ => return None,
    }
    Some(())
}

/// Fields that only a date has.
fn write_date(field: Field, case: Case, fill: bool, fields: &Fields, date: &DateFields, out: &mut String) {
    let (month, weekday) = (fields.month as usize - 1, date.weekday as usize);
    match field {
        Field::Era(dots) => {
            let text = match (fields.year <= 0, dots) {
                (false, false) => "AD",
                (false, true) => "A.D.",
                (true, false) => "BC",
                (true, true) => "B.C.",
            };
            out.push_str(&cased(text, if case == Case::Lower { Case::Lower } else { Case::Upper }));
        }
        Field::MonthName => padded(out, &cased(MONTHS[month], case), 9, fill),
        Field::MonthShort => out.push_str(&cased(&MONTHS[month][..3], case)),
        Field::DayName => padded(out, &cased(DAYS[weekday], case), 9, fill),
        Field::DayShort => out.push_str(&cased(&DAYS[weekday][..3], case)),
        Field::DayOfYear => number(out, date.day_of_year, 3, fill),
        Field::IsoDayOfYear => number(out, (date.iso_week - 1) * 7 + (date.weekday + 6) % 7 + 1, 3, fill),
        Field::DayOfWeek => number(out, date.weekday + 1, 1, fill),
        Field::IsoDayOfWeek => number(out, if date.weekday == 0 { 7 } else { date.weekday }, 1, fill),
        Field::WeekOfMonth => number(out, (fields.day - 1) / 7 + 1, 1, fill),
        Field::WeekOfYear => number(out, (date.day_of_year - 1) / 7 + 1, 2, fill),
        Field::IsoWeek => number(out, date.iso_week, 2, fill),
        Field::IsoYear(digits) => number(out, last_digits(fields.shown_year(date.iso_year), digits), digits.into(), fill),
        Field::Julian => number(out, date.julian, 0, fill),
        Field::RomanMonth => padded(out, &roman(ROMAN_MONTHS[month], case), 4, fill),
        Field::ZoneName => out.push_str(&cased(&fields.zone.name, if case == Case::Lower { Case::Lower } else { Case::Capital })),
        Field::ZoneHours => {
            let _ = write!(out, "{}{:02}", sign(fields.zone.offset), fields.zone.offset.abs() / 3_600);
        }
        Field::ZoneMinutes => number(out, fields.zone.offset.abs() / 60 % 60, 2, false),
        Field::ZoneOffset => {
            let (hours, minutes) = (fields.zone.offset.abs() / 3_600, fields.zone.offset.abs() / 60 % 60);
            let width = if fill { 0 } else { 2 };
            let _ = write!(out, "{}{hours:0width$}", sign(fields.zone.offset));
            if minutes != 0 {
                let _ = write!(out, ":{minutes:02}");
            }
        }
        _ => {}
    }
}

fn sign(offset: i64) -> char {
    if offset < 0 { '-' } else { '+' }
}
