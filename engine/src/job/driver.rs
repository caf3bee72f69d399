//! The driver of one job: restores, injects barriers, seals epochs, completes checkpoints, restarts after failures.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use millpond_storage::{
    collection::{Collection, Hold},
    epoch::Epoch,
};
use tokio::sync::mpsc;

use super::{
    attempt::{Attempt, InFlight, Part, Renewal, on_task_end, wait_checkpoint, wait_switch},
    failure::{failure, is_final, may_pass},
    inputs::next_epoch,
    recovery::{RecoveryCause, RecoveryStep},
    spec::{JobOptions, JobSpec},
    status::{JobCommand, JobHandle, JobState},
};
use crate::{
    coordinator::ClosedEpoch,
    engine::Shared,
    error::{EngineError, Result},
    message::{Barrier, BarrierKind},
    task::subtask::{SubtaskId, TaskEvent},
};

/// How long the subtasks of an attempt have to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(1);
/// Pause before the first restart; doubled for each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause before a restart.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// Failures at the same epoch after which a job is parked.
const FAILURES_TO_PARK: u32 = 3;
/// A job that is not further behind than so many epochs keeps up.
const KEEPS_UP_EPOCHS: u64 = 8;

/// Drives a job until it is stopped, finished or parked.
pub struct Driver {
    /// What to run.
    pub spec: Arc<JobSpec>,
    /// Seen from outside.
    pub handle: Arc<JobHandle>,
    /// The rest of the engine.
    pub shared: Arc<Shared>,
    /// The job's collection.
    pub collection: Option<Arc<Collection>>,
    /// Orders.
    pub commands: mpsc::UnboundedReceiver<JobCommand>,
    /// Fingerprint of the graph.
    pub fingerprint: u64,
    /// Keep what the newest checkpoint has not consumed of the upstreams, also between two attempts.
    pub holds: Vec<Hold>,
    /// Whether it has a checkpoint to go on from: then it waits for what may pass, however long.
    pub established: bool,
    /// Settings in effect.
    pub options: JobOptions,
    /// Age at which changes of state are logged, in microseconds: follows from the checkpoint interval.
    pub log_age_us: Arc<AtomicI64>,
    /// Bad rows are diverted whatever the sources say, as `RESUME SKIP` asks, until the next checkpoint.
    pub skip_bad_rows: Arc<AtomicBool>,
}

/// How an attempt ended without a failure.
enum Ended {
    Stopped,
    Finished,
    /// Settings were changed that need another attempt; the checkpoint to go on from is complete.
    Renewed,
}

/// What follows from a command that reaches a driver between two attempts.
#[derive(PartialEq, Eq)]
enum Next {
    Stop,
    Resume,
    Wait,
}

impl Driver {
    /// Runs the job.
    pub async fn run(mut self) {
        let mut failures = (Epoch(0), 0);
        let mut backoff = FIRST_BACKOFF;
        self.begin_recovery(RecoveryCause::Restart, None);
        self.handle.reach(RecoveryStep::Cancelled);
        loop {
            let before = self.handle.sealed();
            let error = match self.attempt().await {
                Ok(Ended::Stopped) => return,
                Ok(Ended::Renewed) => continue,
                Ok(Ended::Finished) => {
                    self.holds.clear();
                    self.handle.resume_never();
                    self.set_state(JobState::Finished);
                    return self.follow_closed().await;
                }
                Err(error) => error,
            };
            let at = self.handle.sealed();
            failures = if failures.0 == at { (at, failures.1 + 1) } else { (at, 1) };
            if at > before {
                backoff = FIRST_BACKOFF;
            }
            tracing::warn!(job = %self.spec.name, %error, epoch = %at, failures = failures.1, "job failed");
            *self.handle.error.lock() = Some(error.to_string());
            let is_patient = self.established && may_pass(&error);
            if is_final(&error) || (failures.1 >= FAILURES_TO_PARK && !is_patient) {
                if !self.park(&error).await {
                    return;
                }
                (failures, backoff) = ((Epoch(0), 0), FIRST_BACKOFF);
                continue;
            }
            self.handle.restarts.fetch_add(1, Ordering::Relaxed);
            self.set_state(JobState::CatchingUp);
            if !self.pause(backoff).await {
                return;
            }
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
    }

    fn begin_recovery(&self, cause: RecoveryCause, error: Option<String>) {
        self.handle.begin_recovery(cause, error, self.shared.coordinator.clock().wall_micros());
    }

    /// The job does not go on by itself. What it has not consumed is kept, for it may be mended, until it is dropped or that takes too much.
    /// Answers whether it is to go on.
    async fn park(&mut self, error: &EngineError) -> bool {
        *self.handle.failure.lock() = Some(failure(error));
        self.set_state(JobState::Failed);
        loop {
            let command = self.commands.recv().await;
            match self.between_attempts(command) {
                Next::Stop => return false,
                Next::Wait => {}
                Next::Resume => {
                    self.begin_recovery(RecoveryCause::Resume, None);
                    self.handle.reach(RecoveryStep::Cancelled);
                    self.handle.restarts.fetch_add(1, Ordering::Relaxed);
                    *self.handle.failure.lock() = None;
                    self.set_state(if self.established { JobState::CatchingUp } else { JobState::Backfilling });
                    return true;
                }
            }
        }
    }

    /// Waits before another attempt; answers whether there is to be one.
    async fn pause(&mut self, time: Duration) -> bool {
        let until = tokio::time::Instant::now() + time;
        loop {
            let command = tokio::select! {
                () = tokio::time::sleep_until(until) => return true,
                command = self.commands.recv() => command,
            };
            if self.between_attempts(command) == Next::Stop {
                return false;
            }
        }
    }

    fn between_attempts(&mut self, command: Option<JobCommand>) -> Next {
        match command {
            None | Some(JobCommand::Stop) => return Next::Stop,
            Some(JobCommand::Resume { skip }) => {
                self.skip_bad_rows.store(skip, Ordering::Relaxed);
                return Next::Resume;
            }
            Some(JobCommand::Reconfigure(options)) => self.set_options(options),
            Some(JobCommand::Checkpoint) => {}
            Some(JobCommand::LetGo) if self.handle.state() == JobState::Failed => {
                self.holds.clear();
                self.handle.resume_never();
                tracing::warn!(job = %self.spec.name, "a failed job has fallen behind: what it has not read is not kept any more");
            }
            Some(JobCommand::LetGo) => {}
        }
        Next::Wait
    }

    pub(super) fn set_state(&self, state: JobState) {
        self.handle.state.send_replace(state);
        self.shared.coordinator.announce();
    }

    /// A finished job's contents are those of every later epoch.
    async fn follow_closed(&mut self) {
        let mut pulse = self.shared.coordinator.pulse();
        loop {
            let closed = self.shared.coordinator.closed();
            if self.handle.sealed() < closed.epoch {
                self.advance_collection(closed);
            }
            tokio::select! {
                changed = pulse.changed() => if changed.is_err() { return },
                command = self.commands.recv() => if self.between_attempts(command) == Next::Stop { return },
            }
        }
    }

    fn advance_collection(&self, to: ClosedEpoch) {
        if let Some(collection) = &self.collection {
            collection.advance(to.epoch);
        }
        self.handle.sealed.store(to.epoch.0, Ordering::Release);
        self.handle.sealed_time_us.store(to.time_us as u64, Ordering::Relaxed);
        self.shared.coordinator.announce();
    }

    /// One attempt: from the newest checkpoint until the end or a failure.
    async fn attempt(&mut self) -> Result<Ended> {
        self.shared.stops.known().await;
        let Some(mut attempt) = self.start().await? else { return Ok(Ended::Finished) };
        let ended = self.drive(&mut attempt).await;
        if let Err(error) = &ended {
            self.begin_recovery(RecoveryCause::Failure, Some(error.to_string()));
        }
        // Nothing of this attempt is to run beside the next one. A callback that does not end in time is cut off from everything by then.
        if tokio::time::timeout(CANCEL_PATIENCE, attempt.running.tasks.shutdown()).await.is_err() {
            tracing::warn!(job = %self.spec.name, "a subtask does not end");
        }
        self.handle.reach(RecoveryStep::Cancelled);
        ended
    }

    async fn drive(&mut self, attempt: &mut Attempt) -> Result<Ended> {
        // Where nothing has come since the checkpoint there is nothing to catch up with.
        let stands_at = self.handle.sealed();
        self.note_progress(attempt, stands_at, self.shared.coordinator.closed());
        let mut pulse = self.shared.coordinator.pulse();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            pulse.mark_unchanged();
            self.inject(attempt)?;
            let next_switch = attempt.next_switch();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(JobCommand::Checkpoint) => attempt.checkpoint_wanted = true,
                    Some(JobCommand::Reconfigure(options)) => self.reconfigure(attempt, options),
                    Some(JobCommand::LetGo | JobCommand::Resume { .. }) => {}
                    Some(JobCommand::Stop) | None => return Ok(Ended::Stopped),
                },
                event = attempt.running.events.recv() => {
                    if let Some(event) = event && self.on_event(attempt, event)? {
                        return Ok(Ended::Finished);
                    }
                }
                passed = attempt.running.passed.recv() => attempt.passed.extend(passed),
                ended = attempt.running.tasks.join_next(), if !attempt.running.tasks.is_empty() => on_task_end(ended)?,
                done = wait_checkpoint(&mut attempt.checkpoint_running) => {
                    attempt.checkpoint_running = None;
                    if self.on_checkpoint(attempt, done)? {
                        return Ok(Ended::Finished);
                    }
                    if attempt.renewal == Renewal::Due {
                        return Ok(Ended::Renewed);
                    }
                }
                checkpoint = wait_switch(next_switch) => attempt.switch(checkpoint),
                _ = pulse.changed() => {}
                _ = second.tick() => self.handle.measure_rate(),
            }
        }
    }

    /// Takes new settings. Those that shape an attempt need another one, which goes on from the next checkpoint.
    fn reconfigure(&mut self, attempt: &mut Attempt, options: JobOptions) {
        let shapes = |options: &JobOptions| (options.parallelism, options.state_backend);
        if shapes(&options) != shapes(&self.options) {
            attempt.renewal = Renewal::Wanted;
            attempt.checkpoint_wanted = true;
        }
        self.set_options(options);
    }

    fn set_options(&mut self, options: JobOptions) {
        self.log_age_us.store(options.log_age_us(), Ordering::Relaxed);
        self.options = options;
    }

    /// Injects the next barrier, if there is an epoch to close and room in flight.
    fn inject(&self, attempt: &mut Attempt) -> Result<()> {
        let full = attempt.is_full(self.options.checkpoint_interval);
        if attempt.final_injected || full || matches!(attempt.renewal, Renewal::Begun(_) | Renewal::Due) {
            return Ok(());
        }
        let closed = self.shared.coordinator.closed();
        let reachable = attempt.inputs.collections.values().map(|c| c.upper()).chain([closed.epoch]).min().unwrap_or(closed.epoch);
        let backfilling = attempt.backfilling();
        let stops = self.shared.stops.after(attempt.injected).into_iter().chain([attempt.upper_at_start]);
        let next = next_epoch(reachable, attempt.injected, stops);
        // A backfill goes on at the epoch it stands at when no new one has come, one step at a time.
        let epoch = match next {
            Some(epoch) => epoch,
            None if backfilling && attempt.in_flight.is_empty() && reachable > Epoch(0) => self.extra_epoch(attempt)?,
            None => return self.checkpoint_in_place(attempt, closed),
        };
        if epoch <= attempt.injected {
            return Ok(());
        }
        let Some(epoch) = attempt.inputs.boundary_from(epoch, reachable) else { return Ok(()) };
        let ends = attempt.inputs_end_at(epoch, &self.shared);
        let changed = backfilling
            || ends
            || attempt.changed_upto(epoch)?
            || attempt.checkpoint_due(epoch, self.options.checkpoint_interval)
            || attempt.injected == Epoch(0);
        // Behind barriers in flight its own barrier is the way to learn when the epoch has been passed.
        if !changed && attempt.in_flight.is_empty() {
            attempt.injected = epoch;
            attempt.running.skip(epoch);
            self.advance_collection(ClosedEpoch { epoch, time_us: closed.time_us });
            self.note_progress(attempt, epoch, closed);
            return Ok(());
        }
        let kind = if ends {
            BarrierKind::Final
        } else if attempt.checkpoint_due(epoch, self.options.checkpoint_interval) {
            BarrierKind::Checkpoint
        } else {
            BarrierKind::Epoch
        };
        self.send_barrier(attempt, Barrier { epoch, time_us: closed.time_us, kind });
        Ok(())
    }

    /// A backfill that has no new epoch to advance to asks for one.
    fn extra_epoch(&self, attempt: &Attempt) -> Result<Epoch> {
        self.shared.coordinator.request_extra_epoch();
        Ok(attempt.injected)
    }

    /// A checkpoint was asked for while nothing changes: an epoch is asked for that carries it.
    fn checkpoint_in_place(&self, attempt: &Attempt, closed: ClosedEpoch) -> Result<()> {
        let wanted = match attempt.in_flight.is_empty() {
            true => attempt.checkpoint_wanted || (!attempt.ready && attempt.publishable_at(attempt.injected)),
            false => attempt.may_overtake() && attempt.checkpoint_due(attempt.injected, self.options.checkpoint_interval),
        };
        let free = attempt.checkpoint_running.is_none() && Instant::now() >= attempt.no_checkpoint_before;
        if wanted && free && attempt.injected >= closed.epoch {
            self.shared.coordinator.request_extra_epoch();
        }
        Ok(())
    }

    fn send_barrier(&self, attempt: &mut Attempt, barrier: Barrier) {
        attempt.running.inject(barrier, &attempt.inputs);
        attempt.injected = barrier.epoch;
        if barrier.kind.is_checkpoint() {
            attempt.checkpoint_wanted = false;
            attempt.last_checkpoint = Instant::now();
            if attempt.renewal == Renewal::Wanted && attempt.ready {
                self.begin_recovery(RecoveryCause::Alter, None);
                attempt.renewal = Renewal::Begun(barrier.epoch);
            }
        }
        attempt.final_injected = barrier.kind == BarrierKind::Final;
        let mut flight = InFlight { roots_left: attempt.running.roots, ..InFlight::new(barrier, attempt.running.subtasks) };
        if barrier.kind.is_checkpoint() {
            flight.barriers = attempt.in_flight.iter().map(|flight| flight.barrier).chain([barrier]).collect();
        }
        let timeout = self.options.aligned_checkpoint_timeout;
        if barrier.kind == BarrierKind::Checkpoint && attempt.may_overtake() {
            flight.switch_at = flight.injected_at.checked_add(timeout);
        }
        attempt.in_flight.push_back(flight);
        if timeout.is_zero() && attempt.may_overtake() && barrier.kind == BarrierKind::Checkpoint {
            attempt.switch(barrier.epoch);
        }
    }

    /// Answers whether the job has finished.
    fn on_event(&self, attempt: &mut Attempt, event: TaskEvent) -> Result<bool> {
        match event {
            TaskEvent::Barrier { id, barrier, part, state_bytes } => {
                attempt.state_bytes.insert(id, state_bytes);
                self.handle.state_bytes.store(attempt.state_bytes.values().sum::<usize>() as u64, Ordering::Relaxed);
                self.on_barrier(attempt, id, barrier)?;
                if let Some(part) = part {
                    self.on_part(attempt, Part { id, part, delay: Duration::ZERO })?;
                }
            }
            TaskEvent::Cut { id, part } => self.on_part(attempt, Part { id, part, delay: Duration::ZERO })?,
            TaskEvent::Failed { error } => return Err(error),
        }
        while attempt.in_flight.front().is_some_and(|flight| flight.tasks_left == 0) {
            let flight = attempt.in_flight.pop_front().expect("the front was looked at");
            self.passed_everywhere(attempt, flight)?;
        }
        Ok(false)
    }

    fn on_barrier(&self, attempt: &mut Attempt, id: SubtaskId, barrier: Barrier) -> Result<()> {
        let is_root = id.fragment + 1 == self.spec.graph.fragments.len();
        let flight = attempt.flight(barrier.epoch)?;
        flight.tasks_left -= 1;
        if is_root {
            flight.roots_left -= 1;
            if flight.roots_left == 0 {
                self.seal(attempt, barrier)?;
            }
        }
        Ok(())
    }

    fn seal(&self, attempt: &mut Attempt, barrier: Barrier) -> Result<()> {
        if let Some(collection) = &self.collection {
            let batches = attempt.running.collector.take(barrier.epoch);
            let watermark = attempt.running.collector.watermark(barrier.epoch, attempt.running.roots);
            if batches.is_empty() && watermark.is_none() {
                collection.advance(barrier.epoch);
            } else {
                collection.seal(barrier.epoch, batches, watermark)?;
            }
        }
        self.handle.sealed.store(barrier.epoch.0, Ordering::Release);
        self.handle.sealed_time_us.store(barrier.time_us as u64, Ordering::Relaxed);
        self.shared.coordinator.announce();
        Ok(())
    }

    fn passed_everywhere(&self, attempt: &mut Attempt, flight: InFlight) -> Result<()> {
        let epoch = flight.barrier.epoch;
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut attempt.passed).into_iter().chain(attempt.drain_passed()).partition(|p| p.epoch <= epoch);
        attempt.passed = later;
        for passed in now {
            attempt.positions.collections.insert(passed.node, passed.position);
        }
        attempt.move_sources_to(epoch);
        let rows = attempt.positions.collections.values().map(|p| p.rows).sum();
        self.handle.backfill_rows.store(rows, Ordering::Relaxed);
        if flight.is_checkpointing() {
            self.begin_checkpoint(attempt, flight.barrier, flight.injected_at, flight.parts, None)?;
        }
        self.note_progress(attempt, epoch, self.shared.coordinator.closed());
        Ok(())
    }

    fn note_progress(&self, attempt: &mut Attempt, epoch: Epoch, closed: ClosedEpoch) {
        if epoch < attempt.upper_at_start {
            return;
        }
        self.handle.reach(RecoveryStep::Replayed);
        if !attempt.ready || closed.epoch.0.saturating_sub(epoch.0) > KEEPS_UP_EPOCHS {
            return;
        }
        self.handle.reach(RecoveryStep::CaughtUp);
        if self.handle.state() == JobState::CatchingUp {
            *self.handle.error.lock() = None;
            self.set_state(JobState::Running);
        }
    }
}
