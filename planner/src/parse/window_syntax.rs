//! The longer spelling of window table functions, `TABLE(TUMBLE(TABLE t, DESCRIPTOR(c), INTERVAL '10' SECOND))`, brought to the short one,
//! `TUMBLE(t, DESCRIPTOR(c), INTERVAL '10' SECOND)`, on tokens: the grammar of table functions has no relation as an argument.
//! `DESCRIPTOR(c)` stays, it is a function call to the grammar.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::grammar::is_word;

const FUNCTIONS: [&str; 4] = ["TUMBLE", "HOP", "SESSION", "CUMULATE"];

/// The same tokens without the words that make the spelling long.
pub(super) fn shorten(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut closers = Vec::new();
    let mut depth = 0_usize;
    let token_at = |index: usize| tokens.get(index).map(|token| &token.token);
    let is_function = |index: usize| {
        token_at(index).is_some_and(|token| FUNCTIONS.iter().any(|name| is_word(token, name)))
            && token_at(index + 1) == Some(&Token::LParen)
    };
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match &token.token {
            word if is_word(word, "TABLE") && token_at(index + 1) == Some(&Token::LParen) && is_function(index + 2) => {
                closers.push(depth);
                index += 2;
                continue;
            }
            word if is_word(word, "TABLE") && index >= 2 && is_function(index - 2) && token_at(index - 1) == Some(&Token::LParen) => {
                index += 1;
                continue;
            }
            Token::LParen => depth += 1,
            Token::RParen if closers.last() == Some(&depth) => {
                closers.pop();
                index += 1;
                continue;
            }
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        kept.push(token.clone());
        index += 1;
    }
    kept
}
