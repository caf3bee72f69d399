//! Changelog segments on their way into a checkpoint.
//!
//! The parts of a task's segment are the only place of its changes until a manifest names them. So they are kept here from the moment they
//! arrive, through failed uploads and failed manifests, until one does. What an upload has brought to the object store stays there if another
//! one fails: a store that takes some of what it is given is through after a while. The rest waits on disk, however long the store is away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{FutureExt, StreamExt};

use super::Checkpointer;
use super::manifest::{LogObject, NamedObject};
use crate::epoch::Epoch;
use crate::error::{Result, StorageError};
use crate::object::blocking;
use crate::state_changelog::SegmentPart;
use crate::state_table::JobStore;
use crate::state_table::{Sweep, TaskCheckpoint};

const PARALLEL_UPLOADS: usize = 4;

/// What is known of the tasks after a checkpoint's parts were accepted.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) store: Option<Arc<JobStore>>,
    pub(super) memory_bytes: u64,
    /// The sweep that every task that ever wrote has finished, with the lowest base.
    pub(super) swept: Option<Sweep>,
}

struct Waiting {
    name: String,
    place: PartPlace,
    epoch: Epoch,
    /// The lowest and the highest key group it has changes of.
    groups: (u16, u16),
    writer: u32,
}

/// Where a part is.
enum PartPlace {
    /// Here, and to be uploaded.
    Here(SegmentPart),
    /// In the object store.
    There(NamedObject),
}

impl Waiting {
    /// The part, if it is here.
    fn part(&self) -> Option<&SegmentPart> {
        match &self.place {
            PartPlace::Here(part) => Some(part),
            PartPlace::There(_) => None,
        }
    }

    /// The part is in the object store.
    fn arrive(&mut self, object: NamedObject) {
        if let PartPlace::Here(part) = std::mem::replace(&mut self.place, PartPlace::There(object)) {
            part.discard();
        }
    }
}

/// Parts that no manifest names yet, and where each task's changelog stands.
#[derive(Default)]
pub(super) struct Uploads {
    waiting: Vec<Waiting>,
    /// With the task that gave each.
    uploaded: Vec<(u32, LogObject)>,
    sequences: BTreeMap<u32, u64>,
    positions: BTreeMap<u32, u64>,
    /// The same as of the newest manifest.
    named_positions: BTreeMap<u32, u64>,
    /// Tasks that have failed and that others have replaced.
    retired: BTreeSet<u32>,
    names: u64,
}

impl Uploads {
    /// Takes over the parts of a checkpoint.
    ///
    /// # Errors
    /// [`StorageError::GivenUp`] if one is of a task that has been replaced since: there is no such checkpoint then, but the other parts are
    /// kept for the next one.
    pub(super) fn accept(&mut self, parts: Vec<TaskCheckpoint>) -> Result<Tasks> {
        let mut tasks = Tasks::default();
        let mut sweeps: BTreeMap<u32, Sweep> = BTreeMap::new();
        let mut lost = None;
        for task in parts {
            if self.retired.contains(&task.writer) {
                lost = Some(task.epoch);
                task.parts.iter().for_each(SegmentPart::discard);
                continue;
            }
            let sequence = self.sequences.entry(task.writer).or_default();
            if *sequence + 1 != task.sequence {
                let message = format!("the state changelog of subtask {} has a gap before epoch {}", task.subtask, task.epoch);
                return Err(StorageError::Internal(message));
            }
            *sequence = task.sequence;
            self.positions.insert(task.writer, task.position);
            sweeps.insert(task.writer, task.swept);
            tasks.memory_bytes += task.memory_bytes as u64;
            for part in task.parts {
                self.names += 1;
                let name = format!("{}-{}-{}", task.epoch, task.subtask, self.names);
                let groups = part.groups;
                self.waiting.push(Waiting { name, place: PartPlace::Here(part), epoch: task.epoch, groups, writer: task.writer });
            }
            tasks.store = Some(task.store);
        }
        if let Some(epoch) = lost {
            return Err(StorageError::GivenUp { epoch: epoch.0 });
        }
        // A task that ended may have left changes that never came into the store.
        if self.sequences.keys().all(|writer| sweeps.contains_key(writer)) {
            let request = sweeps.values().map(|sweep| sweep.request).min();
            let base = sweeps.values().map(|sweep| sweep.base).min();
            tasks.swept = request.zip(base).map(|(request, base)| Sweep { request, base });
        }
        Ok(tasks)
    }

    /// A task has failed and another one takes its place: what it has given since the newest manifest, and may still give, is dropped. Answers
    /// where its changelog stood there.
    pub(super) fn retire(&mut self, writer: u32) -> u64 {
        self.sequences.remove(&writer);
        self.retired.insert(writer);
        self.waiting.retain(|waiting| {
            let is_kept = waiting.writer != writer;
            if !is_kept {
                waiting.part().into_iter().for_each(SegmentPart::discard);
            }
            is_kept
        });
        self.uploaded.retain(|(of, _)| *of != writer);
        self.named_positions.get(&writer).copied().unwrap_or(0)
    }

    /// Tasks that are gone add nothing any more, and what they had others have.
    pub(super) fn forget_tasks(&mut self) {
        self.sequences.clear();
    }

    /// Whether each task's changelog, as far as it was accepted, reaches these positions.
    pub(super) fn reach(&self, positions: &BTreeMap<u32, u64>) -> bool {
        positions.iter().all(|(writer, position)| self.positions.get(writer).is_some_and(|accepted| accepted >= position))
    }

    /// What is uploaded and not yet in a manifest.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = &LogObject> {
        self.uploaded.iter().map(|(_, log)| log)
    }

    /// Notes that a complete manifest names all uploads.
    pub(super) fn named(&mut self) {
        self.uploaded.clear();
        self.named_positions = self.positions.clone();
    }
}

impl Uploads {
    /// Bytes of parts that wait for their upload, and how many of them are in memory.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> (u64, u64) {
        let parts = || self.waiting.iter().filter_map(Waiting::part);
        let bytes = |part: &SegmentPart| part.bytes;
        (parts().map(bytes).sum(), parts().filter(|part| part.is_in_memory()).map(bytes).sum())
    }

    /// Where each task's changelog stood at the newest manifest.
    pub(super) fn named_positions(&self) -> &BTreeMap<u32, u64> {
        &self.named_positions
    }

    /// Brings what waits in memory to the disk: it may have to wait long. What the disk does not take stays where it is.
    async fn spill(&mut self, store: &JobStore) {
        for waiting in &mut self.waiting {
            let PartPlace::Here(part) = &mut waiting.place else { continue };
            if !part.is_in_memory() {
                continue;
            }
            let (mut spilled, name) = (part.clone(), waiting.name.clone());
            let directory = store.scratch("waiting");
            match blocking(move || spilled.spill(&directory?.join(name)).map(|()| spilled)).await {
                Ok(spilled) => *part = spilled,
                Err(error) => {
                    tracing::warn!(%error, "what could not be uploaded waits in memory");
                    return;
                }
            }
        }
    }

    /// All parts have arrived; answers how many bytes they have.
    fn all_arrived(&mut self) -> u64 {
        let before = self.uploaded.len();
        for Waiting { place, epoch, groups, writer, .. } in self.waiting.drain(..) {
            if let PartPlace::There(object) = place {
                self.uploaded.push((writer, LogObject { epoch, groups: Some(groups), object }));
            }
        }
        self.uploaded[before..].iter().map(|(_, log)| log.object.known.bytes).sum()
    }
}

impl Checkpointer {
    /// Uploads what waits and is not there yet. Returns how many bytes have come there since this last succeeded. After an error the next call goes
    /// on where this one has ended, and what is left waits in scratch files of `store`.
    pub(super) async fn upload_logs(&self, uploads: &mut Uploads, store: Option<&Arc<JobStore>>) -> Result<u64> {
        let missing = uploads.waiting.iter().enumerate().filter_map(|(index, waiting)| Some((index, waiting, waiting.part()?)));
        let missing: Vec<_> =
            missing.map(|(index, waiting, part)| self.upload_part(index, waiting.name.clone(), part.clone()).boxed()).collect();
        let mut arriving = futures::stream::iter(missing).buffer_unordered(PARALLEL_UPLOADS);
        // Others may come through where one has not; when most do not, the store is to be left in peace.
        let (mut arrived, mut failed, mut error) = (0, 0, None);
        while failed <= arrived
            && let Some(upload) = arriving.next().await
        {
            match upload {
                Ok((index, object)) => {
                    uploads.waiting[index].arrive(object);
                    arrived += 1;
                }
                Err(cause) => {
                    error = Some(cause);
                    failed += 1;
                }
            }
        }
        drop(arriving);
        let Some(error) = error else { return Ok(uploads.all_arrived()) };
        if let Some(store) = store {
            uploads.spill(store).await;
        }
        Err(error)
    }

    async fn upload_part(&self, index: usize, name: String, part: SegmentPart) -> Result<(usize, NamedObject)> {
        let bytes = blocking(move || part.read()).await?;
        let name = format!("log/{name}.{}", self.attempt);
        let known = self.objects.put(&self.object(&name), &bytes).await?;
        Ok((index, NamedObject { name, known }))
    }
}
