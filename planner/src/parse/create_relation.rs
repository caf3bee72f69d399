//! CREATE TABLE, SOURCE, SINK, VIEW, MATERIALIZED VIEW and INDEX.

use sqlparser::{ast::Expr, tokenizer::Token};

use super::{
    grammar::{Grammar, is_word},
    statement::{
        CreateIndex, CreateSink, CreateSource, CreateTable, CreateTableAs, CreateView, SinkInput, Statement, TableElements, WithOption,
    },
};
use crate::error::{PlanError, Result};

impl Grammar<'_> {
    pub(super) fn read_create_table(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.object_name()?;
        self.refuse_parts()?;
        let mut elements = TableElements::default();
        let mut columns = Vec::new();
        if self.parser.peek_token_ref().token == Token::LParen {
            if self.lists_names_only() {
                columns = self.names_in_parentheses()?;
            } else {
                self.parser.advance_token();
                elements = self.table_elements()?;
            }
        }
        self.refuse_parts()?;
        let span = self.parser.peek_token_ref().span;
        let mut options = Vec::new();
        if self.words(&["APPEND", "ONLY"]) {
            options.push(WithOption { key: "append_only".to_owned(), value: "true".to_owned(), span });
        }
        options.extend(self.with_options()?);
        if !elements.columns.is_empty() && !self.peeks("AS") {
            self.format_clause(&mut options)?;
            return Ok(Statement::CreateTable(Box::new(CreateTable { name, if_not_exists, elements, options })));
        }
        if !self.word("AS") {
            let create = CreateTable { name, if_not_exists, elements, options };
            return if columns.is_empty() { Ok(Statement::CreateTable(Box::new(create))) } else { Err(self.unexpected()) };
        }
        if !elements.columns.is_empty() {
            return Err(
                PlanError::unsupported("CREATE TABLE .. AS with typed columns is not supported").with_hint("Name the columns only.")
            );
        }
        let count = self.tokens_before(&["WITH"], &["NO", "DATA"]).min(self.tokens_before(&["WITH"], &["DATA"]));
        let (query, _) = self.query_of(count)?;
        let no_data = self.with_data_clause()?;
        Ok(Statement::CreateTableAs(Box::new(CreateTableAs { name, if_not_exists, columns, options, query, no_data })))
    }

    /// Tables that are made of others.
    fn refuse_parts(&self) -> Result<()> {
        let (what, hint) = if self.peeks("PARTITION") {
            ("partitioned tables are", "Create one table; it needs no partitions.")
        } else if self.peeks("INHERITS") {
            ("inheritance is", "Create tables of their own, and a view over their UNION ALL.")
        } else if self.peeks("OF") {
            ("typed tables are", "List the columns.")
        } else {
            return Ok(());
        };
        Err(PlanError::unsupported(format!("{what} not supported")).with_hint(hint).at(self.parser.peek_token_ref().span))
    }

    /// Whether the parentheses ahead hold names alone, as in `CREATE TABLE t (a, b) AS ..`.
    fn lists_names_only(&self) -> bool {
        let tokens = self.rest();
        let end = tokens.iter().position(|token| token.token == Token::RParen);
        let inside = tokens.get(1..end.unwrap_or(0)).unwrap_or_default();
        !inside.is_empty()
            && inside.len() % 2 == 1
            && inside.iter().enumerate().all(|(index, token)| match index % 2 {
                0 => matches!(token.token, Token::Word(_)),
                _ => token.token == Token::Comma,
            })
    }

    /// `WITH [NO] DATA`; whether NO.
    pub(super) fn with_data_clause(&mut self) -> Result<bool> {
        if !self.word("WITH") {
            return Ok(false);
        }
        let no_data = self.word("NO");
        self.expect_word("DATA")?;
        Ok(no_data)
    }

    pub(super) fn read_create_source(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.object_name()?;
        let elements = if self.symbol(&Token::LParen) { self.table_elements()? } else { TableElements::default() };
        let mut options = self.with_options()?;
        self.format_clause(&mut options)?;
        Ok(Statement::CreateSource(Box::new(CreateSource { name, if_not_exists, elements, options })))
    }

    pub(super) fn read_create_sink(&mut self) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        let name = self.object_name()?;
        let mut emit_on_window_close = false;
        // Options stand before the query, as those of a materialized view do, or after it.
        let mut options = self.with_options()?;
        let input = if self.word("AS") {
            let count =
                self.tokens_before(&["WITH"], &["("]).min(self.tokens_before(&["EMIT"], &["ON"])).min(self.tokens_before(&["FORMAT"], &[]));
            let (query, text) = self.query_of(count)?;
            emit_on_window_close = self.emit_clause()?;
            SinkInput::Query(query, text)
        } else {
            self.expect_word("FROM")?;
            SinkInput::Relation(self.object_name()?)
        };
        options.extend(self.with_options()?);
        self.format_clause(&mut options)?;
        Ok(Statement::CreateSink(Box::new(CreateSink { name, if_not_exists, input, emit_on_window_close, options })))
    }

    pub(super) fn read_create_view(&mut self, materialized: bool, or_replace: bool) -> Result<Statement> {
        let if_not_exists = self.if_not_exists();
        if or_replace && (materialized || if_not_exists) {
            return Err(if materialized {
                PlanError::unsupported("CREATE OR REPLACE MATERIALIZED VIEW is not supported").with_hint("Drop the view first.")
            } else {
                self.unexpected()
            });
        }
        let name = self.object_name()?;
        let columns = if self.parser.peek_token_ref().token == Token::LParen { self.names_in_parentheses()? } else { Vec::new() };
        let options = self.with_options()?;
        self.expect_word("AS")?;
        let count = self
            .tokens_before(&["EMIT"], &["ON"])
            .min(self.tokens_before(&["WITH"], &["NO", "DATA"]))
            .min(self.tokens_before(&["WITH"], &["DATA"]));
        let (query, query_text) = self.query_of(count)?;
        let emit_on_window_close = self.emit_clause()?;
        if self.with_data_clause()? {
            return Err(
                PlanError::unsupported("WITH NO DATA is not supported").with_hint("A materialized view always shows its query's rows.")
            );
        }
        let view = CreateView { name, materialized, or_replace, if_not_exists, columns, options, query, query_text, emit_on_window_close };
        Ok(Statement::CreateView(Box::new(view)))
    }

    /// `EMIT ON WINDOW CLOSE`
    fn emit_clause(&mut self) -> Result<bool> {
        if !self.word("EMIT") {
            return Ok(false);
        }
        for word in ["ON", "WINDOW", "CLOSE"] {
            self.expect_word(word)?;
        }
        Ok(true)
    }

    /// How many tokens stand before `first` followed by `then`, outside of parentheses; all that are left if they do not come.
    /// `(` among `then` is the parenthesis.
    fn tokens_before(&self, first: &[&str], then: &[&str]) -> usize {
        let tokens = self.rest();
        let words: Vec<&str> = first.iter().chain(then).copied().collect();
        let matches_at = |index: usize| {
            words.iter().enumerate().all(|(ahead, word)| {
                tokens.get(index + ahead).is_some_and(|token| match *word {
                    "(" => token.token == Token::LParen,
                    word => is_word(&token.token, word),
                })
            })
        };
        let mut depth = 0_usize;
        for (index, token) in tokens.iter().enumerate() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ if depth == 0 && index > 0 && matches_at(index) => return index,
                _ => {}
            }
        }
        tokens.len()
    }

    pub(super) fn read_create_index(&mut self, unique: bool) -> Result<Statement> {
        self.word("CONCURRENTLY");
        let if_not_exists = self.if_not_exists();
        let name = if self.peeks("ON") { None } else { Some(self.identifier()?) };
        self.expect_word("ON")?;
        self.word("ONLY");
        let table = self.object_name()?;
        if self.word("USING") {
            self.identifier()?;
        }
        self.expect_symbol(&Token::LParen)?;
        let columns = self.list(|grammar| {
            let span = grammar.parser.peek_token_ref().span;
            let item = grammar.run(|parser| parser.parse_order_by_expr())?;
            match item.expr {
                Expr::Identifier(name) => Ok((name, item.options.asc == Some(false))),
                _ => Err(PlanError::unsupported("indexes on expressions are not supported").with_hint("Index columns of a view.").at(span)),
            }
        })?;
        self.expect_symbol(&Token::RParen)?;
        if self.word("INCLUDE") {
            self.names_in_parentheses()?;
        }
        self.with_options()?;
        if self.peeks("WHERE") {
            return Err(PlanError::unsupported("partial indexes are not supported").with_hint("Index a view that has the condition."));
        }
        Ok(Statement::CreateIndex(Box::new(CreateIndex { name, table, if_not_exists, unique, columns })))
    }
}
