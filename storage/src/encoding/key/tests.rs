use arrow::array::{Float64Array, Int64Array, IntervalMonthDayNanoArray, StringArray, StringViewArray};
use arrow::compute::concat;
use arrow::datatypes::IntervalMonthDayNano;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::sync::Arc;

use super::*;
use crate::encoding::testing::{all_types, random_array, random_types, reference_compare};

fn random_column(rng: &mut StdRng, data_type: DataType) -> SortColumn {
    SortColumn { data_type, descending: rng.random(), nulls_first: rng.random() }
}

#[test]
fn bytes_sort_as_values_do() {
    for seed in 0..300 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let all = all_types();
        let mut types = random_types(rng, rng.clone().random_range(0..3));
        types.push(all[seed as usize % all.len()].clone());
        let columns: Vec<_> = types.into_iter().map(|data_type| random_column(rng, data_type)).collect();
        let arrays: Vec<_> = columns.iter().map(|column| random_array(rng, &column.data_type, 60)).collect();
        let codec = KeyCodec::new(columns.clone()).unwrap();
        let keys = codec.encode(&arrays).unwrap();
        for left in 0..60 {
            for right in 0..60 {
                let expected = columns
                    .iter()
                    .zip(&arrays)
                    .map(|(column, array)| reference_compare(array, left, right, column))
                    .find(|order| order.is_ne())
                    .unwrap_or(std::cmp::Ordering::Equal);
                assert_eq!(
                    keys.row(left).cmp(keys.row(right)),
                    expected,
                    "seed {seed}, rows {left} and {right} of {columns:?}: {arrays:?}"
                );
                assert!(expected.is_eq() || !keys.row(right).starts_with(keys.row(left)), "seed {seed}");
            }
        }
    }
}

#[test]
fn decoding_gives_back_what_encodes_the_same() {
    for seed in 0..300 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let types = random_types(rng, rng.clone().random_range(1..6));
        let columns: Vec<_> = types.into_iter().map(|data_type| random_column(rng, data_type)).collect();
        let rows = rng.random_range(0..100);
        let arrays: Vec<_> = columns.iter().map(|column| random_array(rng, &column.data_type, rows)).collect();
        let codec = KeyCodec::new(columns.clone()).unwrap();
        let keys = codec.encode(&arrays).unwrap();
        let decoded = codec.decode(keys.iter()).unwrap();
        assert_eq!(codec.encode(&decoded).unwrap(), keys, "seed {seed}: {columns:?}");
        for ((column, array), decoded) in columns.iter().zip(&arrays).zip(&decoded) {
            assert_eq!(decoded.data_type(), &column.data_type);
            if !is_lossy(&column.data_type) {
                assert_eq!(decoded, array, "seed {seed}: {column:?}");
            }
        }
        let wanted: Vec<usize> = (0..columns.len()).filter(|_| rng.random()).collect();
        let some = codec.decode_wanted(keys.iter(), &wanted).unwrap();
        // Text form, since NaN is not equal to itself.
        let all: Vec<_> = wanted.iter().map(|index| &decoded[*index]).collect();
        assert_eq!(format!("{some:?}"), format!("{all:?}"), "seed {seed}");
        assert!(keys.iter().all(|key| codec.key_length(&[key, b"rest"].concat()).unwrap() == key.len()));
    }
}

#[test]
fn damaged_keys_are_errors() {
    for seed in 0..300 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let types = random_types(rng, 3);
        let columns: Vec<_> = types.into_iter().map(|data_type| random_column(rng, data_type)).collect();
        let arrays: Vec<_> = columns.iter().map(|column| random_array(rng, &column.data_type, 5)).collect();
        let codec = KeyCodec::new(columns).unwrap();
        for key in codec.encode(&arrays).unwrap().iter() {
            let cut = &key[..rng.random_range(0..key.len())];
            codec.decode([cut].into_iter()).unwrap_err();
            let mut garbled = key.to_vec();
            let at = rng.random_range(0..key.len());
            garbled[at] = rng.random();
            // May decode to other values, but must not panic.
            let _ = codec.decode([garbled.as_slice()].into_iter());
        }
    }
}

#[test]
fn layouts_of_text_encode_the_same() {
    let codec = KeyCodec::ascending(&[DataType::Utf8View]).unwrap();
    let values = vec![Some("a"), None, Some("a\0b\u{1}"), Some("")];
    let views: ArrayRef = Arc::new(StringViewArray::from(values.clone()));
    let texts: ArrayRef = Arc::new(StringArray::from(values));
    let keys = codec.encode(std::slice::from_ref(&views)).unwrap();
    assert_eq!(codec.encode(&[texts]).unwrap(), keys);
    assert_eq!(&codec.decode(keys.iter()).unwrap()[0], &views);
    codec.encode(&[Arc::new(Int64Array::from(vec![1]))]).unwrap_err();
}

#[test]
fn appended_rows_stand_behind_those_before() {
    let codec = KeyCodec::ascending(&[DataType::Int64, DataType::Utf8]).unwrap();
    let rng = &mut StdRng::seed_from_u64(1);
    let mut keys = EncodedRows::new();
    let mut parts = Vec::new();
    for rows in [3, 0, 70] {
        let part = [random_array(rng, &DataType::Int64, rows), random_array(rng, &DataType::Utf8, rows)];
        codec.encode_into(&part, &mut keys).unwrap();
        parts.push(part);
    }
    let whole = [0, 1].map(|column| concat(&parts.iter().map(|part| part[column].as_ref()).collect::<Vec<_>>()).unwrap());
    assert_eq!(codec.encode(&whole).unwrap(), keys);
}

#[test]
fn equal_floats_and_intervals_are_one_key() {
    let codec = KeyCodec::ascending(&[DataType::Float64]).unwrap();
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY]));
    let keys = codec.encode(&[floats]).unwrap();
    assert_eq!(keys.row(0), keys.row(1));
    assert_eq!(keys.row(2), keys.row(3));
    assert!(keys.row(2) > keys.row(4));

    let day = 86_400_000_000_000;
    let codec = KeyCodec::ascending(&[DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano)]).unwrap();
    let intervals = [(1, 0, 0), (0, 30, 0), (0, 0, 30 * day), (2, -30, 0)].map(|(m, d, n)| IntervalMonthDayNano::new(m, d, n));
    let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(intervals.to_vec()));
    let keys = codec.encode(&[intervals]).unwrap();
    assert!(keys.iter().all(|key| key == keys.row(0)));
    let expected: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 0, 0); 4]));
    assert_eq!(&codec.decode(keys.iter()).unwrap()[0], &expected);
}

/// Stored bytes outlive a release: these must never change.
#[test]
fn version_1_is_what_it_was() {
    let codec = KeyCodec::new(vec![
        SortColumn::ascending(DataType::Int32),
        SortColumn { data_type: DataType::Utf8View, descending: true, nulls_first: true },
        SortColumn::ascending(DataType::Decimal128(10, 2)),
    ])
    .unwrap();
    let columns: [ArrayRef; 3] = [
        Arc::new(arrow::array::Int32Array::from(vec![Some(-2), None])),
        Arc::new(StringViewArray::from(vec![Some("a"), None])),
        Arc::new(arrow::array::Decimal128Array::from(vec![300, -300]).with_precision_and_scale(10, 2).unwrap()),
    ];
    let keys = codec.encode(&columns).unwrap();
    assert_eq!(keys.row(0), [1, 0x7F, 0xFF, 0xFF, 0xFE, 1, !b'a', 0xFF, 1, 0x82, 0x01, 0x2C]);
    assert_eq!(keys.row(1), [2, 0, 1, 0x7D, 0xFE, 0xD4]);
}
