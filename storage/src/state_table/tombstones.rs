//! Deletions of a range table that changelog or store have still to learn of.
//!
//! Kept apart from the entries, so that the first entry of a group is found without passing over those deleted before it. A key may be
//! deleted, put again and deleted again: whoever logs or flushes takes all tombstones first and the entries after them, and the last word is right.

use super::ChangeSink;
use crate::state_store::WriteOps;

/// Full keys, one after the other, each with its length before it.
#[derive(Default)]
struct KeyList {
    bytes: Vec<u8>,
    count: usize,
}

impl KeyList {
    fn push(&mut self, mark: u8, key: &[u8]) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.count += 1;
    }

    fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (header, body) = rest.split_at_checked(5)?;
            let len = u32::from_le_bytes(header[1..].try_into().expect("four bytes")) as usize;
            let (key, tail) = body.split_at(len);
            rest = tail;
            Some((header[0], key))
        })
    }
}

/// The pending deletions of one table.
#[derive(Default)]
pub(super) struct Tombstones {
    /// Not in the changelog; the mark says whether the store must learn of it too.
    unlogged: KeyList,
    /// In the changelog, not in the store.
    unflushed: KeyList,
}

impl Tombstones {
    /// Adds the deletion of `full_key`. `dirty`: the changelog lacks it. `stored`: the store has a version of the key.
    pub(super) fn push(&mut self, full_key: &[u8], dirty: bool, stored: bool) {
        if dirty {
            self.unlogged.push(u8::from(stored), full_key);
        } else if stored {
            self.unflushed.push(1, full_key);
        }
    }

    /// Hands what is not logged to `sink`.
    pub(super) fn log(&mut self, sink: &mut ChangeSink<'_>) {
        for (stored, key) in self.unlogged.iter() {
            sink(key, None);
            if stored != 0 {
                self.unflushed.push(1, key);
            }
        }
        self.unlogged = KeyList::default();
    }

    /// Adds the deletions of what is logged to a batch; [`flushed`](Self::flushed) once it is written.
    pub(super) fn add_to(&self, ops: &mut WriteOps) {
        let mut keys: Vec<&[u8]> = self.unflushed.iter().map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys.iter().for_each(|key| ops.delete(key));
    }

    pub(super) fn flushed(&mut self) {
        self.unflushed = KeyList::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unlogged.count + self.unflushed.count == 0
    }

    pub(super) fn unlogged_bytes(&self) -> usize {
        self.unlogged.bytes.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.unlogged.bytes.capacity() + self.unflushed.bytes.capacity()
    }
}
