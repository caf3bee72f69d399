//! Tables: jobs without operators. Their changes come from DML through the epoch log; their contents are a collection.
//!
//! DML is checked against the *acknowledged* state: the sealed contents plus what was appended since. Statements on one table are serialised by
//! [`TableHandle::lock`].

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::{ArrayRef, BooleanArray, UInt64Array},
    compute::{concat_batches, filter_record_batch, take_record_batch},
    datatypes::SchemaRef,
    record_batch::RecordBatch,
};
use millpond_storage::{
    collection::{Collection, CollectionKey, ScanRequest},
    encoding::EncodedRows,
    epoch::Epoch,
    epoch_log::{EpochLog, LogTicket},
    signed_batch::SignedBatch,
};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::timely::Timely;
use crate::{error::Result, side::JobSide, source::options::WatermarkSpec};

/// Rows per batch of a scan.
const BATCH_ROWS: usize = 8192;

/// A table to register.
pub struct TableSpec {
    /// Catalog id.
    pub id: u64,
    /// Name, for messages.
    pub name: String,
    /// Columns.
    pub schema: SchemaRef,
    /// Primary key columns.
    pub primary_key: Option<Vec<usize>>,
    /// Rows are never updated or deleted.
    pub append_only: bool,
    /// Of its event time.
    pub watermark: Option<WatermarkSpec>,
    /// Rows below the watermark do not get into the table. Only for a table whose rows are never updated or deleted.
    pub diverts_late_rows: bool,
}

/// A table.
pub struct TableHandle {
    /// Catalog id.
    pub id: u64,
    collection: Arc<Collection>,
    watermark: Option<WatermarkSpec>,
    /// Where late rows go, if they are not kept.
    late: Option<JobSide>,
    serial: Arc<AsyncMutex<()>>,
    open: Mutex<Open>,
    last_acknowledged: AtomicU64,
    last_appended: AtomicU64,
    version: AtomicU64,
    log: Arc<EpochLog>,
    /// What the log had said of its failures when those were taken back that concern this table.
    settled_failures: AtomicU64,
}

/// What was appended and is not sealed yet.
#[derive(Default)]
struct Open {
    pending: VecDeque<Pending>,
    /// The newest state of each key touched by small transactions, so that a lookup costs the same however many are pending (keyed tables).
    newest: KeyStates,
    /// The same of large transactions, each by itself.
    layers: Vec<Layer>,
}

/// States of keys.
type KeyStates = HashMap<Box<[u8]>, KeyState>;

/// The key states of one large transaction.
struct Layer {
    transaction: u64,
    epoch: Epoch,
    states: Arc<KeyStates>,
}

/// Changes of one transaction.
struct Pending {
    transaction: u64,
    /// Number of the append.
    version: u64,
    epoch: Epoch,
    batches: Vec<SignedBatch>,
    /// Tells whether the log has refused it; `None` for what came from the log.
    ticket: Option<LogTicket>,
}

/// A row where it stands: a batch and its number in it.
type PlacedRow = (RecordBatch, usize);

/// Net number of each encoded row, with one place (batch, row) where it stands.
type RowCounts = HashMap<Box<[u8]>, (i64, (usize, usize))>;

/// Bounds of encoded keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What a transaction made of a key.
#[derive(Clone)]
struct KeyState {
    /// Number of the append: the greater one counts.
    version: u64,
    epoch: Epoch,
    /// Its row, or that there is none.
    row: Option<PlacedRow>,
}

/// Changes ready to be appended: what takes long has been done.
pub(super) struct Prepared {
    batches: Vec<SignedBatch>,
    states: Vec<(Box<[u8]>, Option<PlacedRow>)>,
}

/// Key changes of a transaction from which on it gets a layer of its own: they are not entered one by one while others wait.
const LAYER_KEYS: usize = 4096;

/// Net effect of the changes that are not sealed yet.
enum Overlay {
    /// Last state per key.
    ByKey(KeyStates),
    /// Net number of each row, with one place where it stands.
    ByRow(RowCounts),
}

/// The acknowledged state at one moment, for scans.
pub struct Acknowledged {
    collection: Arc<Collection>,
    at: Epoch,
    batches: Vec<RecordBatch>,
    overlay: Overlay,
}

impl TableHandle {
    /// A table over its collection, whose changes go into the log. Late rows go to `late`, or stay.
    pub(crate) fn new(
        id: u64,
        collection: Arc<Collection>,
        log: Arc<EpochLog>,
        watermark: Option<WatermarkSpec>,
        late: Option<JobSide>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            collection,
            watermark,
            late,
            serial: Arc::default(),
            open: Mutex::default(),
            last_acknowledged: AtomicU64::new(0),
            last_appended: AtomicU64::new(0),
            version: AtomicU64::new(0),
            settled_failures: AtomicU64::new(log.failures()),
            log,
        })
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

    /// The epoch of the last change that was appended, acknowledged or not.
    pub fn last_appended(&self) -> Epoch {
        Epoch(self.last_appended.load(Ordering::Acquire).max(self.last_acknowledged.load(Ordering::Acquire)))
    }

    /// Grows with every append.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Rows with these keys (encoded by the collection's key codec; keyed tables only), everything appended so far included: the rows found, and
    /// for each key its row in them.
    pub fn lookup(&self, keys: &EncodedRows) -> Result<(RecordBatch, Vec<Option<u32>>)> {
        self.settle_failures();
        let open = self.open.lock();
        let (sealed, mut found) = self.collection.get(self.collection.upper(), keys)?;
        if open.newest.is_empty() && open.layers.is_empty() {
            return Ok((sealed, found));
        }
        let mut parts = vec![sealed];
        let mut next = parts[0].num_rows() as u32;
        for (number, key) in keys.iter().enumerate() {
            match open.state(key).map(|state| &state.row) {
                Some(Some((batch, row))) => {
                    parts.push(batch.slice(*row, 1));
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

    /// The state that includes everything appended so far.
    pub fn acknowledged(&self) -> Result<Acknowledged> {
        self.settle_failures();
        let open = self.open.lock();
        let at = self.collection.upper();
        if key_columns(&self.collection).is_some() {
            let overlay = Overlay::ByKey(open.all_states());
            return Ok(Acknowledged { collection: self.collection.clone(), at, batches: Vec::new(), overlay });
        }
        let pending: Vec<SignedBatch> = open.pending.iter().filter(|p| p.epoch > at).flat_map(|p| p.batches.iter().cloned()).collect();
        drop(open);
        Acknowledged::of_rows(self.collection.clone(), at, pending)
    }

    /// Does what an append needs that takes time.
    pub(super) fn prepare(&self, batches: Vec<SignedBatch>) -> Result<Prepared> {
        let mut states = Vec::new();
        if let Some(columns) = key_columns(&self.collection) {
            for signed in &batches {
                let keys = encode_keys(&self.collection, &signed.batch, Some(columns))?;
                states.extend(keys.iter().enumerate().map(|(row, key)| {
                    let present = signed.sign(row) > 0;
                    (Box::from(key), present.then(|| (signed.batch.clone(), row)))
                }));
            }
        }
        Ok(Prepared { batches, states })
    }

    pub(super) fn append(&self, transaction: u64, epoch: Epoch, prepared: Prepared, ticket: Option<LogTicket>) {
        let mut open = self.open.lock();
        self.last_appended.fetch_max(epoch.0, Ordering::AcqRel);
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        open.enter(transaction, epoch, version, prepared.states);
        open.pending.push_back(Pending { transaction, version, epoch, batches: prepared.batches, ticket });
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.open.lock().pending.is_empty()
    }

    /// Takes back what the log has refused, if it has refused anything since the last time. Whoever reads the state does so first, for the session
    /// that appended it may learn of it later. A failure that comes after this is known to [`EpochLog::append_unless_failed`].
    fn settle_failures(&self) {
        let failures = self.log.failures();
        if self.settled_failures.load(Ordering::Acquire) != failures {
            self.withdraw_failed();
            self.settled_failures.store(failures, Ordering::Release);
        }
    }

    /// Takes back what the log has refused: it never happened.
    pub(super) fn withdraw_failed(&self) {
        let mut open = self.open.lock();
        let has_failed = |pending: &Pending| pending.ticket.as_ref().is_some_and(LogTicket::has_failed);
        let failed: HashSet<u64> = open.pending.iter().filter(|pending| has_failed(pending)).map(|pending| pending.transaction).collect();
        if failed.is_empty() {
            return;
        }
        open.layers.retain(|layer| !failed.contains(&layer.transaction));
        open.pending.retain(|pending| !failed.contains(&pending.transaction));
        // What they overwrote is entered again, in order.
        let small: Vec<(u64, u64, Epoch, Vec<SignedBatch>)> = open
            .pending
            .iter()
            .filter(|pending| open.layers.iter().all(|layer| layer.transaction != pending.transaction))
            .map(|pending| (pending.transaction, pending.version, pending.epoch, pending.batches.clone()))
            .collect();
        open.newest.clear();
        for (transaction, version, epoch, batches) in small {
            if let Ok(prepared) = self.prepare(batches) {
                open.enter(transaction, epoch, version, prepared.states);
            }
        }
    }

    pub(super) fn acknowledge(&self, epoch: Epoch) {
        self.last_acknowledged.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Publishes an epoch.
    pub(super) fn seal(&self, epoch: Epoch) -> Result<()> {
        // The end of the epoch is durable, so the log has decided on all before it.
        self.withdraw_failed();
        let transactions: Vec<Vec<SignedBatch>> = {
            let open = self.open.lock();
            open.pending.iter().filter(|p| p.epoch <= epoch).map(|p| p.batches.clone()).collect()
        };
        if transactions.is_empty() || epoch <= self.collection.upper() {
            self.collection.advance(epoch);
        } else {
            let Timely { batches, watermark } = match self.watermark {
                Some(watermark) => {
                    let before = self.collection.watermark_us(self.collection.upper()).map(|(_, micros)| micros);
                    Timely::new((watermark, before), transactions, epoch, self.late.as_ref())?
                }
                None => Timely { batches: transactions.into_iter().flatten().collect(), watermark: None },
            };
            self.collection.seal(epoch, batches, watermark)?;
        }
        let mut open = self.open.lock();
        open.pending.retain(|pending| pending.epoch > epoch);
        open.layers.retain(|layer| layer.epoch > epoch);
        // A key whose newest change is sealed is found in the collection.
        if open.pending.is_empty() {
            open.newest.clear();
        } else {
            open.newest.retain(|_, state| state.epoch > epoch);
        }
        Ok(())
    }
}

impl Open {
    /// Enters the key states of a transaction.
    fn enter(&mut self, transaction: u64, epoch: Epoch, version: u64, states: Vec<(Box<[u8]>, Option<PlacedRow>)>) {
        let large = states.len() >= LAYER_KEYS;
        let states = states.into_iter().map(|(key, row)| (key, KeyState { version, epoch, row }));
        if large {
            self.layers.push(Layer { transaction, epoch, states: Arc::new(states.collect()) });
        } else {
            self.newest.extend(states);
        }
    }

    /// The newest state of a key.
    fn state(&self, key: &[u8]) -> Option<&KeyState> {
        let layered = self.layers.iter().filter_map(|layer| layer.states.get(key));
        layered.chain(self.newest.get(key)).max_by_key(|state| state.version)
    }

    fn all_states(&self) -> KeyStates {
        let mut all = self.newest.clone();
        for (key, state) in self.layers.iter().flat_map(|layer| layer.states.iter()) {
            if all.get(key).is_none_or(|known| known.version < state.version) {
                all.insert(key.clone(), state.clone());
            }
        }
        all
    }
}

fn key_columns(collection: &Collection) -> Option<&[usize]> {
    match collection.key() {
        CollectionKey::Columns(columns) => Some(columns),
        CollectionKey::WholeRow | CollectionKey::AppendOnly => None,
    }
}

impl Acknowledged {
    fn of_rows(collection: Arc<Collection>, at: Epoch, open: Vec<SignedBatch>) -> Result<Self> {
        let mut by_row = RowCounts::new();
        let mut batches = Vec::with_capacity(open.len());
        for (number, signed) in open.into_iter().enumerate() {
            let rows = encode_keys(&collection, &signed.batch, None)?;
            for (row, key) in rows.iter().enumerate() {
                by_row.entry(key.into()).or_insert((0, (number, row))).0 += i64::from(signed.sign(row));
            }
            batches.push(signed.batch);
        }
        Ok(Self { collection, at, batches, overlay: Overlay::ByRow(by_row) })
    }

    /// The epoch of the sealed part.
    pub fn at(&self) -> Epoch {
        self.at
    }

    /// About how many rows there are.
    pub fn row_estimate(&self) -> u64 {
        self.collection.row_estimate() + self.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>()
    }

    /// The rows, in pieces. Of what is sealed only keys in the range; of what is open everything, since it is little.
    pub fn scan(self: Arc<Self>, key_range: Option<KeyRange>) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send + 'static> {
        let request = ScanRequest { key_range, batch_rows: BATCH_ROWS, ..ScanRequest::default() };
        let sealed = self.collection.scan(self.at, request)?;
        let mut removed: HashMap<Box<[u8]>, i64> = match &self.overlay {
            Overlay::ByRow(rows) => {
                rows.iter().filter(|(_, (count, _))| *count < 0).map(|(row, (count, _))| (row.clone(), -count)).collect()
            }
            Overlay::ByKey(_) => HashMap::new(),
        };
        let added = self.added()?;
        let base = sealed.map(move |step| self.without_overridden(step?.batch, &mut removed));
        Ok(base.chain(added.into_iter().map(Ok)))
    }

    fn without_overridden(&self, batch: RecordBatch, removed: &mut HashMap<Box<[u8]>, i64>) -> Result<RecordBatch> {
        let keep: Vec<bool> = match &self.overlay {
            Overlay::ByKey(overlay) if overlay.is_empty() => return Ok(batch),
            Overlay::ByRow(_) if removed.is_empty() => return Ok(batch),
            Overlay::ByKey(overlay) => {
                let keys = encode_keys(&self.collection, &batch, key_columns(&self.collection))?;
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
    fn added(&self) -> Result<Vec<RecordBatch>> {
        let rows = match &self.overlay {
            Overlay::ByKey(overlay) => {
                // In key order, whatever the order of the map.
                let mut present: Vec<_> = overlay.iter().filter_map(|(key, state)| state.row.as_ref().map(|row| (key, row))).collect();
                present.sort_unstable_by_key(|(key, _)| *key);
                let parts: Vec<RecordBatch> = present.into_iter().map(|(_, (batch, row))| batch.slice(*row, 1)).collect();
                let Some(first) = parts.first() else { return Ok(Vec::new()) };
                return Ok(vec![concat_batches(&first.schema(), &parts)?]);
            }
            Overlay::ByRow(rows) => rows,
        };
        let mut places: Vec<(usize, u64)> = rows
            .values()
            .filter(|(count, _)| *count > 0)
            .flat_map(|(count, (batch, row))| std::iter::repeat_n((*batch, *row as u64), usize::try_from(*count).unwrap_or(0)))
            .collect();
        // In the order of arrival, whatever the order of the map.
        places.sort_unstable();
        let mut added = Vec::new();
        for (number, batch) in self.batches.iter().enumerate() {
            let rows: Vec<u64> = places.iter().filter(|(at, _)| *at == number).map(|(_, row)| *row).collect();
            if !rows.is_empty() {
                added.push(take_record_batch(batch, &UInt64Array::from(rows))?);
            }
        }
        Ok(added)
    }
}

fn encode_keys(collection: &Collection, batch: &RecordBatch, key: Option<&[usize]>) -> Result<EncodedRows> {
    let columns: Vec<ArrayRef> = match key {
        Some(key) => key.iter().map(|column| batch.column(*column).clone()).collect(),
        None => batch.columns().to_vec(),
    };
    Ok(collection.key_codec().encode(&columns)?)
}
