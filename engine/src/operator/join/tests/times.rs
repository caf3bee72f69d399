//! Joins that bound the times of their sides: which watermarks come out, and which rows die.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::{
    common::ScalarValue,
    logical_expr::Operator as BinaryOperator,
    physical_expr::expressions::{binary, col, lit},
    physical_plan::PhysicalExpr,
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{append_only, bench, input, spec};
use crate::{
    graph::{Expression, JoinKind, JoinSpec, TimeBound},
    harness::{Contents, Harness, Settings, first_difference},
};

const SECOND: i64 = 1_000_000;
const TIME: usize = 2;
const EPOCHS: u64 = 25;

/// `left + low <= right <= left + high`, in seconds; either may be missing.
#[derive(Clone, Copy, Debug)]
struct Band {
    low: Option<i64>,
    high: Option<i64>,
}

impl Band {
    fn holds(self, left: i64, right: i64) -> bool {
        self.low.is_none_or(|low| left + low <= right) && self.high.is_none_or(|high| right <= left + high)
    }

    /// The condition, with bounds for both sides and expiry where a side is bounded.
    fn apply(self, mut spec: JoinSpec, expires: bool) -> JoinSpec {
        let fields: Vec<_> = input("l").fields().iter().chain(input("r").fields()).cloned().collect();
        let schema: SchemaRef = Arc::new(Schema::new(fields));
        let time = |name: &str| col(name, &schema).unwrap();
        let shifted = |seconds: i64| {
            let interval = lit(ScalarValue::new_interval_mdn(0, 0, seconds * SECOND * 1_000));
            binary(time("lt"), BinaryOperator::Plus, interval, &schema).unwrap()
        };
        let low = self.low.map(|low| binary(shifted(low), BinaryOperator::LtEq, time("rt"), &schema).unwrap());
        let high = self.high.map(|high| binary(time("rt"), BinaryOperator::LtEq, shifted(high), &schema).unwrap());
        let both = |one: Arc<dyn PhysicalExpr>, two| binary(one, BinaryOperator::And, two, &schema).unwrap();
        let physical = [low, high].into_iter().flatten().reduce(both).unwrap();
        spec.condition = Some(Expression { text: physical.to_string(), physical });
        let bound = |seconds: i64| TimeBound { column: TIME, partner: TIME, shift_us: seconds * SECOND };
        spec.left_bounds = self.high.map(|high| bound(-high)).into_iter().collect();
        spec.right_bounds = self.low.map(bound).into_iter().collect();
        spec.left_expiry = (expires && self.high.is_some()).then_some(TIME);
        spec.right_expiry = (expires && self.low.is_some()).then_some(TIME);
        spec
    }
}

/// A join of k whose output has k and t of both sides.
fn banded(kind: JoinKind, band: Band, expires: bool) -> JoinSpec {
    let mut spec = band.apply(spec(kind, false), expires);
    spec.output = match kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => vec![0, 2, 4, 6],
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::RightSemi | JoinKind::RightAnti => vec![0, 2],
        JoinKind::LeftMark => vec![0, 2, 4],
    };
    spec
}

fn row(sign: &str, k: i64, seconds: i64) -> String {
    format!("{sign} {k} 1 {} x", at(seconds))
}

fn at(seconds: i64) -> String {
    format!("1970-01-01T00:{:02}:{:02}", seconds / 60, seconds % 60)
}

fn pair(k: i64, left: i64, right: i64) -> String {
    format!("+ {k} {} {k} {}", at(left), at(right))
}

#[test]
fn rows_die_when_no_match_can_come() {
    for is_append_only in [false, true] {
        // left <= right <= left + 1 s: a left row waits for a second longer.
        let spec = banded(JoinKind::Inner, Band { low: Some(0), high: Some(1) }, true);
        // The condition would hide that the row is gone.
        let mut spec = JoinSpec { condition: None, ..spec };
        spec = if is_append_only { append_only(spec) } else { spec };
        let mut bench = bench(spec, Settings::default());
        bench.push(0, &[row("+", 1, 10), row("+", 1, 30)].join("\n"));
        bench.watermark(0, TIME, 25 * SECOND);
        bench.barrier();
        bench.push(1, &row("+", 1, 20));
        assert_eq!(bench.barrier(), [pair(1, 10, 20), pair(1, 30, 20)].join("\n"));
        bench.restart(2);
        bench.watermark(0, TIME, 25 * SECOND);
        bench.watermark(1, TIME, 20 * SECOND);
        assert_eq!(bench.emitted_watermark(1), Some(19 * SECOND));
        assert_eq!(bench.emitted_watermark(3), Some(20 * SECOND));
        bench.barrier();
        bench.push(1, &row("+", 1, 20));
        assert_eq!(bench.barrier(), pair(1, 30, 20));
    }
}

/// Else an epoch in which the watermark passes much is as long as that takes, and every reader waits for it.
#[test]
fn an_epoch_lets_only_so_many_rows_die() {
    let spec = banded(JoinKind::Inner, Band { low: Some(0), high: Some(1) }, true);
    let mut bench = bench(append_only(JoinSpec { condition: None, ..spec }), Settings::default());
    // Rows of different seconds die one by one.
    let rows = 3_000;
    bench.push(0, &(0..rows).map(|second| row("+", 1, second)).collect::<Vec<_>>().join("\n"));
    bench.barrier();
    (0..2).for_each(|side| bench.watermark(side, TIME, 2 * rows * SECOND));
    let mut used = vec![bench.memory_used()];
    for _ in 0..4 {
        bench.barrier();
        used.push(bench.memory_used());
    }
    assert!(used[0] > used[1] && used[1] > used[2] && used[2] > used[3], "{used:?}");
    assert_eq!(used[3], used[4], "the last are gone: {used:?}");
}

#[test]
fn a_bound_on_one_side_frees_that_side_alone() {
    // right <= left - 5 s
    let spec = banded(JoinKind::Inner, Band { low: None, high: Some(-5) }, true);
    let mut bench = bench(append_only(JoinSpec { condition: None, ..spec }), Settings::default());
    bench.push(0, &[row("+", 1, 20), row("+", 1, 40)].join("\n"));
    bench.push(1, &row("+", 1, 1));
    bench.barrier();
    bench.watermark(1, TIME, 20 * SECOND);
    assert_eq!(bench.emitted_watermark(1), None, "left rows of any time may come");
    bench.watermark(0, TIME, 22 * SECOND);
    assert_eq!(bench.emitted_watermark(1), Some(22 * SECOND));
    bench.watermark(0, TIME, 50 * SECOND);
    assert_eq!(bench.emitted_watermark(1), Some(25 * SECOND), "what comes on the right has partners from here on");
    assert_eq!(bench.emitted_watermark(3), None, "an old right row waits for left ones for ever");
    bench.barrier();
    bench.push(1, &row("+", 1, 21));
    assert_eq!(bench.barrier(), pair(1, 40, 21));
    bench.push(0, &row("+", 1, 50));
    assert_eq!(bench.barrier(), [pair(1, 50, 1), pair(1, 50, 21)].join("\n"));
}

#[test]
fn a_watermark_comes_without_freeing_state_where_rows_may_come_late() {
    let spec = banded(JoinKind::Left, Band { low: Some(-10), high: Some(0) }, false);
    let mut bench = bench(append_only(spec), Settings::default());
    bench.push(0, &row("+", 1, 20));
    bench.watermark(0, TIME, 30 * SECOND);
    bench.watermark(1, TIME, 30 * SECOND);
    assert_eq!(bench.barrier(), format!("+ 1 {} NULL NULL", at(20)));
    assert_eq!((bench.emitted_watermark(1), bench.emitted_watermark(3)), (Some(30 * SECOND), Some(20 * SECOND)));
}

#[test]
fn rows_without_a_time_stay_where_nulls_match() {
    for (null_equal, expected) in [(true, "+ NULL NULL NULL NULL"), (false, "")] {
        let mut spec = append_only(spec(JoinKind::Inner, false));
        spec.on = vec![(TIME, TIME)];
        spec.null_equal = vec![null_equal];
        spec.left_bounds = [TimeBound { column: TIME, partner: TIME, shift_us: 0 }].into();
        spec.right_bounds = spec.left_bounds.clone();
        (spec.left_expiry, spec.right_expiry) = (Some(TIME), Some(TIME));
        spec.output = vec![0, 2, 4, 6];
        let mut bench = bench(spec, Settings::default());
        bench.push(0, "+ NULL 1 NULL x");
        bench.barrier();
        bench.watermark(0, TIME, 60 * SECOND);
        bench.watermark(1, TIME, 60 * SECOND);
        bench.barrier();
        bench.push(1, "+ NULL 1 NULL x");
        assert_eq!(bench.barrier(), expected);
    }
}

type Rows = Vec<(i64, i64)>;

/// The join of all rows there ever were.
fn expected(kind: JoinKind, band: Band, [left, right]: &[Rows; 2]) -> Contents {
    let mut contents = Contents::new();
    let mut add = |line: String| *contents.entry(line).or_default() += 1;
    let text = |(k, t): &(i64, i64)| format!("{k} {}", at(*t));
    let matches = |l: &(i64, i64), r: &(i64, i64)| l.0 == r.0 && band.holds(l.1, r.1);
    let pads_left = matches!(kind, JoinKind::Left | JoinKind::Full);
    let pads_right = matches!(kind, JoinKind::Right | JoinKind::Full);
    let pairs = pads_left || pads_right || kind == JoinKind::Inner;
    for l in left {
        let partners: Vec<_> = right.iter().filter(|r| matches(l, r)).collect();
        if pairs {
            partners.iter().for_each(|r| add(format!("{} {}", text(l), text(r))));
        }
        match (kind, partners.is_empty()) {
            (JoinKind::Left | JoinKind::Full, true) => add(format!("{} NULL NULL", text(l))),
            (JoinKind::LeftSemi, false) | (JoinKind::LeftAnti, true) => add(text(l)),
            (JoinKind::LeftMark, alone) => add(format!("{} {}", text(l), !alone)),
            _ => {}
        }
    }
    for r in right {
        match (kind, left.iter().any(|l| matches(l, r))) {
            (JoinKind::Right | JoinKind::Full, false) => add(format!("NULL NULL {}", text(r))),
            (JoinKind::RightSemi, true) | (JoinKind::RightAnti, false) => add(text(r)),
            _ => {}
        }
    }
    contents
}

/// Rows and watermarks that keep their word.
struct History {
    random: SmallRng,
    sides: [Rows; 2],
    /// In seconds.
    watermarks: [i64; 2],
    deletes: bool,
}

impl History {
    fn push(&mut self, bench: &mut Harness, side: usize) {
        let mut lines = Vec::new();
        for _ in 0..self.random.random_range(0..6) {
            let alive: Vec<usize> = (0..self.sides[side].len()).filter(|row| self.sides[side][*row].1 >= self.watermarks[side]).collect();
            let (sign, (k, t)) = if self.deletes && !alive.is_empty() && self.random.random_bool(0.4) {
                ("-", self.sides[side].swap_remove(alive[self.random.random_range(0..alive.len())]))
            } else {
                let drawn = (self.random.random_range(0..2), self.watermarks[side] + self.random.random_range(0..12));
                self.sides[side].push(drawn);
                ("+", drawn)
            };
            lines.push(row(sign, k, t));
        }
        bench.push(side, &lines.join("\n"));
    }

    fn advance(&mut self, bench: &mut Harness, side: usize) {
        self.watermarks[side] += self.random.random_range(0..7);
        bench.watermark(side, TIME, self.watermarks[side] * SECOND);
    }
}

fn run(seed: u64, kind: JoinKind, band: Band, deletes: bool) {
    let mut history = History { random: SmallRng::seed_from_u64(seed), sides: Default::default(), watermarks: [0; 2], deletes };
    let spec = banded(kind, band, true);
    let spec = if deletes { spec } else { append_only(spec) };
    let mut bench = bench(spec, Settings { room: 1 + seed as usize * 20, ..Settings::default() });
    for epoch in 0..EPOCHS {
        for _ in 0..history.random.random_range(1..4) {
            let side = history.random.random_range(0..2);
            history.push(&mut bench, side);
            if history.random.random_bool(0.5) {
                let side = history.random.random_range(0..2);
                history.advance(&mut bench, side);
            }
        }
        bench.barrier();
        let expected = expected(kind, band, &history.sides);
        let difference = first_difference(bench.contents(), &expected);
        assert_eq!(difference, None, "seed {seed} {kind:?} {band:?} deletes {deletes} epoch {epoch}");
        if history.random.random_bool(0.1) {
            bench.restart(history.random.random_range(1..4));
            // What had been told is told again.
            (0..2).for_each(|side| bench.watermark(side, TIME, history.watermarks[side] * SECOND));
        }
    }
}

#[test]
fn dead_rows_are_never_missed() {
    let bands = [(Some(0), Some(5)), (Some(-4), Some(4)), (Some(3), Some(6)), (None, Some(0)), (None, Some(-3)), (Some(-2), None)];
    for (seed, (low, high)) in (0..).zip(bands) {
        for kind in super::history::KINDS {
            for deletes in [false, true] {
                run(seed, kind, Band { low, high }, deletes);
            }
        }
    }
}

/// All rows of a key die at once where they are only counted.
#[test]
fn counts_of_dead_keys_are_never_missed() {
    for seed in 0..4 {
        for kind in super::history::KINDS {
            for deletes in [false, true] {
                run_equal(seed, kind, deletes);
            }
        }
    }
}

/// The same with equal times instead of a band.
fn run_equal(seed: u64, kind: JoinKind, deletes: bool) {
    let band = Band { low: Some(0), high: Some(0) };
    let mut history = History { random: SmallRng::seed_from_u64(seed), sides: Default::default(), watermarks: [0; 2], deletes };
    let mut spec = JoinSpec { condition: None, ..banded(kind, band, true) };
    spec.on.push((TIME, TIME));
    spec.null_equal.push(false);
    let mut bench = bench(if deletes { spec } else { append_only(spec) }, Settings::default());
    for epoch in 0..EPOCHS {
        for side in [0, 1, 0, 1] {
            history.push(&mut bench, side);
            history.advance(&mut bench, 1 - side);
        }
        bench.barrier();
        let expected = expected(kind, band, &history.sides);
        assert_eq!(first_difference(bench.contents(), &expected), None, "seed {seed} {kind:?} deletes {deletes} epoch {epoch}");
    }
}

#[test]
fn state_stays_as_large_as_the_band() {
    let band = Band { low: Some(-5), high: Some(5) };
    let mut bench = bench(append_only(banded(JoinKind::Full, band, true)), Settings::default());
    let mut most = 0;
    for second in 0..3_000 {
        (0..2).for_each(|side| bench.push(side, &row("+", second % 3, second)));
        (0..2).for_each(|side| bench.watermark(side, TIME, second * SECOND));
        bench.barrier();
        if second == 300 {
            most = bench.memory_used();
        }
    }
    assert!(bench.memory_used() <= 2 * most, "{} bytes after ten times as many rows as {most} bytes", bench.memory_used());
}
