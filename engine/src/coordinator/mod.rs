//! The epoch coordinator: what belongs to which epoch.
//!
//! DML enters the open epoch when it is appended to the epoch log; that append, made durable, is its acknowledgement. A tick closes the epoch:
//! every source split is bound at the furthest offset any job has read, a closing record goes into the log, and once it is durable the epoch's
//! table changes are sealed and jobs may inject its barrier. A tick with nothing to close writes nothing.

pub mod read;
mod recover;
mod snapshot;
pub mod sources;
pub mod table;
#[cfg(test)]
mod tests;
mod timely;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use millpond_storage::{
    env::Clock,
    epoch::Epoch,
    epoch_log::{Binding, EpochLog, LogRecord, SourceWatermark},
    signed_batch::SignedBatch,
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use self::{sources::SourceHandle, table::TableHandle};
use crate::error::{EngineError, Result};

/// Ticks that a waiting session forces are at least this far apart.
const FORCED_TICK_SPACING: Duration = Duration::from_millis(2);

/// Pause between two ticks on a full disk, each of which tries for space.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(200);

/// Pause before a closing record that could not be written is tried again.
const CLOSE_RETRY: Duration = Duration::from_millis(100);

/// The coordinator.
pub struct Coordinator {
    log: Arc<EpochLog>,
    clock: Clock,
    open: Mutex<OpenEpoch>,
    tables: RwLock<BTreeMap<u64, Arc<TableHandle>>>,
    sources: RwLock<BTreeMap<u64, Arc<SourceHandle>>>,
    closed: watch::Sender<ClosedEpoch>,
    wanted: Notify,
    extra: AtomicBool,
    pulse: watch::Sender<u64>,
    transactions: AtomicU64,
}

struct OpenEpoch {
    epoch: Epoch,
    changed: HashSet<u64>,
}

/// What a tick writes of the epoch that it ends.
struct Closing {
    time_us: i64,
    bindings: Vec<Binding>,
    watermarks: Vec<SourceWatermark>,
    /// The disk is full.
    is_full: bool,
}

impl Closing {
    /// The tick is decided: readers go on, unless there is no room for what they read.
    fn settle(&self, sources: &[Arc<SourceHandle>], epoch: Option<Epoch>) {
        if self.is_full {
            return;
        }
        for source in sources {
            source.settle(epoch);
        }
    }

    fn record(&self, epoch: Epoch) -> LogRecord {
        LogRecord::Close { epoch, time_us: self.time_us, bindings: self.bindings.clone(), watermarks: self.watermarks.clone() }
    }
}

/// The newest closed epoch and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedEpoch {
    /// The epoch.
    pub epoch: Epoch,
    /// Microseconds since 1970.
    pub time_us: i64,
}

impl Coordinator {
    /// A coordinator over an empty log; [`Self::recover`] replays what the log holds.
    pub fn new(log: Arc<EpochLog>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            log,
            clock,
            open: Mutex::new(OpenEpoch { epoch: Epoch(1), changed: HashSet::new() }),
            tables: RwLock::default(),
            sources: RwLock::default(),
            closed: watch::Sender::new(ClosedEpoch { epoch: Epoch(0), time_us: 0 }),
            wanted: Notify::new(),
            extra: AtomicBool::new(false),
            pulse: watch::Sender::new(0),
            transactions: AtomicU64::new(0),
        })
    }

    /// What tells the time here.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The newest closed epoch.
    pub fn closed(&self) -> ClosedEpoch {
        *self.closed.borrow()
    }

    /// The epoch now open.
    pub fn open_epoch(&self) -> Epoch {
        self.open.lock().epoch
    }

    /// Changes whenever an epoch is closed or a job has sealed one.
    pub fn pulse(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// A job has made progress that others may wait for.
    pub fn announce(&self) {
        self.pulse.send_modify(|count| *count += 1);
    }

    /// The log.
    pub fn log(&self) -> &Arc<EpochLog> {
        &self.log
    }

    /// Asks for a tick as soon as the spacing allows.
    pub fn request_tick(&self) {
        self.wanted.notify_one();
    }

    /// Asks for an epoch even if nothing has changed: a backfill step or a checkpoint needs one.
    pub fn request_extra_epoch(&self) {
        self.extra.store(true, Ordering::Release);
        self.wanted.notify_one();
    }

    /// Registers a table.
    pub fn add_table(&self, table: Arc<TableHandle>) {
        self.tables.write().insert(table.id, table);
    }

    /// Registers a source. Those that the log knows are registered before it is replayed.
    pub fn add_source(&self, source: Arc<SourceHandle>) {
        source.settle(Some(self.closed().epoch));
        self.sources.write().insert(source.id, source);
    }

    /// Forgets a table or source.
    pub fn remove(&self, id: u64) {
        self.tables.write().remove(&id);
        self.sources.write().remove(&id);
    }

    /// A table.
    pub fn table(&self, id: u64) -> Option<Arc<TableHandle>> {
        self.tables.read().get(&id).cloned()
    }

    /// A source.
    pub fn source(&self, id: u64) -> Option<Arc<SourceHandle>> {
        self.sources.read().get(&id).cloned()
    }

    /// All sources.
    pub fn all_sources(&self) -> Vec<Arc<SourceHandle>> {
        self.sources.read().values().cloned().collect()
    }

    /// All tables.
    pub fn all_tables(&self) -> Vec<Arc<TableHandle>> {
        self.tables.read().values().cloned().collect()
    }

    /// Appends one transaction. When it returns, the changes are durable and belong to the epoch answered; tables must be locked by the caller.
    /// `failures` is what the log said ([`EpochLog::failures`]) before the state was read that the changes rest on.
    ///
    /// # Errors
    /// When the log cannot be written (53100 disk full among them), or something before it was not, on which it may rest; then nothing of the
    /// transaction has happened.
    pub async fn append(&self, changes: Vec<(u64, Vec<SignedBatch>)>, failures: u64) -> Result<Epoch> {
        let transaction = self.transactions.fetch_add(1, Ordering::Relaxed) + 1;
        let mut tables = Vec::with_capacity(changes.len());
        let mut prepared = Vec::with_capacity(changes.len());
        for (id, delta) in &changes {
            let table = self.table(*id).ok_or_else(|| EngineError::user("42P01", "relation does not exist"))?;
            prepared.push(table.prepare(delta.clone())?);
            tables.push(table);
        }
        let (epoch, ticket) = {
            let mut open = self.open.lock();
            let epoch = open.epoch;
            // One append is one frame: after a crash all of it is there, or nothing.
            let record = |(table, delta): &(u64, Vec<SignedBatch>)| LogRecord::Dml { epoch, table: *table, delta: delta.clone() };
            let ticket = self.log.append_unless_failed(&changes.iter().map(record).collect::<Vec<_>>(), failures);
            // What the log has refused already is not entered.
            if !ticket.has_failed() {
                for (table, prepared) in tables.iter().zip(prepared) {
                    table.append(transaction, epoch, prepared, Some(ticket.clone()));
                    open.changed.insert(table.id);
                }
            }
            (epoch, ticket)
        };
        if let Err(error) = self.log.durable(ticket).await {
            tables.iter().for_each(|table| table.withdraw_failed());
            return Err(log_error(error));
        }
        for table in &tables {
            table.acknowledge(epoch);
        }
        Ok(epoch)
    }

    /// Closes the open epoch if there is something to close. Answers the newest closed epoch.
    pub async fn tick(&self) -> Result<ClosedEpoch> {
        let sources = self.all_sources();
        let closing = self.bind(&sources);
        let (epoch, mut ticket) = {
            let mut open = self.open.lock();
            let is_wanted = || !closing.is_full && self.extra.swap(false, Ordering::AcqRel);
            if open.changed.is_empty() && closing.bindings.is_empty() && !is_wanted() {
                drop(open);
                closing.settle(&sources, None);
                return Ok(self.closed());
            }
            let epoch = open.epoch;
            let ticket = self.log.append(&[closing.record(epoch)]);
            open.epoch = epoch.next();
            open.changed.clear();
            (epoch, ticket)
        };
        // Also of a source that was added meanwhile.
        closing.settle(&self.all_sources(), Some(epoch));
        // The epoch's number is given away, so its end must be written, however long the disk refuses.
        while let Err(error) = self.log.durable(ticket).await {
            tracing::warn!(%error, %epoch, "could not write the end of an epoch, trying again");
            tokio::time::sleep(CLOSE_RETRY).await;
            ticket = self.log.append(&[closing.record(epoch)]);
        }
        self.close(epoch, &closing)
    }

    /// Asks the sources how far their readers are. On a full disk they stay where they are: what is left belongs to acknowledged changes.
    fn bind(&self, sources: &[Arc<SourceHandle>]) -> Closing {
        let time_us = self.clock.wall_micros().max(self.closed().time_us + 1);
        let mut closing = Closing { time_us, bindings: Vec::new(), watermarks: Vec::new(), is_full: self.log.is_full() };
        if closing.is_full {
            // A try for space; whether it succeeds is seen at the next tick. Until then the readers stay stopped.
            drop(self.log.append(&[]));
        }
        for source in sources {
            let bindings = source.bind();
            if closing.is_full {
                continue;
            }
            if let Some(micros) = source.watermark_after(&bindings) {
                closing.watermarks.push(SourceWatermark { source: source.id, micros });
            }
            closing.bindings.extend(bindings);
        }
        closing
    }

    /// The end of the epoch is durable: what belongs to it is published.
    fn close(&self, epoch: Epoch, closing: &Closing) -> Result<ClosedEpoch> {
        for binding in &closing.bindings {
            if let Some(source) = self.source(binding.source) {
                source.record(epoch, binding)?;
            }
        }
        for watermark in &closing.watermarks {
            if let Some(source) = self.source(watermark.source) {
                source.pass(epoch, watermark.micros);
            }
        }
        for table in self.all_tables() {
            table.seal(epoch)?;
        }
        let closed = ClosedEpoch { epoch, time_us: closing.time_us };
        self.closed.send_replace(closed);
        self.announce();
        Ok(closed)
    }

    /// Ticks for ever: every `interval`, and at once when a session waits.
    pub async fn run(self: Arc<Self>, interval: Duration) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.wanted.notified() => {}
            }
            if let Err(error) = self.tick().await {
                tracing::error!(%error, "closing an epoch failed");
            }
            if self.log.is_full() {
                tokio::time::sleep(FULL_DISK_PAUSE).await;
            }
            tokio::time::sleep(FORCED_TICK_SPACING).await;
        }
    }
}

/// A log that cannot be written is shown as Postgres shows a full disk.
fn log_error(error: millpond_storage::error::StorageError) -> EngineError {
    match &error {
        millpond_storage::error::StorageError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => EngineError::User {
            sqlstate: "53100",
            message: error.to_string(),
            hint: Some("Check free disk space. The server goes on by itself once there is some.".into()),
        },
        _ => error.into(),
    }
}
