//! The fixed-width types, and their bytes at a fixed width. How they look in keys is in `key/value.rs`.

use arrow::{
    array::ArrowPrimitiveType,
    datatypes::{
        DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, i256,
    },
};

use super::key::KeyValue;

/// Runs generic code for the Arrow type behind a [`DataType`].
pub(super) trait PrimitiveVisitor {
    type Output;

    fn visit<T>(self) -> Self::Output
    where
        T: ArrowPrimitiveType,
        T::Native: FixedValue + KeyValue;
}

/// Calls the visitor with the primitive type of `data_type`; `None` if it is not one that we store.
pub(super) fn visit_primitive<V: PrimitiveVisitor>(data_type: &DataType, visitor: V) -> Option<V::Output> {
    Some(match data_type {
        DataType::Int16 => visitor.visit::<Int16Type>(),
        DataType::Int32 => visitor.visit::<Int32Type>(),
        DataType::Int64 => visitor.visit::<Int64Type>(),
        DataType::Float32 => visitor.visit::<Float32Type>(),
        DataType::Float64 => visitor.visit::<Float64Type>(),
        DataType::Decimal128(_, _) => visitor.visit::<Decimal128Type>(),
        DataType::Decimal256(_, _) => visitor.visit::<Decimal256Type>(),
        DataType::Date32 => visitor.visit::<Date32Type>(),
        DataType::Time64(TimeUnit::Microsecond) => visitor.visit::<Time64MicrosecondType>(),
        DataType::Time64(TimeUnit::Nanosecond) => visitor.visit::<Time64NanosecondType>(),
        DataType::Timestamp(TimeUnit::Second, _) => visitor.visit::<TimestampSecondType>(),
        DataType::Timestamp(TimeUnit::Millisecond, _) => visitor.visit::<TimestampMillisecondType>(),
        DataType::Timestamp(TimeUnit::Microsecond, _) => visitor.visit::<TimestampMicrosecondType>(),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => visitor.visit::<TimestampNanosecondType>(),
        DataType::Interval(IntervalUnit::MonthDayNano) => visitor.visit::<IntervalMonthDayNanoType>(),
        _ => return None,
    })
}

/// Bytes of a value at a fixed width, little-endian.
pub(super) trait FixedValue: Copy + Default {
    /// Bytes of every value.
    const WIDTH: usize;

    /// Writes `WIDTH` bytes.
    fn write(self, out: &mut [u8]);

    /// Reads `WIDTH` bytes.
    fn read(bytes: &[u8]) -> Self;
}

/// The first `N` bytes.
pub(super) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().expect("the caller has checked the width")
}

impl FixedValue for i16 {
    const WIDTH: usize = 2;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for i32 {
    const WIDTH: usize = 4;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for i64 {
    const WIDTH: usize = 8;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for f32 {
    const WIDTH: usize = 4;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for f64 {
    const WIDTH: usize = 8;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for i128 {
    const WIDTH: usize = 16;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for i256 {
    const WIDTH: usize = 32;
    fn write(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        Self::from_le_bytes(array(bytes))
    }
}

impl FixedValue for IntervalMonthDayNano {
    const WIDTH: usize = 16;
    fn write(self, out: &mut [u8]) {
        self.months.write(&mut out[..4]);
        self.days.write(&mut out[4..8]);
        self.nanoseconds.write(&mut out[8..16]);
    }
    fn read(bytes: &[u8]) -> Self {
        Self::new(i32::read(bytes), i32::read(&bytes[4..]), i64::read(&bytes[8..]))
    }
}
