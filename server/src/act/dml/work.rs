//! A transaction's uncommitted work: its changes per table, what it has read, and how it is committed.
//!
//! A statement on its own locks its table, computes its changes from the acknowledged state and commits before the lock goes. In a block no
//! lock is held between statements: the block reads one epoch, and at commit, under the locks of all its tables, what it rests on must still
//! be so; else 40001.

use std::{collections::BTreeMap, sync::Arc, task::Poll};

use arrow::array::RecordBatch;
use millpond_engine::{coordinator::table::TableHandle, engine::Engine};
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec},
    epoch_log::SignedBatch,
    memory::{MemoryBudget, MemoryHandle},
};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::{
    act::{
        dml::{
            changes::{Changes, Identity, Mark},
            reads::{Reads, TableRead},
        },
        read::Snapshot,
    },
    error::{Result, SqlError},
    session::cancel::Cancel,
};

/// The lock of a table.
pub(crate) type Guard = OwnedMutexGuard<()>;

/// One table's part of the work.
struct TableWork {
    handle: Arc<TableHandle>,
    identity: Arc<Identity>,
    changes: Arc<Changes>,
    /// Appends the table had seen when its rows were first read for a change.
    version: u64,
}

/// Uncommitted work.
pub(crate) struct Work {
    tables: BTreeMap<u64, TableWork>,
    /// What its statements have read.
    pub(crate) reads: Reads,
    /// Locks kept since the state was read: the work needs no validation. A statement whose client does not go on loses them after a while.
    guards: Arc<Mutex<BTreeMap<u64, Guard>>>,
    /// The epoch the block reads, fixed by its first read.
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// What the log had said of its failures before anything was read under the locks.
    failures: Option<u64>,
    memory: MemoryHandle,
}

/// What a savepoint remembers.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkMark(BTreeMap<u64, Mark>);

impl Work {
    /// No work yet.
    pub(crate) fn new(budget: &MemoryBudget) -> Self {
        Self {
            tables: BTreeMap::new(),
            reads: Reads::default(),
            guards: Arc::default(),
            snapshot: None,
            failures: None,
            memory: budget.handle("transactions"),
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.tables.values().all(|table| table.changes.is_empty())
    }

    /// The changes of a table so far.
    pub(crate) fn changes(&self, table: u64) -> Option<Arc<Changes>> {
        self.tables.get(&table).map(|table| table.changes.clone())
    }

    /// The changes of a table, to be added to. `version` is that of the state they are computed from.
    pub(crate) fn changes_mut(&mut self, handle: &Arc<TableHandle>, identity: &Arc<Identity>, version: u64) -> &mut Changes {
        let table = self.tables.entry(handle.id).or_insert_with(|| TableWork {
            handle: handle.clone(),
            identity: identity.clone(),
            changes: Arc::new(Changes::new(identity)),
            version,
        });
        Arc::make_mut(&mut table.changes)
    }

    /// Forgets what was changed in a table: it is gone.
    pub(crate) fn forget(&mut self, table: u64) {
        self.tables.remove(&table);
        self.reads.forget(table);
    }

    /// Keeps a table's lock until the commit. `failures` is what the log says of its failures now that it is held: nothing has been read yet.
    pub(crate) fn keep_guard(&mut self, table: u64, guard: Guard, failures: u64) {
        self.failures.get_or_insert(failures);
        self.guards.lock().insert(table, guard);
    }

    /// The locks, for whoever takes them away from an idle client.
    pub(crate) fn guards(&self) -> Arc<Mutex<BTreeMap<u64, Guard>>> {
        self.guards.clone()
    }

    /// Whether any lock is kept.
    pub(crate) fn holds_guards(&self) -> bool {
        !self.guards.lock().is_empty()
    }

    /// Gives the locks back: from here on the work is validated at commit.
    pub(crate) fn release_guards(&mut self) {
        self.guards.lock().clear();
    }

    /// Accounts for the memory the changes take now.
    ///
    /// # Errors
    /// 53200 when the budget has no more.
    pub(crate) fn account(&mut self) -> Result<()> {
        let bytes: usize = self.tables.values().map(|table| table.changes.bytes()).sum();
        let used = self.memory.used();
        if bytes > used && !self.memory.try_grow(bytes - used) {
            return Err(SqlError::new("53200", "out of memory")
                .with_detail("The changes of the transaction do not fit into the server's memory limit.")
                .with_hint("Commit in smaller parts."));
        }
        if bytes < used {
            self.memory.shrink(used - bytes);
        }
        Ok(())
    }

    /// A mark to come back to.
    pub(crate) fn mark(&self) -> WorkMark {
        WorkMark(self.tables.iter().map(|(id, table)| (*id, table.changes.mark())).collect())
    }

    /// Takes back every change after the mark.
    pub(crate) fn undo_to(&mut self, mark: &WorkMark) {
        for (id, table) in &mut self.tables {
            let mark = mark.0.get(id).copied().unwrap_or(Mark::Start);
            Arc::make_mut(&mut table.changes).undo_to(mark);
        }
    }

    /// Makes the work durable, in one epoch.
    ///
    /// # Errors
    /// 40001 when it rests on something that others have changed; 55P03 or 57014 when it does not get its locks in time; whatever the log says when
    /// it cannot be written.
    pub(crate) async fn commit(self, engine: &Engine, cancel: &Cancel) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let mut changes: Vec<(u64, Vec<SignedBatch>)> = Vec::new();
        for (id, table) in &self.tables {
            let delta = table.changes.delta()?;
            if !delta.is_empty() {
                changes.push((*id, delta));
            }
        }
        let mut guards = std::mem::take(&mut *self.guards.lock());
        // Locks are taken in the order of ids, so that no two commits wait for each other. A kept lock is below every other or the only one.
        let reads = self.reads.all();
        let kept = self.tables.keys().chain(reads.keys()).all(|id| guards.contains_key(id));
        let mut failures = self.failures.unwrap_or_else(|| engine.log_failures());
        if !kept {
            guards.clear();
            let handles: BTreeMap<u64, &Arc<TableHandle>> = reads
                .iter()
                .map(|(id, read)| (*id, &read.handle))
                .chain(self.tables.iter().map(|(id, table)| (*id, &table.handle)))
                .collect();
            for (id, handle) in handles {
                guards.insert(id, cancel.locked(handle.lock()).await?);
            }
            failures = engine.log_failures();
            self.validate(engine, &reads)?;
        }
        if changes.is_empty() {
            return Ok(());
        }
        append(engine, changes, guards, failures).await
    }

    fn validate(&self, engine: &Engine, reads: &BTreeMap<u64, TableRead>) -> Result<()> {
        for (id, table) in &self.tables {
            if engine.table(*id).is_none_or(|now| !Arc::ptr_eq(&now, &table.handle)) {
                return Err(SqlError::serialization("concurrent DROP"));
            }
            match &*table.changes {
                Changes::Keyed(changes) => {
                    let (keys, before) = changes.touched();
                    unchanged(&table.handle, &table.identity, keys, before)?;
                }
                Changes::Bag(changes) if changes.deletes() && table.handle.version() != table.version => {
                    return Err(SqlError::serialization("concurrent update"));
                }
                Changes::Bag(_) => {}
            }
        }
        for read in reads.values() {
            match (&read.keys, &read.identity) {
                (Some(keys), Some(identity)) => {
                    let keys: EncodedRows = keys.iter().collect();
                    let (rows, found) = read.handle.collection().get(read.at, &keys)?;
                    let before = found.iter().map(|row| row.map(|row| rows.slice(row as usize, 1)));
                    unchanged(&read.handle, identity, &keys, before)?;
                }
                _ if read.handle.last_appended() > read.at => {
                    return Err(SqlError::serialization("read/write dependencies among transactions"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether the acknowledged state still has these rows, and no others, under these keys.
fn unchanged(
    handle: &TableHandle,
    identity: &Identity,
    keys: &EncodedRows,
    before: impl Iterator<Item = Option<RecordBatch>>,
) -> Result<()> {
    let (rows, found) = handle.lookup(keys)?;
    let types: Vec<_> = identity.schema.fields().iter().map(|field| field.data_type().clone()).collect();
    let codec = KeyCodec::ascending(&types)?;
    for (found, before) in found.iter().zip(before) {
        let same = match (found, before) {
            (None, None) => true,
            (Some(row), Some(before)) => {
                let now = rows.slice(*row as usize, 1);
                codec.encode(now.columns())? == codec.encode(before.columns())?
            }
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            return Err(SqlError::serialization("concurrent update"));
        }
    }
    Ok(())
}

/// Enters the changes into the open epoch, gives the locks back, and waits until the changes are durable: others may build on them meanwhile,
/// and will be acknowledged after them.
async fn append(engine: &Engine, changes: Vec<(u64, Vec<SignedBatch>)>, guards: BTreeMap<u64, Guard>, failures: u64) -> Result<()> {
    let mut append = Box::pin(engine.append_on(changes, failures));
    let entered = futures::poll!(&mut append);
    drop(guards);
    match entered {
        Poll::Ready(result) => result?,
        Poll::Pending => append.await?,
    };
    Ok(())
}
