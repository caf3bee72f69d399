//! How long a restart may take to replay the log of a checkpoint, and how fast it does.
//!
//! The rate is that of the job's own last recovery: fetching the log and bringing its changes into the tables. Until there was one that says
//! something, a rate is assumed that the slowest disk and store reach. What a source or an upstream has delivered since the checkpoint is
//! read on top of it, and is bounded by the checkpoint interval.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of log a second before anything was measured.
const ASSUMED_RATE: u64 = 16 << 20;
/// A shorter log says nothing about the rate.
const LEAST_MEASURED_BYTES: u64 = 1 << 20;
/// Rates beyond these are errors of measurement.
const RATES: (u64, u64) = (256 << 10, 4 << 30);
/// A log shorter than this is not worth a materialization, however short the target.
const LEAST_BOUND_BYTES: u64 = 1 << 20;

/// One job's bound of the time of replay. It outlives the job's attempts.
#[derive(Debug)]
pub struct ReplayBound {
    target_us: AtomicU64,
    bytes_per_second: AtomicU64,
}

impl ReplayBound {
    /// A restart shall replay for `target` at most.
    pub fn new(target: Duration) -> Self {
        let bound = Self { target_us: AtomicU64::new(0), bytes_per_second: AtomicU64::new(ASSUMED_RATE) };
        bound.set_target(target);
        bound
    }

    /// Changes the target; it counts from the next checkpoint on.
    pub fn set_target(&self, target: Duration) {
        self.target_us.store(u64::try_from(target.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A restart has replayed `bytes` of log in `time`.
    pub fn measured(&self, bytes: u64, time: Duration) {
        if bytes >= LEAST_MEASURED_BYTES {
            let rate = bytes as f64 / time.as_secs_f64().max(1e-6);
            self.bytes_per_second.store((rate as u64).clamp(RATES.0, RATES.1), Ordering::Relaxed);
        }
    }

    /// How long the replay of so many bytes takes, as far as is known.
    pub fn time_of(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second.load(Ordering::Relaxed) as f64)
    }

    /// How many bytes of log can be replayed within the target.
    pub(super) fn bytes(&self) -> u64 {
        let seconds = self.target_us.load(Ordering::Relaxed) as f64 / 1e6;
        ((seconds * self.bytes_per_second.load(Ordering::Relaxed) as f64) as u64).max(LEAST_BOUND_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_target_and_measured_rate() {
        let bound = ReplayBound::new(Duration::from_secs(10));
        assert_eq!(bound.bytes(), 10 * ASSUMED_RATE);
        assert_eq!(bound.time_of(ASSUMED_RATE), Duration::from_secs(1));
        // A replay that was over at once says nothing.
        bound.measured(1000, Duration::from_nanos(1));
        assert_eq!(bound.bytes(), 10 * ASSUMED_RATE);
        bound.measured(8 << 20, Duration::from_secs(4));
        assert_eq!((bound.bytes(), bound.time_of(6 << 20)), (20 << 20, Duration::from_secs(3)));
        bound.set_target(Duration::from_millis(1));
        assert_eq!(bound.bytes(), LEAST_BOUND_BYTES);
        bound.set_target(Duration::MAX);
        assert!(bound.bytes() > 1 << 60);
    }
}
