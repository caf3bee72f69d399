//! Functions of text. Positions and lengths count characters.

use arrow::{
    array::ArrayRef,
    datatypes::{Int32Type, Int64Type},
};
use sqlparser::tokenizer::Span;

use super::{
    kernel::{Call, Traits},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    catalog::name::quoted,
    error::{PlanError, Result, sqlstate},
    pg_text,
    types::{SqlType, coercion::CoercionContext},
};

/// Longest text that a function makes.
const MAX_TEXT_BYTES: usize = 1 << 30;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::strict("lower(text) text", |call| map(call, |text| text.to_lowercase())),
    Entry::strict("upper(text) text", |call| map(call, |text| text.to_uppercase())),
    Entry::strict("initcap(text) text", |call| map(call, initcap)),
    Entry::strict("length(text) integer", |call| count(call, characters)),
    Entry::strict("char_length(text) integer", |call| count(call, characters)).named("length"),
    Entry::strict("character_length(text) integer", |call| count(call, characters)).named("length"),
    Entry::strict("octet_length(text) integer", |call| count(call, str::len)),
    Entry::strict("octet_length(bpchar) integer", |call| count(call, str::len)),
    Entry::strict("bit_length(text) integer", |call| count(call, |text| text.len() * 8)),
    Entry::operator("||(text, text) text", "textcat", concatenate),
    Entry::rewrite("||(text, anynonarray) text", |binder, values| with_text(binder, values, 1)),
    Entry::rewrite("||(anynonarray, text) text", |binder, values| with_text(binder, values, 0)),
    Entry::rewrite("concat(variadic any) text", concat),
    Entry::rewrite("concat_ws(text, variadic any) text", concat_with),
    Entry::kernel("concat_texts(variadic text) text", Traits::NULLS, join_all),
    Entry::kernel("concat_texts_ws(text, variadic text) text", Traits::NULLS, join_with),
    Entry::strict("substr(text, integer) text", substring),
    Entry::strict("substr(text, integer, integer) text", substring),
    Entry::strict("substring(text, integer) text", substring).named("substr"),
    Entry::strict("substring(text, integer, integer) text", substring).named("substr"),
    Entry::strict("left(text, integer) text", |call| side(call, true)),
    Entry::strict("right(text, integer) text", |call| side(call, false)),
    Entry::strict("lpad(text, integer) text", |call| pad(call, true)),
    Entry::strict("lpad(text, integer, text) text", |call| pad(call, true)),
    Entry::strict("rpad(text, integer) text", |call| pad(call, false)),
    Entry::strict("rpad(text, integer, text) text", |call| pad(call, false)),
    Entry::strict("btrim(text) text", |call| trim(call, true, true)),
    Entry::strict("btrim(text, text) text", |call| trim(call, true, true)),
    Entry::strict("trim(text) text", |call| trim(call, true, true)).named("btrim"),
    Entry::strict("trim(text, text) text", |call| trim(call, true, true)).named("btrim"),
    Entry::strict("ltrim(text) text", |call| trim(call, true, false)),
    Entry::strict("ltrim(text, text) text", |call| trim(call, true, false)),
    Entry::strict("rtrim(text) text", |call| trim(call, false, true)),
    Entry::strict("rtrim(text, text) text", |call| trim(call, false, true)),
    Entry::strict("replace(text, text, text) text", replace),
    Entry::strict("translate(text, text, text) text", translate),
    Entry::strict("reverse(text) text", |call| map(call, |text| text.chars().rev().collect())),
    Entry::strict("repeat(text, integer) text", repeat),
    Entry::strict("split_part(text, text, integer) text", split_part),
    Entry::strict("strpos(text, text) integer", position),
    Entry::strict("position(text, text) integer", position).named("strpos"),
    Entry::strict("starts_with(text, text) boolean", starts_with),
    Entry::operator("^@(text, text) boolean", "starts_with", starts_with),
    Entry::strict("ascii(text) integer", |call| {
        let texts = call.texts(0)?;
        call.build::<Int32Type>(|row| Ok(texts.get(row).map(|text| text.chars().next().map_or(0, |first| first as i32))))
    }),
    Entry::strict("chr(integer) text", chr),
    Entry::strict("md5(text) text", |call| map(call, |text| super::bytes::md5_hex(text.as_bytes()))),
    Entry::strict("quote_ident(text) text", |call| map(call, quoted)),
    Entry::strict("quote_literal(text) text", |call| map(call, quote_literal)),
    Entry::rewrite("quote_literal(anynonarray) text", |binder, values| of_text_form(binder, "quote_literal", values)),
    Entry::kernel("quote_nullable(text) text", Traits::NULLS, |call| {
        let texts = call.texts(0)?;
        call.build_texts(|row| Ok(Some(texts.get(row).map_or_else(|| "NULL".to_owned(), quote_literal))))
    }),
    Entry::strict("to_hex(integer) text", |call| {
        let values = call.values::<Int32Type>(0)?;
        call.build_texts(|row| Ok(values.get(row).map(|value| format!("{value:x}"))))
    }),
    Entry::strict("to_hex(bigint) text", |call| {
        let values = call.values::<Int64Type>(0)?;
        call.build_texts(|row| Ok(values.get(row).map(|value| format!("{value:x}"))))
    }),
    Entry::strict("overlay(text, text, integer) text", overlay),
    Entry::strict("overlay(text, text, integer, integer) text", overlay),
    Entry::kernel("format(text) text", Traits::NULLS, format_texts),
    Entry::rewrite("format(text, variadic any) text", format),
    Entry::kernel("format_texts(text, variadic text) text", Traits::NULLS, format_texts),
    Entry::rewrite("text(any) text", |binder, mut values| {
        let value = values.swap_remove(0);
        binder.coerce(value, &SqlType::Text, CoercionContext::Explicit, Span::empty())
    }),
];

pub(super) fn too_large() -> PlanError {
    PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// The byte at which a character starts; the end of the text if it has fewer.
fn byte_of(text: &str, character: usize) -> usize {
    if text.is_ascii() {
        return character.min(text.len());
    }
    text.char_indices().nth(character).map_or(text.len(), |(at, _)| at)
}

fn map(call: &Call<'_>, change: impl Fn(&str) -> String) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build_texts(|row| Ok(texts.get(row).map(&change)))
}

fn count(call: &Call<'_>, measure: fn(&str) -> usize) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build::<Int32Type>(|row| Ok(texts.get(row).map(|text| measure(text) as i32)))
}

fn initcap(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        if inside {
            result.extend(character.to_lowercase());
        } else {
            result.extend(character.to_uppercase());
        }
        inside = character.is_alphanumeric();
    }
    result
}

fn concatenate(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.texts(0)?, call.texts(1)?);
    let mut buffer = String::new();
    let mut builder = arrow::array::StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else {
            builder.append_null();
            continue;
        };
        buffer.clear();
        buffer.push_str(left);
        buffer.push_str(right);
        builder.try_append_value(&buffer)?;
    }
    Ok(std::sync::Arc::new(builder.finish()))
}

/// The text form of an argument that may be of any type.
fn as_text(binder: &Binder<'_>, value: Typed) -> Result<Typed> {
    match value.sql_type {
        // The functions that take any type show booleans by their output form.
        SqlType::Boolean => {
            let branches = vec![(value.expr.clone(), Typed::text("t").expr), (value.expr.is_not_null(), Typed::text("f").expr)];
            Ok(Typed::new(super::conditional::case(branches, None), SqlType::Text))
        }
        // They show all blanks of a `char(n)`, too.
        SqlType::Char => Ok(Typed::new(value.expr, SqlType::Text)),
        _ => binder.coerce(value, &SqlType::Text, CoercionContext::Explicit, Span::empty()),
    }
}

fn with_text(binder: &Binder<'_>, mut values: Vec<Typed>, place: usize) -> Result<Typed> {
    values[place] = binder.coerce(values[place].clone(), &SqlType::Text, CoercionContext::Explicit, Span::empty())?;
    binder.call("||", values, Span::empty())
}

fn concat(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let values = values.into_iter().map(|value| as_text(binder, value)).collect::<Result<_>>()?;
    binder.call("concat_texts", values, Span::empty())
}

fn concat_with(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let values = values.into_iter().map(|value| as_text(binder, value)).collect::<Result<_>>()?;
    binder.call("concat_texts_ws", values, Span::empty())
}

fn join_all(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = (0..call.arguments.len()).map(|index| call.texts(index)).collect::<Result<Vec<_>>>()?;
    call.build_texts(|row| Ok(Some(columns.iter().filter_map(|column| column.get(row)).collect::<String>())))
}

fn join_with(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = (0..call.arguments.len()).map(|index| call.texts(index)).collect::<Result<Vec<_>>>()?;
    call.build_texts(|row| {
        let Some(separator) = columns[0].get(row) else { return Ok(None) };
        Ok(Some(columns[1..].iter().filter_map(|column| column.get(row)).collect::<Vec<_>>().join(separator)))
    })
}

/// Characters `start` to `start + length`, counted from 1; what lies before the text is cut off.
fn substring(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, starts) = (call.texts(0)?, call.values::<Int32Type>(1)?);
    let lengths = if call.arguments.len() > 2 { Some(call.values::<Int32Type>(2)?) } else { None };
    call.build_texts(|row| {
        let (Some(text), Some(start)) = (texts.get(row), starts.get(row)) else { return Ok(None) };
        let start = i64::from(start) - 1;
        let end = match &lengths {
            None => i64::MAX,
            Some(lengths) => match lengths.get(row) {
                None => return Ok(None),
                Some(length) if length < 0 => {
                    return Err(PlanError::new("22011", "negative substring length not allowed"));
                }
                Some(length) => start + i64::from(length),
            },
        };
        let first = byte_of(text, usize::try_from(start.max(0)).unwrap_or(usize::MAX));
        let last = byte_of(text, usize::try_from(end.max(0)).unwrap_or(usize::MAX)).max(first);
        Ok(Some(&text[first..last]))
    })
}

/// The first or last characters; a negative number leaves so many off at the other end.
fn side(call: &Call<'_>, left: bool) -> Result<ArrayRef> {
    let (texts, numbers) = (call.texts(0)?, call.values::<Int32Type>(1)?);
    call.build_texts(|row| {
        let (Some(text), Some(number)) = (texts.get(row), numbers.get(row)) else { return Ok(None) };
        let total = characters(text) as i64;
        let number = i64::from(number);
        let kept = if number >= 0 { number.min(total) } else { (total + number).max(0) };
        let border = if left { kept } else { total - kept };
        let at = byte_of(text, border as usize);
        Ok(Some(if left { &text[..at] } else { &text[at..] }))
    })
}

fn pad(call: &Call<'_>, left: bool) -> Result<ArrayRef> {
    let (texts, lengths) = (call.texts(0)?, call.values::<Int32Type>(1)?);
    let fills = if call.arguments.len() > 2 { Some(call.texts(2)?) } else { None };
    call.build_texts(|row| {
        let (Some(text), Some(length)) = (texts.get(row), lengths.get(row)) else { return Ok(None) };
        let fill = match &fills {
            None => " ",
            Some(fills) => match fills.get(row) {
                Some(fill) => fill,
                None => return Ok(None),
            },
        };
        let length = usize::try_from(length).unwrap_or(0);
        if length > MAX_TEXT_BYTES / 4 {
            return Err(too_large());
        }
        let present = characters(text);
        if present >= length || fill.is_empty() {
            return Ok(Some(text[..byte_of(text, length)].to_owned()));
        }
        let padding: String = fill.chars().cycle().take(length - present).collect();
        Ok(Some(if left { padding + text } else { text.to_owned() + &padding }))
    })
}

fn trim(call: &Call<'_>, start: bool, end: bool) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    let sets = if call.arguments.len() > 1 { Some(call.texts(1)?) } else { None };
    call.build_texts(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        let set = match &sets {
            None => " ",
            Some(sets) => match sets.get(row) {
                Some(set) => set,
                None => return Ok(None),
            },
        };
        let inside = |character: char| set.contains(character);
        let text = if start { text.trim_start_matches(inside) } else { text };
        Ok(Some(if end { text.trim_end_matches(inside) } else { text }))
    })
}

fn replace(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, olds, news) = (call.texts(0)?, call.texts(1)?, call.texts(2)?);
    call.build_texts(|row| {
        let (Some(text), Some(old), Some(new)) = (texts.get(row), olds.get(row), news.get(row)) else { return Ok(None) };
        Ok(Some(if old.is_empty() { text.to_owned() } else { text.replace(old, new) }))
    })
}

/// Each character of `from` becomes the one at its place in `to`, or goes if there is none.
fn translate(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, froms, tos) = (call.texts(0)?, call.texts(1)?, call.texts(2)?);
    call.build_texts(|row| {
        let (Some(text), Some(from), Some(to)) = (texts.get(row), froms.get(row), tos.get(row)) else { return Ok(None) };
        let change = |character: char| match from.chars().position(|other| other == character) {
            None => Some(character),
            Some(place) => to.chars().nth(place),
        };
        Ok(Some(text.chars().filter_map(change).collect::<String>()))
    })
}

fn repeat(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, counts) = (call.texts(0)?, call.values::<Int32Type>(1)?);
    call.build_texts(|row| {
        let (Some(text), Some(count)) = (texts.get(row), counts.get(row)) else { return Ok(None) };
        let count = usize::try_from(count).unwrap_or(0);
        if text.len().saturating_mul(count) > MAX_TEXT_BYTES {
            return Err(too_large());
        }
        Ok(Some(text.repeat(count)))
    })
}

/// The field of a number, counted from 1, or from the end if it is negative.
fn split_part(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, separators, numbers) = (call.texts(0)?, call.texts(1)?, call.values::<Int32Type>(2)?);
    call.build_texts(|row| {
        let (Some(text), Some(separator), Some(number)) = (texts.get(row), separators.get(row), numbers.get(row)) else { return Ok(None) };
        if number == 0 {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "field position must not be zero"));
        }
        if separator.is_empty() {
            return Ok(Some(if number == 1 || number == -1 { text } else { "" }));
        }
        let place = number.unsigned_abs() as usize - 1;
        let part = if number > 0 { text.split(separator).nth(place) } else { text.rsplit(separator).nth(place) };
        Ok(Some(part.unwrap_or("")))
    })
}

fn position(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, parts) = (call.texts(0)?, call.texts(1)?);
    call.build::<Int32Type>(|row| {
        let (Some(text), Some(part)) = (texts.get(row), parts.get(row)) else { return Ok(None) };
        Ok(Some(text.find(part).map_or(0, |at| characters(&text[..at]) as i32 + 1)))
    })
}

fn starts_with(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, starts) = (call.texts(0)?, call.texts(1)?);
    call.build_booleans(|row| {
        let (Some(text), Some(start)) = (texts.get(row), starts.get(row)) else { return Ok(None) };
        Ok(Some(text.starts_with(start)))
    })
}

fn chr(call: &Call<'_>) -> Result<ArrayRef> {
    let codes = call.values::<Int32Type>(0)?;
    call.build_texts(|row| {
        let Some(code) = codes.get(row) else { return Ok(None) };
        if code == 0 {
            return Err(PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "null character not permitted"));
        }
        match u32::try_from(code).ok().and_then(char::from_u32) {
            Some(character) => Ok(Some(character.to_string())),
            None => Err(PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("requested character too large for encoding: {code}"))),
        }
    })
}

pub(super) fn quote_literal(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", escaped.replace('\\', "\\\\")) } else { format!("'{escaped}'") }
}

fn of_text_form(binder: &Binder<'_>, name: &str, mut values: Vec<Typed>) -> Result<Typed> {
    values[0] = as_text(binder, values[0].clone())?;
    binder.call(name, values, Span::empty())
}

fn overlay(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, news, starts) = (call.texts(0)?, call.texts(1)?, call.values::<Int32Type>(2)?);
    let lengths = if call.arguments.len() > 3 { Some(call.values::<Int32Type>(3)?) } else { None };
    call.build_texts(|row| {
        let (Some(text), Some(new), Some(start)) = (texts.get(row), news.get(row), starts.get(row)) else { return Ok(None) };
        let length = match &lengths {
            None => characters(new) as i64,
            Some(lengths) => match lengths.get(row) {
                Some(length) => i64::from(length),
                None => return Ok(None),
            },
        };
        if start < 1 {
            return Err(PlanError::new("22011", "negative substring length not allowed"));
        }
        let start = i64::from(start) - 1;
        let first = byte_of(text, start as usize);
        let last = byte_of(text, usize::try_from((start + length).max(0)).unwrap_or(usize::MAX));
        Ok(Some(format!("{}{new}{}", &text[..first], &text[last..])))
    })
}

fn format(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let values = values.into_iter().map(|value| as_text(binder, value)).collect::<Result<_>>()?;
    binder.call("format_texts", values, Span::empty())
}

/// `%s`, `%I`, `%L`, `%%`, with `n$` for the place of an argument and a width.
fn format_texts(call: &Call<'_>) -> Result<ArrayRef> {
    let columns = (0..call.arguments.len()).map(|index| call.texts(index)).collect::<Result<Vec<_>>>()?;
    call.build_texts(|row| {
        let Some(pattern) = columns[0].get(row) else { return Ok(None) };
        let arguments: Vec<Option<&str>> = columns[1..].iter().map(|column| column.get(row)).collect();
        format_row(pattern, &arguments).map(Some)
    })
}

fn format_row(pattern: &str, arguments: &[Option<&str>]) -> Result<String> {
    let invalid = |message: String| PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message);
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    let mut next = 0;
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        if characters.peek() == Some(&'%') {
            characters.next();
            out.push('%');
            continue;
        }
        let mut specifier = String::new();
        while let Some(inner) = characters.peek().filter(|inner| inner.is_ascii_digit() || matches!(inner, '$' | '-' | '*')) {
            specifier.push(*inner);
            characters.next();
        }
        let kind = characters.next().ok_or_else(|| invalid("unterminated format() type specifier".to_owned()))?;
        let (place, flags) = match specifier.split_once('$') {
            Some((place, flags)) => (Some(place.parse::<usize>().unwrap_or(0)), flags),
            None => (None, specifier.as_str()),
        };
        let index = match place {
            Some(0) => return Err(invalid("format specifies argument 0, but arguments are numbered from 1".to_owned())),
            Some(place) => place - 1,
            None => next,
        };
        next = index + 1;
        let value = *arguments.get(index).ok_or_else(|| invalid("too few arguments for format()".to_owned()))?;
        let text = match kind {
            's' => value.unwrap_or("").to_owned(),
            'I' => match value {
                Some(value) => quoted(value),
                None => return Err(PlanError::new("22004", "null values cannot be formatted as an SQL identifier")),
            },
            'L' => value.map_or_else(|| "NULL".to_owned(), quote_literal),
            other => return Err(invalid(format!("unrecognized format() type specifier \"{other}\""))),
        };
        let width: usize = flags.trim_start_matches('-').parse().unwrap_or(0);
        let missing = " ".repeat(width.min(1_000_000).saturating_sub(text.chars().count()));
        if flags.starts_with('-') {
            out.push_str(&text);
            out.push_str(&missing);
        } else {
            out.push_str(&missing);
            out.push_str(&text);
        }
    }
    Ok(out)
}

/// A JSON string is a text in quotes.
pub(super) fn json_string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    pg_text::write_json_string(text, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
