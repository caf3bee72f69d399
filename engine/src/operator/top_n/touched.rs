//! Partitions that the open epoch has changed, with the rows they had at its start.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use millpond_storage::encoding::EncodedRows;

/// See the module. Partitions are numbered in the order of their first change.
#[derive(Default)]
pub(super) struct Touched {
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    keys: EncodedRows,
    heads: EncodedRows,
    bounds: Vec<Bound>,
}

/// From which row on changes do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// All matter.
    None,
    /// The last row of a full list.
    After(Box<[u8]>),
}

impl Touched {
    /// The number of a partition, if it was changed before.
    pub(super) fn find(&self, partition: &[u8]) -> Option<usize> {
        let hash = self.hasher.hash_one(partition);
        self.index.find(hash, |number| self.keys.row(*number as usize) == partition).map(|number| *number as usize)
    }

    /// Adds a partition that is not there yet, with its packed list of first rows.
    pub(super) fn add(&mut self, partition: &[u8], head: &[u8], bound: Bound) -> usize {
        let number = self.keys.len();
        self.keys.push(partition);
        self.heads.push(head);
        self.bounds.push(bound);
        let hash = self.hasher.hash_one(partition);
        let (hasher, keys) = (&self.hasher, &self.keys);
        self.index.insert_unique(hash, number as u32, |number| hasher.hash_one(keys.row(*number as usize)));
        number
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, number: usize) -> &[u8] {
        self.keys.row(number)
    }

    /// The rows that the partition had when the epoch began.
    pub(super) fn head(&self, number: usize) -> &[u8] {
        self.heads.row(number)
    }

    pub(super) fn bound(&self, number: usize) -> &Bound {
        &self.bounds[number]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.heads.memory_bytes() + self.len() * (size_of::<Bound>() + 16)
    }

    /// Forgets all partitions.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
