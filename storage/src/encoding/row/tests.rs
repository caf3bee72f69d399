use std::sync::Arc;

use arrow::array::{StringArray, StringViewArray};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::encoding::testing::{all_types, random_array, random_types};

#[test]
fn decoding_gives_back_what_was_encoded() {
    for seed in 0..400 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let all = all_types();
        let mut types = random_types(rng, rng.clone().random_range(0..12));
        types.push(all[seed as usize % all.len()].clone());
        let codec = RowCodec::new(&types).unwrap();
        let rows = rng.random_range(0..80);
        let columns: Vec<_> = types.iter().map(|data_type| random_array(rng, data_type, rows)).collect();
        let encoded = codec.encode(&columns).unwrap();
        assert_eq!(encoded.len(), rows);
        let mut wanted: Vec<usize> = (0..types.len()).filter(|_| rng.random_bool(0.7)).collect();
        wanted.reverse();
        let decoded = codec.decode(encoded.iter(), &wanted).unwrap();
        for (column, decoded) in wanted.iter().zip(&decoded) {
            assert_eq!(decoded.data_type(), &types[*column]);
            // Text form, since NaN is not equal to itself; and bit for bit through the codec again.
            assert_eq!(format!("{decoded:?}"), format!("{:?}", columns[*column]), "seed {seed}");
        }
        let again = codec.decode(encoded.iter(), &(0..types.len()).collect::<Vec<_>>()).unwrap();
        assert_eq!(codec.encode(&again).unwrap(), encoded, "seed {seed}");
    }
}

#[test]
fn damaged_rows_are_errors() {
    for seed in 0..400 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let types = random_types(rng, 4);
        let codec = RowCodec::new(&types).unwrap();
        let columns: Vec<_> = types.iter().map(|data_type| random_array(rng, data_type, 5)).collect();
        let all = [0, 1, 2, 3];
        for row in codec.encode(&columns).unwrap().iter() {
            let cut = &row[..rng.random_range(0..row.len())];
            if cut.len() < codec.fixed_length {
                codec.decode([cut].into_iter(), &all).unwrap_err();
            } else {
                let _ = codec.decode([cut].into_iter(), &all);
            }
            let mut garbled = row.to_vec();
            let at = rng.random_range(0..row.len());
            garbled[at] = rng.random();
            // May decode to other values, but must not panic.
            let _ = codec.decode([garbled.as_slice()].into_iter(), &all);
        }
    }
}

#[test]
fn layouts_of_text_encode_the_same() {
    let codec = RowCodec::new(&[DataType::Utf8View]).unwrap();
    let values = vec![Some("short"), None, Some("longer than twelve bytes"), Some("")];
    let views: ArrayRef = Arc::new(StringViewArray::from(values.clone()));
    let texts: ArrayRef = Arc::new(StringArray::from(values));
    let rows = codec.encode(std::slice::from_ref(&views)).unwrap();
    assert_eq!(codec.encode(&[texts]).unwrap(), rows);
    assert_eq!(&codec.decode(rows.iter(), &[0]).unwrap()[0], &views);
}

/// Stored bytes outlive a release: these must never change.
#[test]
fn version_1_is_what_it_was() {
    let columns: [ArrayRef; 2] =
        [Arc::new(arrow::array::Int16Array::from(vec![Some(258), None])), Arc::new(StringViewArray::from(vec!["ab", ""]))];
    let codec = RowCodec::new(&[DataType::Int16, DataType::Utf8View]).unwrap();
    let rows = codec.encode(&columns).unwrap();
    assert_eq!(rows.row(0), [1, 0, 2, 1, 2, 0, 0, 0, b'a', b'b']);
    assert_eq!(rows.row(1), [1, 1, 0, 0, 0, 0, 0, 0]);
}
