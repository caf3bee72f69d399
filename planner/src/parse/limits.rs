//! Bounds on statements. Trees are walked, copied and dropped by recursion in many places, so their depth is bounded before there is a tree.

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

use crate::error::{PlanError, Result, sqlstate};

/// Longest script, in bytes.
pub const MAX_STATEMENT_BYTES: usize = 64 << 20;
/// Deepest nesting of parentheses, brackets and CASE.
pub const MAX_NESTING: usize = 200;
/// Most operators that may form one chain (`a + b + c ..`), because a chain is as deep a tree as nesting is.
const MAX_CHAIN: usize = 4_000;
/// Most joins and set operations of one list, which are as deep a plan.
const MAX_RELATION_CHAIN: usize = 400;
/// Deepest nesting of queries in two parentheses. The parser reads such a one twice in FROM, as `((SELECT ..) AS a)` begins like `((SELECT ..))`.
const MAX_DOUBLE_PARENTHESES: usize = 12;
/// What the parser's own counter allows: a level of nesting takes several of its steps.
pub(super) const MAX_RECURSION: usize = MAX_NESTING * 6;
/// Nesting that an ordinary thread's stack bears.
pub(super) const SHALLOW_NESTING: usize = 12;
/// Stack for deeper statements; the pages that are not touched cost nothing.
const DEEP_STACK_BYTES: usize = 256 << 20;

/// Runs `work` on a stack that bears any statement within the limits.
pub fn with_deep_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(DEEP_STACK_BYTES / 2, DEEP_STACK_BYTES, work)
}

/// Refuses text that is too long.
pub(super) fn check_size(sql: &str) -> Result<()> {
    if sql.len() <= MAX_STATEMENT_BYTES {
        return Ok(());
    }
    let detail = format!("It has {} bytes, at most {MAX_STATEMENT_BYTES} are allowed.", sql.len());
    Err(PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "statement is too long").with_detail(detail))
}

fn too_deep(token: &TokenWithSpan) -> PlanError {
    PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint("Nest expressions less deeply, or write long chains as IN lists or as VALUES.")
        .at(token.span)
}

/// Operators and relation operators since the last comma or opening parenthesis of a level.
#[derive(Clone, Copy, Default)]
struct Level {
    chain: usize,
    relations: usize,
    /// Queries in two parentheses round about.
    doubled: usize,
}

/// Refuses tokens that would make too deep a tree; gives the depth that is there.
pub(super) fn check_nesting(tokens: &[TokenWithSpan]) -> Result<usize> {
    let mut levels = vec![Level::default()];
    let mut deepest = 0;
    for (index, token) in tokens.iter().enumerate() {
        let level = levels.last_mut().expect("the outermost level is never closed");
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let doubled = level.doubled + usize::from(begins_in_two_parentheses(&tokens[index..]));
                levels.push(Level { doubled, ..Level::default() });
            }
            Token::Word(word) if word.keyword == Keyword::CASE => {
                let doubled = level.doubled;
                levels.push(Level { doubled, ..Level::default() });
            }
            Token::RParen | Token::RBracket | Token::RBrace => close(&mut levels),
            Token::Word(word) if word.keyword == Keyword::END => close(&mut levels),
            Token::Comma => level.chain = 0,
            Token::SemiColon => *level = Level::default(),
            Token::Word(word) => match word.keyword {
                Keyword::JOIN | Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
                    level.relations += 1;
                    level.chain = 0;
                }
                Keyword::AND | Keyword::OR | Keyword::NOT | Keyword::IS | Keyword::LIKE | Keyword::COLLATE => level.chain += 1,
                Keyword::SELECT | Keyword::FROM | Keyword::WHERE | Keyword::WHEN | Keyword::THEN | Keyword::ELSE => level.chain = 0,
                _ => {}
            },
            Token::SingleQuotedString(_) | Token::Number(..) | Token::Placeholder(_) => {}
            _ => level.chain += 1,
        }
        let level = levels.last().expect("the outermost level is never closed");
        if levels.len() > MAX_NESTING
            || level.doubled > MAX_DOUBLE_PARENTHESES
            || level.chain > MAX_CHAIN
            || level.relations > MAX_RELATION_CHAIN
        {
            return Err(too_deep(token));
        }
        deepest = deepest.max(levels.len() + level.chain / 8 + level.relations / 4);
    }
    Ok(deepest)
}

/// Whether tokens are two parentheses and a query.
fn begins_in_two_parentheses(tokens: &[TokenWithSpan]) -> bool {
    let mut rest = tokens.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    let opened = rest.by_ref().take(2).filter(|token| **token == Token::LParen).count();
    let query = |word: &Keyword| matches!(word, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE);
    opened == 2 && matches!(rest.next(), Some(Token::Word(word)) if query(&word.keyword))
}

/// Closes a level; what stands unbalanced is left to the grammar.
fn close(levels: &mut Vec<Level>) {
    if levels.len() > 1 {
        levels.pop();
    }
}
