//! One statement's way to change one table: lock or not, read, change, account.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millpond_planner::pg_text::TextSettings;
use millpond_storage::encoding::EncodedRows;

use crate::{
    act::{
        dml::{
            changes::{AcknowledgedContents, ChangedContents, Changes},
            target::Target,
            work::Work,
        },
        read,
    },
    error::Result,
    relation::contents::Contents,
    session::{Session, cancel::Cancel, transaction::Phase},
};

/// A statement that changes a table.
pub(crate) struct TableChange {
    /// The table.
    pub(crate) target: Arc<Target>,
    /// Appends that the table had seen.
    version: u64,
    /// The lock is held: what is read cannot change before the commit.
    locked: bool,
    /// For error messages.
    pub(crate) text: TextSettings,
}

impl TableChange {
    /// Begins to change a table. The first statement of an implicit transaction locks it; statements of a block do not.
    ///
    /// # Errors
    /// 25006 in a read-only transaction.
    pub(crate) async fn begin(session: &mut Session, target: Arc<Target>, what: &str, cancel: &Cancel) -> Result<Self> {
        session.require_writable(what)?;
        session.begin_implicit();
        let alone = session.transaction.phase() == Phase::Implicit && session.transaction.work.is_none();
        if alone {
            let guard = cancel.locked(target.handle.lock()).await?;
            let failures = session.server.engine.log_failures();
            session.work().keep_guard(target.object.id, guard, failures);
        }
        Ok(Self::read(target, session.text_settings(), alone))
    }

    /// The state of a table now, which is `locked` or may change until the commit.
    pub(crate) fn read(target: Arc<Target>, text: TextSettings, locked: bool) -> Self {
        Self { version: target.handle.version(), locked, text, target }
    }

    /// The rows that the statement sees.
    pub(crate) async fn contents(&self, session: &mut Session, cancel: &Cancel) -> Result<Arc<dyn Contents>> {
        let identity = &self.target.identity;
        if !self.locked {
            // The block's own changes are in it already.
            return read::block_contents(session, &self.target, cancel).await;
        }
        let acknowledged = Arc::new(self.target.handle.acknowledged()?);
        let committed: Arc<dyn Contents> = Arc::new(AcknowledgedContents::new(self.target.handle.clone(), acknowledged, identity.clone()));
        Ok(match session.transaction.work.as_ref().and_then(|work| work.changes(self.target.object.id)) {
            Some(changes) => Arc::new(ChangedContents::new(committed, changes, identity.clone())),
            None => committed,
        })
    }

    /// Inserts rows that have been checked.
    ///
    /// # Errors
    /// 23505 with the first key that is taken.
    pub(crate) fn insert(&self, work: &mut Work, rows: &RecordBatch) -> Result<()> {
        self.try_insert(work, rows)?.map_or(Ok(()), |row| Err(self.target.duplicate(rows, row, &self.text)))
    }

    /// Inserts rows that have been checked, or answers which of them is the first whose key is taken.
    pub(crate) fn try_insert(&self, work: &mut Work, rows: &RecordBatch) -> Result<Option<usize>> {
        let identity = self.target.identity.clone();
        if identity.key.is_empty() {
            if let Changes::Bag(changes) = self.changes(work) {
                changes.insert(rows);
            }
            return Ok(None);
        }
        let keys = identity.encode(rows)?;
        let taken = self.committed(&keys)?.1;
        Ok(match self.changes(work) {
            Changes::Keyed(changes) => changes.insert(rows, &keys, |row| taken[row].is_some()).err().map(|duplicate| duplicate.0),
            Changes::Bag(_) => None,
        })
    }

    /// Deletes rows that the statement has read.
    pub(crate) fn delete(&self, work: &mut Work, rows: &RecordBatch) -> Result<()> {
        let identity = self.target.identity.clone();
        match self.changes(work) {
            Changes::Bag(changes) => changes.delete(rows),
            Changes::Keyed(changes) => {
                let keys = identity.encode(rows)?;
                changes.delete(rows, &keys);
            }
        }
        Ok(())
    }

    /// The committed rows under keys, and for each key its row.
    pub(crate) fn committed(&self, keys: &EncodedRows) -> Result<(RecordBatch, Vec<Option<u32>>)> {
        Ok(self.target.handle.lookup(keys)?)
    }

    /// The changes of the table, to be looked at and added to.
    pub(crate) fn changes<'a>(&self, work: &'a mut Work) -> &'a mut Changes {
        work.changes_mut(&self.target.handle, &self.target.identity, self.version)
    }
}
