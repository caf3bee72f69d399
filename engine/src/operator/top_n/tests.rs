use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{
    chunk::Chunk,
    graph::{OperatorSpec, OrderColumn, RankKind, TopNSpec},
    harness::{Contents, Harness, Settings, check_epochs_apart, node},
};

fn columns(list: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(list.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect::<Vec<_>>()))
}

fn input() -> SchemaRef {
    columns(&[("k", DataType::Int64), ("x", DataType::Int64), ("s", DataType::Utf8View), ("f", DataType::Float64)])
}

fn order(column: usize, descending: bool) -> OrderColumn {
    OrderColumn { column, descending, nulls_first: descending }
}

fn spec(limit: u64) -> TopNSpec {
    TopNSpec {
        partition_by: vec![0],
        order_by: vec![order(1, true)],
        limit: Some(limit),
        offset: 0,
        rank: RankKind::RowNumber,
        emit_rank: false,
        append_only_input: false,
        expiry: None,
    }
}

fn bench_over(input: &SchemaRef, spec: TopNSpec, settings: Settings) -> Harness {
    let mut fields: Vec<Field> = input.fields().iter().map(|field| field.as_ref().clone()).collect();
    if spec.emit_rank {
        fields.push(Field::new("rank", DataType::Int64, false));
    }
    Harness::new(node(OperatorSpec::TopN(spec), 1, Arc::new(Schema::new(fields))), vec![input.clone()], settings)
}

fn bench(spec: TopNSpec) -> Harness {
    bench_over(&input(), spec, Settings::default())
}

#[test]
fn changes_of_the_window_are_netted_per_epoch() {
    for append_only_input in [true, false] {
        let mut bench = bench(TopNSpec { append_only_input, ..spec(2) });
        bench.push(0, "+ 1 5 a 0.5\n+ 1 7 b 0.5\n+ 2 1 c 0.5\n+ 1 9 d 0.5\n+ 1 6 e 0.5");
        assert_eq!(bench.barrier(), "+ 1 7 b 0.5\n+ 1 9 d 0.5\n+ 2 1 c 0.5");
        bench.push(0, "+ 1 1 z 0.5");
        assert_eq!(bench.barrier(), "");
        bench.push(0, "+ 1 8 f 0.5\n+ 1 10 g 0.5");
        assert_eq!(bench.barrier(), "+ 1 10 g 0.5\n- 1 7 b 0.5");
    }
}

#[test]
fn a_deleted_row_makes_room_for_the_next() {
    let mut bench = bench(spec(2));
    bench.push(0, "+ 1 5 a 0.5\n+ 1 7 b 0.5\n+ 1 9 d 0.5");
    bench.barrier();
    bench.push(0, "- 1 9 d 0.5");
    assert_eq!(bench.barrier(), "+ 1 5 a 0.5\n- 1 9 d 0.5");
    // A delete may come before the insert of its row.
    bench.push(0, "- 1 4 q 0.5\n- 1 7 b 0.5");
    bench.push(0, "+ 1 4 q 0.5");
    assert_eq!(bench.barrier(), "- 1 7 b 0.5");
}

#[test]
fn ranks_follow_the_rows() {
    let mut bench = bench(TopNSpec { emit_rank: true, ..spec(3) });
    bench.push(0, "+ 1 5 a 0.5\n+ 1 7 b 0.5");
    assert_eq!(bench.barrier(), "+ 1 5 a 0.5 2\n+ 1 7 b 0.5 1");
    bench.push(0, "+ 1 9 c 0.5");
    assert_eq!(bench.barrier(), "- 1 5 a 0.5 2\n+ 1 5 a 0.5 3\n- 1 7 b 0.5 1\n+ 1 7 b 0.5 2\n+ 1 9 c 0.5 1");
}

#[test]
fn a_global_limit_with_offset() {
    let mut bench = bench(TopNSpec { partition_by: vec![], order_by: vec![order(1, false)], offset: 1, ..spec(2) });
    bench.push(0, "+ 1 5 a 0.5\n+ 2 7 b 0.5\n+ 3 9 d 0.5\n+ 4 NULL e 0.5");
    assert_eq!(bench.barrier(), "+ 2 7 b 0.5\n+ 3 9 d 0.5");
    bench.push(0, "- 1 5 a 0.5");
    assert_eq!(bench.barrier(), "- 2 7 b 0.5\n+ 4 NULL e 0.5");
}

#[test]
fn values_come_back_exactly() {
    let interval = DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano);
    let input = columns(&[("k", DataType::Int64), ("f", DataType::Float64), ("i", interval)]);
    for append_only_input in [true, false] {
        let spec = TopNSpec { order_by: vec![order(1, false)], append_only_input, ..spec(3) };
        let mut bench = bench_over(&input, spec, Settings::default());
        let zero = arrow::array::Float64Array::from(vec![-0.0, 1.5]);
        let spans = arrow::array::IntervalMonthDayNanoArray::from(vec![
            arrow::datatypes::IntervalMonthDayNano::new(1, 0, 0),
            arrow::datatypes::IntervalMonthDayNano::new(0, 0, 5_000),
        ]);
        let keys = arrow::array::Int64Array::from(vec![1, 1]);
        let batch =
            arrow::record_batch::RecordBatch::try_new(input.clone(), vec![Arc::new(keys), Arc::new(zero), Arc::new(spans)]).unwrap();
        let chunk = Chunk::inserts(batch);
        let mut expected: Vec<String> = chunk.lines();
        expected.sort();
        bench.push_chunk(0, chunk);
        bench.restart(1);
        assert_eq!(bench.barrier(), expected.join("\n"));
    }
}

#[test]
fn partitions_below_the_watermark_are_dropped() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let input = columns(&[("w", time), ("x", DataType::Int64)]);
    for append_only_input in [true, false] {
        let spec = TopNSpec { append_only_input, expiry: Some(0), ..spec(1) };
        let mut bench = bench_over(&input, spec, Settings::default());
        bench.push(0, "+ 2026-01-01T00:00:10 1\n+ 2026-01-01T00:00:10 2\n+ 2026-01-01T00:00:20 5");
        let ten = 1_767_225_610_000_000;
        bench.watermark(0, 0, ten);
        assert_eq!(bench.barrier().lines().count(), 2);
        assert_eq!(bench.emitted_watermark(0), Some(ten));
        // The window's value equals the watermark: it may still change.
        bench.push(0, "+ 2026-01-01T00:00:10 3");
        assert_eq!(bench.barrier().lines().count(), 2);
        bench.watermark(0, 0, ten + 1);
        assert_eq!(bench.barrier(), "");
        bench.push(0, "+ 2026-01-01T00:00:10 9\n+ 2026-01-01T00:00:20 4");
        assert_eq!(bench.barrier(), "");
        assert_eq!(bench.late().len(), 1);
        bench.push(0, "+ 2026-01-01T00:00:20 6");
        assert_eq!(bench.barrier().lines().count(), 2);
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Row {
    k: i64,
    x: Option<i64>,
    s: char,
}

impl Row {
    fn draw(random: &mut SmallRng, keys: i64) -> Self {
        let x = random.random_bool(0.9).then(|| random.random_range(0..12));
        Self { k: random.random_range(0..keys), x, s: random.random_range('a'..'d') }
    }

    fn text(&self) -> String {
        let x = self.x.map_or("NULL".to_owned(), |x| x.to_string());
        format!("{} {x} {} 0.5", self.k, self.s)
    }

    /// `ORDER BY x DESC` has NULLs first; ties go by the other columns.
    fn order(&self, other: &Self) -> Ordering {
        let x = |row: &Self| row.x.map_or(i64::MIN, |x| -x);
        x(self).cmp(&x(other)).then(self.k.cmp(&other.k)).then(self.s.cmp(&other.s))
    }
}

fn expected(spec: &TopNSpec, rows: &[Row]) -> Contents {
    let mut partitions: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| partitions.entry(if spec.partition_by.is_empty() { 0 } else { row.k }).or_default().push(row));
    let mut contents = Contents::new();
    for mut rows in partitions.into_values() {
        rows.sort_by(|left, right| left.order(right));
        let (mut rank, mut dense) = (0, 0);
        for (position, row) in rows.iter().enumerate() {
            if position == 0 || rows[position - 1].x != row.x {
                rank = position as u64 + 1;
                dense += 1;
            }
            let number = match spec.rank {
                RankKind::RowNumber => position as u64 + 1,
                RankKind::Rank => rank,
                RankKind::DenseRank => dense,
            };
            if number > spec.offset && spec.limit.is_none_or(|limit| number <= spec.offset + limit) {
                let text = if spec.emit_rank { format!("{} {number}", row.text()) } else { row.text() };
                *contents.entry(text).or_default() += 1;
            }
        }
    }
    contents
}

/// Changes that lead from one bag to another, in random order: deletes may come before inserts of the same row.
fn step(random: &mut SmallRng, rows: &mut Vec<Row>, keys: i64, most: usize, append_only: bool) -> Vec<String> {
    let mut changes = Vec::new();
    for _ in 0..random.random_range(0..most) {
        if !append_only && !rows.is_empty() && random.random_bool(0.45) {
            changes.push(format!("- {}", rows.swap_remove(random.random_range(0..rows.len())).text()));
        } else {
            let row = Row::draw(random, keys);
            changes.push(format!("+ {}", row.text()));
            rows.push(row);
        }
    }
    for place in (1..changes.len()).rev() {
        changes.swap(place, random.random_range(0..=place));
    }
    changes
}

/// Compares contents, and shows the first differences only.
fn check(shown: &Contents, expected: &Contents, context: &str) {
    let missing: Vec<_> = expected.iter().filter(|(row, count)| shown.get(*row) != Some(count)).take(5).collect();
    let extra: Vec<_> = shown.iter().filter(|(row, count)| expected.get(*row) != Some(count)).take(5).collect();
    assert!(missing.is_empty() && extra.is_empty(), "expected {missing:?}, shown {extra:?}, {context}");
}

/// How much a random history is.
struct Size {
    keys: i64,
    budget_bytes: usize,
    /// Changes of an epoch and rows of a chunk, at most.
    changes: usize,
    chunk_rows: usize,
    epochs: usize,
}

fn run(spec: &TopNSpec, seed: u64, size: &Size) {
    let mut random = SmallRng::seed_from_u64(seed);
    let settings = Settings { budget_bytes: size.budget_bytes, room: random.random_range(1..100), ..Settings::default() };
    let mut bench = bench_over(&input(), spec.clone(), settings);
    let mut rows = Vec::new();
    let most_subtasks = if spec.partition_by.is_empty() { 2 } else { 4 };
    for epoch in 0..size.epochs {
        let changes = step(&mut random, &mut rows, size.keys, size.changes, spec.append_only_input);
        let mut rest = changes.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(random.random_range(1..=rest.len().min(size.chunk_rows)));
            bench.push_chunk(0, Chunk::parse(&input(), &now.join("\n")).unwrap());
            if random.random_bool(0.05) {
                bench.restart(random.random_range(1..most_subtasks));
            }
            rest = later;
        }
        bench.barrier();
        check(bench.contents(), &expected(spec, &rows), &format!("seed {seed} epoch {epoch} {spec:?}"));
        if random.random_bool(0.1) {
            bench.restart(random.random_range(1..most_subtasks));
        }
    }
}

#[test]
fn output_equals_a_recomputation() {
    for seed in 0..60 {
        let mut random = SmallRng::seed_from_u64(seed);
        let spec = TopNSpec {
            partition_by: if random.random_bool(0.8) { vec![0] } else { vec![] },
            rank: [RankKind::RowNumber, RankKind::Rank, RankKind::DenseRank][random.random_range(0..3)],
            limit: [Some(1), Some(3), Some(70), None][random.random_range(0..4)],
            offset: [0, 0, 2][random.random_range(0..3)],
            emit_rank: random.random_bool(0.5),
            append_only_input: random.random_bool(0.5),
            ..spec(0)
        };
        run(&spec, seed, &Size { keys: 4, budget_bytes: 64 << 20, changes: 60, chunk_rows: 50, epochs: 15 });
    }
}

#[test]
fn many_partitions_in_little_memory() {
    let size = Size { keys: 50_000, budget_bytes: 4 << 20, changes: 40_000, chunk_rows: 8_000, epochs: 3 };
    run(&TopNSpec { append_only_input: true, ..spec(2) }, 1000, &size);
    run(&spec(2), 1001, &size);
}

#[test]
fn subtasks_that_were_epochs_apart_close_each_epoch_once() {
    check_epochs_apart(|settings| bench_over(&input(), spec(1), settings), "a 0.5");
}
