//! `sum(x)` and `avg(x)` of floats: an exact sum and the number of values. The result is rounded once; one that is beyond the type although
//! no value was infinite is SQLSTATE 22003, as in Postgres.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float32Array, Float64Array},
    datatypes::{DataType, Float32Type, Float64Type},
};

use super::{
    Accumulator, Rows,
    bytes::{get_i64, put_integer},
    exact_sum::ExactSum,
    resize_states,
};
use crate::error::{EngineError, Result};

#[derive(Clone, Default)]
struct State {
    sum: ExactSum,
    count: i64,
}

/// Exact sums per slot.
pub(crate) struct FloatSum {
    average: bool,
    output: DataType,
    states: Vec<State>,
    heap_bytes: usize,
}

impl FloatSum {
    /// A sum or an average announced as `output`.
    pub(crate) fn new(average: bool, output: DataType) -> Self {
        Self { average, output, states: Vec::new(), heap_bytes: 0 }
    }

    fn result(&self, slot: u32) -> Result<Option<f64>> {
        let State { sum, count } = &self.states[slot as usize];
        if *count == 0 {
            return Ok(None);
        }
        let total = sum.to_double();
        if total.is_infinite() && !sum.is_special() {
            return Err(overflow());
        }
        Ok(Some(if self.average { total / *count as f64 } else { total }))
    }
}

fn overflow() -> EngineError {
    EngineError::user("22003", "value out of range: overflow")
}

impl Accumulator for FloatSum {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.states, slots, State::default());
    }

    fn clear(&mut self, slot: u32) {
        let state = &mut self.states[slot as usize];
        self.heap_bytes -= state.sum.heap_bytes();
        *state = State::default();
    }

    fn copy(&mut self, from: u32, to: u32) {
        let copy = self.states[from as usize].clone();
        self.heap_bytes += copy.sum.heap_bytes();
        self.heap_bytes -= self.states[to as usize].sum.heap_bytes();
        self.states[to as usize] = copy;
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let argument = &arguments[0];
        let (states, heap_bytes) = (&mut self.states, &mut self.heap_bytes);
        let mut add = |slot: usize, value: f64, sign: i64| {
            let state = &mut states[slot];
            let before = state.sum.heap_bytes();
            state.sum.add(value, sign);
            state.count += sign;
            *heap_bytes += state.sum.heap_bytes() - before;
        };
        match argument.data_type() {
            DataType::Float32 => {
                let values = argument.as_primitive::<Float32Type>();
                rows.for_each(values.nulls(), |row, slot, sign| add(slot, values.value(row).into(), sign));
            }
            DataType::Float64 => {
                let values = argument.as_primitive::<Float64Type>();
                rows.for_each(values.nulls(), |row, slot, sign| add(slot, values.value(row), sign));
            }
            other => return Err(EngineError::Internal(format!("{other} is not a float"))),
        }
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let results = slots.iter().map(|slot| self.result(*slot));
        if self.output != DataType::Float32 {
            return Ok(Arc::new(results.collect::<Result<Float64Array>>()?));
        }
        let narrow = |value: f64| {
            let narrow = value as f32;
            if narrow.is_infinite() && value.is_finite() { Err(overflow()) } else { Ok(narrow) }
        };
        let values = results.map(|result| result?.map(narrow).transpose());
        Ok(Arc::new(values.collect::<Result<Float32Array>>()?))
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let state = &self.states[slot as usize];
        state.sum.encode(out);
        put_integer(out, state.count.into());
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        let state = State { sum: ExactSum::decode(input)?, count: get_i64(input)? };
        self.heap_bytes += state.sum.heap_bytes();
        self.heap_bytes -= self.states[slot as usize].sum.heap_bytes();
        self.states[slot as usize] = state;
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>() + self.heap_bytes
    }
}
