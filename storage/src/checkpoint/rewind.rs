//! Putting the state of one task back to the newest complete checkpoint while the other tasks of its job go on.
//!
//! A task that failed leaves three things: its tables, with what they have in memory; what it has brought into the job's store, which may be
//! newer than the checkpoint; and segments of its changelog that no manifest names yet. The segments are dropped, and a checkpoint for which it has
//! given its part already is given up: the task in its place does not know which keys they mention, and could not say that one of
//! them is gone again.
//!
//! The tables are kept if they can be: of each is known which entries were changed since the checkpoint, and what they were
//! ([`LeftTables`](crate::state_table::LeftTables)). These are changed back, in the store as far as they have come there
//! ([`Undo`](crate::state_table::undo::Undo)), then in memory. Nothing is loaded, and all of it costs as much as what has changed.
//!
//! Else the task that takes the place begins with what the checkpoint has of its key groups, as after a restart, but in the store that the others
//! use. As long as the failed one has not written to the store since its part of that checkpoint, the store has nothing that the log of the manifest
//! has not. Else the values come back that it has replaced since; only if they were not kept are its key groups emptied and filled again from
//! the manifest's materialization. Of the store the new task reads what it needs when it needs it, of the log what is of its key groups.
//!
//! All of it happens between two checkpoints, and a materialization that is being taken is given up, so that none is of a store that is half put back.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::local::ImageSources;
use super::manifest::{LogObject, Manifest};
use super::{Checkpointer, RestoredState};
use crate::env::Clock;
use crate::epoch::Epoch;
use crate::error::Result;
use crate::object::blocking;
use crate::state_table::undo::PutBack;
use crate::state_table::{ChangedTables, JobStore, KeptTables, LeftTables, StateOrigin};

static REWINDS: AtomicU64 = AtomicU64::new(0);

/// A task that has failed; see [`TaskState::lose`](crate::state_table::TaskState::lose).
pub struct LostTask {
    /// Its number among all that wrote to the store.
    pub(crate) writer: u32,
    /// What it owned.
    pub(crate) key_groups: Range<u16>,
    /// Its tables, if they are to be relied on.
    pub(crate) tables: Option<LeftTables>,
}

/// What a task goes on with in the place of a lost one.
pub struct Rewound {
    /// The epoch of the checkpoint.
    pub checkpoint: Epoch,
    /// The state there.
    pub origin: StateOrigin,
    /// How many entries of the tables were changed back in memory; `None`: the tables were not kept.
    pub entries: Option<usize>,
    /// How many keys of the store were put back; `None`: its key groups were filled anew.
    pub keys: Option<usize>,
    /// Bytes of log that were loaded.
    pub log_bytes: u64,
}

impl Checkpointer {
    /// Puts the key groups of a lost task back to the newest complete checkpoint. Answers what the task in its place
    /// begins with; `None` if there is no checkpoint.
    ///
    /// # Errors
    /// After an error nothing of the store is to be relied on: the job must restart.
    pub async fn rewind(&self, store: &Arc<JobStore>, lost: LostTask) -> Result<Option<Rewound>> {
        let mut progress = self.progress.lock().await;
        let Some(manifest) = progress.newest.clone() else { return Ok(None) };
        let LostTask { writer, key_groups, tables } = lost;
        let named = progress.uploads.retire(writer);
        // What has been swept of its key groups may be taken from the store again: an image of it would lack that.
        if let Some(imaging) = progress.imaging.take() {
            imaging.give_up().await;
        }
        // An image with changes that no log will ever reach could never be named.
        progress.pending.take_if(|pending| pending.positions.get(&writer).is_some_and(|position| *position > named));
        let undoing = store.clone();
        let PutBackState { keys, kept } = blocking(move || go_back(&undoing, writer, named, tables)).await?;
        self.objects.reach("rewind::undone")?;
        if let Some((tables, entries)) = kept {
            let origin = StateOrigin::Kept(tables);
            return Ok(Some(Rewound { checkpoint: manifest.epoch, origin, entries: Some(entries), keys, log_bytes: 0 }));
        }
        let sources = match keys {
            Some(_) => ImageSources::default(),
            None => self.replace_groups(store, &manifest, &key_groups, writer).await?,
        };
        let clock = Clock::system();
        let scratch = store.scratch(&format!("rewound-{}", REWINDS.fetch_add(1, Ordering::Relaxed)))?;
        let log: Vec<LogObject> = manifest.log.iter().filter(|log| log.overlaps(&key_groups)).cloned().collect();
        let parts = self.load_log(&log, &scratch).await?;
        let log_bytes = log.iter().map(|log| log.object.known.bytes).sum();
        let parts = parts.into_iter().filter(|part| part.overlaps(&key_groups)).collect();
        let state = RestoredState::rewound(manifest.epoch, parts, (log_bytes, clock.monotonic()), sources);
        let origin = StateOrigin::Checkpoint(state);
        Ok(Some(Rewound { checkpoint: manifest.epoch, origin, entries: None, keys, log_bytes }))
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

/// What was put back.
struct PutBackState {
    /// Keys of the store; `None` if they are not known.
    keys: Option<usize>,
    /// The tables and how many of their entries, if they can be kept.
    kept: Option<(KeptTables, usize)>,
}

/// Puts back what `writer` has in the store and in its tables behind `named`.
fn go_back(store: &JobStore, writer: u32, named: u64, tables: Option<LeftTables>) -> Result<PutBackState> {
    let changed = match tables {
        Some(tables) => tables.behind(named)?,
        None => None,
    };
    let keys = match store.positions().get(&writer) {
        Some(position) if *position > named => {
            let put_back = |key: &[u8]| changed.as_ref().map_or(PutBack::AsItWas, |changed: &ChangedTables| changed.put_back(key));
            store.undo_writer(writer, &put_back)?
        }
        _ => Some(0),
    };
    let kept = match changed {
        Some(changed) if keys.is_some() => Some(changed.go_back(store)?),
        _ => None,
    };
    Ok(PutBackState { keys, kept })
}

#[cfg(test)]
mod tests;
