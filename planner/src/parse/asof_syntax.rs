//! `a ASOF [LEFT] JOIN b ON ..`, brought to what the grammar knows, `a ASOF JOIN b MATCH_CONDITION (..) ON ..`, on tokens. The match condition
//! is a mark: true where rows without a partner are kept, false where they are not. The conditions themselves are all in ON.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::grammar::is_word;

/// An ASOF join whose ON has not come.
struct Open {
    depth: usize,
    keeps_unmatched: bool,
}

/// The same tokens with a mark in front of the ON of each ASOF join.
pub(super) fn mark(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(&token.token, "ASOF")) {
        return tokens;
    }
    let mut marked = Vec::with_capacity(tokens.len() + 4);
    let mut open: Vec<Open> = Vec::new();
    let mut depth = 0_usize;
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            word if is_word(word, "ASOF") => {
                if let Some((words, keeps_unmatched)) = kind(&tokens[index + 1..]) {
                    open.push(Open { depth, keeps_unmatched });
                    marked.push(token.clone());
                    index += 1 + words;
                    continue;
                }
            }
            // What is read a second time, as a part of a statement, has its marks.
            word if is_word(word, "MATCH_CONDITION") => {
                open.pop_if(|open| open.depth == depth);
            }
            word if is_word(word, "ON") => {
                if let Some(Open { keeps_unmatched, .. }) = open.pop_if(|open| open.depth == depth) {
                    let condition = if keeps_unmatched { "TRUE" } else { "FALSE" };
                    let words = [Token::make_keyword("MATCH_CONDITION"), Token::LParen, Token::make_keyword(condition), Token::RParen];
                    marked.extend(words.map(|word| TokenWithSpan::new(word, token.span)));
                }
            }
            _ => {}
        }
        marked.push(token.clone());
        index += 1;
    }
    marked
}

/// The words between ASOF and JOIN, white space included, and whether they keep rows without a partner.
fn kind(tokens: &[TokenWithSpan]) -> Option<(usize, bool)> {
    let words = tokens.iter().enumerate().filter(|(_, token)| !matches!(token.token, Token::Whitespace(_)));
    let mut keeps_unmatched = false;
    for (at, word) in words {
        if is_word(&word.token, "JOIN") {
            return Some((at, keeps_unmatched));
        }
        if is_word(&word.token, "LEFT") {
            keeps_unmatched = true;
        } else if !is_word(&word.token, "INNER") && !is_word(&word.token, "OUTER") {
            return None;
        }
    }
    None
}
