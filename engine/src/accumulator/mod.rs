//! Accumulators: the part of an aggregate that is kept per group, in columns indexed by *slot* (the dense number of a group in memory).
//!
//! Every accumulator takes signed rows and is exact: adding a row and taking it away again leaves what was there before, whatever came in
//! between, so results do not depend on order. Integer and decimal sums are kept wide enough not to overflow; float sums are kept with all
//! their bits. What cannot be undone from a summary (the largest value, an ordered list) is kept as a multiset in a state table by
//! `operator/aggregate`; the accumulator then holds only its head.

mod bits;
mod boolean;
mod build;
pub(crate) mod bytes;
mod count;
mod exact_sum;
mod extreme;
mod extreme_bytes;
mod float;
mod interval;
mod numeric;
mod ordered;
mod sum;
mod variance;

use arrow::{
    array::ArrayRef,
    buffer::{BooleanBuffer, NullBuffer},
};

pub(crate) use build::{CallState, call_state};
pub(crate) use extreme_bytes::ExtremeBytes;
pub(crate) use numeric::quotient as exact_quotient;
pub(crate) use ordered::{Entries, OrderedValues};
pub(crate) use variance::square_root;

use crate::error::Result;

/// Columns of per-group state of one aggregate call.
pub(crate) trait Accumulator: Send {
    /// Makes room for exactly the slots below `slots`; new ones are empty.
    fn resize(&mut self, slots: usize);

    /// Empties a slot.
    fn clear(&mut self, slot: u32);

    /// Makes slot `to` equal to slot `from`.
    fn copy(&mut self, from: u32, to: u32);

    /// Adds and takes away the argument values of the selected rows.
    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()>;

    /// The results of the slots, in the announced output type. A result outside of its type is SQLSTATE 22003.
    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef>;

    /// Appends the slot's state, self-delimiting.
    fn encode(&self, slot: u32, out: &mut Vec<u8>);

    /// Reads what `encode` wrote.
    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()>;

    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// Rows of a chunk as an accumulator sees them.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// The slot of each row.
    pub slots: &'a [u32],
    /// +1 or -1 per row; `None` when all are +1.
    pub signs: Option<&'a [i8]>,
    /// The rows that count; `None` for all.
    pub selected: Option<&'a BooleanBuffer>,
}

impl Rows<'_> {
    /// Calls `f(row, slot, sign)` for every selected row that is not NULL by `nulls`.
    #[inline]
    pub(crate) fn for_each(&self, nulls: Option<&NullBuffer>, mut f: impl FnMut(usize, usize, i64)) {
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0).map(NullBuffer::inner);
        let valid = match (self.selected, nulls) {
            (None, None) => None,
            (Some(bits), None) | (None, Some(bits)) => Some(bits.clone()),
            (Some(selected), Some(nulls)) => Some(selected & nulls),
        };
        match (valid, self.signs) {
            (None, None) => self.slots.iter().enumerate().for_each(|(row, slot)| f(row, *slot as usize, 1)),
            (None, Some(signs)) => {
                let rows = self.slots.iter().zip(signs).enumerate();
                rows.for_each(|(row, (slot, sign))| f(row, *slot as usize, i64::from(*sign)));
            }
            (Some(valid), None) => valid.set_indices().for_each(|row| f(row, self.slots[row] as usize, 1)),
            (Some(valid), Some(signs)) => {
                valid.set_indices().for_each(|row| f(row, self.slots[row] as usize, i64::from(signs[row])));
            }
        }
    }
}

/// Gives a column exactly `slots` entries, and memory back when it has become much shorter.
fn resize_states<T: Clone>(states: &mut Vec<T>, slots: usize, empty: T) {
    states.resize(slots, empty);
    if states.capacity() / 4 > slots {
        states.shrink_to(slots * 2);
    }
}

#[cfg(test)]
mod tests;
