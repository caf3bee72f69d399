//! Reading tokens: the few steps all statements are made of, and which statement starts with which words.

use sqlparser::{
    ast::{self, Expr, Ident, ObjectName, Query, SetExpr},
    parser::{Parser, ParserError},
    tokenizer::{Token, TokenWithSpan},
};

use super::{
    dialect::MillpondDialect,
    limits::MAX_RECURSION,
    script::Script,
    statement::{CreateTableAs, ParsedStatement, QueryText, Statement, WithCommon},
    syntax,
};
use crate::error::{PlanError, Result};

/// The dialect of what `sqlparser` reads.
static DIALECT: MillpondDialect = MillpondDialect;

/// The tokens of one statement, read from left to right.
pub(super) struct Grammar<'a> {
    pub(super) parser: Parser<'a>,
    tokens: Vec<TokenWithSpan>,
    pub(super) script: &'a Script<'a>,
}

impl<'a> Grammar<'a> {
    pub(super) fn new(tokens: &[TokenWithSpan], script: &'a Script<'a>) -> Self {
        let tokens = super::asof_syntax::mark(super::spelling::respell(&super::window_syntax::shorten(tokens)));
        let parser = Parser::new(&DIALECT).with_recursion_limit(MAX_RECURSION).with_tokens_with_locations(tokens.clone());
        Self { parser, tokens, script }
    }

    /// Reads a statement and expects nothing after it.
    pub(super) fn read_whole_statement(mut self) -> Result<Statement> {
        self.refuse_empty_clauses()?;
        let statement = self.read_statement()?;
        self.expect_end()?;
        Ok(statement)
    }

    /// `sqlparser` takes any word for the name of a relation; FROM without one is an error at the word that comes next.
    fn refuse_empty_clauses(&self) -> Result<()> {
        const AFTER_FROM: [&str; 11] =
            ["WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "ON", "RETURNING"];
        let wrong = self.tokens.windows(2).find(|pair| {
            (is_word(&pair[0].token, "FROM") || is_word(&pair[0].token, "JOIN"))
                && AFTER_FROM.iter().any(|word| is_word(&pair[1].token, word))
        });
        wrong.map_or(Ok(()), |pair| Err(syntax::near(&pair[1], self.script)))
    }

    /// Reads an expression and expects nothing after it.
    pub(super) fn read_whole_expression(mut self) -> Result<Expr> {
        let expression = self.expression()?;
        self.expect_end()?;
        Ok(expression)
    }

    /// Reads a statement together with its text.
    pub(super) fn read_parsed_statement(&mut self) -> Result<ParsedStatement> {
        let start = self.parser.index();
        let statement = self.read_statement()?;
        let text = self.text_since(start).to_owned();
        Ok(ParsedStatement { statement, text, script: "".into() })
    }

    fn read_statement(&mut self) -> Result<Statement> {
        let first = match &self.parser.peek_token_ref().token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_uppercase(),
            Token::LParen => return self.read_query_statement(),
            _ => return Err(self.unexpected()),
        };
        match first.as_str() {
            "SELECT" | "WITH" | "VALUES" | "TABLE" => self.read_query_statement(),
            "INSERT" | "UPDATE" | "DELETE" => self.read_dml(),
            "CREATE" => self.read_create(),
            "DROP" => self.read_drop(),
            "ALTER" => self.read_alter(),
            "COMMENT" => self.read_comment(),
            "COPY" => self.read_copy(),
            "TRUNCATE" => self.read_truncate(),
            "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" | "ABORT" | "SAVEPOINT" | "RELEASE" => self.read_transaction(),
            "SET" => self.read_set(),
            "SHOW" => self.read_show(),
            "DESCRIBE" | "DESC" => self.read_describe(),
            "RESET" => self.read_reset(),
            "DISCARD" => self.read_discard(),
            "PREPARE" => self.read_prepare(),
            "EXECUTE" => self.read_execute(),
            "DEALLOCATE" => self.read_deallocate(),
            "DECLARE" => self.read_declare(),
            "FETCH" | "MOVE" => self.read_fetch(),
            "CLOSE" => self.read_close(),
            "EXPLAIN" => self.read_explain(),
            "ANALYZE" | "ANALYSE" => self.read_analyze(),
            "VACUUM" => self.read_vacuum(),
            "FLUSH" => self.read_flush(),
            "LISTEN" | "UNLISTEN" | "NOTIFY" => self.read_notification(),
            "LOCK" => self.read_lock(),
            "REFRESH" => self.read_refresh(),
            _ => Err(self.unsupported_statement(&first).unwrap_or_else(|| self.unexpected())),
        }
    }

    fn read_query_statement(&mut self) -> Result<Statement> {
        let mut query = self.query()?;
        match query.body.as_mut() {
            SetExpr::Insert(ast::Statement::Insert(insert)) => {
                let mut insert = insert.clone();
                match (&mut insert.source, query.with.take()) {
                    (Some(source), Some(with)) if source.with.is_none() => source.with = Some(with),
                    _ => return Err(PlanError::unsupported("WITH is not supported before this INSERT")),
                }
                Ok(Statement::Insert(Box::new(insert)))
            }
            SetExpr::Update(ast::Statement::Update(update)) => {
                let statement = update.clone();
                Ok(Statement::Update(Box::new(WithCommon { with: query.with.take(), statement })))
            }
            SetExpr::Delete(ast::Statement::Delete(delete)) => {
                let statement = delete.clone();
                Ok(Statement::Delete(Box::new(WithCommon { with: query.with.take(), statement })))
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(PlanError::unsupported("WITH is not supported before MERGE"))
            }
            SetExpr::Select(select) => match select.into.take() {
                Some(into) => Ok(Statement::CreateTableAs(Box::new(CreateTableAs {
                    name: into.name,
                    if_not_exists: false,
                    columns: Vec::new(),
                    options: Vec::new(),
                    query,
                    no_data: false,
                }))),
                None => Ok(Statement::Query(query)),
            },
            _ => Ok(Statement::Query(query)),
        }
    }

    fn read_dml(&mut self) -> Result<Statement> {
        match self.run(|parser| parser.parse_statement())? {
            ast::Statement::Insert(insert) => Ok(Statement::Insert(Box::new(insert))),
            ast::Statement::Update(update) => Ok(Statement::Update(Box::new(WithCommon { with: None, statement: update }))),
            ast::Statement::Delete(delete) => Ok(Statement::Delete(Box::new(WithCommon { with: None, statement: delete }))),
            _ => Err(self.unexpected()),
        }
    }

    /// Runs a piece of `sqlparser`'s grammar.
    pub(super) fn run<T>(&mut self, read: impl FnOnce(&mut Parser<'a>) -> Result<T, ParserError>) -> Result<T> {
        let result = read(&mut self.parser);
        result.map_err(|error| {
            let current = self.tokens.get(self.parser.index());
            syntax::of_parser(&error, &self.tokens, current, self.script)
        })
    }

    pub(super) fn expression(&mut self) -> Result<Expr> {
        self.run(|parser| parser.parse_expr())
    }

    pub(super) fn query(&mut self) -> Result<Box<Query>> {
        self.run(|parser| parser.parse_query())
    }

    pub(super) fn identifier(&mut self) -> Result<Ident> {
        self.run(|parser| parser.parse_identifier())
    }

    pub(super) fn object_name(&mut self) -> Result<ObjectName> {
        self.run(|parser| parser.parse_object_name(false))
    }

    /// One or more, separated by commas.
    pub(super) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = vec![read(self)?];
        while self.symbol(&Token::Comma) {
            items.push(read(self)?);
        }
        Ok(items)
    }

    /// `(a, b)`, with at least one name.
    pub(super) fn names_in_parentheses(&mut self) -> Result<Vec<Ident>> {
        self.expect_symbol(&Token::LParen)?;
        let names = self.list(Self::identifier)?;
        self.expect_symbol(&Token::RParen)?;
        Ok(names)
    }

    /// Whether the next word, unquoted, is `word` (upper case).
    pub(super) fn peeks(&self, word: &str) -> bool {
        self.peeks_at(0, word)
    }

    /// Whether the word after `ahead` others is `word`.
    pub(super) fn peeks_at(&self, ahead: usize, word: &str) -> bool {
        is_word(&self.parser.peek_nth_token_ref(ahead).token, word)
    }

    /// Takes the next word if it is `word`.
    pub(super) fn word(&mut self, word: &str) -> bool {
        let found = self.peeks(word);
        if found {
            self.parser.advance_token();
        }
        found
    }

    /// Takes the next words if they are all there.
    pub(super) fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(ahead, word)| self.peeks_at(ahead, word));
        if found {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        found
    }

    /// The first of `words` that is next, taken.
    pub(super) fn one_of(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().copied().find(|word| self.word(word))
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.word(word) { Ok(()) } else { Err(self.unexpected()) }
    }

    pub(super) fn symbol(&mut self, symbol: &Token) -> bool {
        self.parser.consume_token(symbol)
    }

    pub(super) fn expect_symbol(&mut self, symbol: &Token) -> Result<()> {
        if self.symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// `IF EXISTS`
    pub(super) fn if_exists(&mut self) -> bool {
        self.words(&["IF", "EXISTS"])
    }

    /// `IF NOT EXISTS`
    pub(super) fn if_not_exists(&mut self) -> bool {
        self.words(&["IF", "NOT", "EXISTS"])
    }

    pub(super) fn string(&mut self) -> Result<String> {
        match self.parser.peek_token_ref().token.clone() {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) | Token::UnicodeStringLiteral(text) => {
                self.parser.advance_token();
                Ok(text)
            }
            Token::DollarQuotedString(text) => {
                self.parser.advance_token();
                Ok(text.value)
            }
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64> {
        let negative = self.symbol(&Token::Minus);
        if !negative {
            self.symbol(&Token::Plus);
        }
        match &self.parser.peek_token_ref().token {
            Token::Number(digits, _) => match digits.parse::<i64>() {
                Ok(number) => {
                    self.parser.advance_token();
                    Ok(if negative { -number } else { number })
                }
                Err(_) => Err(self.unexpected()),
            },
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.parser.peek_token_ref().token == Token::EOF
    }

    fn expect_end(&self) -> Result<()> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected()) }
    }

    /// The error that the next token does not belong there.
    pub(super) fn unexpected(&self) -> PlanError {
        match self.tokens.get(self.parser.index()) {
            Some(token) => syntax::near(token, self.script),
            None => match self.tokens.last() {
                Some(last) => syntax::at_end().at_location(last.span.end),
                None => syntax::at_end(),
            },
        }
    }

    /// The text from the token of number `start` to the last one that was taken.
    pub(super) fn text_since(&self, start: usize) -> &'a str {
        self.script.slice(&self.tokens[start..self.parser.index()])
    }

    /// Tokens that are left.
    pub(super) fn rest(&self) -> &[TokenWithSpan] {
        &self.tokens[self.parser.index().min(self.tokens.len())..]
    }

    /// Reads the next `count` tokens, all of them, as one query; gives its text too, and where that starts.
    pub(super) fn query_of(&mut self, count: usize) -> Result<(Box<Query>, QueryText)> {
        let start = self.parser.index();
        let piece = &self.tokens[start..start + count];
        let Some(first) = piece.first() else { return Err(self.unexpected()) };
        let text = QueryText { text: self.script.slice(piece).to_owned(), start: first.span.start };
        let mut inner = Grammar::new(piece, self.script);
        let query = inner.query()?;
        inner.expect_end()?;
        (0..count).for_each(|_| self.parser.advance_token());
        Ok((query, text))
    }
}

/// Whether a token is the unquoted word `word` (upper case).
pub(super) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}
