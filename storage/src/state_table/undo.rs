//! What a job's store held before changes came into it that no complete checkpoint has.
//!
//! A task that fails while the others go on is put back to the newest complete checkpoint. What it has brought into the store since then must go, and
//! that is to cost as much as it was, not as much as its state is. So, for jobs whose tasks may be put back one by one, the values that a
//! batch replaces are read before it is written, of the keys that have changed since that checkpoint only: what a batch says of others the
//! checkpoint says too. A checkpoint that becomes complete makes them void. Too many are not kept; then the task's key groups are filled anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Result;
use crate::memory::{MemoryBudget, MemoryHandle};
use crate::state_changelog::RecentChanges;
use crate::state_store::{StateStore, WriteOp, WriteOps};

/// Part of the memory limit that they may take.
const LIMIT_DIVISOR: usize = 32;

/// Keys in ascending order with what they held, `None` if they were not there.
type Before = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// See the module.
pub(crate) struct Undo {
    is_kept: AtomicBool,
    writers: Mutex<BTreeMap<u32, OfWriter>>,
    memory: MemoryHandle,
    /// Of the tables' own notes.
    images: Arc<MemoryHandle>,
}

/// What becomes of a key that a lost task may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PutBack {
    /// It stays: it is as it is in the checkpoint.
    Nothing,
    /// It gets the value back that was replaced. The checkpoint may have a later one in its log.
    AsItWas,
    /// It is removed: the checkpoint does not have it.
    Removed,
}

/// Of one writer.
#[derive(Default)]
struct OfWriter {
    /// Position in its changelog up to which the newest complete checkpoint has it.
    named: u64,
    /// Its batches behind that, oldest first, by the position of its changelog then.
    batches: VecDeque<(u64, Before)>,
    bytes: usize,
    /// Batches up to this position are not known.
    lost_upto: u64,
}

impl OfWriter {
    fn shrink(&mut self, memory: &MemoryHandle, bytes: usize) {
        self.bytes -= bytes;
        memory.shrink(bytes);
    }

    fn lose(&mut self, memory: &MemoryHandle, upto: u64) {
        self.shrink(memory, self.bytes);
        self.batches.clear();
        self.lost_upto = upto;
    }
}

/// The keys of a batch that may have changed, ascending.
pub(super) fn keys_of(ops: &WriteOps, recent: &RecentChanges) -> Vec<Vec<u8>> {
    let keys = ops.iter().map(|op| match op {
        WriteOp::Put(key, _) | WriteOp::Delete(key) | WriteOp::DeleteRange(key, _) => key,
    });
    let mut changed: Vec<Vec<u8>> = keys.filter(|key| recent.may_have(key)).map(<[u8]>::to_vec).collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}

fn bytes_of(before: &Before) -> usize {
    before.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, Vec::len) + size_of::<(Vec<u8>, Vec<u8>)>()).sum()
}

impl Undo {
    /// Nothing is kept until [`Self::keep`] says so.
    pub(super) fn new(budget: &MemoryBudget) -> Self {
        let images = Arc::new(budget.handle("what tables held before"));
        Self { is_kept: AtomicBool::new(false), writers: Mutex::default(), memory: budget.handle("state to go back to"), images }
    }

    /// In which tables count what their entries were before.
    pub(super) fn images(&self) -> Arc<MemoryHandle> {
        self.images.clone()
    }

    pub(super) fn keep(&self, is_kept: bool) {
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// If what `writer` replaces is to be kept, the position up to which the newest complete checkpoint has its changes.
    pub(super) fn named_if_kept(&self, writer: u32) -> Option<u64> {
        self.is_kept.load(Ordering::Relaxed).then(|| self.writers.lock().get(&writer).map_or(0, |of| of.named))
    }

    /// What `keys` hold now, before `writer` replaces it.
    pub(super) fn read(store: &dyn StateStore, keys: Vec<Vec<u8>>) -> Result<Before> {
        let mut before: Before = keys.into_iter().map(|key| (key, None)).collect();
        let mut found: Vec<(usize, Vec<u8>)> = Vec::new();
        let asked: Vec<&[u8]> = before.iter().map(|(key, _)| key.as_slice()).collect();
        store.multi_get_sorted(&asked, &mut |index, value| {
            found.push((index, value.to_vec()));
            Ok(())
        })?;
        for (index, value) in found {
            before[index].1 = Some(value);
        }
        Ok(before)
    }

    /// `writer`, whose changelog has come to `position`, is about to write a batch that replaces this.
    pub(super) fn add(&self, writer: u32, position: u64, before: Before) {
        let mut writers = self.writers.lock();
        let of = writers.entry(writer).or_default();
        if !self.is_kept.load(Ordering::Relaxed) {
            return of.lose(&self.memory, position);
        }
        if before.is_empty() {
            return;
        }
        let bytes = bytes_of(&before);
        of.bytes += bytes;
        self.memory.grow(bytes);
        of.batches.push_back((position, before));
        if self.memory.used() > self.memory.limit() / LIMIT_DIVISOR {
            of.lose(&self.memory, position);
        }
    }

    /// A checkpoint is complete that has the changes of each writer up to its position.
    pub(crate) fn named(&self, positions: &BTreeMap<u32, u64>) {
        if positions.is_empty() {
            return;
        }
        let mut writers = self.writers.lock();
        for (writer, position) in positions {
            let of = writers.entry(*writer).or_default();
            of.named = of.named.max(*position);
            while let Some((_, before)) = of.batches.pop_front_if(|(at, _)| *at <= *position) {
                of.shrink(&self.memory, bytes_of(&before));
            }
        }
    }

    /// What is to be written so that the store has nothing of `writer` behind the newest complete checkpoint, and of how many keys that is; `None`
    /// if it is not known. Nothing is kept of the writer from then on.
    pub(super) fn take(&self, writer: u32, put_back: &dyn Fn(&[u8]) -> PutBack) -> Option<(WriteOps, usize)> {
        let of = self.writers.lock().remove(&writer).unwrap_or_default();
        self.memory.shrink(of.bytes);
        if of.lost_upto > of.named {
            return None;
        }
        let mut oldest: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for (key, value) in of.batches.into_iter().flat_map(|(_, before)| before) {
            match put_back(&key) {
                PutBack::Nothing => {}
                PutBack::AsItWas => drop(oldest.entry(key).or_insert(value)),
                PutBack::Removed => drop(oldest.entry(key).or_insert(None)),
            }
        }
        let mut ops = WriteOps::new();
        for (key, value) in &oldest {
            match value {
                Some(value) => ops.put(key, value),
                None => ops.delete(key),
            }
        }
        Some((ops, oldest.len()))
    }
}
