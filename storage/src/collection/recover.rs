//! Opening a collection: base, then the delta log behind it.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use super::{
    Base, Collection, CollectionKey, CollectionSpec, State,
    append::AppendBase,
    delta::StoredDelta,
    delta_log::{DeltaLog, Recovered},
    fold::FoldState,
    hold::Holds,
    keyed::{BaseMeta, BaseStore, KeyedBase},
    layout::Layout,
    meta::MetaFile,
    retained::Retained,
};
use crate::{
    env::Clock,
    error::{Result, StorageError},
    frame_file::FileFaults,
    memory::MemoryBudget,
    rocks::RocksShared,
};

impl Collection {
    /// Opens a collection, creating it if it is not there. `upper` is what could be recovered: the base, and the delta log behind it with its
    /// torn tail cut. Damage before the tail is [`StorageError::Corrupt`] with file and offset.
    pub fn open(spec: CollectionSpec, budget: &MemoryBudget, shared: Arc<RocksShared>) -> Result<Arc<Self>> {
        Self::open_with(spec, budget, &shared, Clock::system(), FileFaults::default())
    }

    pub(super) fn open_with(
        spec: CollectionSpec,
        budget: &MemoryBudget,
        shared: &Arc<RocksShared>,
        clock: Clock,
        faults: FileFaults,
    ) -> Result<Arc<Self>> {
        let layout = Arc::new(Layout::new(spec.schema.clone(), spec.key.clone())?);
        let meta = MetaFile::open(&spec.directory, &layout)?;
        let (base, base_meta, mut next_ordinal) = open_base(&spec, &layout, shared)?;
        let log_directory = spec.directory.join("deltas");
        let now = clock.monotonic();
        let mut retained = VecDeque::new();
        let log = if spec.durable_deltas {
            DeltaLog::recover(&log_directory, faults, |recovered| recover_delta(&layout, &base_meta, recovered, now, &mut retained))?
        } else {
            DeltaLog::scratch(&log_directory, faults)?
        };
        check_links(&layout, &base_meta, &retained)?;
        if spec.key == CollectionKey::AppendOnly {
            next_ordinal = retained.back().map_or(next_ordinal, Retained::end_ordinal);
        }
        let upper = base_meta.epoch.max(log.highest());
        let state = State {
            since: base_meta.epoch,
            upper,
            durable: upper,
            published_at: meta.published_at,
            base: base_meta,
            retained,
            holds: Holds::default(),
            next_ordinal,
            destroyed: false,
        };
        Ok(Arc::new(Self {
            id: spec.id,
            memory: budget.handle(&format!("collection {}", spec.id)),
            directory: spec.directory,
            durable_deltas: spec.durable_deltas,
            layout,
            base,
            state: RwLock::new(state),
            log: Mutex::new(log),
            folding: Mutex::new(FoldState::default()),
            is_closed: AtomicBool::new(false),
            keeps_only_held: AtomicBool::new(false),
            meta: Mutex::new(meta),
            clock,
            upper: watch::Sender::new(upper),
        }))
    }
}

/// The base, what it says of itself, and the ordinal behind its rows.
fn open_base(spec: &CollectionSpec, layout: &Arc<Layout>, shared: &Arc<RocksShared>) -> Result<(Base, BaseMeta, u64)> {
    if spec.key == CollectionKey::AppendOnly {
        let base = AppendBase::open(&spec.directory.join("segments"), layout.clone())?;
        let contents = base.contents();
        let rows = contents.end();
        let meta = BaseMeta { epoch: contents.epoch, rows: rows as i64, watermark_us: contents.watermark_us };
        return Ok((Base::Append(base), meta, rows));
    }
    let collections = spec.directory.parent().ok_or_else(|| StorageError::Internal("a collection needs a directory of its own".into()))?;
    let store = BaseStore::open(&collections.join("db"), shared)?;
    let (base, meta) = KeyedBase::open(store, layout.clone(), spec.id)?;
    Ok((Base::Keyed(base), meta, 0))
}

/// Keeps a delta of the log that the base does not contain. It is read again when it is needed.
fn recover_delta(
    layout: &Layout,
    base: &BaseMeta,
    recovered: Recovered,
    now: std::time::Duration,
    retained: &mut VecDeque<Retained>,
) -> Result<()> {
    let (delta, links, place) = match recovered {
        Recovered::Delta { delta, links, place } => (delta, links, place),
        Recovered::Rewound(epoch) => {
            let kept = retained.partition_point(|delta| delta.to <= epoch);
            retained.truncate(kept);
            return Ok(());
        }
    };
    if delta.to <= base.epoch {
        return Ok(());
    }
    let stored = StoredDelta::index(layout, delta)?;
    let mut delta = Retained::new(Arc::new(stored), links, now, Some(place));
    delta.stored = None;
    retained.push_back(delta);
    Ok(())
}

/// Each delta of the log follows the one before it, the first one the base. What was taken back need not: it may follow what the base has no more.
fn check_links(layout: &Layout, base: &BaseMeta, retained: &VecDeque<Retained>) -> Result<()> {
    let (mut epoch, mut next_ordinal) = (base.epoch, base.rows as u64);
    for delta in retained {
        let links = delta.links;
        let detail = if links.previous > epoch || delta.from < epoch {
            format!("it follows epoch {}, but the one before it is {epoch}", links.previous)
        } else if layout.key == CollectionKey::AppendOnly && links.first_ordinal != next_ordinal {
            format!("its first row is number {}, but {next_ordinal} rows are before it", links.first_ordinal)
        } else {
            (epoch, next_ordinal) = (delta.to, delta.end_ordinal());
            continue;
        };
        let error = StorageError::Corrupt { file: "delta log record".into(), detail };
        return Err(match &delta.place {
            Some(place) => place.locate(error),
            None => error,
        });
    }
    Ok(())
}
