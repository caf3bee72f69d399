//! What an operator sees of a job, as plain values; the server makes relations of them.

use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use millpond_storage::epoch::Epoch;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{
    recovery::RecoveryStatus,
    rescale::RescaleStatus,
    spec::{JobKind, JobOptions},
};
use crate::{
    error::EngineError,
    exchange::inbox::ChannelStatus,
    task::{build::Edge, orders::Orders, subtask::SubtaskId},
};

/// Checkpoints remembered per job.
const CHECKPOINTS_KEPT: usize = 64;

/// Where a job is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Reads existing contents; the view is not readable yet.
    Backfilling,
    /// Keeps up.
    Running,
    /// Restarted, and not yet where it was.
    CatchingUp,
    /// All its inputs have ended.
    Finished,
    /// Parked after repeated failures.
    Failed,
}

impl JobState {
    /// The word shown in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Backfilling => "backfilling",
            JobState::Running => "running",
            JobState::CatchingUp => "catching up",
            JobState::Finished => "finished",
            JobState::Failed => "failed",
        }
    }
}

/// One row of `millpond.jobs`.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// Catalog id.
    pub id: u64,
    /// Name.
    pub name: String,
    /// View or sink.
    pub kind: JobKind,
    /// Where it is in its life.
    pub state: JobState,
    /// Newest sealed epoch.
    pub epoch: Epoch,
    /// How far the sealed epoch is behind the newest closed one, in milliseconds; `None` before the job has sealed what can be read.
    pub lag_ms: Option<u64>,
    /// Rows taken in per second, over the last seconds.
    pub rows_per_second: f64,
    /// Rows taken in since start.
    pub rows: u64,
    /// Bytes of operator state, estimated at the last barrier.
    pub state_bytes: u64,
    /// Restarts after failures.
    pub restarts: u64,
    /// The last failure.
    pub error: Option<String>,
    /// Rows that backfills have read, and rows they expect.
    pub backfill: (u64, u64),
    /// The epoch from which on its contents may lack rows: a subtask was restarted approximately.
    pub approximate_from: Option<Epoch>,
    /// Subtasks of its parallel parts, while it runs.
    pub parallelism: Option<usize>,
    /// A change of that which is under way.
    pub rescale: Option<RescaleStatus>,
}

/// One row of `millpond.checkpoints`.
#[derive(Clone, Debug)]
pub struct CheckpointStatus {
    /// The job.
    pub job: u64,
    /// Its epoch.
    pub epoch: Epoch,
    /// From the barrier's injection to the manifest, microseconds.
    pub duration_us: u64,
    /// Bytes of state changelog uploaded.
    pub log_bytes: u64,
    /// Bytes of materialization uploaded.
    pub materialized_bytes: u64,
    /// Bytes of messages that its barrier overtook; `None` if it was aligned.
    pub in_flight_bytes: Option<u64>,
    /// Bytes of all objects that it needs, those of earlier checkpoints included.
    pub stored_bytes: u64,
    /// Bytes of state changelog that a restart would replay.
    pub replay_bytes: u64,
    /// How long that would take, microseconds, estimated.
    pub replay_us: u64,
    /// From the parts of all subtasks to the manifest, microseconds.
    pub async_us: u64,
    /// What each subtask did for it, in their order.
    pub subtasks: Vec<SubtaskCheckpoint>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// One row of `millpond.checkpoint_subtasks`.
#[derive(Clone, Debug)]
pub struct SubtaskCheckpoint {
    /// Its fragment.
    pub fragment: usize,
    /// Its index there.
    pub subtask: usize,
    /// The barrier overtook what it had still to take.
    pub is_unaligned: bool,
    /// From the injection of the barrier to the subtask's part, microseconds.
    pub delay_us: u64,
    /// From the arrival of the first barrier to the snapshot, microseconds.
    pub alignment_us: u64,
    /// The snapshot, microseconds.
    pub sync_us: u64,
    /// Bytes of state changelog.
    pub log_bytes: u64,
    /// Bytes of messages that the barrier overtook.
    pub in_flight_bytes: u64,
}

/// One row of `millpond.exchanges`.
#[derive(Clone, Debug)]
pub struct ExchangeStatus {
    /// The job.
    pub job: u64,
    /// Number of the exchange in the job; `None` for the channel of a scan.
    pub exchange: Option<usize>,
    /// How its rows are distributed; `scan` for the channel of a scan.
    pub kind: &'static str,
    /// The producer, if it is a subtask.
    pub from: Option<SubtaskId>,
    /// The consumer.
    pub to: SubtaskId,
    /// The time within which the consumer should take what the channel holds; zero if that is not asked for.
    pub target: Duration,
    /// The channel now.
    pub channel: ChannelStatus,
}

/// Orders to a driver.
pub enum JobCommand {
    /// Stop; state on disk stays.
    Stop,
    /// Take a checkpoint at the next barrier.
    Checkpoint,
    /// Go on with these settings.
    Reconfigure(JobOptions),
    /// A parked job goes on from its checkpoint. `skip`: until the next one, rows that cannot be decoded are diverted even where the source
    /// says that they fail the job.
    Resume {
        /// Divert what failed.
        skip: bool,
    },
    /// One subtask fails, so that it can be seen what follows.
    Fail(SubtaskId),
    /// A parked job gives up what is kept for it: it will not go on.
    LetGo,
}

/// Why a job is parked.
#[derive(Clone, Debug)]
pub(super) struct JobFailure {
    pub(super) sqlstate: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

/// A job from outside.
pub struct JobHandle {
    /// Catalog id.
    pub id: u64,
    /// Name.
    pub name: String,
    /// View or sink.
    pub kind: JobKind,
    pub(crate) commands: mpsc::UnboundedSender<JobCommand>,
    pub(super) state: watch::Sender<JobState>,
    pub(super) sealed: AtomicU64,
    pub(super) sealed_time_us: AtomicU64,
    pub(super) checkpointed: watch::Sender<Epoch>,
    pub(super) rows_in: Arc<AtomicU64>,
    pub(super) state_bytes: AtomicU64,
    pub(super) restarts: AtomicU64,
    pub(super) backfill_rows: AtomicU64,
    pub(super) backfill_expected: AtomicU64,
    pub(super) error: Mutex<Option<String>>,
    pub(super) failure: Mutex<Option<JobFailure>>,
    pub(super) readable_when_caught_up: AtomicBool,
    resumes_at: AtomicU64,
    pub(super) checkpoints: Mutex<VecDeque<CheckpointStatus>>,
    pub(super) recoveries: Mutex<VecDeque<RecoveryStatus>>,
    pub(super) rescales: Mutex<VecDeque<RescaleStatus>>,
    pub(super) subtasks: Mutex<Vec<usize>>,
    pub(super) approximate_from: OnceLock<Epoch>,
    rate: Mutex<Rate>,
    /// The channels of the attempt that is running, and where their target is read.
    edges: Mutex<(Vec<Edge>, Arc<Orders>)>,
}

#[derive(Debug)]
struct Rate {
    at: Instant,
    rows: u64,
    per_second: f64,
}

impl JobHandle {
    pub(crate) fn new(id: u64, name: String, kind: JobKind, commands: mpsc::UnboundedSender<JobCommand>) -> Arc<Self> {
        Arc::new(Self {
            id,
            name,
            kind,
            commands,
            state: watch::Sender::new(JobState::CatchingUp),
            sealed: AtomicU64::new(0),
            sealed_time_us: AtomicU64::new(0),
            checkpointed: watch::Sender::new(Epoch(0)),
            rows_in: Arc::default(),
            state_bytes: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            backfill_rows: AtomicU64::new(0),
            backfill_expected: AtomicU64::new(0),
            error: Mutex::default(),
            failure: Mutex::default(),
            readable_when_caught_up: AtomicBool::new(false),
            resumes_at: AtomicU64::new(0),
            checkpoints: Mutex::default(),
            recoveries: Mutex::default(),
            rescales: Mutex::default(),
            edges: Mutex::default(),
            subtasks: Mutex::default(),
            approximate_from: OnceLock::new(),
            rate: Mutex::new(Rate { at: Instant::now(), rows: 0, per_second: 0.0 }),
        })
    }

    /// Where the job is in its life.
    pub fn state(&self) -> JobState {
        *self.state.borrow()
    }

    /// Newest sealed epoch.
    pub fn sealed(&self) -> Epoch {
        Epoch(self.sealed.load(Ordering::Acquire))
    }

    /// Rows taken in since start.
    pub fn rows(&self) -> u64 {
        self.rows_in.load(Ordering::Relaxed)
    }

    /// The epoch from which on the job needs what its inputs were bound to, should it be started again: 0 while that is not known.
    pub fn resumes_at(&self) -> Epoch {
        Epoch(self.resumes_at.load(Ordering::Acquire))
    }

    /// The job would go on from this epoch.
    pub(super) fn resume_at(&self, epoch: Epoch) {
        self.resumes_at.store(epoch.0, Ordering::Release);
    }

    /// The job will not go on: it needs nothing.
    pub(super) fn resume_never(&self) {
        self.resume_at(Epoch(u64::MAX));
    }

    /// Rows that backfills have read, and rows they expect.
    pub fn backfill(&self) -> (u64, u64) {
        (self.backfill_rows.load(Ordering::Relaxed), self.backfill_expected.load(Ordering::Relaxed))
    }

    /// Asks for a checkpoint and waits until one that begins after the call is complete.
    pub async fn checkpoint(&self) -> crate::error::Result<()> {
        if matches!(self.state(), JobState::Finished | JobState::Failed) {
            return Ok(());
        }
        let mut checkpointed = self.checkpointed.subscribe();
        checkpointed.mark_unchanged();
        if self.commands.send(JobCommand::Checkpoint).is_err() {
            return Ok(());
        }
        let mut state = self.state.subscribe();
        tokio::select! {
            changed = checkpointed.changed() => changed.map_err(|_| EngineError::Cancelled),
            _ended = state.wait_for(|state| matches!(state, JobState::Finished | JobState::Failed)) => Ok(()),
        }
    }

    /// The row of `millpond.jobs`. `closed` is the newest closed epoch and its time.
    pub fn status(&self, closed: crate::coordinator::ClosedEpoch) -> JobStatus {
        let sealed = self.sealed();
        JobStatus {
            id: self.id,
            name: self.name.clone(),
            kind: self.kind,
            state: self.state(),
            epoch: sealed,
            lag_ms: self.lag_ms(closed),
            rows_per_second: self.rate.lock().per_second,
            rows: self.rows_in.load(Ordering::Relaxed),
            state_bytes: self.state_bytes.load(Ordering::Relaxed),
            restarts: self.restarts.load(Ordering::Relaxed),
            error: self.error.lock().clone(),
            backfill: self.backfill(),
            approximate_from: self.approximate_from.get().copied(),
            parallelism: self.subtasks.lock().iter().copied().max(),
            rescale: self.rescales.lock().back().filter(|rescale| !rescale.is_done()).cloned(),
        }
    }

    fn lag_ms(&self, closed: crate::coordinator::ClosedEpoch) -> Option<u64> {
        match (self.state(), self.sealed_time_us.load(Ordering::Relaxed)) {
            (JobState::Finished, _) => Some(0),
            (JobState::Backfilling, _) => None,
            _ if self.sealed() >= closed.epoch => Some(0),
            // Since it was started it has sealed nothing.
            (_, 0) => None,
            (_, sealed_us) => Some((closed.time_us as u64).saturating_sub(sealed_us) / 1000),
        }
    }

    /// How far a backfill is, in words. Sources do not tell how many rows there are.
    pub fn progress(&self) -> String {
        let (read, expected) = self.backfill();
        match (read * 100).checked_div(expected.max(read)).filter(|_| expected > 0) {
            Some(percent) => format!("{read} of about {} rows read ({percent} %)", expected.max(read)),
            None => format!("{} rows read so far", self.rows()),
        }
    }

    /// The checkpoints remembered, oldest first.
    pub fn checkpoints(&self) -> Vec<CheckpointStatus> {
        self.checkpoints.lock().iter().cloned().collect()
    }

    /// The channels of the attempt that is running.
    pub fn exchanges(&self) -> Vec<ExchangeStatus> {
        let edges = self.edges.lock();
        let (job, target) = (self.id, edges.1.debloat_target());
        let known = edges.0.iter().filter_map(|edge| {
            let Edge { exchange, kind, from, to, .. } = *edge;
            Some(ExchangeStatus { job, exchange, kind, from, to, target, channel: edge.view.status()? })
        });
        known.collect()
    }

    /// An attempt has these channels.
    pub(super) fn watch(&self, edges: Vec<Edge>, orders: Arc<Orders>) {
        *self.edges.lock() = (edges, orders);
    }

    /// Remembers a checkpoint in the place of the oldest one. The newest that is complete stays, however many have failed since.
    pub(super) fn remember_checkpoint(&self, checkpoint: CheckpointStatus) {
        let mut checkpoints = self.checkpoints.lock();
        checkpoints.push_back(checkpoint);
        if checkpoints.len() > CHECKPOINTS_KEPT {
            let is_newest = checkpoints.iter().rposition(|checkpoint| checkpoint.error.is_none()) == Some(0);
            checkpoints.remove(usize::from(is_newest));
        }
    }

    /// How many subtasks each fragment has, while the job runs.
    pub fn subtasks(&self) -> Vec<usize> {
        self.subtasks.lock().clone()
    }

    /// Lets a subtask fail at its next message, as a drill.
    ///
    /// # Errors
    /// 55000 if the job does not run.
    pub fn fail(&self, subtask: SubtaskId) -> crate::error::Result<()> {
        if matches!(self.state(), JobState::Finished | JobState::Failed) {
            return Err(EngineError::user("55000", format!("the job of \"{}\" does not run", self.name)));
        }
        self.commands.send(JobCommand::Fail(subtask)).map_err(|_| EngineError::Cancelled)
    }

    /// Changes settings of the job. What a running job cannot change it changes at its next checkpoint, from which it goes on.
    pub fn reconfigure(&self, options: JobOptions) {
        self.set_readable(options.readable);
        // Readers that wait look again.
        self.state.send_modify(|_| {});
        // A driver that has ended has nothing to change.
        let _ = self.commands.send(JobCommand::Reconfigure(options));
    }

    /// Lets a parked job go on; see [`JobCommand::Resume`].
    ///
    /// # Errors
    /// 55000 if it is not parked.
    pub fn resume(&self, skip: bool) -> crate::error::Result<()> {
        // At once, so that who asks next sees that it goes on.
        let goes_on = self.state.send_if_modified(|state| {
            let failed = *state == JobState::Failed;
            if failed {
                *state = JobState::CatchingUp;
            }
            failed
        });
        if !goes_on {
            return Err(EngineError::user("55000", format!("the job of \"{}\" has not failed", self.name)));
        }
        self.commands.send(JobCommand::Resume { skip }).map_err(|_| EngineError::Cancelled)
    }

    /// Measures the rate since the last measurement; called about once a second.
    pub(super) fn measure_rate(&self) {
        let rows = self.rows_in.load(Ordering::Relaxed);
        let mut rate = self.rate.lock();
        let seconds = rate.at.elapsed().as_secs_f64();
        if seconds >= 0.5 {
            rate.per_second = (rows - rate.rows.min(rows)) as f64 / seconds;
            rate.rows = rows;
            rate.at = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::completion;

    #[test]
    fn the_newest_complete_checkpoint_is_remembered_however_many_have_failed_since() {
        let handle = JobHandle::new(1, "v".into(), JobKind::View, mpsc::unbounded_channel().0);
        let checkpoint = |epoch: u64, error: Option<&str>| {
            let failed = completion::failed(1, Epoch(epoch), Duration::ZERO, &EngineError::Cancelled);
            CheckpointStatus { error: error.map(str::to_owned), ..failed }
        };
        (1..=10).for_each(|epoch| handle.remember_checkpoint(checkpoint(epoch, None)));
        (11..=500).for_each(|epoch| handle.remember_checkpoint(checkpoint(epoch, Some("away"))));
        let known = |handle: &JobHandle| handle.checkpoints().iter().map(|checkpoint| checkpoint.epoch.0).collect::<Vec<_>>();
        let expected: Vec<u64> = [10].into_iter().chain(438..=500).collect();
        assert_eq!((known(&handle), expected.len()), (expected.clone(), CHECKPOINTS_KEPT));
        handle.remember_checkpoint(checkpoint(501, None));
        assert_eq!(known(&handle), (438..=501).collect::<Vec<_>>());
    }
}
