//! Tables: jobs without operators. Their changes come from DML through the epoch log; their contents are a collection.
//!
//! DML is checked against the *acknowledged* state: the sealed contents plus what was appended since. Statements on one table are serialised by
//! [`TableHandle::lock`].

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    compute::{concat_batches, filter_record_batch, take_record_batch},
    record_batch::RecordBatch,
};
use millpond_storage::{
    collection::{Collection, CollectionKey, ScanRequest},
    encoding::EncodedRows,
    epoch::Epoch,
    signed_batch::SignedBatch,
};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::error::Result;

/// A table.
pub struct TableHandle {
    /// Catalog id.
    pub id: u64,
    collection: Arc<Collection>,
    serial: Arc<AsyncMutex<()>>,
    pending: Mutex<VecDeque<Pending>>,
    last_acknowledged: AtomicU64,
}

/// Changes appended to the log and not yet sealed.
struct Pending {
    transaction: u64,
    epoch: Epoch,
    batches: Vec<SignedBatch>,
}

/// Net effect of the changes that are not sealed yet.
enum Overlay {
    /// Last state per key: a row of `rows`, or deleted.
    ByKey(HashMap<Box<[u8]>, Option<(usize, usize)>>),
    /// Net number of each row, with one place where it stands.
    ByRow(HashMap<Box<[u8]>, (i64, (usize, usize))>),
}

/// The acknowledged state at one moment.
pub struct Acknowledged {
    collection: Arc<Collection>,
    at: Epoch,
    batches: Vec<RecordBatch>,
    overlay: Overlay,
}

impl TableHandle {
    /// A table over its collection.
    pub fn new(id: u64, collection: Arc<Collection>) -> Arc<Self> {
        Arc::new(Self { id, collection, serial: Arc::default(), pending: Mutex::default(), last_acknowledged: AtomicU64::new(0) })
    }

    /// The contents.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Serialises statements that change the table.
    pub async fn lock(&self) -> OwnedMutexGuard<()> {
        self.serial.clone().lock_owned().await
    }

    /// The epoch of the last acknowledged change.
    pub fn last_acknowledged(&self) -> Epoch {
        Epoch(self.last_acknowledged.load(Ordering::Acquire))
    }

    /// The state that includes everything appended so far.
    pub fn acknowledged(&self) -> Result<Acknowledged> {
        let pending = self.pending.lock();
        let at = self.collection.upper();
        let open: Vec<SignedBatch> = pending.iter().filter(|p| p.epoch > at).flat_map(|p| p.batches.iter().cloned()).collect();
        drop(pending);
        Acknowledged::new(self.collection.clone(), at, open)
    }

    pub(super) fn append(&self, transaction: u64, epoch: Epoch, batches: Vec<SignedBatch>) {
        self.pending.lock().push_back(Pending { transaction, epoch, batches });
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// The log refused the transaction: it never happened.
    pub(super) fn withdraw(&self, transaction: u64) {
        self.pending.lock().retain(|p| p.transaction != transaction);
    }

    pub(super) fn acknowledge(&self, epoch: Epoch) {
        self.last_acknowledged.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Publishes an epoch.
    pub(super) fn seal(&self, epoch: Epoch) -> Result<()> {
        let batches: Vec<SignedBatch> = {
            let pending = self.pending.lock();
            pending.iter().filter(|p| p.epoch <= epoch).flat_map(|p| p.batches.iter().cloned()).collect()
        };
        if batches.is_empty() {
            self.collection.advance(epoch);
            return Ok(());
        }
        self.collection.seal(epoch, batches, None)?;
        self.pending.lock().retain(|p| p.epoch > epoch);
        Ok(())
    }
}

impl Acknowledged {
    fn new(collection: Arc<Collection>, at: Epoch, open: Vec<SignedBatch>) -> Result<Self> {
        let key_columns = match collection.key() {
            CollectionKey::Columns(columns) => Some(columns.clone()),
            CollectionKey::WholeRow | CollectionKey::AppendOnly => None,
        };
        let mut by_key = HashMap::new();
        let mut by_row: HashMap<Box<[u8]>, (i64, (usize, usize))> = HashMap::new();
        let mut batches = Vec::with_capacity(open.len());
        for (number, signed) in open.into_iter().enumerate() {
            let keys = encode_keys(&collection, &signed.batch, key_columns.as_deref())?;
            for row in 0..signed.batch.num_rows() {
                let sign = signed.signs.as_ref().map_or(1, |signs| signs[row]);
                if key_columns.is_some() {
                    let state = (sign > 0).then_some((number, row));
                    by_key.insert(keys.row(row).into(), state);
                } else {
                    let entry = by_row.entry(keys.row(row).into()).or_insert((0, (number, row)));
                    entry.0 += i64::from(sign);
                }
            }
            batches.push(signed.batch);
        }
        let overlay = if key_columns.is_some() { Overlay::ByKey(by_key) } else { Overlay::ByRow(by_row) };
        Ok(Self { collection, at, batches, overlay })
    }

    /// The epoch of the sealed part.
    pub fn at(&self) -> Epoch {
        self.at
    }

    /// Rows with these keys (encoded by the collection's key codec; keyed tables only): the rows found, and for each key its row in them.
    pub fn get(&self, keys: &EncodedRows) -> Result<(RecordBatch, Vec<Option<u32>>)> {
        let (sealed, mut found) = self.collection.get(self.at, keys)?;
        let Overlay::ByKey(overlay) = &self.overlay else { return Ok((sealed, found)) };
        if overlay.is_empty() {
            return Ok((sealed, found));
        }
        let mut parts = vec![sealed];
        let mut next = parts[0].num_rows() as u32;
        for (number, key) in keys.iter().enumerate() {
            match overlay.get(key) {
                Some(Some((batch, row))) => {
                    parts.push(self.batches[*batch].slice(*row, 1));
                    found[number] = Some(next);
                    next += 1;
                }
                Some(None) => found[number] = None,
                None => {}
            }
        }
        let schema = parts[0].schema();
        Ok((concat_batches(&schema, &parts)?, found))
    }

    /// All rows, in pieces.
    pub fn scan(&self) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + '_> {
        let sealed = self.collection.scan(self.at, ScanRequest { batch_rows: 8192, ..ScanRequest::default() })?;
        let mut removed: HashMap<&[u8], i64> = match &self.overlay {
            Overlay::ByRow(rows) => {
                rows.iter().filter(|(_, (count, _))| *count < 0).map(|(row, (count, _))| (row.as_ref(), -count)).collect()
            }
            Overlay::ByKey(_) => HashMap::new(),
        };
        let base = sealed.map(move |step| self.without_overridden(step?.batch, &mut removed));
        Ok(base.chain(self.added().into_iter().map(Ok)))
    }

    fn without_overridden(&self, batch: RecordBatch, removed: &mut HashMap<&[u8], i64>) -> Result<RecordBatch> {
        let keep: Vec<bool> = match &self.overlay {
            Overlay::ByKey(overlay) if overlay.is_empty() => return Ok(batch),
            Overlay::ByRow(_) if removed.is_empty() => return Ok(batch),
            Overlay::ByKey(overlay) => {
                let CollectionKey::Columns(columns) = self.collection.key() else { return Ok(batch) };
                let keys = encode_keys(&self.collection, &batch, Some(columns))?;
                keys.iter().map(|key| !overlay.contains_key(key)).collect()
            }
            Overlay::ByRow(_) => {
                let keys = encode_keys(&self.collection, &batch, None)?;
                keys.iter()
                    .map(|key| match removed.get_mut(key) {
                        Some(count) if *count > 0 => {
                            *count -= 1;
                            false
                        }
                        Some(_) | None => true,
                    })
                    .collect()
            }
        };
        Ok(filter_record_batch(&batch, &BooleanArray::from(keep))?)
    }

    /// Rows that stand only in the open epoch.
    fn added(&self) -> Vec<RecordBatch> {
        let mut places: Vec<(usize, u64)> = match &self.overlay {
            Overlay::ByKey(overlay) => overlay.values().flatten().map(|(batch, row)| (*batch, *row as u64)).collect(),
            Overlay::ByRow(rows) => rows
                .values()
                .filter(|(count, _)| *count > 0)
                .flat_map(|(count, (batch, row))| std::iter::repeat_n((*batch, *row as u64), usize::try_from(*count).unwrap_or(0)))
                .collect(),
        };
        // In the order of arrival, whatever the order of the map.
        places.sort_unstable();
        let mut added = Vec::new();
        for (number, batch) in self.batches.iter().enumerate() {
            let rows: Vec<u64> = places.iter().filter(|(at, _)| *at == number).map(|(_, row)| *row).collect();
            if !rows.is_empty() {
                added.push(take_record_batch(batch, &UInt64Array::from(rows)).expect("rows stand in the batch"));
            }
        }
        added
    }
}

fn encode_keys(collection: &Collection, batch: &RecordBatch, key: Option<&[usize]>) -> Result<EncodedRows> {
    let columns: Vec<ArrayRef> = match key {
        Some(key) => key.iter().map(|column| batch.column(*column).clone()).collect(),
        None => batch.columns().to_vec(),
    };
    Ok(collection.key_codec().encode(&columns)?)
}
