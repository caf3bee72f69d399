//! Output of date, time, timestamp and timestamptz.

use super::calendar::{
    DATE_INFINITY, DATE_NEGATIVE_INFINITY, DAY_NAMES, MICROS_PER_DAY, MICROS_PER_SECOND, MONTH_NAMES, TIMESTAMP_INFINITY,
    TIMESTAMP_NEGATIVE_INFINITY, civil_from_days, weekday,
};
use super::integer::{write_padded, write_unsigned};
use super::settings::{DateOrder, DateStyle, TextSettings};
use super::zone::write_offset;

/// date: days since 1970.
pub fn write_date(days: i32, settings: &TextSettings, out: &mut Vec<u8>) {
    match days {
        DATE_INFINITY => out.extend_from_slice(b"infinity"),
        DATE_NEGATIVE_INFINITY => out.extend_from_slice(b"-infinity"),
        _ => {
            let (year, month, day) = civil_from_days(i64::from(days));
            write_numeric_date(year, month, day, settings, out);
            write_era(year, out);
        }
    }
}

/// time: microseconds since midnight.
pub fn write_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros.div_euclid(MICROS_PER_SECOND);
    write_clock(seconds, out);
    write_fraction(micros.rem_euclid(MICROS_PER_SECOND), out);
}

/// timestamp: microseconds since 1970 in local time.
pub fn write_timestamp(micros: i64, settings: &TextSettings, out: &mut Vec<u8>) {
    if !write_infinite(micros, out) {
        write_moment(micros, None, settings, out);
    }
}

/// timestamptz: microseconds since 1970 in UTC, shown in the session's zone.
pub fn write_timestamptz(micros: i64, settings: &TextSettings, out: &mut Vec<u8>) {
    if write_infinite(micros, out) {
        return;
    }
    let offset = settings.time_zone.offset_at(micros);
    let local = micros.saturating_add(i64::from(offset) * MICROS_PER_SECOND);
    write_moment(local, Some((offset, micros)), settings, out);
}

fn write_infinite(micros: i64, out: &mut Vec<u8>) -> bool {
    match micros {
        TIMESTAMP_INFINITY => out.extend_from_slice(b"infinity"),
        TIMESTAMP_NEGATIVE_INFINITY => out.extend_from_slice(b"-infinity"),
        _ => return false,
    }
    true
}

/// `zone`: (seconds east, the instant in UTC).
fn write_moment(local: i64, zone: Option<(i32, i64)>, settings: &TextSettings, out: &mut Vec<u8>) {
    let days = local.div_euclid(MICROS_PER_DAY);
    let micros = local.rem_euclid(MICROS_PER_DAY);
    let (year, month, day) = civil_from_days(days);
    if settings.date_style == DateStyle::Postgres {
        out.extend_from_slice(DAY_NAMES[weekday(days)].as_bytes());
        out.push(b' ');
        let name = MONTH_NAMES[month as usize - 1].as_bytes();
        if settings.date_order == DateOrder::Dmy {
            write_padded(u64::from(day), 2, out);
            out.push(b' ');
            out.extend_from_slice(name);
        } else {
            out.extend_from_slice(name);
            out.push(b' ');
            write_padded(u64::from(day), 2, out);
        }
        out.push(b' ');
        write_time(micros, out);
        out.push(b' ');
        write_year(year, out);
    } else {
        write_numeric_date(year, month, day, settings, out);
        out.push(b' ');
        write_time(micros, out);
    }
    if let Some((offset, instant)) = zone {
        let name = match settings.date_style {
            DateStyle::Iso => String::new(),
            _ => settings.time_zone.abbreviation_at(instant),
        };
        if name.is_empty() || name.starts_with(['+', '-']) {
            if settings.date_style == DateStyle::Postgres {
                out.push(b' ');
            }
            write_offset(offset, out);
        } else {
            out.push(b' ');
            out.extend_from_slice(name.as_bytes());
        }
    }
    write_era(year, out);
}

fn write_numeric_date(year: i64, month: u32, day: u32, settings: &TextSettings, out: &mut Vec<u8>) {
    let (month, day) = (u64::from(month), u64::from(day));
    let day_first = settings.date_order == DateOrder::Dmy;
    let (separator, first, second) = match settings.date_style {
        DateStyle::Iso => {
            write_year(year, out);
            out.push(b'-');
            write_padded(month, 2, out);
            out.push(b'-');
            return write_padded(day, 2, out);
        }
        DateStyle::German => (b'.', day, month),
        DateStyle::Sql if day_first => (b'/', day, month),
        DateStyle::Sql => (b'/', month, day),
        DateStyle::Postgres if day_first => (b'-', day, month),
        DateStyle::Postgres => (b'-', month, day),
    };
    write_padded(first, 2, out);
    out.push(separator);
    write_padded(second, 2, out);
    out.push(separator);
    write_year(year, out);
}

fn write_year(year: i64, out: &mut Vec<u8>) {
    let shown = if year > 0 { year } else { 1 - year };
    write_padded(shown.unsigned_abs(), 4, out);
}

fn write_era(year: i64, out: &mut Vec<u8>) {
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn write_clock(seconds: i64, out: &mut Vec<u8>) {
    write_padded((seconds / 3600).unsigned_abs(), 2, out);
    out.push(b':');
    write_padded((seconds / 60 % 60).unsigned_abs(), 2, out);
    out.push(b':');
    write_padded((seconds % 60).unsigned_abs(), 2, out);
}

/// `.5`, `.000001`, or nothing.
pub(super) fn write_fraction(micros: i64, out: &mut Vec<u8>) {
    if micros == 0 {
        return;
    }
    out.push(b'.');
    write_padded(micros.unsigned_abs(), 6, out);
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

/// Seconds of an interval: at least two digits when `fill`, then the fraction.
pub(super) fn write_seconds(seconds: i64, micros: i64, fill: bool, out: &mut Vec<u8>) {
    if fill {
        write_padded(seconds.unsigned_abs(), 2, out);
    } else {
        write_unsigned(seconds.unsigned_abs(), out);
    }
    write_fraction(micros, out);
}
