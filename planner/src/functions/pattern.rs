//! LIKE and ILIKE, which are DataFusion's own expressions.

use arrow::array::ArrayRef;
use datafusion::logical_expr::{Expr, expr::Like};

use super::{comparison::pair, kernel::Call, signature::Entry};
use crate::{
    bind::Typed,
    error::{PlanError, Result, sqlstate},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("~~(text, text) boolean", |_, values| like(values, false, false)),
    Entry::rewrite("!~~(text, text) boolean", |_, values| like(values, true, false)),
    Entry::rewrite("~~*(text, text) boolean", |_, values| like(values, false, true)),
    Entry::rewrite("!~~*(text, text) boolean", |_, values| like(values, true, true)),
    // The blanks of a `char(n)` count on the left side only.
    Entry::rewrite("~~(bpchar, text) boolean", |_, values| like(values, false, false)),
    Entry::rewrite("!~~(bpchar, text) boolean", |_, values| like(values, true, false)),
    Entry::rewrite("~~*(bpchar, text) boolean", |_, values| like(values, false, true)),
    Entry::rewrite("!~~*(bpchar, text) boolean", |_, values| like(values, true, true)),
    Entry::rewrite("like(text, text) boolean", |_, values| like(values, false, false)),
    Entry::rewrite("notlike(text, text) boolean", |_, values| like(values, true, false)),
    Entry::strict("like_escape(text, text) text", escape),
];

fn like(values: Vec<Typed>, negated: bool, insensitive: bool) -> Result<Typed> {
    let [value, pattern] = pair(values)?;
    if let Some(text) = pattern.constant_text() {
        let escapes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if escapes % 2 == 1 {
            return Err(PlanError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character"));
        }
    }
    let like = Like::new(negated, Box::new(value.expr), Box::new(pattern.expr), None, insensitive);
    Ok(Typed::boolean(Expr::Like(like)))
}

/// A pattern with an escape character of its own, brought to the backslash.
fn escape(call: &Call<'_>) -> Result<ArrayRef> {
    let (patterns, escapes) = (call.texts(0)?, call.texts(1)?);
    call.build_texts(|row| {
        let (Some(pattern), Some(escape)) = (patterns.get(row), escapes.get(row)) else { return Ok(None) };
        escaped(pattern, escape).map(Some)
    })
}

fn escaped(pattern: &str, escape: &str) -> Result<String> {
    let mut characters = escape.chars();
    let (escape, more) = (characters.next(), characters.next());
    if more.is_some() {
        return Err(PlanError::new("22019", "invalid escape string").with_hint("Escape string must be empty or one character."));
    }
    let mut out = String::with_capacity(pattern.len() + 4);
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        if Some(character) == escape {
            let Some(next) = rest.next() else {
                return Err(PlanError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character"));
            };
            out.push('\\');
            out.push(next);
        } else if character == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(character);
        }
    }
    Ok(out)
}
