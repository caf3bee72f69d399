//! Hints stand in comments, which the grammar never sees.

use sqlparser::tokenizer::{Token, Tokenizer, Whitespace};

use super::dialect::MillpondDialect;

/// What the comments that begin with a plus sign say, in order, without it. Cheap for a text without any.
pub(crate) fn hint_comments(sql: &str) -> Vec<String> {
    if !sql.contains("/*+") {
        return Vec::new();
    }
    // A text that cannot be cut into tokens is no statement, and is refused elsewhere.
    let tokens = Tokenizer::new(&MillpondDialect, sql).tokenize().unwrap_or_default();
    let hint = |token| match token {
        Token::Whitespace(Whitespace::MultiLineComment(comment)) => comment.strip_prefix('+').map(str::to_owned),
        _ => None,
    };
    tokens.into_iter().filter_map(hint).collect()
}
