//! Syntax errors in Postgres' wording.

use sqlparser::{
    parser::ParserError,
    tokenizer::{Location, TokenWithSpan, TokenizerError},
};

use super::script::Script;
use crate::error::{PlanError, sqlstate};

/// An error at a token.
pub(super) fn near(token: &TokenWithSpan, script: &Script<'_>) -> PlanError {
    let text = script.text_of(token.span);
    PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{text}\"")).at(token.span)
}

/// The text ended too early.
pub(super) fn at_end() -> PlanError {
    PlanError::new(sqlstate::SYNTAX_ERROR, "syntax error at end of input")
}

/// An error of the tokenizer: mostly a quote that is never closed.
pub(super) fn of_tokenizer(error: &TokenizerError, script: &Script<'_>) -> PlanError {
    let message = error.message.to_lowercase();
    let what = if message.contains("comment") {
        "unterminated /* comment"
    } else if message.contains("dollar") {
        "unterminated dollar-quoted string"
    } else if message.contains("expected close delimiter") {
        "unterminated quoted identifier"
    } else if message.contains("unterminated") {
        "unterminated quoted string"
    } else {
        "syntax error"
    };
    let rest = script.text_of(sqlparser::tokenizer::Span::new(error.location, Location { line: u64::MAX, column: 1 }));
    let shown: String = rest.chars().take(40).collect();
    PlanError::new(sqlstate::SYNTAX_ERROR, format!("{what} at or near \"{shown}\"")).at_location(error.location)
}

/// An error of the parser, whose text ends in the place where it was met. Without one, `current` is to blame.
pub(super) fn of_parser(error: &ParserError, tokens: &[TokenWithSpan], current: Option<&TokenWithSpan>, script: &Script<'_>) -> PlanError {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            return PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .with_hint("Nest expressions and subqueries less deeply.");
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    if message.contains("found: EOF") {
        return match tokens.last() {
            Some(last) => at_end().at_location(last.span.end),
            None => at_end(),
        };
    }
    let place = location_in(message);
    match place.and_then(|place| tokens.iter().find(|token| token.span.start == place)).or(current) {
        Some(token) => near(token, script),
        None => match tokens.last() {
            Some(last) => at_end().at_location(last.span.end),
            None => at_end(),
        },
    }
}

/// Reads ` at Line: 3, Column: 14` at the end of a message.
fn location_in(message: &str) -> Option<Location> {
    let (_, place) = message.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
}
