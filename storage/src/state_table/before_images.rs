//! What a table's entries were before they were changed, back to the newest complete checkpoint.
//!
//! A task that fails while the others go on is put back to that checkpoint. Nearly all that its tables have in memory is as it was there. So, for
//! jobs whose tasks may be put back one by one, a table notes what an entry was when it is changed for the first time behind a checkpoint, and
//! goes back by changing just those entries once more. An entry that is changed blindly is noted as being in the store, from where it is read then.
//!
//! That a change is not the first is seen by the entry's dirty mark. Logging takes it off between two checkpoints too, so an entry may be noted
//! again: the oldest note counts. Too many notes are not kept; then it is known again from the next checkpoint on what there is to go back to.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::memory::MemoryHandle;

/// Part of the memory limit that the notes of a job's tables may take.
const LIMIT_DIVISOR: usize = 8;
const BLOCK_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 9;

/// What an entry was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Image<'a> {
    /// There was none.
    Absent,
    /// It had this value.
    Value(&'a [u8]),
    /// It was as the store has it, before this job's task writes it again.
    InStore,
}

/// The same, of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Absent,
    Value(Vec<u8>),
    InStore,
}

impl Image<'_> {
    fn to_owned(self) -> Before {
        match self {
            Image::Absent => Before::Absent,
            Image::Value(value) => Before::Value(value.to_vec()),
            Image::InStore => Before::InStore,
        }
    }
}

impl Before {
    fn as_image(&self) -> Image<'_> {
        match self {
            Before::Absent => Image::Absent,
            Before::Value(value) => Image::Value(value),
            Before::InStore => Image::InStore,
        }
    }
}

/// Notes in the order in which they were made: (kind u8, key length u32, value length u32, key, value)*, in blocks that no note crosses.
#[derive(Default)]
struct Notes {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Notes {
    /// Adds a note of the key that these parts make.
    fn push(&mut self, key: &[&[u8]], image: Image<'_>) -> usize {
        let (kind, value) = match image {
            Image::Absent => (0, &[][..]),
            Image::Value(value) => (1, value),
            Image::InStore => (2, &[][..]),
        };
        let key_len: usize = key.iter().map(|part| part.len()).sum();
        let bytes = HEADER_BYTES + key_len + value.len();
        if self.blocks.last().is_none_or(|block| block.capacity() - block.len() < bytes) {
            self.blocks.push(Vec::with_capacity(bytes.max(BLOCK_BYTES)));
        }
        let block = self.blocks.last_mut().expect("one was just added");
        block.push(kind);
        block.extend_from_slice(&(key_len as u32).to_le_bytes());
        block.extend_from_slice(&(value.len() as u32).to_le_bytes());
        key.iter().for_each(|part| block.extend_from_slice(part));
        block.extend_from_slice(value);
        self.bytes += bytes;
        bytes
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Image<'_>)> {
        self.blocks.iter().flat_map(|block| {
            let mut rest = block.as_slice();
            std::iter::from_fn(move || {
                let (header, body) = rest.split_at_checked(HEADER_BYTES)?;
                let length = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
                let (key, tail) = body.split_at(length(1));
                let (value, tail) = tail.split_at(length(5));
                rest = tail;
                let image = match header[0] {
                    0 => Image::Absent,
                    1 => Image::Value(value),
                    _ => Image::InStore,
                };
                Some((key, image))
            })
        })
    }
}

/// The notes of one table. Keys are the table's own parts of full keys.
pub(super) struct BeforeImages {
    /// Where in the task's changelog the notes begin; `None` while they would have a hole.
    since: Option<u64>,
    /// Of segments that have ended, with the position of their end.
    ended: VecDeque<(u64, Notes)>,
    open: Notes,
    /// Of the notes of all tables of the job.
    memory: Arc<MemoryHandle>,
}

impl BeforeImages {
    /// Nothing is noted until [`end_segment`](Self::end_segment) says where notes begin.
    pub(super) fn new(memory: Arc<MemoryHandle>) -> Self {
        Self { since: None, ended: VecDeque::new(), open: Notes::default(), memory }
    }

    /// For a table that was put back to where its new changelog begins: what was changed for that counts as changed.
    pub(super) fn put_back(memory: Arc<MemoryHandle>, changed: &BTreeMap<Vec<u8>, Before>) -> Self {
        let mut images = Self::new(memory);
        images.end_segment(0);
        changed.iter().for_each(|(key, before)| images.note(&[key], before.as_image()));
        images
    }

    /// The entry whose key these parts make is about to be changed; it is not dirty.
    pub(super) fn note(&mut self, key: &[&[u8]], image: Image<'_>) {
        if self.since.is_none() {
            return;
        }
        self.memory.grow(self.open.push(key, image));
        if self.memory.used() > self.memory.limit() / LIMIT_DIVISOR {
            self.lose();
        }
    }

    fn lose(&mut self) {
        let ended = std::mem::take(&mut self.ended).into_iter().map(|(_, notes)| notes.bytes).sum::<usize>();
        self.memory.shrink(ended + std::mem::take(&mut self.open).bytes);
        self.since = None;
    }

    /// A segment of the changelog ends at `position`. No entry is dirty.
    pub(super) fn end_segment(&mut self, position: u64) {
        match self.since {
            None => self.since = Some(position),
            Some(_) => self.ended.push_back((position, std::mem::take(&mut self.open))),
        }
    }

    /// A complete checkpoint has everything up to `named`.
    pub(super) fn forget(&mut self, named: u64) {
        while let Some((end, notes)) = self.ended.pop_front_if(|(end, _)| *end <= named) {
            self.memory.shrink(notes.bytes);
            self.since = Some(end);
        }
    }

    /// What has been changed behind `named`, the end of a segment or 0, and what it was there; `None` if that is not known.
    pub(super) fn behind(&self, named: u64) -> Option<BTreeMap<Vec<u8>, Before>> {
        self.since.filter(|since| *since <= named)?;
        let ended = self.ended.iter().filter(|(end, _)| *end > named).map(|(_, notes)| notes);
        let mut oldest = BTreeMap::new();
        for (key, image) in ended.chain([&self.open]).flat_map(Notes::iter) {
            if let Entry::Vacant(entry) = oldest.entry(key.to_vec()) {
                entry.insert(image.to_owned());
            }
        }
        Some(oldest)
    }
}

impl Drop for BeforeImages {
    fn drop(&mut self) {
        self.lose();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryBudget;

    fn behind(images: &BeforeImages, named: u64) -> Option<Vec<(String, Before)>> {
        let text = |(key, before): (Vec<u8>, Before)| (String::from_utf8(key).unwrap(), before);
        Some(images.behind(named)?.into_iter().map(text).collect())
    }

    #[test]
    fn the_oldest_note_behind_a_checkpoint_counts() {
        let budget = MemoryBudget::new(1 << 20);
        let memory = Arc::new(budget.handle("notes"));
        let mut images = BeforeImages::new(memory.clone());
        images.note(&[b"a"], Image::Absent);
        assert_eq!(behind(&images, 0), None, "something may have been changed before");
        images.end_segment(10);
        images.note(&[b"a", b"b"], Image::Value(b"1"));
        images.end_segment(20);
        images.note(&[b"ab"], Image::InStore);
        images.note(&[b"c"], Image::Absent);
        images.note(&[b"c"], Image::Value(b"2"));
        let (ab, c) = (|before| ("ab".to_owned(), before), ("c".to_owned(), Before::Absent));
        assert_eq!(behind(&images, 10), Some(vec![ab(Before::Value(b"1".to_vec())), c.clone()]));
        assert_eq!(behind(&images, 20), Some(vec![ab(Before::InStore), c.clone()]));
        images.forget(20);
        assert_eq!(behind(&images, 10), None);
        assert_eq!(behind(&images, 20), Some(vec![ab(Before::InStore), c]));
        let again = BeforeImages::put_back(memory, &images.behind(20).unwrap());
        assert_eq!(behind(&again, 0), behind(&images, 20));
        drop((images, again));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn too_many_notes_are_dropped_until_the_next_checkpoint() {
        let budget = MemoryBudget::new(8 << 10);
        let mut images = BeforeImages::new(Arc::new(budget.handle("notes")));
        images.end_segment(0);
        let numbers = || (0..100_u32).map(u32::to_be_bytes);
        numbers().for_each(|number| images.note(&[&number], Image::Value(&[7; 20])));
        assert_eq!((behind(&images, 0), budget.used()), (None, 0));
        images.end_segment(5);
        images.note(&[b"a"], Image::Absent);
        assert_eq!((behind(&images, 0), behind(&images, 5).map(|notes| notes.len())), (None, Some(1)));
    }
}
