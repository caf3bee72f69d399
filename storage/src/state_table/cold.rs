//! Which keys a table has in its store and not in memory.
//!
//! A set of 32-bit hashes, so it may say yes for a key that is not there, never no for one that is. A new key then costs no read. The set
//! grows with what was evicted; past its bound it is given up and every key that is not in memory may be in the store.

use hashbrown::HashTable;

/// A set that would have more keys after adding another one is given up: to copy them would take long.
const MOST_ADDED: usize = 1 << 20;

/// Hashes of evicted keys, one entry per key.
pub(super) struct ColdKeys {
    hashes: HashTable<u32>,
    limit_bytes: usize,
    given_up: bool,
}

fn spread(hash: &u32) -> u64 {
    u64::from(*hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl ColdKeys {
    /// An empty set that may take `limit_bytes`.
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { hashes: HashTable::new(), limit_bytes, given_up: false }
    }

    /// Adds a key that leaves memory and stays in the store.
    pub(super) fn insert(&mut self, hash: u32) {
        if self.given_up {
            return;
        }
        self.hashes.insert_unique(spread(&hash), hash, spread);
        if self.memory_bytes() > self.limit_bytes {
            self.give_up();
        }
    }

    /// Adds the keys of another set.
    pub(super) fn add(&mut self, other: &Self) {
        if other.given_up || self.hashes.len() + other.hashes.len() > MOST_ADDED {
            return self.give_up();
        }
        other.hashes.iter().for_each(|hash| self.insert(*hash));
    }

    /// Takes out a key that is known to be in the set.
    pub(super) fn remove(&mut self, hash: u32) {
        if let Ok(entry) = self.hashes.find_entry(spread(&hash), |other| *other == hash) {
            entry.remove();
        }
    }

    /// From now on every key may be in the store.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        self.hashes = HashTable::new();
    }

    pub(super) fn may_contain(&self, hash: u32) -> bool {
        self.given_up || (!self.hashes.is_empty() && self.hashes.find(spread(&hash), |other| *other == hash).is_some())
    }

    /// Whether everything is in memory.
    pub(super) fn is_empty(&self) -> bool {
        !self.given_up && self.hashes.is_empty()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.hashes.allocation_size()
    }
}
