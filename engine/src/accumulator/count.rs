//! `count(*)` and `count(x)`: rows, or rows where no argument is NULL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};

use super::{
    Accumulator, Rows,
    bytes::{get_i64, put_integer},
    resize_states,
};
use crate::error::Result;

/// Signed count per slot.
#[derive(Default)]
pub(crate) struct Count {
    counts: Vec<i64>,
}

impl Accumulator for Count {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.counts, slots, 0);
    }

    fn clear(&mut self, slot: u32) {
        self.counts[slot as usize] = 0;
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.counts[to as usize] = self.counts[from as usize];
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let nulls = arguments.first().and_then(|argument| argument.logical_nulls());
        rows.for_each(nulls.as_ref(), |_, slot, sign| self.counts[slot] += sign);
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        Ok(Arc::new(slots.iter().map(|slot| self.counts[*slot as usize]).collect::<Int64Array>()))
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        put_integer(out, self.counts[slot as usize].into());
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        self.counts[slot as usize] = get_i64(input)?;
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<i64>()
    }
}
