//! EXPLAIN, ANALYZE, VACUUM, REFRESH, FLUSH.

use sqlparser::tokenizer::Token;

use super::{
    grammar::Grammar,
    statement::{Explain, Statement},
};
use crate::error::{PlanError, Result, sqlstate};

impl Grammar<'_> {
    pub(super) fn read_explain(&mut self) -> Result<Statement> {
        self.expect_word("EXPLAIN")?;
        let (mut analyze, mut verbose, mut format, mut options) = (false, false, "text".to_owned(), Vec::new());
        if self.parser.peek_token_ref().token == Token::LParen && !self.parenthesis_starts_query() {
            self.parser.advance_token();
            loop {
                let name = self.identifier()?.value.to_lowercase();
                let value = self.explain_option_value()?;
                let on = !matches!(value.as_deref(), Some("false" | "off" | "0"));
                match name.as_str() {
                    "analyze" | "analyse" => analyze = on,
                    "verbose" => verbose = on,
                    "format" => format = value.ok_or_else(|| self.unexpected())?,
                    _ => options.push((name, value)),
                }
                if self.symbol(&Token::RParen) {
                    break;
                }
                self.expect_symbol(&Token::Comma)?;
            }
        } else {
            analyze = self.one_of(&["ANALYZE", "ANALYSE"]).is_some();
            verbose = self.word("VERBOSE");
        }
        let span = self.parser.peek_token_ref().span;
        let statement = self.read_parsed_statement()?;
        let explainable = matches!(
            &statement.statement,
            Statement::Query(_)
                | Statement::Insert(_)
                | Statement::Update(_)
                | Statement::Delete(_)
                | Statement::CreateView(_)
                | Statement::CreateSink(_)
                | Statement::CreateTableAs(_)
                | Statement::DeclareCursor(_)
                | Statement::Execute { .. }
        );
        if !explainable {
            let message = format!("EXPLAIN {} is not possible", statement.statement.tag());
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(span));
        }
        Ok(Statement::Explain(Box::new(Explain { analyze, verbose, format, options, statement })))
    }

    /// Whether the parenthesis ahead belongs to a query, as in `EXPLAIN (SELECT 1)`.
    fn parenthesis_starts_query(&self) -> bool {
        let mut ahead = 1;
        while self.parser.peek_nth_token_ref(ahead).token == Token::LParen {
            ahead += 1;
        }
        ["SELECT", "VALUES", "WITH", "TABLE"].iter().any(|word| self.peeks_at(ahead, word))
    }

    fn explain_option_value(&mut self) -> Result<Option<String>> {
        match &self.parser.peek_token_ref().token {
            Token::Comma | Token::RParen => Ok(None),
            Token::Number(..) => Ok(Some(self.integer()?.to_string())),
            Token::SingleQuotedString(_) => Ok(Some(self.string()?.to_lowercase())),
            _ => Ok(Some(self.identifier()?.value.to_lowercase())),
        }
    }

    pub(super) fn read_analyze(&mut self) -> Result<Statement> {
        let _ = self.one_of(&["ANALYZE", "ANALYSE"]);
        self.word("VERBOSE");
        if self.at_end() {
            return Ok(Statement::Analyze(Vec::new()));
        }
        self.word("TABLE");
        let tables = self.list(|grammar| {
            let name = grammar.object_name()?;
            if grammar.parser.peek_token_ref().token == Token::LParen {
                grammar.names_in_parentheses()?;
            }
            Ok(name)
        })?;
        Ok(Statement::Analyze(tables))
    }

    pub(super) fn read_vacuum(&mut self) -> Result<Statement> {
        self.expect_word("VACUUM")?;
        while !self.at_end() {
            self.parser.advance_token();
        }
        Ok(Statement::Vacuum)
    }

    pub(super) fn read_refresh(&mut self) -> Result<Statement> {
        self.expect_word("REFRESH")?;
        self.expect_word("MATERIALIZED")?;
        self.expect_word("VIEW")?;
        self.word("CONCURRENTLY");
        let name = self.object_name()?;
        let span = self.parser.peek_token_ref().span;
        if self.with_data_clause()? {
            let message = "REFRESH MATERIALIZED VIEW .. WITH NO DATA is not supported";
            return Err(PlanError::unsupported(message).with_hint("A materialized view is always populated. Drop it instead.").at(span));
        }
        Ok(Statement::Refresh(name))
    }

    pub(super) fn read_flush(&mut self) -> Result<Statement> {
        self.expect_word("FLUSH")?;
        match self.at_end() {
            true => Ok(Statement::Flush),
            false => Err(PlanError::new(sqlstate::SYNTAX_ERROR, "FLUSH takes nothing after it").at(self.parser.peek_token_ref().span)),
        }
    }
}
