//! `bit_xor(x)` over integers: the bits, and how many values went in. Taking a value away is the same as adding it.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array},
    compute::cast,
    datatypes::{DataType, Int64Type},
};

use super::{
    Accumulator, Rows,
    bytes::{get_i64, put_integer},
    resize_states,
};
use crate::error::Result;

/// Exclusive or and count per slot.
pub(crate) struct BitXor {
    output: DataType,
    states: Vec<(i64, i64)>,
}

impl BitXor {
    /// For an integer output type.
    pub(crate) fn new(output: DataType) -> Self {
        Self { output, states: Vec::new() }
    }
}

impl Accumulator for BitXor {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.states, slots, (0, 0));
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = (0, 0);
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.states[to as usize] = self.states[from as usize];
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let values = cast(&arguments[0], &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>();
        rows.for_each(values.nulls(), |row, slot, sign| {
            let (bits, count) = &mut self.states[slot];
            *bits ^= values.value(row);
            *count += sign;
        });
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let states = slots.iter().map(|slot| self.states[*slot as usize]);
        let values: ArrayRef = Arc::new(states.map(|(bits, count)| (count != 0).then_some(bits)).collect::<Int64Array>());
        Ok(cast(&values, &self.output)?)
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let (bits, count) = self.states[slot as usize];
        put_integer(out, bits.into());
        put_integer(out, count.into());
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        self.states[slot as usize] = (get_i64(input)?, get_i64(input)?);
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<(i64, i64)>()
    }
}
