//! BEGIN, COMMIT, ROLLBACK, SAVEPOINT and the modes of transactions.

use sqlparser::tokenizer::Token;

use super::{
    grammar::Grammar,
    statement::{IsolationLevel, Statement, Transaction, TransactionModes},
};
use crate::error::{PlanError, Result};

impl Grammar<'_> {
    pub(super) fn read_transaction(&mut self) -> Result<Statement> {
        let first = self.one_of(&["BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"]);
        let transaction = match first {
            Some("BEGIN") => {
                self.transaction_word();
                Transaction::Begin { modes: self.transaction_modes()?, start: false }
            }
            Some("START") => {
                self.expect_word("TRANSACTION")?;
                Transaction::Begin { modes: self.transaction_modes()?, start: true }
            }
            Some("COMMIT" | "END") => {
                if self.peeks("PREPARED") {
                    return Err(PlanError::unsupported("prepared transactions are not supported"));
                }
                self.transaction_word();
                Transaction::Commit { chain: self.chain()? }
            }
            Some("ROLLBACK" | "ABORT") => {
                self.transaction_word();
                if self.word("TO") {
                    self.word("SAVEPOINT");
                    Transaction::RollbackTo(self.identifier()?)
                } else {
                    Transaction::Rollback { chain: self.chain()? }
                }
            }
            Some("SAVEPOINT") => Transaction::Savepoint(self.identifier()?),
            _ => {
                self.word("SAVEPOINT");
                Transaction::Release(self.identifier()?)
            }
        };
        Ok(Statement::Transaction(transaction))
    }

    fn transaction_word(&mut self) {
        let _ = self.one_of(&["WORK", "TRANSACTION"]);
    }

    fn chain(&mut self) -> Result<bool> {
        if !self.word("AND") {
            return Ok(false);
        }
        let no = self.word("NO");
        self.expect_word("CHAIN")?;
        Ok(!no)
    }

    /// `ISOLATION LEVEL SERIALIZABLE, READ ONLY`; commas may be left out.
    pub(super) fn transaction_modes(&mut self) -> Result<TransactionModes> {
        let mut modes = TransactionModes::default();
        loop {
            if self.words(&["ISOLATION", "LEVEL"]) {
                modes.isolation = Some(self.isolation_level()?);
            } else if self.words(&["READ", "ONLY"]) {
                modes.read_only = Some(true);
            } else if self.words(&["READ", "WRITE"]) {
                modes.read_only = Some(false);
            } else if self.word("DEFERRABLE") {
                modes.deferrable = Some(true);
            } else if self.words(&["NOT", "DEFERRABLE"]) {
                modes.deferrable = Some(false);
            } else {
                return Ok(modes);
            }
            self.symbol(&Token::Comma);
        }
    }

    fn isolation_level(&mut self) -> Result<IsolationLevel> {
        if self.words(&["READ", "UNCOMMITTED"]) {
            Ok(IsolationLevel::ReadUncommitted)
        } else if self.words(&["READ", "COMMITTED"]) {
            Ok(IsolationLevel::ReadCommitted)
        } else if self.words(&["REPEATABLE", "READ"]) {
            Ok(IsolationLevel::RepeatableRead)
        } else if self.word("SERIALIZABLE") {
            Ok(IsolationLevel::Serializable)
        } else {
            Err(self.unexpected())
        }
    }
}
