//! RocksDB behind a thin wrapper; the only file that names it.
//!
//! Writes never go to RocksDB's own log (WAL): a state store is discarded at restart and rebuilt from a checkpoint, a collection's base
//! knows the epoch of its last flush and is brought forward from its delta log. All databases of the process share one block cache,
//! one write buffer budget and RocksDB's background threads.

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::properties::NUM_IMMUTABLE_MEM_TABLE;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DB, DBCompressionType, DBRawIterator, Error, ErrorKind, LogLevel, Options, ReadOptions,
    Snapshot, WriteBatch, WriteBufferManager, WriteOptions,
};

use crate::error::{Result, StorageError};
use crate::state_store::{EntryFn, FoundFn, KeyBounds, RangeEntryFn, StateStore, WriteOp, WriteOps, is_empty_range};

const BLOOM_BITS_PER_KEY: f64 = 10.0;
const BLOCK_BYTES: usize = 16 << 10;
/// Files of a materialization are uploaded whole from memory.
const FILE_BYTES: u64 = 32 << 20;
const WRITE_BUFFER_BYTES: usize = 16 << 20;
/// A writer that finds so many full waits for one to be flushed, and the records behind it with it.
const WRITE_BUFFERS: i32 = 4;
const LEAST_SHARED_BYTES: usize = 1 << 20;
const BACKGROUND_JOBS: i32 = 2;
const OPEN_FILES: i32 = 512;

/// Memory that all databases of the process share.
pub struct RocksShared {
    cache: Cache,
    write_buffers: WriteBufferManager,
    write_buffer_bytes: usize,
}

/// Bytes after which a file that is being written is asked to go to disk.
const BYTES_PER_SYNC: u64 = 1 << 20;

impl RocksShared {
    /// `budget_bytes` bounds the block cache; write buffers are charged to it and take at most a third.
    pub fn new(budget_bytes: usize) -> Arc<Self> {
        let budget = budget_bytes.max(LEAST_SHARED_BYTES);
        let cache = Cache::new_lru_cache(budget);
        let write_buffers = WriteBufferManager::new_write_buffer_manager_with_cache(budget / 3, false, cache.clone());
        Arc::new(Self { cache, write_buffers, write_buffer_bytes: (budget / 6).clamp(256 << 10, WRITE_BUFFER_BYTES) })
    }

    /// Bytes in the shared cache now, write buffers included.
    pub fn used_bytes(&self) -> usize {
        self.cache.get_usage()
    }

    fn options(&self) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(BLOCK_BYTES);
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_format_version(5);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_manager(&self.write_buffers);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_max_write_buffer_number(WRITE_BUFFERS);
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(0.1);
        options.set_target_file_size_base(FILE_BYTES);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        // See `durable_file::write_synced`: large writes go to disk as they are made.
        options.set_bytes_per_sync(BYTES_PER_SYNC);
        options.set_max_open_files(OPEN_FILES);
        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(2);
        options.set_stats_dump_period_sec(0);
        options.set_skip_stats_update_on_db_open(true);
        options
    }
}

/// One database. Cloning shares it; the last clone closes it.
#[derive(Clone)]
pub struct RocksStore {
    inner: Arc<Inner>,
}

struct Inner {
    db: DB,
    path: PathBuf,
    _shared: Arc<RocksShared>,
}

impl Inner {
    fn column_family(&self) -> &ColumnFamily {
        self.db.cf_handle("default").expect("opened with the default column family")
    }

    fn fail(&self, error: Error) -> StorageError {
        store_error(&self.path, error)
    }

    fn multi_get(&self, keys: &[&[u8]], options: &ReadOptions, found: &mut FoundFn<'_>) -> Result<()> {
        let values = self.db.batched_multi_get_cf_opt(self.column_family(), keys.iter().copied(), true, options);
        for (index, value) in values.into_iter().enumerate() {
            if let Some(value) = value.map_err(|error| self.fail(error))? {
                found(index, &value)?;
            }
        }
        Ok(())
    }
}

fn store_error(path: &Path, error: Error) -> StorageError {
    match error.kind() {
        ErrorKind::Corruption => StorageError::Corrupt { file: path.display().to_string(), detail: error.into_string() },
        // RocksDB hides the system's error number; that there is no space is worth knowing, for it passes.
        ErrorKind::IOError if error.as_ref().contains("No space left") => StorageError::Io {
            action: "write",
            file: path.display().to_string(),
            source: std::io::Error::new(std::io::ErrorKind::StorageFull, error.into_string()),
        },
        _ => StorageError::Store(error.into_string()),
    }
}

impl RocksStore {
    /// Opens the database in directory `path`, creating it if it is not there.
    pub fn open(path: &Path, shared: &Arc<RocksShared>) -> Result<Self> {
        let options = shared.options();
        let db = DB::open_cf_with_opts(&options, path, [("default", options.clone())]).map_err(|error| store_error(path, error))?;
        Ok(Self { inner: Arc::new(Inner { db, path: path.to_owned(), _shared: shared.clone() }) })
    }

    /// Applies `ops` as one atomic batch, not durable before a [`flush`](Self::flush).
    pub fn write(&self, ops: WriteOps) -> Result<()> {
        let mut batch = WriteBatch::default();
        for op in ops.iter() {
            match op {
                WriteOp::Put(key, value) => batch.put(key, value),
                WriteOp::Delete(key) => batch.delete(key),
                WriteOp::DeleteRange(from, to) => batch.delete_range(from, to),
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.inner.db.write_opt(batch, &options).map_err(|error| self.inner.fail(error))
    }

    /// The value of one key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.db.get(key).map_err(|error| self.inner.fail(error))
    }

    /// Looks up ascending `keys` in one batch; `found` is called in order for those that exist.
    pub fn multi_get_sorted(&self, keys: &[&[u8]], found: &mut FoundFn<'_>) -> Result<()> {
        self.inner.multi_get(keys, &ReadOptions::default(), found)
    }

    /// A cursor over `bounds`, ascending or descending, on the contents as of now.
    pub fn scan(&self, bounds: KeyBounds<'_>, reverse: bool) -> RocksScan {
        RocksScan::new(self.inner.clone(), ReadOptions::default(), bounds, reverse)
    }

    /// A consistent view that does not see later writes. Keeps overwritten entries alive: drop it soon.
    pub fn snapshot(&self) -> RocksSnapshot {
        RocksSnapshot { snapshot: Snapshot::new(pin(&self.inner)), inner: self.inner.clone() }
    }

    /// Removes all keys in `[from, to)`.
    pub fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let mut ops = WriteOps::new();
        ops.delete_range(from, to);
        self.write(ops)
    }

    /// Makes everything written before durable (a new sorted file, fsynced).
    pub fn flush(&self) -> Result<()> {
        self.inner.db.flush().map_err(|error| self.inner.fail(error))
    }

    /// Writes a consistent image of the database into the new directory `path` on the same file system, its files linked where they can be.
    pub fn checkpoint(&self, path: &Path) -> Result<()> {
        let checkpoint = Checkpoint::new(&self.inner.db).map_err(|error| self.inner.fail(error))?;
        checkpoint.create_checkpoint(path).map_err(|error| self.inner.fail(error))
    }

    /// Roughly how many bytes the keys in `[from, to)` take on disk.
    pub fn approximate_size(&self, from: &[u8], to: &[u8]) -> u64 {
        self.inner.db.get_approximate_sizes(&[rocksdb::Range::new(from, to)]).first().copied().unwrap_or(0)
    }

    /// Roughly how many bytes the live entries take, in files and in write buffers.
    pub fn approximate_total(&self) -> u64 {
        let property = |name: &str| self.inner.db.property_int_value(name).ok().flatten().unwrap_or(0);
        property("rocksdb.estimate-live-data-size") + property("rocksdb.cur-size-all-mem-tables")
    }

    /// The number of its last change.
    pub fn sequence(&self) -> u64 {
        self.inner.db.latest_sequence_number()
    }

    /// Directory of the database.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

/// The database with a lifetime that the borrow checker cannot see.
///
/// Every value made from it lives in a struct that also holds `inner`, declared after it and so dropped after it.
#[allow(unsafe_code)]
fn pin(inner: &Arc<Inner>) -> &'static DB {
    // SAFETY: the `Arc` keeps the database at a fixed address for as long as it lives, and the users of the reference
    // (`RocksSnapshot`, `RocksScan`) keep a clone of the `Arc` in a field that is dropped last. The reference never leaves this file.
    unsafe { &*std::ptr::from_ref(&inner.db) }
}

/// A consistent view of a [`RocksStore`].
pub struct RocksSnapshot {
    snapshot: Snapshot<'static>,
    inner: Arc<Inner>,
}

impl RocksSnapshot {
    /// The value of one key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.snapshot.get(key).map_err(|error| self.inner.fail(error))
    }

    /// Looks up ascending `keys` in one batch; `found` is called in order for those that exist.
    pub fn multi_get_sorted(&self, keys: &[&[u8]], found: &mut FoundFn<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        self.inner.multi_get(keys, &options, found)
    }

    /// A cursor over `bounds`; it stays valid after the snapshot is dropped.
    pub fn scan(&self, bounds: KeyBounds<'_>, reverse: bool) -> RocksScan {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        RocksScan::new(self.inner.clone(), options, bounds, reverse)
    }
}

/// A cursor over a range of keys.
pub struct RocksScan {
    iterator: DBRawIterator<'static>,
    inner: Arc<Inner>,
    reverse: bool,
    place: Place,
}

/// Where a cursor stands.
enum Place {
    Unset,
    /// On an entry not handed out yet.
    Fresh,
    /// On the entry handed out last.
    HandedOut,
    End,
}

impl RocksScan {
    fn new(inner: Arc<Inner>, mut options: ReadOptions, bounds: KeyBounds<'_>, reverse: bool) -> Self {
        let after = |key: &[u8]| [key, &[0]].concat();
        match bounds.0 {
            Bound::Included(from) => options.set_iterate_lower_bound(from),
            Bound::Excluded(from) => options.set_iterate_lower_bound(after(from)),
            Bound::Unbounded => {}
        }
        match bounds.1 {
            Bound::Included(to) => options.set_iterate_upper_bound(after(to)),
            Bound::Excluded(to) => options.set_iterate_upper_bound(to),
            Bound::Unbounded => {}
        }
        let iterator = pin(&inner).raw_iterator_opt(options);
        let place = if is_empty_range(bounds) { Place::End } else { Place::Unset };
        Self { iterator, inner, reverse, place }
    }

    /// The next entry without copying it; `None` at the end.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match (&self.place, self.reverse) {
            (Place::End, _) => return Ok(None),
            (Place::Fresh, _) => {}
            (Place::Unset, false) => self.iterator.seek_to_first(),
            (Place::Unset, true) => self.iterator.seek_to_last(),
            (Place::HandedOut, false) => self.iterator.next(),
            (Place::HandedOut, true) => self.iterator.prev(),
        }
        if !self.iterator.valid() {
            self.place = Place::End;
            self.iterator.status().map_err(|error| self.inner.fail(error))?;
            return Ok(None);
        }
        self.place = Place::HandedOut;
        Ok(self.iterator.item())
    }

    /// Moves an ascending cursor to the first entry at or above `key`, within its bounds.
    pub fn seek(&mut self, key: &[u8]) {
        self.iterator.seek(key);
        self.place = Place::Fresh;
    }
}

impl Iterator for RocksScan {
    type Item = Result<(Box<[u8]>, Box<[u8]>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| entry.map(|(key, value)| (key.into(), value.into()))).transpose()
    }
}

impl StateStore for RocksStore {
    fn write(&self, ops: WriteOps) -> Result<()> {
        Self::write(self, ops)
    }

    fn multi_get_sorted(&self, keys: &[&[u8]], found: &mut FoundFn<'_>) -> Result<()> {
        Self::multi_get_sorted(self, keys, found)
    }

    fn scan_with(&self, bounds: KeyBounds<'_>, reverse: bool, entry: &mut EntryFn<'_>) -> Result<()> {
        let mut scan = self.scan(bounds, reverse);
        while let Some((key, value)) = scan.next_entry()? {
            if entry(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan_many(&self, ranges: &[(Vec<u8>, Vec<u8>)], entry: &mut RangeEntryFn<'_>) -> Result<()> {
        let (Some((first, _)), Some((_, last))) = (ranges.first(), ranges.last()) else { return Ok(()) };
        let mut scan = self.scan((Bound::Included(first), Bound::Excluded(last)), false);
        for (index, (from, to)) in ranges.iter().enumerate() {
            scan.seek(from);
            while let Some((key, value)) = scan.next_entry()? {
                if key >= to.as_slice() || entry(index, key, value) == ControlFlow::Break(()) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn approximate_bytes(&self) -> u64 {
        self.approximate_total()
    }

    fn waiting_buffers(&self) -> u64 {
        self.inner.db.property_int_value(NUM_IMMUTABLE_MEM_TABLE).ok().flatten().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
