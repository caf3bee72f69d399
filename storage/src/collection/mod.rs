//! Collections: what tables and materialized views are inside.
//!
//! A collection is a *base* at one epoch and a net *delta* for each later epoch in which something changed. Sealing an epoch nets its changes,
//! appends them to the delta log (not synced) and publishes them in memory; nothing goes to RocksDB. Reading at an epoch merges the base with the
//! deltas up to it. In the background deltas that no hold needs apart are folded into the base, and the log files of folded deltas removed once the
//! base is on disk.
//!
//! ```text
//!   since = epoch of the base                             upper
//!     |  delta (to = 4)  |  delta (to = 7, coarse: from = 4)  |        readable: 3, 4, 7
//! ```
//!
//! - `since` is the oldest epoch that can be read, `upper` the newest that is sealed, `durable` the newest that survives a power loss.
//! - A delta over several epochs is readable at its ends only. Epochs in which nothing changed have no delta and are all readable.
//! - What a seal or recovery sees a second time (an epoch not above `upper`) is dropped: it is the same.
//! - That of a sink has no rows in its base: what the target has confirmed is forgotten ([`Collection::keep_only_held`]).
//! - Readers never take a lock for longer than looking up deltas; a scan sees one epoch for as long as it lives.
//!
//! Two kinds of base: RocksDB for rows with keys ([`keyed`]), segment files for rows that are only appended ([`append`]).

mod append;
mod delta;
mod delta_log;
mod destroy;
mod fold;
mod hold;
mod keyed;
mod layout;
mod meta;
mod overlay;
mod read;
mod recover;
mod retained;
mod scan;
mod seal;
mod segment;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use arrow::datatypes::SchemaRef;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use self::{append::AppendBase, delta_log::DeltaLog, hold::Holds, keyed::KeyedBase, layout::Layout, meta::MetaFile, retained::Retained};
pub use self::{
    delta::Delta,
    destroy::remove_dropped,
    hold::Hold,
    scan::{CollectionScan, KeyRange, ScanBatch, ScanRequest},
};
use crate::{
    encoding::key::KeyCodec,
    env::Clock,
    epoch::Epoch,
    error::{Result, StorageError},
    memory::MemoryHandle,
};

/// What identifies a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CollectionKey {
    /// Columns of which no two rows have equal values.
    Columns(Vec<usize>),
    /// Nothing: equal rows are counted.
    WholeRow,
    /// Rows are never deleted; they are numbered as they come.
    AppendOnly,
}

/// What a collection is opened with.
#[derive(Clone, Debug)]
pub struct CollectionSpec {
    /// Its id, for ever.
    pub id: u64,
    /// Its columns.
    pub schema: SchemaRef,
    /// What identifies its rows.
    pub key: CollectionKey,
    /// Its own directory. The RocksDB that all collections share is beside it, in `db`.
    pub directory: PathBuf,
    /// Sealed epochs are made durable by a delta log of its own (views). Otherwise the owner seals them again after a crash (tables, whose epoch
    /// log has them).
    pub durable_deltas: bool,
}

/// How much of a collection has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Epochs, or ranges of epochs, with changes. One may be of the watermark only.
    pub deltas: usize,
    /// Rows that came or went.
    pub rows: u64,
    /// Bytes of them in memory, when they are there.
    pub bytes: u64,
}

/// An open collection.
#[derive(Debug)]
pub struct Collection {
    id: u64,
    directory: PathBuf,
    durable_deltas: bool,
    layout: Arc<Layout>,
    base: Base,
    state: RwLock<State>,
    /// Serialises sealing. Taken before `state`.
    log: Mutex<DeltaLog>,
    /// Serialises folding. Taken before `log`.
    folding: Mutex<fold::FoldState>,
    /// Nothing is folded any more: it is dropped, or its engine stops.
    is_closed: AtomicBool,
    /// What no hold needs is forgotten.
    keeps_only_held: AtomicBool,
    meta: Mutex<MetaFile>,
    memory: MemoryHandle,
    clock: Clock,
    upper: watch::Sender<Epoch>,
}

/// Where folded rows are.
#[derive(Debug)]
enum Base {
    Keyed(KeyedBase),
    Append(AppendBase),
}

/// What changes when epochs are sealed, folded and held.
#[derive(Debug)]
struct State {
    since: Epoch,
    upper: Epoch,
    durable: Epoch,
    /// Reading below it shows a view that is not complete; `None` while it is not published.
    published_at: Option<Epoch>,
    base: keyed::BaseMeta,
    /// Deltas after the base, oldest first.
    retained: std::collections::VecDeque<Retained>,
    holds: Holds,
    /// Ordinal of the next row, if append-only.
    next_ordinal: u64,
    destroyed: bool,
}

impl State {
    /// An error unless the contents at `epoch` are known.
    fn check_readable(&self, id: u64, epoch: Epoch) -> Result<()> {
        if self.destroyed {
            return Err(StorageError::Internal(format!("collection {id} has been dropped")));
        }
        if epoch < self.since {
            return Err(StorageError::FallenBehind { asked: epoch.0, oldest: self.since.0 });
        }
        if epoch > self.upper || self.is_hidden(epoch) {
            return Err(StorageError::Internal(format!(
                "collection {id} is not readable at epoch {epoch}, it is sealed up to {}",
                self.upper
            )));
        }
        Ok(())
    }

    /// Whether the epoch lies strictly inside a delta over several.
    fn is_hidden(&self, epoch: Epoch) -> bool {
        let covering = self.retained.partition_point(|delta| delta.to <= epoch);
        self.retained.get(covering).is_some_and(|delta| delta.hides(epoch))
    }

    /// `to` of the newest delta, folded or not.
    fn last_change(&self) -> Epoch {
        self.retained.back().map_or(self.base.epoch, |delta| delta.to)
    }
}

impl Collection {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its columns.
    pub fn schema(&self) -> SchemaRef {
        self.layout.schema.clone()
    }

    /// What identifies its rows.
    pub fn key(&self) -> &CollectionKey {
        &self.layout.key
    }

    /// The codec of its keys: over the key columns, or over all columns of a collection without a key. Append-only: over no column; keys
    /// are ordinals, `u64` big-endian.
    pub fn key_codec(&self) -> &KeyCodec {
        &self.layout.key_codec
    }

    /// The oldest epoch that can be read.
    pub fn since(&self) -> Epoch {
        let state = self.state.read();
        state.since.max(state.published_at.unwrap_or_default())
    }

    /// The newest sealed epoch.
    pub fn upper(&self) -> Epoch {
        self.state.read().upper
    }

    /// The newest epoch that survives a power loss. Of a table: `upper`, since the epoch log has what is not in the base.
    pub fn durable(&self) -> Epoch {
        let state = self.state.read();
        if self.durable_deltas { state.durable } else { state.upper }
    }

    /// The epoch up to which the base that is on disk has all changes: a table needs the epoch log only above it.
    pub fn base_durable(&self) -> Epoch {
        let state = self.state.read();
        let flushed = self.flushed_epoch();
        if flushed < state.base.epoch {
            return flushed;
        }
        state.retained.front().map_or(state.upper, |delta| delta.from)
    }

    /// The epoch of the base that is on disk.
    fn flushed_epoch(&self) -> Epoch {
        match &self.base {
            Base::Keyed(base) => base.flushed_epoch(),
            Base::Append(base) => base.contents().epoch,
        }
    }

    /// What came after `epoch`, as far as it is not in the base.
    pub fn changed_after(&self, epoch: Epoch) -> Changed {
        let state = self.state.read();
        let first = state.retained.partition_point(|delta| delta.to <= epoch);
        state.retained.range(first..).fold(Changed::default(), |sum, delta| Changed {
            deltas: sum.deltas + 1,
            rows: sum.rows + delta.rows,
            bytes: sum.bytes + delta.bytes as u64,
        })
    }

    /// Tells of every move of `upper`, and of being published.
    pub fn watch_upper(&self) -> watch::Receiver<Epoch> {
        self.upper.subscribe()
    }

    /// Whether the contents at `epoch` are known and shown.
    pub fn readable_at(&self, epoch: Epoch) -> bool {
        let state = self.state.read();
        state.published_at.is_some_and(|published| published <= epoch) && state.check_readable(self.id, epoch).is_ok()
    }

    /// The first epoch from `epoch` on that does not lie strictly inside a delta over several.
    pub fn boundary_from(&self, epoch: Epoch) -> Epoch {
        let state = self.state.read();
        let covering = state.retained.partition_point(|delta| delta.to <= epoch);
        state.retained.get(covering).filter(|delta| delta.hides(epoch)).map_or(epoch, |delta| delta.to)
    }

    /// The event-time watermark that holds at `epoch`: column and microseconds.
    pub fn watermark_us(&self, epoch: Epoch) -> Option<(usize, i64)> {
        let state = self.state.read();
        let deltas = state.retained.iter().rev().filter(|delta| delta.to <= epoch);
        deltas.filter_map(|delta| delta.watermark_us).next().or(state.base.watermark_us)
    }

    /// How many rows it has at `upper`.
    pub fn row_estimate(&self) -> u64 {
        let state = self.state.read();
        let rows = state.base.rows + state.retained.iter().map(|delta| delta.growth).sum::<i64>();
        rows.max(0) as u64
    }

    /// Bytes it takes, about: base on disk and deltas.
    pub fn bytes(&self) -> u64 {
        let base = match &self.base {
            Base::Keyed(base) => base.bytes(),
            Base::Append(base) => base.bytes(),
        };
        base + self.retained_bytes()
    }

    /// Bytes of the deltas that are not in the base yet, in memory or not.
    pub fn retained_bytes(&self) -> u64 {
        self.state.read().retained.iter().map(|delta| delta.bytes as u64).sum()
    }

    /// Whether readers see it.
    pub fn published(&self) -> bool {
        self.state.read().published_at.is_some()
    }

    /// Shows the collection to readers from `upper` on, or hides it while it is filled. Durable; opening finds it as it was left, new
    /// collections are shown.
    pub fn set_published(&self, published: bool) -> Result<()> {
        let mut meta = self.meta.lock();
        if self.published() == published {
            return Ok(());
        }
        let published_at = published.then(|| self.upper());
        meta.set_published_at(published_at)?;
        self.state.write().published_at = published_at;
        self.upper.send_modify(|_| {});
        Ok(())
    }

    /// The epoch from which on it is shown; 0 for a new one that was shown at once.
    pub fn published_at(&self) -> Option<Epoch> {
        self.state.read().published_at
    }

    /// Fails unless everything up to `epoch`, which is known to have been sealed and made durable, is there.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] that names the folder of its files.
    pub fn must_reach(&self, epoch: Epoch) -> Result<()> {
        let upper = self.upper();
        if upper >= epoch {
            return Ok(());
        }
        let detail = format!("its files end at epoch {upper}, but a checkpoint at epoch {epoch} rests on them");
        Err(crate::durable_file::corrupt(self.log.lock().directory(), detail))
    }

    /// Removes all rows, of a collection that is not shown: who fills it begins anew. Durable.
    pub fn clear(&self) -> Result<()> {
        let _folding = self.folding.lock();
        let mut log = self.log.lock();
        let mut state = self.state.write();
        // First what rests on the base.
        log.clear()?;
        match &self.base {
            Base::Keyed(base) => base.clear()?,
            Base::Append(base) => base.clear()?,
        }
        state.retained.clear();
        self.memory.shrink(self.memory.used());
        state.base = keyed::BaseMeta::default();
        (state.since, state.upper, state.durable, state.next_ordinal) = (Epoch(0), Epoch(0), Epoch(0), 0);
        drop(state);
        self.upper.send_replace(Epoch(0));
        Ok(())
    }

    /// Takes back all above `epoch`, of a collection that is not shown: who fills it goes on from there, and not in the same steps. Survives a crash
    /// when what is sealed later does. Answers whether it could: what is in the base cannot be taken back, so that who fills it has to hold it at the
    /// epoch it may have to go back to.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if `epoch` was never reached; an I/O error, and then nothing has changed.
    pub fn rewind(&self, epoch: Epoch) -> Result<bool> {
        self.must_reach(epoch)?;
        let _folding = self.folding.lock();
        let mut log = self.log.lock();
        let mut state = self.state.write();
        let kept = state.retained.partition_point(|delta| delta.to <= epoch);
        if state.published_at.is_some() || state.since > epoch || state.is_hidden(epoch) {
            return Ok(false);
        }
        if state.upper == epoch {
            return Ok(true);
        }
        log.append_rewound(epoch)?;
        for taken_back in state.retained.split_off(kept) {
            if taken_back.stored.is_some() {
                self.memory.shrink(taken_back.bytes);
            }
        }
        state.next_ordinal = state.retained.back().map_or(state.base.rows as u64, Retained::end_ordinal);
        (state.upper, state.durable) = (epoch, state.durable.min(epoch));
        drop(state);
        self.upper.send_replace(epoch);
        Ok(true)
    }

    /// Keeps the collection readable at `epoch` until the hold is dropped. The epoch may be in the future.
    pub fn hold(self: &Arc<Self>, epoch: Epoch) -> Result<Hold> {
        let mut state = self.state.write();
        if epoch < state.since {
            return Err(StorageError::FallenBehind { asked: epoch.0, oldest: state.since.0 });
        }
        state.holds.add(epoch);
        drop(state);
        Ok(Hold::new(self.clone(), epoch))
    }

    /// Keeps all that is readable now readable, for a reader that does not know yet from where on it needs it.
    pub fn hold_oldest(self: &Arc<Self>) -> Hold {
        let mut state = self.state.write();
        let epoch = state.since;
        state.holds.add(epoch);
        drop(state);
        Hold::new(self.clone(), epoch)
    }

    /// The lowest epoch that is held.
    pub fn lowest_hold(&self) -> Option<Epoch> {
        self.state.read().holds.lowest()
    }

    fn release_hold(&self, epoch: Epoch) {
        self.state.write().holds.release(epoch);
    }

    fn move_hold(&self, from: Epoch, to: Epoch) {
        let mut state = self.state.write();
        state.holds.add(to);
        state.holds.release(from);
    }

    fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}
