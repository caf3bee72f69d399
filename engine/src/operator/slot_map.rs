//! Dense numbers for byte keys: the in-memory index of operators that keep typed columns per key.
//!
//! A *slot* is the number of a key; columns elsewhere are indexed by it. Keys lie one after another in one buffer, which is rewritten when
//! half of it is garbage. Freed slots are used again, last freed first, so which number a key gets depends only on the order of calls.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    start: usize,
    length: u32,
    /// Whether the slot stands for a key in the index.
    keyed: bool,
}

/// See the module.
pub(crate) struct SlotMap {
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    entries: Vec<Entry>,
    free: Vec<u32>,
    keys: Vec<u8>,
    garbage_bytes: usize,
}

impl SlotMap {
    /// No keys.
    pub(crate) fn new() -> Self {
        Self {
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            entries: Vec::new(),
            free: Vec::new(),
            keys: Vec::new(),
            garbage_bytes: 0,
        }
    }

    /// The slot of a key, and whether it is a new one.
    #[inline]
    pub(crate) fn intern(&mut self, key: &[u8]) -> (u32, bool) {
        let hash = self.hasher.hash_one(key);
        let (entries, keys) = (&self.entries, &self.keys);
        let equal = |slot: &u32| {
            let entry = &entries[*slot as usize];
            entry.hash == hash && &keys[entry.start..entry.start + entry.length as usize] == key
        };
        if let Some(slot) = self.index.find(hash, equal) {
            return (*slot, false);
        }
        (self.insert(hash, key), true)
    }

    fn insert(&mut self, hash: u64, key: &[u8]) -> u32 {
        let slot = self.allocate();
        let length = u32::try_from(key.len()).expect("a key is below 4 GiB");
        self.entries[slot as usize] = Entry { hash, start: self.keys.len(), length, keyed: true };
        self.keys.extend_from_slice(key);
        let entries = &self.entries;
        self.index.insert_unique(hash, slot, |slot| entries[*slot as usize].hash);
        slot
    }

    /// A slot without a key.
    pub(crate) fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { hash: 0, start: 0, length: 0, keyed: false });
            u32::try_from(self.entries.len() - 1).expect("an operator has less than 2^32 slots")
        })
    }

    /// Gives a slot back, and its key if it has one.
    pub(crate) fn release(&mut self, slot: u32) {
        let entry = self.entries[slot as usize];
        if entry.keyed {
            if let Ok(found) = self.index.find_entry(entry.hash, |other| *other == slot) {
                found.remove();
            }
            self.garbage_bytes += entry.length as usize;
        }
        self.entries[slot as usize] = Entry { hash: 0, start: 0, length: 0, keyed: false };
        self.free.push(slot);
        if self.garbage_bytes > self.keys.len() / 2 && self.garbage_bytes > 4096 {
            self.rewrite_keys();
        }
    }

    fn rewrite_keys(&mut self) {
        let mut keys = Vec::with_capacity(self.keys.len() - self.garbage_bytes);
        for entry in self.entries.iter_mut().filter(|entry| entry.keyed) {
            let start = keys.len();
            keys.extend_from_slice(&self.keys[entry.start..entry.start + entry.length as usize]);
            entry.start = start;
        }
        self.keys = keys;
        self.garbage_bytes = 0;
    }

    /// The key of a slot.
    pub(crate) fn key(&self, slot: u32) -> &[u8] {
        let entry = &self.entries[slot as usize];
        &self.keys[entry.start..entry.start + entry.length as usize]
    }

    /// Whether the slot stands for a key.
    pub(crate) fn is_keyed(&self, slot: u32) -> bool {
        self.entries[slot as usize].keyed
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// One more than the largest slot ever given out: how long columns must be.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Slots that stand for keys, ascending.
    pub(crate) fn keyed_slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.entries.len() as u32).filter(|slot| self.is_keyed(*slot))
    }

    /// Renumbers the slots in use from 0, keeping their order. Returns (old, new) for each, ascending.
    pub(crate) fn compact(&mut self) -> Vec<(u32, u32)> {
        let mut in_use = vec![true; self.entries.len()];
        self.free.iter().for_each(|slot| in_use[*slot as usize] = false);
        let slots = (0..self.entries.len() as u32).filter(|slot| in_use[*slot as usize]);
        let moves: Vec<(u32, u32)> = slots.zip(0..).collect();
        let entries: Vec<Entry> = moves.iter().map(|(old, _)| self.entries[*old as usize]).collect();
        self.entries = entries;
        self.free = Vec::new();
        self.rewrite_keys();
        let entries = &self.entries;
        self.index = HashTable::with_capacity(self.index.len());
        for (slot, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.keyed) {
            self.index.insert_unique(entry.hash, slot as u32, |slot| entries[*slot as usize].hash);
        }
        moves
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.allocation_size() + self.entries.capacity() * size_of::<Entry>() + self.free.capacity() * 4 + self.keys.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_slots_until_released() {
        let mut map = SlotMap::new();
        let slots: Vec<u32> = (0..5000u32).map(|key| map.intern(&key.to_be_bytes()).0).collect();
        let shadow = map.allocate();
        assert!(!map.is_keyed(shadow));
        for key in (0..5000u32).filter(|key| key % 4 != 0) {
            map.release(slots[key as usize]);
        }
        assert_eq!(map.len(), 1250);
        for key in (0..5000u32).step_by(4) {
            assert_eq!(map.intern(&key.to_be_bytes()), (slots[key as usize], false));
        }
        let moves = map.compact();
        assert_eq!(moves.len(), 1251);
        assert_eq!(map.capacity(), 1251);
        for (old, new) in moves {
            if old != shadow {
                assert_eq!(map.key(new), (old).to_be_bytes());
                assert_eq!(map.intern(&old.to_be_bytes()), (new, false));
            }
        }
        assert_eq!(map.intern(b"new"), (1251, true));
    }
}
