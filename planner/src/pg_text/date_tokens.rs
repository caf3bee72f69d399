//! Cuts the text of a date, time or interval into fields, by their outer shape only.

use super::integer::is_space;

/// Longer texts are no dates.
const MAX_TEXT_BYTES: usize = 128;
/// More fields make no date either.
const MAX_FIELDS: usize = 25;

/// The outer shape of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// Digits, perhaps with one point.
    Number,
    /// Digits with a colon.
    Time,
    /// Digits or letters joined by `-`, `/` or `.`; also a zone's name with punctuation.
    Date,
    /// A sign, then digits: a zone's offset, or a signed number of an interval.
    Signed,
    /// Letters.
    Word,
    /// A sign, then letters: `-infinity`.
    SignedWord,
}

/// One field, its letters in lower case.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) kind: FieldKind,
    pub(super) text: String,
}

/// What is wrong with a date, time or interval; the caller knows the type and the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DateError {
    BadFormat,
    FieldOverflow,
    /// A month or day that another `DateStyle` might read.
    MonthDayOverflow,
    ZoneDisplacement,
    UnknownZone(String),
    /// 'now' where there is no clock.
    NoClock(String),
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn take_while(&mut self, text: &mut String, accept: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && accept(self.peek()) {
            text.push(self.peek().to_ascii_lowercase() as char);
            self.at += 1;
        }
    }

    fn take(&mut self, text: &mut String) {
        text.push(self.peek().to_ascii_lowercase() as char);
        self.at += 1;
    }
}

/// The fields of a text. White space parts fields and other punctuation is dropped.
pub(super) fn split_fields(text: &str) -> Result<Vec<Field>, DateError> {
    if text.len() > MAX_TEXT_BYTES || !text.is_ascii() {
        return Err(DateError::BadFormat);
    }
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0 };
    let mut fields = Vec::new();
    while scanner.at < scanner.bytes.len() {
        let byte = scanner.peek();
        let mut text = String::new();
        let kind = if is_space(byte) {
            scanner.at += 1;
            continue;
        } else if byte.is_ascii_digit() {
            scan_number(&mut scanner, &mut text)
        } else if byte == b'.' {
            scanner.take(&mut text);
            scanner.take_while(&mut text, |b| b.is_ascii_digit());
            FieldKind::Number
        } else if byte.is_ascii_alphabetic() {
            scan_word(&mut scanner, &mut text)
        } else if matches!(byte, b'+' | b'-') {
            scan_signed(&mut scanner, &mut text)?
        } else if byte.is_ascii_punctuation() {
            scanner.at += 1;
            continue;
        } else {
            return Err(DateError::BadFormat);
        };
        if fields.len() == MAX_FIELDS {
            return Err(DateError::BadFormat);
        }
        fields.push(Field { kind, text });
    }
    Ok(fields)
}

fn scan_number(scanner: &mut Scanner<'_>, text: &mut String) -> FieldKind {
    scanner.take_while(text, |b| b.is_ascii_digit());
    match scanner.peek() {
        b':' => {
            scanner.take_while(text, |b| b.is_ascii_digit() || matches!(b, b':' | b'.'));
            FieldKind::Time
        }
        delimiter @ (b'-' | b'/' | b'.') => {
            scanner.take(text);
            if scanner.peek().is_ascii_digit() {
                scanner.take_while(text, |b| b.is_ascii_digit());
                let kind = if delimiter == b'.' { FieldKind::Number } else { FieldKind::Date };
                // A second delimiter of the same kind makes it a date whatever it was before.
                if scanner.peek() == delimiter {
                    scanner.take_while(text, |b| b.is_ascii_digit() || b == delimiter);
                    return FieldKind::Date;
                }
                kind
            } else {
                scanner.take_while(text, |b| b.is_ascii_alphanumeric() || b == delimiter);
                FieldKind::Date
            }
        }
        _ => FieldKind::Number,
    }
}

fn scan_word(scanner: &mut Scanner<'_>, text: &mut String) -> FieldKind {
    scanner.take_while(text, |b| b.is_ascii_alphabetic());
    let next = scanner.peek();
    let joined = match next {
        b'-' | b'/' | b'.' => true,
        b'+' | b'0'..=b'9' => !super::date_fields::stands_alone(text),
        _ => false,
    };
    if !joined {
        return FieldKind::Word;
    }
    scanner.take_while(text, |b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'/' | b'_' | b'.' | b':'));
    FieldKind::Date
}

fn scan_signed(scanner: &mut Scanner<'_>, text: &mut String) -> Result<FieldKind, DateError> {
    scanner.take(text);
    while is_space(scanner.peek()) {
        scanner.at += 1;
    }
    if scanner.peek().is_ascii_digit() {
        scanner.take_while(text, |b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
        Ok(FieldKind::Signed)
    } else if scanner.peek().is_ascii_alphabetic() {
        scanner.take_while(text, |b| b.is_ascii_alphabetic());
        Ok(FieldKind::SignedWord)
    } else {
        Err(DateError::BadFormat)
    }
}
