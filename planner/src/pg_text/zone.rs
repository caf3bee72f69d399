//! Time zones: from UTC to local time and back, with Postgres' rules for the repeated and the missing hour.

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::{OffsetName, Tz};

use super::calendar::{self, MICROS_PER_SECOND};
use super::zone_abbreviations::abbreviation_offset;

/// Zone rules are tabulated up to this year; later years repeat an earlier year with the same calendar.
const LAST_TABULATED_YEAR: i64 = 2099;

/// A time zone of a session or an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zone {
    /// A zone with rules.
    Named(Tz),
    /// A constant offset, in seconds east of Greenwich.
    Fixed(i32),
}

impl Zone {
    /// The zone without offset.
    pub fn utc() -> Self {
        Self::Named(Tz::UTC)
    }

    /// Whether local time is UTC at all times.
    pub fn is_utc(&self) -> bool {
        matches!(self, Self::Named(Tz::UTC | Tz::Etc__UTC | Tz::GMT | Tz::Etc__GMT | Tz::UCT | Tz::Zulu) | Self::Fixed(0))
    }

    /// What `SET TimeZone` takes: a zone name in any case, hours east (`-7`, `5.5`), or a POSIX offset, which counts west (`UTC+3`).
    pub fn parse(name: &str) -> Option<Self> {
        let name = name.trim();
        if let Ok(hours) = name.parse::<f64>() {
            let seconds = (hours * 3600.0).round();
            return (seconds.abs() < 168.0 * 3600.0).then_some(Self::Fixed(seconds as i32));
        }
        if let Some(tz) = find_name(name) {
            return Some(Self::Named(tz));
        }
        parse_posix(name)
    }

    /// What `AT TIME ZONE` and date literals take: an abbreviation first, then everything [`Zone::parse`] takes.
    ///
    /// Unlike in SET, a number alone is a POSIX offset here too, which counts west.
    pub fn parse_with_abbreviations(name: &str) -> Option<Self> {
        let name = name.trim();
        if name.starts_with(['+', '-']) || name.starts_with(|first: char| first.is_ascii_digit()) {
            return parse_posix(name);
        }
        if let Some(seconds) = abbreviation_offset(&name.to_ascii_lowercase()) {
            return Some(Self::Fixed(seconds));
        }
        Self::parse(name)
    }

    /// The name `SHOW TimeZone` gives.
    pub fn name(&self) -> String {
        match self {
            Self::Named(tz) => tz.name().to_string(),
            Self::Fixed(seconds) => {
                let mut text = b"<".to_vec();
                write_offset(*seconds, &mut text);
                text.push(b'>');
                // POSIX counts westwards.
                write_offset(-*seconds, &mut text);
                String::from_utf8_lossy(&text).into_owned()
            }
        }
    }

    /// Seconds east of Greenwich at an instant (microseconds since 1970, UTC).
    pub fn offset_at(&self, utc_us: i64) -> i32 {
        match self {
            Self::Fixed(seconds) => *seconds,
            Self::Named(Tz::UTC) => 0,
            Self::Named(tz) => match DateTime::from_timestamp(tabulated_seconds(utc_us.div_euclid(MICROS_PER_SECOND)), 0) {
                Some(instant) => tz.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc(),
                None => 0,
            },
        }
    }

    /// The name in force at an instant, as `PST`; empty when the zone has none.
    pub fn abbreviation_at(&self, utc_us: i64) -> String {
        match self {
            Self::Fixed(_) => String::new(),
            Self::Named(tz) => DateTime::from_timestamp(tabulated_seconds(utc_us.div_euclid(MICROS_PER_SECOND)), 0)
                .and_then(|instant| tz.offset_from_utc_datetime(&instant.naive_utc()).abbreviation().map(str::to_string))
                .unwrap_or_default(),
        }
    }

    /// Local time of an instant, both in microseconds since 1970. None when it leaves the range.
    pub fn to_local(&self, utc_us: i64) -> Option<i64> {
        utc_us.checked_add(i64::from(self.offset_at(utc_us)) * MICROS_PER_SECOND)
    }

    /// The instant of a local time. A local time that never was (clocks went forward) takes the offset before the change; one that was
    /// twice (clocks went back) takes the offset after it. None when it leaves the range.
    pub fn to_utc(&self, local_us: i64) -> Option<i64> {
        let instant = |offset: i32| local_us.checked_sub(i64::from(offset) * MICROS_PER_SECOND);
        if let Self::Fixed(seconds) = self {
            return instant(*seconds);
        }
        let before = self.offset_at(local_us.saturating_sub(calendar::MICROS_PER_DAY));
        let after = self.offset_at(local_us.saturating_add(calendar::MICROS_PER_DAY));
        if before == after {
            return instant(before);
        }
        let with_after = instant(after)?;
        if self.offset_at(with_after) == after { Some(with_after) } else { instant(before) }
    }
}

/// `+05:30`, `-08`, `-05:50:36`.
pub(super) fn write_offset(seconds_east: i32, out: &mut Vec<u8>) {
    out.push(if seconds_east < 0 { b'-' } else { b'+' });
    let seconds = seconds_east.unsigned_abs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    super::integer::write_padded(u64::from(hours), 2, out);
    if minutes != 0 || seconds != 0 {
        out.push(b':');
        super::integer::write_padded(u64::from(minutes), 2, out);
    }
    if seconds != 0 {
        out.push(b':');
        super::integer::write_padded(u64::from(seconds), 2, out);
    }
}

/// Moves an instant after the tables' end to a year with the same calendar inside them.
fn tabulated_seconds(utc_seconds: i64) -> i64 {
    let days = utc_seconds.div_euclid(86_400);
    if days < calendar::days_from_civil(LAST_TABULATED_YEAR + 1, 1, 1) {
        return utc_seconds;
    }
    let (year, _, _) = calendar::civil_from_days(days);
    let first = calendar::days_from_civil(year, 1, 1);
    let same_calendar = (LAST_TABULATED_YEAR - 27..=LAST_TABULATED_YEAR).find(|&candidate| {
        let candidate_first = calendar::days_from_civil(candidate, 1, 1);
        calendar::is_leap_year(candidate) == calendar::is_leap_year(year) && calendar::weekday(candidate_first) == calendar::weekday(first)
    });
    let candidate = same_calendar.expect("28 years in a row without a missing leap day hold all fourteen calendars");
    utc_seconds - (first - calendar::days_from_civil(candidate, 1, 1)) * 86_400
}

fn find_name(name: &str) -> Option<Tz> {
    name.parse::<Tz>().ok().or_else(|| chrono_tz::TZ_VARIANTS.iter().find(|tz| tz.name().eq_ignore_ascii_case(name)).copied())
}

/// `UTC+3`, `<+0530>-5:30`, `-03:00`: a name of letters or in angle brackets, which may be missing, then hours west.
fn parse_posix(name: &str) -> Option<Zone> {
    let rest = match name.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?.1,
        None => {
            let letters = name.bytes().take_while(u8::is_ascii_alphabetic).count();
            &name[letters..]
        }
    };
    let (sign, digits) = match rest.as_bytes().first()? {
        b'-' => (1, &rest[1..]),
        b'+' => (-1, &rest[1..]),
        b'0'..=b'9' => (-1, rest),
        _ => return None,
    };
    let mut seconds = 0;
    let mut unit = 3600;
    for part in digits.split(':') {
        if unit == 0 || part.is_empty() || part.len() > 3 {
            return None;
        }
        seconds += part.parse::<u16>().ok().map(i32::from)? * unit;
        unit /= 60;
    }
    (seconds <= 167 * 3600).then_some(Zone::Fixed(sign * seconds))
}
