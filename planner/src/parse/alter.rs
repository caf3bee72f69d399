//! DROP, ALTER, COMMENT ON and TRUNCATE.

use sqlparser::tokenizer::Token;

use super::{
    grammar::Grammar,
    statement::{Alter, AlterAction, Comment, Drop, ObjectKind, Statement},
};
use crate::error::{PlanError, Result};

impl Grammar<'_> {
    /// `TABLE`, `MATERIALIZED VIEW` ..
    pub(super) fn object_kind(&mut self) -> Option<ObjectKind> {
        if self.words(&["MATERIALIZED", "VIEW"]) {
            return Some(ObjectKind::MaterializedView);
        }
        Some(match self.one_of(&["TABLE", "SOURCE", "SINK", "VIEW", "INDEX", "SCHEMA"])? {
            "TABLE" => ObjectKind::Table,
            "SOURCE" => ObjectKind::Source,
            "SINK" => ObjectKind::Sink,
            "VIEW" => ObjectKind::View,
            "INDEX" => ObjectKind::Index,
            _ => ObjectKind::Schema,
        })
    }

    /// `CASCADE` or `RESTRICT`; whether CASCADE.
    fn cascade(&mut self) -> bool {
        self.one_of(&["CASCADE", "RESTRICT"]) == Some("CASCADE")
    }

    pub(super) fn read_drop(&mut self) -> Result<Statement> {
        self.expect_word("DROP")?;
        let Some(kind) = self.object_kind() else { return Err(self.unknown_kind("DROP")) };
        if kind == ObjectKind::Index {
            self.word("CONCURRENTLY");
        }
        let if_exists = self.if_exists();
        let names = self.list(Self::object_name)?;
        let cascade = self.cascade();
        Ok(Statement::Drop(Drop { kind, names, if_exists, cascade }))
    }

    pub(super) fn read_alter(&mut self) -> Result<Statement> {
        self.expect_word("ALTER")?;
        let Some(kind) = self.object_kind() else { return Err(self.unknown_kind("ALTER")) };
        let if_exists = self.if_exists();
        self.word("ONLY");
        let name = self.object_name()?;
        let action = if self.words(&["RENAME", "TO"]) {
            AlterAction::Rename(self.identifier()?)
        } else if self.word("RENAME") {
            self.word("COLUMN");
            let from = self.identifier()?;
            self.expect_word("TO")?;
            AlterAction::RenameColumn(from, self.identifier()?)
        } else if self.words(&["SET", "SCHEMA"]) {
            AlterAction::SetSchema(self.identifier()?)
        } else if self.words(&["OWNER", "TO"]) {
            AlterAction::Owner(self.identifier()?)
        } else if self.words(&["SET", "PARALLELISM"]) {
            let _ = self.symbol(&Token::Eq) || self.word("TO");
            AlterAction::SetOptions(vec![self.parallelism()?])
        } else if self.peeks("SET") && self.parser.peek_nth_token_ref(1).token == Token::LParen {
            self.expect_word("SET")?;
            let mut options = Vec::new();
            self.parenthesized_options(&mut options)?;
            AlterAction::SetOptions(options.into_iter().map(|option| (option.key, Some(option.value))).collect())
        } else if self.word("RESET") {
            self.expect_symbol(&Token::LParen)?;
            let names = self.list(Self::option_key)?;
            self.expect_symbol(&Token::RParen)?;
            AlterAction::SetOptions(names.into_iter().map(|name| (name, None)).collect())
        } else if self.word("RESUME") {
            AlterAction::Resume { skip: self.word("SKIP") }
        } else if self.words(&["FAIL", "SUBTASK"]) {
            let subtask = self.integer()?;
            self.expect_word("OF")?;
            self.expect_word("FRAGMENT")?;
            AlterAction::FailSubtask { fragment: self.integer()?, subtask }
        } else if ["ADD", "DROP", "ALTER", "SET", "PAUSE", "ENABLE", "DISABLE", "REPLICA", "SWAP", "ATTACH", "DETACH"]
            .iter()
            .any(|word| self.peeks(word))
        {
            let message = format!("this form of ALTER {} is not supported", kind.keyword());
            let hint = if kind == ObjectKind::Table && (self.peeks("ADD") || self.peeks("DROP")) {
                "Columns and constraints are those of CREATE TABLE: create another table, fill it with INSERT .. SELECT, and RENAME both."
            } else {
                "RENAME TO, RENAME COLUMN .. TO, SET SCHEMA, SET (option = value) and RESUME are."
            };
            return Err(PlanError::unsupported(message).with_hint(hint).at(self.parser.peek_token_ref().span));
        } else {
            return Err(self.unexpected());
        };
        Ok(Statement::Alter(Box::new(Alter { kind, name, if_exists, action })))
    }

    /// A number of subtasks; `AUTO` and `DEFAULT` leave it to the server.
    fn parallelism(&mut self) -> Result<(String, Option<String>)> {
        let value = if self.one_of(&["AUTO", "DEFAULT", "ADAPTIVE"]).is_some() { None } else { Some(self.option_value()?) };
        Ok(("parallelism".to_owned(), value))
    }

    pub(super) fn read_comment(&mut self) -> Result<Statement> {
        self.expect_word("COMMENT")?;
        self.expect_word("ON")?;
        let kind = if self.word("COLUMN") {
            None
        } else {
            match self.object_kind() {
                Some(kind) => Some(kind),
                None => return Err(self.unknown_kind("COMMENT ON")),
            }
        };
        let name = self.object_name()?;
        self.expect_word("IS")?;
        let text = if self.word("NULL") { None } else { Some(self.string()?) };
        Ok(Statement::Comment(Box::new(Comment { kind, name, text })))
    }

    pub(super) fn read_truncate(&mut self) -> Result<Statement> {
        self.expect_word("TRUNCATE")?;
        self.word("TABLE");
        let tables = self.list(|grammar| {
            grammar.word("ONLY");
            let name = grammar.object_name()?;
            grammar.symbol(&Token::Mul);
            Ok(name)
        })?;
        if self.one_of(&["RESTART", "CONTINUE"]).is_some() {
            self.expect_word("IDENTITY")?;
        }
        let cascade = self.cascade();
        Ok(Statement::Truncate { tables, cascade })
    }
}
