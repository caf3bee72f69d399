//! `to_date` and `to_timestamp`: text read by a pattern.

use arrow::{
    array::ArrayRef,
    datatypes::{Date32Type, TimestampMicrosecondType},
};

use super::{
    super::{datetime, kernel::Call},
    fields::{DAYS, MONTHS, ROMAN_MONTHS},
    pattern::{Field, Piece, pieces},
};
use crate::{
    error::{PlanError, Result, sqlstate},
    pg_text::{MICROS_PER_DAY, MICROS_PER_SECOND, days_from_civil, days_in_month},
};

/// Day of 1970-01-01 in the count of Julian days.
const JULIAN_OF_EPOCH: i64 = 2_440_588;

pub(super) fn date(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, patterns) = (call.texts(0)?, call.texts(1)?);
    let constant = patterns.constant().map(pieces);
    call.build::<Date32Type>(|row| {
        let (Some(text), Some(pattern)) = (texts.get(row), patterns.get(row)) else { return Ok(None) };
        let parts = match &constant {
            Some(pieces) => Reader::read(text, pieces)?,
            None => Reader::read(text, &pieces(pattern))?,
        };
        i32::try_from(parts.days(text)?).map(Some).map_err(|_| out_of_range(text))
    })
}

pub(super) fn timestamptz(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, patterns) = (call.texts(0)?, call.texts(1)?);
    let constant = patterns.constant().map(pieces);
    let zone = &call.environment().text.time_zone;
    call.build::<TimestampMicrosecondType>(|row| {
        let (Some(text), Some(pattern)) = (texts.get(row), patterns.get(row)) else { return Ok(None) };
        let parts = match &constant {
            Some(pieces) => Reader::read(text, pieces)?,
            None => Reader::read(text, &pieces(pattern))?,
        };
        let local = parts.days(text)? * MICROS_PER_DAY + parts.time(text)?;
        match parts.offset() {
            Some(seconds) => Ok(Some(local - seconds * MICROS_PER_SECOND)),
            None => datetime::to_utc(zone, local).map(Some),
        }
    })
}

fn out_of_range(text: &str) -> PlanError {
    PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

fn invalid(found: &str, name: &str, detail: impl Into<String>) -> PlanError {
    let message = format!("invalid value \"{found}\" for \"{name}\"");
    PlanError::new(sqlstate::INVALID_DATETIME_FORMAT, message).with_detail(detail)
}

/// What was read.
#[derive(Debug, Default)]
struct Parts {
    hour: Option<i64>,
    twelve_hours: bool,
    afternoon: Option<bool>,
    minute: Option<i64>,
    second: Option<i64>,
    second_of_day: Option<i64>,
    micros: i64,
    year: Option<i64>,
    before_christ: bool,
    century: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    week_of_year: Option<i64>,
    week_of_month: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_weekday: Option<i64>,
    julian: Option<i64>,
    zone_sign: i64,
    zone_hours: Option<i64>,
    zone_minutes: Option<i64>,
}

/// Sets a part, which may be there twice only with one value.
fn set(part: &mut Option<i64>, value: i64, name: &str) -> Result<()> {
    match part {
        Some(other) if *other != value => {
            let message = format!("conflicting values for \"{name}\" field in formatting string");
            Err(PlanError::new(sqlstate::INVALID_DATETIME_FORMAT, message)
                .with_detail("This value contradicts a previous setting for the same field type."))
        }
        _ => {
            *part = Some(value);
            Ok(())
        }
    }
}

impl Parts {
    /// Seconds east of Greenwich, if the text says them.
    fn offset(&self) -> Option<i64> {
        (self.zone_hours.is_some() || self.zone_minutes.is_some())
            .then(|| self.zone_sign * (self.zone_hours.unwrap_or(0) * 3_600 + self.zone_minutes.unwrap_or(0) * 60))
    }

    /// Microseconds since midnight.
    fn time(&self, text: &str) -> Result<i64> {
        if let Some(second) = self.second_of_day {
            if !(0..86_400).contains(&second) {
                return Err(out_of_range(text));
            }
            return Ok(second * MICROS_PER_SECOND + self.micros);
        }
        let mut hour = self.hour.unwrap_or(0);
        if self.twelve_hours && self.hour.is_some() {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                return Err(PlanError::new(sqlstate::INVALID_DATETIME_FORMAT, message)
                    .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + if self.afternoon == Some(true) { 12 } else { 0 };
        }
        let (minute, second) = (self.minute.unwrap_or(0), self.second.unwrap_or(0));
        if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..60).contains(&second) {
            return Err(out_of_range(text));
        }
        Ok((hour * 3_600 + minute * 60 + second) * MICROS_PER_SECOND + self.micros)
    }

    fn year(&self) -> i64 {
        match (self.year.or(self.iso_year), self.century) {
            (Some(year), _) if self.before_christ && year > 0 => 1 - year,
            (Some(year), _) => year,
            (None, Some(century)) => (century - 1) * 100 + 1,
            (None, None) => 0,
        }
    }

    /// Days since 1970.
    fn days(&self, text: &str) -> Result<i64> {
        if let Some(julian) = self.julian {
            return Ok(julian - JULIAN_OF_EPOCH);
        }
        let year = self.year();
        if !(-4_713..=294_276).contains(&year) {
            return Err(out_of_range(text));
        }
        if let Some(week) = self.iso_week {
            let fourth = days_from_civil(year, 1, 4);
            let monday = fourth - (fourth + 3).rem_euclid(7);
            return Ok(monday + (week - 1) * 7 + self.iso_weekday.unwrap_or(1) - 1);
        }
        let day_of_year = self.day_of_year.or(self.week_of_year.map(|week| (week - 1) * 7 + 1));
        if let Some(number) = day_of_year
            && (self.month.is_none() || self.day.is_none())
        {
            let (first, next) = (days_from_civil(year, 1, 1), days_from_civil(year + 1, 1, 1));
            return if (1..=next - first).contains(&number) { Ok(first + number - 1) } else { Err(out_of_range(text)) };
        }
        let month = self.month.unwrap_or(1);
        let day = self.day.or(self.week_of_month.map(|week| (week - 1) * 7 + 1)).unwrap_or(1);
        if !(1..=12).contains(&month) || !(1..=i64::from(days_in_month(year, month as u32))).contains(&day) {
            return Err(out_of_range(text));
        }
        Ok(days_from_civil(year, month as u32, day as u32))
    }
}

/// A text on the way through a pattern.
struct Reader<'t> {
    rest: &'t str,
    /// Blanks passed over that the pattern did not ask for.
    extra: usize,
    /// The separator that was passed over last.
    separator: Option<char>,
    exact: bool,
    parts: Parts,
}

impl<'t> Reader<'t> {
    fn read(text: &'t str, pieces: &[Piece]) -> Result<Parts> {
        let mut reader = Self { rest: text, extra: 0, separator: None, exact: false, parts: Parts::default() };
        for (index, piece) in pieces.iter().enumerate() {
            if reader.rest.is_empty() {
                break;
            }
            if !reader.exact && (index == 0 || matches!(piece, Piece::Field { .. })) {
                reader.skip_blanks();
            }
            match piece {
                Piece::Exact => reader.exact = true,
                Piece::Space(_) | Piece::Separator(_) => reader.separator(),
                Piece::Character(_) if reader.exact || reader.extra == 0 => reader.skip_one(),
                Piece::Character(_) => reader.extra -= 1,
                Piece::Field { field, name, fill, ordinal, .. } => {
                    let free = *fill || ends_number(pieces.get(index + 1));
                    reader.field(*field, name, free)?;
                    if ordinal.is_some() {
                        reader.skip_one();
                        reader.skip_one();
                    }
                    if !reader.exact {
                        reader.extra = 0;
                        reader.skip_blanks();
                    }
                }
            }
        }
        Ok(reader.parts)
    }

    fn skip_one(&mut self) {
        let mut characters = self.rest.chars();
        characters.next();
        self.rest = characters.as_str();
    }

    fn skip_blanks(&mut self) {
        let trimmed = self.rest.trim_start();
        self.extra += self.rest.chars().count() - trimmed.chars().count();
        self.rest = trimmed;
    }

    /// A separator of the pattern passes over one of the text, or over nothing.
    fn separator(&mut self) {
        let found = self.rest.starts_with(|first: char| first.is_whitespace() || first.is_ascii_punctuation());
        if self.exact || found {
            self.separator = self.rest.chars().next();
            self.skip_one();
        } else {
            self.extra = self.extra.saturating_sub(1);
        }
    }

    /// A number of `width` digits, or of as many as there are. How many digits it had comes with it.
    fn number(&mut self, width: usize, name: &str, free: bool) -> Result<(i64, usize)> {
        if !self.exact {
            self.rest = self.rest.trim_start();
        }
        let signed = self.rest.starts_with(['-', '+']);
        let limit = if free { usize::MAX } else { width };
        let length = usize::from(signed) + self.rest[usize::from(signed)..].bytes().take_while(u8::is_ascii_digit).count();
        let length = length.min(limit);
        let digits = &self.rest[..length];
        if !free && self.rest.chars().count() < width {
            let message = format!("source string too short for \"{name}\" formatting field");
            return Err(PlanError::new(sqlstate::INVALID_DATETIME_FORMAT, message)
                .with_detail(format!("Field requires {width} characters, but only {} remain.", self.rest.chars().count()))
                .with_hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
        }
        let shown: String = self.rest.chars().take(width).collect();
        if length == 0 || digits == "-" || digits == "+" {
            return Err(invalid(&shown, name, "Value must be an integer."));
        }
        if !free && length < width {
            let detail = format!("Field requires {width} characters, but only {length} could be parsed.");
            return Err(invalid(&shown, name, detail).with_hint("If your source string is not fixed-width, try using the \"FM\" modifier."));
        }
        let value: i64 = digits.parse().ok().filter(|value: &i64| i32::try_from(*value).is_ok()).ok_or_else(|| {
            PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, format!("value for \"{name}\" in source string is out of range"))
                .with_detail("Value must be in the range -2147483648 to 2147483647.")
        })?;
        self.rest = &self.rest[length..];
        Ok((value, length - usize::from(signed)))
    }

    /// One of several names, in letters of any case; its number.
    fn name(&mut self, names: &[&str], name: &str) -> Result<usize> {
        let matches = |candidate: &&str| self.rest.get(..candidate.len()).is_some_and(|start| start.eq_ignore_ascii_case(candidate));
        let found = names.iter().enumerate().filter(|(_, candidate)| matches(candidate)).max_by_key(|(_, candidate)| candidate.len());
        let Some((index, candidate)) = found else {
            let shown: String = self.rest.chars().take_while(|character| !character.is_whitespace()).collect();
            return Err(invalid(&shown, name, "The given value did not match any of the allowed values for this field."));
        };
        self.rest = &self.rest[candidate.len()..];
        Ok(index)
    }

    fn field(&mut self, field: Field, name: &'static str, free: bool) -> Result<()> {
        match field {
            Field::Hour12 | Field::Hour24 => {
                self.parts.twelve_hours |= field == Field::Hour12;
                let value = self.number(2, name, free)?.0;
                set(&mut self.parts.hour, value, name)
            }
            Field::Meridiem(dots) => {
                let names: [&str; 2] = if dots { ["A.M.", "P.M."] } else { ["AM", "PM"] };
                self.parts.afternoon = Some(self.name(&names, name)? == 1);
                self.parts.twelve_hours = true;
                Ok(())
            }
            Field::Minute => self.number(2, name, free).and_then(|(value, _)| set(&mut self.parts.minute, value, name)),
            Field::Second => self.number(2, name, free).and_then(|(value, _)| set(&mut self.parts.second, value, name)),
            Field::SecondsOfDay => self.number(5, name, free).and_then(|(value, _)| set(&mut self.parts.second_of_day, value, name)),
            Field::Millisecond => self.fraction(3, name, free),
            Field::Microsecond => self.fraction(6, name, free),
            Field::Fraction(digits) => self.fraction(digits.into(), name, free),
            Field::ZoneHours => {
                // A minus may have been taken for the separator before it.
                let taken = self.extra > 0 && self.separator == Some('-');
                self.parts.zone_sign = if self.rest.starts_with('-') || taken { -1 } else { 1 };
                if self.rest.starts_with(['-', '+', ' ']) {
                    self.skip_one();
                }
                self.number(2, name, free).and_then(|(value, _)| set(&mut self.parts.zone_hours, value, name))
            }
            Field::ZoneMinutes => {
                if self.parts.zone_sign == 0 {
                    self.parts.zone_sign = 1;
                }
                self.number(2, name, free).and_then(|(value, _)| set(&mut self.parts.zone_minutes, value, name))
            }
            Field::ZoneName | Field::ZoneOffset => {
                Err(PlanError::unsupported(format!("formatting field \"{name}\" is only supported in to_char")))
            }
            other => self.date_field(other, name, free),
        }
    }

    /// `25` and `250` are both a quarter of a second.
    fn fraction(&mut self, width: usize, name: &str, free: bool) -> Result<()> {
        let (value, digits) =
            if free || self.rest.len() >= width { self.number(width, name, true)? } else { self.number(width, name, free)? };
        let digits = u32::try_from(digits.min(9)).unwrap_or(9);
        self.parts.micros = value * 10_i64.pow(9 - digits) / 1_000;
        Ok(())
    }

    fn date_field(&mut self, field: Field, name: &'static str, free: bool) -> Result<()> {
        let parts = |width: usize, reader: &mut Self| reader.number(width, name, free).map(|(value, _)| value);
        match field {
            Field::Year(digits) | Field::IsoYear(digits) => {
                let (value, read) = self.number(digits.into(), name, free)?;
                let value = if digits < 4 && read <= usize::from(digits) { nearest_year(value) } else { value };
                set(if matches!(field, Field::Year(_)) { &mut self.parts.year } else { &mut self.parts.iso_year }, value, name)
            }
            Field::YearWithComma => {
                let (thousands, _) = self.number(3, name, true)?;
                if self.rest.starts_with(',') {
                    self.skip_one();
                }
                let (rest, _) = self.number(3, name, false)?;
                set(&mut self.parts.year, thousands * 1_000 + rest, name)
            }
            Field::Era(dots) => {
                let names: [&str; 2] = if dots { ["A.D.", "B.C."] } else { ["AD", "BC"] };
                self.parts.before_christ = self.name(&names, name)? == 1;
                Ok(())
            }
            Field::MonthName => {
                let month = self.name(&MONTHS, name)?;
                set(&mut self.parts.month, month as i64 + 1, name)
            }
            Field::MonthShort => {
                let short = MONTHS.map(|month| &month[..3]);
                let month = self.name(&short, name)?;
                set(&mut self.parts.month, month as i64 + 1, name)
            }
            Field::RomanMonth => {
                let month = self.name(&ROMAN_MONTHS, name)?;
                set(&mut self.parts.month, month as i64 + 1, name)
            }
            // The day of the week follows from the date.
            Field::DayName => self.name(&DAYS, name).map(|_| ()),
            Field::DayShort => self.name(&DAYS.map(|day| &day[..3]), name).map(|_| ()),
            Field::DayOfWeek | Field::Quarter => parts(1, self).map(|_| ()),
            Field::Month => parts(2, self).and_then(|value| set(&mut self.parts.month, value, name)),
            Field::Day => parts(2, self).and_then(|value| set(&mut self.parts.day, value, name)),
            Field::DayOfYear => parts(3, self).and_then(|value| set(&mut self.parts.day_of_year, value, name)),
            Field::WeekOfYear => parts(2, self).and_then(|value| set(&mut self.parts.week_of_year, value, name)),
            Field::WeekOfMonth => parts(1, self).and_then(|value| set(&mut self.parts.week_of_month, value, name)),
            Field::IsoWeek => parts(2, self).and_then(|value| set(&mut self.parts.iso_week, value, name)),
            Field::IsoDayOfWeek => parts(1, self).and_then(|value| set(&mut self.parts.iso_weekday, value, name)),
            Field::IsoDayOfYear => {
                let value = parts(3, self)?;
                set(&mut self.parts.iso_week, (value - 1).div_euclid(7) + 1, name)?;
                set(&mut self.parts.iso_weekday, (value - 1).rem_euclid(7) + 1, name)
            }
            Field::Century => parts(2, self).and_then(|value| set(&mut self.parts.century, value, name)),
            Field::Julian => self.number(7, name, true).and_then(|(value, _)| set(&mut self.parts.julian, value, name)),
            _ => Ok(()),
        }
    }
}

/// Whether a number ends at the next piece whatever its width.
fn ends_number(next: Option<&Piece>) -> bool {
    match next {
        None => true,
        Some(Piece::Field { field, .. }) => !field.is_number(),
        Some(Piece::Character(character)) => !character.is_ascii_digit(),
        Some(_) => true,
    }
}

/// A year of less than four digits is the nearest one to 2020.
fn nearest_year(year: i64) -> i64 {
    match year {
        0..70 => year + 2_000,
        70..100 => year + 1_900,
        100..520 => year + 2_000,
        520..1_000 => year + 1_000,
        _ => year,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg_text::civil_from_days;

    #[test]
    fn fields_are_read_where_they_stand() {
        let read = |text: &str, pattern: &str| Reader::read(text, &pieces(pattern)).unwrap();
        let date = |text: &str, pattern: &str| civil_from_days(read(text, pattern).days(text).unwrap());
        assert_eq!(date("20311105", "YYYYMMDD"), (2031, 11, 5));
        assert_eq!(date("5 november 31", "DD Month YY"), (2031, 11, 5));
        assert_eq!(date("2031/309", "YYYY-DDD"), (2031, 11, 5));
        assert_eq!(date("2031-W45-3", "IYYY-\"W\"IW-ID"), (2031, 11, 5));
        assert_eq!(date("44 BC 03 15", "YYYY BC MM DD"), (-43, 3, 15));
        assert_eq!(read("03:04:05.25 PM", "HH:MI:SS.MS PM").time("").unwrap(), (15 * 3_600 + 245) * 1_000_000 + 250_000);
        assert!(Reader::read("xx", &pieces("DD")).is_err());
    }
}
