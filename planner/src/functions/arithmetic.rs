//! `+ - * / %` on numbers: checked, dividing integers towards zero, numerics with Postgres' digits.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray, Scalar},
    compute::kernels::{
        arity::{try_binary, try_unary},
        numeric,
    },
    datatypes::{DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type},
    error::ArrowError,
};
use datafusion::{common::ScalarValue, logical_expr::ColumnarValue};

use super::{
    decimal::{Decimal, division_by_zero, overflow, power_of_ten, small_power_of_ten},
    kernel::Call,
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    types::{NUMERIC_FREE_SCALE, SqlType, decimal::Digits},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::operator("+(smallint, smallint) smallint", "int2pl", |call| integers(call, numeric::add)),
    Entry::operator("+(integer, integer) integer", "int4pl", |call| integers(call, numeric::add)),
    Entry::operator("+(bigint, bigint) bigint", "int8pl", |call| integers(call, numeric::add)),
    Entry::operator("-(smallint, smallint) smallint", "int2mi", |call| integers(call, numeric::sub)),
    Entry::operator("-(integer, integer) integer", "int4mi", |call| integers(call, numeric::sub)),
    Entry::operator("-(bigint, bigint) bigint", "int8mi", |call| integers(call, numeric::sub)),
    Entry::operator("*(smallint, smallint) smallint", "int2mul", |call| integers(call, numeric::mul)),
    Entry::operator("*(integer, integer) integer", "int4mul", |call| integers(call, numeric::mul)),
    Entry::operator("*(bigint, bigint) bigint", "int8mul", |call| integers(call, numeric::mul)),
    Entry::operator("/(smallint, smallint) smallint", "int2div", |call| integers(call, numeric::div)),
    Entry::operator("/(integer, integer) integer", "int4div", |call| integers(call, numeric::div)),
    Entry::operator("/(bigint, bigint) bigint", "int8div", |call| integers(call, numeric::div)),
    Entry::operator("%(smallint, smallint) smallint", "int2mod", modulo),
    Entry::operator("%(integer, integer) integer", "int4mod", modulo),
    Entry::operator("%(bigint, bigint) bigint", "int8mod", modulo),
    Entry::strict("mod(smallint, smallint) smallint", modulo).named("int2mod"),
    Entry::strict("mod(integer, integer) integer", modulo).named("int4mod"),
    Entry::strict("mod(bigint, bigint) bigint", modulo).named("int8mod"),
    Entry::operator("+(real, real) real", "float4pl", |call| floats(call, Step::Add)),
    Entry::operator("+(double precision, double precision) double precision", "float8pl", |call| floats(call, Step::Add)),
    Entry::operator("-(real, real) real", "float4mi", |call| floats(call, Step::Subtract)),
    Entry::operator("-(double precision, double precision) double precision", "float8mi", |call| floats(call, Step::Subtract)),
    Entry::operator("*(real, real) real", "float4mul", |call| floats(call, Step::Multiply)),
    Entry::operator("*(double precision, double precision) double precision", "float8mul", |call| floats(call, Step::Multiply)),
    Entry::operator("/(real, real) real", "float4div", |call| floats(call, Step::Divide)),
    Entry::operator("/(double precision, double precision) double precision", "float8div", |call| floats(call, Step::Divide)),
    Entry::rewrite("+(real, double precision) double precision", |binder, values| mixed(binder, "+", values)),
    Entry::rewrite("+(double precision, real) double precision", |binder, values| mixed(binder, "+", values)),
    Entry::rewrite("-(real, double precision) double precision", |binder, values| mixed(binder, "-", values)),
    Entry::rewrite("-(double precision, real) double precision", |binder, values| mixed(binder, "-", values)),
    Entry::rewrite("*(real, double precision) double precision", |binder, values| mixed(binder, "*", values)),
    Entry::rewrite("*(double precision, real) double precision", |binder, values| mixed(binder, "*", values)),
    Entry::rewrite("/(real, double precision) double precision", |binder, values| mixed(binder, "/", values)),
    Entry::rewrite("/(double precision, real) double precision", |binder, values| mixed(binder, "/", values)),
    Entry::operator("+(numeric, numeric) numeric_sum", "numeric_add", |call| decimals(call, Step::Add)),
    Entry::operator("-(numeric, numeric) numeric_sum", "numeric_sub", |call| decimals(call, Step::Subtract)),
    Entry::operator("*(numeric, numeric) numeric_product", "numeric_mul", |call| decimals(call, Step::Multiply)),
    Entry::rewrite("/(numeric, numeric) numeric", divide),
    Entry::operator("%(numeric, numeric) numeric_remainder", "numeric_mod", |call| decimals(call, Step::Remainder)),
    Entry::strict("mod(numeric, numeric) numeric_remainder", |call| decimals(call, Step::Remainder)).named("numeric_mod"),
    Entry::strict("numeric_div(numeric, numeric) numeric", quotient),
    Entry::operator("-(smallint) smallint", "int2um", negative_integer),
    Entry::operator("-(integer) integer", "int4um", negative_integer),
    Entry::operator("-(bigint) bigint", "int8um", negative_integer),
    Entry::operator("-(real) real", "float4um", negative_float),
    Entry::operator("-(double precision) double precision", "float8um", negative_float),
    Entry::operator("-(numeric) numeric_first", "numeric_uminus", negative_decimal),
    Entry::rewrite("+(smallint) smallint", |_, values| same(values)),
    Entry::rewrite("+(integer) integer", |_, values| same(values)),
    Entry::rewrite("+(bigint) bigint", |_, values| same(values)),
    Entry::rewrite("+(real) real", |_, values| same(values)),
    Entry::rewrite("+(double precision) double precision", |_, values| same(values)),
    Entry::rewrite("+(numeric) numeric_first", |_, values| same(values)),
];

/// The only argument as it is.
pub(super) fn same(values: Vec<Typed>) -> Result<Typed> {
    values.into_iter().next().ok_or_else(|| PlanError::internal("a call without arguments"))
}

fn mixed(binder: &Binder<'_>, symbol: &str, values: Vec<Typed>) -> Result<Typed> {
    let values = values.into_iter().map(|value| binder.implicit(value, &SqlType::Double)).collect::<Result<_>>()?;
    binder.call(symbol, values, sqlparser::tokenizer::Span::empty())
}

/// 22003 in the words of the type.
pub(super) fn out_of_range(data_type: &DataType) -> PlanError {
    let name = match data_type {
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        _ => "value",
    };
    PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, format!("{name} out of range"))
}

fn of_arrow(error: ArrowError, data_type: &DataType) -> PlanError {
    match error {
        ArrowError::DivideByZero => division_by_zero(),
        ArrowError::ArithmeticOverflow(_) => out_of_range(data_type),
        other => other.into(),
    }
}

/// An argument for Arrow's kernels, which take constants as they are.
pub(super) enum Operand {
    Column(ArrayRef),
    Constant(Scalar<ArrayRef>),
}

impl Operand {
    pub(super) fn of(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Array(array) => Self::Column(Arc::clone(array)),
            ColumnarValue::Scalar(value) => Self::Constant(value.to_scalar()?),
        })
    }

    pub(super) fn datum(&self) -> &dyn Datum {
        match self {
            Self::Column(array) => array,
            Self::Constant(scalar) => scalar,
        }
    }
}

fn integers(call: &Call<'_>, operation: fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>) -> Result<ArrayRef> {
    let (left, right) = (Operand::of(&call.arguments[0])?, Operand::of(&call.arguments[1])?);
    operation(left.datum(), right.datum()).map_err(|error| of_arrow(error, call.result))
}

/// The remainder has the sign of the dividend; that of the smallest integer by -1 is 0.
fn modulo(call: &Call<'_>) -> Result<ArrayRef> {
    match call.result {
        DataType::Int16 => {
            zip::<Int16Type>(call, |left, right| if right == 0 { Err(division_by_zero()) } else { Ok(left.wrapping_rem(right)) })
        }
        DataType::Int32 => {
            zip::<Int32Type>(call, |left, right| if right == 0 { Err(division_by_zero()) } else { Ok(left.wrapping_rem(right)) })
        }
        _ => zip::<Int64Type>(call, |left, right| if right == 0 { Err(division_by_zero()) } else { Ok(left.wrapping_rem(right)) }),
    }
}

/// Two columns or a column and a constant, value by value.
pub(super) fn zip<T: ArrowPrimitiveType>(
    call: &Call<'_>,
    operation: impl Fn(T::Native, T::Native) -> Result<T::Native>,
) -> Result<ArrayRef> {
    let column = |value: &ColumnarValue| -> Result<PrimitiveArray<T>> {
        match value.to_array(1)?.as_primitive_opt::<T>() {
            Some(array) => Ok(array.clone()),
            None => Err(PlanError::internal("a function was called with another type than it was bound with")),
        }
    };
    let (left, right) = (column(&call.arguments[0])?, column(&call.arguments[1])?);
    let wrap = |result: Result<T::Native>| result.map_err(ArrowError::from);
    let constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
    let result: PrimitiveArray<T> = match (constant(&call.arguments[0]), constant(&call.arguments[1])) {
        (false, true) if right.is_valid(0) => {
            let right = right.value(0);
            try_unary(&left, |left| wrap(operation(left, right)))?
        }
        (true, false) if left.is_valid(0) => {
            let left = left.value(0);
            try_unary(&right, |right| wrap(operation(left, right)))?
        }
        (false, true) | (true, false) => PrimitiveArray::<T>::new_null(call.rows),
        _ => try_binary(&left, &right, |left, right| wrap(operation(left, right)))?,
    };
    Ok(Arc::new(if result.data_type() == call.result { result } else { result.with_data_type(call.result.clone()) }))
}

#[derive(Clone, Copy)]
enum Step {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A float result that is checked: an infinity that no operand had, and a zero that should be none, are errors.
fn float_step(step: Step, left: f64, right: f64, narrow: bool) -> Result<f64> {
    let exact = match step {
        Step::Add => left + right,
        Step::Subtract => left - right,
        Step::Multiply => left * right,
        Step::Divide | Step::Remainder => {
            if right == 0.0 && !left.is_nan() {
                return Err(division_by_zero());
            }
            left / right
        }
    };
    if exact.is_nan() {
        // The one NaN that is greater than all other values: processors make others too.
        return Ok(f64::NAN);
    }
    let result = if narrow { f64::from(exact as f32) } else { exact };
    if result.is_infinite() && left.is_finite() && right.is_finite() {
        return Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    let vanishing = match step {
        Step::Multiply => left != 0.0 && right != 0.0,
        Step::Divide => left != 0.0 && right.is_finite(),
        _ => false,
    };
    if result == 0.0 && vanishing {
        return Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow"));
    }
    Ok(result)
}

fn floats(call: &Call<'_>, step: Step) -> Result<ArrayRef> {
    match call.result {
        DataType::Float32 => zip::<Float32Type>(call, |left, right| Ok(float_step(step, f64::from(left), f64::from(right), true)? as f32)),
        _ => zip::<Float64Type>(call, |left, right| float_step(step, left, right, false)),
    }
}

fn scale_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => i32::from(*scale),
        _ => 0,
    }
}

/// A numeric argument, whatever its width.
pub(super) struct Decimals {
    array: ArrayRef,
    scale: i32,
    constant: bool,
}

impl Decimals {
    pub(super) fn get(&self, row: usize) -> Option<Decimal> {
        let row = if self.constant { 0 } else { row };
        if self.array.is_null(row) {
            return None;
        }
        Some(match self.array.data_type() {
            DataType::Decimal128(..) => Decimal::from_i128(self.array.as_primitive::<Decimal128Type>().value(row), self.scale),
            _ => Decimal::new(self.array.as_primitive::<Decimal256Type>().value(row), self.scale),
        })
    }
}

impl Call<'_> {
    pub(crate) fn decimal_scale(&self, index: usize) -> i32 {
        scale_of(&self.argument_type(index))
    }

    pub(super) fn decimals(&self, index: usize) -> Result<Decimals> {
        let (array, constant) = match &self.arguments[index] {
            ColumnarValue::Array(array) => (Arc::clone(array), false),
            ColumnarValue::Scalar(value) => (value.to_array()?, true),
        };
        match array.data_type() {
            DataType::Decimal128(..) | DataType::Decimal256(..) => {
                let scale = scale_of(array.data_type());
                Ok(Decimals { array, scale, constant })
            }
            other => Err(PlanError::internal(format!("a numeric function was called with an argument of type {other}"))),
        }
    }

    /// A numeric column, row by row; values are brought to the scale of the result.
    pub(super) fn build_decimals(&self, mut value: impl FnMut(usize) -> Result<Option<Decimal>>) -> Result<ArrayRef> {
        let scale = scale_of(self.result);
        match self.result {
            DataType::Decimal128(precision, _) => {
                let limit = small_power_of_ten(u32::from(*precision));
                self.build::<Decimal128Type>(|row| {
                    let Some(value) = value(row)? else { return Ok(None) };
                    let value = value.rescale(scale)?.unscaled.to_i128().ok_or_else(overflow)?;
                    if value >= limit || value <= -limit { Err(overflow()) } else { Ok(Some(value)) }
                })
            }
            DataType::Decimal256(precision, _) => {
                let limit = power_of_ten(u32::from(*precision));
                self.build::<Decimal256Type>(|row| {
                    let Some(value) = value(row)? else { return Ok(None) };
                    let value = value.rescale(scale)?.unscaled;
                    if value >= limit || value <= limit.wrapping_neg() { Err(overflow()) } else { Ok(Some(value)) }
                })
            }
            other => Err(PlanError::internal(format!("a numeric function was to give {other}"))),
        }
    }
}

fn decimals(call: &Call<'_>, step: Step) -> Result<ArrayRef> {
    let narrow = |index: usize| matches!(call.argument_type(index), DataType::Decimal128(..));
    if let DataType::Decimal128(precision, scale) = call.result
        && narrow(0)
        && narrow(1)
    {
        return short_decimals(call, step, *precision, i32::from(*scale));
    }
    let (left, right) = (call.decimals(0)?, call.decimals(1)?);
    let scale = scale_of(call.result);
    call.build_decimals(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        Ok(Some(match step {
            Step::Add => left.add(right)?,
            Step::Subtract => left.subtract(right)?,
            Step::Multiply => left.multiply(right, scale)?,
            Step::Divide => left.divide(right, scale)?,
            Step::Remainder => left.remainder(right)?,
        }))
    })
}

/// The same in 128 bits, which is what most sums and products need.
fn short_decimals(call: &Call<'_>, step: Step, precision: u8, scale: i32) -> Result<ArrayRef> {
    let (left_scale, right_scale) = (call.decimal_scale(0), call.decimal_scale(1));
    let limit = small_power_of_ten(u32::from(precision));
    let factor = |own: i32| small_power_of_ten((scale - own).max(0).unsigned_abs());
    let (left_factor, right_factor) = (factor(left_scale), factor(right_scale));
    let shrink = (left_scale + right_scale - scale).max(0);
    let checked = |value: Option<i128>| match value {
        Some(value) if value < limit && value > -limit => Ok(value),
        _ => Err(overflow()),
    };
    zip::<Decimal128Type>(call, |left, right| match step {
        Step::Add | Step::Subtract | Step::Remainder => {
            let (Some(left), Some(right)) = (left.checked_mul(left_factor), right.checked_mul(right_factor)) else {
                return Err(overflow());
            };
            checked(match step {
                Step::Add => left.checked_add(right),
                Step::Subtract => left.checked_sub(right),
                _ if right == 0 => return Err(division_by_zero()),
                _ => left.checked_rem(right),
            })
        }
        Step::Multiply if shrink == 0 => checked(left.checked_mul(right)),
        Step::Multiply | Step::Divide => {
            let product = Decimal::from_i128(left, left_scale).multiply(Decimal::from_i128(right, right_scale), scale)?;
            checked(product.unscaled.to_i128())
        }
    })
}

/// The value of a numeric constant.
pub(super) fn constant_decimal(value: &Typed) -> Option<Decimal> {
    match value.constant()? {
        ScalarValue::Decimal128(Some(unscaled), _, scale) => Some(Decimal::from_i128(*unscaled, i32::from(*scale))),
        ScalarValue::Decimal256(Some(unscaled), _, scale) => Some(Decimal::new(*unscaled, i32::from(*scale))),
        _ => None,
    }
}

/// A numeric constant with its own digits.
pub(super) fn decimal_literal(value: Decimal) -> Result<Typed> {
    let scale = value.scale.clamp(0, 76);
    let value = value.rescale(scale)?;
    let precision = super::decimal::digit_count(value.unscaled).max(scale.unsigned_abs()).clamp(1, 76) as u8;
    let digits = Digits { precision, scale: scale as i8 };
    let literal = match value.unscaled.to_i128() {
        Some(small) if precision <= 38 => ScalarValue::Decimal128(Some(small), precision, digits.scale),
        _ => ScalarValue::Decimal256(Some(value.unscaled), precision.max(39), digits.scale),
    };
    let sql_type = SqlType::from_arrow(&literal.data_type()).unwrap_or(SqlType::NUMERIC);
    Ok(Typed::literal(literal, sql_type))
}

/// Constants are divided at once, so that the quotient keeps the digits that Postgres gives it.
fn divide(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    if let [left, right] = values.as_slice()
        && let (Some(left), Some(right)) = (constant_decimal(left), constant_decimal(right))
        && !right.is_zero()
    {
        let scale = left.quotient_scale(right, (left.scale, right.scale));
        if scale <= 60
            && let Ok(quotient) = left.divide(right, scale)
        {
            return decimal_literal(quotient);
        }
    }
    binder.call("numeric_div", values, sqlparser::tokenizer::Span::empty())
}

/// Each quotient is rounded to the digits that Postgres would show.
fn quotient(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.decimals(0)?, call.decimals(1)?);
    call.build_decimals(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        divide_values(left, right).map(Some)
    })
}

/// A quotient rounded to the digits that Postgres would show.
fn divide_values(left: Decimal, right: Decimal) -> Result<Decimal> {
    if right.is_zero() {
        return Err(division_by_zero());
    }
    let scale = left.quotient_scale(right, (left.display_scale(), right.display_scale()));
    left.divide(right, scale.min(i32::from(NUMERIC_FREE_SCALE)))
}

fn negative_integer(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    numeric::neg(&array).map_err(|error| of_arrow(error, call.result))
}

fn negative_float(call: &Call<'_>) -> Result<ArrayRef> {
    Ok(numeric::neg_wrapping(&call.array(0)?)?)
}

fn negative_decimal(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.decimals(0)?;
    call.build_decimals(|row| Ok(values.get(row).map(Decimal::negate)))
}
