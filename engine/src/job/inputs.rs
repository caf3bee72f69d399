//! Which epoch a job's next barrier closes: pure.

use millpond_storage::epoch::Epoch;

/// Barriers a job may have in flight.
pub const BARRIERS_IN_FLIGHT: usize = 4;

/// The epoch of the next barrier, if there is one to inject.
///
/// A new job (`injected` is 0) begins at the newest epoch: nobody has kept older contents for it.
/// `reachable` is the newest epoch that is closed and that all upstreams have sealed; `injected` the epoch of the last barrier. A job that lags
/// takes many epochs at once, but stops at multiples of 8, then 64, so that laggards still share epochs; and it passes over none of `stops`:
/// what its own collection has already sealed, with which it must agree, and what the collections above it had sealed before a restart.
pub fn next_epoch(reachable: Epoch, injected: Epoch, stops: impl IntoIterator<Item = Epoch>) -> Option<Epoch> {
    if reachable <= injected {
        return None;
    }
    if injected == Epoch(0) {
        return Some(reachable);
    }
    let lag = reachable.0 - injected.0;
    let grain = match lag {
        0..=8 => 1,
        9..=64 => 8,
        _ => 64,
    };
    let mut target = Epoch(reachable.0 / grain * grain).max(injected.next());
    if grain > 1 && target == injected.next() {
        target = reachable;
    }
    let stop = stops.into_iter().filter(|stop| *stop > injected).min();
    Some(stop.map_or(target, |stop| target.min(stop)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reachable: u64, injected: u64, stop: u64) -> Option<u64> {
        next_epoch(Epoch(reachable), Epoch(injected), [Epoch(stop)]).map(|e| e.0)
    }

    #[test]
    fn takes_every_epoch_when_it_keeps_up() {
        assert_eq!(next(5, 5, 0), None);
        assert_eq!(next(6, 5, 0), Some(6));
        assert_eq!(next(8, 5, 0), Some(8));
    }

    #[test]
    fn a_new_job_begins_at_the_newest_epoch() {
        assert_eq!(next(146, 0, 0), Some(146));
    }

    #[test]
    fn laggards_share_epochs() {
        assert_eq!(next(30, 5, 0), Some(24));
        assert_eq!(next(1000, 5, 0), Some(960));
    }

    #[test]
    fn stops_where_collections_stand() {
        assert_eq!(next(5, 3, 4), Some(4));
        assert_eq!(next_epoch(Epoch(9), Epoch(3), [Epoch(8), Epoch(2), Epoch(6)]), Some(Epoch(6)));
        assert_eq!(next(1000, 5, 77), Some(77));
        assert_eq!(next(1000, 77, 77), Some(960));
    }
}
