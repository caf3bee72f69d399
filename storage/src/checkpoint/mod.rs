//! Checkpoints of a job's state: *materialization + log since*.
//!
//! # Objects
//! Under `jobs/<job>/`: `log/<epoch>-<subtask>-<attempt>` (parts of the state changelog), `mat/<term>-<content>` (files of a materialization,
//! named by their content), `flight/<epoch>-<subtask>.<attempt>` (messages that an unaligned checkpoint overtook, see [`InFlight`]) and
//! `manifest-<term>-<number>`. Objects are never changed. A checkpoint is complete when its manifest is
//! there: it is put last, create-only, durable like everything before it.
//!
//! # What may be named
//! An image of the store holds every change up to the *base* of the sweep before it, and some later ones up to the positions it says. A
//! manifest names it only if its own log reaches those positions. It then also names all log after the base: replaying a change that the image
//! has already does no harm, because changes are whole values and the last one of a key wins.
//!
//! # After a crash
//! Restoring takes the newest manifest and nothing else. What it names is there, or the error says which file is missing or damaged;
//! there is no silent fallback to an older one, or to nothing. What no live manifest names is deleted later.

mod image;
mod in_flight;
mod local;
mod manifest;
mod prune;
mod replay;
mod restore;
mod rewind;
mod settling;
mod upload;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::env::Clock;
use crate::epoch::Epoch;
use crate::error::{Result, StorageError};
use crate::object::{Created, ObjectStorage};
use crate::state_table::TaskCheckpoint;
use image::{IMAGE_PATIENCE, Imaging, PendingImage};
pub use in_flight::{InFlight, Segment, SegmentMessage};
use local::LocalCopies;
pub use local::{ImageSources, remove_local_copies};
use manifest::{Manifest, ManifestName};
pub use replay::ReplayBound;
pub use restore::{Restored, RestoredState};
pub use rewind::{LostTask, Rewound};
pub use settling::Settling;
use upload::Uploads;

/// Log shorter than this is not worth a materialization.
const LEAST_LOG_BYTES: u64 = 64 << 20;

/// How long a restart may replay if nothing else is said.
pub const RECOVERY_TARGET: Duration = Duration::from_secs(10);

static ATTEMPTS: AtomicU64 = AtomicU64::new(0);

/// Writes and reads the checkpoints of one job. One life of the job has one of these.
pub struct Checkpointer {
    objects: ObjectStorage,
    job: u64,
    term: u64,
    fingerprint: u64,
    /// In the names of log objects, so that no two lives of a job ever write the same name.
    attempt: String,
    /// Materializes when the log is longer than this, however large the state is.
    materialize_after: Option<u64>,
    /// Materializes when the replay of the log would take longer.
    replay: Arc<ReplayBound>,
    /// Where files of materializations are kept besides.
    local: Option<LocalCopies>,
    image_patience: Duration,
    settling: Settling,
    progress: Mutex<Progress>,
}

/// What goes into a checkpoint.
pub struct ManifestInput {
    /// The epoch at which the state was taken.
    pub epoch: Epoch,
    /// One part of each subtask.
    pub parts: Vec<TaskCheckpoint>,
    /// What the subtasks of an unaligned checkpoint found in flight; `None` for an aligned one.
    pub in_flight: Option<Vec<InFlight>>,
    /// How far each upstream collection or source was consumed.
    pub upstream: Vec<(u64, Epoch)>,
    /// What the job wants to find again.
    pub notes: BTreeMap<String, String>,
}

/// What a checkpoint cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Its epoch.
    pub epoch: Epoch,
    /// Name of its manifest.
    pub manifest: String,
    /// Bytes of changelog uploaded for it.
    pub bytes_log: u64,
    /// Bytes of materialization that were uploaded since the one before.
    pub bytes_materialized: u64,
    /// Bytes of all changelog that a restart would replay.
    pub bytes_replay: u64,
    /// How long that would take, as far as is known.
    pub replay: Duration,
    /// Bytes of in-flight data, by number of the subtask that found it.
    pub bytes_in_flight: BTreeMap<u32, u64>,
    /// Bytes of all objects it names.
    pub bytes_stored: u64,
    /// From the call to the durable manifest.
    pub duration: Duration,
}

/// Where the job's checkpoints stand.
#[derive(Default)]
struct Progress {
    uploads: Uploads,
    /// The newest manifest, written or restored.
    newest: Option<Manifest>,
    /// The highest number of a manifest that was to be written.
    tried: u64,
    /// An image that is being taken and uploaded.
    imaging: Option<Imaging>,
    /// An uploaded image that no manifest could name yet.
    pending: Option<PendingImage>,
    /// The request for an image that the tasks are answering.
    requested: u64,
    restored: Option<RestoredState>,
}

impl Checkpointer {
    /// For `job` under the leader's `term`. `fingerprint` identifies the graph: state of another graph is refused.
    pub fn new(objects: ObjectStorage, job: u64, term: u64, fingerprint: u64) -> Self {
        Self {
            objects,
            job,
            term,
            fingerprint,
            attempt: format!("{term}.{}", ATTEMPTS.fetch_add(1, Ordering::Relaxed)),
            materialize_after: None,
            replay: Arc::new(ReplayBound::new(RECOVERY_TARGET)),
            local: None,
            image_patience: IMAGE_PATIENCE,
            settling: Settling::default(),
            progress: Mutex::default(),
        }
    }

    /// Materializes whenever the log is longer than `bytes`, instead of when it is longer than the state and worth it.
    pub fn materialize_after(mut self, bytes: u64) -> Self {
        self.materialize_after = Some(bytes);
        self
    }

    /// Materializes also when a restart would replay longer than `bound` says.
    pub fn with_replay_bound(mut self, bound: Arc<ReplayBound>) -> Self {
        self.replay = bound;
        self
    }

    /// Keeps the files of materializations in `directory` too, if the objects are not on this machine anyway.
    pub fn with_local_copies(mut self, directory: PathBuf) -> Self {
        self.local = self.objects.is_shared().then(|| LocalCopies::new(directory));
        self
    }

    fn object(&self, name: &str) -> String {
        format!("jobs/{}/{name}", self.job)
    }

    /// Completes a checkpoint: uploads the parts, then writes the manifest, then deletes what is no longer needed.
    ///
    /// After an I/O error nothing is lost: the parts are kept, those that are in the object store there, and go into the next checkpoint.
    /// [`StorageError::Internal`] means that a part is missing and the job must restart from its last checkpoint; [`StorageError::Fenced`] that
    /// it must stop; [`StorageError::GivenUp`] that one of the tasks has been replaced since it gave its part: the others' parts are kept, as
    /// after an I/O error. It may be given up at any time by dropping it; see [`Self::settling`].
    pub async fn complete(&self, input: ManifestInput) -> Result<CheckpointReport> {
        let clock = Clock::system();
        let mut progress = self.progress.lock().await;
        let progress = &mut *progress;
        let tasks = progress.uploads.accept(input.parts)?;
        let bytes_log = self.upload_logs(&mut progress.uploads, tasks.store.as_ref()).await?;
        self.objects.reach("checkpoint::logs")?;
        let in_flight = match input.in_flight {
            Some(flights) => Some(self.upload_in_flight(input.epoch, flights).await?),
            None => None,
        };
        self.objects.reach("checkpoint::in_flight")?;
        self.begin_image(progress, &tasks);
        let bytes_materialized = self.collect_image(progress).await;

        let pending = progress.pending.as_ref().filter(|pending| progress.uploads.reach(&pending.positions));
        let names_pending = pending.is_some();
        let mut manifest = self.next_manifest(progress, pending, input.epoch);
        manifest.upstream = input.upstream;
        manifest.notes = input.notes;
        manifest.in_flight = in_flight;
        self.objects.reach("checkpoint::manifest")?;
        progress.tried = manifest.name.number;
        self.write_manifest(&manifest).await?;
        progress.uploads.named();
        if let Some(store) = &tasks.store {
            store.undo().named(progress.uploads.named_positions());
        }
        if names_pending {
            progress.pending = None;
        }
        let report = CheckpointReport {
            epoch: input.epoch,
            manifest: self.object(&manifest.name.to_string()),
            bytes_log,
            bytes_materialized,
            bytes_replay: manifest.log_bytes(),
            replay: self.replay.time_of(manifest.log_bytes()),
            bytes_in_flight: manifest.in_flight.iter().flatten().map(|flight| (flight.subtask, flight.object.known.bytes)).collect(),
            bytes_stored: manifest.log_bytes() + manifest.image_bytes() + manifest.in_flight_bytes(),
            duration: clock.monotonic(),
        };
        self.want_image(progress, &manifest, bytes_log, &tasks);
        let previous = progress.newest.replace(manifest);
        self.objects.reach("checkpoint::prune")?;
        self.prune(progress, previous).await;
        Ok(report)
    }

    /// The manifest that follows the newest one: its log and all uploads since, over its image or the `pending` one.
    fn next_manifest(&self, progress: &Progress, pending: Option<&PendingImage>, epoch: Epoch) -> Manifest {
        let newest = progress.newest.as_ref();
        // One that seemed to fail may be there, as when only the answer was lost.
        let number = newest.map_or(0, |newest| newest.name.number).max(progress.tried) + 1;
        let mut manifest = Manifest::new(ManifestName { term: self.term, number }, self.job, self.fingerprint, epoch);
        let inherited = newest.and_then(|newest| newest.image.as_ref());
        manifest.image = pending.map(|pending| &pending.image).or(inherited).cloned();
        let base = manifest.image.as_ref().map_or(Epoch(0), |image| image.base);
        let named = newest.map_or(&[][..], |newest| newest.log.as_slice());
        manifest.log = named.iter().chain(progress.uploads.unnamed()).filter(|log| log.epoch > base).cloned().collect();
        manifest
    }

    /// What the job's next life has to wait for when a checkpoint was given up.
    pub fn settling(&self) -> Settling {
        self.settling.clone()
    }

    /// The tasks so far have ended: all their parts have been accepted, and others go on with what they had.
    pub async fn succeed_tasks(&self) {
        let mut progress = self.progress.lock().await;
        progress.uploads.forget_tasks();
        progress.requested = 0;
    }

    async fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let name = self.object(&manifest.name.to_string());
        let (objects, bytes) = (self.objects.clone(), manifest.encode(&self.attempt));
        match self.settling.to_its_end(async move { objects.put_create(&name, &bytes).await }).await? {
            Created::New | Created::Same => Ok(()),
            Created::Taken => Err(StorageError::Fenced { job: self.job, term: self.term }),
        }
    }

    /// Asks for a new image when the log is about to become longer than the state, or half as long as what can be replayed in time: while the image is
    /// made the log goes on growing. Should it come to the whole of that, the image is hurried.
    fn want_image(&self, progress: &mut Progress, manifest: &Manifest, bytes_log: u64, tasks: &upload::Tasks) {
        let Some(store) = &tasks.store else { return };
        let (log, replayable) = (manifest.log_bytes(), self.replay.bytes());
        if progress.requested > 0 && log.saturating_add(bytes_log) > replayable {
            store.hurry_image();
        }
        if progress.requested > 0 || progress.pending.is_some() || progress.imaging.is_some() {
            return;
        }
        let state = tasks.memory_bytes.max(store.approximate_bytes());
        let bound = self.materialize_after.unwrap_or(LEAST_LOG_BYTES.max(state));
        // The next checkpoint is expected to add as much as this one did.
        if log.saturating_add(bytes_log) > bound.min(replayable / 2) {
            progress.requested = store.want_image();
        }
    }
}

#[cfg(test)]
mod tests;
