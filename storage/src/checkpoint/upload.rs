//! Changelog segments on their way into a checkpoint.
//!
//! The parts of a task's segment are the only place of its changes until a manifest names them. So they are kept here from the moment they
//! arrive, through failed uploads and failed manifests, until one does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt};

use super::Checkpointer;
use super::manifest::{LogObject, NamedObject};
use crate::epoch::Epoch;
use crate::error::{Result, StorageError};
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
    part: SegmentPart,
    epoch: Epoch,
    writer: u32,
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
                self.waiting.push(Waiting { name, part, epoch: task.epoch, writer: task.writer });
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
                waiting.part.discard();
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
    /// Where each task's changelog stood at the newest manifest.
    pub(super) fn named_positions(&self) -> &BTreeMap<u32, u64> {
        &self.named_positions
    }
}

impl Checkpointer {
    /// Uploads what waits. Returns how many bytes it was.
    pub(super) async fn upload_logs(&self, uploads: &mut Uploads) -> Result<u64> {
        let parts: Vec<_> = uploads.waiting.iter().map(|waiting| self.upload_part(waiting).boxed()).collect();
        let objects: Vec<(u32, LogObject)> = futures::stream::iter(parts).buffered(PARALLEL_UPLOADS).try_collect().await?;
        let bytes = objects.iter().map(|(_, log)| log.object.known.bytes).sum();
        uploads.uploaded.extend(objects);
        uploads.waiting.drain(..).for_each(|waiting| waiting.part.discard());
        Ok(bytes)
    }

    async fn upload_part(&self, waiting: &Waiting) -> Result<(u32, LogObject)> {
        let part = waiting.part.clone();
        let bytes = crate::object::blocking(move || part.read()).await?;
        let name = format!("log/{}.{}", waiting.name, self.attempt);
        let known = self.objects.put(&self.object(&name), &bytes).await?;
        Ok((waiting.writer, LogObject { epoch: waiting.epoch, groups: Some(waiting.part.groups), object: NamedObject { name, known } }))
    }
}
