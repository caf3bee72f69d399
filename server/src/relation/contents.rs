//! What a scan of a table or view reads: its rows at one epoch, or, for DML, everything acknowledged so far.

use std::{fmt, sync::Arc};

use arrow::{array::UInt32Array, compute::take_record_batch, datatypes::SchemaRef, record_batch::RecordBatch};
use millpond_storage::{
    collection::{Collection, Hold, ScanRequest},
    encoding::EncodedRows,
    epoch::Epoch,
};

use crate::{error::Result, relation::key_filter::KeyPart};

/// Rows per batch of a scan.
pub(crate) const BATCH_ROWS: usize = 8192;

/// The batches of a scan.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// A relation's rows at one moment.
pub(crate) trait Contents: fmt::Debug + Send + Sync {
    /// All columns.
    fn schema(&self) -> SchemaRef;

    /// The columns it is keyed by; empty when it has no such key.
    fn key(&self) -> &[usize];

    /// The rows of a part, projected. With a limit, no more than that many.
    fn open(&self, part: KeyPart, projection: Option<Vec<usize>>, limit: Option<usize>) -> Result<Batches>;

    /// About how many rows there are.
    fn row_estimate(&self) -> u64;

    /// About how many bytes they have.
    fn byte_estimate(&self) -> u64;
}

/// A collection at an epoch, which a hold keeps readable.
#[derive(Debug)]
pub(crate) struct CollectionContents {
    collection: Arc<Collection>,
    schema: SchemaRef,
    key: Vec<usize>,
    at: Epoch,
    _hold: Option<Arc<Hold>>,
}

impl CollectionContents {
    /// The contents at `at`.
    pub(crate) fn new(collection: Arc<Collection>, schema: SchemaRef, key: Vec<usize>, at: Epoch, hold: Option<Arc<Hold>>) -> Self {
        Self { collection, schema, key, at, _hold: hold }
    }
}

impl Contents for CollectionContents {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn key(&self) -> &[usize] {
        &self.key
    }

    fn open(&self, part: KeyPart, projection: Option<Vec<usize>>, limit: Option<usize>) -> Result<Batches> {
        let key_range = match part {
            KeyPart::Nothing => return Ok(Box::new(std::iter::empty())),
            KeyPart::Points(points) => {
                let mut keys = EncodedRows::new();
                points.iter().for_each(|point| keys.push(point));
                let (rows, found) = self.collection.get(self.at, &keys)?;
                let batch = found_rows(&rows, &found, limit, projection.as_deref())?;
                return Ok(Box::new(std::iter::once(Ok(batch))));
            }
            KeyPart::Range(range) => Some(range),
            KeyPart::Everything => None,
        };
        let request = ScanRequest { projection, after_key: None, key_range, limit, batch_rows: BATCH_ROWS };
        let scan = self.collection.scan(self.at, request)?;
        Ok(Box::new(scan.map(|batch| Ok(batch?.batch))))
    }

    fn row_estimate(&self) -> u64 {
        self.collection.row_estimate()
    }

    fn byte_estimate(&self) -> u64 {
        self.collection.bytes()
    }
}

/// The rows of a lookup that were found, in the order asked for.
pub(crate) fn found_rows(
    rows: &RecordBatch,
    found: &[Option<u32>],
    limit: Option<usize>,
    projection: Option<&[usize]>,
) -> Result<RecordBatch> {
    let indices: UInt32Array = found.iter().flatten().take(limit.unwrap_or(usize::MAX)).copied().collect();
    let rows = match projection {
        Some(projection) => rows.project(projection)?,
        None => rows.clone(),
    };
    Ok(take_record_batch(&rows, &indices)?)
}
