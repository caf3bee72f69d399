//! How fast a sweep goes on, so that the records behind it do not notice.

use std::time::Duration;

/// Bytes that a sweep gains on the log with each of its steps, beside twice what has been logged since the last one: it takes little of the subtask's
/// time, and the log grows by no more than half of the state until the materialization is there.
pub(super) const STEP_BYTES: usize = 2 << 10;
/// Tables flush whole blocks; until it may have one a sweep saves up. So the records behind it wait for a few milliseconds at most.
const LEAST_BYTES: usize = if cfg!(test) { 1 } else { 128 << 10 };
/// Bytes that one step flushes at most, but for the rest of a block.
const MOST_BYTES: usize = 512 << 10;
/// Bytes that are flushed at a time of a sweep that somebody waits for.
const URGENT_BYTES: usize = 256 << 10;
/// The same for what has been logged meanwhile. Who owes more flushes it with the next steps.
pub(super) const MOST_URGENT_BYTES: usize = 2 << 20;
/// A sweep rests after each step for so many times as long as it took. Windows that close are logged in bursts, and would have to wait for twice what they log
/// just when they are waited for.
const RESTS: f64 = 7.0;
/// The same of one that somebody waits for: half of the time is the records'.
const URGENT_RESTS: f64 = 1.0;
/// It rests the less the more it owes, and not at all from here on: it keeps up with any log.
const MOST_OWED_BYTES: usize = 16 << 20;

/// What one sweep owes, and when it may pay.
#[derive(Debug, Default)]
pub(super) struct SweepPace {
    /// End of the changelog at the last step.
    position: u64,
    owed: usize,
    rests_until: Duration,
}

impl SweepPace {
    /// The pace of a sweep that begins where the changelog ends now.
    pub(super) fn new(position: u64) -> Self {
        Self { position, ..Self::default() }
    }

    /// The bytes that the next step may flush, of a sweep that somebody waits for or not, now that the changelog has come to `position`. 0: none yet.
    pub(super) fn next_bytes(&mut self, position: u64, is_urgent: bool, now: Duration) -> usize {
        let logged = position.saturating_sub(std::mem::replace(&mut self.position, position)) as usize;
        self.owed += STEP_BYTES + 2 * logged;
        let bytes = if is_urgent { self.owed.clamp(URGENT_BYTES, MOST_URGENT_BYTES) } else { self.owed.min(MOST_BYTES) };
        if now < self.rests_until || bytes < LEAST_BYTES {
            return 0;
        }
        self.owed = self.owed.saturating_sub(bytes);
        bytes
    }

    /// A step ended at `now` that took so long.
    pub(super) fn rest(&mut self, took: Duration, is_urgent: bool, now: Duration) {
        let share = 1.0 - self.owed as f64 / MOST_OWED_BYTES as f64;
        let rests = if is_urgent { URGENT_RESTS } else { RESTS };
        self.rests_until = now + took.mul_f64(rests * share.max(0.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    #[test]
    fn a_burst_is_paid_for_after_it() {
        let mut pace = SweepPace::new(0);
        let (mut now, mut flushed, mut log) = (Duration::ZERO, 0, 0);
        let mut spent = Duration::ZERO;
        let mut step = |log: u64, now: &mut Duration| {
            let bytes = pace.next_bytes(log, false, *now);
            if bytes > 0 {
                *now += STEP;
                spent += STEP;
                pace.rest(STEP, false, *now);
            }
            *now += Duration::from_millis(1);
            bytes
        };
        for _ in 0..100 {
            log += 40 << 10;
            flushed += step(log, &mut now);
        }
        assert!(flushed < log as usize, "{flushed} of {log} logged");
        for _ in 0..2000 {
            flushed += step(log, &mut now);
        }
        assert!(flushed >= 2 * log as usize, "{flushed} of {log} logged");
        assert!(spent < now / 4, "{spent:?} of {now:?}");
    }

    #[test]
    fn a_sweep_that_owes_much_does_not_rest() {
        let mut pace = SweepPace::new(0);
        assert!(pace.next_bytes(MOST_OWED_BYTES as u64, false, STEP) > 0);
        pace.rest(STEP, false, STEP);
        assert!(pace.next_bytes(MOST_OWED_BYTES as u64, false, STEP) > 0);
    }

    #[test]
    fn a_sweep_that_somebody_waits_for_rests_as_long_as_it_works() {
        let mut pace = SweepPace::new(0);
        assert_eq!(pace.next_bytes(0, true, STEP), URGENT_BYTES);
        pace.rest(STEP, true, STEP);
        assert_eq!(pace.next_bytes(0, true, STEP + STEP / 2), 0);
        assert_eq!(pace.next_bytes(0, true, 2 * STEP), URGENT_BYTES);
    }
}
