use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};

use super::*;
use crate::{
    graph::OperatorSpec,
    harness::{Harness, Refused, Settings, node},
};

const SECOND: i64 = 1_000_000;

fn bench(slide: WindowStep, size: WindowStep, offset_us: i64, room: usize) -> Harness {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let fields = [("k", DataType::Int64), ("t", time.clone()), ("window_start", time.clone()), ("window_end", time)];
    let fields: Vec<Field> = fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec();
    let input = Arc::new(Schema::new(fields[..2].to_vec()));
    let spec = OperatorSpec::HopWindow { time_column: 1, slide, size, offset_us };
    let settings = Settings { room, ..Settings::default() };
    Harness::new(node(spec, 1, Arc::new(Schema::new(fields))), vec![input], settings)
}

fn seconds(slide: i64, size: i64, offset: i64) -> Harness {
    bench(WindowStep::Micros(slide * SECOND), WindowStep::Micros(size * SECOND), offset * SECOND, 4096)
}

#[test]
fn tumbling_windows_floor_also_before_1970() {
    let mut bench = seconds(10, 10, 0);
    bench.push(0, "+ 1 1970-01-01T00:00:09.999999\n+ 2 1970-01-01T00:00:10\n+ 3 1969-12-31T23:59:59\n+ 4 NULL");
    let expected = "+ 1 1970-01-01T00:00:09.999999 1970-01-01T00:00:00 1970-01-01T00:00:10\n\
                    + 2 1970-01-01T00:00:10 1970-01-01T00:00:10 1970-01-01T00:00:20\n\
                    + 3 1969-12-31T23:59:59 1969-12-31T23:59:50 1970-01-01T00:00:00";
    assert_eq!(bench.barrier(), expected);
}

#[test]
fn hopping_windows_contain_the_row_and_only_the_row() {
    for (slide, size, offset) in [(2, 10, 0), (3, 10, 1), (4, 3, 2), (5, 5, -2), (7, 3, 100)] {
        let windows = Windows::Micros { slide, size, offset: i64::rem_euclid(offset, slide) };
        for time in -50..50 {
            let mut found: Vec<_> = (0..windows.per_row()).filter_map(|back| windows.containing(time, back)).collect();
            found.sort_unstable();
            let all = (-200..200).map(|n| (offset + n * slide, offset + n * slide + size));
            let expected: Vec<_> = all.filter(|(start, end)| *start <= time && time < *end).collect();
            assert_eq!(found, expected, "slide {slide} size {size} offset {offset} time {time}");
            let (start, _) = windows.earliest_open(time).unwrap();
            assert!(expected.iter().all(|(first, _)| *first >= start));
            if slide <= size {
                assert_eq!(start, expected[0].0, "slide {slide} size {size} offset {offset} time {time}");
            }
        }
    }
}

#[test]
fn output_stops_when_full_and_goes_on() {
    let mut bench = bench(WindowStep::Micros(SECOND), WindowStep::Micros(10 * SECOND), 0, 1);
    bench.push(0, "+ 1 2020-01-01T00:00:00");
    bench.barrier();
    bench.push(0, "U- 1 2020-01-01T00:00:00\nU+ 2 2020-01-01T00:00:00");
    let changes = bench.barrier();
    assert_eq!(changes.lines().filter(|line| line.starts_with("- 1 ")).count(), 10);
    assert_eq!(changes.lines().filter(|line| line.starts_with("+ 2 ")).count(), 10);
}

#[test]
fn months_are_calendar_months() {
    let mut bench = bench(WindowStep::Months(3), WindowStep::Months(3), 0, 4096);
    bench.push(0, "+ 1 2024-02-29T23:59:59\n+ 2 1969-12-31T00:00:00\n+ 3 2024-12-01T00:00:00");
    let expected = "+ 1 2024-02-29T23:59:59 2024-01-01T00:00:00 2024-04-01T00:00:00\n\
                    + 2 1969-12-31T00:00:00 1969-10-01T00:00:00 1970-01-01T00:00:00\n\
                    + 3 2024-12-01T00:00:00 2024-10-01T00:00:00 2025-01-01T00:00:00";
    assert_eq!(bench.barrier(), expected);
}

#[test]
fn watermarks_become_those_of_the_earliest_open_window() {
    let mut bench = seconds(2, 10, 0);
    bench.watermark(0, 1, 25 * SECOND);
    assert_eq!(bench.emitted_watermark(1), Some(25 * SECOND));
    assert_eq!(bench.emitted_watermark(2), Some(16 * SECOND));
    assert_eq!(bench.emitted_watermark(3), Some(26 * SECOND));
    bench.push(0, "+ 1 1970-01-01T00:00:25");
    assert_eq!(bench.barrier().lines().count(), 5);
    bench.watermark(0, 1, i64::MAX);
    assert_eq!(bench.emitted_watermark(3), Some(i64::MAX));
}

#[test]
fn sizes_that_are_not_positive_are_refused() {
    let new = |slide, size| HopWindow::new(String::new(), 0, (slide, size, 0), Arc::new(Schema::empty()), Arc::new(Refused::default()));
    for (slide, size) in [(0, 10), (10, 0), (-1, 5)] {
        assert!(new(WindowStep::Micros(slide), WindowStep::Micros(size)).is_err());
    }
    assert!(new(WindowStep::Months(1), WindowStep::Months(2)).is_err());
}

#[test]
fn rows_whose_windows_cannot_be_told_are_refused() {
    let last = i64::MAX - 1;
    let day = Windows::Micros { slide: DAY_US, size: DAY_US, offset: 0 };
    assert!(
        day.are_bounded_at(0) && day.are_bounded_at(last - 2 * DAY_US) && !day.are_bounded_at(last) && !day.are_bounded_at(i64::MIN + 1)
    );
    for windows in [day, Windows::Months { months: 1, offset: 0 }] {
        assert!(![i64::MIN, i64::MAX].into_iter().any(|infinite| windows.are_bounded_at(infinite)));
    }
    // Further than the calendar of most.
    let december = days_from_civil(294_246, 12, 31).map(|day| i64::from(day) * DAY_US).expect("a day");
    let start = days_from_civil(294_246, 12, 1).map(|day| i64::from(day) * DAY_US).expect("a day");
    assert_eq!(Windows::Months { months: 1, offset: 0 }.containing(december, 0), Some((start, december + DAY_US)));
}
