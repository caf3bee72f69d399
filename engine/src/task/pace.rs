//! How many rows of a chunk a subtask takes at once: as many as keep it busy for about 20 ms, so that it looks up often enough, and no more than
//! make what the channels behind it take at once. Pure.

use std::time::Duration;

/// What one message should take.
const TARGET: Duration = Duration::from_millis(20);
/// Rows of the first chunk, of which nothing is known yet.
const FIRST_ROWS: usize = 64;
/// Rows that make fewer than so many each count as if they made so many.
const LEAST_GAIN: f64 = 1.0 / 64.0;

/// Rows per message of one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    rows: usize,
    /// Rows emitted for each row taken, of late.
    gain: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rows: FIRST_ROWS, gain: 1.0 }
    }
}

impl Pace {
    /// Rows to take at once, where there is room for so many of what they make; `usize::MAX` for any number.
    pub(super) fn rows_within(self, room: usize) -> usize {
        if room == usize::MAX {
            return self.rows;
        }
        let fitting = room as f64 / self.gain.max(LEAST_GAIN);
        self.rows.min(fitting as usize).max(1)
    }

    /// So many rows have made `emitted` rows and kept the subtask busy for so long.
    pub(super) fn record(&mut self, rows: usize, emitted: usize, busy: Duration) {
        // More is believed at once, less after some messages.
        let gain = emitted as f64 / rows.max(1) as f64;
        self.gain = gain.max(0.75 * self.gain + 0.25 * gain);
        if busy > TARGET {
            let fitting = rows as f64 * TARGET.as_secs_f64() / busy.as_secs_f64();
            self.rows = (fitting as usize).max(1);
        } else if rows >= self.rows && busy < TARGET / 2 {
            self.rows = self.rows.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rows_are_taken_in_few_and_fast_ones_in_whole_chunks() {
        let mut pace = Pace::default();
        let rows = |pace: Pace| pace.rows_within(usize::MAX);
        for _ in 0..20 {
            pace.record(rows(pace).min(4096), 0, Duration::from_micros(rows(pace).min(4096) as u64));
        }
        assert!(rows(pace) >= 4096);
        pace.record(4096, 0, Duration::from_secs(4));
        assert_eq!(rows(pace), 20, "a millisecond a row");
        pace.record(20, 0, Duration::from_secs(1));
        assert_eq!(rows(pace), 1, "never less than one");
        pace.record(1, 0, Duration::from_secs(1));
        assert_eq!(rows(pace), 1);
        for _ in 0..3 {
            pace.record(rows(pace), 0, Duration::from_millis(1));
        }
        assert_eq!(rows(pace), 8);
    }

    #[test]
    fn no_more_is_taken_than_makes_what_has_room() {
        let mut pace = Pace { rows: 4096, gain: 1.0 };
        assert_eq!((pace.rows_within(usize::MAX), pace.rows_within(100), pace.rows_within(5000)), (4096, 100, 4096));
        pace.record(10, 200, Duration::from_millis(15));
        assert_eq!((pace.rows_within(100), pace.rows_within(3), pace.rows_within(usize::MAX)), (5, 1, 4096));
        for _ in 0..100 {
            pace.record(10, 1, Duration::from_millis(15));
        }
        assert!((900..=1000).contains(&pace.rows_within(100)), "{pace:?}");
        for _ in 0..100 {
            pace.record(10, 0, Duration::from_millis(15));
        }
        assert_eq!((pace.rows_within(16), pace.rows_within(1000)), (1024, 4096));
    }
}
