use std::{sync::Arc, time::Duration};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use millpond_storage::env::Clock;

use crate::{
    error::Result,
    format::{csv::CsvFormat, csv_write},
    source::{Offset, ReadOutcome, Source, SourceOptions, SourceSpec, open_source_with},
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Int32, true),
        Field::new("name", DataType::Utf8View, true),
        Field::new("price", DataType::Decimal128(10, 2), true),
        Field::new("ok", DataType::Boolean, true),
        Field::new("key", DataType::FixedSizeBinary(16), true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ]))
}

fn spec(options: &[(&str, &str)], clock: &Clock) -> Result<SourceSpec> {
    let with =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain([("connector".into(), "datagen".into())]);
    let options = SourceOptions { with: with.collect(), format: None }.resolved(clock.wall_micros());
    SourceSpec::new("g", &options, Some(schema()), None)
}

async fn read(source: &Arc<dyn Source>, split: usize, from: Offset, limit: Option<Offset>) -> Vec<String> {
    let split = source.discover().await.unwrap().splits[split].clone();
    let all: Vec<usize> = (0..source.schema().fields().len()).collect();
    let mut reader = source.open(&split, from, &all).await.unwrap();
    let mut text = String::new();
    while let ReadOutcome::Rows { batch, .. } = reader.read(3, limit).await.unwrap() {
        csv_write::write_rows(&CsvFormat { null: "~".into(), ..CsvFormat::default() }, &batch, &mut text).unwrap();
    }
    text.lines().map(str::to_owned).collect()
}

const OPTIONS: [(&str, &str); 9] = [
    ("rows_per_second", "0"),
    ("fields.id.kind", "sequence"),
    ("fields.id.start", "100"),
    ("fields.id.end", "119"),
    ("fields.v.min", "-5"),
    ("fields.v.max", "5"),
    ("fields.v.null_rate", "0.3"),
    ("fields.name.length", "4"),
    ("fields.price.max", "9"),
];

#[tokio::test]
async fn a_sequence_ends_where_its_type_does() {
    let clock = Clock::manual(0);
    let refused = spec(&[("fields.v.kind", "sequence"), ("fields.v.end", "3000000000")], &clock).unwrap_err();
    assert_eq!(refused.to_string(), "invalid value for parameter \"fields.v.end\": \"3000000000\"");
    let options =
        [("rows_per_second", "0"), ("rows", "10"), ("fields.v.kind", "sequence"), ("fields.v.start", "2147483640"), ("fields.v.step", "3")];
    let source = open_source_with(&spec(&options, &clock).unwrap(), clock.clone()).await.unwrap();
    let split = source.discover().await.unwrap().splits[0].clone();
    let mut reader = source.open(&split, 0, &[1]).await.unwrap();
    let failed = reader.read(10, None).await.unwrap_err();
    assert_eq!(failed.to_string(), "the sequence of column \"v\" has left the range of its type");
}

#[tokio::test]
async fn rows_are_a_function_of_their_number() {
    let clock = Clock::manual(0);
    let source = open_source_with(&spec(&OPTIONS, &clock).unwrap(), clock.clone()).await.unwrap();
    let whole = read(&source, 0, 0, None).await;
    assert_eq!(whole.len(), 20);
    for (row, line) in whole.iter().enumerate() {
        let values: Vec<&str> = line.split(',').collect();
        assert_eq!(values[0], (100 + row).to_string());
        assert!(values[1] == "~" || (-5..=5).contains(&values[1].parse::<i32>().unwrap()), "{line}");
        assert!(values[2].len() == 4 && values[3].parse::<f64>().unwrap() <= 9.0, "{line}");
    }
    assert!(whole.iter().any(|line| line.contains('~')));
    for from in [0, 1, 13, 20] {
        let mut parts = read(&source, 0, 0, Some(from)).await;
        parts.extend(read(&source, 0, from, None).await);
        assert_eq!(parts, whole, "from {from}");
    }
    let lanes: Vec<(&str, &str)> = OPTIONS.into_iter().chain([("splits", "3")]).collect();
    let lanes = open_source_with(&spec(&lanes, &clock).unwrap(), clock.clone()).await.unwrap();
    let mut all = [read(&lanes, 0, 0, None).await, read(&lanes, 1, 0, None).await, read(&lanes, 2, 0, None).await].concat();
    all.sort();
    let mut sorted = whole.clone();
    sorted.sort();
    assert_eq!(all, sorted);
}

#[tokio::test]
async fn rows_come_at_their_rate_and_carry_the_time_they_are_due() {
    let clock = Clock::manual(5_000_000);
    let source = open_source_with(&spec(&[("rows_per_second", "4")], &clock).unwrap(), clock.clone()).await.unwrap();
    let split = source.discover().await.unwrap().splits[0].clone();
    assert!(!split.bounded);
    let mut reader = source.open(&split, 0, &[6]).await.unwrap();
    clock.advance(Duration::from_millis(600));
    let ReadOutcome::Rows { batch, end, .. } = reader.read(100, None).await.unwrap() else { panic!("rows are due") };
    let mut text = String::new();
    csv_write::write_rows(&CsvFormat::default(), &batch, &mut text).unwrap();
    assert_eq!((end, text.as_str()), (3, "1970-01-01 00:00:05\n1970-01-01 00:00:05.25\n1970-01-01 00:00:05.5\n"));
    assert!(matches!(reader.read(100, None).await.unwrap(), ReadOutcome::Pending { retry_after_us: 150_000, idle: false }));
}

#[test]
fn wrong_settings_are_named() {
    let check = |options: &[(&str, &str)]| spec(options, &Clock::manual(0)).map_or_else(|error| error.to_string(), |_| "ok".into());
    assert_eq!(check(&[("fields.id.kind", "normal")]), "invalid value for parameter \"fields.id.kind\": \"normal\"");
    assert_eq!(check(&[("fields.nope.kind", "random")]), "option \"fields.nope.kind\" names column \"nope\", which does not exist");
    assert_eq!(check(&[("fields.id.mean", "3")]), "invalid option \"mean\" for column \"id\"");
    assert_eq!(check(&[("fields.v.max", "99999999999")]), "invalid value for parameter \"fields.v.max\": \"99999999999\"");
    assert_eq!(check(&[("fields.name.kind", "sequence")]), "column \"name\" of type Utf8View cannot be a sequence");
}
