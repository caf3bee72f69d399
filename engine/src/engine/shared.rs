//! What the parts of the engine ask of each other: relations, jobs, and how far back everything is needed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arrow::datatypes::SchemaRef;
use millpond_storage::{
    checkpoint::{Checkpointer, ReplayBound, remove_local_copies},
    collection::{Collection, CollectionKey, CollectionSpec},
    epoch::Epoch,
    state_store::StateBackend,
    state_table::{JobStore, JobStoreSpec},
};
use tokio::task::JoinHandle;

use super::{Relation, Shared};
use crate::{
    coordinator::{ClosedEpoch, read::Readable, table::TableHandle},
    error::Result,
    graph::OperatorSpec,
    job::{
        spec::JobSpec,
        status::{JobCommand, JobState},
    },
    operator::SideOutput,
    side::JobSide,
};

/// Folder of the data directory with files of materializations, by job.
const LOCAL_COPIES: &str = "materializations";

/// Folder of the data directory with a file for each dropped job whose checkpoints are still to be deleted.
const DROPPED: &str = "dropped_checkpoints";
/// Pause before the deletion of checkpoints is tried again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Shared {
    /// A relation's collection.
    pub fn collection(&self, id: u64) -> Option<Arc<Collection>> {
        self.relations.read().get(&id).map(|relation| relation.readable.collection.clone())
    }

    /// A relation as readers see it.
    pub fn readable(&self, id: u64) -> Option<Arc<Readable>> {
        self.relations.read().get(&id).map(|relation| relation.readable.clone())
    }

    /// All relations as readers see them.
    pub fn readables(&self) -> Vec<Arc<Readable>> {
        self.relations.read().values().map(|relation| relation.readable.clone()).collect()
    }

    /// All collections.
    pub fn collections(&self) -> Vec<Arc<Collection>> {
        self.relations.read().values().map(|relation| relation.readable.collection.clone()).collect()
    }

    /// A step of a job: a place where tests make it fail, or the process end; see [`ObjectStorage::reach`](millpond_storage::object::ObjectStorage::reach).
    pub(crate) fn reach(&self, step: &'static str) -> Result<()> {
        Ok(self.config.objects.reach(step)?)
    }

    /// Deletes a job's checkpoints.
    pub async fn forget_checkpoints(&self, job: u64) -> Result<()> {
        let objects = &self.config.objects;
        for name in objects.list(&format!("jobs/{job}/")).await? {
            objects.delete(&name.name).await?;
        }
        self.forget_local_copies(job)
    }

    /// Begins to delete the checkpoints of a job that is no more, which goes on until it is done, however long the store is away, also after a
    /// restart.
    pub(super) fn drop_checkpoints(self: &Arc<Self>, job: u64) -> JoinHandle<()> {
        let folder = self.config.data_dir.join(DROPPED);
        let noted = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join(job.to_string()), ""));
        if let Err(error) = noted {
            tracing::warn!(id = job, %error, "should the server end soon, checkpoints of a dropped object stay in the object store");
        }
        self.runtime.spawn(self.clone().forget_dropped_checkpoints(job))
    }

    /// Goes on with deletions that the process before has not come to the end of.
    pub(super) fn go_on_dropping(self: &Arc<Self>) {
        let Ok(entries) = std::fs::read_dir(self.config.data_dir.join(DROPPED)) else { return };
        for id in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            self.runtime.spawn(self.clone().forget_dropped_checkpoints(id));
        }
    }

    async fn forget_dropped_checkpoints(self: Arc<Self>, job: u64) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = self.forget_checkpoints(job).await {
            tracing::warn!(id = job, %error, ?pause, "checkpoints of a dropped object could not be deleted; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        if let Err(error) = std::fs::remove_file(self.config.data_dir.join(DROPPED).join(job.to_string())) {
            tracing::debug!(id = job, %error, "a note of a dropped object was not removed");
        }
    }

    pub(super) fn forget_local_copies(&self, job: u64) -> Result<()> {
        Ok(remove_local_copies(&self.local_copies(job))?)
    }

    /// Removes local copies of the state of jobs that are no more: a crash may have come between the two.
    pub(super) fn sweep_local_copies(&self) {
        let Ok(entries) = std::fs::read_dir(self.config.data_dir.join(LOCAL_COPIES)) else { return };
        for id in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if !self.jobs.read().contains_key(&id)
                && !self.parked.lock().contains_key(&id)
                && let Err(error) = self.forget_local_copies(id)
            {
                tracing::warn!(id, %error, "local files of a dropped object could not be deleted");
            }
        }
    }

    fn local_copies(&self, job: u64) -> std::path::PathBuf {
        self.config.data_dir.join(LOCAL_COPIES).join(job.to_string())
    }

    /// The epoch up to which no table and no job needs the log any more.
    pub fn needed_from(&self) -> Epoch {
        if !self.parked.lock().is_empty() {
            return Epoch(0);
        }
        let jobs: Vec<Epoch> = self.jobs.read().values().map(|job| job.resumes_at()).collect();
        jobs.into_iter().chain([self.coordinator.tables_durable()]).min().unwrap_or_default()
    }

    /// Jobs that do not run give up what is kept for them.
    pub fn let_go(&self) {
        self.parked.lock().clear();
        for job in self.jobs.read().values().filter(|job| job.state() == JobState::Failed && job.resumes_at() < Epoch(u64::MAX)) {
            // A driver that has ended keeps nothing.
            let _ = job.commands.send(JobCommand::LetGo);
        }
    }

    /// Fails if one of these jobs has failed for good.
    pub fn check_jobs(&self, ids: &[u64]) -> Result<()> {
        let jobs = self.jobs.read();
        match ids.iter().filter_map(|id| jobs.get(id)).find(|job| job.state() == JobState::Failed) {
            Some(failed) => Err(failed.failed()),
            None => Ok(()),
        }
    }

    /// The epoch at which a finished job ended; `None` for tables and for jobs that go on.
    pub fn job_finished_at(&self, id: u64) -> Option<Epoch> {
        let job = self.jobs.read().get(&id).cloned()?;
        (job.state() == JobState::Finished).then(|| job.sealed())
    }

    /// Where a job's operators put late and failed rows.
    pub fn side_output(self: &Arc<Self>, job: u64) -> Arc<dyn SideOutput> {
        Arc::new(JobSide { shared: Arc::downgrade(self), job })
    }

    /// The checkpoints of one attempt of a job.
    pub fn checkpointer(&self, job: u64, fingerprint: u64, replay: Arc<ReplayBound>) -> Arc<Checkpointer> {
        let checkpointer = Checkpointer::new(self.config.objects.clone(), job, self.term, fingerprint);
        Arc::new(checkpointer.with_replay_bound(replay).with_local_copies(self.local_copies(job)))
    }

    /// A fresh state store for one attempt of a job.
    pub fn open_job_store(&self, job: u64, backend: StateBackend) -> Result<Arc<JobStore>> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let directory = self.config.data_dir.join("scratch").join(format!("job-{job}-{attempt}"));
        Ok(JobStore::open(JobStoreSpec { directory, backend, budget: self.memory.clone(), shared: self.rocks.clone() })?)
    }

    pub(super) fn open_collection(&self, id: u64, schema: SchemaRef, key: CollectionKey, durable_deltas: bool) -> Result<Arc<Collection>> {
        let directory = self.collections_folder().join(id.to_string());
        let spec = CollectionSpec { id, schema, key, directory, durable_deltas };
        Ok(Collection::open(spec, &self.memory, self.rocks.clone())?)
    }

    pub(super) fn collections_folder(&self) -> std::path::PathBuf {
        self.config.data_dir.join("collections")
    }

    /// The collection of a job, which is not shown before the job has filled it.
    pub(super) fn open_job_collection(&self, spec: &JobSpec, wanted: &CollectionSpec) -> Result<Arc<Collection>> {
        let collection = self.open_collection(wanted.id, wanted.schema.clone(), wanted.key.clone(), true)?;
        if collection.published_at() == Some(Epoch(0)) {
            collection.set_published(false)?;
        }
        let (mut tables, mut jobs) = (Vec::new(), vec![wanted.id]);
        for node in spec.graph.fragments.iter().flat_map(|fragment| &fragment.nodes) {
            if let OperatorSpec::CollectionScan { collection: upstream, .. } = &node.spec
                && let Some(upstream) = self.readable(*upstream)
            {
                tables.extend(upstream.tables.iter().cloned());
                jobs.extend(upstream.jobs.iter().copied());
            }
        }
        jobs.sort_unstable();
        jobs.dedup();
        tables.sort_by_key(|table| table.id);
        tables.dedup_by_key(|table| table.id);
        self.add_relation(wanted.id, spec.name.clone(), collection.clone(), tables, jobs);
        Ok(collection)
    }

    pub(super) fn add_relation(&self, id: u64, name: String, collection: Arc<Collection>, tables: Vec<Arc<TableHandle>>, jobs: Vec<u64>) {
        // After a restart a default read waits for what the log had closed: a client may have seen it.
        let last_read = AtomicU64::new(self.coordinator.closed().epoch.0);
        let readable = Arc::new(Readable { id, name, collection, tables, jobs, last_read });
        self.relations.write().insert(id, Relation { readable });
    }

    /// The newest closed epoch.
    pub fn closed(&self) -> ClosedEpoch {
        self.coordinator.closed()
    }
}
