//! `var_pop`, `var_samp`, `stddev_pop`, `stddev_samp`: from the number of values, their sum and the sum of their squares, all exact. Numerics
//! give numerics, floats give doubles; both with the digits of a view ([`millpond_engine::quotient`]).

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BinaryArray},
    compute::cast,
    datatypes::{DataType, Decimal256Type, Float64Type, i256},
};
use datafusion::{
    common::{Result as DataFusionResult, ScalarValue},
    logical_expr::{Accumulator, AggregateUDF},
};
use millpond_engine::quotient::{double_variance, exact_product, variance};

use super::function::Recipe;
use crate::{
    error::{PlanError, Result},
    functions::{decimal::overflow, exact_sum::ExactSum},
};

/// The function of a name, for arguments of a type.
pub(super) fn variance_of(name: &'static str, argument: &DataType, result: &DataType) -> Arc<AggregateUDF> {
    let accumulator: fn(&Recipe) -> Box<dyn Accumulator> = match argument {
        DataType::Float32 | DataType::Float64 => |recipe| Box::new(Spread::<Floats>::of(recipe)),
        _ => |recipe| Box::new(Spread::<Exact>::of(recipe)),
    };
    Recipe {
        name,
        arguments: vec![argument.clone()],
        result: result.clone(),
        state: vec![DataType::Binary],
        never_null: false,
        accumulator,
        groups: None,
    }
    .into_function()
}

/// The sums of a variance.
trait Sums: Default + std::fmt::Debug + Send + Sync + 'static {
    /// Adds (`sign` 1) or takes away (-1) the values of a column that are not NULL; how many they were.
    fn add(&mut self, values: &ArrayRef, sign: i64) -> Result<i64>;
    fn write(&self) -> Vec<u8>;
    /// Adds what [`Sums::write`] wrote; `None` if that cannot be read.
    fn merge(&mut self, bytes: &[u8]) -> Option<Result<()>>;
    fn result(&self, count: i64, divisor: i64, spread: &Shape) -> Result<ScalarValue>;
    fn heap_bytes(&self) -> usize;
}

/// Which function, and the types.
#[derive(Clone, Debug)]
struct Shape {
    sample: bool,
    root: bool,
    scale: i32,
    result: DataType,
}

#[derive(Debug)]
struct Spread<S> {
    shape: Shape,
    count: i64,
    sums: S,
}

impl<S: Sums> Spread<S> {
    fn of(recipe: &Recipe) -> Self {
        let scale = match recipe.arguments[0] {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => i32::from(scale),
            _ => 0,
        };
        let shape =
            Shape { sample: recipe.name.ends_with("_samp"), root: recipe.name.starts_with("stddev"), scale, result: recipe.result.clone() };
        Self { shape, count: 0, sums: S::default() }
    }
}

impl<S: Sums> Accumulator for Spread<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.count += self.sums.add(&values[0], 1)?;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.count -= self.sums.add(&values[0], -1)?;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let divisor = if self.shape.sample { self.count - 1 } else { self.count };
        if divisor <= 0 {
            return ScalarValue::try_new_null(&self.shape.result);
        }
        Ok(self.sums.result(self.count, divisor, &self.shape)?)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sums.heap_bytes()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let bytes = [&self.count.to_le_bytes()[..], &self.sums.write()].concat();
        Ok(vec![ScalarValue::Binary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let damaged = || PlanError::internal("the state of a variance cannot be read");
        let states: &BinaryArray = states[0].as_binary::<i32>();
        for state in states.iter().flatten() {
            let (count, sums) = state.split_at_checked(8).ok_or_else(damaged)?;
            self.count += i64::from_le_bytes(count.try_into().map_err(|_| damaged())?);
            self.sums.merge(sums).ok_or_else(damaged)??;
        }
        Ok(())
    }
}

/// Of numerics.
#[derive(Debug, Default)]
struct Exact {
    sum: i256,
    squares: i256,
}

impl Sums for Exact {
    fn add(&mut self, values: &ArrayRef, sign: i64) -> Result<i64> {
        let scale = match values.data_type() {
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
            other => return Err(PlanError::internal(format!("a variance of {other} is not exact"))),
        };
        let wide = cast(values, &DataType::Decimal256(76, scale))?;
        let wide = wide.as_primitive::<Decimal256Type>();
        for value in wide.iter().flatten() {
            let square = value.checked_mul(value).ok_or_else(overflow)?;
            let (value, square) = if sign < 0 { (value.wrapping_neg(), square.wrapping_neg()) } else { (value, square) };
            self.squares = self.squares.checked_add(square).ok_or_else(overflow)?;
            self.sum = self.sum.wrapping_add(value);
        }
        Ok((wide.len() - wide.null_count()) as i64)
    }

    fn write(&self) -> Vec<u8> {
        [self.sum.to_le_bytes(), self.squares.to_le_bytes()].concat()
    }

    fn merge(&mut self, bytes: &[u8]) -> Option<Result<()>> {
        let (sum, squares) = bytes.split_at_checked(32)?;
        self.sum = self.sum.wrapping_add(i256::from_le_bytes(sum.try_into().ok()?));
        let squares = self.squares.checked_add(i256::from_le_bytes(squares.try_into().ok()?));
        Some(squares.map(|squares| self.squares = squares).ok_or_else(overflow))
    }

    fn result(&self, count: i64, divisor: i64, shape: &Shape) -> Result<ScalarValue> {
        let DataType::Decimal256(precision, scale) = shape.result else {
            return Err(PlanError::internal(format!("a variance was to give {}", shape.result)));
        };
        let value = variance(count, self.sum, self.squares, shape.scale, divisor, shape.root, i32::from(scale)).ok_or_else(overflow)?;
        Ok(ScalarValue::Decimal256(Some(value), precision, scale))
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Of floats.
#[derive(Debug, Default)]
struct Floats {
    sum: ExactSum,
    squares: ExactSum,
}

impl Sums for Floats {
    fn add(&mut self, values: &ArrayRef, sign: i64) -> Result<i64> {
        let doubles = cast(values, &DataType::Float64)?;
        let doubles = doubles.as_primitive::<Float64Type>();
        for value in doubles.iter().flatten() {
            let (high, low) = exact_product(value, value);
            self.sum.add(value, sign);
            self.squares.add(high, sign);
            if high.is_finite() {
                self.squares.add(low, sign);
            }
        }
        Ok((doubles.len() - doubles.null_count()) as i64)
    }

    fn write(&self) -> Vec<u8> {
        let mut sum = Vec::new();
        self.sum.write(&mut sum);
        let mut bytes = (sum.len() as u64).to_le_bytes().to_vec();
        bytes.append(&mut sum);
        self.squares.write(&mut bytes);
        bytes
    }

    fn merge(&mut self, bytes: &[u8]) -> Option<Result<()>> {
        let (length, rest) = bytes.split_at_checked(8)?;
        let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let (sum, squares) = rest.split_at_checked(length)?;
        self.sum.merge(sum)?;
        self.squares.merge(squares)?;
        Some(Ok(()))
    }

    fn result(&self, count: i64, divisor: i64, shape: &Shape) -> Result<ScalarValue> {
        let value = double_variance(count, self.sum.to_pair(), self.squares.to_pair(), divisor, shape.root);
        Ok(ScalarValue::Float64(Some(value)))
    }

    fn heap_bytes(&self) -> usize {
        self.sum.heap_bytes() + self.squares.heap_bytes()
    }
}
