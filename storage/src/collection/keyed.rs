//! The base of a collection with keys: a range of the one RocksDB that all collections share.
//!
//! ```text
//! collection id (u64 big-endian) | 0        -> version, epoch that the base contains, rows, watermark
//! collection id (u64 big-endian) | 1 | key  -> value (see layout.rs)
//! ```
//!
//! A fold is one atomic batch that also moves the epoch, so what a reader sees always says which epoch it is, also after a crash: RocksDB's own
//! log is off, and what is lost is a suffix of the folds, which the delta log (or the epoch log) still has until [`BaseStore::flush`].

use std::{
    collections::BTreeMap,
    fs,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    delta::StoredDelta,
    delta_log::{read_watermark, write_watermark},
    layout::Layout,
    overlay::Overlay,
};
use crate::{
    durable_file::{corrupt, create_directory, io_error, replace_file},
    encoding::{EncodedRows, cursor::Cursor},
    epoch::Epoch,
    error::{Result, StorageError},
    rocks::{RocksScan, RocksShared, RocksStore},
    state_store::WriteOps,
};

const META_VERSION: u8 = 1;
const META: u8 = 0;
const ROWS: u8 = 1;
/// After so many changes a fold asks whether it is still wanted.
const ASK_EVERY: usize = 4096;

/// The database that all collections of a directory share, and how much of it is on disk.
pub(super) struct BaseStore {
    db: RocksStore,
    /// The file that says how far the database was flushed.
    flushes: PathBuf,
    /// Folds written so far, and how many of them are flushed.
    written: AtomicU64,
    flushed: AtomicU64,
    unflushed_bytes: AtomicU64,
    flushing: Mutex<()>,
}

impl std::fmt::Debug for BaseStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BaseStore").field("path", &self.db.path()).finish_non_exhaustive()
    }
}

/// The open databases by directory: a directory can be opened once only, collections come one by one.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<BaseStore>>> = Mutex::new(BTreeMap::new());

impl BaseStore {
    /// The database in `directory`, opened if it is not yet.
    pub(super) fn open(directory: &Path, shared: &Arc<RocksShared>) -> Result<Arc<Self>> {
        create_directory(directory)?;
        let mut open = OPEN.lock();
        if let Some(store) = open.get(directory).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let flushes = directory.with_extension("flushed");
        let db = RocksStore::open(directory, shared)?;
        check_flushed(&db, &flushes)?;
        let store = Arc::new(Self {
            db,
            flushes,
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            unflushed_bytes: AtomicU64::new(0),
            flushing: Mutex::new(()),
        });
        open.retain(|_, store| store.strong_count() > 0);
        open.insert(directory.into(), Arc::downgrade(&store));
        Ok(store)
    }

    fn write(&self, ops: WriteOps) -> Result<u64> {
        let bytes = ops.bytes() as u64;
        self.db.write(ops)?;
        self.unflushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Counted behind the write, so that a flush that sees the count contains it.
        Ok(self.written.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Makes all folds durable.
    pub(super) fn flush(&self) -> Result<()> {
        let _one = self.flushing.lock();
        let written = self.written.load(Ordering::Acquire);
        if self.flushed.load(Ordering::Acquire) < written {
            self.unflushed_bytes.store(0, Ordering::Relaxed);
            let sequence = self.db.sequence();
            self.db.flush()?;
            replace_file(&self.flushes, &write_flushed(sequence))?;
            self.flushed.store(written, Ordering::Release);
        }
        Ok(())
    }

    /// Bytes of folds that are in memory only.
    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes.load(Ordering::Relaxed)
    }
}

/// A database that has lost its newest files opens as an older one: the number of its last flushed change is kept beside it.
fn check_flushed(db: &RocksStore, flushes: &Path) -> Result<()> {
    let bytes = match fs::read(flushes) {
        Ok(bytes) => bytes,
        // Written before anything is flushed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && db.sequence() == 0 => {
            return replace_file(flushes, &write_flushed(0));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(corrupt(flushes, "it is missing")),
        Err(error) => return Err(io_error("read", flushes)(error)),
    };
    let flushed = read_flushed(&bytes).ok_or_else(|| corrupt(flushes, "it is cut off, or its checksum does not match"))?;
    if db.sequence() < flushed {
        let detail = format!("it ends at change {}, but {flushed} changes were flushed to it", db.sequence());
        return Err(corrupt(db.path(), detail));
    }
    Ok(())
}

fn write_flushed(sequence: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..8]);
    bytes[8..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn read_flushed(bytes: &[u8]) -> Option<u64> {
    let sequence = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (write_flushed(sequence) == *bytes).then_some(sequence)
}

/// What the base says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BaseMeta {
    pub(super) epoch: Epoch,
    pub(super) rows: i64,
    pub(super) watermark_us: Option<(usize, i64)>,
}

impl BaseMeta {
    fn write(&self) -> Vec<u8> {
        let mut out = vec![META_VERSION];
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.rows.to_le_bytes());
        write_watermark(self.watermark_us, &mut out);
        out
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        let mut from = Cursor::new(bytes, "collection base");
        let version = from.u8()?;
        if version != META_VERSION {
            return Err(from.corrupt(format!("unknown version {version}")));
        }
        Ok(Self { epoch: Epoch(from.u64()?), rows: from.i64()?, watermark_us: read_watermark(&mut from)? })
    }
}

/// A fold that is in memory only.
#[derive(Debug)]
struct UnflushedFold {
    /// The store's count after it.
    written: u64,
    /// What it reached.
    epoch: Epoch,
    bytes: u64,
}

/// The base of one collection.
#[derive(Debug)]
pub(super) struct KeyedBase {
    store: Arc<BaseStore>,
    layout: Arc<Layout>,
    id: u64,
    /// Folds not known to be flushed.
    unflushed: Mutex<Vec<UnflushedFold>>,
    flushed_epoch: Mutex<Epoch>,
}

impl KeyedBase {
    pub(super) fn open(store: Arc<BaseStore>, layout: Arc<Layout>, id: u64) -> Result<(Self, BaseMeta)> {
        let base = Self { store, layout, id, unflushed: Mutex::new(Vec::new()), flushed_epoch: Mutex::new(Epoch::default()) };
        let meta = match base.store.db.get(&base.meta_key())? {
            Some(bytes) => BaseMeta::read(&bytes)?,
            None => BaseMeta::default(),
        };
        // Another collection's life in this process may have left it in memory only.
        let written = base.store.written.load(Ordering::Acquire);
        base.unflushed.lock().push(UnflushedFold { written, epoch: meta.epoch, bytes: 0 });
        Ok((base, meta))
    }

    fn meta_key(&self) -> Vec<u8> {
        key_of(self.id, META)
    }

    fn row_key(&self, key: &[u8]) -> Vec<u8> {
        [&self.id.to_be_bytes()[..], &[ROWS], key].concat()
    }

    /// The key behind all of this collection's.
    fn end_key(&self) -> Vec<u8> {
        key_of(self.id, ROWS + 1)
    }

    /// The epoch up to which the base is on disk.
    pub(super) fn flushed_epoch(&self) -> Epoch {
        let flushed = self.store.flushed.load(Ordering::Acquire);
        let mut epoch = self.flushed_epoch.lock();
        self.unflushed.lock().retain(|fold| {
            if fold.written <= flushed {
                *epoch = (*epoch).max(fold.epoch);
            }
            fold.written > flushed
        });
        *epoch
    }

    pub(super) fn store(&self) -> &BaseStore {
        &self.store
    }

    /// Bytes on disk and of folds that are not there yet, about.
    pub(super) fn bytes(&self) -> u64 {
        let flushed = self.store.flushed.load(Ordering::Acquire);
        let unflushed: u64 = self.unflushed.lock().iter().filter(|fold| fold.written > flushed).map(|fold| fold.bytes).sum();
        self.store.db.approximate_size(&self.row_key(&[]), &self.end_key()) + unflushed
    }

    /// Applies deltas, which follow what is there, as one batch; answers whether it did, or ended because `is_wanted` no longer holds. One caller at
    /// a time.
    pub(super) fn fold(&self, deltas: Vec<Arc<StoredDelta>>, meta: BaseMeta, is_wanted: &dyn Fn() -> bool) -> Result<bool> {
        let mut ops = WriteOps::new();
        if self.layout.is_unique() {
            self.fold_rows(deltas, &mut ops, is_wanted)?;
        } else {
            self.fold_counts(deltas, &mut ops)?;
        }
        if !is_wanted() {
            return Ok(false);
        }
        self.write_fold(ops, meta)?;
        Ok(true)
    }

    /// Removes all rows and comes to an epoch without those up to it.
    pub(super) fn let_go(&self, meta: BaseMeta) -> Result<()> {
        let mut ops = WriteOps::new();
        if meta.rows != 0 {
            ops.delete_range(&self.row_key(&[]), &self.end_key());
        }
        self.write_fold(ops, BaseMeta { rows: 0, ..meta })
    }

    fn write_fold(&self, mut ops: WriteOps, meta: BaseMeta) -> Result<()> {
        ops.put(&self.meta_key(), &meta.write());
        let bytes = ops.bytes() as u64;
        let written = self.store.write(ops)?;
        self.unflushed.lock().push(UnflushedFold { written, epoch: meta.epoch, bytes });
        Ok(())
    }

    fn fold_rows(&self, deltas: Vec<Arc<StoredDelta>>, ops: &mut WriteOps, is_wanted: &dyn Fn() -> bool) -> Result<()> {
        let values = deltas.iter().map(|delta| match delta.delta.batches.first() {
            Some(batch) => self.layout.encode_exact(&batch.batch),
            None => Ok(EncodedRows::new()),
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        let mut overlay = Overlay::new(deltas, &[], None);
        let mut changes = 0_usize;
        while let Some(change) = overlay.next_change() {
            let key = self.row_key(overlay.key(&change));
            match overlay.delta(&change).new_row(change.run) {
                Some(row) => ops.put(&key, values[change.delta].row(row)),
                None => ops.delete(&key),
            }
            changes += 1;
            if changes.is_multiple_of(ASK_EVERY) && !is_wanted() {
                break;
            }
        }
        Ok(())
    }

    fn fold_counts(&self, deltas: Vec<Arc<StoredDelta>>, ops: &mut WriteOps) -> Result<()> {
        let mut overlay = Overlay::new(deltas, &[], None);
        let mut keys = EncodedRows::new();
        let mut counts = Vec::new();
        let prefix = self.row_key(&[]);
        while let Some(change) = overlay.next_change() {
            keys.push_pair(&prefix, overlay.key(&change));
            counts.push(change.count);
        }
        self.store.db.multi_get_sorted(&keys.iter().collect::<Vec<_>>(), &mut |index, value| {
            counts[index] += read_count(value)?;
            Ok(())
        })?;
        for (key, count) in keys.iter().zip(counts) {
            if count == 0 { ops.delete(key) } else { ops.put(key, &count.to_le_bytes()) }
        }
        Ok(())
    }

    /// Finds the values of keys, in ascending order of the keys; `found` gets the index in `keys`.
    pub(super) fn get(&self, keys: &EncodedRows, wanted: &[usize], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        if let [index] = wanted {
            // The path for several keys costs more than the lookup.
            if let Some(value) = self.store.db.get(&self.row_key(keys.row(*index)))? {
                found(*index, &value);
            }
            return Ok(());
        }
        let prefix = self.row_key(&[]);
        let mut sorted = EncodedRows::with_capacity(wanted.len(), keys.total_bytes() + wanted.len() * prefix.len());
        wanted.iter().for_each(|index| sorted.push_pair(&prefix, keys.row(*index)));
        self.store.db.multi_get_sorted(&sorted.iter().collect::<Vec<_>>(), &mut |index, value| {
            found(wanted[index], value);
            Ok(())
        })
    }

    /// A cursor over the keys from `from` on and below `to`, and what the base said about itself at the same moment.
    pub(super) fn scan(&self, from: &[u8], to: Option<&[u8]>) -> Result<(BaseMeta, BaseCursor)> {
        let snapshot = self.store.db.snapshot();
        let meta = match snapshot.get(&self.meta_key())? {
            Some(bytes) => BaseMeta::read(&bytes)?,
            None => BaseMeta::default(),
        };
        let from = self.row_key(from);
        let to = to.map_or_else(|| self.end_key(), |to| self.row_key(to));
        let prefix = self.row_key(&[]).len();
        let scan = snapshot.scan((Bound::Included(&from), Bound::Excluded(&to)), false);
        let mut cursor = BaseCursor { scan, prefix, key: Vec::new(), value: Vec::new(), at_end: false };
        cursor.advance()?;
        Ok((meta, cursor))
    }

    /// Removes all rows, durably.
    pub(super) fn clear(&self) -> Result<()> {
        remove_rows(&self.store, self.id)
    }
}

/// Removes all that collection `id` has in the base, durably. Nothing is written if there is nothing.
pub(super) fn remove_rows(store: &BaseStore, id: u64) -> Result<()> {
    let (first, end) = (key_of(id, META), key_of(id, ROWS + 1));
    if store.db.get(&first)?.is_none() {
        return Ok(());
    }
    let mut ops = WriteOps::new();
    ops.delete_range(&first, &end);
    store.write(ops)?;
    store.flush()
}

/// What the keys of one kind begin with.
fn key_of(id: u64, kind: u8) -> Vec<u8> {
    [&id.to_be_bytes()[..], &[kind]].concat()
}

/// How often a whole row is there.
pub(super) fn read_count(value: &[u8]) -> Result<i64> {
    let bytes = value.try_into();
    bytes.map(i64::from_le_bytes).map_err(|_| StorageError::Corrupt { file: "collection base".into(), detail: "a count is damaged".into() })
}

/// Entries of the base in key order; stands on one of them or at the end.
pub(super) struct BaseCursor {
    scan: RocksScan,
    prefix: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    at_end: bool,
}

impl BaseCursor {
    /// The entry it stands on.
    pub(super) fn current(&self) -> Option<(&[u8], &[u8])> {
        (!self.at_end).then_some((&self.key, &self.value))
    }

    pub(super) fn advance(&mut self) -> Result<()> {
        match self.scan.next_entry()? {
            Some((key, value)) => {
                self.key.clear();
                self.key.extend_from_slice(&key[self.prefix..]);
                self.value.clear();
                self.value.extend_from_slice(value);
            }
            None => self.at_end = true,
        }
        Ok(())
    }
}
