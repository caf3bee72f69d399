//! Chooses the accumulator of an aggregate call.

use arrow::datatypes::{DataType, i256};

use super::{
    Accumulator, ExtremeBytes, OrderedValues,
    bits::BitXor,
    boolean::Boolean,
    count::Count,
    extreme::extreme,
    float::FloatSum,
    interval::IntervalSum,
    numeric::scale_of,
    sum::Sum,
    variance::{ExactVariance, FloatVariance, VarianceKind},
};
use crate::{
    error::{EngineError, Result},
    graph::{AggregateCall, AggregateFunction},
};

/// How a call is kept.
pub(crate) enum CallState {
    /// A summary that rows are added to and taken from.
    Summary(Box<dyn Accumulator>),
    /// The head of a multiset.
    Extreme(ExtremeBytes),
    /// All of a multiset, in order.
    Ordered(OrderedValues),
}

impl CallState {
    /// What all calls have in common.
    pub(crate) fn accumulator(&self) -> &dyn Accumulator {
        match self {
            CallState::Summary(accumulator) => accumulator.as_ref(),
            CallState::Extreme(accumulator) => accumulator,
            CallState::Ordered(accumulator) => accumulator,
        }
    }

    /// What all calls have in common.
    pub(crate) fn accumulator_mut(&mut self) -> &mut dyn Accumulator {
        match self {
            CallState::Summary(accumulator) => accumulator.as_mut(),
            CallState::Extreme(accumulator) => accumulator,
            CallState::Ordered(accumulator) => accumulator,
        }
    }
}

/// The most digits of which as many values as can ever be counted sum up within 128 bits for all practical purposes; the carry word
/// catches the rest.
const NARROW_DIGITS: u8 = 24;

/// The empty state of a call over input columns of these types.
pub(crate) fn call_state(call: &AggregateCall, types: &[DataType], append_only: bool) -> Result<CallState> {
    let argument = call.arguments.first().map(|column| &types[*column]);
    let unsupported = || {
        let shown = argument.map_or("*".to_owned(), ToString::to_string);
        EngineError::user("0A000", format!("aggregate {:?} over {shown} is not supported in a view", call.function))
    };
    let summary = |accumulator: Option<Box<dyn Accumulator>>| accumulator.map(CallState::Summary).ok_or_else(unsupported);
    match call.function {
        AggregateFunction::Count => summary(Some(Box::<Count>::default())),
        AggregateFunction::Sum => summary(argument.and_then(|argument| sum(false, argument, &call.output))),
        AggregateFunction::Avg => summary(argument.and_then(|argument| sum(true, argument, &call.output))),
        AggregateFunction::BoolAnd => summary(Some(Box::new(Boolean::new(true)))),
        AggregateFunction::BoolOr => summary(Some(Box::new(Boolean::new(false)))),
        AggregateFunction::BitXor => summary(Some(Box::new(BitXor::new(call.output.clone())))),
        AggregateFunction::Variance { sample, root } => {
            let kind = VarianceKind { sample, root, output: call.output.clone() };
            summary(argument.and_then(|argument| variance(kind, argument)))
        }
        AggregateFunction::Min | AggregateFunction::Max => {
            let largest = call.function == AggregateFunction::Max;
            let argument = argument.ok_or_else(unsupported)?;
            match extreme(largest, argument).filter(|_| append_only) {
                Some(accumulator) => Ok(CallState::Summary(accumulator)),
                None => Ok(CallState::Extreme(ExtremeBytes::new(largest, argument.clone())?)),
            }
        }
        AggregateFunction::StringAgg | AggregateFunction::ArrayAgg | AggregateFunction::FirstValue | AggregateFunction::LastValue => {
            Ok(CallState::Ordered(OrderedValues::new(call, types)?))
        }
    }
}

fn sum(average: bool, argument: &DataType, output: &DataType) -> Option<Box<dyn Accumulator>> {
    let (input, out) = (argument.clone(), output.clone());
    match argument {
        DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Box::new(Sum::<i128>::new(average, input, out))),
        DataType::Decimal128(digits, _) if *digits <= NARROW_DIGITS || !matches!(output, DataType::Decimal256(_, _)) => {
            Some(Box::new(Sum::<i128>::new(average, input, out)))
        }
        DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => Some(Box::new(Sum::<i256>::new(average, input, out))),
        DataType::Float32 | DataType::Float64 => Some(Box::new(FloatSum::new(average, out))),
        DataType::Interval(_) => Some(Box::new(IntervalSum::new(average))),
        _ => None,
    }
}

fn variance(kind: VarianceKind, argument: &DataType) -> Option<Box<dyn Accumulator>> {
    match argument {
        DataType::Float32 | DataType::Float64 => Some(Box::new(FloatVariance::new(kind))),
        DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => {
            debug_assert!(scale_of(argument) >= 0);
            Some(Box::new(ExactVariance::new(kind, argument)))
        }
        _ => None,
    }
}
