//! Putting the state of one task back to the newest complete checkpoint while the other tasks of its job go on.
//!
//! A task that failed leaves three things: entries in memory, which are gone with it; what it has brought into the job's store, which may be
//! newer than the checkpoint; and segments of its changelog that no manifest names yet. These are dropped, and a checkpoint for which it has
//! given its part already is given up: the task in its place does not know which keys the segments mention, and could not say that one of
//! them is gone again. The task that takes its place begins with what the
//! checkpoint has of its key groups, as after a restart, but in the store that the others use. As long as the failed one has not written to
//! the store since its part of that checkpoint, the store has nothing that the log of the manifest has not. Else the values come back that it
//! has replaced since ([`Undo`](crate::state_table::undo::Undo)); only if they were not kept are its key groups emptied and filled again from
//! the manifest's materialization. Of the store the new task reads what it needs when it needs it. So what all this costs is in proportion to
//! what has changed since the checkpoint and to its log, not to the state.
//!
//! All of it happens between two checkpoints, and a materialization that is being taken is given up, so that none is of a store that is half put back.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::local::ImageSources;
use super::manifest::Manifest;
use super::{Checkpointer, RestoredState};
use crate::env::Clock;
use crate::epoch::Epoch;
use crate::error::Result;
use crate::object::blocking;
use crate::state_table::JobStore;

static REWINDS: AtomicU64 = AtomicU64::new(0);

/// A task that has failed, without singleton tables, whose entries are not of its key groups.
#[derive(Clone, Debug)]
pub struct LostTask {
    /// Its number among all that wrote to the store, see [`TaskState::writer`](crate::state_table::TaskState::writer).
    pub writer: u32,
    /// What it owned.
    pub key_groups: Range<u16>,
}

/// What a task goes on with in the place of a lost one.
pub struct Rewound {
    /// The epoch of the checkpoint.
    pub checkpoint: Epoch,
    /// The state there.
    pub state: RestoredState,
    /// How many keys of the store were put back; `None`: its key groups were filled anew.
    pub keys: Option<usize>,
}

impl Checkpointer {
    /// Puts the key groups of a lost task, whose tables must be gone, back to the newest complete checkpoint. Answers what the task in its place
    /// begins with; `None` if there is no checkpoint.
    ///
    /// # Errors
    /// After an error nothing of the store is to be relied on: the job must restart.
    pub async fn rewind(&self, store: &Arc<JobStore>, lost: LostTask) -> Result<Option<Rewound>> {
        let mut progress = self.progress.lock().await;
        let Some(manifest) = progress.newest.clone() else { return Ok(None) };
        let LostTask { writer, key_groups } = lost;
        let mut sources = ImageSources::default();
        let named = progress.uploads.retire(writer);
        // What has been swept of its key groups may be taken from the store again: an image of it would lack that.
        if let Some(imaging) = progress.imaging.take() {
            imaging.give_up().await;
        }
        // An image with changes that no log will ever reach could never be named.
        progress.pending.take_if(|pending| pending.positions.get(&writer).is_some_and(|position| *position > named));
        let mut keys = Some(0);
        if store.positions().get(&writer).is_some_and(|position| *position > named) {
            let undoing = store.clone();
            keys = blocking(move || undoing.undo_writer(writer)).await?;
            if keys.is_none() {
                sources = self.replace_groups(store, &manifest, &key_groups, writer).await?;
            }
        }
        let clock = Clock::system();
        let scratch = store.scratch(&format!("rewound-{}", REWINDS.fetch_add(1, Ordering::Relaxed)))?;
        let parts = self.load_log(&manifest.log, &scratch).await?;
        let fetched = (manifest.log_bytes(), clock.monotonic());
        let parts = parts.into_iter().filter(|part| part.overlaps(&key_groups)).collect();
        Ok(Some(Rewound { checkpoint: manifest.epoch, state: RestoredState::rewound(manifest.epoch, parts, fetched, sources), keys }))
    }

    /// Fills key groups anew from the materialization of a checkpoint.
    async fn replace_groups(&self, store: &Arc<JobStore>, manifest: &Manifest, groups: &Range<u16>, writer: u32) -> Result<ImageSources> {
        let mut sources = ImageSources::default();
        let image = match &manifest.image {
            None => None,
            Some(image) => {
                let beside = store.open_beside()?;
                sources = self.load_image(image, &beside, &self.object(&manifest.name.to_string())).await?;
                Some(beside)
            }
        };
        let (store, groups) = (store.clone(), groups.clone());
        blocking(move || store.replace_groups(&groups, image.as_deref(), writer)).await?;
        Ok(sources)
    }
}

#[cfg(test)]
mod tests;
