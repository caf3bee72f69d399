//! Functions of numbers.

use arrow::{
    array::{Array, ArrayRef, AsArray},
    datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, i256},
};

use super::{
    arithmetic::{constant_decimal, decimal_literal, out_of_range},
    decimal::{Decimal, overflow},
    decimal_power,
    kernel::{Call, Traits},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    types::{NUMERIC_FREE_SCALE, SqlType, decimal::Digits},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::strict("abs(smallint) smallint", absolute_integer),
    Entry::strict("abs(integer) integer", absolute_integer),
    Entry::strict("abs(bigint) bigint", absolute_integer),
    Entry::strict("abs(real) real", |call| float(call, |value| Ok(value.abs()))),
    Entry::strict("abs(double precision) double precision", |call| float(call, |value| Ok(value.abs()))),
    Entry::strict("abs(numeric) numeric_first", absolute_decimal),
    Entry::operator("@(integer) integer", "abs", absolute_integer),
    Entry::operator("@(bigint) bigint", "abs", absolute_integer),
    Entry::operator("@(double precision) double precision", "abs", |call| float(call, |value| Ok(value.abs()))),
    Entry::operator("@(numeric) numeric_first", "abs", absolute_decimal),
    Entry::strict("ceil(double precision) double precision", |call| float(call, |value| Ok(value.ceil()))),
    Entry::strict("ceiling(double precision) double precision", |call| float(call, |value| Ok(value.ceil()))).named("ceil"),
    Entry::strict("floor(double precision) double precision", |call| float(call, |value| Ok(value.floor()))),
    Entry::rewrite("ceil(numeric) numeric", |binder, values| to_whole(binder, "numeric_ceil", values)),
    Entry::rewrite("ceiling(numeric) numeric", |binder, values| to_whole(binder, "numeric_ceil", values)),
    Entry::rewrite("floor(numeric) numeric", |binder, values| to_whole(binder, "numeric_floor", values)),
    Entry::strict("round(double precision) double precision", |call| float(call, |value| Ok(value.round_ties_even()))),
    Entry::strict("trunc(double precision) double precision", |call| float(call, |value| Ok(value.trunc()))),
    Entry::rewrite("round(numeric) numeric", |binder, values| to_scale(binder, "numeric_round", values)),
    Entry::rewrite("round(numeric, integer) numeric", |binder, values| to_scale(binder, "numeric_round", values)),
    Entry::rewrite("trunc(numeric) numeric", |binder, values| to_scale(binder, "numeric_trunc", values)),
    Entry::rewrite("trunc(numeric, integer) numeric", |binder, values| to_scale(binder, "numeric_trunc", values)),
    Entry::strict("sign(double precision) double precision", |call| {
        float(call, |value| Ok(if value == 0.0 { 0.0 } else { value.signum() }))
    }),
    Entry::strict("sign(numeric) numeric(1,0)", sign_of_decimal).named("numeric_sign"),
    Entry::strict("sqrt(double precision) double precision", |call| float(call, square_root)),
    Entry::strict("sqrt(numeric) numeric", |call| decimal(call, decimal_power::square_root)).named("numeric_sqrt"),
    Entry::operator("|/(double precision) double precision", "sqrt", |call| float(call, square_root)),
    Entry::strict("cbrt(double precision) double precision", |call| float(call, |value| Ok(value.cbrt()))),
    Entry::operator("||/(double precision) double precision", "cbrt", |call| float(call, |value| Ok(value.cbrt()))),
    Entry::strict("exp(double precision) double precision", |call| float(call, |value| checked(value.exp(), value.is_finite()))),
    Entry::strict("exp(numeric) numeric", |call| decimal(call, decimal_power::exponential)).named("numeric_exp"),
    Entry::strict("ln(double precision) double precision", |call| float(call, |value| logarithm(value).map(f64::ln))),
    Entry::strict("ln(numeric) numeric", |call| decimal(call, decimal_power::natural_logarithm)).named("numeric_ln"),
    Entry::strict("log(double precision) double precision", |call| float(call, |value| logarithm(value).map(f64::log10))),
    Entry::strict("log10(double precision) double precision", |call| float(call, |value| logarithm(value).map(f64::log10))).named("log"),
    Entry::strict("log(numeric) numeric", |call| decimal(call, decimal_logarithm)).named("numeric_log10"),
    Entry::strict("log10(numeric) numeric", |call| decimal(call, decimal_logarithm)).named("numeric_log10"),
    Entry::strict("log(numeric, numeric) numeric", |call| decimal2(call, decimal_power::logarithm)).named("numeric_log"),
    Entry::strict("power(double precision, double precision) double precision", |call| float2(call, power)),
    Entry::strict("pow(double precision, double precision) double precision", |call| float2(call, power)).named("power"),
    Entry::operator("^(double precision, double precision) double precision", "dpow", |call| float2(call, power)),
    Entry::strict("power(numeric, numeric) numeric", |call| decimal2(call, decimal_power::power)).named("numeric_power"),
    Entry::strict("pow(numeric, numeric) numeric", |call| decimal2(call, decimal_power::power)).named("numeric_power"),
    Entry::operator("^(numeric, numeric) numeric", "numeric_power", |call| decimal2(call, decimal_power::power)),
    Entry::strict("sin(double precision) double precision", |call| float(call, |value| finite(value).map(f64::sin))),
    Entry::strict("cos(double precision) double precision", |call| float(call, |value| finite(value).map(f64::cos))),
    Entry::strict("tan(double precision) double precision", |call| float(call, |value| finite(value).map(f64::tan))),
    Entry::strict("cot(double precision) double precision", |call| float(call, |value| finite(value).map(|value| 1.0 / value.tan()))),
    Entry::strict("asin(double precision) double precision", |call| float(call, |value| unit(value).map(f64::asin))),
    Entry::strict("acos(double precision) double precision", |call| float(call, |value| unit(value).map(f64::acos))),
    Entry::strict("atan(double precision) double precision", |call| float(call, |value| Ok(value.atan()))),
    Entry::strict("atan2(double precision, double precision) double precision", |call| float2(call, |left, right| Ok(left.atan2(right)))),
    Entry::strict("sinh(double precision) double precision", |call| float(call, |value| Ok(value.sinh()))),
    Entry::strict("cosh(double precision) double precision", |call| float(call, |value| Ok(value.cosh()))),
    Entry::strict("tanh(double precision) double precision", |call| float(call, |value| Ok(value.tanh()))),
    Entry::strict("asinh(double precision) double precision", |call| float(call, |value| Ok(value.asinh()))),
    Entry::strict("acosh(double precision) double precision", |call| float(call, |value| in_range(value, value >= 1.0).map(f64::acosh))),
    Entry::strict("atanh(double precision) double precision", |call| float(call, |value| unit(value).map(f64::atanh))),
    Entry::strict("sind(double precision) double precision", |call| {
        float(call, |value| finite(value).map(|value| in_degrees(value, f64::sin)))
    }),
    Entry::strict("cosd(double precision) double precision", |call| {
        float(call, |value| finite(value).map(|value| in_degrees(value, f64::cos)))
    }),
    Entry::strict("tand(double precision) double precision", |call| {
        float(call, |value| finite(value).map(|value| in_degrees(value, f64::tan)))
    }),
    Entry::strict("asind(double precision) double precision", |call| {
        float(call, |value| unit(value).map(|value| value.asin().to_degrees()))
    }),
    Entry::strict("acosd(double precision) double precision", |call| {
        float(call, |value| unit(value).map(|value| value.acos().to_degrees()))
    }),
    Entry::strict("atand(double precision) double precision", |call| float(call, |value| Ok(value.atan().to_degrees()))),
    Entry::strict("degrees(double precision) double precision", |call| float(call, |value| Ok(value.to_degrees()))),
    Entry::strict("radians(double precision) double precision", |call| float(call, |value| Ok(value.to_radians()))),
    Entry::rewrite("pi() double precision", |_, _| Ok(Typed::new(datafusion::logical_expr::lit(std::f64::consts::PI), SqlType::Double))),
    Entry::strict("div(numeric, numeric) numeric", whole_quotient).named("numeric_div_trunc"),
    Entry::strict("gcd(integer, integer) integer", |call| integer2(call, gcd)),
    Entry::strict("gcd(bigint, bigint) bigint", |call| integer2(call, gcd)),
    Entry::strict("lcm(integer, integer) integer", |call| integer2(call, lcm)),
    Entry::strict("lcm(bigint, bigint) bigint", |call| integer2(call, lcm)),
    Entry::strict("factorial(bigint) numeric", factorial),
    Entry::strict("scale(numeric) integer", |call| {
        decimal_to_integer(call, |value, scale| if scale == i32::from(NUMERIC_FREE_SCALE) { value.shown_scale() } else { scale })
    }),
    Entry::strict("min_scale(numeric) integer", |call| decimal_to_integer(call, |value, _| value.shown_scale())),
    Entry::strict("trim_scale(numeric) numeric", |call| decimal(call, Ok)),
    Entry::strict("width_bucket(double precision, double precision, double precision, integer) integer", width_bucket),
    Entry::kernel("random() double precision", Traits::VOLATILE, super::sequence::random),
];

fn float_of(array: &ArrayRef, row: usize) -> Option<f64> {
    if array.is_null(row) {
        return None;
    }
    match array.data_type() {
        DataType::Float32 => Some(f64::from(array.as_primitive::<Float32Type>().value(row))),
        _ => Some(array.as_primitive::<Float64Type>().value(row)),
    }
}

fn float(call: &Call<'_>, function: impl Fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    match call.result {
        DataType::Float32 => {
            call.build::<Float32Type>(|row| Ok(float_of(&array, row).map(&function).transpose()?.map(|value| value as f32)))
        }
        _ => call.build::<Float64Type>(|row| float_of(&array, row).map(&function).transpose()),
    }
}

fn float2(call: &Call<'_>, function: impl Fn(f64, f64) -> Result<f64>) -> Result<ArrayRef> {
    let (left, right) = (call.values::<Float64Type>(0)?, call.values::<Float64Type>(1)?);
    call.build::<Float64Type>(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        function(left, right).map(Some)
    })
}

fn decimal(call: &Call<'_>, function: impl Fn(Decimal) -> Result<Decimal>) -> Result<ArrayRef> {
    let values = call.decimals(0)?;
    call.build_decimals(|row| values.get(row).map(&function).transpose())
}

fn decimal2(call: &Call<'_>, function: fn(Decimal, Decimal) -> Result<Decimal>) -> Result<ArrayRef> {
    let (left, right) = (call.decimals(0)?, call.decimals(1)?);
    call.build_decimals(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        function(left, right).map(Some)
    })
}

fn decimal_logarithm(value: Decimal) -> Result<Decimal> {
    decimal_power::logarithm(Decimal::from_i128(10, 0), value)
}

fn decimal_to_integer(call: &Call<'_>, function: impl Fn(Decimal, i32) -> i32) -> Result<ArrayRef> {
    let (values, scale) = (call.decimals(0)?, call.decimal_scale(0));
    call.build::<Int32Type>(|row| Ok(values.get(row).map(|value| function(value, scale))))
}

fn integer2(call: &Call<'_>, function: fn(i64, i64) -> Option<i64>) -> Result<ArrayRef> {
    let (left, right) = (call.array(0)?, call.array(1)?);
    let get = |array: &ArrayRef, row: usize| match array.data_type() {
        _ if array.is_null(row) => None,
        DataType::Int32 => Some(i64::from(array.as_primitive::<Int32Type>().value(row))),
        _ => Some(array.as_primitive::<Int64Type>().value(row)),
    };
    let result = |row: usize| -> Result<Option<i64>> {
        let (Some(left), Some(right)) = (get(&left, row), get(&right, row)) else { return Ok(None) };
        function(left, right).map(Some).ok_or_else(|| out_of_range(call.result))
    };
    match call.result {
        DataType::Int32 => {
            call.build::<Int32Type>(|row| result(row)?.map(i32::try_from).transpose().map_err(|_| out_of_range(call.result)))
        }
        _ => call.build::<Int64Type>(result),
    }
}

fn gcd(left: i64, right: i64) -> Option<i64> {
    let (mut a, mut b) = (left.unsigned_abs(), right.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).ok()
}

fn lcm(left: i64, right: i64) -> Option<i64> {
    if left == 0 || right == 0 {
        return Some(0);
    }
    (left / gcd(left, right)?).checked_mul(right)?.checked_abs()
}

fn checked(value: f64, was_finite: bool) -> Result<f64> {
    if value.is_infinite() && was_finite {
        return Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"));
    }
    Ok(value)
}

fn in_range(value: f64, fits: bool) -> Result<f64> {
    if fits || value.is_nan() { Ok(value) } else { Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")) }
}

fn finite(value: f64) -> Result<f64> {
    in_range(value, value.is_finite())
}

fn unit(value: f64) -> Result<f64> {
    in_range(value, (-1.0..=1.0).contains(&value))
}

/// Right angles are exact.
fn in_degrees(value: f64, function: fn(f64) -> f64) -> f64 {
    let exact = function(value.to_radians());
    let rounded = (exact * 2.0).round() / 2.0;
    if value % 30.0 == 0.0 && (exact - rounded).abs() < 1e-15 { rounded } else { exact }
}

fn square_root(value: f64) -> Result<f64> {
    if value < 0.0 {
        return Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER, "cannot take square root of a negative number"));
    }
    Ok(value.sqrt())
}

fn logarithm(value: f64) -> Result<f64> {
    if value == 0.0 {
        return Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, "cannot take logarithm of zero"));
    }
    if value < 0.0 {
        return Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_LOGARITHM, "cannot take logarithm of a negative number"));
    }
    Ok(value)
}

fn power(base: f64, exponent: f64) -> Result<f64> {
    if base == 0.0 && exponent < 0.0 {
        return Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER, "zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.fract() != 0.0 && exponent.is_finite() {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(PlanError::new(sqlstate::INVALID_ARGUMENT_FOR_POWER, message));
    }
    checked(base.powf(exponent), base.is_finite() && exponent.is_finite())
}

fn absolute_integer(call: &Call<'_>) -> Result<ArrayRef> {
    let overflow = || out_of_range(call.result);
    match call.result {
        DataType::Int16 => {
            let values = call.values::<Int16Type>(0)?;
            call.build::<Int16Type>(|row| values.get(row).map(|value| value.checked_abs().ok_or_else(overflow)).transpose())
        }
        DataType::Int32 => {
            let values = call.values::<Int32Type>(0)?;
            call.build::<Int32Type>(|row| values.get(row).map(|value| value.checked_abs().ok_or_else(overflow)).transpose())
        }
        _ => {
            let values = call.values::<Int64Type>(0)?;
            call.build::<Int64Type>(|row| values.get(row).map(|value| value.checked_abs().ok_or_else(overflow)).transpose())
        }
    }
}

fn absolute_decimal(call: &Call<'_>) -> Result<ArrayRef> {
    decimal(call, |value| Ok(if value.is_negative() { value.negate() } else { value }))
}

fn sign_of_decimal(call: &Call<'_>) -> Result<ArrayRef> {
    decimal(call, |value| {
        let sign = if value.is_zero() {
            0
        } else if value.is_negative() {
            -1
        } else {
            1
        };
        Ok(Decimal::from_i128(sign, 0))
    })
}

/// A kernel of a numeric whose result type depends on more than the types of its arguments.
fn shaped(binder: &Binder<'_>, name: &'static str, values: Vec<Typed>, result: SqlType) -> Result<Typed> {
    let evaluate = match name {
        "numeric_ceil" => |call: &Call<'_>| decimal(call, |value| value.whole(true)),
        "numeric_floor" => |call: &Call<'_>| decimal(call, |value| value.whole(false)),
        "numeric_round" => |call: &Call<'_>| rescaled(call, Decimal::rescale),
        _ => |call: &Call<'_>| rescaled(call, Decimal::truncate),
    };
    let types = values.iter().map(|value| value.sql_type.arrow()).collect();
    let arguments = values.into_iter().map(|value| value.expr).collect();
    let kernel = super::kernel::Kernel::strict(name, evaluate);
    Ok(Typed::new(kernel.call(arguments, types, result.arrow(), &binder.environment), result))
}

fn to_whole(binder: &Binder<'_>, name: &'static str, values: Vec<Typed>) -> Result<Typed> {
    let digits = Digits::of(&values[0].sql_type);
    let whole = i32::from(digits.precision) - i32::from(digits.scale) + 1;
    let result = Digits { precision: whole.clamp(1, 76) as u8, scale: 0 }.sql_type();
    shaped(binder, name, values, result)
}

/// Rounding to a constant scale has that scale; to one that varies, the free one. Constants are rounded at once.
fn to_scale(binder: &Binder<'_>, name: &'static str, mut values: Vec<Typed>) -> Result<Typed> {
    if values.len() == 1 {
        values.push(Typed::integer(0));
    }
    let digits = Digits::of(&values[0].sql_type);
    let scale = binder.constant_of(values[1].clone())?.and_then(|value| match value {
        datafusion::common::ScalarValue::Int32(Some(scale)) => Some(scale),
        _ => None,
    });
    let Some(scale) = scale else { return shaped(binder, name, values, SqlType::NUMERIC) };
    if let Some(value) = constant_decimal(&values[0]) {
        return decimal_literal(rounded_to(value, scale, if name == "numeric_round" { Decimal::rescale } else { Decimal::truncate })?);
    }
    let whole = (i32::from(digits.precision) - i32::from(digits.scale) + 1).max(1);
    let result = match scale {
        _ if digits == Digits::FREE && scale >= 0 && scale <= i32::from(NUMERIC_FREE_SCALE) => Digits { precision: 76, scale: scale as i8 },
        scale if scale <= 0 => Digits { precision: whole.min(76) as u8, scale: 0 },
        scale if scale + whole <= 76 => Digits { precision: (scale + whole) as u8, scale: scale as i8 },
        _ => Digits::FREE,
    };
    shaped(binder, name, values, result.sql_type())
}

fn rounded_to(value: Decimal, scale: i32, round: fn(Decimal, i32) -> Result<Decimal>) -> Result<Decimal> {
    let rounded = round(value, scale.clamp(-76, 76))?;
    if scale < 0 { rounded.rescale(0) } else { Ok(rounded) }
}

fn rescaled(call: &Call<'_>, round: fn(Decimal, i32) -> Result<Decimal>) -> Result<ArrayRef> {
    let (values, scales) = (call.decimals(0)?, call.values::<Int32Type>(1)?);
    call.build_decimals(|row| {
        let (Some(value), Some(scale)) = (values.get(row), scales.get(row)) else { return Ok(None) };
        rounded_to(value, scale, round).map(Some)
    })
}

fn whole_quotient(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (call.decimals(0)?, call.decimals(1)?);
    call.build_decimals(|row| {
        let (Some(left), Some(right)) = (left.get(row), right.get(row)) else { return Ok(None) };
        let rest = left.remainder(right)?;
        left.subtract(rest)?.divide(right, 0).map(Some)
    })
}

fn factorial(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Int64Type>(0)?;
    call.build_decimals(|row| {
        let Some(value) = values.get(row) else { return Ok(None) };
        if value < 0 {
            return Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "factorial of a negative number is undefined"));
        }
        let mut result = i256::ONE;
        for factor in 2..=value {
            result = result.checked_mul(i256::from_i128(i128::from(factor))).ok_or_else(overflow)?;
        }
        Ok(Some(Decimal::new(result, 0)))
    })
}

fn width_bucket(call: &Call<'_>) -> Result<ArrayRef> {
    let values = (0..3).map(|index| call.values::<Float64Type>(index)).collect::<Result<Vec<_>>>()?;
    let counts = call.values::<Int32Type>(3)?;
    call.build::<Int32Type>(|row| {
        let (Some(value), Some(low), Some(high), Some(count)) =
            (values[0].get(row), values[1].get(row), values[2].get(row), counts.get(row))
        else {
            return Ok(None);
        };
        let invalid = |message: &str| Err(PlanError::new("2201G", message));
        if count <= 0 {
            return invalid("count must be greater than zero");
        }
        if low == high || !low.is_finite() || !high.is_finite() || value.is_nan() {
            return invalid("lower bound cannot equal upper bound");
        }
        let (distance, width) = if low < high { (value - low, high - low) } else { (low - value, low - high) };
        Ok(Some(if distance < 0.0 {
            0
        } else if distance >= width {
            count + 1
        } else {
            (distance / width * f64::from(count)) as i32 + 1
        }))
    })
}
