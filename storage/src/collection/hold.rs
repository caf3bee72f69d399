//! Holds keep an epoch readable: deltas above the lowest hold are not folded into the base.

use std::{collections::BTreeMap, sync::Arc};

use super::Collection;
use crate::epoch::Epoch;

/// How many holds there are at each epoch.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<Epoch, usize>);

impl Holds {
    pub(super) fn add(&mut self, epoch: Epoch) {
        *self.0.entry(epoch).or_default() += 1;
    }

    pub(super) fn release(&mut self, epoch: Epoch) {
        let count = self.0.get_mut(&epoch).expect("a hold is released once");
        *count -= 1;
        if *count == 0 {
            self.0.remove(&epoch);
        }
    }

    /// The lowest epoch that is held.
    pub(super) fn lowest(&self) -> Option<Epoch> {
        self.0.keys().next().copied()
    }
}

/// Keeps a collection readable at an epoch, and its deltas after it, until dropped.
#[derive(Debug)]
pub struct Hold {
    collection: Arc<Collection>,
    epoch: Epoch,
}

impl Hold {
    pub(super) fn new(collection: Arc<Collection>, epoch: Epoch) -> Self {
        Self { collection, epoch }
    }

    /// The epoch that is kept readable.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The collection.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Gives up what is below `epoch`. Below the hold's own epoch it does nothing.
    pub fn advance(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.collection.move_hold(self.epoch, epoch);
            self.epoch = epoch;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.collection.release_hold(self.epoch);
    }
}
