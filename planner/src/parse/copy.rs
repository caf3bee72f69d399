//! COPY, with options in parentheses and in the older form that psql's `\copy` sends.

use sqlparser::{ast::Ident, tokenizer::Token};

use super::{
    grammar::Grammar,
    statement::{Copy, CopyFormat, CopyOptions, CopyRelation, Statement},
};
use crate::error::{PlanError, Result, sqlstate};

/// Options as they are read, before the format's defaults.
#[derive(Default)]
struct Given {
    format: Option<CopyFormat>,
    delimiter: Option<String>,
    null: Option<String>,
    header: bool,
    quote: Option<String>,
    escape: Option<String>,
    force_quote: Vec<Ident>,
    force_quote_all: bool,
    force_not_null: Vec<Ident>,
    force_null: Vec<Ident>,
}

impl Grammar<'_> {
    pub(super) fn read_copy(&mut self) -> Result<Statement> {
        self.expect_word("COPY")?;
        self.word("BINARY");
        let relation = if self.parser.peek_token_ref().token == Token::LParen {
            self.parser.advance_token();
            let query = self.query()?;
            self.expect_symbol(&Token::RParen)?;
            CopyRelation::Query(query)
        } else {
            let name = self.object_name()?;
            let columns = if self.parser.peek_token_ref().token == Token::LParen { self.names_in_parentheses()? } else { Vec::new() };
            CopyRelation::Table { name, columns }
        };
        let from = match self.one_of(&["FROM", "TO"]) {
            Some("FROM") => true,
            Some(_) => false,
            None => return Err(self.unexpected()),
        };
        if from && matches!(relation, CopyRelation::Query(_)) {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "COPY query instruction is not allowed for COPY FROM"));
        }
        self.copy_target(from)?;
        let mut given = Given::default();
        self.word("WITH");
        if self.symbol(&Token::LParen) {
            self.copy_options(&mut given)?;
        } else {
            self.older_copy_options(&mut given)?;
        }
        if self.peeks("WHERE") {
            return Err(
                PlanError::unsupported("COPY FROM .. WHERE is not supported").with_hint("Copy into a table and use INSERT .. SELECT.")
            );
        }
        let options = given.complete()?;
        Ok(Statement::Copy(Box::new(Copy { relation, from, options })))
    }

    fn copy_target(&mut self, from: bool) -> Result<()> {
        let span = self.parser.peek_token_ref().span;
        if self.word(if from { "STDIN" } else { "STDOUT" }) || self.word(if from { "STDOUT" } else { "STDIN" }) {
            return Ok(());
        }
        if self.word("PROGRAM") || self.string().is_ok() {
            return Err(PlanError::unsupported("COPY to or from a file of the server is not supported")
                .with_hint("Use psql's \\copy, or a source with connector = 'file'.")
                .at(span));
        }
        Err(self.unexpected())
    }

    /// `FORMAT csv, HEADER, DELIMITER ','` up to the closing parenthesis.
    fn copy_options(&mut self, given: &mut Given) -> Result<()> {
        loop {
            let span = self.parser.peek_token_ref().span;
            let name = self.identifier()?.value.to_lowercase();
            match name.as_str() {
                "format" => given.format = Some(self.copy_format()?),
                "header" => given.header = self.copy_boolean()?,
                "freeze" => drop(self.copy_boolean()?),
                "delimiter" => given.delimiter = Some(self.string()?),
                "null" => given.null = Some(self.string()?),
                "quote" => given.quote = Some(self.string()?),
                "escape" => given.escape = Some(self.string()?),
                "encoding" => drop(self.string()?),
                "force_quote" if self.symbol(&Token::Mul) => given.force_quote_all = true,
                "force_quote" => given.force_quote = self.names_in_parentheses()?,
                "force_not_null" => given.force_not_null = self.names_in_parentheses()?,
                "force_null" => given.force_null = self.names_in_parentheses()?,
                _ => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("option \"{name}\" not recognized")).at(span)),
            }
            if self.symbol(&Token::RParen) {
                return Ok(());
            }
            self.expect_symbol(&Token::Comma)?;
        }
    }

    fn copy_format(&mut self) -> Result<CopyFormat> {
        let span = self.parser.peek_token_ref().span;
        let name = match self.string() {
            Ok(text) => text,
            Err(_) => self.identifier()?.value,
        };
        match name.to_lowercase().as_str() {
            "text" => Ok(CopyFormat::Text),
            "csv" => Ok(CopyFormat::Csv),
            "binary" => Ok(CopyFormat::Binary),
            _ => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("COPY format \"{name}\" not recognized")).at(span)),
        }
    }

    fn copy_boolean(&mut self) -> Result<bool> {
        if self.one_of(&["TRUE", "ON", "MATCH"]).is_some() {
            return Ok(true);
        }
        if self.one_of(&["FALSE", "OFF"]).is_some() {
            return Ok(false);
        }
        match &self.parser.peek_token_ref().token {
            Token::Number(..) => Ok(self.integer()? != 0),
            Token::SingleQuotedString(_) => Ok(matches!(self.string()?.as_str(), "true" | "on" | "1")),
            _ => Ok(true),
        }
    }

    /// `CSV HEADER DELIMITER AS ','`
    fn older_copy_options(&mut self, given: &mut Given) -> Result<()> {
        while let Some(word) =
            self.one_of(&["BINARY", "CSV", "DELIMITERS", "DELIMITER", "NULL", "HEADER", "QUOTE", "ESCAPE", "FORCE", "ENCODING"])
        {
            match word {
                "BINARY" => given.format = Some(CopyFormat::Binary),
                "CSV" => given.format = Some(CopyFormat::Csv),
                "HEADER" => given.header = true,
                "FORCE" => self.older_force_option(given)?,
                _ => {
                    self.word("AS");
                    let text = Some(self.string()?);
                    match word {
                        "DELIMITER" | "DELIMITERS" => given.delimiter = text,
                        "NULL" => given.null = text,
                        "QUOTE" => given.quote = text,
                        "ESCAPE" => given.escape = text,
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }

    fn older_force_option(&mut self, given: &mut Given) -> Result<()> {
        if self.word("QUOTE") {
            if self.symbol(&Token::Mul) {
                given.force_quote_all = true;
            } else {
                given.force_quote = self.list(Self::identifier)?;
            }
        } else if self.words(&["NOT", "NULL"]) {
            given.force_not_null = self.list(Self::identifier)?;
        } else {
            self.expect_word("NULL")?;
            given.force_null = self.list(Self::identifier)?;
        }
        Ok(())
    }
}

impl Given {
    fn complete(self) -> Result<CopyOptions> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        let csv = format == CopyFormat::Csv;
        if !csv && (self.quote.is_some() || self.escape.is_some()) {
            let name = if self.quote.is_some() { "quote" } else { "escape" };
            return Err(PlanError::unsupported(format!("COPY {name} available only in CSV mode")));
        }
        let quote = one_byte("quote", self.quote, '"')?;
        Ok(CopyOptions {
            format,
            delimiter: one_byte("delimiter", self.delimiter, if csv { ',' } else { '\t' })?,
            null: self.null.unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() }),
            header: self.header,
            quote,
            escape: one_byte("escape", self.escape, quote)?,
            force_quote: self.force_quote,
            force_quote_all: self.force_quote_all,
            force_not_null: self.force_not_null,
            force_null: self.force_null,
        })
    }
}

fn one_byte(name: &str, text: Option<String>, default: char) -> Result<char> {
    let Some(text) = text else { return Ok(default) };
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) if character.is_ascii() => Ok(character),
        _ => Err(PlanError::unsupported(format!("COPY {name} must be a single one-byte character"))),
    }
}
