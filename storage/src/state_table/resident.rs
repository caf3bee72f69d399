//! The records of a table that are in memory: a hash index over [`Blocks`].
//!
//! The index holds eight bytes per record (half of the key's hash, place). Keys are compared in the block. The hash is half of the one that
//! gives the key group, the other half, so that the few groups of a subtask do not crowd the index.

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use super::blocks::{Blocks, Handle, Loc};

/// Below this, everything is near the processor anyway.
const PREFETCH_FROM_BYTES: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Slot {
    hash: u32,
    loc: Loc,
}

/// Records by key.
pub(super) struct Resident {
    index: HashTable<Slot>,
    blocks: Blocks,
}

/// The hash by which records are found and by which [`ColdKeys`](super::cold::ColdKeys) remembers them.
pub(super) fn hash_key(key: &[u8]) -> u32 {
    (XxHash3_64::oneshot(key) >> 32) as u32
}

/// Spreads 32 bits of hash over the 64 that the index looks at.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Resident {
    pub(super) fn new() -> Self {
        Self { index: HashTable::new(), blocks: Blocks::new() }
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(super) fn blocks_mut(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn find(&self, hash: u32, key: &[u8]) -> Option<Loc> {
        let blocks = &self.blocks;
        self.index.find(spread(hash), |slot| slot.hash == hash && blocks.key(slot.loc) == key).map(|slot| slot.loc)
    }

    /// Brings what finding `keys` needs near the processor, with many fetches under way at once: a pass of its own over the keys of a chunk
    /// is faster than waiting for memory again and again while the chunk is worked on.
    pub(super) fn prefetch<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone) {
        if self.memory_bytes() < PREFETCH_FROM_BYTES {
            return;
        }
        let hashes: Vec<u32> = keys.map(hash_key).collect();
        let places = hashes.iter().map(|hash| self.index.find(spread(*hash), |slot| slot.hash == *hash).map(|slot| slot.loc));
        let places: Vec<Option<Loc>> = places.collect();
        let touched = places.iter().flatten().map(|loc| u32::from(self.blocks.flags(*loc))).sum::<u32>();
        std::hint::black_box(touched);
    }

    /// Adds a record whose key must not be there, with room for `room` value bytes.
    pub(super) fn insert(&mut self, hash: u32, key: &[u8], value: &[u8], room: usize, flags: u8) -> Loc {
        let loc = self.blocks.insert(hash, key, value, room, flags);
        self.index.insert_unique(spread(hash), Slot { hash, loc }, |slot| spread(slot.hash));
        loc
    }

    /// Replaces the value of a record, in place if it fits. Returns where the record is now.
    pub(super) fn set_value(&mut self, loc: Loc, value: &[u8]) -> Loc {
        let room = self.blocks.value_room_mut(loc);
        if room.len() >= value.len() {
            room[..value.len()].copy_from_slice(value);
            self.blocks.set_value_len(loc, value.len());
            return loc;
        }
        let moved = self.relocate_with_room(loc, value.len() + value.len() / 4);
        self.blocks.value_room_mut(moved)[..value.len()].copy_from_slice(value);
        self.blocks.set_value_len(moved, value.len());
        moved
    }

    /// Gives the value of a record room for at least `room` bytes, keeping what it holds. Returns where the record is now.
    pub(super) fn make_room(&mut self, loc: Loc, room: usize) -> Loc {
        if self.blocks.value_room(loc) >= room {
            return loc;
        }
        self.relocate_with_room(loc, room + room / 4)
    }

    /// Moves a record to another block. Returns where it is now.
    pub(super) fn relocate(&mut self, loc: Loc) -> Loc {
        self.relocate_with_room(loc, 0)
    }

    fn relocate_with_room(&mut self, loc: Loc, room: usize) -> Loc {
        let moved = self.blocks.duplicate(loc, room);
        self.replace(loc, moved);
        moved
    }

    fn replace(&mut self, old: Loc, new: Loc) {
        let hash = self.blocks.hash(old);
        self.index.find_mut(spread(hash), |slot| slot.loc == old).expect("a record is in the index").loc = new;
        self.blocks.free(old);
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, loc: Loc) {
        let hash = self.blocks.hash(loc);
        match self.index.find_entry(spread(hash), |slot| slot.loc == loc) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("a record is in the index"),
        }
        self.blocks.free(loc);
        if self.index.len() * 8 < self.index.capacity() && self.index.capacity() > 1024 {
            self.index.shrink_to(self.index.len() * 2, |slot| spread(slot.hash));
        }
    }

    pub(super) fn handle(&self, loc: Loc) -> Handle {
        self.blocks.handle(loc)
    }

    /// All records, in the order of their places.
    pub(super) fn locs(&self) -> impl Iterator<Item = Loc> + '_ {
        (0..self.blocks.block_count()).flat_map(move |block| {
            let mut offset = 0;
            std::iter::from_fn(move || {
                let (loc, next) = self.blocks.next_record(block, offset)?;
                offset = next;
                Some(loc)
            })
        })
    }

    /// Bytes of blocks and index.
    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks.allocated_bytes() + self.index.allocation_size()
    }
}
