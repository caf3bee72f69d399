//! Pairs of a chunk's rows and stored rows of the other side, gathered until there are enough to be handled column by column.

use std::ops::ControlFlow;

use arrow::{
    array::{ArrayRef, UInt32Array},
    compute::take,
    record_batch::{RecordBatch, RecordBatchOptions},
};
use millpond_storage::encoding::EncodedRows;

use super::{Condition, side::Side};
use crate::{chunk::CHUNK_ROWS, error::Result};

/// See the module.
#[derive(Default)]
pub(super) struct Candidates {
    /// Stored rows, each once.
    pub(super) rows: EncodedRows,
    /// Their places under their keys, where they may have to be written again.
    pub(super) suffixes: EncodedRows,
    pub(super) weights: Vec<i64>,
    pub(super) matches: Vec<i64>,
    /// Number of each stored row's key.
    pub(super) keys: Vec<u32>,
    /// The pairs: index of the stored row, row of the chunk.
    pub(super) stored: Vec<u32>,
    pub(super) probing: Vec<u32>,
}

/// What one scan found.
pub(super) struct Found {
    /// Whether the key may have more rows.
    pub(super) more: bool,
}

impl Candidates {
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.suffixes.clear();
        self.weights.clear();
        self.matches.clear();
        self.keys.clear();
        self.stored.clear();
        self.probing.clear();
    }

    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        self.rows.len() < CHUNK_ROWS && self.stored.len() < CHUNK_ROWS
    }

    /// Adds stored rows of a key behind `after`, each paired with all of `partners`; as many as there is room for, at least one. `after`
    /// becomes the place of the last one when there may be more.
    pub(super) fn scan(
        &mut self,
        side: &Side,
        number: u32,
        key: &[u8],
        partners: &[u32],
        keeps_places: bool,
        after: &mut Option<Vec<u8>>,
    ) -> Result<Found> {
        let Some(table) = &side.rows else { return Ok(Found { more: false }) };
        let pair_room = CHUNK_ROWS.saturating_sub(self.stored.len()) / partners.len().max(1);
        let limit = pair_room.min(CHUNK_ROWS.saturating_sub(self.rows.len())).max(1);
        let mut found = 0;
        let mut failed = None;
        let mut last = Vec::new();
        table.scan(key, after.as_deref(), limit, &mut |suffix, value| {
            found += 1;
            if found == limit {
                last.extend_from_slice(suffix);
            }
            match side.read(suffix, value) {
                Ok(stored) => {
                    let index = self.rows.len() as u32;
                    self.rows.push(stored.row);
                    self.weights.push(stored.weight);
                    self.matches.push(stored.matches);
                    self.keys.push(number);
                    if keeps_places {
                        self.suffixes.push(suffix);
                    }
                    self.stored.extend(std::iter::repeat_n(index, partners.len()));
                    self.probing.extend_from_slice(partners);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let more = found == limit;
        *after = more.then_some(last);
        Ok(Found { more })
    }

    /// Columns of stored rows, one array row per entry of `indices`.
    pub(super) fn stored_columns(&self, side: &Side, indices: &[u32], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        let wanted: Vec<usize> = columns.iter().filter_map(|column| side.stored.iter().position(|stored| stored == column)).collect();
        let direct = indices.len() <= 2 * self.rows.len();
        if direct {
            return Ok(side.row_codec.decode(indices.iter().map(|index| self.rows.row(*index as usize)), &wanted)?);
        }
        let decoded = side.row_codec.decode(self.rows.iter(), &wanted)?;
        let indices = UInt32Array::from(indices.to_vec());
        decoded.iter().map(|column| Ok(take(column, &indices, None)?)).collect()
    }

    /// Drops the pairs for which the condition is not true.
    pub(super) fn apply(&mut self, condition: &Condition, port: usize, chunk: &RecordBatch, other: &Side) -> Result<()> {
        if self.stored.is_empty() {
            return Ok(());
        }
        let stored_inputs: Vec<usize> = condition.columns.iter().filter(|(side, _)| *side != port).map(|(_, column)| *column).collect();
        let mut stored = self.stored_columns(other, &self.stored, &stored_inputs)?.into_iter();
        let probing = UInt32Array::from(self.probing.clone());
        let mut columns = Vec::with_capacity(condition.columns.len());
        for (side, column) in &condition.columns {
            match *side == port {
                true => columns.push(take(chunk.column(*column), &probing, None)?),
                false => columns.extend(stored.next()),
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.stored.len()));
        let batch = RecordBatch::try_new_with_options(condition.schema.clone(), columns, &options)?;
        let holds = condition.evaluator.matches(&batch)?;
        if holds.true_count() < self.stored.len() {
            let kept = holds.values().set_indices().map(|pair| (self.stored[pair], self.probing[pair]));
            (self.stored, self.probing) = kept.unzip();
        }
        Ok(())
    }
}
