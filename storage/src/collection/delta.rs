//! Net deltas: what one epoch (or a range of them) changes in a collection.
//!
//! Changes that cancel each other are gone, and the rows are in key order. With a key of columns each key has its old row (-1), its new row
//! (+1), or both, in this order. With whole rows as keys each row is there as often as its number changes. Append-only chunks stay as they came.

use std::{
    cmp::Ordering,
    sync::{Arc, OnceLock},
};

use arrow::{
    array::UInt32Array,
    compute::{concat_batches, take_record_batch},
    record_batch::RecordBatch,
};
use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use super::{
    CollectionKey,
    layout::{Layout, batch_bytes, compact},
};
use crate::{
    encoding::EncodedRows,
    epoch::Epoch,
    error::{Result, StorageError},
    signed_batch::SignedBatch,
};

/// The net changes of a collection over `from < epoch <= to`; readable at its ends only.
#[derive(Clone, Debug)]
pub struct Delta {
    /// The epoch before.
    pub from: Epoch,
    /// The epoch whose contents it leads to.
    pub to: Epoch,
    /// The net changes, in key order (append-only: in the order of the ordinals).
    pub batches: Vec<SignedBatch>,
    /// Column that carries event time, and the watermark reached with `to`, microseconds.
    pub watermark_us: Option<(usize, i64)>,
}

/// A delta with what is needed to find its rows by key.
#[derive(Debug)]
pub(super) struct StoredDelta {
    pub(super) delta: Arc<Delta>,
    pub(super) runs: KeyRuns,
}

/// The distinct keys of a delta, ascending; key `i` has the rows `first_rows[i]..first_rows[i + 1]` of its one batch. Append-only
/// deltas have none.
#[derive(Debug, Default)]
pub(super) struct KeyRuns {
    keys: EncodedRows,
    first_rows: Vec<u32>,
    index: OnceLock<HashTable<u32>>,
}

/// Deltas of up to so many keys are searched without a hash index.
const LINEAR_KEYS: usize = 8;
/// Deltas above so many keys are searched by bisection: building an index for one reader would take longer.
const INDEXED_KEYS: usize = 1 << 17;

/// The hash that [`KeyRuns::find`] wants.
pub(super) fn key_hash(key: &[u8]) -> u64 {
    XxHash3_64::oneshot(key)
}

/// Says of most keys that a small delta does not have them, without following a pointer: a lookup may have to pass hundreds of deltas.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyFilter([u64; 4]);

/// Deltas of more keys have a filter that lets all pass.
const FILTERED_KEYS: usize = 64;

impl KeyFilter {
    /// Whether a key with this hash may be there.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        self.0[(hash >> 6) as usize % 4] & (1 << (hash % 64)) != 0
    }
}

impl KeyRuns {
    pub(super) fn filter(&self) -> KeyFilter {
        if self.len() > FILTERED_KEYS {
            return KeyFilter([u64::MAX; 4]);
        }
        let mut filter = [0; 4];
        for hash in self.keys.iter().map(key_hash) {
            filter[(hash >> 6) as usize % 4] |= 1 << (hash % 64);
        }
        KeyFilter(filter)
    }

    fn new() -> Self {
        Self { keys: EncodedRows::new(), first_rows: vec![0], index: OnceLock::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, run: usize) -> &[u8] {
        self.keys.row(run)
    }

    /// The rows of a key.
    pub(super) fn rows(&self, run: usize) -> std::ops::Range<usize> {
        self.first_rows[run] as usize..self.first_rows[run + 1] as usize
    }

    /// The first key that is not below `key`.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) < key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The run of a key, whose hash the caller knows.
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        if self.len() <= LINEAR_KEYS || self.len() > INDEXED_KEYS {
            return Some(self.lower_bound(key)).filter(|run| *run < self.len() && self.key(*run) == key);
        }
        let index = self.index.get_or_init(|| {
            let mut index = HashTable::with_capacity(self.len());
            for (run, key) in self.keys.iter().enumerate() {
                index.insert_unique(key_hash(key), run as u32, |run| key_hash(self.key(*run as usize)));
            }
            index
        });
        index.find(hash, |run| self.key(*run as usize) == key).map(|run| *run as usize)
    }

    fn memory_bytes(&self) -> usize {
        let index = if (LINEAR_KEYS + 1..=INDEXED_KEYS).contains(&self.len()) { self.len() * 10 } else { 0 };
        self.keys.memory_bytes() + self.first_rows.capacity() * 4 + index
    }
}

impl StoredDelta {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        let batch = |batch: &SignedBatch| batch_bytes(&batch.batch) + batch.signs.as_ref().map_or(0, Vec::len);
        self.delta.batches.iter().map(batch).sum::<usize>() + self.runs.memory_bytes() + 256
    }

    /// By how many rows the collection grows.
    pub(super) fn row_growth(&self) -> i64 {
        let growth = |batch: &SignedBatch| match &batch.signs {
            None => batch.num_rows() as i64,
            Some(signs) => signs.iter().map(|sign| i64::from(*sign)).sum(),
        };
        self.delta.batches.iter().map(growth).sum()
    }

    /// All rows, whatever their sign.
    pub(super) fn rows(&self) -> usize {
        self.delta.batches.iter().map(SignedBatch::num_rows).sum()
    }

    /// The one batch of a delta with keys.
    pub(super) fn batch(&self) -> &SignedBatch {
        &self.delta.batches[0]
    }

    /// The new row of a key of columns, if it has one.
    pub(super) fn new_row(&self, run: usize) -> Option<usize> {
        self.runs.rows(run).last().filter(|row| self.batch().sign(*row) > 0)
    }

    /// By how much the number of a whole row changes.
    pub(super) fn multiplicity(&self, run: usize) -> i64 {
        let rows = self.runs.rows(run);
        rows.len() as i64 * i64::from(self.batch().sign(rows.start))
    }

    /// Nets the changes of an epoch. No batches means that nothing changes.
    pub(super) fn net(
        layout: &Layout,
        (from, to): (Epoch, Epoch),
        changes: Vec<SignedBatch>,
        watermark_us: Option<(usize, i64)>,
    ) -> Result<Self> {
        let (batches, runs) = match layout.key {
            CollectionKey::AppendOnly => (appended(layout, changes)?, KeyRuns::new()),
            _ => match net_by_key(layout, changes)? {
                Some((batch, runs)) => (vec![batch], runs),
                None => (Vec::new(), KeyRuns::new()),
            },
        };
        Ok(Self { delta: Arc::new(Delta { from, to, batches, watermark_us }), runs })
    }

    /// Finds the keys of a delta that was netted before.
    pub(super) fn index(layout: &Layout, mut delta: Delta) -> Result<Self> {
        for batch in &mut delta.batches {
            batch.batch = layout.normalise(&batch.batch)?;
        }
        let mut runs = KeyRuns::new();
        if let (Some(batch), false) = (delta.batches.first(), layout.key == CollectionKey::AppendOnly) {
            let keys = layout.encode_keys(&batch.batch)?;
            for (row, key) in keys.iter().enumerate() {
                if row == 0 || keys.row(row - 1) != key {
                    if row > 0 {
                        runs.first_rows.push(row as u32);
                    }
                    runs.keys.push(key);
                }
            }
            if !keys.is_empty() {
                runs.first_rows.push(keys.len() as u32);
            }
        }
        Ok(Self { delta: Arc::new(delta), runs })
    }
}

/// The chunks of an append-only collection, checked to delete nothing.
fn appended(layout: &Layout, changes: Vec<SignedBatch>) -> Result<Vec<SignedBatch>> {
    let mut chunks = Vec::with_capacity(changes.len());
    for change in changes.into_iter().filter(|change| change.num_rows() > 0) {
        if change.signs.as_ref().is_some_and(|signs| signs.iter().any(|sign| *sign != 1)) {
            return Err(StorageError::Internal("an append-only collection was given a deletion".into()));
        }
        chunks.push(SignedBatch::inserts(compact(&layout.normalise(&change.batch)?)?));
    }
    Ok(chunks)
}

/// First bytes of a key, for comparing most keys without following a pointer.
fn key_prefix(key: &[u8]) -> u128 {
    let mut prefix = [0; 16];
    let length = key.len().min(16);
    prefix[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(prefix)
}

fn net_by_key(layout: &Layout, changes: Vec<SignedBatch>) -> Result<Option<(SignedBatch, KeyRuns)>> {
    let batches = changes.iter().map(|change| layout.normalise(&change.batch)).collect::<Result<Vec<_>>>()?;
    let batch = concat_batches(&layout.schema, &batches)?;
    if batch.num_rows() > u32::MAX as usize {
        return Err(StorageError::Internal("an epoch changes more than 2^32 rows of a collection".into()));
    }
    let mut signs = Vec::with_capacity(batch.num_rows());
    for change in &changes {
        match &change.signs {
            Some(change) => signs.extend_from_slice(change),
            None => signs.resize(signs.len() + change.num_rows(), 1),
        }
    }
    let keys = layout.encode_keys(&batch)?;
    let mut order: Vec<(u128, u32)> = keys.iter().enumerate().map(|(row, key)| (key_prefix(key), row as u32)).collect();
    let by_key = |left: &(u128, u32), right: &(u128, u32)| {
        let longer = || keys.row(left.1 as usize).cmp(keys.row(right.1 as usize));
        left.0.cmp(&right.0).then_with(longer).then(left.1.cmp(&right.1))
    };
    order.sort_unstable_by(by_key);
    let rows: Vec<u32> = order.into_iter().map(|(_, row)| row).collect();
    let netting = Netting { layout, batch: &batch, keys: &keys, signs: &signs };
    let Netted { kept, kept_signs, runs } = if layout.is_unique() { netting.unique(&rows)? } else { netting.counted(&rows) };
    if kept.is_empty() {
        return Ok(None);
    }
    let unchanged = kept.len() == batch.num_rows() && kept.iter().enumerate().all(|(place, row)| place as u32 == *row);
    let batch = if unchanged { batch } else { take_record_batch(&batch, &UInt32Array::from(kept))? };
    Ok(Some((SignedBatch::new(compact(&batch)?, kept_signs), runs)))
}

/// Rows in key order, to be netted key by key.
struct Netting<'n> {
    layout: &'n Layout,
    batch: &'n RecordBatch,
    keys: &'n EncodedRows,
    signs: &'n [i8],
}

/// What is left.
struct Netted {
    kept: Vec<u32>,
    kept_signs: Vec<i8>,
    runs: KeyRuns,
}

impl Netted {
    fn with_capacity(rows: usize) -> Self {
        Self { kept: Vec::with_capacity(rows), kept_signs: Vec::with_capacity(rows), runs: KeyRuns::new() }
    }

    fn keep(&mut self, row: u32, sign: i8) {
        self.kept.push(row);
        self.kept_signs.push(sign);
    }

    /// Ends the run of a key, if anything of it was kept.
    fn end_run(&mut self, key: &[u8]) {
        if self.kept.len() > self.runs.first_rows.last().copied().unwrap_or_default() as usize {
            self.runs.keys.push(key);
            self.runs.first_rows.push(self.kept.len() as u32);
        }
    }
}

impl Netting<'_> {
    fn runs<'r>(&'r self, rows: &'r [u32]) -> impl Iterator<Item = &'r [u32]> {
        rows.chunk_by(|left, right| self.keys.row(*left as usize) == self.keys.row(*right as usize))
    }

    fn sign(&self, row: u32) -> i8 {
        self.signs[row as usize]
    }

    /// Whole rows: what counts is how many of each.
    fn counted(&self, rows: &[u32]) -> Netted {
        let mut netted = Netted::with_capacity(rows.len());
        for run in self.runs(rows) {
            let net: i64 = run.iter().map(|row| i64::from(self.sign(*row))).sum();
            (0..net.unsigned_abs()).for_each(|_| netted.keep(run[0], net.signum() as i8));
            netted.end_run(self.keys.row(run[0] as usize));
        }
        netted
    }

    /// Keys of columns: equal rows cancel; what is left is the row before and the row after. If the changes contradict the key (two new
    /// rows), the first old row and the last new one count.
    fn unique(&self, rows: &[u32]) -> Result<Netted> {
        let several: Vec<u32> = self.runs(rows).filter(|run| run.len() > 1).flatten().copied().collect();
        let values = match several.is_empty() {
            true => EncodedRows::new(),
            false => self.layout.encode_exact(&take_record_batch(self.batch, &UInt32Array::from(several))?)?,
        };
        let mut first_value = 0;
        let mut netted = Netted::with_capacity(rows.len());
        let mut candidates: Vec<(&[u8], u32)> = Vec::new();
        for run in self.runs(rows) {
            if let [row] = run {
                netted.keep(*row, self.sign(*row));
            } else {
                candidates.clear();
                candidates.extend(run.iter().enumerate().map(|(at, row)| (values.row(first_value + at), *row)));
                first_value += run.len();
                let (old, new) = self.old_and_new(&mut candidates);
                old.into_iter().for_each(|row| netted.keep(row, -1));
                new.into_iter().for_each(|row| netted.keep(row, 1));
            }
            netted.end_run(self.keys.row(run[0] as usize));
        }
        Ok(netted)
    }

    /// The row before and the row after, of all changes of one key with their values.
    fn old_and_new(&self, candidates: &mut [(&[u8], u32)]) -> (Option<u32>, Option<u32>) {
        candidates.sort_unstable();
        let (mut old, mut new) = (None::<u32>, None::<u32>);
        for equal in candidates.chunk_by(|left, right| left.0 == right.0) {
            let net: i64 = equal.iter().map(|(_, row)| i64::from(self.sign(*row))).sum();
            let of_sign = |sign: i8| equal.iter().map(|(_, row)| *row).filter(move |row| self.sign(*row) == sign);
            match net.cmp(&0) {
                Ordering::Equal => {}
                Ordering::Less => old = old.into_iter().chain(of_sign(-1)).min(),
                Ordering::Greater => new = new.into_iter().chain(of_sign(1)).max(),
            }
        }
        (old, new)
    }
}
