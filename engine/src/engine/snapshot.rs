//! Where a transaction reads: one epoch, at which it finds whatever it asks for later.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use millpond_storage::{collection::Hold, epoch::Epoch};

use super::Engine;
use crate::{
    coordinator::read::{Freshness, Readable},
    error::Result,
    job::{status::JobState, stops::Stop},
};

/// How long the first read of a transaction waits to be as new as every table, before a lagging relation gives it what it has.
const PATIENCE: Duration = Duration::from_secs(1);

/// The epoch of a transaction. While this lives, every relation in `holds` stays readable at it, or comes to it and stops there.
pub struct SnapshotPoint {
    /// The epoch.
    pub epoch: Epoch,
    /// By relation; without those that have left the epoch behind.
    pub holds: BTreeMap<u64, Hold>,
    /// Jobs that lag do not pass over the epoch.
    pub stop: Stop,
}

impl Engine {
    /// The epoch of a transaction that reads `relations` first, and perhaps others afterwards. It has every change that was acknowledged by now, to
    /// whichever table; unless what is read first lags: then only the tables under that count.
    ///
    /// # Errors
    /// As of [`Self::read_epoch`].
    pub async fn snapshot(&self, relations: &[u64], freshness: Freshness, timeout: Duration) -> Result<SnapshotPoint> {
        let all = self.shared.readables();
        // What can be read now stays while the epoch is looked for.
        let _oldest: Vec<Hold> = all.iter().map(|relation| relation.collection.hold_oldest()).collect();
        if freshness != Freshness::Any {
            let stop = self.stop_at_newest();
            let patience = if freshness == Freshness::Strict { timeout } else { timeout.min(PATIENCE) };
            match self.read_at(relations, stop.epoch(), patience).await {
                Ok(_) => return Ok(SnapshotPoint::new(&all, stop)),
                Err(failure) if freshness == Freshness::Strict => return Err(failure),
                Err(_) => {}
            }
            if let Some(epoch) = self.common_point(relations, &all)? {
                return Ok(SnapshotPoint::new(&all, Stop::new(self.shared.clone(), epoch)));
            }
        }
        let point = self.read_epoch(relations, freshness, timeout).await?;
        Ok(SnapshotPoint::new(&all, Stop::new(self.shared.clone(), point.epoch)))
    }

    /// Registers a stop that every job is still going to meet.
    fn stop_at_newest(&self) -> Stop {
        let coordinator = &self.shared.coordinator;
        loop {
            let stop = Stop::new(self.shared.clone(), coordinator.newest_epoch());
            // A job that looked for its stops just before may have been on its way to an epoch closed since; then a newer one is needed.
            if coordinator.closed().epoch <= stop.epoch() {
                return stop;
            }
        }
    }

    /// An older epoch at which all that runs can be read, if there still is one.
    fn common_point(&self, relations: &[u64], all: &[Arc<Readable>]) -> Result<Option<Epoch>> {
        let runs = |relation: &&Arc<Readable>| {
            relations.contains(&relation.id)
                || relation.collection.published() && self.job(relation.id).is_none_or(|job| job.state() != JobState::Failed)
        };
        let running: Vec<_> = all.iter().filter(runs).cloned().collect();
        let first: Vec<_> = running.iter().filter(|relation| relations.contains(&relation.id)).cloned().collect();
        Ok(self.shared.coordinator.common_epoch(&first, &running)?.map(|point| point.epoch))
    }
}

impl SnapshotPoint {
    fn new(all: &[Arc<Readable>], stop: Stop) -> Self {
        let epoch = stop.epoch();
        let holds = all.iter().filter_map(|relation| Some((relation.id, relation.collection.hold(epoch).ok()?))).collect();
        Self { epoch, holds, stop }
    }
}
