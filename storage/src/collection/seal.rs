//! Sealing epochs, and making them durable.

use std::sync::Arc;

use super::{
    Collection, CollectionKey, State,
    delta::StoredDelta,
    delta_log::{DeltaLog, DeltaPlace, Links},
    retained::Retained,
};
use crate::{
    epoch::Epoch,
    error::{Result, StorageError},
    signed_batch::SignedBatch,
};

/// Deltas of a collection are not spilled below so many bytes, however short memory is.
const MIN_RESIDENT_BYTES: usize = 64 << 10;
/// So many bytes of a collection's deltas may wait for space on the disk.
const WAITING_BYTES: usize = 64 << 20;

impl Collection {
    /// Ends all epochs up to `to` with the changes since `upper`, in any order, and publishes them. An epoch not above `upper` was sealed before
    /// with the same contents: it is ignored. On an error nothing is sealed.
    pub fn seal(&self, to: Epoch, batches: Vec<SignedBatch>, watermark_us: Option<(usize, i64)>) -> Result<()> {
        let from = self.upper();
        if to <= from {
            return Ok(());
        }
        // It may take long: who reads, folds or drops the collection does not wait for it.
        let stored = StoredDelta::net(&self.layout, (from, to), batches, watermark_us)?;
        let mut log = self.log.lock();
        let links = {
            let state = self.state.read();
            if state.destroyed {
                return Err(StorageError::Internal(format!("collection {} has been dropped", self.id)));
            }
            if state.upper != from {
                return Err(StorageError::Internal(format!("collection {} is sealed by two at a time", self.id)));
            }
            Links { previous: state.last_change(), first_ordinal: state.next_ordinal }
        };
        if stored.delta.batches.is_empty() && watermark_us.is_none() {
            self.publish(to, None);
            return Ok(());
        }
        let place = if self.durable_deltas { self.write_delta(&mut log, &stored, links)? } else { None };
        let delta = Retained::new(Arc::new(stored), links, self.now(), place);
        self.memory.grow(delta.bytes);
        self.publish(to, Some(delta));
        if self.memory.over_budget() {
            self.spill(&mut log);
        }
        Ok(())
    }

    /// Writes a delta to the log, behind those that wait to be written. On a full disk it waits too, in memory: readers go on, and no flush says that
    /// it is durable.
    fn write_delta(&self, log: &mut DeltaLog, stored: &StoredDelta, links: Links) -> Result<Option<DeltaPlace>> {
        let waited = self.waiting_bytes();
        match self.write_waiting(log).and_then(|()| log.append(&stored.delta, links)) {
            Ok(place) => Ok(Some(place)),
            Err(error) if error.is_disk_full() && waited + stored.bytes() <= WAITING_BYTES => {
                if waited == 0 {
                    tracing::warn!(collection = self.id, %error, "changes wait in memory for space on the disk");
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn waiting_bytes(&self) -> usize {
        self.state.read().retained.iter().rev().take_while(|delta| delta.place.is_none()).map(|delta| delta.bytes).sum()
    }

    /// Writes deltas that there was no space for when they were sealed. They are the newest ones, and are written in order.
    pub(super) fn write_waiting(&self, log: &mut DeltaLog) -> Result<()> {
        loop {
            let waiting = self.state.read().retained.iter().rev().take_while(|delta| delta.place.is_none()).last().cloned();
            let Some(waiting) = waiting else { return Ok(()) };
            let place = log.append(&waiting.load(&self.layout)?.delta, waiting.links)?;
            let mut state = self.state.write();
            if let Some(written) = state.retained.iter_mut().find(|retained| retained.to == waiting.to) {
                written.place = Some(place);
            }
        }
    }

    /// Ends all epochs up to `to`; nothing has changed in them.
    pub fn advance(&self, to: Epoch) {
        let _log = self.log.lock();
        if self.state.read().upper < to {
            self.publish(to, None);
        }
    }

    fn publish(&self, to: Epoch, delta: Option<Retained>) {
        let mut state = self.state.write();
        if let Some(delta) = delta {
            if self.layout.key == CollectionKey::AppendOnly {
                state.next_ordinal = delta.end_ordinal();
            }
            state.retained.push_back(delta);
        }
        state.upper = to;
        drop(state);
        self.upper.send_replace(to);
    }

    /// Makes all that is sealed durable and returns its epoch. For a table there is nothing to do: the epoch log has what it was given (what the table
    /// itself needs no log for is [`Self::base_durable`]).
    pub fn flush(&self) -> Result<Epoch> {
        if !self.durable_deltas {
            return Ok(self.upper());
        }
        let (upper, sync) = {
            let mut log = self.log.lock();
            let (upper, base, destroyed) = {
                let state = self.state.read();
                (state.upper, state.base.epoch, state.destroyed)
            };
            if destroyed {
                return Ok(upper);
            }
            self.write_waiting(&mut log)?;
            if log.highest().max(base) < upper {
                log.append_reached(upper)?;
            }
            (upper, log.begin_sync()?)
        };
        if let Some(sync) = sync {
            // Without the lock: epochs are sealed while the disk works.
            let outcome = sync.run();
            self.log.lock().end_sync(&sync, outcome)?;
        }
        let mut state = self.state.write();
        state.durable = state.durable.max(upper);
        Ok(state.durable)
    }

    /// Drops deltas from memory, oldest first, until the budget is kept. They are read back from the log when needed.
    fn spill(&self, log: &mut DeltaLog) {
        let resident = |state: &State| state.retained.iter().position(|delta| delta.stored.is_some());
        while self.memory.over_budget() && self.memory.used() > MIN_RESIDENT_BYTES {
            let state = self.state.read();
            let Some(index) = resident(&state) else { return };
            let delta = state.retained[index].clone();
            drop(state);
            let place = match (&delta.place, &delta.stored) {
                (Some(place), _) => place.clone(),
                (None, Some(stored)) => match log.append(&stored.delta, delta.links) {
                    Ok(place) => place,
                    Err(error) => return tracing::warn!(collection = self.id, %error, "a delta could not be moved out of memory"),
                },
                (None, None) => return,
            };
            let mut state = self.state.write();
            // A fold may have taken it since.
            if let Some(spilled) = state.retained.iter_mut().find(|retained| retained.to == delta.to && retained.stored.is_some()) {
                spilled.place = Some(place);
                spilled.stored = None;
                self.memory.shrink(spilled.bytes);
            }
        }
    }
}
