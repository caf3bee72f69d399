//! `sum(x)` and `avg(x)` of integers and decimals: an exact total with the carry out of its word, and the number of values.
//!
//! The total is 128 bits wide, or 256 where argument or result are, and a carry word makes it exact beyond that: an overflow exists only in
//! the result, not on the way there.

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray},
    datatypes::{DataType, Decimal128Type, Decimal256Type, Int16Type, Int32Type, Int64Type, i256},
};

use super::{
    Accumulator, Rows,
    bytes::{corrupt, get_array, get_i64, get_integer, put_integer},
    numeric::{numeric_overflow, quotient, scale_of, to_output},
    resize_states,
};
use crate::{
    error::{EngineError, Result},
    quotient::average,
};

/// An integer wide enough for the totals of a call.
pub(crate) trait Total: Copy + Default + Send + PartialEq + 'static {
    /// Adds `value` times `sign`; the carry out of the word, in {-1, 0, 1}.
    fn add(&mut self, value: Self, sign: i64) -> i64;
    fn widen(self) -> i256;
    fn encode(self, out: &mut Vec<u8>);
    fn decode(input: &mut &[u8]) -> Result<Self>;
}

impl Total for i128 {
    #[inline]
    fn add(&mut self, value: Self, sign: i64) -> i64 {
        let (result, overflow) = if sign >= 0 { self.overflowing_add(value) } else { self.overflowing_sub(value) };
        *self = result;
        if overflow { if result < 0 { 1 } else { -1 } } else { 0 }
    }

    fn widen(self) -> i256 {
        i256::from_i128(self)
    }

    fn encode(self, out: &mut Vec<u8>) {
        put_integer(out, self);
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        get_integer(input)
    }
}

impl Total for i256 {
    fn add(&mut self, value: Self, sign: i64) -> i64 {
        let (checked, wrapped) = match sign >= 0 {
            true => (self.checked_add(value), self.wrapping_add(value)),
            false => (self.checked_sub(value), self.wrapping_sub(value)),
        };
        *self = wrapped;
        if checked.is_some() {
            0
        } else if wrapped < i256::ZERO {
            1
        } else {
            -1
        }
    }

    fn widen(self) -> i256 {
        self
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn decode(input: &mut &[u8]) -> Result<Self> {
        Ok(i256::from_le_bytes(get_array(input, 32)?.try_into().map_err(|_| corrupt())?))
    }
}

#[derive(Clone, Copy, Default)]
struct State<T> {
    total: T,
    carry: i64,
    count: i64,
}

/// Totals per slot.
pub(crate) struct Sum<T> {
    average: bool,
    input: DataType,
    output: DataType,
    states: Vec<State<T>>,
}

impl<T> Sum<T> {
    /// A sum, or an average, of `input` values announced as `output`.
    pub(crate) fn new(average: bool, input: DataType, output: DataType) -> Self {
        Self { average, input, output, states: Vec::new() }
    }
}

impl<T: Total> Sum<T> {
    #[inline]
    fn add_all<A: ArrowPrimitiveType>(&mut self, rows: &Rows<'_>, argument: &ArrayRef, widen: impl Fn(A::Native) -> T) {
        let array = argument.as_primitive::<A>();
        let values = array.values();
        let states = &mut self.states;
        rows.for_each(array.nulls(), |row, slot, sign| {
            let state = &mut states[slot];
            state.carry += state.total.add(widen(values[row]), sign);
            state.count += sign;
        });
    }

    fn result(&self, slot: u32) -> Result<Option<i256>> {
        let state = &self.states[slot as usize];
        if state.count == 0 {
            return Ok(None);
        }
        if state.carry != 0 {
            return Err(numeric_overflow());
        }
        let (scale, result_scale) = (scale_of(&self.input), scale_of(&self.output));
        let total = state.total.widen();
        let shift = if self.output == DataType::Float64 { 0 } else { result_scale - scale };
        let result = match (self.average, shift) {
            (true, _) => average(total, scale, state.count, result_scale),
            (false, 0) => Some(total),
            (false, shift) => quotient(total, 1, shift),
        };
        result.map(Some).ok_or_else(numeric_overflow)
    }

    /// An average announced as a double, divided as doubles so that no digit is cut.
    fn double_averages(&self, slots: &[u32]) -> ArrayRef {
        let scale = scale_of(&self.input);
        let average = |slot: &u32| {
            let state = &self.states[*slot as usize];
            (state.count != 0).then(|| super::numeric::to_double(state.total.widen(), scale) / state.count as f64)
        };
        std::sync::Arc::new(slots.iter().map(average).collect::<arrow::array::Float64Array>())
    }
}

/// How an argument value becomes a total.
pub(crate) trait FromArgument: Total {
    fn from_wide(value: i256) -> Self;
    fn from_narrow(value: i128) -> Self;
}

impl FromArgument for i128 {
    fn from_wide(value: i256) -> Self {
        value.as_i128()
    }

    #[inline]
    fn from_narrow(value: i128) -> Self {
        value
    }
}

impl FromArgument for i256 {
    fn from_wide(value: i256) -> Self {
        value
    }

    #[inline]
    fn from_narrow(value: i128) -> Self {
        i256::from_i128(value)
    }
}

impl<T: FromArgument> Accumulator for Sum<T> {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.states, slots, State::default());
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = State::default();
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.states[to as usize] = self.states[from as usize];
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let argument = &arguments[0];
        match argument.data_type() {
            DataType::Int16 => self.add_all::<Int16Type>(rows, argument, |value| T::from_narrow(value.into())),
            DataType::Int32 => self.add_all::<Int32Type>(rows, argument, |value| T::from_narrow(value.into())),
            DataType::Int64 => self.add_all::<Int64Type>(rows, argument, |value| T::from_narrow(value.into())),
            DataType::Decimal128(_, _) => self.add_all::<Decimal128Type>(rows, argument, T::from_narrow),
            DataType::Decimal256(_, _) => self.add_all::<Decimal256Type>(rows, argument, T::from_wide),
            other => return Err(EngineError::Internal(format!("a sum of {other} is not exact"))),
        }
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        if self.average && self.output == DataType::Float64 {
            return Ok(self.double_averages(slots));
        }
        let values = slots.iter().map(|slot| self.result(*slot)).collect::<Result<Vec<_>>>()?;
        to_output(values, scale_of(&self.input), &self.output)
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let state = &self.states[slot as usize];
        state.total.encode(out);
        put_integer(out, state.carry.into());
        put_integer(out, state.count.into());
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        let state = &mut self.states[slot as usize];
        *state = State { total: T::decode(input)?, carry: get_i64(input)?, count: get_i64(input)? };
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<State<T>>()
    }
}
