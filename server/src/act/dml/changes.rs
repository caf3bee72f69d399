//! Uncommitted changes of one table, and its contents with them applied.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::SchemaRef,
};
use millpond_engine::coordinator::table::{Acknowledged, TableHandle};
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec},
    epoch_log::SignedBatch,
};

use crate::{
    act::dml::{
        bag::{self, BagChanges, BagMark},
        keyed::{KeyState, KeyedChanges},
    },
    error::Result,
    relation::{
        contents::{Batches, Contents, found_rows},
        key_filter::KeyPart,
    },
};

/// How the rows of a table are told apart.
#[derive(Debug)]
pub(crate) struct Identity {
    /// All columns.
    pub(crate) schema: SchemaRef,
    /// The primary key, or no columns if there is none.
    pub(crate) key: Vec<usize>,
    /// Encodes the key, or, without one, whole rows.
    pub(crate) codec: KeyCodec,
}

impl Identity {
    /// Of a table with these columns and this primary key.
    pub(crate) fn new(schema: SchemaRef, key: Vec<usize>) -> Result<Self> {
        let columns: Vec<usize> = if key.is_empty() { (0..schema.fields().len()).collect() } else { key.clone() };
        let types: Vec<_> = columns.iter().map(|column| schema.field(*column).data_type().clone()).collect();
        Ok(Self { codec: KeyCodec::ascending(&types)?, schema, key })
    }

    /// The encoded keys of rows, or the encoded rows.
    pub(crate) fn encode(&self, rows: &RecordBatch) -> Result<EncodedRows> {
        if self.key.is_empty() {
            return Ok(self.codec.encode(rows.columns())?);
        }
        let columns: Vec<ArrayRef> = self.key.iter().map(|column| rows.column(*column).clone()).collect();
        Ok(self.codec.encode(&columns)?)
    }
}

/// Changes of a table of either kind.
#[derive(Clone, Debug)]
pub(crate) enum Changes {
    /// With a primary key.
    Keyed(KeyedChanges),
    /// Without.
    Bag(BagChanges),
}

/// A place to come back to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// Number of changes.
    Keyed(usize),
    /// Numbers of batches.
    Bag(BagMark),
    /// Before the first change.
    Start,
}

impl Changes {
    /// None, for a table told apart like this.
    pub(crate) fn new(identity: &Identity) -> Self {
        if identity.key.is_empty() { Self::Bag(BagChanges::default()) } else { Self::Keyed(KeyedChanges::new()) }
    }

    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Keyed(changes) => changes.is_empty(),
            Self::Bag(changes) => changes.is_empty(),
        }
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Keyed(changes) => changes.bytes(),
            Self::Bag(changes) => changes.bytes(),
        }
    }

    /// A mark to come back to.
    pub(crate) fn mark(&self) -> Mark {
        match self {
            Self::Keyed(changes) => Mark::Keyed(changes.mark()),
            Self::Bag(changes) => Mark::Bag(changes.mark()),
        }
    }

    /// Takes back every change after the mark.
    pub(crate) fn undo_to(&mut self, mark: Mark) {
        match (self, mark) {
            (Self::Keyed(changes), Mark::Keyed(mark)) => changes.undo_to(mark),
            (Self::Keyed(changes), Mark::Start) => changes.undo_to(0),
            (Self::Bag(changes), Mark::Bag(mark)) => changes.undo_to(mark),
            (Self::Bag(changes), Mark::Start) => *changes = BagChanges::default(),
            (Self::Keyed(_), Mark::Bag(_)) | (Self::Bag(_), Mark::Keyed(_)) => {}
        }
    }

    /// What is to be appended.
    pub(crate) fn delta(&self) -> Result<Vec<SignedBatch>> {
        match self {
            Self::Keyed(changes) => changes.delta(),
            Self::Bag(changes) => Ok(changes.delta()),
        }
    }
}

/// A table's contents as its own transaction sees them.
#[derive(Debug)]
pub(crate) struct ChangedContents {
    committed: Arc<dyn Contents>,
    changes: Arc<Changes>,
    identity: Arc<Identity>,
}

impl ChangedContents {
    /// Committed contents with changes on top.
    pub(crate) fn new(committed: Arc<dyn Contents>, changes: Arc<Changes>, identity: Arc<Identity>) -> Self {
        Self { committed, changes, identity }
    }

    fn points(&self, changes: &KeyedChanges, points: Vec<Vec<u8>>) -> Result<Batches> {
        let mut own = Vec::new();
        let untouched: Vec<Vec<u8>> = points
            .into_iter()
            .filter(|key| match changes.state(key) {
                KeyState::Untouched => true,
                KeyState::Absent => false,
                KeyState::Present(place) => {
                    own.push(changes.row(place));
                    false
                }
            })
            .collect();
        let committed: Batches = if untouched.is_empty() {
            Box::new(std::iter::empty())
        } else {
            self.committed.open(KeyPart::Points(untouched), None, None)?
        };
        Ok(Box::new(committed.chain(own.into_iter().map(Ok))))
    }

    /// All rows of the part and maybe some more, with all columns.
    fn rows(&self, part: KeyPart) -> Result<Batches> {
        match (&*self.changes, part) {
            (_, KeyPart::Nothing) => Ok(Box::new(std::iter::empty())),
            (Changes::Keyed(changes), KeyPart::Points(points)) => self.points(changes, points),
            (Changes::Keyed(changes), part) => {
                let (shared, identity) = (self.changes.clone(), self.identity.clone());
                let committed = self.committed.open(part, None, None)?.map(move |rows| {
                    let rows = rows?;
                    let Changes::Keyed(changes) = &*shared else { return Ok(rows) };
                    let keep =
                        identity.encode(&rows)?.iter().map(|key| Some(changes.state(key) == KeyState::Untouched)).collect::<BooleanArray>();
                    Ok(filter_record_batch(&rows, &keep)?)
                });
                Ok(Box::new(committed.chain(changes.present()?.into_iter().map(Ok))))
            }
            (Changes::Bag(changes), part) => {
                let mut missing = changes.missing(&self.identity.codec)?;
                let identity = self.identity.clone();
                let inserted: Vec<RecordBatch> = changes.inserted().to_vec();
                let all = self.committed.open(part, None, None)?.chain(inserted.into_iter().map(Ok));
                Ok(Box::new(all.map(move |rows| bag::without_missing(&rows?, &identity.codec, &mut missing))))
            }
        }
    }
}

impl Contents for ChangedContents {
    fn schema(&self) -> SchemaRef {
        self.committed.schema()
    }

    fn key(&self) -> &[usize] {
        self.committed.key()
    }

    fn open(&self, part: KeyPart, projection: Option<Vec<usize>>, limit: Option<usize>) -> Result<Batches> {
        if self.changes.is_empty() {
            return self.committed.open(part, projection, limit);
        }
        let mut left = limit.unwrap_or(usize::MAX);
        let rows = self.rows(part)?.map_while(move |rows| {
            if left == 0 {
                return None;
            }
            Some(rows.and_then(|rows| {
                let rows = if rows.num_rows() > left { rows.slice(0, left) } else { rows };
                left -= rows.num_rows();
                match &projection {
                    Some(projection) => Ok(rows.project(projection)?),
                    None => Ok(rows),
                }
            }))
        });
        Ok(Box::new(rows))
    }

    fn row_estimate(&self) -> u64 {
        self.committed.row_estimate()
    }

    fn byte_estimate(&self) -> u64 {
        self.committed.byte_estimate() + self.changes.bytes() as u64
    }
}

/// Everything acknowledged of a table at one moment, under its lock.
#[derive(Clone)]
pub(crate) struct AcknowledgedContents {
    handle: Arc<TableHandle>,
    acknowledged: Arc<Acknowledged>,
    identity: Arc<Identity>,
}

impl AcknowledgedContents {
    /// As DML reads it.
    pub(crate) fn new(handle: Arc<TableHandle>, acknowledged: Arc<Acknowledged>, identity: Arc<Identity>) -> Self {
        Self { handle, acknowledged, identity }
    }
}

impl std::fmt::Debug for AcknowledgedContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "acknowledged at {}", self.acknowledged.at())
    }
}

impl Contents for AcknowledgedContents {
    fn schema(&self) -> SchemaRef {
        self.identity.schema.clone()
    }

    fn key(&self) -> &[usize] {
        &self.identity.key
    }

    fn open(&self, part: KeyPart, projection: Option<Vec<usize>>, limit: Option<usize>) -> Result<Batches> {
        let part = match part {
            KeyPart::Nothing => return Ok(Box::new(std::iter::empty())),
            KeyPart::Points(points) => {
                let keys: EncodedRows = points.iter().collect();
                let (rows, found) = self.handle.lookup(&keys)?;
                let rows = found_rows(&rows, &found, limit, projection.as_deref())?;
                return Ok(Box::new(std::iter::once(Ok(rows))));
            }
            // The open epoch is small: its rows are given whatever the range, and the filter above sorts them out.
            KeyPart::Range(range) => Some(range),
            KeyPart::Everything => None,
        };
        let rows = self.acknowledged.clone().scan(part)?;
        Ok(Box::new(rows.map(move |rows| match &projection {
            Some(projection) => Ok(rows?.project(projection)?),
            None => Ok(rows?),
        })))
    }

    fn row_estimate(&self) -> u64 {
        self.acknowledged.row_estimate()
    }

    fn byte_estimate(&self) -> u64 {
        self.acknowledged.row_estimate() * 64
    }
}
