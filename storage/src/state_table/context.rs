//! What a table knows of its task: where its keys belong, the task's changelog and the job's store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::key_group::key_group;
use crate::memory::MemoryHandle;
use crate::state_changelog::{ChangelogWriter, put_varint};
use crate::state_store::{StateStore, WriteOps};
use crate::state_table::before_images::BeforeImages;
use crate::state_table::{JobStore, undo};

/// Number of a state table, unique among all tables of a job and stable for the life of its plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableId(pub u16);

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many of a key's first bytes are its distribution key.
pub type KeyLengthFn = dyn Fn(&[u8]) -> usize + Send + Sync;

/// Which part of a table's key says to what subtask an entry belongs. It must be what the exchange in front of the operator hashes.
#[derive(Clone)]
pub enum KeyDistribution {
    /// The whole key (of a range table: the whole prefix).
    Whole,
    /// The first bytes; the function gives their number for a key.
    Prefix(Arc<KeyLengthFn>),
    /// Nothing: entries belong to key group 0 and every subtask sees those of all.
    Single,
}

/// Bytes before the table's own key: key group and table id.
pub(crate) const KEY_PREFIX_BYTES: usize = 4;

/// What all tables of a task share.
pub(crate) struct TaskShared {
    pub(crate) store: Arc<JobStore>,
    /// Number of the task among all that ever wrote to the store.
    pub(crate) writer: u32,
    pub(crate) key_groups: Range<u16>,
    pub(crate) changelog: Mutex<ChangelogWriter>,
}

/// One table's place in its task.
pub(crate) struct TableContext {
    pub(crate) id: TableId,
    pub(crate) task: Arc<TaskShared>,
    pub(crate) distribution: KeyDistribution,
    pub(crate) memory: MemoryHandle,
}

impl TableContext {
    /// The key group of a key (of a range table: of a prefix).
    pub(crate) fn group(&self, key: &[u8]) -> u16 {
        match &self.distribution {
            KeyDistribution::Whole => key_group(key),
            KeyDistribution::Prefix(length) => key_group(&key[..length(key)]),
            KeyDistribution::Single => 0,
        }
    }

    /// Whether every subtask sees the entries of all.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.distribution, KeyDistribution::Single)
    }

    /// The key groups whose entries this table holds.
    pub(crate) fn groups(&self) -> Range<u16> {
        match self.distribution {
            KeyDistribution::Single => 0..1,
            KeyDistribution::Whole | KeyDistribution::Prefix(_) => self.task.key_groups.clone(),
        }
    }

    /// Replaces `out` by what all full keys of the table in `group` start with.
    pub(crate) fn start_key(&self, group: u16, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&group.to_be_bytes());
        out.extend_from_slice(&self.id.0.to_be_bytes());
    }

    /// Replaces `out` by the full key of `key`.
    pub(crate) fn full_key(&self, key: &[u8], out: &mut Vec<u8>) {
        let group = self.group(key);
        debug_assert!(self.groups().contains(&group), "key of group {group} in a table for {:?}", self.groups());
        self.start_key(group, out);
        out.extend_from_slice(key);
    }

    /// Replaces `out` by what the full keys of all entries under `prefix` of a range table start with. The length is in it, so that no prefix
    /// is mistaken for the beginning of another one.
    pub(crate) fn full_prefix(&self, prefix: &[u8], out: &mut Vec<u8>) {
        let group = self.group(prefix);
        debug_assert!(self.groups().contains(&group), "key of group {group} in a table for {:?}", self.groups());
        self.start_key(group, out);
        put_varint(out, prefix.len() as u64);
        out.extend_from_slice(prefix);
    }

    /// Bounds of a table's keys in `group`; the lower one is what all of them start with.
    pub(crate) fn range_of(id: TableId, group: u16) -> (Vec<u8>, Vec<u8>) {
        let number = u32::from(group) << 16 | u32::from(id.0);
        (number.to_be_bytes().to_vec(), (number + 1).to_be_bytes().to_vec())
    }

    /// Bounds of this table's keys in `group`.
    pub(crate) fn group_range(&self, group: u16) -> (Vec<u8>, Vec<u8>) {
        Self::range_of(self.id, group)
    }

    /// The place of a table that takes this one's.
    pub(crate) fn again(&self) -> Self {
        let memory = self.task.store.budget().handle(&format!("state table {}", self.id));
        Self { id: self.id, task: self.task.clone(), distribution: self.distribution.clone(), memory }
    }

    /// Notes that a segment of the changelog ends at `position`, in the before-images if some are to be kept.
    pub(super) fn end_segment(&self, images: &mut Option<BeforeImages>, position: u64) {
        let undo = self.task.store.undo();
        if undo.named_if_kept(self.task.writer).is_none() {
            *images = None;
            return;
        }
        images.get_or_insert_with(|| BeforeImages::new(undo.images())).end_segment(position);
        self.forget_images(images);
    }

    /// Drops before-images of what a complete checkpoint has.
    pub(super) fn forget_images(&self, images: &mut Option<BeforeImages>) {
        if let Some(images) = images
            && let Some(named) = self.task.store.undo().named_if_kept(self.task.writer)
        {
            images.forget(named);
        }
    }

    /// The job's store, `None` as long as nothing was ever written to it.
    pub(crate) fn stored(&self) -> Option<&dyn StateStore> {
        self.task.store.opened()
    }

    /// Writes a batch whose entries the changelog already has.
    pub(crate) fn write(&self, ops: WriteOps) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        let (store, writer) = (&self.task.store, self.task.writer);
        let mut changelog = self.task.changelog.lock();
        let position = changelog.position();
        let changed = match store.undo().named_if_kept(writer) {
            Some(named) => undo::keys_of(&ops, changelog.changed_behind(named)),
            None => Vec::new(),
        };
        drop(changelog);
        store.write(writer, position, ops, changed)
    }

    /// Whether a table that is being restored may still bring entries into memory: a quarter of the budget is left for what comes then.
    pub(crate) fn has_room_to_restore(&self) -> bool {
        self.memory.budget_used() < self.memory.limit() / 4 * 3
    }

    /// How many bytes this table should give back now, being one of several over a common limit. `streak` counts how often in a row it was
    /// asked: the share doubles, so that busy tables make room even if others never do.
    pub(crate) fn excess_share(&self, own_bytes: usize, streak: u32) -> usize {
        let excess = self.memory.excess();
        let spare = own_bytes.saturating_sub(LEAST_TABLE_BYTES);
        let used = excess + self.memory.limit();
        let share = (excess as u128 * own_bytes as u128 / used.max(1) as u128) as usize;
        share.saturating_mul(1 << streak.min(10)).clamp(0, excess).min(spare)
    }
}

/// What a table keeps in memory however tight the budget is, in bytes.
pub(crate) const LEAST_TABLE_BYTES: usize = 64 << 10;
