//! `sum(x)` and `avg(x)` of intervals: months, days and nanoseconds are summed apart, as Postgres does, each without overflow.
//!
//! The average carries what does not divide evenly down: a month is 30 days, a day 24 hours. Postgres keeps microseconds, so the nanoseconds of
//! an average are rounded to whole microseconds.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, IntervalMonthDayNanoArray},
    datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType},
};

use super::{
    Accumulator, Rows,
    bytes::{get_i64, get_integer, put_integer},
    numeric::out_of_range,
    resize_states,
};
use crate::error::Result;

const DAYS_PER_MONTH: i128 = 30;
const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const NANOS_PER_MICRO: i128 = 1_000;

#[derive(Clone, Copy, Default)]
struct State {
    months: i64,
    days: i64,
    nanos: i128,
    count: i64,
}

/// Interval sums per slot.
pub(crate) struct IntervalSum {
    average: bool,
    states: Vec<State>,
}

impl IntervalSum {
    /// A sum or an average.
    pub(crate) fn new(average: bool) -> Self {
        Self { average, states: Vec::new() }
    }

    fn result(&self, slot: u32) -> Result<Option<IntervalMonthDayNano>> {
        let state = self.states[slot as usize];
        if state.count == 0 {
            return Ok(None);
        }
        let (mut months, mut days, mut nanos) = (i128::from(state.months), i128::from(state.days), state.nanos);
        if self.average {
            let count = i128::from(state.count);
            let rest_days = months % count * DAYS_PER_MONTH;
            months /= count;
            let parts_of_days = rest_days % count + days % count;
            days = days / count + rest_days / count + parts_of_days / count;
            let rest_nanos = parts_of_days % count * NANOS_PER_DAY + nanos;
            let micros = rest_nanos as f64 / count as f64 / NANOS_PER_MICRO as f64;
            nanos = micros.round_ties_even() as i128 * NANOS_PER_MICRO;
        }
        let interval = || {
            Some(IntervalMonthDayNano { months: months.try_into().ok()?, days: days.try_into().ok()?, nanoseconds: nanos.try_into().ok()? })
        };
        interval().map(Some).ok_or_else(|| out_of_range("interval"))
    }
}

impl Accumulator for IntervalSum {
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
        let values = arguments[0].as_primitive::<IntervalMonthDayNanoType>();
        rows.for_each(values.nulls(), |row, slot, sign| {
            let (state, value) = (&mut self.states[slot], values.value(row));
            state.months += i64::from(value.months) * sign;
            state.days += i64::from(value.days) * sign;
            state.nanos += i128::from(value.nanoseconds) * i128::from(sign);
            state.count += sign;
        });
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let results = slots.iter().map(|slot| self.result(*slot)).collect::<Result<IntervalMonthDayNanoArray>>()?;
        Ok(Arc::new(results))
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let state = self.states[slot as usize];
        put_integer(out, state.months.into());
        put_integer(out, state.days.into());
        put_integer(out, state.nanos);
        put_integer(out, state.count.into());
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        let (months, days) = (get_i64(input)?, get_i64(input)?);
        self.states[slot as usize] = State { months, days, nanos: get_integer(input)?, count: get_i64(input)? };
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
    }
}
