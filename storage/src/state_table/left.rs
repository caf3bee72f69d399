//! What a failed task leaves in memory to the one that takes its place.
//!
//! The operators of a task that has failed are not to be relied on any more. Its tables are, unless it failed in the midst of a call of theirs: what
//! operators have put into them is changed back entry by entry ([`before_images`](super::before_images)), in memory as any other change, so
//! that nothing is read and nothing is replayed. What the task had written to the store meanwhile is put back beside that ([`undo`](super::undo)).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::before_images::Before;
use super::undo::PutBack;
use super::{JobStore, PointTable, RangeTable, TableId};
use crate::error::Result;

/// A table whose task has failed.
pub struct LeftTable(pub(super) Kind);

pub(super) enum Kind {
    Point(Box<PointTable>),
    Range(Box<RangeTable>),
}

impl LeftTable {
    pub(super) fn point(table: PointTable) -> Self {
        Self(Kind::Point(Box::new(table)))
    }

    pub(super) fn range(table: RangeTable) -> Self {
        Self(Kind::Range(Box::new(table)))
    }

    pub(super) fn into_point(self) -> Option<PointTable> {
        match self.0 {
            Kind::Point(table) => Some(*table),
            Kind::Range(_) => None,
        }
    }

    pub(super) fn into_range(self) -> Option<RangeTable> {
        match self.0 {
            Kind::Range(table) => Some(*table),
            Kind::Point(_) => None,
        }
    }

    fn changed_behind(&self, named: u64) -> Option<Changed> {
        match &self.0 {
            Kind::Point(table) => table.changed_behind(named),
            Kind::Range(table) => table.changed_behind(named),
        }
    }

    /// The full key of an entry by the table's own part of it.
    fn full_key(&self, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match &self.0 {
            Kind::Point(table) => table.full_key_of(key, out),
            Kind::Range(table) => table.full_key_of(key, out)?,
        }
        Ok(())
    }

    fn go_back(&mut self, changed: &Changed) -> Result<()> {
        match &mut self.0 {
            Kind::Point(table) => table.go_back(changed),
            Kind::Range(table) => table.go_back(changed)?,
        }
        Ok(())
    }
}

/// What entries were, by the table's own part of the key.
pub(super) type Changed = BTreeMap<Vec<u8>, Before>;

/// All tables of a task that has failed, as it left them.
pub struct LeftTables {
    pub(super) tables: BTreeMap<TableId, LeftTable>,
}

/// The same, with what has been changed in them behind a checkpoint.
pub(crate) struct ChangedTables {
    tables: Vec<(TableId, LeftTable, Changed)>,
    /// The places in `tables` and keys of all these entries, by full key.
    keys: BTreeMap<Vec<u8>, (usize, Vec<u8>)>,
}

impl LeftTables {
    /// Takes note of what is to be changed back to where the task's changelog stood at `named`; `None` if a table does not know.
    pub(crate) fn behind(self, named: u64) -> Result<Option<ChangedTables>> {
        let (mut tables, mut keys) = (Vec::new(), BTreeMap::new());
        for (id, table) in self.tables {
            let Some(changed) = table.changed_behind(named) else { return Ok(None) };
            for key in changed.keys() {
                let mut full_key = Vec::new();
                table.full_key(key, &mut full_key)?;
                keys.insert(full_key, (tables.len(), key.clone()));
            }
            tables.push((id, table, changed));
        }
        Ok(Some(ChangedTables { tables, keys }))
    }
}

impl ChangedTables {
    /// What is to become of a key of the store. Where nothing has been changed memory relies on what the store has.
    pub(crate) fn put_back(&self, full_key: &[u8]) -> PutBack {
        let before = self.keys.get(full_key).and_then(|(table, key)| self.tables[*table].2.get(key));
        match before {
            None => PutBack::Nothing,
            // Memory may have forgotten that it is deleted.
            Some(Before::Absent) => PutBack::Removed,
            Some(Before::Value(_) | Before::InStore) => PutBack::AsItWas,
        }
    }

    /// Puts the tables back. The store must have been. Answers them and how many entries it were.
    pub(crate) fn go_back(mut self, store: &JobStore) -> Result<(KeptTables, usize)> {
        self.read_missing(store)?;
        let entries = self.keys.len();
        let mut tables = BTreeMap::new();
        for (id, mut table, changed) in self.tables {
            table.go_back(&changed)?;
            tables.insert(id, table);
        }
        Ok((KeptTables { tables: Arc::new(Mutex::new(tables)) }, entries))
    }

    /// Reads what was changed blindly.
    fn read_missing(&mut self, store: &JobStore) -> Result<()> {
        let tables = &mut self.tables;
        let missing = self.keys.iter().filter(|(_, (table, key))| tables[*table].2.get(key) == Some(&Before::InStore));
        let missing: Vec<_> = missing.collect();
        let mut found = BTreeMap::new();
        if let Some(store) = store.opened() {
            let sorted: Vec<&[u8]> = missing.iter().map(|(full_key, _)| full_key.as_slice()).collect();
            store.multi_get_sorted(&sorted, &mut |index, value| {
                found.insert(index, value.to_vec());
                Ok(())
            })?;
        }
        for (index, (_, (table, key))) in missing.into_iter().enumerate() {
            let before = found.remove(&index).map_or(Before::Absent, Before::Value);
            tables[*table].2.insert(key.clone(), before);
        }
        Ok(())
    }
}

/// Tables that were put back to a checkpoint, for the task that goes on with them; it takes each when it creates it.
#[derive(Clone)]
pub struct KeptTables {
    tables: Arc<Mutex<BTreeMap<TableId, LeftTable>>>,
}

impl KeptTables {
    pub(super) fn take(&self, id: TableId) -> Option<LeftTable> {
        self.tables.lock().remove(&id)
    }
}
