//! Input of date, time, timestamp and timestamptz.

use super::calendar::{
    DATE_INFINITY, DATE_NEGATIVE_INFINITY, FIRST_DAY, MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_INFINITY, TIMESTAMP_NEGATIVE_INFINITY,
    days_from_civil, days_in_month, is_date,
};
use super::date_fields::{DATE, DAY, Fields, Keyword, MONTH, TIME, ZONE, keyword, parse_offset};
use super::date_tokens::{DateError, Field, FieldKind, split_fields};
use super::settings::{TextError, TextSettings};
use super::zone::Zone;
use super::zone_abbreviations::abbreviation_offset;

/// date as days since 1970.
pub fn parse_date(text: &str, settings: &TextSettings) -> Result<i32, TextError> {
    if let Some((days, rest)) = iso_date(text.as_bytes())
        && rest.is_empty()
    {
        return Ok(days);
    }
    let moment = decode(text, settings, false).map_err(|error| describe(error, "date", text))?;
    let days = match moment {
        Moment::Infinity => return Ok(DATE_INFINITY),
        Moment::NegativeInfinity => return Ok(DATE_NEGATIVE_INFINITY),
        Moment::Epoch => 0,
        Moment::At(fields) => days_from_civil(fields.year, fields.month, fields.day),
    };
    if is_date(days) { Ok(days as i32) } else { Err(TextError::new("22008", format!("date out of range: \"{text}\""))) }
}

/// time as microseconds since midnight. A date and a zone in the text are ignored.
pub fn parse_time(text: &str, settings: &TextSettings) -> Result<i64, TextError> {
    match decode(text, settings, true) {
        Ok(Moment::At(fields)) => Ok(fields.time_micros()),
        Ok(Moment::Epoch | Moment::Infinity | Moment::NegativeInfinity) => Err(describe(DateError::BadFormat, "time", text)),
        Err(error) => Err(describe(error, "time", text)),
    }
}

/// timestamp as microseconds since 1970. A zone in the text is ignored.
pub fn parse_timestamp(text: &str, settings: &TextSettings) -> Result<i64, TextError> {
    if let Some((micros, rest)) = iso_timestamp(text.as_bytes())
        && rest.is_empty()
    {
        return Ok(micros);
    }
    match decode(text, settings, false).map_err(|error| describe(error, "timestamp", text))? {
        Moment::Infinity => Ok(TIMESTAMP_INFINITY),
        Moment::NegativeInfinity => Ok(TIMESTAMP_NEGATIVE_INFINITY),
        Moment::Epoch => Ok(0),
        Moment::At(fields) => local_micros(&fields).ok_or_else(|| out_of_range(text)),
    }
}

/// timestamptz as microseconds since 1970 in UTC. Without a zone in the text, the session's counts.
pub fn parse_timestamptz(text: &str, settings: &TextSettings) -> Result<i64, TextError> {
    if let Some((micros, rest)) = iso_timestamp(text.as_bytes()) {
        let offset = match rest {
            [] if settings.time_zone.is_utc() => Some(0),
            b"Z" | b"z" => Some(0),
            [b'+' | b'-', ..] => std::str::from_utf8(rest).ok().and_then(|rest| parse_offset(rest).ok()),
            _ => None,
        };
        if let Some(offset) = offset {
            return Ok(micros - i64::from(offset) * MICROS_PER_SECOND);
        }
    }
    match decode(text, settings, false).map_err(|error| describe(error, "timestamp with time zone", text))? {
        Moment::Infinity => Ok(TIMESTAMP_INFINITY),
        Moment::NegativeInfinity => Ok(TIMESTAMP_NEGATIVE_INFINITY),
        Moment::Epoch => Ok(0),
        Moment::At(fields) => {
            let zone = fields.zone.as_ref().unwrap_or(&settings.time_zone);
            local_micros(&fields).and_then(|local| zone.to_utc(local)).ok_or_else(|| out_of_range(text))
        }
    }
}

fn out_of_range(text: &str) -> TextError {
    TextError::new("22008", format!("timestamp out of range: \"{text}\""))
}

/// The words for an error in a value of a type.
pub(super) fn describe(error: DateError, type_name: &str, text: &str) -> TextError {
    let overflow = || TextError::new("22008", format!("date/time field value out of range: \"{text}\""));
    match error {
        DateError::BadFormat => TextError::new("22007", format!("invalid input syntax for type {type_name}: \"{text}\"")),
        DateError::FieldOverflow => overflow(),
        DateError::MonthDayOverflow => overflow().with_hint("Perhaps you need a different \"datestyle\" setting."),
        DateError::ZoneDisplacement => TextError::new("22009", format!("time zone displacement out of range: \"{text}\"")),
        DateError::UnknownZone(zone) => TextError::new("22023", format!("time zone \"{zone}\" not recognized")),
        DateError::NoClock(word) => TextError::new("0A000", format!("date/time value \"{word}\" is not supported here")),
    }
}

enum Moment {
    At(Box<Fields>),
    Epoch,
    Infinity,
    NegativeInfinity,
}

/// Microseconds since 1970 of the fields, zone aside. None outside the range.
fn local_micros(fields: &Fields) -> Option<i64> {
    let days = days_from_civil(fields.year, fields.month, fields.day);
    if days < FIRST_DAY {
        return None;
    }
    let micros = days.checked_mul(MICROS_PER_DAY)?.checked_add(fields.time_micros())?;
    (micros != TIMESTAMP_INFINITY).then_some(micros)
}

/// `YYYY-MM-DD` in front of a text, and what follows it.
fn iso_date(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, rest @ ..] = bytes else { return None };
    let number = |digits: &[&u8]| digits.iter().try_fold(0_u32, |n, d| d.is_ascii_digit().then(|| n * 10 + u32::from(**d - b'0')));
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
    if year == 0 || !(1..=12).contains(&month) || day == 0 || day > days_in_month(i64::from(year), month) {
        return None;
    }
    Some((days_from_civil(i64::from(year), month, day) as i32, rest))
}

/// `YYYY-MM-DD HH:MM:SS[.ffffff]`, with a space or T between, and what follows it.
fn iso_timestamp(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (days, rest) = iso_date(bytes)?;
    let [b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2, rest @ ..] = rest else { return None };
    let number = |a: &u8, b: &u8| (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from(*a - b'0') * 10 + i64::from(*b - b'0'));
    let (hour, minute, second) = (number(h1, h2)?, number(m1, m2)?, number(s1, s2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = 0;
    let mut rest = rest;
    if let [b'.', digits @ ..] = rest {
        let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        if !(1..=6).contains(&count) {
            return None;
        }
        micros = digits[..count].iter().fold(0_i64, |n, d| n * 10 + i64::from(d - b'0')) * 10_i64.pow(6 - count as u32);
        rest = &digits[count..];
    }
    Some((i64::from(days) * MICROS_PER_DAY + ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + micros, rest))
}

/// What has come so far beside calendar fields.
#[derive(Default)]
struct Context {
    special: Option<Keyword>,
    /// The next field was announced by `t` or `j`.
    expect: Option<Keyword>,
    meridiem: Option<Keyword>,
    before_christ: bool,
    julian: bool,
    era_seen: bool,
}

/// Decodes any form. `time_only`: the caller needs no date.
fn decode(text: &str, settings: &TextSettings, time_only: bool) -> Result<Moment, DateError> {
    let tokens = split_fields(text)?;
    let mut fields = Fields::default();
    let mut context = Context::default();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            FieldKind::Time => {
                if context.expect.take().is_some_and(|expected| expected != Keyword::TimeFollows) {
                    return Err(DateError::BadFormat);
                }
                fields.take_time(&token.text)?;
            }
            FieldKind::Signed => fields.take_offset(&token.text)?,
            FieldKind::Date => take_date_field(&token.text, &mut fields, &mut context, settings)?,
            FieldKind::Number => take_number_field(&token.text, &mut fields, &mut context, settings, time_only)?,
            FieldKind::Word | FieldKind::SignedWord => take_word(&token.text, tokens.get(at + 1), &mut fields, &mut context, settings)?,
        }
    }
    if context.expect.is_some() {
        return Err(DateError::BadFormat);
    }
    if let Some(special) = context.special {
        if fields.seen != 0 {
            return Err(DateError::BadFormat);
        }
        return Ok(match special {
            Keyword::Epoch => Moment::Epoch,
            Keyword::Infinity => Moment::Infinity,
            _ => Moment::NegativeInfinity,
        });
    }
    fields.check_date(context.before_christ, context.julian)?;
    apply_meridiem(&mut fields, context.meridiem)?;
    let enough = if time_only { fields.seen & TIME != 0 } else { fields.seen & DATE == DATE };
    if enough { Ok(Moment::At(Box::new(fields))) } else { Err(DateError::BadFormat) }
}

fn apply_meridiem(fields: &mut Fields, meridiem: Option<Keyword>) -> Result<(), DateError> {
    let Some(meridiem) = meridiem else { return Ok(()) };
    if fields.hour > 12 {
        return Err(DateError::FieldOverflow);
    }
    match meridiem {
        Keyword::Am if fields.hour == 12 => fields.hour = 0,
        Keyword::Pm if fields.hour != 12 => fields.hour += 12,
        _ => {}
    }
    Ok(())
}

fn take_date_field(text: &str, fields: &mut Fields, context: &mut Context, settings: &TextSettings) -> Result<(), DateError> {
    let announced = context.expect.take();
    if announced.is_none() && fields.seen & (MONTH | DAY) != MONTH | DAY {
        return fields.take_date(text, settings.date_order);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) || announced.is_some() {
        // A time run together with its zone: 040506-08.
        if fields.seen & TIME != 0 || announced.is_some_and(|expected| expected != Keyword::TimeFollows) {
            return Err(DateError::BadFormat);
        }
        let split = text.find('-').ok_or(DateError::BadFormat)?;
        fields.take_offset(&text[split..])?;
        return fields.take_run_together(&text[..split]);
    }
    let zone = Zone::parse(text).ok_or_else(|| DateError::UnknownZone(text.to_string()))?;
    fields.zone = Some(zone);
    fields.mark(ZONE)
}

fn take_number_field(
    text: &str,
    fields: &mut Fields,
    context: &mut Context,
    settings: &TextSettings,
    time_only: bool,
) -> Result<(), DateError> {
    match context.expect.take() {
        Some(Keyword::Julian) => {
            context.julian = true;
            return fields.take_julian(text);
        }
        Some(_) => {
            let date = fields.seen & DATE;
            fields.seen |= DATE;
            let taken = fields.take_run_together(text);
            fields.seen = fields.seen & !DATE | date;
            return taken;
        }
        None => {}
    }
    if time_only && fields.seen & DATE == 0 {
        // Without a date the only number there can be is a time.
        fields.seen |= DATE;
        let taken = fields.take_run_together(text);
        fields.seen &= !DATE;
        return taken;
    }
    let point = text.find('.');
    if point.is_some() && fields.seen & DATE == 0 {
        return fields.take_date(text, settings.date_order);
    }
    if point.is_some_and(|digits| digits > 2) {
        return fields.take_run_together(text);
    }
    if text.len() >= 6 && (fields.seen & DATE == 0 || fields.seen & TIME == 0) {
        return fields.take_run_together(text);
    }
    fields.take_number(text, settings.date_order)
}

fn take_word(
    text: &str,
    next: Option<&Field>,
    fields: &mut Fields,
    context: &mut Context,
    settings: &TextSettings,
) -> Result<(), DateError> {
    // Abbreviations of zones go before everything else.
    if let Some(seconds) = abbreviation_offset(text) {
        fields.zone = Some(Zone::Fixed(seconds));
        return fields.mark(ZONE);
    }
    let Some(word) = keyword(text) else {
        let zone = Zone::parse(text).ok_or(DateError::BadFormat)?;
        fields.zone = Some(zone);
        return fields.mark(ZONE);
    };
    match word {
        Keyword::Month(month) => fields.take_month_name(month)?,
        Keyword::Weekday | Keyword::Filler => {}
        Keyword::Am | Keyword::Pm if context.meridiem.is_none() => context.meridiem = Some(word),
        Keyword::Ad | Keyword::Bc if !context.era_seen => {
            context.era_seen = true;
            context.before_christ = word == Keyword::Bc;
        }
        Keyword::Epoch | Keyword::Infinity | Keyword::NegativeInfinity if context.special.is_none() => context.special = Some(word),
        Keyword::Midnight => {
            fields.zone = Some(Zone::Fixed(0));
            fields.mark(TIME | ZONE)?;
        }
        Keyword::Now | Keyword::Today | Keyword::Tomorrow | Keyword::Yesterday => take_clock_word(word, text, fields, settings)?,
        Keyword::TimeFollows => {
            let sensible = next.is_some_and(|field| matches!(field.kind, FieldKind::Number | FieldKind::Time | FieldKind::Date));
            if fields.seen & DATE != DATE || !sensible {
                return Err(DateError::BadFormat);
            }
            context.expect = Some(word);
        }
        Keyword::Julian if context.expect.is_none() => context.expect = Some(word),
        _ => return Err(DateError::BadFormat),
    }
    Ok(())
}

fn take_clock_word(word: Keyword, text: &str, fields: &mut Fields, settings: &TextSettings) -> Result<(), DateError> {
    let now = settings.now_us.ok_or_else(|| DateError::NoClock(text.to_string()))?;
    let local = settings.time_zone.to_local(now).ok_or(DateError::FieldOverflow)?;
    let shift = match word {
        Keyword::Tomorrow => 1,
        Keyword::Yesterday => -1,
        _ => 0,
    };
    fields.mark(DATE)?;
    (fields.year, fields.month, fields.day) = super::calendar::civil_from_days(local.div_euclid(MICROS_PER_DAY) + shift);
    if word == Keyword::Now {
        let micros = local.rem_euclid(MICROS_PER_DAY);
        let seconds = micros / MICROS_PER_SECOND;
        (fields.hour, fields.minute, fields.second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        fields.micros = micros % MICROS_PER_SECOND;
        fields.zone = Some(Zone::Fixed(settings.time_zone.offset_at(now)));
        fields.mark(TIME | ZONE)?;
    }
    Ok(())
}
