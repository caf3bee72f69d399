//! The epoch coordinator: what belongs to which epoch.
//!
//! DML enters the open epoch when it is appended to the epoch log; that append, made durable, is its acknowledgement. A tick closes the epoch:
//! every source split is bound at the furthest offset any job has read, a closing record goes into the log, and once it is durable the epoch's
//! table changes are sealed and jobs may inject its barrier. A tick with nothing to close writes nothing.

pub mod read;
pub mod sources;
pub mod table;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use millpond_storage::{
    env::Clock,
    epoch::Epoch,
    epoch_log::{Binding, EpochLog, LogRecord},
    signed_batch::SignedBatch,
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use self::{sources::SourceHandle, table::TableHandle};
use crate::error::{EngineError, Result};

/// Ticks that a waiting session forces are at least this far apart.
const FORCED_TICK_SPACING: Duration = Duration::from_millis(2);

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
    /// Bindings found in the log of sources that are not registered yet.
    recovered: Mutex<HashMap<u64, Vec<(Epoch, Binding)>>>,
}

struct OpenEpoch {
    epoch: Epoch,
    changed: HashSet<u64>,
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
            recovered: Mutex::default(),
        })
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

    /// Registers a source; bindings that the log held for it are recorded.
    pub fn add_source(&self, source: Arc<SourceHandle>) -> Result<()> {
        for (epoch, binding) in self.recovered.lock().remove(&source.id).unwrap_or_default() {
            source.record(epoch, &binding)?;
            source.close_epoch(epoch);
        }
        self.sources.write().insert(source.id, source);
        Ok(())
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

    /// Replays the log into the registered tables. The same epochs get the same contents; an epoch that was open at the crash is closed by a new
    /// record. Returns when the log and the tables agree.
    pub async fn recover(&self, records: Vec<LogRecord>) -> Result<()> {
        let mut open = Epoch(1);
        let mut last = ClosedEpoch { epoch: Epoch(0), time_us: 0 };
        for record in records {
            match record {
                LogRecord::Dml { epoch, table, delta } => {
                    if let Some(table) = self.table(table) {
                        let prepared = table.prepare(delta)?;
                        table.append(0, epoch, prepared);
                    }
                    open = open.max(epoch);
                }
                LogRecord::Close { epoch, time_us, bindings } => {
                    self.recover_bindings(epoch, bindings)?;
                    last = ClosedEpoch { epoch, time_us };
                    open = open.max(epoch.next());
                    for table in self.all_tables() {
                        table.seal(epoch)?;
                    }
                }
                LogRecord::Note { .. } => {}
            }
        }
        for table in self.all_tables() {
            let upper = table.collection().upper();
            open = open.max(upper.next());
            last.epoch = last.epoch.max(upper);
        }
        self.open.lock().epoch = open;
        self.closed.send_replace(last);
        if open > last.epoch.next() || last.epoch == Epoch(0) || self.has_pending() {
            self.open.lock().changed.insert(0);
            self.tick().await?;
        }
        Ok(())
    }

    fn has_pending(&self) -> bool {
        self.all_tables().iter().any(|table| table.has_pending())
    }

    fn recover_bindings(&self, epoch: Epoch, bindings: Vec<Binding>) -> Result<()> {
        for binding in bindings {
            match self.source(binding.source) {
                Some(source) => {
                    source.record(epoch, &binding)?;
                    source.close_epoch(epoch);
                }
                None => self.recovered.lock().entry(binding.source).or_default().push((epoch, binding)),
            }
        }
        Ok(())
    }

    /// Appends one transaction. When it returns, the changes are durable and belong to the epoch answered; tables must be locked by the caller.
    ///
    /// # Errors
    /// When the log cannot be written (53100 disk full among them); then nothing of the transaction has happened.
    pub async fn append(&self, changes: Vec<(u64, Vec<SignedBatch>)>) -> Result<Epoch> {
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
            let ticket = self.log.append(&changes.iter().map(record).collect::<Vec<_>>());
            for (table, prepared) in tables.iter().zip(prepared) {
                table.append(transaction, epoch, prepared);
                open.changed.insert(table.id);
            }
            (epoch, ticket)
        };
        if let Err(error) = self.log.durable(ticket).await {
            for table in &tables {
                table.withdraw(transaction);
            }
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
        let bindings: Vec<Binding> = sources.iter().flat_map(|source| source.bind()).collect();
        let time_us = self.clock.wall_micros().max(self.closed().time_us + 1);
        let (epoch, mut ticket) = {
            let mut open = self.open.lock();
            if open.changed.is_empty() && bindings.is_empty() && !self.extra.swap(false, Ordering::AcqRel) {
                drop(open);
                sources.iter().for_each(|source| source.settle(None));
                return Ok(self.closed());
            }
            let epoch = open.epoch;
            let ticket = self.log.append(&[LogRecord::Close { epoch, time_us, bindings: bindings.clone() }]);
            open.epoch = epoch.next();
            open.changed.clear();
            (epoch, ticket)
        };
        for source in &sources {
            let bound = bindings.iter().any(|binding| binding.source == source.id);
            source.settle(bound.then_some(epoch));
        }
        // The epoch's number is given away, so its end must be written, however long the disk refuses.
        while let Err(error) = self.log.durable(ticket).await {
            tracing::warn!(%error, %epoch, "could not write the end of an epoch, trying again");
            tokio::time::sleep(CLOSE_RETRY).await;
            ticket = self.log.append(&[LogRecord::Close { epoch, time_us, bindings: bindings.clone() }]);
        }
        for binding in &bindings {
            if let Some(source) = self.source(binding.source) {
                source.record(epoch, binding)?;
            }
        }
        for source in &sources {
            source.close_epoch(epoch);
        }
        for table in self.all_tables() {
            table.seal(epoch)?;
        }
        let closed = ClosedEpoch { epoch, time_us };
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
            hint: Some("Free disk space; the server continues by itself.".into()),
        },
        _ => error.into(),
    }
}
