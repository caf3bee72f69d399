//! Patterns of numbers, cut into pieces.

use crate::error::{PlanError, Result, sqlstate};

/// A piece of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A digit, with zeros in front?
    Digit(bool),
    Point,
    Comma,
    Currency,
    /// `S`
    Sign,
    /// `MI`
    Minus,
    /// `PL`
    Plus,
    /// `SG`
    PlusOrMinus,
    /// `TH`, written large?
    Ordinal(bool),
    Character(char),
}

/// A pattern and what is to be known before it is used.
#[derive(Clone, Debug, Default)]
pub(super) struct Pattern {
    pub(super) pieces: Vec<Piece>,
    /// Digits before the point.
    pub(super) whole: usize,
    /// Digits behind it.
    pub(super) fraction: usize,
    /// The number is multiplied by ten so many times.
    pub(super) shift: u32,
    /// The first digit that is shown even where the number has none, counted from 0.
    pub(super) first_zero: Option<usize>,
    /// Digits up to the last one that is always shown.
    pub(super) last_zero: usize,
    pub(super) fill: bool,
    pub(super) point: bool,
    pub(super) brackets: bool,
    pub(super) scientific: bool,
    /// Large letters?
    pub(super) roman: Option<bool>,
    /// `S`, and whether it comes before the digits.
    pub(super) sign_before: Option<bool>,
    pub(super) plus: bool,
    pub(super) minus: bool,
}

fn starts_with(text: &str, name: &str) -> bool {
    text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

fn refuse(message: &str) -> PlanError {
    PlanError::new(sqlstate::SYNTAX_ERROR, message)
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// 42601 for parts that do not go together.
    pub(super) fn read(text: &str) -> Result<Self> {
        let mut pattern = Self::default();
        let mut multiplies = false;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = pattern.piece(first, rest, &mut multiplies)?;
            rest = &rest[length..];
        }
        let conflicting = pattern.sign_before.is_some() && (pattern.plus || pattern.minus || pattern.brackets);
        if conflicting {
            return Err(refuse("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
        }
        if pattern.scientific && (pattern.fill || pattern.roman.is_some() || multiplies || pattern.sign_before.is_some()) {
            return Err(refuse("\"EEEE\" is incompatible with other formats")
                .with_detail("\"EEEE\" may only be used together with digit and decimal point patterns."));
        }
        Ok(pattern)
    }

    /// Takes the piece that a text starts with; its length.
    fn piece(&mut self, first: char, rest: &str, multiplies: &mut bool) -> Result<usize> {
        let named = |name: &str| starts_with(rest, name);
        if named("EEEE") {
            self.scientific = true;
            return Ok(4);
        }
        for (name, piece) in [("MI", Piece::Minus), ("PL", Piece::Plus), ("SG", Piece::PlusOrMinus)] {
            if named(name) {
                self.minus |= piece != Piece::Plus;
                self.plus |= piece != Piece::Minus;
                self.pieces.push(piece);
                return Ok(2);
            }
        }
        if named("FM") {
            self.fill = true;
            return Ok(2);
        }
        if named("PR") {
            self.brackets = true;
            return Ok(2);
        }
        if named("RN") {
            self.roman = Some(rest.starts_with('R'));
            return Ok(2);
        }
        if named("TH") {
            self.pieces.push(Piece::Ordinal(rest.starts_with('T')));
            return Ok(2);
        }
        match first {
            '9' | '0' => self.digit(first == '0', *multiplies),
            '.' | 'D' | 'd' => {
                if self.point {
                    return Err(refuse("multiple decimal points"));
                }
                if *multiplies {
                    return Err(refuse("cannot use \"V\" and decimal point together"));
                }
                self.point = true;
                self.pieces.push(Piece::Point);
            }
            ',' | 'G' | 'g' => self.pieces.push(Piece::Comma),
            'L' | 'l' => self.pieces.push(Piece::Currency),
            'S' | 's' => {
                if self.sign_before.is_some() {
                    return Err(refuse("cannot use \"S\" twice"));
                }
                self.sign_before = Some(self.whole == 0 && !self.point);
                self.pieces.push(Piece::Sign);
            }
            'V' | 'v' => *multiplies = true,
            '"' => return Ok(self.quoted(rest)),
            other => self.pieces.push(Piece::Character(other)),
        }
        Ok(first.len_utf8())
    }

    fn digit(&mut self, zero: bool, multiplies: bool) {
        if zero && self.first_zero.is_none() && !self.point {
            self.first_zero = Some(self.whole);
        }
        if self.point {
            self.fraction += 1;
        } else {
            self.whole += 1;
        }
        self.shift += u32::from(multiplies);
        if zero {
            self.last_zero = self.whole + self.fraction;
        }
        self.pieces.push(Piece::Digit(zero));
    }

    fn quoted(&mut self, rest: &str) -> usize {
        let mut characters = rest.char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => return at + 1,
                '\\' => {
                    if let Some((_, escaped)) = characters.next() {
                        self.pieces.push(Piece::Character(escaped));
                    }
                }
                other => self.pieces.push(Piece::Character(other)),
            }
        }
        rest.len()
    }
}
