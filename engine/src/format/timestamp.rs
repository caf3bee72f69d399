//! Dates and times in text, both ways, in the ISO forms that Postgres writes: `2026-01-31 23:59:59.123456+00`. No format strings and no
//! allocation, because event time is parsed for every row.

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

/// Days since 1970-01-01 of a civil date (proleptic Gregorian), if the date exists.
pub fn days_from_civil(year: i32, month: u32, day: u32) -> Option<i32> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(leap),
        _ => return None,
    };
    if day == 0 || day > length {
        return None;
    }
    // The year starts in March, so that the leap day is its last.
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    i32::try_from(era * 146_097 + day_of_era - 719_468).ok()
}

/// The civil date (year, month, day) of a number of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_index + 2) / 5 + 1) as u32;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Reads digits from the front of a text.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    fn number(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if count < least {
            return None;
        }
        let value = self.0[..count].iter().fold(0, |value, byte| value * 10 + u32::from(byte - b'0'));
        self.0 = &self.0[count..];
        Some(value)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }
}

/// Two digits at `at`; a value above 99 when one of them is none.
fn two(text: &[u8], at: usize) -> u32 {
    let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
    if tens > 9 || ones > 9 { 100 } else { u32::from(tens) * 10 + u32::from(ones) }
}

/// Remembers the last date read: event times of neighbouring rows are mostly of one day.
#[derive(Default)]
pub struct TimestampParser {
    date: [u8; 10],
    day_us: i64,
}

impl TimestampParser {
    /// Microseconds since 1970 of `YYYY-MM-DD[ HH:MM[:SS[.ffffff]]][Z|+HH[:MM]]`; `T` may stand for the space. Digits behind the sixth round.
    /// An offset is applied if `zoned`, else ignored as Postgres does for `timestamp`.
    pub fn parse(&mut self, text: &[u8], zoned: bool) -> Option<i64> {
        if text.len() >= 19 && (text[10] == b' ' || text[10] == b'T') && text[13] == b':' && text[16] == b':' {
            if text[..10] != self.date {
                self.day_us = i64::from(parse_date(&text[..10])?) * DAY_US;
                self.date.copy_from_slice(&text[..10]);
            }
            let (hour, minute, second) = (two(text, 11), two(text, 14), two(text, 17));
            if hour < 24 && minute < 60 && second < 60 {
                let seconds = i64::from(hour * 3600 + minute * 60 + second);
                let (fraction, rest) = fraction_us(&text[19..])?;
                let offset = offset_us(rest)?;
                return self.day_us.checked_add(seconds * 1_000_000 + fraction)?.checked_sub(if zoned { offset } else { 0 });
            }
        }
        parse_slowly(text.trim_ascii(), zoned)
    }
}

/// Microseconds of `.ffffff` at the front of a text (none: zero), and what follows.
fn fraction_us(text: &[u8]) -> Option<(i64, &[u8])> {
    if text.first() != Some(&b'.') {
        return Some((0, text));
    }
    let count = text[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut value = 0;
    for place in 0..6 {
        value = value * 10 + if place < count { i64::from(text[1 + place] - b'0') } else { 0 };
    }
    if count > 6 && text[7] >= b'5' {
        value += 1;
    }
    Some((value, &text[1 + count..]))
}

/// Microseconds east of UTC of what stands behind a time: nothing, `Z`, ` UTC`, `+HH`, `-HH:MM`, `+HHMM`.
fn offset_us(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    if text.is_empty() || text.eq_ignore_ascii_case(b"z") || text.eq_ignore_ascii_case(b"utc") {
        return Some(0);
    }
    let sign = match text[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let mut digits = Digits(&text[1..]);
    let hour = digits.number(1, 2)?;
    let minute = if digits.eat(b':') || !digits.0.is_empty() { digits.number(2, 2)? } else { 0 };
    let second = if digits.eat(b':') { digits.number(2, 2)? } else { 0 };
    (digits.0.is_empty() && hour < 16 && minute < 60 && second < 60)
        .then_some(sign * i64::from(hour * 3600 + minute * 60 + second) * 1_000_000)
}

/// The forms the fast path does not take: a date alone, `24:00:00`, second 60, a time without seconds, years of other lengths.
fn parse_slowly(text: &[u8], zoned: bool) -> Option<i64> {
    let separator = text.iter().position(|byte| matches!(byte, b' ' | b'T' | b't'));
    let (date, time) = match separator {
        Some(at) => (&text[..at], text[at + 1..].trim_ascii_start()),
        None => (text, &b""[..]),
    };
    let day_us = i64::from(parse_date(date)?).checked_mul(DAY_US)?;
    if time.is_empty() {
        return Some(day_us);
    }
    let (time_us, rest) = clock_us(time)?;
    let offset = offset_us(rest)?;
    day_us.checked_add(time_us)?.checked_sub(if zoned { offset } else { 0 })
}

/// Days since 1970 of `YYYY-MM-DD`.
pub fn parse_date(text: &[u8]) -> Option<i32> {
    let mut digits = Digits(text.trim_ascii());
    let year = digits.number(4, 6)?;
    if !digits.eat(b'-') {
        return None;
    }
    let month = digits.number(1, 2)?;
    if !digits.eat(b'-') {
        return None;
    }
    let day = digits.number(1, 2)?;
    if digits.0.is_empty() { days_from_civil(i32::try_from(year).ok()?, month, day) } else { None }
}

/// Microseconds since midnight of `HH:MM[:SS[.ffffff]]`.
pub fn parse_time(text: &[u8]) -> Option<i64> {
    let (time_us, rest) = clock_us(text.trim_ascii())?;
    (rest.is_empty() && time_us <= DAY_US).then_some(time_us)
}

fn clock_us(text: &[u8]) -> Option<(i64, &[u8])> {
    let mut digits = Digits(text);
    let hour = digits.number(1, 2)?;
    if !digits.eat(b':') {
        return None;
    }
    let minute = digits.number(2, 2)?;
    let second = if digits.eat(b':') { digits.number(2, 2)? } else { 0 };
    let (fraction, rest) = fraction_us(digits.0)?;
    let valid = minute < 60 && second <= 60 && (hour < 24 || (hour == 24 && minute == 0 && second == 0 && fraction == 0));
    valid.then_some((i64::from(hour * 3600 + minute * 60 + second) * 1_000_000 + fraction, rest))
}

/// Appends `YYYY-MM-DD`.
pub fn write_date(out: &mut String, days: i64) {
    use std::fmt::Write;
    let (year, month, day) = civil_from_days(days);
    let written =
        if year > 0 { write!(out, "{year:04}-{month:02}-{day:02}") } else { write!(out, "{:04}-{month:02}-{day:02} BC", 1 - year) };
    written.expect("writing into a string does not fail");
}

/// Appends `HH:MM:SS[.ffffff]`, without trailing zeros in the fraction.
pub fn write_time(out: &mut String, micros: i64) {
    use std::fmt::Write;
    let (second, fraction) = (micros / 1_000_000, micros % 1_000_000);
    write!(out, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60).expect("writing into a string does not fail");
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

/// Appends `YYYY-MM-DD HH:MM:SS[.ffffff]`, and `+00` if `zoned`.
pub fn write_timestamp(out: &mut String, micros: i64, zoned: bool) {
    let days = micros.div_euclid(DAY_US);
    let mut date = String::new();
    write_date(&mut date, days);
    let (date, era) = date.strip_suffix(" BC").map_or((date.as_str(), ""), |date| (date, " BC"));
    out.push_str(date);
    out.push(' ');
    write_time(out, micros.rem_euclid(DAY_US));
    if zoned {
        out.push_str("+00");
    }
    out.push_str(era);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, zoned: bool) -> Option<String> {
        let micros = TimestampParser::default().parse(text.as_bytes(), zoned)?;
        let mut out = String::new();
        write_timestamp(&mut out, micros, zoned);
        Some(out)
    }

    #[test]
    fn timestamps_in_every_accepted_form() {
        for (text, zoned, expected) in [
            ("2026-01-01 00:00:00.123", false, Some("2026-01-01 00:00:00.123")),
            ("2026-01-01T00:00:00", false, Some("2026-01-01 00:00:00")),
            ("2026-01-01T00:00:00Z", true, Some("2026-01-01 00:00:00+00")),
            ("2026-01-01 12:30:00+02", true, Some("2026-01-01 10:30:00+00")),
            ("2026-01-01 12:30:00.5-03:30", true, Some("2026-01-01 16:00:00.5+00")),
            ("2026-01-01 12:30:00+02", false, Some("2026-01-01 12:30:00")),
            ("1969-12-31 23:59:59.999999", false, Some("1969-12-31 23:59:59.999999")),
            ("2024-02-29", false, Some("2024-02-29 00:00:00")),
            ("2023-12-31 24:00:00", false, Some("2024-01-01 00:00:00")),
            ("2023-12-31 7:05", false, Some("2023-12-31 07:05:00")),
            ("2023-12-31 00:00:00.1234567", false, Some("2023-12-31 00:00:00.123457")),
            ("2023-02-29", false, None),
            ("2023-13-01 00:00:00", false, None),
            ("2023-12-01 25:00:00", false, None),
            ("2023-12-01 00:00:00 nonsense", false, None),
            ("yesterday", false, None),
            ("", false, None),
        ] {
            assert_eq!(parse(text, zoned).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_remembered_date_is_not_confused() {
        let mut parser = TimestampParser::default();
        let first = parser.parse(b"2026-01-01 00:00:01", false);
        assert_eq!(parser.parse(b"2026-99-01 00:00:01", false), None);
        assert_eq!(parser.parse(b"2026-01-01 00:00:01", false), first);
    }

    #[test]
    fn dates_round_trip_over_the_whole_range() {
        for days in (-719_000..2_900_000).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(i32::try_from(year).unwrap(), month, day).map(i64::from), Some(days));
        }
        assert_eq!(days_from_civil(1970, 1, 1), Some(0));
        assert_eq!(days_from_civil(2000, 3, 1), Some(11_017));
    }

    #[test]
    fn times() {
        assert_eq!(parse_time(b"23:59:59.5"), Some(86_399_500_000));
        assert_eq!(parse_time(b"24:00:00"), Some(DAY_US));
        assert_eq!(parse_time(b"24:00:01"), None);
        let mut out = String::new();
        write_time(&mut out, 3_661_000_100);
        assert_eq!(out, "01:01:01.0001");
    }
}
