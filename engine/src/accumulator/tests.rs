use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int32Array, Int64Array},
    datatypes::{DataType, IntervalUnit},
};

use super::*;
use crate::{
    chunk::value_text,
    graph::{AggregateCall, AggregateFunction},
};

fn call(function: AggregateFunction, output: DataType) -> AggregateCall {
    AggregateCall { function, arguments: vec![0], distinct: false, filter: None, order_by: Vec::new(), output }
}

/// The results after adding and then taking away rows, with the state written and read in between.
fn run(function: AggregateFunction, output: DataType, added: &ArrayRef, taken: Option<&ArrayRef>) -> Result<String> {
    let types = [added.data_type().clone()];
    let CallState::Summary(mut state) = call_state(&call(function, output.clone()), &types, taken.is_none())? else {
        panic!("not a summary");
    };
    let CallState::Summary(mut copy) = call_state(&call(function, output), &types, taken.is_none())? else {
        panic!("not a summary");
    };
    state.resize(2);
    copy.resize(1);
    let slots = vec![1; added.len()];
    state.update(&Rows { slots: &slots, signs: None, selected: None }, std::slice::from_ref(added))?;
    let mut bytes = Vec::new();
    state.encode(1, &mut bytes);
    let mut input = bytes.as_slice();
    copy.decode(0, &mut input)?;
    assert!(input.is_empty());
    if let Some(taken) = taken {
        let (slots, signs) = (vec![0; taken.len()], vec![-1; taken.len()]);
        copy.update(&Rows { slots: &slots, signs: Some(&signs), selected: None }, std::slice::from_ref(taken))?;
    }
    assert!(state.evaluate(&[0])?.is_null(0) || function == AggregateFunction::Count);
    Ok(value_text(&copy.evaluate(&[0])?, 0))
}

fn ints(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn doubles(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

#[test]
fn integer_sums_are_wide_and_exact() {
    let numeric = DataType::Decimal128(38, 0);
    let max = ints(&[i64::MAX, i64::MAX, 5]);
    assert_eq!(run(AggregateFunction::Sum, numeric.clone(), &max, None).unwrap(), "18446744073709551619");
    assert_eq!(run(AggregateFunction::Sum, numeric, &max, Some(&ints(&[i64::MAX]))).unwrap(), "9223372036854775812");
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![Some(i32::MAX), None, Some(1)]));
    assert_eq!(run(AggregateFunction::Sum, DataType::Int64, &narrow, None).unwrap(), "2147483648");
    assert!(run(AggregateFunction::Sum, DataType::Int64, &max, None).is_err());
    assert_eq!(run(AggregateFunction::Sum, DataType::Int64, &narrow, Some(&narrow)).unwrap(), "NULL");
}

#[test]
fn averages_have_the_announced_scale() {
    let numeric = DataType::Decimal256(76, 20);
    assert_eq!(run(AggregateFunction::Avg, numeric.clone(), &ints(&[1, 2, 2]), None).unwrap(), "1.66666666666666670000");
    assert_eq!(run(AggregateFunction::Avg, numeric, &ints(&[1, -2, -4]), Some(&ints(&[1]))).unwrap(), "-3.00000000000000000000");
    let money: ArrayRef = Arc::new(Decimal128Array::from(vec![150, 101]).with_precision_and_scale(10, 2).unwrap());
    assert_eq!(run(AggregateFunction::Avg, DataType::Decimal128(38, 4), &money, None).unwrap(), "1.2550");
    assert_eq!(run(AggregateFunction::Sum, DataType::Decimal128(38, 2), &money, None).unwrap(), "2.51");
    assert_eq!(run(AggregateFunction::Avg, DataType::Float64, &ints(&[1, 2]), None).unwrap(), "1.5");
}

#[test]
fn decimal_totals_survive_leaving_their_word() {
    let most = 10i128.pow(38) - 1;
    let huge: ArrayRef = Arc::new(Decimal128Array::from(vec![most; 4]).with_precision_and_scale(38, 0).unwrap());
    let three = huge.slice(0, 3);
    assert!(run(AggregateFunction::Sum, DataType::Decimal128(38, 0), &huge, None).is_err());
    let rest = run(AggregateFunction::Sum, DataType::Decimal128(38, 0), &huge, Some(&three)).unwrap();
    assert_eq!(rest, most.to_string());
    assert!(run(AggregateFunction::Sum, DataType::Decimal256(76, 0), &huge, None).unwrap().starts_with("3999"));
}

#[test]
fn float_sums_are_exact_under_retraction() {
    let values = doubles(&[1e16, 1.0, f64::NAN]);
    let rest = run(AggregateFunction::Sum, DataType::Float64, &values, Some(&doubles(&[f64::NAN, 1e16]))).unwrap();
    assert_eq!(rest, "1.0");
    assert_eq!(run(AggregateFunction::Avg, DataType::Float64, &doubles(&[1.0, 2.0]), None).unwrap(), "1.5");
    let overflow = run(AggregateFunction::Sum, DataType::Float64, &doubles(&[f64::MAX, f64::MAX]), None);
    assert!(overflow.is_err());
    let narrow: ArrayRef = Arc::new(Float32Array::from(vec![0.1f32, 0.2]));
    assert_eq!(run(AggregateFunction::Sum, DataType::Float32, &narrow, None).unwrap(), "0.3");
}

#[test]
fn variances_are_those_of_the_values_that_are_left() {
    let kind = |sample, root| AggregateFunction::Variance { sample, root };
    let numeric = DataType::Decimal256(76, 20);
    let values = ints(&[2, 4, 4, 4, 5, 5, 7, 9]);
    assert_eq!(run(kind(false, false), numeric.clone(), &values, None).unwrap(), "4.00000000000000000000");
    assert_eq!(run(kind(false, true), numeric.clone(), &values, None).unwrap(), "2.00000000000000000000");
    assert_eq!(run(kind(true, false), numeric.clone(), &values, None).unwrap(), "4.57142857142857140000");
    assert_eq!(run(kind(true, true), numeric.clone(), &values, None).unwrap(), "2.13808993529939510000");
    assert_eq!(run(kind(true, false), numeric.clone(), &ints(&[3]), None).unwrap(), "NULL");
    assert_eq!(run(kind(false, false), numeric, &ints(&[3, 9]), Some(&ints(&[9]))).unwrap(), "0.00000000000000000000");
    let floats = doubles(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, 1e200]);
    assert_eq!(run(kind(false, false), DataType::Float64, &floats, Some(&doubles(&[1e200]))).unwrap(), "4.0");
    let floats = doubles(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, 1e100]);
    assert_eq!(run(kind(false, false), DataType::Float64, &floats, Some(&doubles(&[1e100]))).unwrap(), "4.0");
    let near = doubles(&[1e8 + 1.0, 1e8 + 2.0, 1e8 + 3.0]);
    assert_eq!(run(kind(true, false), DataType::Float64, &near, None).unwrap(), "1.0");
}

#[test]
fn logical_and_bitwise_functions() {
    let both: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]));
    let falses: ArrayRef = Arc::new(BooleanArray::from(vec![false]));
    assert_eq!(run(AggregateFunction::BoolAnd, DataType::Boolean, &both, None).unwrap(), "false");
    assert_eq!(run(AggregateFunction::BoolAnd, DataType::Boolean, &both, Some(&falses)).unwrap(), "true");
    assert_eq!(run(AggregateFunction::BoolOr, DataType::Boolean, &both, None).unwrap(), "true");
    assert_eq!(run(AggregateFunction::BitXor, DataType::Int64, &ints(&[6, 3, 3]), Some(&ints(&[3]))).unwrap(), "5");
}

#[test]
fn extremes_put_nan_last_and_make_zeros_equal() {
    let values = doubles(&[1.0, f64::NAN, -0.0, f64::NEG_INFINITY]);
    assert_eq!(run(AggregateFunction::Max, DataType::Float64, &values, None).unwrap(), "NaN");
    assert_eq!(run(AggregateFunction::Min, DataType::Float64, &values, None).unwrap(), "-inf");
    assert_eq!(run(AggregateFunction::Max, DataType::Float64, &doubles(&[-0.0]), None).unwrap(), "0.0");
    assert_eq!(run(AggregateFunction::Min, DataType::Int64, &ints(&[3, -7, 5]), None).unwrap(), "-7");
}

#[test]
fn interval_averages_carry_down() {
    use arrow::{array::IntervalMonthDayNanoArray, datatypes::IntervalMonthDayNano};
    let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
        IntervalMonthDayNano::new(1, 1, 3_600_000_000_000),
        IntervalMonthDayNano::new(0, 0, 0),
    ]));
    let output = DataType::Interval(IntervalUnit::MonthDayNano);
    assert_eq!(run(AggregateFunction::Sum, output.clone(), &values, None).unwrap(), "\"1 mons 1 days 1 hours\"");
    assert_eq!(run(AggregateFunction::Avg, output, &values, None).unwrap(), "\"15 days 12 hours 30 mins\"");
}
