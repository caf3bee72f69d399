//! Buffer debloating: a channel holds about as much as its consumer takes within a target time. Pure.
//!
//! *Problem.* With a fixed bound a slow consumer has minutes of work before it. A checkpoint's barrier waits behind that at every exchange, and an
//! unaligned checkpoint has to keep it. A consumer needs no more than what keeps it busy until its producer is awake again.
//!
//! *Measure.* The consumer counts the rows that it takes of each channel and the time in which it was not idle, that is, did not wait with nothing
//! to take: busy with others' rows, or held back by its own consumers, it is as slow as it seems. Their quotient, smoothed exponentially, is the
//! channel's throughput. A channel that was not full was held back by its producer, so a lower figure says nothing of the consumer and is
//! passed over.
//!
//! *Bounds.* Throughput times target is what all messages of the channel may hold. First the chunks become smaller, an eighth of that each, and when
//! they have become as small as is worth their cost, there are fewer of them. They change when they are wrong by a quarter, not at every tremor.
//! A consumer that takes the largest bound within the target has the largest bound. A new channel begins small and knows more soon, so that
//! nothing is filled before the first measurement.
//!
//! *Who keeps them.* A reader sends a chunk in parts and waits before each. A subtask must not wait in the midst of a message, so it takes less at
//! once ([`crate::task`]); what it owes at the end of an epoch may go beyond, up to a fixed bound. Barriers and watermarks always pass.

use std::time::Duration;

use crate::chunk::CHUNK_ROWS;

/// The most rows a channel may hold before its producer takes no more input.
pub const CHANNEL_ROWS: usize = 8 * CHUNK_ROWS;

/// Chunks in a full channel, while they can be made smaller.
const CHUNKS: usize = CHANNEL_ROWS / CHUNK_ROWS;
/// Smaller chunks cost more than they help.
const LEAST_CHUNK_ROWS: usize = 16;
/// Rows a channel may hold before anything is known of its consumer.
const FIRST_ROWS: usize = CHANNEL_ROWS / 32;
/// Over which time throughput is smoothed.
const SMOOTHING: Duration = Duration::from_millis(500);
/// By which factor a bound must be wrong before it is changed.
const TOLERANCE: f64 = 1.25;

/// What a channel may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// While it holds fewer rows its producer may add to them.
    pub rows: usize,
    /// Rows that its producer adds at once.
    pub chunk_rows: usize,
}

impl Bounds {
    /// Those of a channel that is not debloated.
    pub const LARGEST: Self = Self { rows: CHANNEL_ROWS, chunk_rows: CHUNK_ROWS };

    /// Those of a new channel; a target of zero switches debloating off.
    pub fn first(target: Duration) -> Self {
        if target.is_zero() { Self::LARGEST } else { Self::of(FIRST_ROWS) }
    }

    /// Bounds for about so many rows, within what is possible. One chunk always is.
    fn of(rows: usize) -> Self {
        let rows = rows.clamp(LEAST_CHUNK_ROWS, CHANNEL_ROWS);
        Self { rows, chunk_rows: (rows / CHUNKS).max(LEAST_CHUNK_ROWS) }
    }

    /// Whether they are smaller than they could be.
    pub fn is_debloated(self) -> bool {
        self != Self::LARGEST
    }
}

/// What was seen of a channel in some time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Rows that the consumer has taken of it.
    pub rows: usize,
    /// Time in which the consumer was not idle.
    pub active: Duration,
    /// Its producer was held back by its bounds.
    pub was_full: bool,
}

/// The bounds of one channel, and what they follow from.
#[derive(Clone, Copy, Debug)]
pub struct Debloater {
    rows_per_second: Option<f64>,
    bounds: Bounds,
}

impl Debloater {
    /// Of a new channel.
    pub fn new(target: Duration) -> Self {
        Self { rows_per_second: None, bounds: Bounds::first(target) }
    }

    /// What the channel may hold now.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// What its consumer takes of it, if anything is known.
    pub fn rows_per_second(&self) -> Option<f64> {
        self.rows_per_second
    }

    /// Takes a sample into account, and the target, which may have changed.
    pub fn record(&mut self, sample: Sample, target: Duration) {
        self.measure(sample);
        if target.is_zero() {
            self.bounds = Bounds::LARGEST;
            return;
        }
        let Some(rows_per_second) = self.rows_per_second else { return };
        // A figure beyond all bounds saturates.
        let wanted = Bounds::of((rows_per_second * target.as_secs_f64()) as usize);
        let ratio = wanted.rows as f64 / self.bounds.rows as f64;
        if !(1.0 / TOLERANCE..=TOLERANCE).contains(&ratio) {
            self.bounds = wanted;
        }
    }

    fn measure(&mut self, Sample { rows, active, was_full }: Sample) {
        if rows == 0 || active.is_zero() {
            return;
        }
        let measured = rows as f64 / active.as_secs_f64();
        let Some(before) = self.rows_per_second else {
            self.rows_per_second = Some(measured);
            return;
        };
        if was_full || measured > before {
            let weight = 1.0 - (-active.as_secs_f64() / SMOOTHING.as_secs_f64()).exp();
            self.rows_per_second = Some(before + weight * (measured - before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn full(rows: usize) -> Sample {
        Sample { rows, active: Duration::from_millis(100), was_full: true }
    }

    fn after(debloater: &mut Debloater, samples: usize, sample: Sample, target: Duration) -> Bounds {
        (0..samples).for_each(|_| debloater.record(sample, target));
        debloater.bounds()
    }

    #[test]
    fn chunks_become_smaller_first_and_then_fewer() {
        let of = |rows| Bounds::of(rows);
        assert_eq!(of(usize::MAX), Bounds::LARGEST);
        assert_eq!(of(8000), Bounds { rows: 8000, chunk_rows: 1000 });
        assert_eq!(of(128), Bounds { rows: 128, chunk_rows: 16 });
        assert_eq!(of(40), Bounds { rows: 40, chunk_rows: 16 });
        assert_eq!(of(0), Bounds { rows: 16, chunk_rows: 16 }, "one chunk always goes through");
        assert!(!Bounds::LARGEST.is_debloated() && of(CHANNEL_ROWS - 1).is_debloated());
    }

    #[test]
    fn a_slow_consumer_is_given_what_it_takes_within_the_target() {
        let mut debloater = Debloater::new(SECOND);
        assert_eq!(debloater.bounds().rows, FIRST_ROWS);
        assert_eq!(after(&mut debloater, 1, full(400), SECOND), Bounds { rows: 4000, chunk_rows: 500 }, "the first sample counts in full");
        // It becomes ten times slower: nearly all is forgotten within some multiples of the smoothing.
        let bounds = after(&mut debloater, 30, full(40), SECOND);
        assert!((400..=500).contains(&bounds.rows), "{bounds:?}");
        // Another target takes effect at once.
        let bounds = after(&mut debloater, 1, full(40), SECOND / 10);
        assert!((40..=50).contains(&bounds.rows), "{bounds:?}");
        assert_eq!(after(&mut debloater, 1, full(40), Duration::ZERO), Bounds::LARGEST);
        assert!(after(&mut debloater, 1, full(40), SECOND).is_debloated());
    }

    #[test]
    fn a_fast_consumer_has_the_largest_bounds() {
        let mut debloater = Debloater::new(SECOND);
        assert_eq!(after(&mut debloater, 1, Sample { rows: 20_000, active: SECOND / 100, was_full: false }, SECOND), Bounds::LARGEST);
        assert_eq!(after(&mut debloater, 50, full(3_000), SECOND), Bounds::LARGEST, "within the tolerance");
        assert!(after(&mut debloater, 50, full(2_000), SECOND).is_debloated());
        assert_eq!(after(&mut debloater, 50, full(20_000), SECOND), Bounds::LARGEST);
    }

    #[test]
    fn a_producer_that_sends_little_says_nothing_of_the_consumer() {
        let mut debloater = Debloater::new(SECOND);
        let before = after(&mut debloater, 1, full(500), SECOND);
        let little = Sample { rows: 1, active: SECOND, was_full: false };
        let none = Sample { rows: 0, active: 100 * SECOND, was_full: true };
        assert_eq!(after(&mut debloater, 100, little, SECOND), before);
        assert_eq!(after(&mut debloater, 100, none, SECOND), before);
        assert_eq!(debloater.rows_per_second(), Some(5000.0));
        let much = Sample { rows: 2000, ..little };
        assert_eq!(after(&mut debloater, 100, much, SECOND), before);
    }

    #[test]
    fn a_standstill_of_the_whole_machine_is_soon_forgotten() {
        let mut debloater = Debloater::new(SECOND);
        after(&mut debloater, 20, full(10_000), SECOND);
        let bounds = after(&mut debloater, 1, Sample { rows: 64, active: 10 * SECOND, was_full: true }, SECOND);
        assert_eq!(bounds.rows, LEAST_CHUNK_ROWS);
        assert_eq!(after(&mut debloater, 3, full(10_000), SECOND), Bounds::LARGEST);
    }

    #[test]
    fn bounds_stand_still_while_the_throughput_trembles() {
        let mut debloater = Debloater::new(SECOND);
        after(&mut debloater, 20, full(300), SECOND);
        let mut changes = 0;
        for round in 0..1000 {
            let before = debloater.bounds();
            debloater.record(full(if round % 2 == 0 { 150 } else { 450 }), SECOND);
            changes += usize::from(debloater.bounds() != before);
        }
        assert!(changes <= 2, "{changes} changes");
    }
}
