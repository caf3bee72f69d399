//! SET, SHOW, RESET, DISCARD, DESCRIBE.

use sqlparser::tokenizer::Token;

use super::{
    grammar::Grammar,
    statement::{DiscardTarget, ObjectKind, ResetTarget, Set, SetScope, Show, Statement},
};
use crate::error::{PlanError, Result, sqlstate};

impl Grammar<'_> {
    pub(super) fn read_set(&mut self) -> Result<Statement> {
        self.expect_word("SET")?;
        if self.words(&["SESSION", "CHARACTERISTICS", "AS", "TRANSACTION"]) {
            return Ok(Statement::Set(Set::SessionTransaction(self.transaction_modes()?)));
        }
        let scope = match self.one_of(&["SESSION", "LOCAL"]) {
            Some("LOCAL") => SetScope::Local,
            _ => SetScope::Session,
        };
        if self.word("TRANSACTION") {
            if self.peeks("SNAPSHOT") {
                return Err(PlanError::unsupported("SET TRANSACTION SNAPSHOT is not supported"));
            }
            return Ok(Statement::Set(Set::Transaction(self.transaction_modes()?)));
        }
        if self.word("CONSTRAINTS") {
            while !self.at_end() {
                self.parser.advance_token();
            }
            return Ok(Statement::Set(Set::Constraints));
        }
        let (name, value) = self.setting_and_value()?;
        Ok(Statement::Set(Set::Setting { scope, name, value }))
    }

    fn setting_and_value(&mut self) -> Result<(String, Option<String>)> {
        if self.words(&["TIME", "ZONE"]) {
            let value = if self.word("LOCAL") { None } else { self.setting_value()? };
            return Ok(("timezone".to_owned(), value));
        }
        if self.word("NAMES") {
            let value = if self.at_end() { None } else { self.setting_value()? };
            return Ok(("client_encoding".to_owned(), value));
        }
        if self.word("SCHEMA") {
            return Ok(("search_path".to_owned(), self.setting_value()?));
        }
        if self.words(&["SESSION", "AUTHORIZATION"]) || self.words(&["AUTHORIZATION"]) {
            return Ok(("session_authorization".to_owned(), self.setting_value()?));
        }
        if self.peeks("ROLE") && !matches!(self.parser.peek_nth_token_ref(1).token, Token::Eq) && !self.peeks_at(1, "TO") {
            self.parser.advance_token();
            return Ok(("role".to_owned(), self.setting_value()?));
        }
        let name = self.setting_name()?;
        if !self.symbol(&Token::Eq) {
            self.expect_word("TO")?;
        }
        if name != "search_path" {
            return Ok((name, self.setting_value()?));
        }
        // A list of names, each of which may have any character in it.
        let names = if self.word("DEFAULT") { None } else { Some(self.list(Self::one_setting_value)?) };
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        Ok((name, names.map(|names| names.iter().map(quoted).collect::<Vec<_>>().join(", "))))
    }

    /// `name` or `extension.name`, in lower case.
    fn setting_name(&mut self) -> Result<String> {
        let mut name = self.identifier()?.value;
        while self.symbol(&Token::Period) {
            name.push('.');
            name.push_str(&self.identifier()?.value);
        }
        Ok(name.to_lowercase())
    }

    /// One value, or several separated by commas; `None` for DEFAULT.
    fn setting_value(&mut self) -> Result<Option<String>> {
        if self.word("DEFAULT") {
            return Ok(None);
        }
        let values = self.list(Self::one_setting_value)?;
        Ok(Some(values.join(", ")))
    }

    fn one_setting_value(&mut self) -> Result<String> {
        if self.word("INTERVAL") {
            let text = self.string()?;
            while self.one_of(&["HOUR", "TO", "MINUTE"]).is_some() {}
            return Ok(text);
        }
        match self.parser.peek_token_ref().token.clone() {
            Token::Word(word) => {
                self.parser.advance_token();
                Ok(if word.quote_style.is_some() { word.value } else { word.value.to_lowercase() })
            }
            Token::Number(number, _) => {
                self.parser.advance_token();
                Ok(number)
            }
            Token::Minus | Token::Plus => {
                let negative = self.symbol(&Token::Minus);
                self.symbol(&Token::Plus);
                let Token::Number(number, _) = self.parser.peek_token_ref().token.clone() else { return Err(self.unexpected()) };
                self.parser.advance_token();
                Ok(if negative { format!("-{number}") } else { number })
            }
            _ => self.string(),
        }
    }

    pub(super) fn read_show(&mut self) -> Result<Statement> {
        self.expect_word("SHOW")?;
        Ok(Statement::Show(self.show_target()?))
    }

    fn show_target(&mut self) -> Result<Show> {
        if self.word("ALL") {
            return Ok(Show::AllSettings);
        }
        if self.words(&["TIME", "ZONE"]) {
            return Ok(Show::Setting("timezone".to_owned()));
        }
        if self.words(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
            return Ok(Show::Setting("transaction_isolation".to_owned()));
        }
        if self.words(&["SESSION", "AUTHORIZATION"]) {
            return Ok(Show::Setting("session_authorization".to_owned()));
        }
        if self.word("JOBS") {
            return Ok(Show::Jobs);
        }
        if self.word("DATABASES") {
            return Ok(Show::Databases);
        }
        if self.word("CREATE") {
            let Some(kind) = self.object_kind() else { return Err(self.unexpected()) };
            return Ok(Show::Create { kind, name: self.object_name()? });
        }
        if self.word("COLUMNS") {
            if self.one_of(&["FROM", "IN"]).is_none() {
                return Err(self.unexpected());
            }
            return Ok(Show::Columns(self.object_name()?));
        }
        const LISTS: [(&[&str], ObjectKind); 8] = [
            (&["TABLES"], ObjectKind::Table),
            (&["SOURCES"], ObjectKind::Source),
            (&["SINKS"], ObjectKind::Sink),
            (&["VIEWS"], ObjectKind::View),
            (&["MATERIALIZED", "VIEWS"], ObjectKind::MaterializedView),
            (&["INDEXES"], ObjectKind::Index),
            (&["INDICES"], ObjectKind::Index),
            (&["SCHEMAS"], ObjectKind::Schema),
        ];
        if let Some((_, kind)) = LISTS.into_iter().find(|(words, _)| self.words(words)) {
            let schema = if self.one_of(&["FROM", "IN"]).is_some() { Some(self.identifier()?) } else { None };
            let like = if self.word("LIKE") { Some(self.string()?) } else { None };
            return Ok(Show::Objects { kind, schema, like });
        }
        Ok(Show::Setting(self.setting_name()?))
    }

    pub(super) fn read_describe(&mut self) -> Result<Statement> {
        let _ = self.one_of(&["DESCRIBE", "DESC"]);
        Ok(Statement::Show(Show::Columns(self.object_name()?)))
    }

    pub(super) fn read_reset(&mut self) -> Result<Statement> {
        self.expect_word("RESET")?;
        if self.word("ALL") {
            return Ok(Statement::Reset(ResetTarget::All));
        }
        let name = if self.words(&["TIME", "ZONE"]) {
            "timezone".to_owned()
        } else if self.words(&["SESSION", "AUTHORIZATION"]) {
            "session_authorization".to_owned()
        } else if self.words(&["TRANSACTION", "ISOLATION", "LEVEL"]) {
            "transaction_isolation".to_owned()
        } else {
            self.setting_name()?
        };
        Ok(Statement::Reset(ResetTarget::Setting(name)))
    }

    pub(super) fn read_discard(&mut self) -> Result<Statement> {
        self.expect_word("DISCARD")?;
        let target = match self.one_of(&["ALL", "PLANS", "SEQUENCES", "TEMPORARY", "TEMP"]) {
            Some("ALL") => DiscardTarget::All,
            Some("PLANS") => DiscardTarget::Plans,
            Some("SEQUENCES") => DiscardTarget::Sequences,
            Some(_) => DiscardTarget::Temp,
            None => return Err(self.unexpected()),
        };
        Ok(Statement::Discard(target))
    }

    pub(super) fn read_notification(&mut self) -> Result<Statement> {
        let tag = match self.one_of(&["LISTEN", "UNLISTEN", "NOTIFY"]) {
            Some("UNLISTEN") => "UNLISTEN",
            Some(word) => {
                return Err(PlanError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{word} is not supported"))
                    .with_hint("Read the view again, or write its changes with CREATE SINK."));
            }
            None => return Err(self.unexpected()),
        };
        if !self.symbol(&Token::Mul) {
            self.identifier()?;
        }
        Ok(Statement::Notification(tag))
    }

    /// LOCK TABLE is accepted: DML is serialised per table, and reads are of one epoch, without it.
    pub(super) fn read_lock(&mut self) -> Result<Statement> {
        self.expect_word("LOCK")?;
        self.word("TABLE");
        self.list(Self::object_name)?;
        if self.word("IN") {
            while !self.at_end() && !self.peeks("NOWAIT") {
                self.parser.advance_token();
            }
        }
        self.word("NOWAIT");
        Ok(Statement::Notification("LOCK TABLE"))
    }
}
