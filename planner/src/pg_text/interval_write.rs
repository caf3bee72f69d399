//! Output of intervals in the four styles.

use super::calendar::MICROS_PER_SECOND;
use super::date_write::write_seconds;
use super::integer::{write_integer, write_padded};
use super::settings::IntervalStyle;

/// An interval taken apart; every field carries the sign of its part.
#[derive(Clone, Copy)]
struct Fields {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Fields {
    fn has_time(&self) -> bool {
        self.hours != 0 || self.minutes != 0 || self.seconds != 0 || self.micros != 0
    }

    fn is_time_negative(&self) -> bool {
        self.hours < 0 || self.minutes < 0 || self.seconds < 0 || self.micros < 0
    }

    fn all(&self) -> [i64; 7] {
        [self.years, self.months, self.days, self.hours, self.minutes, self.seconds, self.micros]
    }

    fn negated(&self) -> Self {
        Self {
            years: -self.years,
            months: -self.months,
            days: -self.days,
            hours: -self.hours,
            minutes: -self.minutes,
            seconds: -self.seconds,
            micros: -self.micros,
        }
    }
}

/// An interval of months, days and nanoseconds, which are cut to microseconds.
pub fn write_interval(months: i32, days: i32, nanos: i64, style: IntervalStyle, out: &mut Vec<u8>) {
    let micros = nanos / 1000;
    let seconds = micros / MICROS_PER_SECOND;
    let fields = Fields {
        years: i64::from(months / 12),
        months: i64::from(months % 12),
        days: i64::from(days),
        hours: seconds / 3600,
        minutes: seconds / 60 % 60,
        seconds: seconds % 60,
        micros: micros % MICROS_PER_SECOND,
    };
    match style {
        IntervalStyle::Postgres => write_postgres(&fields, out),
        IntervalStyle::PostgresVerbose => write_verbose(&fields, out),
        IntervalStyle::SqlStandard => write_sql_standard(fields, out),
        IntervalStyle::Iso8601 => write_iso(&fields, out),
    }
}

fn write_postgres(fields: &Fields, out: &mut Vec<u8>) {
    let start = out.len();
    let mut before = false;
    for (value, unit) in [(fields.years, "year"), (fields.months, "mon"), (fields.days, "day")] {
        if value == 0 {
            continue;
        }
        if out.len() > start {
            out.push(b' ');
        }
        // After a negative part a positive one says so.
        if before && value > 0 {
            out.push(b'+');
        }
        write_integer(value, out);
        out.push(b' ');
        out.extend_from_slice(unit.as_bytes());
        if value != 1 {
            out.push(b's');
        }
        before = value < 0;
    }
    if out.len() == start || fields.has_time() {
        if out.len() > start {
            out.push(b' ');
        }
        if fields.is_time_negative() {
            out.push(b'-');
        } else if before {
            out.push(b'+');
        }
        write_clock(fields, 2, out);
    }
}

/// `hh:mm:ss.ffffff` without sign.
fn write_clock(fields: &Fields, hour_width: usize, out: &mut Vec<u8>) {
    write_padded(fields.hours.unsigned_abs(), hour_width, out);
    out.push(b':');
    write_padded(fields.minutes.unsigned_abs(), 2, out);
    out.push(b':');
    write_seconds(fields.seconds, fields.micros, true, out);
}

fn write_verbose(fields: &Fields, out: &mut Vec<u8>) {
    out.push(b'@');
    let mut zero = true;
    let mut before = false;
    let parts = [(fields.years, "year"), (fields.months, "mon"), (fields.days, "day"), (fields.hours, "hour"), (fields.minutes, "min")];
    for (value, unit) in parts {
        if value == 0 {
            continue;
        }
        // The first part decides whether the whole is "ago"; the others are relative to it.
        if zero {
            before = value < 0;
        }
        let value = if before { -value } else { value };
        out.push(b' ');
        write_integer(value, out);
        out.push(b' ');
        out.extend_from_slice(unit.as_bytes());
        if value != 1 {
            out.push(b's');
        }
        zero = false;
    }
    if fields.seconds != 0 || fields.micros != 0 {
        out.push(b' ');
        if fields.seconds < 0 || fields.micros < 0 {
            if zero {
                before = true;
            } else if !before {
                out.push(b'-');
            }
        } else if before {
            out.push(b'-');
        }
        write_seconds(fields.seconds, fields.micros, false, out);
        out.extend_from_slice(if fields.seconds.abs() != 1 || fields.micros != 0 { b" secs" } else { b" sec" });
        zero = false;
    }
    if zero {
        out.extend_from_slice(b" 0");
    }
    if before {
        out.extend_from_slice(b" ago");
    }
}

fn write_iso(fields: &Fields, out: &mut Vec<u8>) {
    out.push(b'P');
    if fields.all().iter().all(|part| *part == 0) {
        return out.extend_from_slice(b"T0S");
    }
    let part = |value: i64, unit: u8, out: &mut Vec<u8>| {
        if value != 0 {
            write_integer(value, out);
            out.push(unit);
        }
    };
    part(fields.years, b'Y', out);
    part(fields.months, b'M', out);
    part(fields.days, b'D', out);
    if fields.has_time() {
        out.push(b'T');
    }
    part(fields.hours, b'H', out);
    part(fields.minutes, b'M', out);
    if fields.seconds != 0 || fields.micros != 0 {
        if fields.seconds < 0 || fields.micros < 0 {
            out.push(b'-');
        }
        write_seconds(fields.seconds, fields.micros, false, out);
        out.push(b'S');
    }
}

fn write_sql_standard(fields: Fields, out: &mut Vec<u8>) {
    let negative = fields.all().iter().any(|part| *part < 0);
    let positive = fields.all().iter().any(|part| *part > 0);
    let has_year_month = fields.years != 0 || fields.months != 0;
    let has_day_time = fields.days != 0 || fields.has_time();
    let sign = |is_negative: bool| if is_negative { b'-' } else { b'+' };
    if !negative && !positive {
        return out.push(b'0');
    }
    if (negative && positive) || (has_year_month && has_day_time) {
        // Not a value of the standard's two kinds: every part with its sign.
        out.push(sign(fields.years < 0 || fields.months < 0));
        write_integer(fields.years.abs(), out);
        out.push(b'-');
        write_integer(fields.months.abs(), out);
        out.extend_from_slice(&[b' ', sign(fields.days < 0)]);
        write_integer(fields.days.abs(), out);
        out.extend_from_slice(&[b' ', sign(fields.is_time_negative())]);
        return write_clock(&fields, 1, out);
    }
    let fields = if negative { fields.negated() } else { fields };
    if negative {
        out.push(b'-');
    }
    if has_year_month {
        write_integer(fields.years, out);
        out.push(b'-');
        return write_integer(fields.months, out);
    }
    if fields.days != 0 {
        write_integer(fields.days, out);
        out.push(b' ');
    }
    write_clock(&fields, 1, out);
}
