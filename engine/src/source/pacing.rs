//! When generated rows become available: so many a second from an instant on.

use millpond_storage::env::Clock;

/// The longest wait that is announced.
const MAX_WAIT_US: u64 = 1_000_000;

/// The shortest one: events that are closer together come together, since what is done per chunk costs much more than a row of it. It is short beside
/// an epoch, without whose end nobody can see an event.
const MIN_WAIT_US: u64 = 3_000;

/// A steady rate.
#[derive(Clone, Debug)]
pub(super) struct Pacing {
    /// Events a second; zero for no limit.
    pub rate: u64,
    /// When event 0 is due, microseconds since 1970 UTC.
    pub start_us: i64,
    /// Tells the time.
    pub clock: Clock,
}

impl Pacing {
    /// How many events, counted from 0, are due now.
    pub(super) fn due(&self) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        let passed = self.clock.wall_micros().saturating_sub(self.start_us);
        match u128::try_from(passed) {
            Ok(passed) => u64::try_from(passed * u128::from(self.rate) / 1_000_000 + 1).unwrap_or(u64::MAX),
            Err(_) => 0,
        }
    }

    /// Microseconds until it makes sense to ask for event `number`: it is due then. At least [`MIN_WAIT_US`], at most a second.
    pub(super) fn wait_us(&self, number: u64) -> u64 {
        let due_at = i128::from(self.start_us) + i128::from(event_offset_us(number, self.rate));
        let wait = due_at - i128::from(self.clock.wall_micros());
        u64::try_from(wait.max(0)).unwrap_or(MAX_WAIT_US).clamp(MIN_WAIT_US, MAX_WAIT_US)
    }
}

/// Microseconds from event 0 to event `number` at `rate` events a second.
pub(super) fn event_offset_us(number: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(number) * 1_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn events_become_due_one_by_one() {
        let clock = Clock::manual(1_000_000);
        let pacing = Pacing { rate: 4, start_us: 1_000_000, clock: clock.clone() };
        assert_eq!((pacing.due(), pacing.wait_us(1)), (1, 250_000));
        clock.advance(Duration::from_micros(249_999));
        assert_eq!((pacing.due(), pacing.wait_us(1)), (1, MIN_WAIT_US));
        clock.advance(Duration::from_micros(1));
        assert_eq!((pacing.due(), pacing.wait_us(2)), (2, 250_000));
        let early = Pacing { start_us: 2_000_000_000, ..pacing };
        assert_eq!((early.due(), early.wait_us(0)), (0, 1_000_000));
        assert_eq!(Pacing { rate: 0, ..early }.due(), u64::MAX);
    }

    #[test]
    fn events_that_are_close_together_come_together() {
        let clock = Clock::manual(0);
        let pacing = Pacing { rate: 1000, start_us: 0, clock: clock.clone() };
        let (mut taken, mut reads) = (0, 0);
        while taken <= 1000 {
            taken = pacing.due();
            reads += 1;
            clock.advance(Duration::from_micros(pacing.wait_us(taken)));
        }
        assert!(reads <= 340, "{reads} reads in a second");
    }
}
