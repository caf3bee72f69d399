//! `bool_and(x)` and `bool_or(x)`: how many values were true and how many false. NULL when there was neither.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};

use super::{
    Accumulator, Rows,
    bytes::{get_i64, put_integer},
    resize_states,
};
use crate::error::Result;

/// Counts of false and true values per slot.
pub(crate) struct Boolean {
    and: bool,
    counts: Vec<[i64; 2]>,
}

impl Boolean {
    /// `bool_and` or `bool_or`.
    pub(crate) fn new(and: bool) -> Self {
        Self { and, counts: Vec::new() }
    }
}

impl Accumulator for Boolean {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.counts, slots, [0; 2]);
    }

    fn clear(&mut self, slot: u32) {
        self.counts[slot as usize] = [0; 2];
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.counts[to as usize] = self.counts[from as usize];
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let values = arguments[0].as_boolean();
        rows.for_each(values.nulls(), |row, slot, sign| self.counts[slot][usize::from(values.value(row))] += sign);
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let result = |slot: &u32| match self.counts[*slot as usize] {
            [0, 0] => None,
            [falses, trues] => Some(if self.and { falses == 0 } else { trues != 0 }),
        };
        Ok(Arc::new(slots.iter().map(result).collect::<BooleanArray>()))
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        self.counts[slot as usize].iter().for_each(|count| put_integer(out, (*count).into()));
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        self.counts[slot as usize] = [get_i64(input)?, get_i64(input)?];
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<[i64; 2]>()
    }
}
