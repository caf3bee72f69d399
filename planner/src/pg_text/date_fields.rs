//! What the numbers and words of a date mean: calendar fields collected one after the other.

use super::calendar::{civil_from_days, days_from_civil, days_in_month};
use super::date_tokens::DateError;
use super::settings::DateOrder;
use super::zone::Zone;

pub(super) const YEAR: u8 = 1;
pub(super) const MONTH: u8 = 2;
pub(super) const DAY: u8 = 4;
pub(super) const DATE: u8 = YEAR | MONTH | DAY;
pub(super) const TIME: u8 = 8;
pub(super) const ZONE: u8 = 16;
const DAY_OF_YEAR: u8 = 32;

/// A word that means something in dates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Month(u32),
    Weekday,
    Am,
    Pm,
    Ad,
    Bc,
    Now,
    Today,
    Tomorrow,
    Yesterday,
    Epoch,
    Infinity,
    NegativeInfinity,
    /// `allballs`: 00:00:00 UTC.
    Midnight,
    /// `t` between date and time.
    TimeFollows,
    /// `j` before a Julian day.
    Julian,
    /// `at`, `on`.
    Filler,
}

/// The meaning of a word in lower case.
pub(super) fn keyword(word: &str) -> Option<Keyword> {
    Some(match word {
        "jan" | "january" => Keyword::Month(1),
        "feb" | "february" => Keyword::Month(2),
        "mar" | "march" => Keyword::Month(3),
        "apr" | "april" => Keyword::Month(4),
        "may" => Keyword::Month(5),
        "jun" | "june" => Keyword::Month(6),
        "jul" | "july" => Keyword::Month(7),
        "aug" | "august" => Keyword::Month(8),
        "sep" | "sept" | "september" => Keyword::Month(9),
        "oct" | "october" => Keyword::Month(10),
        "nov" | "november" => Keyword::Month(11),
        "dec" | "december" => Keyword::Month(12),
        "sun" | "sunday" | "mon" | "monday" | "tue" | "tues" | "tuesday" | "wed" | "weds" | "wednesday" | "thu" | "thur" | "thurs"
        | "thursday" | "fri" | "friday" | "sat" | "saturday" => Keyword::Weekday,
        "am" => Keyword::Am,
        "pm" => Keyword::Pm,
        "ad" => Keyword::Ad,
        "bc" => Keyword::Bc,
        "now" => Keyword::Now,
        "today" => Keyword::Today,
        "tomorrow" => Keyword::Tomorrow,
        "yesterday" => Keyword::Yesterday,
        "epoch" => Keyword::Epoch,
        "infinity" | "+infinity" => Keyword::Infinity,
        "-infinity" => Keyword::NegativeInfinity,
        "allballs" => Keyword::Midnight,
        "t" => Keyword::TimeFollows,
        "j" | "jd" | "julian" => Keyword::Julian,
        "at" | "on" => Keyword::Filler,
        _ => return None,
    })
}

/// Whether a digit right behind a word begins a field of its own: `jan5`, `t0405`, `2h3m`, but not `utc+3`.
pub(super) fn stands_alone(word: &str) -> bool {
    keyword(word).is_some() || matches!(word, "d" | "h" | "m" | "mm" | "s" | "y")
}

/// Calendar fields as they come in.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) seen: u8,
    pub(super) year: i64,
    pub(super) month: u32,
    pub(super) day: u32,
    day_of_year: u32,
    pub(super) two_digit_year: bool,
    pub(super) text_month: bool,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) micros: i64,
    pub(super) zone: Option<Zone>,
}

impl Fields {
    /// Notes that a field has come; twice is an error.
    pub(super) fn mark(&mut self, fields: u8) -> Result<(), DateError> {
        if self.seen & fields != 0 {
            return Err(DateError::BadFormat);
        }
        self.seen |= fields;
        Ok(())
    }

    /// Microseconds since midnight.
    pub(super) fn time_micros(&self) -> i64 {
        ((self.hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros
    }

    /// A month's name. After `5` as a month in `5 Jan`, the 5 was the day.
    pub(super) fn take_month_name(&mut self, month: u32) -> Result<(), DateError> {
        if self.seen & MONTH != 0 && !self.text_month && self.seen & DAY == 0 && (1..=31).contains(&self.month) {
            self.day = self.month;
            self.mark(DAY)?;
        } else {
            self.mark(MONTH)?;
        }
        self.text_month = true;
        self.month = month;
        Ok(())
    }

    /// `1999-01-08`, `8/1/99`, `08-Jan-1999`.
    pub(super) fn take_date(&mut self, text: &str, order: DateOrder) -> Result<(), DateError> {
        let parts: Vec<&str> = split_alternating(text);
        self.text_month = false;
        for part in parts.iter().filter(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())) {
            match keyword(part) {
                Some(Keyword::Month(month)) => {
                    self.mark(MONTH)?;
                    self.month = month;
                    self.text_month = true;
                }
                Some(Keyword::Filler) => {}
                _ => return Err(DateError::BadFormat),
            }
        }
        for part in parts.iter().filter(|part| part.starts_with(|c: char| c.is_ascii_digit())) {
            self.take_number(part, order)?;
        }
        if self.seen & DATE == DATE { Ok(()) } else { Err(DateError::BadFormat) }
    }

    /// One number of a date: which field it is follows from those before it and from `DateStyle`.
    pub(super) fn take_number(&mut self, text: &str, order: DateOrder) -> Result<(), DateError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        if digits < text.len() {
            // 2001.360 is a year and its day, 040506.789 a time.
            return if digits > 2 { self.take_run_together(text) } else { Err(DateError::BadFormat) };
        }
        let value: i64 = text.parse().map_err(|_| DateError::FieldOverflow)?;
        let small = u32::try_from(value.min(1 << 30)).unwrap_or(u32::MAX);
        let length = text.len();
        if length == 3 && self.seen & DATE == YEAR && (1..=366).contains(&value) {
            self.day_of_year = small;
            return self.mark(DAY_OF_YEAR | MONTH | DAY);
        }
        match self.seen & DATE {
            0 if length >= 3 || order == DateOrder::Ymd => self.take_year(value, length),
            0 if order == DateOrder::Dmy => self.take_day(small),
            0 | YEAR | DAY => {
                self.month = small;
                self.mark(MONTH)
            }
            MONTH if self.text_month && (length >= 3 || order == DateOrder::Ymd) => self.take_year(value, length),
            MONTH => self.take_day(small),
            seen if seen == YEAR | MONTH => {
                if self.text_month && length >= 3 && self.two_digit_year {
                    // In 08-Jan-1999 the first number was the day after all.
                    self.day = u32::try_from(self.year).map_err(|_| DateError::FieldOverflow)?;
                    self.year = value;
                    self.two_digit_year = false;
                    return self.mark(DAY);
                }
                self.take_day(small)
            }
            seen if seen == MONTH | DAY => self.take_year(value, length),
            seen if seen == DATE => self.take_run_together(text),
            _ => Err(DateError::BadFormat),
        }
    }

    fn take_year(&mut self, year: i64, length: usize) -> Result<(), DateError> {
        self.year = year;
        self.two_digit_year = length <= 2;
        self.mark(YEAR)
    }

    fn take_day(&mut self, day: u32) -> Result<(), DateError> {
        self.day = day;
        self.mark(DAY)
    }

    /// `20011225`, `991225`, `040506.789`, `0405`, `20011225040506.7`.
    pub(super) fn take_run_together(&mut self, text: &str) -> Result<(), DateError> {
        let (digits, fraction) = text.split_once('.').map_or((text, None), |(digits, fraction)| (digits, Some(fraction)));
        let mut digits = digits;
        if let Some(fraction) = fraction {
            self.micros = parse_fraction(fraction)?;
            if self.seen & DATE != DATE && digits.len() > 6 {
                let (date, time) = digits.split_at(digits.len() - 6);
                self.take_packed_date(date)?;
                digits = time;
            }
        } else if self.seen & DATE != DATE && digits.len() >= 6 {
            return self.take_packed_date(digits);
        }
        if self.seen & TIME != 0 {
            return Err(DateError::BadFormat);
        }
        let two = |at: usize| digits.get(at..at + 2).and_then(|pair| pair.parse().ok()).unwrap_or(0);
        match digits.len() {
            6 => (self.hour, self.minute, self.second) = (two(0), two(2), two(4)),
            4 if fraction.is_none() => (self.hour, self.minute, self.second) = (two(0), two(2), 0),
            _ => return Err(DateError::BadFormat),
        }
        self.check_time()?;
        self.mark(TIME)
    }

    fn take_packed_date(&mut self, digits: &str) -> Result<(), DateError> {
        if digits.len() < 6 {
            return Err(DateError::BadFormat);
        }
        let (year, month_day) = digits.split_at(digits.len() - 4);
        self.mark(DATE)?;
        self.year = year.parse().map_err(|_| DateError::FieldOverflow)?;
        self.two_digit_year = year.len() == 2;
        self.month = month_day[..2].parse().map_err(|_| DateError::BadFormat)?;
        self.day = month_day[2..].parse().map_err(|_| DateError::BadFormat)?;
        Ok(())
    }

    /// `04:05`, `04:05:06.789`, and `04:05.6`, which is minutes and seconds.
    pub(super) fn take_time(&mut self, text: &str) -> Result<(), DateError> {
        (self.hour, self.minute, self.second, self.micros) = parse_clock(text)?;
        self.check_time()?;
        self.mark(TIME)
    }

    fn check_time(&self) -> Result<(), DateError> {
        let fits = (0..=24).contains(&self.hour) && (0..60).contains(&self.minute) && (0..=60).contains(&self.second);
        if fits && self.time_micros() <= super::calendar::MICROS_PER_DAY { Ok(()) } else { Err(DateError::FieldOverflow) }
    }

    /// A Julian day, with a fraction that is the time of day.
    pub(super) fn take_julian(&mut self, text: &str) -> Result<(), DateError> {
        let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
        let julian: i64 = whole.parse().map_err(|_| DateError::FieldOverflow)?;
        if julian > i64::from(i32::MAX) {
            return Err(DateError::FieldOverflow);
        }
        self.mark(DATE)?;
        (self.year, self.month, self.day) = civil_from_days(julian + super::calendar::FIRST_DAY);
        if let Some(fraction) = fraction {
            let part: f64 = format!("0.{fraction}").parse().map_err(|_| DateError::BadFormat)?;
            self.second = (part * 86_400.0) as i64;
            (self.hour, self.minute, self.second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
            self.mark(TIME)?;
        }
        Ok(())
    }

    /// `+05:30`, `-8`, `+0530`.
    pub(super) fn take_offset(&mut self, text: &str) -> Result<(), DateError> {
        self.zone = Some(Zone::Fixed(parse_offset(text)?));
        self.mark(ZONE)
    }

    /// Final checks of year, month and day; the year becomes astronomical.
    pub(super) fn check_date(&mut self, before_christ: bool, julian: bool) -> Result<(), DateError> {
        if self.seen & YEAR != 0 && !julian {
            if before_christ {
                if self.year <= 0 {
                    return Err(DateError::FieldOverflow);
                }
                self.year = 1 - self.year;
            } else if self.two_digit_year {
                self.year += if self.year < 70 { 2000 } else { 1900 };
            } else if self.year <= 0 {
                return Err(DateError::FieldOverflow);
            }
        }
        if self.year.abs() > 10_000_000 {
            return Err(DateError::FieldOverflow);
        }
        if self.seen & DAY_OF_YEAR != 0 {
            (self.year, self.month, self.day) = civil_from_days(days_from_civil(self.year, 1, 1) + i64::from(self.day_of_year) - 1);
        }
        if self.seen & MONTH != 0 && !(1..=12).contains(&self.month) || self.seen & DAY != 0 && !(1..=31).contains(&self.day) {
            return Err(DateError::MonthDayOverflow);
        }
        if self.seen & DATE == DATE && self.day > days_in_month(self.year, self.month) {
            return Err(DateError::FieldOverflow);
        }
        Ok(())
    }
}

/// Runs of digits and runs of letters.
fn split_alternating(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let same = |b: u8| if first.is_ascii_digit() { b.is_ascii_digit() } else { b.is_ascii_alphabetic() };
        if !first.is_ascii_alphanumeric() {
            rest = &rest[1..];
            continue;
        }
        let end = rest.bytes().position(|b| !same(b)).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = &rest[end..];
    }
    parts
}

/// (hours, minutes, seconds, microseconds), not checked against their bounds.
pub(super) fn parse_clock(text: &str) -> Result<(i64, i64, i64, i64), DateError> {
    let (clock, fraction) = text.split_once('.').map_or((text, None), |(clock, fraction)| (clock, Some(fraction)));
    let micros = fraction.map_or(Ok(0), parse_fraction)?;
    let mut parts = [0_i64; 3];
    let mut count = 0;
    for part in clock.split(':') {
        if count == 3 {
            return Err(DateError::BadFormat);
        }
        if !part.is_empty() {
            parts[count] = part.parse().map_err(|_| DateError::FieldOverflow)?;
            if parts[count] > i64::from(i32::MAX) {
                return Err(DateError::FieldOverflow);
            }
        }
        count += 1;
    }
    match (count, fraction.is_some()) {
        (2, true) => Ok((0, parts[0], parts[1], micros)),
        (2 | 3, _) => Ok((parts[0], parts[1], parts[2], micros)),
        _ => Err(DateError::BadFormat),
    }
}

/// Digits after the point as microseconds, rounded.
pub(super) fn parse_fraction(digits: &str) -> Result<i64, DateError> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DateError::BadFormat);
    }
    let mut micros = 0;
    for at in 0..6 {
        micros = micros * 10 + digits.as_bytes().get(at).map_or(0, |digit| i64::from(digit - b'0'));
    }
    // C's rint rounds a half to the even neighbour.
    let rest = digits.get(6..).unwrap_or("").trim_end_matches('0');
    let up = match rest.as_bytes() {
        [] => false,
        [b'5'] => micros % 2 == 1,
        [first, ..] => *first >= b'5',
    };
    Ok(micros + i64::from(up))
}

/// Seconds east of `+05:30`, `-8`, `+0530`, `-05:50:36`.
pub(super) fn parse_offset(text: &str) -> Result<i32, DateError> {
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['+', '-']).ok_or(DateError::BadFormat)?;
    let mut numbers = [0_i32; 3];
    let parts: Vec<&str> = digits.split(':').collect();
    if parts.len() > 3 || parts.iter().any(|part| part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit())) {
        return Err(DateError::BadFormat);
    }
    for (number, part) in numbers.iter_mut().zip(&parts) {
        *number = part.parse().map_err(|_| DateError::ZoneDisplacement)?;
    }
    if parts.len() == 1 && digits.len() > 2 {
        (numbers[0], numbers[1]) = (numbers[0] / 100, numbers[0] % 100);
    }
    if numbers[0] > 15 || numbers[1] > 59 || numbers[2] > 59 {
        return Err(DateError::ZoneDisplacement);
    }
    let seconds = (numbers[0] * 60 + numbers[1]) * 60 + numbers[2];
    Ok(if negative { -seconds } else { seconds })
}
