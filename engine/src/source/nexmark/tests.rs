use std::{sync::Arc, time::Duration};

use arrow::{
    array::AsArray,
    compute::concat_batches,
    datatypes::{Int64Type, TimestampMicrosecondType},
    record_batch::RecordBatch,
};
use millpond_storage::env::Clock;

use crate::source::{Offset, ReadOutcome, Source, SourceOptions, SourceSpec, open_source_with};

async fn open(options: &[(&str, &str)], clock: &Clock) -> Arc<dyn Source> {
    let with =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain([("connector".into(), "nexmark".into())]);
    let options = SourceOptions { with: with.collect(), format: None }.resolved(clock.wall_micros());
    let spec = SourceSpec::new("n", &options, None, None).unwrap();
    open_source_with(&spec, clock.clone()).await.unwrap()
}

async fn read(source: &Arc<dyn Source>, split: usize, from: Offset, limit: Option<Offset>, step: usize) -> RecordBatch {
    let split = source.discover().await.unwrap().splits[split].clone();
    let all: Vec<usize> = (0..source.schema().fields().len()).collect();
    let mut reader = source.open(&split, from, &all).await.unwrap();
    let mut batches = Vec::new();
    while let ReadOutcome::Rows { batch, .. } = reader.read(step, limit).await.unwrap() {
        batches.push(batch);
    }
    concat_batches(&source.schema(), &batches).unwrap()
}

#[tokio::test]
async fn relations_have_their_share_and_go_on_from_any_offset() {
    let clock = Clock::manual(0);
    for (table, count) in [("person", 20), ("auction", 60), ("bid", 920)] {
        let source = open(&[("table", table), ("events", "1000")], &clock).await;
        let whole = read(&source, 0, 0, None, 4096).await;
        assert_eq!(whole.num_rows(), count, "{table}");
        for from in [1, 7, count as u64 - 1] {
            let first = read(&source, 0, 0, Some(from), 3).await;
            let second = read(&source, 0, from, None, 5).await;
            assert_eq!(concat_batches(&source.schema(), &[first, second]).unwrap(), whole, "{table} from {from}");
        }
    }
}

#[tokio::test]
async fn lanes_share_the_events_out() {
    let clock = Clock::manual(0);
    let single = read(&open(&[("table", "bid"), ("events", "500")], &clock).await, 0, 0, None, 4096).await;
    let lanes = open(&[("table", "bid"), ("events", "500"), ("splits", "3")], &clock).await;
    let mut parts = Vec::new();
    for lane in 0..3 {
        parts.push(read(&lanes, lane, 0, None, 100).await);
    }
    assert_eq!(parts.iter().map(RecordBatch::num_rows).sum::<usize>(), single.num_rows());
    for row in 0..single.num_rows() {
        assert_eq!(parts[row % 3].slice(row / 3, 1), single.slice(row, 1));
    }
}

#[tokio::test]
async fn event_time_is_whole_milliseconds_also_after_many_events() {
    let source = open(&[("table", "bid")], &Clock::manual(0)).await;
    let far = 46 * 1_000_000_000;
    let batch = read(&source, 0, far, Some(far + 100), 100).await;
    let times = batch.column_by_name("date_time").unwrap().as_primitive::<TimestampMicrosecondType>();
    // Event 50,000,000,000 is the first of its cycle, bids begin with the fifth; ten events share a millisecond.
    let expected: Vec<i64> = (0..46).map(|bid| 1_767_225_600_000_000 + (50_000_000_000 + 4 + bid) / 10 * 1000).collect();
    assert_eq!(&times.values()[..46], expected.as_slice());
}

#[tokio::test]
async fn wall_clock_events_are_due_at_their_time() {
    let clock = Clock::manual(1_000_000_000);
    let source = open(&[("table", "auction"), ("rate", "1000"), ("event_time", "wall_clock")], &clock).await;
    let split = source.discover().await.unwrap().splits[0].clone();
    assert!(!split.bounded);
    let mut reader = source.open(&split, 0, &[0, 5]).await.unwrap();
    assert!(matches!(reader.read(100, None).await.unwrap(), ReadOutcome::Pending { retry_after_us: 3_000, idle: false }));
    clock.advance(Duration::from_millis(52));
    let ReadOutcome::Rows { batch, end, .. } = reader.read(100, None).await.unwrap() else { panic!("rows are due") };
    assert_eq!(end, 5);
    let times = batch.column(1).as_primitive::<TimestampMicrosecondType>().values().to_vec();
    assert_eq!(times, [1, 2, 3, 51, 52].map(|event| 1_000_000_000 + event * 1000));
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 1000);
    // With a limit the pace does not count.
    let mut follower = source.open(&split, 0, &[0]).await.unwrap();
    assert!(matches!(follower.read(100, Some(50)).await.unwrap(), ReadOutcome::Rows { end: 50, .. }));
    assert!(matches!(follower.read(100, Some(50)).await.unwrap(), ReadOutcome::AtLimit));
}

#[test]
fn wrong_options_are_named() {
    let check = |options: &[(&str, &str)]| {
        let with =
            options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain([("connector".into(), "nexmark".into())]);
        SourceSpec::new("n", &SourceOptions { with: with.collect(), format: None }, None, None)
            .map_or_else(|error| error.to_string(), |_| "ok".into())
    };
    assert_eq!(check(&[("nexmark.table.type", "Bid"), ("nexmark.split.num", "4")]), "ok");
    assert_eq!(check(&[]), "option \"table\" is required for connector \"nexmark\"");
    assert_eq!(check(&[("table", "bids")]), "invalid value for parameter \"table\": \"bids\"");
    assert_eq!(check(&[("table", "bid"), ("event_time", "wall_clock")]), "invalid value for parameter \"event_time\": \"wall_clock\"");
    assert_eq!(check(&[("table", "bid"), ("splits", "0")]), "invalid value for parameter \"splits\": \"0\"");
}
