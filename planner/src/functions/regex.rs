//! Regular expressions. Postgres' syntax is brought to that of the `regex` crate; back references and look-around, which that has not, are
//! refused.

use std::{borrow::Cow, collections::BTreeMap};

use arrow::{
    array::{ArrayRef, ListBuilder, StringViewBuilder},
    datatypes::{Field, Int32Type},
};
use regex::{Captures, Regex, RegexBuilder};

use super::{
    columns::Texts,
    kernel::{Call, Kernel},
    regex_matches::matches as matches_of,
    sequence,
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    types::SqlType,
};

/// Most patterns that one batch keeps compiled.
const MAX_PATTERNS: usize = 64;
/// Largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4 << 20;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::operator("~(text, text) boolean", "textregexeq", |call| matches(call, "", false)),
    Entry::operator("!~(text, text) boolean", "textregexne", |call| matches(call, "", true)),
    Entry::operator("~*(text, text) boolean", "texticregexeq", |call| matches(call, "i", false)),
    Entry::operator("!~*(text, text) boolean", "texticregexne", |call| matches(call, "i", true)),
    Entry::strict("regexp_like(text, text) boolean", |call| matches(call, "", false)),
    Entry::strict("regexp_like(text, text, text) boolean", |call| matches(call, "", false)),
    Entry::strict("regexp_match(text, text) text[]", first_match),
    Entry::strict("regexp_match(text, text, text) text[]", first_match),
    Entry::rewrite("regexp_matches(text, text) text[]", matches_as_rows),
    Entry::rewrite("regexp_matches(text, text, text) text[]", matches_as_rows),
    Entry::strict("regexp_replace(text, text, text) text", |call| replace(call, Some(3))),
    Entry::strict("regexp_replace(text, text, text, text) text", |call| replace(call, Some(3))),
    Entry::strict("regexp_replace(text, text, text, integer) text", |call| replace(call, None)),
    Entry::strict("regexp_replace(text, text, text, integer, integer) text", |call| replace(call, None)),
    Entry::strict("regexp_replace(text, text, text, integer, integer, text) text", |call| replace(call, Some(5))),
    Entry::strict("regexp_split_to_array(text, text) text[]", split),
    Entry::strict("regexp_split_to_array(text, text, text) text[]", split),
    Entry::rewrite("regexp_split_to_table(text, text) text", |binder, values| sequence::expand(binder, "regexp_split_to_array", values)),
    Entry::rewrite("regexp_split_to_table(text, text, text) text", |binder, values| {
        sequence::expand(binder, "regexp_split_to_array", values)
    }),
    Entry::strict("regexp_count(text, text) integer", count),
    Entry::strict("regexp_count(text, text, integer) integer", count),
    Entry::strict("regexp_count(text, text, integer, text) integer", count),
    Entry::strict("regexp_substr(text, text) text", |call| substring(call, false)),
    Entry::strict("substring(text, text) text", |call| substring(call, true)).named("regexp_substring"),
    Entry::strict("similar_to_escape(text) text", similar),
    Entry::strict("similar_to_escape(text, text) text", similar),
];

fn invalid(message: &str) -> PlanError {
    PlanError::new(sqlstate::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {message}"))
}

/// What the letters of a flags argument say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Flags {
    global: bool,
    insensitive: bool,
    newline: bool,
    expanded: bool,
    literal: bool,
}

fn flags_of(text: &str) -> Result<Flags> {
    let mut flags = Flags::default();
    for letter in text.chars() {
        match letter {
            'g' => flags.global = true,
            'i' => flags.insensitive = true,
            'c' => flags.insensitive = false,
            'n' | 'm' => flags.newline = true,
            's' => flags.newline = false,
            'x' => flags.expanded = true,
            't' => flags.expanded = false,
            'q' => flags.literal = true,
            'p' | 'w' | 'b' | 'e' => {}
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    Ok(flags)
}

/// Compiles a pattern.
fn compile(pattern: &str, flags: Flags) -> Result<Regex> {
    let translated = if flags.literal { Cow::Owned(regex::escape(pattern)) } else { translate(pattern)? };
    RegexBuilder::new(&translated)
        .case_insensitive(flags.insensitive)
        .dot_matches_new_line(!flags.newline)
        .multi_line(flags.newline)
        .ignore_whitespace(flags.expanded)
        .size_limit(MAX_PATTERN_BYTES)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => invalid("regular expression is too complex"),
            regex::Error::Syntax(text) if text.contains("look-around") || text.contains("backreferences") => {
                PlanError::unsupported("back references and look-around in regular expressions are not supported")
            }
            _ => invalid(&reason(pattern)),
        })
}

/// Postgres' words for what is wrong with a pattern.
fn reason(pattern: &str) -> String {
    let count = |open: char| pattern.chars().filter(|character| *character == open).count();
    if count('(') != count(')') {
        "parentheses () not balanced".to_owned()
    } else if count('[') != count(']') {
        "brackets [] not balanced".to_owned()
    } else if pattern.ends_with('\\') {
        "invalid escape \\ sequence".to_owned()
    } else {
        "quantifier operand invalid".to_owned()
    }
}

/// Postgres' escapes that are written otherwise here.
fn translate(pattern: &str) -> Result<Cow<'_, str>> {
    let pattern = pattern.strip_prefix("***:").or_else(|| pattern.strip_prefix("***=")).unwrap_or(pattern);
    if !pattern.contains('\\') && !pattern.contains('[') && !pattern.contains("(?") {
        return Ok(Cow::Borrowed(pattern));
    }
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut characters = pattern.chars().peekable();
    let mut class = 0_usize;
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let Some(next) = characters.next() else { return Err(invalid("invalid escape \\ sequence")) };
                match next {
                    'm' if class == 0 => out.push_str(r"\b{start}"),
                    'M' if class == 0 => out.push_str(r"\b{end}"),
                    'y' if class == 0 => out.push_str(r"\b"),
                    'Y' if class == 0 => out.push_str(r"\B"),
                    'Z' if class == 0 => out.push_str(r"\z"),
                    'e' => out.push_str(r"\x1B"),
                    'B' => out.push_str(r"\\"),
                    '1'..='9' if class == 0 => {
                        return Err(PlanError::unsupported("back references and look-around in regular expressions are not supported"));
                    }
                    other if other.is_alphanumeric() || other.is_ascii_punctuation() => {
                        out.push('\\');
                        out.push(other);
                    }
                    other => out.push(other),
                }
            }
            '[' if class > 0 => {
                // `[[:alpha:]]` stays; a lone bracket inside of a class is itself.
                if matches!(characters.peek(), Some(':')) {
                    class += 1;
                    out.push('[');
                } else {
                    out.push_str(r"\[");
                }
            }
            '[' => {
                class = 1;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    out.push('^');
                }
                if characters.peek() == Some(&']') {
                    characters.next();
                    out.push_str(r"\]");
                }
            }
            ']' if class > 0 => {
                class -= 1;
                out.push(']');
            }
            // The regex crate has operators inside of classes that Postgres has not.
            '&' | '~' if class > 0 => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    Ok(Cow::Owned(out))
}

/// Patterns of one evaluation, each compiled once.
struct Patterns {
    patterns: Texts,
    flags: Option<Texts>,
    fixed: &'static str,
    compiled: BTreeMap<(String, Flags), Regex>,
}

impl Patterns {
    fn of(call: &Call<'_>, flags: Option<usize>, fixed: &'static str) -> Result<Self> {
        let flags = match flags {
            Some(index) if index < call.arguments.len() => Some(call.texts(index)?),
            _ => None,
        };
        Ok(Self { patterns: call.texts(1)?, flags, fixed, compiled: BTreeMap::new() })
    }

    /// The pattern of a row and whether it is global; `None` if an argument is NULL.
    fn get(&mut self, row: usize) -> Result<Option<(&Regex, Flags)>> {
        let Some(pattern) = self.patterns.get(row) else { return Ok(None) };
        let letters = match &self.flags {
            None => self.fixed,
            Some(flags) => match flags.get(row) {
                Some(letters) => letters,
                None => return Ok(None),
            },
        };
        let flags = flags_of(letters)?;
        let key = (pattern.to_owned(), flags);
        if !self.compiled.contains_key(&key) {
            if self.compiled.len() >= MAX_PATTERNS {
                self.compiled.clear();
            }
            let regex = compile(pattern, flags)?;
            self.compiled.insert(key.clone(), regex);
        }
        Ok(self.compiled.get(&key).map(|regex| (regex, flags)))
    }
}

fn matches(call: &Call<'_>, fixed: &'static str, negated: bool) -> Result<ArrayRef> {
    let (texts, mut patterns) = (call.texts(0)?, Patterns::of(call, Some(2), fixed)?);
    call.build_booleans(|row| {
        let (Some(text), Some((regex, _))) = (texts.get(row), patterns.get(row)?) else { return Ok(None) };
        Ok(Some(regex.is_match(text) != negated))
    })
}

/// The groups of a match, or the whole of it if the pattern has none.
fn groups<'t>(captures: &Captures<'t>) -> Vec<Option<&'t str>> {
    if captures.len() == 1 {
        return vec![captures.get(0).map(|whole| whole.as_str())];
    }
    captures.iter().skip(1).map(|group| group.map(|group| group.as_str())).collect()
}

fn list_builder() -> ListBuilder<StringViewBuilder> {
    ListBuilder::new(StringViewBuilder::new()).with_field(Field::new("item", SqlType::Text.arrow(), true))
}

fn first_match(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, mut patterns) = (call.texts(0)?, Patterns::of(call, Some(2), "")?);
    let mut builder = list_builder();
    for row in 0..call.rows {
        let found = match (texts.get(row), patterns.get(row)?) {
            (Some(text), Some((regex, flags))) => {
                if flags.global {
                    return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "regexp_match() does not support the \"global\" option")
                        .with_hint("Use the regexp_matches function instead."));
                }
                regex.captures(text)
            }
            _ => None,
        };
        match found {
            Some(captures) => {
                groups(&captures).into_iter().for_each(|group| builder.values().append_option(group));
                builder.append(true);
            }
            None => builder.append(false),
        }
    }
    Ok(std::sync::Arc::new(builder.finish()))
}

/// All matches, each a list of its groups.
pub(super) fn all_matches(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, mut patterns) = (call.texts(0)?, Patterns::of(call, Some(2), "")?);
    let item = Field::new("item", SqlType::array(SqlType::Text).arrow(), true);
    let mut builder = ListBuilder::new(list_builder()).with_field(item);
    for row in 0..call.rows {
        if let (Some(text), Some((regex, flags))) = (texts.get(row), patterns.get(row)?) {
            for captures in matches_of(regex, text, 0).take(if flags.global { usize::MAX } else { 1 }) {
                groups(&captures).into_iter().for_each(|group| builder.values().values().append_option(group));
                builder.values().append(true);
            }
        }
        builder.append(true);
    }
    Ok(std::sync::Arc::new(builder.finish()))
}

/// `\1` and `\&` of a replacement.
fn expand(replacement: &str, captures: &Captures<'_>, out: &mut String) {
    let mut characters = replacement.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('&') => out.push_str(captures.get(0).map_or("", |whole| whole.as_str())),
            Some(digit @ '0'..='9') => {
                let number = digit as usize - '0' as usize;
                out.push_str(captures.get(number).map_or("", |group| group.as_str()));
            }
            Some('\\') => out.push('\\'),
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
    }
}

/// A list of all matches of each row, its elements as rows.
fn matches_as_rows(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let types = values.iter().map(|value| value.sql_type.arrow()).collect();
    let result = SqlType::array(SqlType::array(SqlType::Text));
    let kernel = Kernel::strict("regexp_all_matches", all_matches);
    let call = kernel.call(values.into_iter().map(|value| value.expr).collect(), types, result.arrow(), &binder.environment);
    sequence::rows_of(Typed::new(call, result))
}

/// An argument that counts from 1.
fn counted(call: &Call<'_>, index: usize, name: &str, row: usize, least: i32) -> Result<Option<usize>> {
    let Some(value) = call.values::<Int32Type>(index)?.get(row) else { return Ok(None) };
    if value < least {
        return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid value for parameter \"{name}\": {value}")));
    }
    Ok(Some(value as usize))
}

/// Arguments after the replacement are flags, or the character to start at, the match to replace (0 for all) and flags.
fn replace(call: &Call<'_>, flags: Option<usize>) -> Result<ArrayRef> {
    let (texts, replacements) = (call.texts(0)?, call.texts(2)?);
    let mut patterns = Patterns::of(call, flags, "")?;
    let numbered = call.arguments.len() > 4 || flags.is_none();
    call.build_texts(|row| {
        let (Some(text), Some(replacement)) = (texts.get(row), replacements.get(row)) else { return Ok(None) };
        let start = if numbered { counted(call, 3, "start", row, 1)? } else { Some(1) };
        let nth = if call.arguments.len() > 4 { counted(call, 4, "n", row, 0)? } else { None };
        let (Some(start), Some((regex, flags))) = (start, patterns.get(row)?) else { return Ok(None) };
        let (skipped, taken) = match nth {
            Some(0) => (0, usize::MAX),
            Some(nth) => (nth - 1, 1),
            None if call.arguments.len() > 4 => return Ok(None),
            None => (0, if flags.global { usize::MAX } else { 1 }),
        };
        let mut out = String::with_capacity(text.len());
        let mut last = text.char_indices().nth(start - 1).map_or(text.len(), |(at, _)| at);
        out.push_str(&text[..last]);
        for captures in matches_of(regex, text, last).skip(skipped).take(taken) {
            let Some(whole) = captures.get(0) else { continue };
            out.push_str(&text[last..whole.start()]);
            expand(replacement, &captures, &mut out);
            last = whole.end();
        }
        out.push_str(&text[last..]);
        Ok(Some(out))
    })
}

fn split(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, mut patterns) = (call.texts(0)?, Patterns::of(call, Some(2), "")?);
    let mut builder = list_builder();
    for row in 0..call.rows {
        match (texts.get(row), patterns.get(row)?) {
            (Some(text), Some((regex, _))) => {
                let (mut last, mut before) = (0, 0);
                for found in matches_of(regex, text, 0).filter_map(|captures| captures.get(0)) {
                    // An empty match splits between two characters only, and not where another has split.
                    if found.start() < text.len() && found.end() > before {
                        builder.values().append_value(&text[last..found.start()]);
                        last = found.end();
                    }
                    before = found.end();
                }
                builder.values().append_value(&text[last..]);
                builder.append(true);
            }
            _ => builder.append(false),
        }
    }
    Ok(std::sync::Arc::new(builder.finish()))
}

fn count(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, mut patterns) = (call.texts(0)?, Patterns::of(call, Some(3), "")?);
    let starts = if call.arguments.len() > 2 { Some(call.values::<Int32Type>(2)?) } else { None };
    call.build::<Int32Type>(|row| {
        let (Some(text), Some((regex, _))) = (texts.get(row), patterns.get(row)?) else { return Ok(None) };
        let start = match &starts {
            None => 1,
            Some(starts) => match starts.get(row) {
                Some(start) => start,
                None => return Ok(None),
            },
        };
        if start < 1 {
            let message = format!("invalid value for parameter \"start\": {start}");
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
        let from = text.char_indices().nth(start as usize - 1).map_or(text.len(), |(at, _)| at);
        Ok(Some(matches_of(regex, text, from).count() as i32))
    })
}

/// The first match; with `group`, its first group if there is one.
fn substring(call: &Call<'_>, group: bool) -> Result<ArrayRef> {
    let (texts, mut patterns) = (call.texts(0)?, Patterns::of(call, None, "")?);
    call.build_texts(|row| {
        let (Some(text), Some((regex, _))) = (texts.get(row), patterns.get(row)?) else { return Ok(None) };
        let Some(captures) = regex.captures(text) else { return Ok(None) };
        let wanted = usize::from(group && captures.len() > 1);
        Ok(captures.get(wanted).map(|found| found.as_str().to_owned()))
    })
}

/// A pattern of SIMILAR TO as a regular expression.
fn similar(call: &Call<'_>) -> Result<ArrayRef> {
    let patterns = call.texts(0)?;
    let escapes = if call.arguments.len() > 1 { Some(call.texts(1)?) } else { None };
    call.build_texts(|row| {
        let Some(pattern) = patterns.get(row) else { return Ok(None) };
        let escape = match &escapes {
            None => Some('\\'),
            Some(escapes) => match escapes.get(row) {
                Some(escape) => escape.chars().next(),
                None => return Ok(None),
            },
        };
        Ok(Some(similar_pattern(pattern, escape)))
    })
}

fn similar_pattern(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::from("^(?:");
    let mut class = false;
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            escaped if Some(escaped) == escape => {
                if let Some(next) = characters.next() {
                    if !next.is_alphanumeric() {
                        out.push('\\');
                    }
                    out.push(next);
                }
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            inner if class => out.push(inner),
            '[' => {
                class = true;
                out.push('[');
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '\\' | '.' | '^' | '$' => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out.push_str(")$");
    out
}
