//! What the statements of a block have read, so that its commit can tell whether that still holds.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::SchemaRef;
use millpond_engine::coordinator::table::TableHandle;
use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;

use crate::{
    act::dml::changes::Identity,
    error::Result,
    relation::{
        contents::{Batches, Contents},
        key_filter::KeyPart,
    },
};

/// Most single keys that are kept of a table; beyond it the whole table counts as read.
const KEYS_LIMIT: usize = 100_000;

/// The tables read, shared with scans that are still running.
#[derive(Clone, Default)]
pub(crate) struct Reads(Arc<Mutex<BTreeMap<u64, TableRead>>>);

/// What was read of a table at an epoch.
#[derive(Clone)]
pub(crate) struct TableRead {
    /// The table.
    pub(crate) handle: Arc<TableHandle>,
    /// How its rows are told apart.
    pub(crate) identity: Option<Arc<Identity>>,
    /// When.
    pub(crate) at: Epoch,
    /// These keys; `None` is all of it.
    pub(crate) keys: Option<Vec<Vec<u8>>>,
}

impl Reads {
    /// Notes that a table was read, or keys of it.
    pub(crate) fn note(&self, handle: &Arc<TableHandle>, identity: Option<&Arc<Identity>>, at: Epoch, keys: Option<&[Vec<u8>]>) {
        let mut reads = self.0.lock();
        let read = reads.entry(handle.id).or_insert_with(|| TableRead {
            handle: handle.clone(),
            identity: identity.cloned(),
            at,
            keys: Some(Vec::new()),
        });
        match (&mut read.keys, keys) {
            (Some(known), Some(new)) if known.len() + new.len() <= KEYS_LIMIT => known.extend_from_slice(new),
            (known, _) => *known = None,
        }
    }

    /// Forgets a table.
    pub(crate) fn forget(&self, table: u64) {
        self.0.lock().remove(&table);
    }

    /// Everything read, by table.
    pub(crate) fn all(&self) -> BTreeMap<u64, TableRead> {
        self.0.lock().clone()
    }
}

/// A table's contents that note what is read of them.
pub(crate) struct NotedContents {
    contents: Arc<dyn Contents>,
    reads: Reads,
    handle: Arc<TableHandle>,
    identity: Arc<Identity>,
    at: Epoch,
}

impl NotedContents {
    /// The contents at `at`.
    pub(crate) fn new(contents: Arc<dyn Contents>, reads: Reads, handle: Arc<TableHandle>, identity: Arc<Identity>, at: Epoch) -> Self {
        Self { contents, reads, handle, identity, at }
    }
}

impl std::fmt::Debug for NotedContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.contents.fmt(f)
    }
}

impl Contents for NotedContents {
    fn schema(&self) -> SchemaRef {
        self.contents.schema()
    }

    fn key(&self) -> &[usize] {
        self.contents.key()
    }

    fn open(&self, part: KeyPart, projection: Option<Vec<usize>>, limit: Option<usize>) -> Result<Batches> {
        match &part {
            KeyPart::Nothing => {}
            KeyPart::Points(keys) => self.reads.note(&self.handle, Some(&self.identity), self.at, Some(keys)),
            KeyPart::Range(_) | KeyPart::Everything => self.reads.note(&self.handle, Some(&self.identity), self.at, None),
        }
        self.contents.open(part, projection, limit)
    }

    fn row_estimate(&self) -> u64 {
        self.contents.row_estimate()
    }

    fn byte_estimate(&self) -> u64 {
        self.contents.byte_estimate()
    }
}
