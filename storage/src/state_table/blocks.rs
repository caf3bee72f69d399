//! Memory for encoded records: append-only blocks with a free list per size class, no allocation per record.
//!
//! A record is a 16-byte header (hash, size class, flags, a count for the table's use, lengths), a key and a value with some room to grow. A [`Loc`] stays valid until
//! the record is freed or moved. Records never move by themselves and slots are never split, so a block can be walked from its start.
//! Blocks are small while a table is small. [`Blocks::begin_evacuation`] closes a block to new records: after the caller has freed or moved
//! what is in it, the block itself is given back.

const UNIT_BITS: u32 = 3;
const BLOCK_UNIT_BITS: u32 = 15;
/// Largest block that holds several records, in bytes.
const BLOCK_BYTES: usize = 1 << (UNIT_BITS + BLOCK_UNIT_BITS);
const FIRST_BLOCK_BYTES: usize = 4 << 10;
const BLOCK_INDEX_LIMIT: usize = 1 << (32 - BLOCK_UNIT_BITS);
const HEADER_BYTES: usize = 16;
const CLASSES: usize = 225;

/// Flag of a slot that holds no record; all other flags belong to the table.
const FREE: u8 = 1 << 7;

/// Where a record is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Loc(u32);

impl Loc {
    fn new(block: usize, offset: usize) -> Self {
        Self(((block as u32) << BLOCK_UNIT_BITS) | (offset >> UNIT_BITS) as u32)
    }

    pub(super) fn block(self) -> usize {
        (self.0 >> BLOCK_UNIT_BITS) as usize
    }

    fn offset(self) -> usize {
        ((self.0 & ((1 << BLOCK_UNIT_BITS) - 1)) as usize) << UNIT_BITS
    }
}

/// A [`Loc`] that may have gone stale; see [`Blocks::resolve`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    loc: Loc,
    generation: u32,
}

#[derive(Default)]
struct Block {
    /// Empty when the block index is unused.
    bytes: Box<[u8]>,
    /// Bytes from the start that slots have been cut from.
    cut: usize,
    /// Bytes of slots in use.
    live: usize,
    /// Counts how often handles into this block were made stale.
    generation: u32,
}

/// All blocks of one table.
pub(super) struct Blocks {
    blocks: Vec<Block>,
    unused: Vec<usize>,
    open: Option<usize>,
    /// Free slots by size class; those of closed blocks are stale and skipped.
    free: Vec<Vec<Handle>>,
    free_entries: usize,
    allocated_bytes: usize,
}

struct Header {
    hash: u32,
    class: u8,
    flags: u8,
    key_len: usize,
    value_len: usize,
}

/// Bytes of a slot of `class`: multiples of 8 up to 256, then eight steps to each doubling.
fn class_bytes(class: u8) -> usize {
    let class = usize::from(class);
    if class <= 32 {
        return class * 8;
    }
    let (doubling, step) = ((class - 33) / 8 + 8, (class - 33) % 8 + 1);
    (1 << doubling) + (step << (doubling - 3))
}

/// The least class whose slots hold `bytes`.
fn class_of(bytes: usize) -> u8 {
    if bytes <= 256 {
        return bytes.div_ceil(8) as u8;
    }
    let doubling = (bytes - 1).ilog2() as usize;
    let step = (bytes - (1 << doubling)).div_ceil(1 << (doubling - 3));
    u8::try_from(32 + (doubling - 8) * 8 + step).expect("a record is below 4 GiB")
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self { blocks: Vec::new(), unused: Vec::new(), open: None, free: vec![Vec::new(); CLASSES], free_entries: 0, allocated_bytes: 0 }
    }

    /// Stores a record with room for `room` value bytes, at least `value.len()`.
    pub(super) fn insert(&mut self, hash: u32, key: &[u8], value: &[u8], room: usize, flags: u8) -> Loc {
        let class = class_of(HEADER_BYTES + key.len() + room.max(value.len()));
        let loc = self.take_slot(class);
        let block = &mut self.blocks[loc.block()];
        block.live += class_bytes(class);
        let slot = &mut block.bytes[loc.offset()..];
        slot[..4].copy_from_slice(&hash.to_le_bytes());
        slot[4] = class;
        slot[5] = flags;
        slot[6..8].fill(0);
        slot[8..12].copy_from_slice(&(key.len() as u32).to_le_bytes());
        slot[12..16].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let body = &mut slot[HEADER_BYTES..];
        body[..key.len()].copy_from_slice(key);
        body[key.len()..key.len() + value.len()].copy_from_slice(value);
        loc
    }

    /// Copies a record into another slot with room for `room` value bytes, at least what it holds.
    pub(super) fn duplicate(&mut self, loc: Loc, room: usize) -> Loc {
        let header = self.header(loc);
        let bytes = HEADER_BYTES + header.key_len + header.value_len;
        let class = class_of(HEADER_BYTES + header.key_len + room.max(header.value_len));
        let copy = self.take_slot(class);
        self.blocks[copy.block()].live += class_bytes(class);
        if copy.block() == loc.block() {
            self.blocks[loc.block()].bytes.copy_within(loc.offset()..loc.offset() + bytes, copy.offset());
        } else {
            let source = std::mem::take(&mut self.blocks[loc.block()].bytes);
            self.blocks[copy.block()].bytes[copy.offset()..copy.offset() + bytes]
                .copy_from_slice(&source[loc.offset()..loc.offset() + bytes]);
            self.blocks[loc.block()].bytes = source;
        }
        self.blocks[copy.block()].bytes[copy.offset() + 4] = class;
        copy
    }

    fn take_slot(&mut self, class: u8) -> Loc {
        while let Some(handle) = self.free[usize::from(class)].pop() {
            self.free_entries -= 1;
            if self.blocks[handle.loc.block()].generation == handle.generation {
                return handle.loc;
            }
        }
        let bytes = class_bytes(class);
        if let Some(open) = self.open {
            let block = &mut self.blocks[open];
            if block.bytes.len() - block.cut >= bytes {
                block.cut += bytes;
                return Loc::new(open, block.cut - bytes);
            }
        }
        let size = (self.allocated_bytes / 8).clamp(FIRST_BLOCK_BYTES, BLOCK_BYTES).next_power_of_two();
        let dedicated = bytes > size / 4;
        let index = self.add_block(if dedicated { bytes } else { size });
        self.blocks[index].cut = bytes;
        if !dedicated {
            self.open = Some(index);
        }
        Loc::new(index, 0)
    }

    fn add_block(&mut self, bytes: usize) -> usize {
        self.allocated_bytes += bytes;
        let index = self.unused.pop().unwrap_or_else(|| {
            self.blocks.push(Block::default());
            self.blocks.len() - 1
        });
        assert!(index < BLOCK_INDEX_LIMIT, "a state table evicts before its block numbers run out");
        self.blocks[index].bytes = vec![0; bytes].into_boxed_slice();
        index
    }

    /// Frees a record. Its block is given back when it was the last one in it.
    pub(super) fn free(&mut self, loc: Loc) {
        let (index, offset) = (loc.block(), loc.offset());
        let block = &mut self.blocks[index];
        let class = block.bytes[offset + 4];
        block.bytes[offset + 5] = FREE;
        let bytes = class_bytes(class);
        block.live -= bytes;
        if block.live == 0 && self.open != Some(index) {
            self.allocated_bytes -= block.bytes.len();
            block.bytes = Box::default();
            block.cut = 0;
            block.generation = block.generation.wrapping_add(1);
            self.unused.push(index);
            return;
        }
        self.free[usize::from(class)].push(Handle { loc, generation: block.generation });
        self.free_entries += 1;
        self.forget_stale_slots();
    }

    /// Keeps the free lists in proportion to the blocks: entries of closed blocks are dropped once they could be most of the lists.
    fn forget_stale_slots(&mut self) {
        let most = self.allocated_bytes / 16 + 4096;
        if self.free_entries <= most {
            return;
        }
        let blocks = &self.blocks;
        for slots in &mut self.free {
            slots.retain(|slot| blocks[slot.loc.block()].generation == slot.generation);
        }
        self.free_entries = self.free.iter().map(Vec::len).sum();
    }

    fn header(&self, loc: Loc) -> Header {
        let bytes = &self.blocks[loc.block()].bytes[loc.offset()..];
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Header { hash: word(0), class: bytes[4], flags: bytes[5], key_len: word(8) as usize, value_len: word(12) as usize }
    }

    fn slot(&self, loc: Loc) -> &[u8] {
        &self.blocks[loc.block()].bytes[loc.offset()..]
    }

    pub(super) fn hash(&self, loc: Loc) -> u32 {
        self.header(loc).hash
    }

    pub(super) fn flags(&self, loc: Loc) -> u8 {
        self.slot(loc)[5]
    }

    pub(super) fn set_flags(&mut self, loc: Loc, flags: u8) {
        self.blocks[loc.block()].bytes[loc.offset() + 5] = flags;
    }

    /// The number that the table keeps with the record; 0 at first.
    pub(super) fn count(&self, loc: Loc) -> usize {
        let slot = self.slot(loc);
        usize::from(u16::from_le_bytes([slot[6], slot[7]]))
    }

    pub(super) fn set_count(&mut self, loc: Loc, count: usize) {
        let start = loc.offset() + 6;
        self.blocks[loc.block()].bytes[start..start + 2].copy_from_slice(&(count as u16).to_le_bytes());
    }

    pub(super) fn key(&self, loc: Loc) -> &[u8] {
        let slot = self.slot(loc);
        let len = u32::from_le_bytes(slot[8..12].try_into().expect("four bytes")) as usize;
        &slot[HEADER_BYTES..HEADER_BYTES + len]
    }

    pub(super) fn value(&self, loc: Loc) -> &[u8] {
        let header = self.header(loc);
        let start = HEADER_BYTES + header.key_len;
        &self.slot(loc)[start..start + header.value_len]
    }

    /// Key and value of a record.
    pub(super) fn entry(&self, loc: Loc) -> (&[u8], &[u8]) {
        let header = self.header(loc);
        let body = &self.slot(loc)[HEADER_BYTES..HEADER_BYTES + header.key_len + header.value_len];
        body.split_at(header.key_len)
    }

    /// The value of a record with all the room behind it.
    pub(super) fn value_room_mut(&mut self, loc: Loc) -> &mut [u8] {
        let header = self.header(loc);
        let (start, end) = (loc.offset() + HEADER_BYTES + header.key_len, loc.offset() + class_bytes(header.class));
        &mut self.blocks[loc.block()].bytes[start..end]
    }

    /// How many value bytes the record has room for.
    pub(super) fn value_room(&self, loc: Loc) -> usize {
        let header = self.header(loc);
        class_bytes(header.class) - HEADER_BYTES - header.key_len
    }

    /// Says how many bytes of the value's room are in use.
    pub(super) fn set_value_len(&mut self, loc: Loc, len: usize) {
        let start = loc.offset() + 12;
        self.blocks[loc.block()].bytes[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
    }

    /// Bytes of the slot that a record takes.
    pub(super) fn slot_bytes(&self, loc: Loc) -> usize {
        class_bytes(self.header(loc).class)
    }

    /// A handle that can be kept while records are freed and moved.
    pub(super) fn handle(&self, loc: Loc) -> Handle {
        Handle { loc, generation: self.blocks[loc.block()].generation }
    }

    /// The record behind a handle, unless its slot is free or its block gone. It may be another record in the same slot.
    pub(super) fn resolve(&self, handle: Handle) -> Option<Loc> {
        let block = &self.blocks[handle.loc.block()];
        (block.generation == handle.generation && self.flags(handle.loc) & FREE == 0).then_some(handle.loc)
    }

    /// Number of block indices; a clock hand goes round them.
    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes that giving back `block` would return.
    pub(super) fn block_bytes(&self, block: usize) -> usize {
        self.blocks[block].bytes.len()
    }

    /// The record in `block` at or after byte `offset`, and the offset behind it.
    pub(super) fn next_record(&self, block: usize, mut offset: usize) -> Option<(Loc, usize)> {
        let cut = self.blocks[block].cut;
        while offset < cut {
            let loc = Loc::new(block, offset);
            let header = self.header(loc);
            offset += class_bytes(header.class);
            if header.flags & FREE == 0 {
                return Some((loc, offset));
            }
        }
        None
    }

    /// Takes `block` out of use for new records, and makes handles into it stale. False if there is no record in it: then it is given back
    /// already, and its number may soon be that of a new block.
    pub(super) fn begin_evacuation(&mut self, block: usize) -> bool {
        let state = &mut self.blocks[block];
        state.generation = state.generation.wrapping_add(1);
        if self.open == Some(block) {
            self.open = None;
        }
        if state.live > 0 {
            return true;
        }
        if !state.bytes.is_empty() {
            self.allocated_bytes -= state.bytes.len();
            state.bytes = Box::default();
            state.cut = 0;
            self.unused.push(block);
        }
        false
    }

    /// Bytes of memory, free room included.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes + self.free_entries * size_of::<Handle>() + self.blocks.capacity() * size_of::<Block>()
    }

    /// Whether block numbers are about to run out.
    pub(super) fn is_crowded(&self) -> bool {
        self.blocks.len() - self.unused.len() > BLOCK_INDEX_LIMIT / 8 * 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_chosen_for_and_waste_little() {
        for bytes in (1..5000).chain([BLOCK_BYTES, BLOCK_BYTES + 1, 123_456_789, (4 << 30) - 1]) {
            let class = class_of(bytes);
            assert!(class_bytes(class) >= bytes);
            assert!(class_bytes(class - 1) < bytes, "{bytes}");
            assert_eq!(class_bytes(class) % 8, 0);
            assert!(usize::from(class) < CLASSES);
        }
    }

    #[test]
    fn slots_are_reused_and_empty_blocks_are_given_back() {
        let mut blocks = Blocks::new();
        let locs: Vec<Loc> = (0..10_000_u32).map(|i| blocks.insert(i, &i.to_be_bytes(), &[7; 40], 40, 1)).collect();
        assert_eq!(blocks.entry(locs[77]), (&77_u32.to_be_bytes()[..], &[7_u8; 40][..]));
        let allocated = blocks.allocated_bytes;
        for loc in &locs[..5000] {
            blocks.free(*loc);
        }
        assert!(blocks.allocated_bytes < allocated * 2 / 3);
        let before = blocks.allocated_bytes;
        let free: usize = blocks.free.iter().map(Vec::len).sum();
        for i in 0..free as u32 / 2 {
            blocks.insert(i, &i.to_be_bytes(), &[8; 40], 40, 1);
        }
        assert!(blocks.allocated_bytes <= before + BLOCK_BYTES);
    }

    #[test]
    fn a_handle_goes_stale_with_its_slot_or_block() {
        let mut blocks = Blocks::new();
        let first = blocks.insert(1, b"a", b"1", 1, 0);
        let second = blocks.insert(2, b"b", b"2", 1, 0);
        let handles = [blocks.handle(first), blocks.handle(second)];
        blocks.free(first);
        assert_eq!((blocks.resolve(handles[0]), blocks.resolve(handles[1])), (None, Some(second)));
        assert!(blocks.begin_evacuation(0));
        assert_eq!(blocks.resolve(handles[1]), None);
        assert_eq!(blocks.next_record(0, 0), Some((second, 48)));
        blocks.free(second);
        assert_eq!(blocks.allocated_bytes, 0);
    }

    #[test]
    fn big_records_have_blocks_of_their_own() {
        let mut blocks = Blocks::new();
        let value = vec![3; 1 << 20];
        let big = blocks.insert(0, b"k", &value, 0, 0);
        let small = blocks.insert(0, b"s", b"v", 0, 0);
        assert_ne!(big.block(), small.block());
        assert_eq!(blocks.value(big), value);
        blocks.free(big);
        assert!(blocks.allocated_bytes() < 1 << 19);
    }
}
