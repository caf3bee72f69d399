//! Random columns of every stored type, and the order that Postgres gives their values.

use std::{cmp::Ordering, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeBinaryArray, ListArray, NullArray, PrimitiveArray,
        new_empty_array,
    },
    buffer::{NullBuffer, OffsetBuffer},
    compute::concat,
    datatypes::{
        DataType, Decimal128Type, Decimal256Type, Field, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
        IntervalUnit, TimeUnit, i256,
    },
};
use rand::{Rng, rngs::StdRng};

use super::{
    bytes::{ByteColumn, ByteColumnBuilder},
    data_type::is_bytes,
    key::SortColumn,
    primitive::{FixedValue, PrimitiveVisitor, visit_primitive},
};

/// Every scalar type, and arrays of some.
pub(crate) fn all_types() -> Vec<DataType> {
    let list = |element| DataType::List(Arc::new(Field::new_list_field(element, true)));
    vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(20, 4),
        DataType::Decimal256(76, 20),
        DataType::Utf8View,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Binary,
        DataType::BinaryView,
        DataType::LargeBinary,
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::FixedSizeBinary(16),
        list(DataType::Int64),
        list(DataType::Boolean),
        list(DataType::Float64),
        list(DataType::Utf8View),
        list(DataType::Decimal256(76, 20)),
        list(DataType::FixedSizeBinary(16)),
        list(list(DataType::Utf8View)),
    ]
}

/// `count` of the types above.
pub(crate) fn random_types(rng: &mut StdRng, count: usize) -> Vec<DataType> {
    let all = all_types();
    (0..count).map(|_| all[rng.random_range(0..all.len())].clone()).collect()
}

/// A column of random values; many are equal, many at the edges of the type, some NULL. Sometimes a slice of a longer one.
pub(crate) fn random_array(rng: &mut StdRng, data_type: &DataType, rows: usize) -> ArrayRef {
    let before = if rng.random_bool(0.3) { rng.random_range(0..10) } else { 0 };
    let null_rate = if rng.random_bool(0.5) { 0.0 } else { rng.random_range(0.0..0.5) };
    random_values(rng, data_type, before + rows, null_rate).slice(before, rows)
}

fn random_values(rng: &mut StdRng, data_type: &DataType, rows: usize, null_rate: f64) -> ArrayRef {
    let nulls = (null_rate > 0.0).then(|| NullBuffer::from_iter((0..rows).map(|_| !rng.random_bool(null_rate))));
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => Arc::new(BooleanArray::new((0..rows).map(|_| rng.random()).collect(), nulls)),
        DataType::FixedSizeBinary(width) => {
            let data: Vec<u8> = (0..rows * *width as usize).map(|_| random_byte(rng)).collect();
            Arc::new(FixedSizeBinaryArray::new(*width, data.into(), nulls))
        }
        DataType::List(field) => {
            let lengths: Vec<usize> = (0..rows).map(|_| rng.random_range(0..4)).collect();
            let values = random_values(rng, field.data_type(), lengths.iter().sum(), 0.2);
            Arc::new(ListArray::new(field.clone(), OffsetBuffer::from_lengths(lengths), values, nulls))
        }
        other if is_bytes(other) => {
            let binary = matches!(other, DataType::Binary | DataType::BinaryView | DataType::LargeBinary);
            let mut builder = ByteColumnBuilder::with_capacity(rows);
            for _ in 0..rows {
                let length = if rng.random_bool(0.8) { rng.random_range(0..4) } else { rng.random_range(0..40) };
                let bytes: Vec<u8> = (0..length).map(|_| random_byte(rng) & if binary { 0xFF } else { 0x7F }).collect();
                builder.push(&bytes);
            }
            builder.finish(other, nulls).unwrap()
        }
        other => visit_primitive(other, RandomPrimitive { rng, data_type, rows, nulls }).unwrap(),
    }
}

fn random_byte(rng: &mut StdRng) -> u8 {
    *[0, 1, 2, b'a', b'b', 0x7F, 0x80, 0xFE, 0xFF, rng.random()].get(rng.random_range(0..10)).unwrap()
}

struct RandomPrimitive<'r> {
    rng: &'r mut StdRng,
    data_type: &'r DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
}

impl PrimitiveVisitor for RandomPrimitive<'_> {
    type Output = ArrayRef;
    fn visit<T: ArrowPrimitiveType>(self) -> ArrayRef
    where
        T::Native: FixedValue,
    {
        let rng = self.rng;
        let values: Vec<T::Native> = (0..self.rows)
            .map(|_| {
                let mut bytes = [0_u8; 32];
                match rng.random_range(0..6) {
                    0 => {}
                    1 => bytes = [0xFF; 32],
                    2 => bytes[0] = rng.random_range(0..4),
                    3 => {
                        let significant = rng.random_range(0..T::Native::WIDTH);
                        rng.fill(&mut bytes[..significant]);
                        let fill = if rng.random() { 0xFF } else { 0 };
                        bytes[significant..].fill(fill);
                    }
                    4 => bytes[T::Native::WIDTH - 1] = *[0x7F, 0x80, 0xFF, 0x01].get(rng.random_range(0..4)).unwrap(),
                    _ => rng.fill(&mut bytes[..]),
                }
                match self.data_type {
                    DataType::Float64 => special_float(rng, &mut bytes),
                    DataType::Interval(_) => special_interval(rng, &mut bytes),
                    _ => {}
                }
                T::Native::read(&bytes[..T::Native::WIDTH])
            })
            .collect();
        Arc::new(PrimitiveArray::<T>::new(values.into(), self.nulls).with_data_type(self.data_type.clone()))
    }
}

fn special_float(rng: &mut StdRng, bytes: &mut [u8]) {
    let specials = [0.0, -0.0, 1.5, -1.5, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE];
    if rng.random() {
        specials[rng.random_range(0..specials.len())].write(&mut bytes[..8]);
    }
}

fn special_interval(rng: &mut StdRng, bytes: &mut [u8]) {
    if rng.random() {
        let day = 86_400_000_000_000;
        let (months, days, nanos) = (rng.random_range(-2..3), rng.random_range(-31..32), rng.random_range(-2..3));
        IntervalMonthDayNano::new(months, days, nanos * day).write(&mut bytes[..16]);
    }
}

/// The order of rows `left` and `right` of a column, by another way than the codec's.
pub(crate) fn reference_compare(array: &dyn Array, left: usize, right: usize, column: &SortColumn) -> Ordering {
    let is_null = |row| array.data_type() == &DataType::Null || array.is_null(row);
    match (is_null(left), is_null(right)) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if column.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if column.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let order = compare_values(array, left, right);
            if column.descending { order.reverse() } else { order }
        }
    }
}

fn compare_values(array: &dyn Array, left: usize, right: usize) -> Ordering {
    match array.data_type() {
        DataType::Boolean => array.as_boolean().value(left).cmp(&array.as_boolean().value(right)),
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            compare_floats(values.value(left).into(), values.value(right).into())
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            compare_floats(values.value(left), values.value(right))
        }
        DataType::Decimal128(_, _) => {
            let values = array.as_primitive::<Decimal128Type>();
            values.value(left).cmp(&values.value(right))
        }
        DataType::Decimal256(_, _) => {
            let values = array.as_primitive::<Decimal256Type>();
            values.value(left).cmp(&values.value(right))
        }
        DataType::Interval(_) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>();
            let span = |row| {
                let value: IntervalMonthDayNano = values.value(row);
                let days = i256::from_i128(i128::from(value.months) * 30 + i128::from(value.days));
                days.wrapping_mul(i256::from_i128(86_400_000_000_000)).wrapping_add(i256::from_i128(value.nanoseconds.into()))
            };
            span(left).cmp(&span(right))
        }
        DataType::List(field) => {
            let list = array.as_list::<i32>();
            let (left, right) = (list.value(left), list.value(right));
            let both = concat(&[&left, &right, &new_empty_array(field.data_type())]).unwrap();
            let element = SortColumn::ascending(field.data_type().clone());
            let shared = left.len().min(right.len());
            (0..shared)
                .map(|index| reference_compare(&both, index, left.len() + index, &element))
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        other => match ByteColumn::of(array) {
            Some(bytes) => bytes.value(left).cmp(bytes.value(right)),
            None => visit_primitive(other, CompareIntegers { array, left, right }).unwrap(),
        },
    }
}

fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

struct CompareIntegers<'a> {
    array: &'a dyn Array,
    left: usize,
    right: usize,
}

impl PrimitiveVisitor for CompareIntegers<'_> {
    type Output = Ordering;
    fn visit<T: ArrowPrimitiveType>(self) -> Ordering {
        let values = self.array.as_primitive::<T>();
        values.value(self.left).partial_cmp(&values.value(self.right)).unwrap()
    }
}
