//! `var_pop`, `var_samp`, `stddev_pop`, `stddev_samp`: the number of values, their sum and the sum of their squares, all exact.
//!
//! With exact sums the textbook formula `(n * sum(x*x) - sum(x)^2) / (n * (n - 1))` loses nothing, and taking values away is exact too.
//! Integers and decimals are summed in 256 bits (a sum of squares beyond that is SQLSTATE 22003); floats in exact float sums, the square of
//! a double being split into two doubles without error. The last steps are done in pairs of doubles.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array},
    compute::cast,
    datatypes::{DataType, Decimal256Type, Float64Type, i256},
};

use super::{
    Accumulator, Rows,
    bytes::{corrupt, get_array, get_i64, put_integer},
    exact_sum::ExactSum,
    numeric::{numeric_overflow, scale_of, to_double, to_output},
    resize_states,
};
use crate::{
    error::Result,
    quotient::{double_variance, exact_product, variance},
};

/// Which of the four functions, and its announced type.
#[derive(Clone, Debug)]
pub(crate) struct VarianceKind {
    pub(crate) sample: bool,
    pub(crate) root: bool,
    pub(crate) output: DataType,
}

impl VarianceKind {
    /// What the sum of squared differences is divided by, or `None` where there is no result.
    fn divisor(&self, count: i64) -> Option<i64> {
        match self.sample {
            true => (count > 1).then_some(count - 1),
            false => (count > 0).then_some(count),
        }
    }
}

/// Sums over exact values.
#[derive(Clone, Copy, Default)]
struct ExactState {
    count: i64,
    sum: i256,
    squares: i256,
}

/// The variance family over integers and decimals.
pub(crate) struct ExactVariance {
    kind: VarianceKind,
    scale: i32,
    states: Vec<ExactState>,
}

impl ExactVariance {
    /// For values of an exact type.
    pub(crate) fn new(kind: VarianceKind, input: &DataType) -> Self {
        Self { kind, scale: scale_of(input), states: Vec::new() }
    }

    fn numeric(&self, slot: u32, scale: i32) -> Result<Option<i256>> {
        let state = self.states[slot as usize];
        let Some(divisor) = self.kind.divisor(state.count) else { return Ok(None) };
        let result = variance(state.count, state.sum, state.squares, self.scale, divisor, self.kind.root, scale);
        result.map(Some).ok_or_else(numeric_overflow)
    }

    /// `n * sum(x*x) - sum(x)^2` with twice the input's scale, and `n * divisor`.
    fn parts(&self, slot: u32) -> Result<Option<(i256, i128)>> {
        let state = self.states[slot as usize];
        let Some(divisor) = self.kind.divisor(state.count) else { return Ok(None) };
        let count = i256::from_i128(state.count.into());
        let difference = || state.squares.checked_mul(count)?.checked_sub(state.sum.checked_mul(state.sum)?);
        let difference = difference().ok_or_else(numeric_overflow)?;
        Ok(Some((difference, i128::from(state.count) * i128::from(divisor))))
    }

    fn double(&self, slot: u32) -> Result<Option<f64>> {
        let parts = self.parts(slot)?;
        let variance = parts.map(|(difference, divisor)| to_double(difference, 2 * self.scale) / divisor as f64);
        Ok(if self.kind.root { variance.map(f64::sqrt) } else { variance })
    }
}

/// The integer nearest to the square root of a number that is not negative.
pub(crate) fn square_root(value: i256) -> i256 {
    if value <= i256::ZERO {
        return i256::ZERO;
    }
    let two = i256::from_i128(2);
    let bits = 256 - value.leading_zeros();
    let mut root = i256::ONE << bits.div_ceil(2) as u8;
    loop {
        let next = root.wrapping_add(value.wrapping_div(root)).wrapping_div(two);
        if next >= root {
            break;
        }
        root = next;
    }
    // `root` is the floor; the next integer is nearer when the rest exceeds the root.
    if value.wrapping_sub(root.wrapping_mul(root)) > root { root.wrapping_add(i256::ONE) } else { root }
}

impl Accumulator for ExactVariance {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.states, slots, ExactState::default());
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = ExactState::default();
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.states[to as usize] = self.states[from as usize];
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let wide = cast(&arguments[0], &DataType::Decimal256(76, self.scale as i8))?;
        let values = wide.as_primitive::<Decimal256Type>();
        let mut overflow = false;
        rows.for_each(values.nulls(), |row, slot, sign| {
            let (state, value) = (&mut self.states[slot], values.value(row));
            let squares = value.checked_mul(value).and_then(|square| match sign > 0 {
                true => state.squares.checked_add(square),
                false => state.squares.checked_sub(square),
            });
            overflow |= squares.is_none();
            state.squares = squares.unwrap_or(state.squares);
            state.sum = if sign > 0 { state.sum.wrapping_add(value) } else { state.sum.wrapping_sub(value) };
            state.count += sign;
        });
        if overflow { Err(numeric_overflow()) } else { Ok(()) }
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        if self.kind.output == DataType::Float64 {
            let values = slots.iter().map(|slot| self.double(*slot));
            return Ok(Arc::new(values.collect::<Result<Float64Array>>()?));
        }
        let scale = scale_of(&self.kind.output);
        let values = slots.iter().map(|slot| self.numeric(*slot, scale)).collect::<Result<Vec<_>>>()?;
        to_output(values, scale, &self.kind.output)
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let state = self.states[slot as usize];
        put_integer(out, state.count.into());
        out.extend_from_slice(&state.sum.to_le_bytes());
        out.extend_from_slice(&state.squares.to_le_bytes());
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        let count = get_i64(input)?;
        let mut wide = || -> Result<i256> { Ok(i256::from_le_bytes(get_array(input, 32)?.try_into().map_err(|_| corrupt())?)) };
        self.states[slot as usize] = ExactState { count, sum: wide()?, squares: wide()? };
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<ExactState>()
    }
}

#[derive(Clone, Default)]
struct FloatState {
    count: i64,
    sum: ExactSum,
    squares: ExactSum,
}

/// The variance family over floats.
pub(crate) struct FloatVariance {
    kind: VarianceKind,
    states: Vec<FloatState>,
}

impl FloatVariance {
    /// For values of a float type.
    pub(crate) fn new(kind: VarianceKind) -> Self {
        Self { kind, states: Vec::new() }
    }

    fn result(&self, slot: u32) -> Option<f64> {
        let state = &self.states[slot as usize];
        let divisor = self.kind.divisor(state.count)?;
        let (sum, squares) = (state.sum.to_pair(), state.squares.to_pair());
        Some(double_variance(state.count, sum, squares, divisor, self.kind.root))
    }
}

impl Accumulator for FloatVariance {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.states, slots, FloatState::default());
    }

    fn clear(&mut self, slot: u32) {
        self.states[slot as usize] = FloatState::default();
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.states[to as usize] = self.states[from as usize].clone();
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let doubles = cast(&arguments[0], &DataType::Float64)?;
        let values = doubles.as_primitive::<Float64Type>();
        rows.for_each(values.nulls(), |row, slot, sign| {
            let (state, value) = (&mut self.states[slot], values.value(row));
            let (high, low) = exact_product(value, value);
            state.count += sign;
            state.sum.add(value, sign);
            state.squares.add(high, sign);
            if high.is_finite() {
                state.squares.add(low, sign);
            }
        });
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let values: ArrayRef = Arc::new(slots.iter().map(|slot| self.result(*slot)).collect::<Float64Array>());
        if self.kind.output == DataType::Float64 { Ok(values) } else { Ok(cast(&values, &self.kind.output)?) }
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let state = &self.states[slot as usize];
        put_integer(out, state.count.into());
        state.sum.encode(out);
        state.squares.encode(out);
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        let count = get_i64(input)?;
        self.states[slot as usize] = FloatState { count, sum: ExactSum::decode(input)?, squares: ExactSum::decode(input)? };
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<FloatState>()
    }
}
