//! The engine: coordinator, collections and jobs of one process.

mod shared;
pub mod snapshot;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use millpond_storage::{
    collection::{Collection, CollectionKey, Hold, remove_dropped},
    env::Clock,
    epoch::Epoch,
    epoch_log::{EpochLog, LogOptions, LogRecord},
    error::StorageError,
    memory::MemoryBudget,
    object::ObjectStorage,
    rocks::RocksShared,
    signed_batch::SignedBatch,
};
use parking_lot::{Mutex, RwLock};
use tokio::{runtime::Handle, sync::mpsc};

use crate::{
    coordinator::{
        Coordinator,
        read::{Freshness, ReadPoint, Readable},
        sources::{SourceHandle, SourceSettings},
        table::{TableHandle, TableSpec},
    },
    error::{EngineError, Result},
    job::{
        driver::Driver,
        recovery::RecoveryStatus,
        rescale::RescaleStatus,
        running::JobInputs,
        sink_driver,
        spec::JobSpec,
        status::{CheckpointStatus, ExchangeStatus, JobCommand, JobHandle, JobState, JobStatus},
        stops::{Starting, Stops},
    },
    side::{JobSide, SideRow, SideRows},
    source::Source,
    term::next_term,
};

/// How long the streaming threads have to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long DROP waits for rows to be gone from the disk, and for checkpoints to be gone from the object store.
const DESTROY_PATIENCE: Duration = Duration::from_millis(200);

/// Settings of an engine.
#[derive(Clone)]
pub struct EngineConfig {
    /// Where collections, epoch log and scratch state live.
    pub data_dir: PathBuf,
    /// Where checkpoints live.
    pub objects: ObjectStorage,
    /// The one memory budget.
    pub memory: MemoryBudget,
    /// Threads of the streaming runtime, and default subtasks per fragment.
    pub parallelism: usize,
    /// Longest time between ticks that have something to close.
    pub tick: Duration,
    /// How the epoch log is written.
    pub log: LogOptions,
    /// Tells the time of epochs, and how long operators are busy.
    pub clock: Clock,
}

/// What the parts of the engine share.
pub struct Shared {
    /// Epochs, tables, sources.
    pub coordinator: Arc<Coordinator>,
    /// The one memory budget.
    pub memory: MemoryBudget,
    /// Where subtasks run.
    pub runtime: Handle,
    config: EngineConfig,
    rocks: Arc<RocksShared>,
    relations: RwLock<BTreeMap<u64, Relation>>,
    jobs: RwLock<BTreeMap<u64, Arc<JobHandle>>>,
    /// Jobs that could not be started, and what is kept for them.
    parked: Mutex<BTreeMap<u64, Vec<Hold>>>,
    /// Where jobs stop on their way after a start.
    pub stops: Stops,
    pub(crate) late: SideRows,
    pub(crate) bad: SideRows,
    attempts: AtomicU64,
    /// Number of this start of the server: names that it writes are nobody else's.
    term: u64,
}

struct Relation {
    readable: Arc<Readable>,
}

/// The engine.
pub struct Engine {
    shared: Arc<Shared>,
    records: Mutex<Option<Vec<LogRecord>>>,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
    background: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl Engine {
    /// Whether a server was ever started on a directory: then it has a catalog and an epoch log.
    pub fn has_started(data_dir: &Path) -> bool {
        term_file(data_dir).exists()
    }

    /// Opens the epoch log. Tables, sources and then [`Self::recover`] follow, then jobs.
    ///
    /// # Errors
    /// Corrupt or unreadable files, named.
    pub async fn open(config: EngineConfig) -> Result<Arc<Self>> {
        let scratch = config.data_dir.join("scratch");
        // Live state databases are never restored from: what the last process left is of no use.
        if let Err(error) = std::fs::remove_dir_all(&scratch)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            let file = scratch.display().to_string();
            return Err(StorageError::Io { action: "remove", file, source: error }.into());
        }
        let term_file = term_file(&config.data_dir);
        let (log, records) = EpochLog::open_with(&config.data_dir.join("epoch-log"), config.log.clone())?;
        if log.is_new() && term_file.exists() {
            return Err(log.corrupt("its files are missing or empty".into()).into());
        }
        // Counted behind the log: where starts were counted there is one.
        let term = next_term(&term_file)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.parallelism.max(1))
            .thread_name("millpond-stream")
            .enable_all()
            .build()
            .map_err(|error| EngineError::Retryable(format!("could not start threads: {error}")))?;
        let rocks = RocksShared::new(config.memory.limit() / 4);
        let shared = Arc::new(Shared {
            coordinator: Coordinator::new(log, config.clock.clone()),
            memory: config.memory.clone(),
            runtime: runtime.handle().clone(),
            config,
            rocks,
            relations: RwLock::default(),
            jobs: RwLock::default(),
            parked: Mutex::default(),
            stops: Stops::default(),
            late: SideRows::default(),
            bad: SideRows::default(),
            attempts: AtomicU64::new(0),
            term,
        });
        Ok(Arc::new(Self { shared, records: Mutex::new(Some(records)), runtime: Mutex::new(Some(runtime)), background: Mutex::default() }))
    }

    /// Registers a table; its collection is opened or created.
    pub fn create_table(&self, spec: TableSpec) -> Result<Arc<TableHandle>> {
        let key = match (&spec.primary_key, spec.append_only) {
            (Some(key), _) => CollectionKey::Columns(key.clone()),
            (None, true) => CollectionKey::AppendOnly,
            (None, false) => CollectionKey::WholeRow,
        };
        let collection = self.shared.open_collection(spec.id, spec.schema, key, false)?;
        let late = spec.diverts_late_rows.then(|| JobSide { shared: Arc::downgrade(&self.shared), job: spec.id });
        let table = TableHandle::new(spec.id, collection.clone(), self.shared.coordinator.log().clone(), spec.watermark, late);
        self.shared.coordinator.add_table(table.clone());
        collection.advance(self.shared.coordinator.closed().epoch);
        self.shared.add_relation(spec.id, spec.name, collection, vec![table.clone()], Vec::new());
        Ok(table)
    }

    /// Registers a source.
    pub async fn create_source(&self, id: u64, name: &str, source: Arc<dyn Source>, settings: SourceSettings) -> Result<Arc<SourceHandle>> {
        let handle = SourceHandle::open(id, name, source, settings).await?;
        self.shared.coordinator.add_source(handle.clone());
        Ok(handle)
    }

    /// Replays the epoch log into the tables and starts the clock. Called once, after all tables and sources are registered.
    pub async fn recover(&self) -> Result<()> {
        let records = self.records.lock().take().unwrap_or_default();
        self.shared.coordinator.recover(records).await?;
        let tick = self.shared.config.tick;
        let coordinator = self.shared.coordinator.clone();
        self.background.lock().push(self.shared.runtime.spawn(coordinator.run(tick)));
        Ok(())
    }

    /// Starts background work. Called once all jobs of the catalog have been started: from then on changes that nobody holds are folded away.
    pub fn start_maintenance(&self) {
        self.shared.sweep_local_copies();
        self.shared.go_on_dropping();
        if let Err(error) = remove_dropped(&self.shared.collections_folder(), &self.shared.rocks) {
            tracing::warn!(%error, "what is left of dropped objects could not be deleted");
        }
        let task = self.shared.runtime.spawn(crate::maintenance::run(Arc::downgrade(&self.shared)));
        self.background.lock().push(task);
    }

    /// Holds jobs back until the answer is dropped: to be asked for before the jobs of the catalog are started again.
    pub fn starting(&self) -> Starting {
        Starting::new(self.shared.clone())
    }

    /// Starts a job. Its collection, if it has one, is readable as far as it was sealed before.
    pub fn start_job(&self, spec: JobSpec) -> Result<Arc<JobHandle>> {
        let spec = Arc::new(spec);
        // Held from before background work can fold it away; the driver knows later what it needs of it.
        let inputs = JobInputs::resolve(&spec, &self.shared.coordinator, &|id| self.shared.collection(id))?;
        let holds = inputs.collections.values().map(|collection| collection.hold_oldest()).collect();
        let collection = match &spec.collection {
            Some(wanted) => Some(self.shared.open_job_collection(&spec, wanted)?),
            None => None,
        };
        let (commands, receiver) = mpsc::unbounded_channel();
        let handle = JobHandle::new(spec.id, spec.name.clone(), spec.kind, commands);
        self.shared.jobs.write().insert(spec.id, handle.clone());
        if let (Some(collection), Some(target)) = (&collection, &spec.sink) {
            // What the target has is read by nobody.
            collection.keep_only_held();
            self.shared.runtime.spawn(sink_driver::run(handle.clone(), collection.hold_oldest(), target.clone()));
        }
        let driver = Driver::new(spec, handle.clone(), self.shared.clone(), collection, receiver, holds);
        self.shared.runtime.spawn(driver.run());
        Ok(handle)
    }

    /// Takes note of a job that could not be started: what came to its inputs since its last checkpoint is kept, so that it can be started later.
    pub fn park(&self, id: u64, inputs: impl IntoIterator<Item = u64>) {
        let holds = inputs.into_iter().filter_map(|input| Some(self.shared.collection(input)?.hold_oldest())).collect();
        self.shared.parked.lock().insert(id, holds);
    }

    /// What was kept by [`Self::park`] need not be kept any more: the job runs.
    pub fn unpark(&self, id: u64) {
        self.shared.parked.lock().remove(&id);
    }

    /// Stops and forgets an object and deletes what it kept.
    pub async fn drop_object(&self, id: u64) -> Result<()> {
        let job = self.shared.jobs.write().remove(&id);
        if let Some(job) = &job {
            // A driver that has ended no longer listens.
            let _ = job.commands.send(JobCommand::Stop);
            job.commands.closed().await;
        }
        self.shared.coordinator.remove(id);
        self.shared.parked.lock().remove(&id);
        let relation = self.shared.relations.write().remove(&id);
        if let Some(relation) = relation {
            // Rows may take long to go; nobody sees them any more.
            let collection = relation.readable.collection.clone();
            let destroyed = self.shared.runtime.spawn_blocking(move || {
                collection.destroy().inspect_err(|error| {
                    tracing::warn!(id, %error, "what a dropped object kept could not be deleted; trying again at the next start");
                })
            });
            if let Ok(destroyed) = tokio::time::timeout(DESTROY_PATIENCE, destroyed).await {
                destroyed.map_err(|e| EngineError::Internal(e.to_string()))??;
            }
        }
        if job.is_some() {
            self.shared.forget_local_copies(id)?;
            // The object store may be slow, or away.
            let _ = tokio::time::timeout(DESTROY_PATIENCE, self.shared.drop_checkpoints(id)).await;
        }
        Ok(())
    }

    /// Appends one transaction that rests on no state; see [`Self::append_on`].
    pub async fn append(&self, changes: Vec<(u64, Vec<SignedBatch>)>) -> Result<Epoch> {
        self.append_on(changes, self.log_failures()).await
    }

    /// Appends one transaction that rests on what was read after [`Self::log_failures`] said `failures`; see [`Coordinator::append`].
    pub async fn append_on(&self, changes: Vec<(u64, Vec<SignedBatch>)>, failures: u64) -> Result<Epoch> {
        self.shared.coordinator.append(changes, failures).await
    }

    /// How many commits of the epoch log have failed. To be asked before reading the state that an append rests on.
    pub fn log_failures(&self) -> u64 {
        self.shared.coordinator.log().failures()
    }

    /// The epoch at which all `relations` can be read; see [`Coordinator::read_epoch`].
    ///
    /// # Errors
    /// 55000 when it takes longer, or at once when a job that the read would have to wait for has failed; if it is to be strict, whenever a job
    /// under it has.
    pub async fn read_epoch(&self, relations: &[u64], freshness: Freshness, timeout: Duration) -> Result<ReadPoint> {
        let readables = self.resolve(relations).await?;
        if freshness == Freshness::Strict
            && let Some(failure) = failure_of(&self.jobs_under(&readables))
        {
            return Err(failure);
        }
        self.unless_failed(&readables, self.shared.coordinator.read_epoch(&readables, freshness, timeout)).await
    }

    /// All `relations` at `epoch`; see [`Coordinator::read_at`].
    ///
    /// # Errors
    /// As of [`Self::read_epoch`], and 55000 when a relation has no contents of this epoch.
    pub async fn read_at(&self, relations: &[u64], epoch: Epoch, timeout: Duration) -> Result<ReadPoint> {
        let readables = self.resolve(relations).await?;
        self.unless_failed(&readables, self.shared.coordinator.read_at(&readables, epoch, timeout)).await
    }

    /// The relations, once each may be read.
    async fn resolve(&self, relations: &[u64]) -> Result<Vec<Arc<Readable>>> {
        let mut readables = Vec::with_capacity(relations.len());
        for id in relations {
            let readable = self.shared.readable(*id).ok_or_else(|| EngineError::user("42P01", "relation does not exist"))?;
            if let Some(job) = self.job(*id) {
                if !readable.collection.published() {
                    return Err(not_ready(&job));
                }
                job.wait_readable().await?;
            }
            readables.push(readable);
        }
        Ok(readables)
    }

    /// Waits for a read, but not for a job under it that has failed.
    async fn unless_failed(&self, relations: &[Arc<Readable>], read: impl Future<Output = Result<ReadPoint>>) -> Result<ReadPoint> {
        let jobs = self.jobs_under(relations);
        if jobs.is_empty() {
            return read.await;
        }
        tokio::select! {
            biased;
            point = read => point,
            failed = futures::future::select_all(jobs.iter().map(|job| Box::pin(job.wait_failed()))) => Err(failed.0),
        }
    }

    /// What is to be said of relations that were read although a job under them has failed: they show what it had then.
    pub fn failure_under(&self, relations: &[u64]) -> Option<EngineError> {
        let readables: Vec<_> = relations.iter().filter_map(|id| self.shared.readable(*id)).collect();
        failure_of(&self.jobs_under(&readables))
    }

    /// The jobs that relations rest on, their own included.
    fn jobs_under(&self, relations: &[Arc<Readable>]) -> Vec<Arc<JobHandle>> {
        let ids: BTreeSet<u64> = relations.iter().flat_map(|relation| relation.jobs.iter().copied()).collect();
        let jobs = self.shared.jobs.read();
        ids.iter().filter_map(|id| jobs.get(id).cloned()).collect()
    }

    /// A relation's collection.
    pub fn collection(&self, id: u64) -> Option<Arc<Collection>> {
        self.shared.collection(id)
    }

    /// A table.
    pub fn table(&self, id: u64) -> Option<Arc<TableHandle>> {
        self.shared.coordinator.table(id)
    }

    /// A source.
    pub fn source(&self, id: u64) -> Option<Arc<SourceHandle>> {
        self.shared.coordinator.source(id)
    }

    /// A job.
    pub fn job(&self, id: u64) -> Option<Arc<JobHandle>> {
        self.shared.jobs.read().get(&id).cloned()
    }

    /// Epochs, for those who wait for one.
    pub fn coordinator(&self) -> &Arc<Coordinator> {
        &self.shared.coordinator
    }

    /// Default subtasks per fragment.
    pub fn parallelism(&self) -> usize {
        self.shared.config.parallelism
    }

    /// Rows of `millpond.jobs` (tables are added by the server).
    pub fn jobs(&self) -> Vec<JobStatus> {
        let closed = self.shared.coordinator.closed();
        self.shared.jobs.read().values().map(|job| job.status(closed)).collect()
    }

    /// Rows of `millpond.checkpoints`.
    pub fn checkpoints(&self) -> Vec<CheckpointStatus> {
        self.shared.jobs.read().values().flat_map(|job| job.checkpoints()).collect()
    }

    /// Rows of `millpond.exchanges`.
    pub fn exchanges(&self) -> Vec<ExchangeStatus> {
        self.shared.jobs.read().values().flat_map(|job| job.exchanges()).collect()
    }

    /// Rows of `millpond.recoveries`.
    pub fn recoveries(&self) -> Vec<RecoveryStatus> {
        self.shared.jobs.read().values().flat_map(|job| job.recoveries()).collect()
    }

    /// Rows of `millpond.rescales`.
    pub fn rescales(&self) -> Vec<RescaleStatus> {
        self.shared.jobs.read().values().flat_map(|job| job.rescales()).collect()
    }

    /// Late rows: number since start, and the newest.
    pub fn late_rows(&self) -> Vec<SideRow> {
        self.shared.late.rows()
    }

    /// Bad rows: number since start, and the newest.
    pub fn bad_rows(&self) -> Vec<SideRow> {
        self.shared.bad.rows()
    }

    /// What the parts share, for tests.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Numbers of late and bad rows since start.
    pub fn side_counts(&self) -> (u64, u64) {
        (self.shared.late.count(), self.shared.bad.count())
    }

    /// Closes the open epoch, checkpoints every job and makes collections durable. Bounded by the caller.
    pub async fn checkpoint_all(&self) -> Result<()> {
        self.shared.coordinator.tick().await?;
        let jobs: Vec<Arc<JobHandle>> = self.shared.jobs.read().values().cloned().collect();
        futures::future::try_join_all(jobs.iter().map(|job| job.checkpoint())).await?;
        Ok(())
    }

    /// Stops all jobs and threads. State on disk stays as it is.
    pub async fn stop(&self) {
        for job in self.shared.jobs.read().values() {
            // A driver that has ended no longer listens.
            let _ = job.commands.send(JobCommand::Stop);
        }
        for task in self.background.lock().drain(..) {
            task.abort();
        }
        let runtime = self.runtime.lock().take();
        if let Some(runtime) = runtime {
            // Waits until the threads have let go of files and locks, so that the directory can be opened again at once.
            let stopped = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(STOP_PATIENCE)).await;
            if let Err(error) = stopped {
                tracing::warn!(%error, "the streaming threads did not stop in order");
            }
        }
        let collections = self.shared.collections();
        let closed = tokio::task::spawn_blocking(move || collections.iter().for_each(|collection| collection.close())).await;
        if let Err(error) = closed {
            tracing::warn!(%error, "the collections were not closed in order");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A runtime must not be waited for where async code runs; after `stop` there is none left.
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

/// Counts the starts on a directory.
fn term_file(data_dir: &Path) -> PathBuf {
    data_dir.join("term")
}

/// What is wrong with the first of some jobs that has failed.
fn failure_of(jobs: &[Arc<JobHandle>]) -> Option<EngineError> {
    jobs.iter().find(|job| job.state() == JobState::Failed).map(|job| job.failed())
}

fn not_ready(job: &JobHandle) -> EngineError {
    if job.state() == JobState::Failed {
        return job.failed();
    }
    EngineError::User {
        sqlstate: "55000",
        message: format!("materialized view \"{}\" is not populated yet: {}", job.name, job.progress()),
        hint: Some("See millpond.backfills for progress.".into()),
    }
}
