//! Random histories: whatever comes in whatever portions from both sides, the output equals a recomputation.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{append_only, bench, input, spec};
use crate::{
    chunk::Chunk,
    graph::JoinKind,
    harness::{Contents, Harness, Settings, first_difference},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    k: Option<i64>,
    v: i64,
}

pub(super) const KINDS: [JoinKind; 9] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::LeftSemi,
    JoinKind::LeftAnti,
    JoinKind::RightSemi,
    JoinKind::RightAnti,
    JoinKind::LeftMark,
];

impl Row {
    fn draw(random: &mut SmallRng, keys: i64) -> Self {
        let k = random.random_bool(0.95).then(|| random.random_range(0..keys));
        Self { k, v: random.random_range(0..6) }
    }

    fn text(&self) -> String {
        format!("{} {}", self.k.map_or("NULL".into(), |k| k.to_string()), self.v)
    }
}

fn expected(kind: JoinKind, with_condition: bool, left: &[Row], right: &[Row]) -> Contents {
    let matches = |l: &Row, r: &Row| !with_condition || l.v < r.v;
    let (by_left, by_right) = (by_key(left), by_key(right));
    let mut contents = Contents::new();
    let mut add = |line: String| *contents.entry(line).or_default() += 1;
    let pairs = matches!(kind, JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full);
    for l in left {
        let partners: Vec<&Row> = by_right.get(&l.k).into_iter().flatten().copied().filter(|r| matches(l, r)).collect();
        if pairs {
            partners.iter().for_each(|r| add(format!("{} {}", l.text(), r.text())));
        }
        match (kind, partners.is_empty()) {
            (JoinKind::Left | JoinKind::Full, true) => add(format!("{} NULL NULL", l.text())),
            (JoinKind::LeftSemi, false) | (JoinKind::LeftAnti, true) => add(l.text()),
            (JoinKind::LeftMark, alone) => add(format!("{} {}", l.text(), !alone)),
            _ => {}
        }
    }
    for r in right {
        let alone = !by_left.get(&r.k).into_iter().flatten().any(|l| matches(l, r));
        match (kind, alone) {
            (JoinKind::Right | JoinKind::Full, true) => add(format!("NULL NULL {}", r.text())),
            (JoinKind::RightSemi, false) | (JoinKind::RightAnti, true) => add(r.text()),
            _ => {}
        }
    }
    contents
}

/// Rows that can match, by key.
fn by_key(rows: &[Row]) -> BTreeMap<Option<i64>, Vec<&Row>> {
    let mut keys: BTreeMap<_, Vec<_>> = BTreeMap::new();
    rows.iter().filter(|row| row.k.is_some()).for_each(|row| keys.entry(row.k).or_default().push(row));
    keys
}

struct History {
    random: SmallRng,
    sides: [Vec<Row>; 2],
    keys: i64,
    deletes: bool,
}

impl History {
    /// Changes of one side for one epoch, in random order.
    fn changes(&mut self, side: usize, most: usize) -> Vec<String> {
        let mut changes = Vec::new();
        for _ in 0..self.random.random_range(0..most) {
            let rows = &mut self.sides[side];
            if self.deletes && !rows.is_empty() && self.random.random_bool(0.45) {
                let row = rows.swap_remove(self.random.random_range(0..rows.len()));
                changes.push(format!("- {} NULL x", row.text()));
            } else {
                let row = Row::draw(&mut self.random, self.keys);
                rows.push(row);
                changes.push(format!("+ {} NULL x", row.text()));
            }
        }
        for place in (1..changes.len()).rev() {
            changes.swap(place, self.random.random_range(0..=place));
        }
        changes
    }

    fn feed(&mut self, bench: &mut Harness, changes: [Vec<String>; 2]) {
        let mut rest = [changes[0].as_slice(), changes[1].as_slice()];
        while rest.iter().any(|rest| !rest.is_empty()) {
            let side = self.random.random_range(0..2);
            if rest[side].is_empty() {
                continue;
            }
            let (now, later) = rest[side].split_at(self.random.random_range(1..=rest[side].len().min(4096)));
            let schema = input(["l", "r"][side]);
            bench.push_chunk(side, Chunk::parse(&schema, &now.join("\n")).unwrap());
            rest[side] = later;
            if self.random.random_bool(0.03) {
                bench.restart(self.random.random_range(1..4));
            }
        }
    }
}

fn run(seed: u64, kind: JoinKind, with_condition: bool, deletes: bool, settings: Settings, (keys, most, epochs): (i64, usize, usize)) {
    let mut history = History { random: SmallRng::seed_from_u64(seed), sides: [Vec::new(), Vec::new()], keys, deletes };
    let spec = spec(kind, with_condition);
    let mut bench = bench(if deletes { spec } else { append_only(spec) }, settings);
    for epoch in 0..epochs {
        let changes = [history.changes(0, most), history.changes(1, most)];
        history.feed(&mut bench, changes);
        bench.barrier();
        let expected = expected(kind, with_condition, &history.sides[0], &history.sides[1]);
        assert_eq!(
            first_difference(bench.contents(), &expected),
            None,
            "seed {seed} {kind:?} condition {with_condition} deletes {deletes} epoch {epoch}"
        );
        if history.random.random_bool(0.1) {
            bench.restart(history.random.random_range(1..4));
        }
    }
}

#[test]
fn output_equals_a_recomputation() {
    for seed in 0..4 {
        for kind in KINDS {
            for (with_condition, deletes) in [(false, true), (true, true), (false, false), (true, false)] {
                let settings = Settings { room: 1 + seed as usize * 20, ..Settings::default() };
                run(seed, kind, with_condition, deletes, settings, (4, 20, 12));
            }
        }
    }
}

#[test]
fn large_sides_in_little_memory() {
    for (seed, kind) in [(77, JoinKind::Full), (78, JoinKind::LeftSemi)] {
        let settings = Settings { budget_bytes: 4 << 20, ..Settings::default() };
        run(seed, kind, true, true, settings, (5_000, 20_000, 4));
    }
}
