//! `parse_ident`: a qualified name as text, cut into its parts.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ListBuilder, StringViewBuilder},
    datatypes::{DataType, Field},
};

use super::{kernel::Call, signature::Entry};
use crate::error::{PlanError, Result, sqlstate};

pub(super) const FUNCTIONS: &[Entry] =
    &[Entry::strict("parse_ident(text) text[]", parse_ident), Entry::strict("parse_ident(text, boolean) text[]", parse_ident)];

/// The second argument says whether nothing may follow the name.
fn parse_ident(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    let strict = if call.arguments.len() > 1 { Some(call.booleans(1)?) } else { None };
    let mut builder = ListBuilder::new(StringViewBuilder::new()).with_field(Field::new("item", DataType::Utf8View, true));
    for row in 0..call.rows {
        let alone = strict.as_ref().map_or(Some(true), |strict| strict.get(row));
        match (texts.get(row), alone) {
            (Some(text), Some(alone)) => {
                parts(text, alone)?.iter().for_each(|part| builder.values().append_value(part));
                builder.append(true);
            }
            _ => builder.append(false),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn parts(text: &str, alone: bool) -> Result<Vec<String>> {
    let invalid = |detail: Option<&str>| {
        let error = PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("string is not a valid identifier: \"{text}\""));
        match detail {
            Some(detail) => error.with_detail(detail),
            None => error,
        }
    };
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (part, after) = until_quote(quoted).ok_or_else(|| invalid(Some("String has unclosed double quotes.")))?;
                if part.is_empty() {
                    return Err(invalid(Some("Quoted identifier must not be empty.")));
                }
                (part, after)
            }
            None => {
                let end = rest.find(|character| !is_part(character)).unwrap_or(rest.len());
                if end == 0 || rest.starts_with(|first: char| first.is_ascii_digit() || first == '$') {
                    return Err(invalid(match parts.len() {
                        0 if rest.starts_with('.') => Some("No valid identifier before \".\"."),
                        0 => None,
                        _ => Some("No valid identifier after \".\"."),
                    }));
                }
                (rest[..end].to_ascii_lowercase(), &rest[end..])
            }
        };
        parts.push(part);
        rest = after.trim_start();
        match rest.strip_prefix('.') {
            Some(next) => rest = next.trim_start(),
            None if rest.is_empty() || !alone => return Ok(parts),
            None => return Err(invalid(None)),
        }
    }
}

fn is_part(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$') || !character.is_ascii()
}

/// What stands in quotes, with doubled ones as one, and what follows.
fn until_quote(text: &str) -> Option<(String, &str)> {
    let (mut part, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                part.push('"');
                rest = next;
            }
            None => return Some((part, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_their_dots() {
        assert_eq!(parts(" Public . \"T\"\"x.y\"", true).unwrap(), ["public", "T\"x.y"]);
        assert_eq!(parts("a.b(int)", false).unwrap(), ["a", "b"]);
        assert_eq!(parts("über_1$", true).unwrap(), ["über_1$"]);
        for (text, detail) in [
            ("a.b(int)", None),
            ("\"a", Some("String has unclosed double quotes.")),
            ("\"\"", Some("Quoted identifier must not be empty.")),
            (".a", Some("No valid identifier before \".\".")),
            ("a.", Some("No valid identifier after \".\".")),
            ("1a", None),
            ("", None),
        ] {
            let error = parts(text, true).unwrap_err();
            assert_eq!((error.sqlstate, error.detail.as_deref()), ("22023", detail), "{text}");
        }
    }
}
