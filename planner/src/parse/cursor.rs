//! PREPARE, EXECUTE, DEALLOCATE; DECLARE, FETCH, MOVE, CLOSE.

use sqlparser::tokenizer::Token;

use super::{
    grammar::Grammar,
    statement::{DeclareCursor, Fetch, FetchDirection, Prepare, Statement},
};
use crate::error::{PlanError, Result, sqlstate};

impl Grammar<'_> {
    pub(super) fn read_prepare(&mut self) -> Result<Statement> {
        self.expect_word("PREPARE")?;
        if self.peeks("TRANSACTION") {
            return Err(PlanError::unsupported("prepared transactions are not supported"));
        }
        let name = self.identifier()?;
        let mut types = Vec::new();
        if self.symbol(&Token::LParen) {
            types = self.list(|grammar| grammar.run(|parser| parser.parse_data_type()))?;
            self.expect_symbol(&Token::RParen)?;
        }
        self.expect_word("AS")?;
        let span = self.parser.peek_token_ref().span;
        let statement = self.read_parsed_statement()?;
        if !matches!(statement.statement, Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)) {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "only SELECT, INSERT, UPDATE and DELETE can be prepared").at(span));
        }
        Ok(Statement::Prepare(Box::new(Prepare { name, types, statement })))
    }

    pub(super) fn read_execute(&mut self) -> Result<Statement> {
        self.expect_word("EXECUTE")?;
        let name = self.identifier()?;
        let mut arguments = Vec::new();
        if self.symbol(&Token::LParen) && !self.symbol(&Token::RParen) {
            arguments = self.list(Self::expression)?;
            self.expect_symbol(&Token::RParen)?;
        }
        Ok(Statement::Execute { name, arguments })
    }

    pub(super) fn read_deallocate(&mut self) -> Result<Statement> {
        self.expect_word("DEALLOCATE")?;
        self.word("PREPARE");
        Ok(Statement::Deallocate(if self.word("ALL") { None } else { Some(self.identifier()?) }))
    }

    pub(super) fn read_declare(&mut self) -> Result<Statement> {
        self.expect_word("DECLARE")?;
        let name = self.identifier()?;
        let (mut binary, mut scroll) = (false, None);
        loop {
            match self.one_of(&["BINARY", "INSENSITIVE", "ASENSITIVE", "NO", "SCROLL"]) {
                Some("BINARY") => binary = true,
                Some("NO") => {
                    self.expect_word("SCROLL")?;
                    scroll = Some(false);
                }
                Some("SCROLL") => scroll = Some(true),
                Some(_) => {}
                None => break,
            }
        }
        self.expect_word("CURSOR")?;
        let hold = match self.one_of(&["WITH", "WITHOUT"]) {
            Some(word) => {
                self.expect_word("HOLD")?;
                word == "WITH"
            }
            None => false,
        };
        self.expect_word("FOR")?;
        let query = self.query()?;
        Ok(Statement::DeclareCursor(Box::new(DeclareCursor { name, binary, scroll, hold, query })))
    }

    pub(super) fn read_fetch(&mut self) -> Result<Statement> {
        let moves = self.one_of(&["FETCH", "MOVE"]) == Some("MOVE");
        let direction = self.fetch_direction()?;
        let _ = self.one_of(&["FROM", "IN"]);
        let cursor = self.identifier()?;
        Ok(Statement::Fetch(Fetch { cursor, direction, moves }))
    }

    /// The direction, if it is not the cursor's name that comes next.
    fn fetch_direction(&mut self) -> Result<FetchDirection> {
        if matches!(self.parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus) {
            return Ok(FetchDirection::Forward(self.integer()?));
        }
        let followed = !matches!(self.parser.peek_nth_token_ref(1).token, Token::EOF);
        if !followed {
            return Ok(FetchDirection::Forward(1));
        }
        Ok(match self.one_of(&["NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD"]) {
            Some("PRIOR") => FetchDirection::Backward(1),
            Some("FIRST") => FetchDirection::Absolute(1),
            Some("LAST") => FetchDirection::Absolute(-1),
            Some("ABSOLUTE") => FetchDirection::Absolute(self.integer()?),
            Some("RELATIVE") => FetchDirection::Relative(self.integer()?),
            Some("ALL") => FetchDirection::ForwardAll,
            Some("FORWARD") if self.word("ALL") => FetchDirection::ForwardAll,
            Some("FORWARD") => FetchDirection::Forward(self.optional_count()?),
            Some("BACKWARD") if self.word("ALL") => FetchDirection::BackwardAll,
            Some("BACKWARD") => FetchDirection::Backward(self.optional_count()?),
            _ => FetchDirection::Forward(1),
        })
    }

    fn optional_count(&mut self) -> Result<i64> {
        match self.parser.peek_token_ref().token {
            Token::Number(..) | Token::Minus | Token::Plus => self.integer(),
            _ => Ok(1),
        }
    }

    pub(super) fn read_close(&mut self) -> Result<Statement> {
        self.expect_word("CLOSE")?;
        Ok(Statement::CloseCursor(if self.word("ALL") { None } else { Some(self.identifier()?) }))
    }
}
