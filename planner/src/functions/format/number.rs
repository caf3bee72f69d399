//! `to_char` of numbers and `to_number`.

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Float32Type, Float64Type, Int32Type, Int64Type},
};

use super::{
    super::{
        decimal::{Decimal, big_power_of_ten, from_big, to_big},
        kernel::Call,
    },
    moment::ordinal_suffix,
    number_pattern::{Pattern, Piece},
};
use crate::error::{PlanError, Result, sqlstate};

/// The Roman signs for one, five and ten of the ones, the tens and the hundreds.
const ROMAN: [[char; 3]; 3] = [['I', 'V', 'X'], ['X', 'L', 'C'], ['C', 'D', 'M']];
/// Which of a place's signs write a digit.
const ROMAN_DIGITS: [&[usize]; 10] = [&[], &[0], &[0, 0], &[0, 0, 0], &[0, 1], &[1], &[1, 0], &[1, 0, 0], &[1, 0, 0, 0], &[0, 2]];
/// Characters that a Roman number takes.
const ROMAN_WIDTH: usize = 15;

/// A number to be written.
enum Value {
    Exact(Decimal),
    Float(f64),
}

pub(super) fn of_integer(call: &Call<'_>) -> Result<ArrayRef> {
    if call.argument_type(0) == DataType::Int32 {
        let values = call.values::<Int32Type>(0)?;
        return write_all(call, |row| values.get(row).map(|value| Value::Exact(Decimal::from_i128(value.into(), 0))));
    }
    let values = call.values::<Int64Type>(0)?;
    write_all(call, |row| values.get(row).map(|value| Value::Exact(Decimal::from_i128(value.into(), 0))))
}

pub(super) fn of_numeric(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.decimals(0)?;
    write_all(call, |row| values.get(row).map(Value::Exact))
}

pub(super) fn of_real(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Float32Type>(0)?;
    write_all(call, |row| values.get(row).map(|value| Value::Float(f64::from(value))))
}

pub(super) fn of_double(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Float64Type>(0)?;
    write_all(call, |row| values.get(row).map(Value::Float))
}

fn write_all(call: &Call<'_>, value: impl Fn(usize) -> Option<Value>) -> Result<ArrayRef> {
    let patterns = call.texts(1)?;
    let constant = patterns.constant().map(Pattern::read).transpose()?;
    call.build_texts(|row| {
        let (Some(value), Some(text)) = (value(row), patterns.get(row)) else { return Ok(None) };
        match &constant {
            Some(pattern) => write(pattern, &value).map(Some),
            None => write(&Pattern::read(text)?, &value).map(Some),
        }
    })
}

fn write(pattern: &Pattern, value: &Value) -> Result<String> {
    if pattern.scientific {
        return Ok(scientific(pattern, value));
    }
    let (negative, digits) = match value {
        Value::Exact(value) => decimal_digits(pattern, *value)?,
        Value::Float(value) if value.is_finite() => float_digits(pattern, *value),
        Value::Float(value) => (*value < 0.0, None),
    };
    if let Some(large) = pattern.roman {
        return Ok(roman(pattern, negative, digits.as_deref(), large));
    }
    Ok(Writer::new(pattern, negative, digits).write())
}

/// The sign and the digits, with a point before those behind it; `None` if there are too many.
fn decimal_digits(pattern: &Pattern, value: Decimal) -> Result<(bool, Option<String>)> {
    let shifted = from_big(&(to_big(value.unscaled) * big_power_of_ten(pattern.shift)))?;
    let fraction = pattern.fraction as i32;
    let rounded = Decimal::new(shifted, value.scale).rescale(fraction)?;
    let text = rounded.unscaled.to_string();
    let digits = text.trim_start_matches('-');
    let digits = format!("{digits:0>width$}", width = pattern.fraction + 1);
    Ok((rounded.is_negative(), placed(pattern, &digits)))
}

/// Doubles have 15 significant digits, and zeros behind them.
fn float_digits(pattern: &Pattern, value: f64) -> (bool, Option<String>) {
    let value = value * 10_f64.powi(pattern.shift as i32);
    let whole = format!("{:.0}", value.trunc().abs()).len();
    let shown = pattern.fraction.min(15_usize.saturating_sub(whole));
    let text = format!("{:.shown$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction:0<width$}", width = pattern.fraction);
    (value < 0.0 && digits.bytes().any(|digit| digit != b'0'), placed(pattern, &digits))
}

fn placed(pattern: &Pattern, digits: &str) -> Option<String> {
    let (whole, fraction) = digits.split_at(digits.len() - pattern.fraction);
    if whole.len() > pattern.whole && !(pattern.whole == 0 && whole == "0") && pattern.roman.is_none() {
        return None;
    }
    let whole = if pattern.whole == 0 && pattern.roman.is_none() { "" } else { whole };
    Some(if pattern.point { format!("{whole}.{fraction}") } else { whole.to_owned() })
}

fn scientific(pattern: &Pattern, value: &Value) -> String {
    let number = match value {
        Value::Exact(value) => value.to_f64(),
        Value::Float(value) => *value,
    };
    if !number.is_finite() {
        let blanks = "#".repeat(pattern.whole + pattern.fraction + usize::from(pattern.point) + 5);
        return format!(" {blanks}");
    }
    let text = format!("{:.*e}", pattern.fraction, number);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    format!("{blank}{mantissa}e{sign}{exponent:0>2}")
}

fn roman(pattern: &Pattern, negative: bool, digits: Option<&str>, large: bool) -> String {
    let number = digits.and_then(|digits| digits.split('.').next()?.parse::<usize>().ok()).filter(|number| (1..4_000).contains(number));
    let Some(number) = number.filter(|_| !negative) else { return "#".repeat(ROMAN_WIDTH) };
    let mut text = "M".repeat(number / 1_000);
    for (place, power) in [(2, 100), (1, 10), (0, 1)] {
        text.extend(ROMAN_DIGITS[number / power % 10].iter().map(|sign| ROMAN[place][*sign]));
    }
    let text = if large { text } else { text.to_lowercase() };
    if pattern.fill { text } else { format!("{text:>ROMAN_WIDTH$}") }
}

/// A number on its way through a pattern.
struct Writer<'p> {
    pattern: &'p Pattern,
    negative: bool,
    overflow: bool,
    digits: Vec<u8>,
    /// The next digit.
    next: usize,
    /// Places of the pattern that the number does not reach.
    blanks: usize,
    /// The last digit that is shown where zeros at the end are not.
    last_shown: Option<usize>,
    /// Digits and points of the pattern that were passed.
    passed: usize,
    started: bool,
    sign_written: bool,
    sign_before: bool,
    out: String,
}

impl<'p> Writer<'p> {
    fn new(pattern: &'p Pattern, negative: bool, digits: Option<String>) -> Self {
        let overflow = digits.is_none();
        let digits = digits.unwrap_or_else(|| {
            let whole = "#".repeat(pattern.whole);
            if pattern.point { format!("{whole}.{}", "#".repeat(pattern.fraction)) } else { whole }
        });
        let point = digits.find('.');
        let blanks = pattern.whole.saturating_sub(point.unwrap_or(digits.len()));
        let last_shown = point.filter(|_| pattern.fill && !overflow).map(|point| {
            let relevant = digits.trim_end_matches('0').len().max(point + 1) - 1;
            let kept = if pattern.last_zero > blanks { (digits.len() - 1).min(pattern.last_zero - blanks) } else { 0 };
            relevant.max(kept)
        });
        let needs_sign = if pattern.plus || pattern.minus {
            pattern.plus && !pattern.minus
        } else {
            negative || !pattern.fill || pattern.sign_before.is_some()
        };
        // A sign before digits that has none before it goes behind them.
        let sign_before = pattern.sign_before == Some(true);
        Self {
            pattern,
            negative,
            overflow,
            digits: digits.into_bytes(),
            next: 0,
            blanks,
            last_shown,
            passed: 0,
            started: false,
            sign_written: !needs_sign,
            sign_before,
            out: String::new(),
        }
    }

    fn write(mut self) -> String {
        let last = self.pattern.pieces.iter().rposition(|piece| matches!(piece, Piece::Digit(_) | Piece::Point));
        let fill = self.pattern.fill;
        for (index, piece) in self.pattern.pieces.iter().enumerate() {
            match piece {
                Piece::Digit(zero) => self.place(*zero),
                Piece::Point => self.place(false),
                Piece::Comma if self.started => self.out.push(','),
                Piece::Comma | Piece::Currency if fill && *piece == Piece::Comma => {}
                Piece::Comma | Piece::Currency => self.out.push(' '),
                Piece::Sign => {}
                Piece::Minus => self.mark(self.negative, '-'),
                Piece::Plus => self.mark(!self.negative, '+'),
                Piece::PlusOrMinus => self.out.push(if self.negative { '-' } else { '+' }),
                Piece::Ordinal(large) => self.ordinal(*large),
                Piece::Character(character) => self.out.push(*character),
            }
            if Some(index) == last {
                self.close();
            }
        }
        self.out
    }

    fn mark(&mut self, shown: bool, mark: char) {
        if shown {
            self.out.push(mark);
        } else if !self.pattern.fill {
            self.out.push(' ');
        }
    }

    fn ordinal(&mut self, large: bool) {
        if self.negative || self.overflow || self.pattern.point {
            return;
        }
        let suffix = ordinal_suffix(&String::from_utf8_lossy(&self.digits));
        self.out.push_str(&if large { suffix.to_uppercase() } else { suffix.to_owned() });
    }

    /// A zero before the point is left out where digits follow behind it: ` .1`.
    fn is_blank_zero(&self) -> bool {
        self.pattern.first_zero.is_none() && self.next == 0 && self.digits.first() == Some(&b'0') && self.pattern.fraction != 0
    }

    fn shows_only_point(&self) -> bool {
        self.last_shown.is_some_and(|last| self.digits[last] == b'.')
    }

    fn sign(&mut self) {
        let zeros = self.pattern.first_zero;
        let reached = self.passed >= self.blanks || zeros == Some(self.passed);
        if self.sign_written || !reached || (self.is_blank_zero() && !self.shows_only_point()) {
            return;
        }
        match (self.pattern.sign_before, self.pattern.brackets) {
            (Some(_), _) if !self.sign_before => return,
            (Some(_), _) => self.out.push(if self.negative { '-' } else { '+' }),
            (None, true) if self.negative => self.out.push('<'),
            (None, false) if self.negative => self.out.push('-'),
            (None, _) if !self.pattern.fill => self.out.push(' '),
            (None, _) => {}
        }
        self.sign_written = true;
    }

    /// A digit or the point.
    fn place(&mut self, zero: bool) {
        self.sign();
        let zeros_from = self.pattern.first_zero;
        if self.passed < self.blanks {
            match zeros_from {
                Some(from) if from <= self.passed => {
                    self.out.push('0');
                    self.started = true;
                }
                _ if !self.pattern.fill => self.out.push(' '),
                _ => {}
            }
        } else if let Some(digit) = self.digits.get(self.next).copied() {
            let beyond = self.last_shown.is_some_and(|last| self.next > last);
            if digit == b'.' {
                self.out.push('.');
            } else if beyond && !zero {
                // Zeros at the end are not shown.
            } else if self.is_blank_zero() {
                if !self.pattern.fill {
                    self.out.push(' ');
                } else if self.shows_only_point() {
                    self.out.push('0');
                }
            } else {
                self.out.push(char::from(digit));
                self.started = true;
            }
            self.next += 1;
        }
        self.passed += 1;
    }

    /// What comes behind the last digit.
    fn close(&mut self) {
        if self.pattern.brackets && self.sign_written {
            self.mark(self.negative, '>');
        } else if self.pattern.sign_before.is_some() && !self.sign_before {
            self.out.push(if self.negative { '-' } else { '+' });
        }
    }
}

/// `to_number`
pub(super) fn read(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, patterns) = (call.texts(0)?, call.texts(1)?);
    call.build_decimals(|row| {
        let (Some(text), Some(pattern)) = (texts.get(row), patterns.get(row)) else { return Ok(None) };
        read_number(text, &Pattern::read(pattern)?).map(Some)
    })
}

fn read_number(text: &str, pattern: &Pattern) -> Result<Decimal> {
    let mut rest = text.trim_start();
    let mut negative = false;
    let mut digits = String::new();
    for piece in &pattern.pieces {
        if !matches!(piece, Piece::Character(_)) {
            rest = rest.trim_start();
        }
        if let Some(after) = rest.strip_prefix(['-', '<']) {
            (negative, rest) = (true, after);
        } else if let Some(after) = rest.strip_prefix('+') {
            rest = after;
        }
        let Some(first) = rest.chars().next() else { break };
        let taken = match piece {
            Piece::Digit(_) if first.is_ascii_digit() => {
                digits.push(first);
                true
            }
            Piece::Point if first == '.' => {
                digits.push('.');
                true
            }
            Piece::Comma => first == ',',
            Piece::Currency | Piece::Character(_) => !first.is_ascii_digit() && first != '.',
            Piece::Ordinal(_) => first.is_alphabetic(),
            _ => false,
        };
        if taken {
            rest = &rest[first.len_utf8()..];
        }
        if matches!(piece, Piece::Ordinal(_)) && taken {
            rest = rest.strip_prefix(char::is_alphabetic).unwrap_or(rest);
        }
    }
    negative |= rest.trim_start().starts_with('-');
    let invalid = || PlanError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type numeric: \"{text}\""));
    if !digits.bytes().any(|digit| digit.is_ascii_digit()) {
        return Err(invalid());
    }
    let value = Decimal::from_float(&digits).ok_or_else(invalid)?;
    let value = Decimal::new(value.unscaled, value.scale + pattern.shift as i32);
    Ok(if negative { value.negate() } else { value })
}
