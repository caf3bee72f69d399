//! The distinct keys of one chunk, numbered in the order of their first rows.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use millpond_storage::encoding::EncodedRows;

/// See the module.
#[derive(Default)]
pub(crate) struct DistinctKeys {
    index: HashTable<(u64, u32)>,
    hasher: DefaultHashBuilder,
    keys: EncodedRows,
    last: Option<u32>,
}

impl DistinctKeys {
    /// The number of a key.
    #[inline]
    pub(crate) fn intern(&mut self, key: &[u8]) -> u32 {
        if let Some(last) = self.last.filter(|last| self.keys.row(*last as usize) == key) {
            return last;
        }
        let hash = self.hasher.hash_one(key);
        let keys = &self.keys;
        let found = self.index.find(hash, |(other, number)| *other == hash && keys.row(*number as usize) == key);
        let number = match found {
            Some((_, number)) => *number,
            None => {
                let number = self.keys.len() as u32;
                self.keys.push(key);
                self.index.insert_unique(hash, (hash, number), |(hash, _)| *hash);
                number
            }
        };
        self.last = Some(number);
        number
    }

    /// The keys, by number.
    pub(crate) fn keys(&self) -> &EncodedRows {
        &self.keys
    }
}
