use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{
    graph::OperatorSpec,
    harness::{Harness, Settings, node},
};

/// 2026-01-01 00:00:00.
const BASE: i64 = 1_767_225_600_000_000;

fn input() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true), Field::new("w", time, true)]))
}

fn bench(settings: Settings) -> Harness {
    Harness::new(node(OperatorSpec::EmitOnWindowClose { column: 1 }, 1, input()), vec![input()], settings)
}

fn line(sign: char, x: i64, second: i64) -> String {
    format!("{sign} {x} 2026-01-01T00:00:{second:02}")
}

#[test]
fn a_window_is_emitted_as_of_the_epoch_in_which_it_closes() {
    let mut bench = bench(Settings::default());
    bench.push(0, &[line('+', 1, 10), line('+', 2, 10), line('+', 2, 10), line('+', 3, 20), "+ 4 NULL".into()].join("\n"));
    assert_eq!(bench.barrier(), "");
    bench.watermark(0, 1, BASE + 10_000_000);
    assert_eq!(bench.barrier(), "");
    bench.watermark(0, 1, BASE + 10_000_001);
    // Changes of the same epoch count, wherever they stand to the watermark.
    bench.push(0, &[line('-', 1, 10), line('+', 5, 10)].join("\n"));
    assert_eq!(bench.barrier().lines().count(), 3);
    assert_eq!(bench.emitted_watermark(1), Some(BASE + 10_000_001));
    bench.push(0, &[line('-', 5, 10), line('+', 6, 20)].join("\n"));
    assert_eq!((bench.barrier().as_str(), bench.late().len()), ("", 1));
    bench.watermark(0, 1, i64::MAX);
    assert_eq!(bench.barrier().lines().count(), 2);
}

#[test]
fn output_equals_the_closed_windows_of_a_random_history() {
    for seed in 0..20 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut bench = bench(Settings { room: random.random_range(1..50), ..Settings::default() });
        let mut rows: Vec<(i64, i64)> = Vec::new();
        let mut closed: BTreeMap<String, i64> = BTreeMap::new();
        let mut watermark = 0;
        for _ in 0..20 {
            for _ in 0..random.random_range(0..40) {
                let open: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].1 >= watermark).collect();
                if !open.is_empty() && random.random_bool(0.4) {
                    let (x, second) = rows.swap_remove(open[random.random_range(0..open.len())]);
                    bench.push(0, &line('-', x, second));
                } else {
                    let row = (random.random_range(0..4), random.random_range(watermark..watermark + 5));
                    rows.push(row);
                    bench.push(0, &line('+', row.0, row.1));
                }
                if random.random_bool(0.03) {
                    bench.restart(random.random_range(1..4));
                }
            }
            watermark += random.random_range(0..3);
            bench.watermark(0, 1, BASE + watermark * 1_000_000);
            bench.barrier();
            for (x, second) in rows.extract_if(.., |row| row.1 < watermark) {
                *closed.entry(line('+', x, second)[2..].to_owned()).or_default() += 1;
            }
            let shown: i64 = bench.contents().values().sum();
            assert_eq!((shown, bench.contents().len()), (closed.values().sum(), closed.len()), "seed {seed}");
        }
    }
}

#[test]
fn what_was_late_before_a_restart_is_late_after_it() {
    let mut bench = bench(Settings { parallelism: 2, ..Settings::default() });
    bench.push(0, &[line('+', 1, 10), line('+', 1, 30)].join("\n"));
    bench.watermark(0, 1, BASE + 20_000_000);
    assert_eq!(bench.barrier().lines().count(), 1);
    for parallelism in [3, 1] {
        bench.restart(parallelism);
        bench.push(0, &[line('+', 2, 10), line('+', 2, 19)].join("\n"));
        assert_eq!(bench.barrier(), "", "the window at 10 has been emitted, and the one at 19 would have been");
    }
    assert_eq!(bench.late().len(), 4);
    bench.watermark(0, 1, i64::MAX);
    assert_eq!(bench.barrier().lines().count(), 1);
}
