//! `min(x)` and `max(x)` of fixed-width values that are never taken away: the extreme value as an integer of the same order, its *rank*.
//!
//! NaN is above all floats and -0.0 equals 0.0, as in Postgres. With deletions, and for other types, see `extreme_bytes`.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray},
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType,
        TimestampMicrosecondType,
    },
};

use super::{
    Accumulator, Rows,
    bytes::{corrupt, get_array, get_integer, put_integer},
    resize_states,
};
use crate::error::{EngineError, Result};

/// The extreme rank per slot.
pub(crate) struct Extreme<R> {
    largest: bool,
    data_type: DataType,
    ranks: Vec<Option<R>>,
}

/// An accumulator for `data_type`, or `None` where values have no rank.
pub(crate) fn extreme(largest: bool, data_type: &DataType) -> Option<Box<dyn Accumulator>> {
    let data_type = data_type.clone();
    match data_type {
        DataType::Decimal128(_, _) => Some(Box::new(Extreme::<i128> { largest, data_type, ranks: Vec::new() })),
        DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Timestamp(_, _) => Some(Box::new(Extreme::<i64> { largest, data_type, ranks: Vec::new() })),
        _ => None,
    }
}

/// The order of doubles, NaN last, as an integer.
#[inline]
fn double_rank(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = (value + 0.0).to_bits() as i64;
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

fn ranked_double(rank: i64) -> f64 {
    match rank {
        i64::MAX => f64::NAN,
        rank => f64::from_bits((if rank < 0 { rank ^ i64::MAX } else { rank }) as u64),
    }
}

/// An integer wide enough for the ranks of some types.
pub(crate) trait Rank: Ord + Copy + Send + Into<i128> + TryFrom<i128> + 'static {
    /// Offers the selected values; whether there was a deletion among them.
    fn offer(extreme: &mut Extreme<Self>, rows: &Rows<'_>, argument: &ArrayRef) -> Result<bool>;

    /// The values of the slots.
    fn collect(extreme: &Extreme<Self>, slots: &[u32]) -> Result<ArrayRef>;
}

impl Rank for i64 {
    fn offer(extreme: &mut Extreme<Self>, rows: &Rows<'_>, argument: &ArrayRef) -> Result<bool> {
        Ok(match argument.data_type() {
            DataType::Int16 => extreme.offer_all::<Int16Type>(rows, argument, i64::from),
            DataType::Int32 => extreme.offer_all::<Int32Type>(rows, argument, i64::from),
            DataType::Int64 => extreme.offer_all::<Int64Type>(rows, argument, |value| value),
            DataType::Date32 => extreme.offer_all::<Date32Type>(rows, argument, i64::from),
            DataType::Time64(_) => extreme.offer_all::<Time64MicrosecondType>(rows, argument, |value| value),
            DataType::Timestamp(_, _) => extreme.offer_all::<TimestampMicrosecondType>(rows, argument, |value| value),
            DataType::Float32 => extreme.offer_all::<Float32Type>(rows, argument, |value| double_rank(value.into())),
            DataType::Float64 => extreme.offer_all::<Float64Type>(rows, argument, double_rank),
            other => return Err(unranked(other)),
        })
    }

    fn collect(extreme: &Extreme<Self>, slots: &[u32]) -> Result<ArrayRef> {
        Ok(match &extreme.data_type {
            DataType::Int16 => extreme.values::<Int16Type>(slots, |rank| rank as i16),
            DataType::Int32 => extreme.values::<Int32Type>(slots, |rank| rank as i32),
            DataType::Int64 => extreme.values::<Int64Type>(slots, |rank| rank),
            DataType::Date32 => extreme.values::<Date32Type>(slots, |rank| rank as i32),
            DataType::Time64(_) => extreme.values::<Time64MicrosecondType>(slots, |rank| rank),
            DataType::Timestamp(_, _) => extreme.values::<TimestampMicrosecondType>(slots, |rank| rank),
            DataType::Float32 => extreme.values::<Float32Type>(slots, |rank| ranked_double(rank) as f32),
            DataType::Float64 => extreme.values::<Float64Type>(slots, ranked_double),
            other => return Err(unranked(other)),
        })
    }
}

impl Rank for i128 {
    fn offer(extreme: &mut Extreme<Self>, rows: &Rows<'_>, argument: &ArrayRef) -> Result<bool> {
        Ok(extreme.offer_all::<Decimal128Type>(rows, argument, |value| value))
    }

    fn collect(extreme: &Extreme<Self>, slots: &[u32]) -> Result<ArrayRef> {
        Ok(extreme.values::<Decimal128Type>(slots, |rank| rank))
    }
}

fn unranked(data_type: &DataType) -> EngineError {
    EngineError::Internal(format!("values of {data_type} have no rank"))
}

impl<R: Rank> Extreme<R> {
    #[inline]
    fn offer_all<A: ArrowPrimitiveType>(&mut self, rows: &Rows<'_>, argument: &ArrayRef, rank: impl Fn(A::Native) -> R) -> bool {
        let array = argument.as_primitive::<A>();
        let values = array.values();
        let (ranks, largest) = (&mut self.ranks, self.largest);
        let mut deletions = false;
        rows.for_each(array.nulls(), |row, slot, sign| {
            let rank = rank(values[row]);
            deletions |= sign < 0;
            let best = &mut ranks[slot];
            if best.is_none_or(|best| if largest { rank > best } else { rank < best }) {
                *best = Some(rank);
            }
        });
        deletions
    }

    fn values<A: ArrowPrimitiveType>(&self, slots: &[u32], value: impl Fn(R) -> A::Native) -> ArrayRef {
        let values = slots.iter().map(|slot| self.ranks[*slot as usize].map(&value));
        Arc::new(values.collect::<PrimitiveArray<A>>().with_data_type(self.data_type.clone()))
    }
}

impl<R: Rank> Accumulator for Extreme<R> {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.ranks, slots, None);
    }

    fn clear(&mut self, slot: u32) {
        self.ranks[slot as usize] = None;
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.ranks[to as usize] = self.ranks[from as usize];
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        match R::offer(self, rows, &arguments[0])? {
            true => Err(EngineError::Internal("a deletion in a changelog without deletions".into())),
            false => Ok(()),
        }
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        R::collect(self, slots)
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let rank = self.ranks[slot as usize];
        out.push(u8::from(rank.is_some()));
        if let Some(rank) = rank {
            put_integer(out, rank.into());
        }
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        let rank = match get_array(input, 1)?[0] {
            0 => None,
            _ => Some(get_integer(input)?.try_into().map_err(|_| corrupt())?),
        };
        self.ranks[slot as usize] = rank;
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.ranks.capacity() * size_of::<Option<R>>()
    }
}
