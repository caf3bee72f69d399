//! How many rows of a chunk a subtask takes at once: as many as keep it busy for about 20 ms, so that it looks up often enough. Pure.

use std::time::Duration;

/// What one message should take.
const TARGET: Duration = Duration::from_millis(20);
/// Rows of the first chunk, of which nothing is known yet.
const FIRST_ROWS: usize = 64;

/// Rows per message of one channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    rows: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { rows: FIRST_ROWS }
    }
}

impl Pace {
    /// Rows to take at once.
    pub(super) fn rows(self) -> usize {
        self.rows
    }

    /// So many rows have kept the subtask busy for so long.
    pub(super) fn record(&mut self, rows: usize, busy: Duration) {
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
        for _ in 0..20 {
            pace.record(pace.rows().min(4096), Duration::from_micros(pace.rows().min(4096) as u64));
        }
        assert!(pace.rows() >= 4096);
        pace.record(4096, Duration::from_secs(4));
        assert_eq!(pace.rows(), 20, "a millisecond a row");
        pace.record(20, Duration::from_secs(1));
        assert_eq!(pace.rows(), 1, "never less than one");
        pace.record(1, Duration::from_secs(1));
        assert_eq!(pace.rows(), 1);
        for _ in 0..3 {
            pace.record(pace.rows(), Duration::from_millis(1));
        }
        assert_eq!(pace.rows(), 8);
    }
}
