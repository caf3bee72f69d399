//! Uncommitted changes of a table without a primary key: rows inserted and rows deleted, as bags.

use std::collections::HashMap;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};
use millpond_storage::{encoding::key::KeyCodec, epoch_log::SignedBatch};

use crate::error::Result;

/// Changes of a bag.
#[derive(Clone, Debug, Default)]
pub(crate) struct BagChanges {
    inserted: Vec<RecordBatch>,
    deleted: Vec<RecordBatch>,
    bytes: usize,
}

/// A place to come back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BagMark {
    inserted: usize,
    deleted: usize,
}

/// Rows that a scan must leave out, with how often.
pub(crate) type Missing = HashMap<Box<[u8]>, u64>;

impl BagChanges {
    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.inserted.is_empty() && self.deleted.is_empty()
    }

    /// Whether rows were deleted, so that the change rests on what was there.
    pub(crate) fn deletes(&self) -> bool {
        !self.deleted.is_empty()
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Inserts rows.
    pub(crate) fn insert(&mut self, rows: &RecordBatch) {
        self.bytes += rows.get_array_memory_size();
        self.inserted.push(rows.clone());
    }

    /// Deletes rows that are there, committed or inserted before.
    pub(crate) fn delete(&mut self, rows: &RecordBatch) {
        self.bytes += rows.get_array_memory_size();
        self.deleted.push(rows.clone());
    }

    /// A mark to come back to.
    pub(crate) fn mark(&self) -> BagMark {
        BagMark { inserted: self.inserted.len(), deleted: self.deleted.len() }
    }

    /// Takes back every change after the mark.
    pub(crate) fn undo_to(&mut self, mark: BagMark) {
        self.inserted.truncate(mark.inserted);
        self.deleted.truncate(mark.deleted);
    }

    /// The change; rows that were inserted and deleted again stand in it twice, which the collection nets.
    pub(crate) fn delta(&self) -> Vec<SignedBatch> {
        let plus = self.inserted.iter().map(|rows| SignedBatch { batch: rows.clone(), signs: None });
        let minus = self.deleted.iter().map(|rows| SignedBatch { batch: rows.clone(), signs: Some(vec![-1; rows.num_rows()]) });
        plus.chain(minus).filter(|signed| signed.batch.num_rows() > 0).collect()
    }

    /// The rows inserted.
    pub(crate) fn inserted(&self) -> &[RecordBatch] {
        &self.inserted
    }

    /// What a scan of committed and inserted rows must leave out; `codec` encodes whole rows.
    pub(crate) fn missing(&self, codec: &KeyCodec) -> Result<Missing> {
        let mut missing = Missing::new();
        for rows in &self.deleted {
            for row in codec.encode(rows.columns())?.iter() {
                *missing.entry(row.into()).or_default() += 1;
            }
        }
        Ok(missing)
    }
}

/// The rows of a batch without those that are missing.
pub(crate) fn without_missing(rows: &RecordBatch, codec: &KeyCodec, missing: &mut Missing) -> Result<RecordBatch> {
    if missing.is_empty() {
        return Ok(rows.clone());
    }
    let encoded = codec.encode(rows.columns())?;
    let keep: BooleanArray = encoded
        .iter()
        .map(|row| {
            let Some(count) = missing.get_mut(row) else { return Some(true) };
            *count -= 1;
            if *count == 0 {
                missing.remove(row);
            }
            Some(false)
        })
        .collect();
    Ok(filter_record_batch(rows, &keep)?)
}
