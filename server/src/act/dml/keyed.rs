//! Uncommitted changes of a table with a primary key: what each touched key held before and holds now.

use std::hash::BuildHasher;

use arrow::{array::RecordBatch, compute::interleave_record_batch};
use hashbrown::{DefaultHashBuilder, HashTable};
use millpond_storage::{encoding::EncodedRows, epoch_log::SignedBatch};

use crate::error::Result;

/// Rows of a change are handed over in batches of this size.
const DELTA_ROWS: usize = 8192;

/// Where a row stands: number of its batch, number in it.
type Place = (u32, u32);

/// A touched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// The committed row that the changes were computed from.
    before: Option<Place>,
    /// The row now.
    now: Option<Place>,
}

/// What the changes say about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// Nothing.
    Untouched,
    /// There is no row.
    Absent,
    /// This row.
    Present((u32, u32)),
}

/// A row that would be there twice: its number in the batch that was to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duplicate(pub(crate) usize);

/// Changes by key.
#[derive(Clone, Debug)]
pub(crate) struct KeyedChanges {
    hasher: DefaultHashBuilder,
    index: HashTable<u32>,
    keys: EncodedRows,
    entries: Vec<Entry>,
    rows: Vec<RecordBatch>,
    /// Entries as they were before each change, newest last; `None` for a new one.
    undo: Vec<(u32, Option<Entry>)>,
    bytes: usize,
}

impl KeyedChanges {
    /// No changes.
    pub(crate) fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            index: HashTable::new(),
            keys: EncodedRows::new(),
            entries: Vec::new(),
            rows: Vec::new(),
            undo: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether nothing was touched.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.keys.memory_bytes() + self.entries.len() * 48
    }

    /// What is known of a key.
    pub(crate) fn state(&self, key: &[u8]) -> KeyState {
        match self.find(key).map(|entry| self.entries[entry as usize].now) {
            None => KeyState::Untouched,
            Some(None) => KeyState::Absent,
            Some(Some(place)) => KeyState::Present(place),
        }
    }

    /// The row at a place that `state` has named.
    pub(crate) fn row(&self, place: (u32, u32)) -> RecordBatch {
        self.rows[place.0 as usize].slice(place.1 as usize, 1)
    }

    /// The keys touched, each with the row it was computed from.
    pub(crate) fn touched(&self) -> (&EncodedRows, impl Iterator<Item = Option<RecordBatch>> + '_) {
        (&self.keys, self.entries.iter().map(|entry| entry.before.map(|place| self.row(place))))
    }

    /// The rows deleted by a statement: `rows` are what is there now under `keys`.
    pub(crate) fn delete(&mut self, rows: &RecordBatch, keys: &EncodedRows) {
        let batch = self.keep(rows);
        for (number, key) in keys.iter().enumerate() {
            let committed = Entry { before: Some((batch, number as u32)), now: None };
            self.change(key, |entry| entry.map_or(committed, |entry| Entry { now: None, ..entry }));
        }
    }

    /// Inserts rows. `committed(row)` says whether the committed state has the key of that row, asked only for untouched keys.
    ///
    /// # Errors
    /// The first row whose key is taken; rows before it have been inserted, so that the statement must be undone.
    pub(crate) fn insert(
        &mut self,
        rows: &RecordBatch,
        keys: &EncodedRows,
        mut committed: impl FnMut(usize) -> bool,
    ) -> Result<(), Duplicate> {
        let batch = self.keep(rows);
        for (number, key) in keys.iter().enumerate() {
            let place = (batch, number as u32);
            let taken = match self.state(key) {
                KeyState::Untouched => committed(number),
                KeyState::Absent => false,
                KeyState::Present(_) => true,
            };
            if taken {
                return Err(Duplicate(number));
            }
            self.change(key, |entry| Entry { before: entry.and_then(|entry| entry.before), now: Some(place) });
        }
        Ok(())
    }

    /// A mark to come back to.
    pub(crate) fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Takes back every change after the mark.
    pub(crate) fn undo_to(&mut self, mark: usize) {
        while self.undo.len() > mark {
            let Some((entry, old)) = self.undo.pop() else { break };
            match old {
                Some(old) => self.entries[entry as usize] = old,
                // Its key stays in the index: an entry that says what is committed, and changes nothing.
                None => self.entries[entry as usize].now = self.entries[entry as usize].before,
            }
        }
    }

    /// The net change, in the order in which keys were touched first.
    pub(crate) fn delta(&self) -> Result<Vec<SignedBatch>> {
        if let Some(inserted) = self.only_inserts() {
            return Ok(inserted);
        }
        let mut places: Vec<(usize, usize)> = Vec::new();
        let mut signs: Vec<i8> = Vec::new();
        let mut add = |place: Option<Place>, sign: i8| {
            if let Some((batch, row)) = place {
                places.push((batch as usize, row as usize));
                signs.push(sign);
            }
        };
        for entry in self.entries.iter().filter(|entry| entry.before != entry.now) {
            add(entry.before, -1);
            add(entry.now, 1);
        }
        let batches: Vec<&RecordBatch> = self.rows.iter().collect();
        let mut delta = Vec::new();
        for (places, signs) in places.chunks(DELTA_ROWS).zip(signs.chunks(DELTA_ROWS)) {
            let batch = interleave_record_batch(&batches, places)?;
            delta.push(SignedBatch { batch, signs: Some(signs.to_vec()) });
        }
        Ok(delta)
    }

    /// The rows that are there now and of those touched, for a scan: all of them in one go.
    pub(crate) fn present(&self) -> Result<Vec<RecordBatch>> {
        let places: Vec<(usize, usize)> =
            self.entries.iter().filter_map(|entry| entry.now).map(|(batch, row)| (batch as usize, row as usize)).collect();
        let batches: Vec<&RecordBatch> = self.rows.iter().collect();
        places.chunks(DELTA_ROWS).map(|places| Ok(interleave_record_batch(&batches, places)?)).collect()
    }

    /// The batches as they came, if they are all inserted and nothing else has happened.
    fn only_inserts(&self) -> Option<Vec<SignedBatch>> {
        let rows: usize = self.rows.iter().map(RecordBatch::num_rows).sum();
        let plain = rows == self.entries.len() && self.entries.iter().all(|entry| entry.before.is_none() && entry.now.is_some());
        plain.then(|| {
            self.rows.iter().filter(|rows| rows.num_rows() > 0).map(|rows| SignedBatch { batch: rows.clone(), signs: None }).collect()
        })
    }

    fn keep(&mut self, rows: &RecordBatch) -> u32 {
        self.bytes += rows.get_array_memory_size();
        self.rows.push(rows.clone());
        (self.rows.len() - 1) as u32
    }

    fn find(&self, key: &[u8]) -> Option<u32> {
        self.index.find(self.hasher.hash_one(key), |entry| self.keys.row(*entry as usize) == key).copied()
    }

    fn change(&mut self, key: &[u8], change: impl FnOnce(Option<Entry>) -> Entry) {
        match self.find(key) {
            Some(number) => {
                let entry = &mut self.entries[number as usize];
                self.undo.push((number, Some(*entry)));
                *entry = change(Some(*entry));
            }
            None => {
                let number = self.entries.len() as u32;
                self.undo.push((number, None));
                self.entries.push(change(None));
                self.keys.push(key);
                let (keys, hasher) = (&self.keys, &self.hasher);
                self.index.insert_unique(hasher.hash_one(key), number, |entry| hasher.hash_one(keys.row(*entry as usize)));
            }
        }
    }
}
