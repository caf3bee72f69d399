//! LIKE and ILIKE, which are DataFusion's own expressions.

use arrow::array::ArrayRef;
use datafusion::logical_expr::{Expr, expr::Like};

use sqlparser::tokenizer::Span;

use super::{comparison::pair, kernel::Call, signature::Entry};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("~~(text, text) boolean", |binder, values| like(binder, values, false, false)),
    Entry::rewrite("!~~(text, text) boolean", |binder, values| like(binder, values, true, false)),
    Entry::rewrite("~~*(text, text) boolean", |binder, values| like(binder, values, false, true)),
    Entry::rewrite("!~~*(text, text) boolean", |binder, values| like(binder, values, true, true)),
    // The blanks of a `char(n)` count on the left side only.
    Entry::rewrite("~~(bpchar, text) boolean", |binder, values| like(binder, values, false, false)),
    Entry::rewrite("!~~(bpchar, text) boolean", |binder, values| like(binder, values, true, false)),
    Entry::rewrite("~~*(bpchar, text) boolean", |binder, values| like(binder, values, false, true)),
    Entry::rewrite("!~~*(bpchar, text) boolean", |binder, values| like(binder, values, true, true)),
    Entry::rewrite("like(text, text) boolean", |binder, values| like(binder, values, false, false)),
    Entry::rewrite("notlike(text, text) boolean", |binder, values| like(binder, values, true, false)),
    Entry::strict("like_pattern(text) text", checked),
    Entry::strict("like_escape(text, text) text", escape),
];

fn like(binder: &Binder<'_>, values: Vec<Typed>, negated: bool, insensitive: bool) -> Result<Typed> {
    let [value, pattern] = pair(values)?;
    let pattern = match pattern.constant_text() {
        Some(text) => {
            check_end(text)?;
            pattern.expr
        }
        None => binder.call("like_pattern", vec![pattern], Span::empty())?.expr,
    };
    let like = Like::new(negated, Box::new(value.expr), Box::new(pattern), None, insensitive);
    Ok(Typed::boolean(Expr::Like(like)))
}

fn ends_with_escape() -> PlanError {
    PlanError::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
}

/// DataFusion takes a backslash at the end for an ordinary character.
fn check_end(pattern: &str) -> Result<()> {
    let escapes = pattern.bytes().rev().take_while(|byte| *byte == b'\\').count();
    if escapes % 2 == 1 { Err(ends_with_escape()) } else { Ok(()) }
}

/// Patterns that are no constants, checked.
fn checked(call: &Call<'_>) -> Result<ArrayRef> {
    let patterns = call.texts(0)?;
    (0..call.rows).filter_map(|row| patterns.get(row)).try_for_each(check_end)?;
    call.array(0)
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
            let Some(next) = rest.next() else { return Err(ends_with_escape()) };
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
