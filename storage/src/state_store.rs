//! An ordered map of byte keys to byte values: what state tables and collections are kept in.
//!
//! Two implementations: [`RocksStore`](crate::rocks::RocksStore) on disk and [`MemoryStore`] in memory. A store by itself promises
//! nothing about a crash; checkpoints (state tables) and delta logs (collections) do.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use parking_lot::RwLock;

use crate::error::Result;

/// Where state that is not in the tables' own memory is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateBackend {
    /// An ordered map in memory.
    Memory,
    /// RocksDB in the scratch directory.
    RocksDb,
}

/// Lower and upper end of a scan.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Calls back with the index of a key and its value.
pub type FoundFn<'a> = dyn FnMut(usize, &[u8]) -> Result<()> + 'a;

/// Calls back with a key and its value; `Break` ends the scan.
pub type EntryFn<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Calls back with the index of a range, a key and its value; `Break` goes on with the next range.
pub type RangeEntryFn<'a> = dyn FnMut(usize, &[u8], &[u8]) -> ControlFlow<()> + 'a;

/// An ordered byte map. All calls block; a write is atomic and visible to every later read.
pub trait StateStore: Send + Sync {
    /// Applies all operations in order, all or none.
    fn write(&self, ops: WriteOps) -> Result<()>;

    /// Looks up `keys`, which must be in ascending order, and calls `found` for those that exist, in the same order.
    fn multi_get_sorted(&self, keys: &[&[u8]], found: &mut FoundFn<'_>) -> Result<()>;

    /// Visits the entries within `bounds` in ascending order, or descending if `reverse`.
    fn scan_with(&self, bounds: KeyBounds<'_>, reverse: bool, entry: &mut EntryFn<'_>) -> Result<()>;

    /// Visits several ranges `[from, to)`, ascending and disjoint, with one cursor.
    fn scan_many(&self, ranges: &[(Vec<u8>, Vec<u8>)], entry: &mut RangeEntryFn<'_>) -> Result<()> {
        for (index, (from, to)) in ranges.iter().enumerate() {
            let bounds = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            self.scan_with(bounds, false, &mut |key, value| entry(index, key, value))?;
        }
        Ok(())
    }

    /// Roughly how many bytes the store holds.
    fn approximate_bytes(&self) -> u64;

    /// How many full buffers of writes wait to be brought to disk: a few, and writers have to wait as well.
    fn waiting_buffers(&self) -> u64 {
        0
    }
}

/// The least byte string above all that start with `prefix`; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// One operation of a [`WriteOps`].
#[derive(Debug, PartialEq, Eq)]
pub enum WriteOp<'a> {
    /// Sets a key.
    Put(&'a [u8], &'a [u8]),
    /// Removes a key, if it is there.
    Delete(&'a [u8]),
    /// Removes all keys in `[from, to)`.
    DeleteRange(&'a [u8], &'a [u8]),
}

const PUT: u8 = 0;
const DELETE: u8 = 1;
const DELETE_RANGE: u8 = 2;
const HEADER_BYTES: usize = 9;

/// An ordered list of operations in one buffer, to be written as one atomic batch.
#[derive(Default, Clone)]
pub struct WriteOps {
    buffer: Vec<u8>,
    count: usize,
}

impl WriteOps {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(PUT, key, value);
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.push(DELETE, key, &[]);
    }

    /// Removes all keys in `[from, to)`.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        self.push(DELETE_RANGE, from, to);
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of keys, values and headers.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The operations in order.
    pub fn iter(&self) -> impl Iterator<Item = WriteOp<'_>> {
        let mut rest = self.buffer.as_slice();
        std::iter::from_fn(move || {
            let (tag, lengths) = rest.split_first()?;
            let (first, lengths) = lengths.split_at(4);
            let (second, body) = lengths.split_at(4);
            let (first, body) = body.split_at(length(first));
            let (second, body) = body.split_at(length(second));
            rest = body;
            Some(match *tag {
                PUT => WriteOp::Put(first, second),
                DELETE => WriteOp::Delete(first),
                _ => WriteOp::DeleteRange(first, second),
            })
        })
    }

    fn push(&mut self, tag: u8, first: &[u8], second: &[u8]) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a key or value is below 4 GiB").to_le_bytes();
        self.buffer.reserve(HEADER_BYTES + first.len() + second.len());
        self.buffer.push(tag);
        self.buffer.extend_from_slice(&length(first));
        self.buffer.extend_from_slice(&length(second));
        self.buffer.extend_from_slice(first);
        self.buffer.extend_from_slice(second);
        self.count += 1;
    }
}

fn length(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
}

/// A store in memory: for the `memory` state backend, tests and simulation.
#[derive(Default)]
pub struct MemoryStore {
    map: RwLock<Entries>,
}

#[derive(Default)]
struct Entries {
    map: BTreeMap<Box<[u8]>, Box<[u8]>>,
    bytes: u64,
}

impl Entries {
    fn remove(&mut self, key: &[u8]) {
        if let Some(value) = self.map.remove(key) {
            self.bytes -= (key.len() + value.len()) as u64;
        }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl StateStore for MemoryStore {
    fn write(&self, ops: WriteOps) -> Result<()> {
        let mut entries = self.map.write();
        for op in ops.iter() {
            match op {
                WriteOp::Put(key, value) => {
                    entries.remove(key);
                    entries.bytes += (key.len() + value.len()) as u64;
                    entries.map.insert(key.into(), value.into());
                }
                WriteOp::Delete(key) => entries.remove(key),
                WriteOp::DeleteRange(from, to) => {
                    let doomed: Vec<Box<[u8]>> =
                        entries.map.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))).map(|(key, _)| key.clone()).collect();
                    doomed.iter().for_each(|key| entries.remove(key));
                }
            }
        }
        Ok(())
    }

    fn multi_get_sorted(&self, keys: &[&[u8]], found: &mut FoundFn<'_>) -> Result<()> {
        let entries = self.map.read();
        for (index, key) in keys.iter().enumerate() {
            if let Some(value) = entries.map.get(*key) {
                found(index, value)?;
            }
        }
        Ok(())
    }

    fn scan_with(&self, bounds: KeyBounds<'_>, reverse: bool, entry: &mut EntryFn<'_>) -> Result<()> {
        if is_empty_range(bounds) {
            return Ok(());
        }
        let entries = self.map.read();
        let mut range = entries.map.range::<[u8], _>(bounds);
        while let Some((key, value)) = if reverse { range.next_back() } else { range.next() } {
            if entry(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn approximate_bytes(&self) -> u64 {
        self.map.read().bytes
    }
}

/// Whether no key can lie within `bounds` (`BTreeMap::range` panics on some of these).
pub(crate) fn is_empty_range(bounds: KeyBounds<'_>) -> bool {
    match bounds {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

#[cfg(test)]
mod tests;
