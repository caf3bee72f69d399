//! `sum` and `avg`: exact, whatever the order of the rows.

use std::{fmt::Debug, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, new_empty_array},
    datatypes::{
        DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, i256,
    },
};
use datafusion::{
    common::{Result as DataFusionResult, ScalarValue},
    logical_expr::{Accumulator, AggregateUDF, EmitTo, GroupsAccumulator},
};

use millpond_engine::quotient::average;

use super::function::{MakeAccumulator, MakeGroups, Recipe};
use crate::{
    error::{PlanError, Result, sqlstate},
    functions::{
        decimal::{Decimal, overflow},
        exact_sum::ExactSum,
    },
};

/// `sum` of an argument type with a result type.
pub(super) fn sum(argument: &DataType, result: &DataType) -> Arc<AggregateUDF> {
    recipe("sum", argument, result)
}

/// `avg` of an argument type with a result type.
pub(super) fn mean(argument: &DataType, result: &DataType) -> Arc<AggregateUDF> {
    recipe("avg", argument, result)
}

fn recipe(name: &'static str, argument: &DataType, result: &DataType) -> Arc<AggregateUDF> {
    let (accumulator, groups): (MakeAccumulator, MakeGroups) = match argument {
        DataType::Int64 | DataType::Decimal128(..) => (one::<Short>, many::<Short>),
        DataType::Decimal256(..) => (one::<Long>, many::<Long>),
        DataType::Interval(_) => (one::<Span>, many::<Span>),
        _ => (one::<Float>, many::<Float>),
    };
    Recipe {
        name,
        arguments: vec![argument.clone()],
        result: result.clone(),
        state: vec![DataType::Binary],
        never_null: false,
        accumulator,
        groups: Some(groups),
    }
    .into_function()
}

fn one<T: Total>(recipe: &Recipe) -> Box<dyn Accumulator> {
    Box::new(One::<T> { total: T::default(), shape: Shape::of(recipe) })
}

fn many<T: Total>(recipe: &Recipe) -> Box<dyn GroupsAccumulator> {
    Box::new(Many::<T> { totals: Vec::new(), shape: Shape::of(recipe) })
}

/// What the result has to look like.
#[derive(Clone, Debug)]
struct Shape {
    average: bool,
    argument: DataType,
    result: DataType,
}

impl Shape {
    fn of(recipe: &Recipe) -> Self {
        Self { average: recipe.name == "avg", argument: recipe.arguments[0].clone(), result: recipe.result.clone() }
    }

    fn scale(&self) -> i32 {
        match self.argument {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => i32::from(scale),
            _ => 0,
        }
    }

    /// A sum of integers or decimals as a value of the result type.
    fn decimal(&self, sum: i256, count: i64) -> Result<ScalarValue> {
        let value = match (self.average, &self.result) {
            (true, DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
                let scale = i32::from(*scale);
                Decimal::new(average(sum, self.scale(), count, scale).ok_or_else(overflow)?, scale)
            }
            _ => Decimal::new(sum, self.scale()),
        };
        match self.result {
            DataType::Int64 => {
                let small = value.unscaled.to_i128().and_then(|value| i64::try_from(value).ok());
                let small = small.ok_or_else(|| PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))?;
                Ok(ScalarValue::Int64(Some(small)))
            }
            DataType::Decimal128(precision, scale) => {
                let value = value.rescale(i32::from(scale))?;
                if !crate::functions::decimal::check_digits(value.unscaled, precision) {
                    return Err(overflow());
                }
                Ok(ScalarValue::Decimal128(value.unscaled.to_i128(), precision, scale))
            }
            DataType::Decimal256(precision, scale) => {
                let value = value.rescale(i32::from(scale))?;
                if !crate::functions::decimal::check_digits(value.unscaled, precision) {
                    return Err(overflow());
                }
                Ok(ScalarValue::Decimal256(Some(value.unscaled), precision, scale))
            }
            ref other => Err(PlanError::internal(format!("a sum was to give {other}"))),
        }
    }
}

/// A running total.
trait Total: Default + Clone + Debug + Send + Sync + 'static {
    /// Adds (`sign` 1) or takes away (-1) the value of a row, which is not NULL.
    fn add(&mut self, values: &ArrayRef, row: usize, sign: i64) -> Result<()>;
    /// How many values are in it.
    fn count(&self) -> i64;
    /// The result, if there are values.
    fn result(&self, shape: &Shape) -> Result<ScalarValue>;
    /// As bytes.
    fn write(&self) -> Vec<u8>;
    /// Adds what [`Total::write`] wrote.
    fn merge(&mut self, bytes: &[u8]) -> Result<()>;
    /// Bytes it takes beside its own.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Integers and decimals of 128 bits; the sum moves to 256 bits when it has to.
#[derive(Clone, Debug, Default)]
struct Short {
    sum: i128,
    carry: i256,
    count: i64,
}

impl Short {
    fn add_value(&mut self, value: i128) {
        match self.sum.checked_add(value) {
            Some(sum) => self.sum = sum,
            None => {
                self.carry = self.carry.wrapping_add(i256::from_i128(self.sum));
                self.sum = value;
            }
        }
    }

    fn total(&self) -> i256 {
        self.carry.wrapping_add(i256::from_i128(self.sum))
    }
}

impl Total for Short {
    fn add(&mut self, values: &ArrayRef, row: usize, sign: i64) -> Result<()> {
        let value = match values.data_type() {
            DataType::Int64 => i128::from(values.as_primitive::<Int64Type>().value(row)),
            _ => values.as_primitive::<Decimal128Type>().value(row),
        };
        self.add_value(if sign < 0 { -value } else { value });
        self.count += sign;
        Ok(())
    }

    fn count(&self) -> i64 {
        self.count
    }

    fn result(&self, shape: &Shape) -> Result<ScalarValue> {
        shape.decimal(self.total(), self.count)
    }

    fn write(&self) -> Vec<u8> {
        [&self.total().to_le_bytes()[..], &self.count.to_le_bytes()].concat()
    }

    fn merge(&mut self, bytes: &[u8]) -> Result<()> {
        let (sum, count) = read_sum(bytes)?;
        self.carry = self.carry.checked_add(sum).ok_or_else(overflow)?;
        self.count += count;
        Ok(())
    }
}

fn read_sum(bytes: &[u8]) -> Result<(i256, i64)> {
    let damaged = || PlanError::internal("the state of a sum cannot be read");
    let (sum, count) = bytes.split_at_checked(32).ok_or_else(damaged)?;
    let sum = i256::from_le_bytes(sum.try_into().map_err(|_| damaged())?);
    Ok((sum, i64::from_le_bytes(count.try_into().map_err(|_| damaged())?)))
}

/// Decimals of 256 bits.
#[derive(Clone, Debug, Default)]
struct Long {
    sum: i256,
    count: i64,
}

impl Total for Long {
    fn add(&mut self, values: &ArrayRef, row: usize, sign: i64) -> Result<()> {
        let value = values.as_primitive::<Decimal256Type>().value(row);
        let value = if sign < 0 { value.wrapping_neg() } else { value };
        self.sum = self.sum.checked_add(value).ok_or_else(overflow)?;
        self.count += sign;
        Ok(())
    }

    fn count(&self) -> i64 {
        self.count
    }

    fn result(&self, shape: &Shape) -> Result<ScalarValue> {
        shape.decimal(self.sum, self.count)
    }

    fn write(&self) -> Vec<u8> {
        [&self.sum.to_le_bytes()[..], &self.count.to_le_bytes()].concat()
    }

    fn merge(&mut self, bytes: &[u8]) -> Result<()> {
        let (sum, count) = read_sum(bytes)?;
        self.sum = self.sum.checked_add(sum).ok_or_else(overflow)?;
        self.count += count;
        Ok(())
    }
}

/// Floats, summed without any rounding until the end.
#[derive(Clone, Debug, Default)]
struct Float {
    sum: ExactSum,
    count: i64,
}

impl Total for Float {
    fn add(&mut self, values: &ArrayRef, row: usize, sign: i64) -> Result<()> {
        let value = match values.data_type() {
            DataType::Float32 => f64::from(values.as_primitive::<Float32Type>().value(row)),
            _ => values.as_primitive::<Float64Type>().value(row),
        };
        self.sum.add(value, sign);
        self.count += sign;
        Ok(())
    }

    fn count(&self) -> i64 {
        self.count
    }

    fn result(&self, shape: &Shape) -> Result<ScalarValue> {
        let sum = self.sum.value();
        let value = if shape.average { sum / self.count as f64 } else { sum };
        if sum.is_infinite() && !self.sum.has_infinity() {
            return Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
        }
        Ok(match shape.result {
            DataType::Float32 => ScalarValue::Float32(Some(value as f32)),
            _ => ScalarValue::Float64(Some(value)),
        })
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = self.count.to_le_bytes().to_vec();
        self.sum.write(&mut bytes);
        bytes
    }

    fn merge(&mut self, bytes: &[u8]) -> Result<()> {
        let damaged = || PlanError::internal("the state of a sum cannot be read");
        let (count, rest) = bytes.split_at_checked(8).ok_or_else(damaged)?;
        self.count += i64::from_le_bytes(count.try_into().map_err(|_| damaged())?);
        self.sum.merge(rest).ok_or_else(damaged)
    }

    fn heap_bytes(&self) -> usize {
        self.sum.heap_bytes()
    }
}

/// Intervals, part by part.
#[derive(Clone, Debug, Default)]
struct Span {
    months: i64,
    days: i64,
    nanos: i128,
    count: i64,
}

impl Total for Span {
    fn add(&mut self, values: &ArrayRef, row: usize, sign: i64) -> Result<()> {
        let value = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
        self.months += sign * i64::from(value.months);
        self.days += sign * i64::from(value.days);
        self.nanos += i128::from(sign) * i128::from(value.nanoseconds);
        self.count += sign;
        Ok(())
    }

    fn count(&self) -> i64 {
        self.count
    }

    fn result(&self, shape: &Shape) -> Result<ScalarValue> {
        let range = || PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "interval out of range");
        let nanos = i64::try_from(self.nanos).map_err(|_| range())?;
        let (months, days) = (i32::try_from(self.months).map_err(|_| range())?, i32::try_from(self.days).map_err(|_| range())?);
        let sum = IntervalMonthDayNano::new(months, days, nanos);
        let value = if shape.average { crate::functions::interval::multiply(sum, self.count as f64, true)? } else { sum };
        Ok(ScalarValue::IntervalMonthDayNano(Some(value)))
    }

    fn write(&self) -> Vec<u8> {
        [&self.months.to_le_bytes()[..], &self.days.to_le_bytes(), &self.nanos.to_le_bytes(), &self.count.to_le_bytes()].concat()
    }

    fn merge(&mut self, bytes: &[u8]) -> Result<()> {
        let damaged = || PlanError::internal("the state of a sum cannot be read");
        let read = |range: std::ops::Range<usize>| bytes.get(range).and_then(|part| part.try_into().ok()).map(i64::from_le_bytes);
        self.months += read(0..8).ok_or_else(damaged)?;
        self.days += read(8..16).ok_or_else(damaged)?;
        self.nanos += bytes.get(16..32).and_then(|part| part.try_into().ok()).map(i128::from_le_bytes).ok_or_else(damaged)?;
        self.count += read(32..40).ok_or_else(damaged)?;
        Ok(())
    }
}

#[derive(Debug)]
struct One<T> {
    total: T,
    shape: Shape,
}

impl<T: Total> One<T> {
    fn change(&mut self, values: &ArrayRef, sign: i64) -> DataFusionResult<()> {
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            self.total.add(values, row, sign)?;
        }
        Ok(())
    }
}

impl<T: Total> Accumulator for One<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.change(&values[0], 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.change(&values[0], -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        if self.total.count() == 0 {
            return ScalarValue::try_new_null(&self.shape.result);
        }
        Ok(self.total.result(&self.shape)?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.total.heap_bytes()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.total.write()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let states = states[0].as_binary::<i32>();
        for state in states.iter().flatten() {
            self.total.merge(state)?;
        }
        Ok(())
    }
}

struct Many<T> {
    totals: Vec<T>,
    shape: Shape,
}

impl<T: Total> GroupsAccumulator for Many<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> DataFusionResult<()> {
        self.totals.resize(total_num_groups, T::default());
        let values = &values[0];
        for (row, group) in group_indices.iter().enumerate() {
            let passes = opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if passes && values.is_valid(row) {
                self.totals[*group].add(values, row, 1)?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DataFusionResult<ArrayRef> {
        let totals = emit_to.take_needed(&mut self.totals);
        if totals.is_empty() {
            return Ok(new_empty_array(&self.shape.result));
        }
        let values = totals
            .iter()
            .map(|total| if total.count() == 0 { ScalarValue::try_new_null(&self.shape.result) } else { Ok(total.result(&self.shape)?) });
        ScalarValue::iter_to_array(values.collect::<DataFusionResult<Vec<_>>>()?)
    }

    fn state(&mut self, emit_to: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        let totals = emit_to.take_needed(&mut self.totals);
        let states: arrow::array::BinaryArray = totals.iter().map(|total| Some(total.write())).collect();
        Ok(vec![Arc::new(states)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> DataFusionResult<()> {
        self.totals.resize(total_num_groups, T::default());
        let states = values[0].as_binary::<i32>();
        for (row, group) in group_indices.iter().enumerate().filter(|(row, _)| states.is_valid(*row)) {
            self.totals[*group].merge(states.value(row))?;
        }
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> DataFusionResult<Vec<ArrayRef>> {
        let values = &values[0];
        let state = |row: usize| -> Result<Vec<u8>> {
            let mut total = T::default();
            if values.is_valid(row) && opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)) {
                total.add(values, row, 1)?;
            }
            Ok(total.write())
        };
        let states = (0..values.len()).map(state).collect::<Result<Vec<_>>>()?;
        Ok(vec![Arc::new(states.iter().map(Some).collect::<arrow::array::BinaryArray>())])
    }

    fn size(&self) -> usize {
        self.totals.capacity() * size_of::<T>() + self.totals.iter().map(Total::heap_bytes).sum::<usize>()
    }
}
