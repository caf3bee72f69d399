//! SQL text to statements: our own grammar of statements round `sqlparser`'s grammar of queries and expressions.
//!
//! The text is cut into tokens once; limits on size and nesting are checked on them, so that neither parsing nor dropping a tree can overflow
//! a stack. Statements of the streaming dialect and all others but queries and DML are read here; what `sqlparser` reads is reached through the
//! same token stream.

mod alter;
mod asof_syntax;
mod copy;
mod create;
mod create_relation;
mod cursor;
mod dialect;
mod grammar;
mod hint;
mod limits;
mod maintenance;
mod script;
mod session;
pub(crate) mod spelling;
pub mod statement;
mod syntax;
mod transaction;
mod unsupported;
mod window_syntax;

use std::sync::Arc;

use sqlparser::tokenizer::{Token, Tokenizer};

use dialect::MillpondDialect;
pub(crate) use hint::hint_comments;
pub use limits::{MAX_NESTING, MAX_STATEMENT_BYTES, with_deep_stack};
pub use statement::{ParsedStatement, Statement};

use self::{grammar::Grammar, script::Script};
use crate::error::Result;

/// Reads a script: statements separated by semicolons. Empty statements give nothing, so that an empty script is an empty list.
///
/// # Errors
/// 42601 in Postgres' wording with a position; 54001 for text nested too deeply, 54000 for text too long; 0A000 for statements that are known
/// but not supported.
pub fn parse(sql: &str) -> Result<Vec<ParsedStatement>> {
    limits::check_size(sql)?;
    parse_script(sql).map_err(|error| error.located_in(sql))
}

fn parse_script(sql: &str) -> Result<Vec<ParsedStatement>> {
    let script = Script::new(sql);
    let tokens = Tokenizer::new(&MillpondDialect, sql).tokenize_with_location().map_err(|error| syntax::of_tokenizer(&error, &script))?;
    let tokens: Vec<_> = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    let depth = limits::check_nesting(&tokens)?;
    let shared: Arc<str> = Arc::from(sql);
    let read = || {
        let mut statements = Vec::new();
        for range in script::statement_ranges(&tokens) {
            let tokens = &tokens[range];
            let text = script.slice(tokens).to_owned();
            let statement = Grammar::new(tokens, &script).read_whole_statement()?;
            statements.push(ParsedStatement { statement, text, script: Arc::clone(&shared) });
        }
        Ok(statements)
    };
    if depth > limits::SHALLOW_NESTING { with_deep_stack(read) } else { read() }
}

/// Reads one query, e.g. the stored definition of a view.
///
/// # Errors
/// As [`parse`], and 42601 if the text is anything but one query.
pub fn parse_query(sql: &str) -> Result<sqlparser::ast::Query> {
    match parse(sql)?.pop().map(|parsed| parsed.statement) {
        Some(Statement::Query(query)) => Ok(*query),
        _ => Err(syntax::at_end()),
    }
}

/// Reads one expression, e.g. the stored default of a column.
///
/// # Errors
/// As [`parse_query`].
pub fn parse_expression(sql: &str) -> Result<sqlparser::ast::Expr> {
    limits::check_size(sql)?;
    let script = Script::new(sql);
    let tokens = Tokenizer::new(&MillpondDialect, sql).tokenize_with_location().map_err(|error| syntax::of_tokenizer(&error, &script))?;
    let tokens: Vec<_> = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    limits::check_nesting(&tokens)?;
    with_deep_stack(|| Grammar::new(&tokens, &script).read_whole_expression())
}

#[cfg(test)]
mod tests;
