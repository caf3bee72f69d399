//! Random histories: whatever comes in whatever portions, the output equals a recomputation.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{bench, call, distinct, input, spec};
use crate::{
    chunk::Chunk,
    graph::{AggregateCall, AggregateFunction},
    harness::{Contents, Harness, Settings, first_difference},
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    k: i64,
    x: Option<i64>,
    s: u8,
    b: Option<bool>,
}

impl Row {
    fn draw(random: &mut SmallRng, keys: i64) -> Self {
        let x = random.random_bool(0.9).then(|| random.random_range(-20..20));
        let b = random.random_bool(0.8).then(|| random.random_bool(0.5));
        Self { k: random.random_range(0..keys), x, s: random.random_range(b'a'..b'h'), b }
    }

    fn line(&self, op: &str) -> String {
        let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".into());
        let (x, b) = (text(self.x.map(|x| x.to_string())), text(self.b.map(|b| b.to_string())));
        let f = text(self.x.map(|x| format!("{}", x as f64 * 1e17 + 1.0 / 3.0)));
        format!("{op} {} {x} {} {b} {f} NULL", self.k, self.s as char)
    }
}

fn calls() -> Vec<AggregateCall> {
    let bigint = || DataType::Int64;
    let numeric = || DataType::Decimal128(38, 0);
    let mut filtered = call(AggregateFunction::Sum, &[1], numeric());
    filtered.filter = Some(3);
    vec![
        call(AggregateFunction::Count, &[], bigint()),
        call(AggregateFunction::Sum, &[1], numeric()),
        filtered,
        call(AggregateFunction::Min, &[1], bigint()),
        call(AggregateFunction::Max, &[2], DataType::Utf8View),
        distinct(call(AggregateFunction::Count, &[1], bigint())),
        distinct(call(AggregateFunction::Sum, &[1], numeric())),
        call(AggregateFunction::BoolOr, &[3], DataType::Boolean),
        call(AggregateFunction::StringAgg, &[2], DataType::Utf8View),
    ]
}

/// The output for a bag of rows; float sums are compared by recomputation in order.
fn expected(rows: &[Row]) -> Contents {
    let mut groups: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(row.k).or_default().push(*row));
    let text = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
    let line = |(k, mut rows): (i64, Vec<Row>)| {
        rows.sort_by_key(|row| row.s);
        let values: Vec<i64> = rows.iter().filter_map(|row| row.x).collect();
        let kept: Vec<i64> = rows.iter().filter(|row| row.b == Some(true)).filter_map(|row| row.x).collect();
        let set: BTreeSet<i64> = values.iter().copied().collect();
        let flags: Vec<bool> = rows.iter().filter_map(|row| row.b).collect();
        let total = |values: &[i64]| text((!values.is_empty()).then(|| values.iter().sum()));
        let any = if flags.is_empty() { "NULL".to_owned() } else { flags.contains(&true).to_string() };
        let unique: Vec<i64> = set.iter().copied().collect();
        let largest = rows.last().map_or('?', |row| row.s as char);
        let joined: String = rows.iter().map(|row| row.s as char).collect();
        let (least, count) = (text(values.iter().min().copied()), rows.len());
        let (sum, kept, distinct_sum) = (total(&values), total(&kept), total(&unique));
        format!("{k} {count} {sum} {kept} {least} {largest} {} {distinct_sum} {any} {joined}", set.len())
    };
    groups.into_iter().map(|group| (line(group), 1)).collect()
}

/// Changes that lead from one bag to another, in random order: deletes may come before inserts of the same row.
fn step(random: &mut SmallRng, rows: &mut Vec<Row>, keys: i64, most: usize) -> Vec<String> {
    let mut changes = Vec::new();
    for _ in 0..random.random_range(0..most) {
        match random.random_range(0..10) {
            0..4 if !rows.is_empty() => {
                let row = rows.swap_remove(random.random_range(0..rows.len()));
                changes.push(row.line("-"));
            }
            4..6 if !rows.is_empty() => {
                let place = random.random_range(0..rows.len());
                let after = Row::draw(random, keys);
                changes.push(rows[place].line("-"));
                changes.push(after.line("+"));
                rows[place] = after;
            }
            _ => {
                let row = Row::draw(random, keys);
                changes.push(row.line("+"));
                rows.push(row);
            }
        }
    }
    for place in (1..changes.len()).rev() {
        changes.swap(place, random.random_range(0..=place));
    }
    changes
}

fn feed(bench: &mut Harness, random: &mut SmallRng, changes: &[String], most: usize) {
    let mut rest = changes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(random.random_range(1..=rest.len().min(most)));
        bench.push_chunk(0, Chunk::parse(&input(), &now.join("\n")).unwrap());
        if random.random_bool(0.05) {
            bench.restart(random.random_range(1..4));
        }
        rest = later;
    }
}

fn run(seed: u64, keys: i64, budget_bytes: usize, most: usize, epochs: usize) {
    let portion = if most > 1000 { 4096 } else { 50 };
    let mut random = SmallRng::seed_from_u64(seed);
    let settings = Settings { budget_bytes, room: random.random_range(1..100), ..Settings::default() };
    let mut bench = bench(spec(&[0], calls()), settings);
    let mut rows = Vec::new();
    for epoch in 0..epochs {
        let changes = step(&mut random, &mut rows, keys, most);
        feed(&mut bench, &mut random, &changes, portion);
        bench.barrier();
        let expected = expected(&rows);
        assert_eq!(first_difference(bench.contents(), &expected), None, "seed {seed} epoch {epoch}");
        if random.random_bool(0.1) {
            bench.restart(random.random_range(1..4));
        }
    }
}

#[test]
fn output_equals_a_recomputation() {
    for seed in 0..30 {
        run(seed, 5, 64 << 20, 60, 25);
    }
}

#[test]
fn many_groups_in_little_memory() {
    run(1000, 40_000, 1 << 20, 15_000, 5);
}
