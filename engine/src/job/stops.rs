//! Epochs at which every job that comes from behind stops: after a start of the server, and while a transaction reads at one.
//!
//! What was sealed is recovered collection by collection, so a view may be known up to an epoch that the views under it have yet to compute
//! again. It stops there, since it must agree with what it has; then they need contents at that very epoch, not a delta that passes over it.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use millpond_storage::epoch::Epoch;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::engine::Shared;

/// The epochs, once they are known.
pub struct Stops {
    /// Each with how many want it.
    epochs: RwLock<BTreeMap<Epoch, usize>>,
    known: watch::Sender<bool>,
}

impl Default for Stops {
    fn default() -> Self {
        Self { epochs: RwLock::default(), known: watch::Sender::new(true) }
    }
}

impl Stops {
    /// Waits while jobs are being started.
    pub(super) async fn known(&self) {
        // The sender is in here: it does not go while somebody waits.
        let _ = self.known.subscribe().wait_for(|known| *known).await;
    }

    /// The first one after an epoch.
    pub(super) fn after(&self, epoch: Epoch) -> Option<Epoch> {
        self.epochs.read().range((Bound::Excluded(epoch), Bound::Unbounded)).next().map(|(epoch, _)| *epoch)
    }

    fn add(&self, epoch: Epoch) {
        *self.epochs.write().entry(epoch).or_default() += 1;
    }
}

/// While this lives, jobs that have not come to its epoch stop there: a transaction may still ask for their contents at it.
pub struct Stop {
    shared: Arc<Shared>,
    epoch: Epoch,
}

impl Stop {
    pub(crate) fn new(shared: Arc<Shared>, epoch: Epoch) -> Self {
        shared.stops.add(epoch);
        Self { shared, epoch }
    }

    /// The epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        let mut epochs = self.shared.stops.epochs.write();
        if let Some(wanted) = epochs.get_mut(&self.epoch) {
            *wanted -= 1;
            if *wanted == 0 {
                epochs.remove(&self.epoch);
            }
        }
    }
}

/// While this lives jobs are being started again: none of them goes on before all of them are there.
pub struct Starting(Arc<Shared>);

impl Starting {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        shared.stops.known.send_replace(false);
        Self(shared)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let stops = &self.0.stops;
        self.0.collections().iter().for_each(|collection| stops.add(collection.upper()));
        stops.known.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_stop_is_above() {
        let stops = Stops::default();
        [4, 6, 9].into_iter().for_each(|epoch| stops.add(Epoch(epoch)));
        assert_eq!(stops.after(Epoch(4)), Some(Epoch(6)));
        stops.epochs.write().remove(&Epoch(6));
        assert_eq!([0, 4, 8, 9].map(|epoch| stops.after(Epoch(epoch)).map(|stop| stop.0)), [Some(4), Some(9), Some(9), None]);
    }
}
