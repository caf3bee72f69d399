//! Patterns of dates and times, cut into fields and other text.

/// What a field shows. Names are those of the patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Hour12,
    Hour24,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    /// So many digits of the second's fraction.
    Fraction(u8),
    SecondsOfDay,
    /// With dots?
    Meridiem(bool),
    /// With dots?
    Era(bool),
    YearWithComma,
    /// The last digits of the year.
    Year(u8),
    /// The last digits of the year of the ISO week.
    IsoYear(u8),
    MonthName,
    MonthShort,
    Month,
    DayName,
    DayShort,
    DayOfYear,
    IsoDayOfYear,
    Day,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Julian,
    Quarter,
    RomanMonth,
    ZoneName,
    ZoneHours,
    ZoneMinutes,
    ZoneOffset,
}

impl Field {
    /// Whether it is read as a number.
    pub(super) fn is_number(self) -> bool {
        !matches!(
            self,
            Self::Meridiem(_)
                | Self::Era(_)
                | Self::MonthName
                | Self::MonthShort
                | Self::DayName
                | Self::DayShort
                | Self::RomanMonth
                | Self::ZoneName
                | Self::ZoneOffset
        )
    }
}

/// How the letters of a name are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Capital,
    Lower,
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Field {
        field: Field,
        /// As it is written in the pattern.
        name: &'static str,
        case: Case,
        /// `FM`: neither blanks nor zeros fill it up.
        fill: bool,
        /// `TH`, and whether it is written large.
        ordinal: Option<bool>,
    },
    /// A character that stands for itself.
    Character(char),
    Separator(char),
    Space(char),
    /// `FX`: the text has to follow the pattern exactly.
    Exact,
}

/// Patterns, longer ones first where one starts with another.
const NAMES: &[(&str, Field)] = &[
    ("A.D.", Field::Era(true)),
    ("A.M.", Field::Meridiem(true)),
    ("AD", Field::Era(false)),
    ("AM", Field::Meridiem(false)),
    ("B.C.", Field::Era(true)),
    ("BC", Field::Era(false)),
    ("CC", Field::Century),
    ("DAY", Field::DayName),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("DY", Field::DayShort),
    ("D", Field::DayOfWeek),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("I", Field::IsoYear(1)),
    ("J", Field::Julian),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MS", Field::Millisecond),
    ("OF", Field::ZoneOffset),
    ("P.M.", Field::Meridiem(true)),
    ("PM", Field::Meridiem(false)),
    ("Q", Field::Quarter),
    ("RM", Field::RomanMonth),
    ("SSSSS", Field::SecondsOfDay),
    ("SSSS", Field::SecondsOfDay),
    ("SS", Field::Second),
    ("TZH", Field::ZoneHours),
    ("TZM", Field::ZoneMinutes),
    ("TZ", Field::ZoneName),
    ("US", Field::Microsecond),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
];

fn starts_with(text: &str, name: &str) -> bool {
    text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

/// The field that a text starts with. Names may be in large or small letters, but in no mixture: `Mon` and `Day` are the exceptions.
fn field_at(text: &str) -> Option<(&'static str, Field, Case)> {
    let (name, field) = *NAMES.iter().find(|(name, _)| starts_with(text, name))?;
    let letters = || text[..name.len()].chars().filter(char::is_ascii_alphabetic);
    let case = if letters().all(|letter| letter.is_ascii_uppercase()) {
        Case::Upper
    } else if letters().all(|letter| letter.is_ascii_lowercase()) {
        Case::Lower
    } else {
        Case::Capital
    };
    Some((name, field, case))
}

/// Cuts a pattern into pieces.
pub(super) fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let (mut after, mut fill) = (rest, false);
        if starts_with(after, "FX") {
            pieces.push(Piece::Exact);
            rest = &after[2..];
            continue;
        }
        while starts_with(after, "FM") || starts_with(after, "TM") {
            fill |= starts_with(after, "FM");
            after = &after[2..];
        }
        if let Some((name, field, case)) = field_at(after) {
            after = &after[name.len()..];
            let mut ordinal = None;
            if starts_with(after, "TH") && field.is_number() {
                ordinal = Some(after.starts_with('T'));
                after = &after[2..];
            }
            pieces.push(Piece::Field { field, name, case, fill, ordinal });
            rest = after;
            continue;
        }
        rest = match first {
            '"' => quoted(&rest[1..], &mut pieces),
            '\\' if rest[1..].starts_with('"') => {
                pieces.push(Piece::Character('"'));
                &rest[2..]
            }
            _ => {
                pieces.push(match first {
                    space if space.is_whitespace() => Piece::Space(space),
                    separator if separator.is_ascii_punctuation() => Piece::Separator(separator),
                    character => Piece::Character(character),
                });
                &rest[first.len_utf8()..]
            }
        };
    }
    pieces
}

/// Text up to the closing quote; what comes after it.
fn quoted<'t>(text: &'t str, pieces: &mut Vec<Piece>) -> &'t str {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return &text[at + 1..],
            '\\' => {
                if let Some((_, escaped)) = characters.next() {
                    pieces.push(Piece::Character(escaped));
                }
            }
            other => pieces.push(Piece::Character(other)),
        }
    }
    ""
}
