//! The driver of one job: restores, injects barriers, seals epochs, completes checkpoints, restarts after failures.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use millpond_storage::{
    checkpoint::{ReplayBound, Settling},
    collection::{Collection, Hold},
    epoch::Epoch,
    error::StorageError,
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    attempt::{Attempt, InFlight, Part, on_task_end, phase, wait_checkpoint, wait_switch},
    beginning::{Beginning, Started},
    inputs::next_epoch,
    recovery::{RecoveryCause, RecoveryStep},
    renewal::{Renewal, Succession},
    running::{JobInputs, Running, ScanPositions, Spawn},
    spec::{JobOptions, JobSpec},
    status::{JobCommand, JobHandle, JobState},
};
use crate::{
    coordinator::ClosedEpoch,
    engine::Shared,
    error::Result,
    message::{Barrier, BarrierKind},
    task::{
        build::{Control, fragment_parallelism},
        fault::Fault,
        orders::{Orders, Recovery},
        subtask::{SubtaskId, TaskEvent},
    },
};

/// How long the subtasks of an attempt have to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(1);
/// A job that is not further behind than so many epochs keeps up.
pub(super) const KEEPS_UP_EPOCHS: u64 = 8;

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
    /// Orders that came while rows were sealed.
    pub(super) put_off: VecDeque<JobCommand>,
    /// Orders.
    pub commands: mpsc::UnboundedReceiver<JobCommand>,
    /// Fingerprint of the graph.
    pub fingerprint: u64,
    /// Keep what the newest checkpoint has not consumed of the upstreams, also between two attempts.
    pub holds: Vec<Hold>,
    /// Keeps the job's own collection, while it is filled, as it was at the newest checkpoint.
    pub(super) own_hold: Option<Hold>,
    /// Whether it has a checkpoint to go on from: then it waits for what may pass, however long.
    pub established: bool,
    /// Settings in effect.
    pub options: JobOptions,
    /// What subtasks and readers are told.
    pub orders: Arc<Orders>,
    /// What the attempt before has left, if it ended in order.
    pub(super) succession: Option<Succession>,
    /// What of the attempt before may still be under way in the object store.
    pub(super) settling: Settling,
    /// How long a restart may replay, and how fast it does.
    pub(super) replay: Arc<ReplayBound>,
    /// Where the job failed when it was parked.
    pub(super) parked_at: Option<Fault>,
    /// Subtasks that were restarted alone while the job had sealed this epoch.
    pub(super) tried: (Epoch, BTreeSet<SubtaskId>),
    /// Why the failure at hand is one of the whole job.
    pub(super) refusal: Option<String>,
    /// When an epoch was sealed last.
    pub(super) sealed_at: Instant,
}

/// How an attempt ended without a failure.
pub(super) enum Ended {
    Stopped,
    Finished,
    /// Settings were changed that need another attempt; the checkpoint to go on from is complete.
    Renewed,
}

impl Driver {
    pub(super) fn set_state(&self, state: JobState) {
        self.handle.state.send_replace(state);
        self.shared.coordinator.announce();
    }

    pub(super) fn advance_collection(&mut self, to: ClosedEpoch) {
        if let Some(collection) = &self.collection {
            collection.advance(to.epoch);
        }
        self.on_sealed(to);
    }

    /// An epoch is sealed.
    pub(super) fn on_sealed(&mut self, sealed: ClosedEpoch) {
        self.handle.sealed.store(sealed.epoch.0, Ordering::Release);
        self.handle.sealed_time_us.store(sealed.time_us as u64, Ordering::Relaxed);
        self.sealed_at = Instant::now();
        self.handle.rescale_seals();
        self.shared.coordinator.announce();
    }

    /// A driver of a job that has not been started yet.
    pub(crate) fn new(
        spec: Arc<JobSpec>,
        handle: Arc<JobHandle>,
        shared: Arc<Shared>,
        collection: Option<Arc<Collection>>,
        commands: mpsc::UnboundedReceiver<JobCommand>,
        holds: Vec<Hold>,
    ) -> Self {
        let (options, orders) = (spec.options.clone(), Arc::new(Orders::default()));
        options.give(&orders);
        handle.set_readable(options.readable);
        let replay = Arc::new(ReplayBound::new(options.recovery_target));
        let fingerprint = crate::graph_text::fingerprint(&spec.graph);
        Self {
            spec,
            handle,
            shared,
            collection,
            put_off: VecDeque::new(),
            commands,
            fingerprint,
            holds,
            own_hold: None,
            established: false,
            options,
            orders,
            succession: None,
            settling: Settling::default(),
            replay,
            parked_at: None,
            tried: (Epoch(0), BTreeSet::new()),
            refusal: None,
            sealed_at: Instant::now(),
        }
    }

    /// One attempt: from the newest checkpoint until the end or a failure.
    pub(super) async fn attempt(&mut self) -> Result<Ended> {
        self.shared.stops.known().await;
        if let Some(ended) = self.wait_for_inputs().await? {
            return Ok(ended);
        }
        let mut attempt = match self.start_unless_stopped().await? {
            Started::Running(attempt) => *attempt,
            Started::Ended(ended) => return Ok(ended),
        };
        let ended = self.drive(&mut attempt).await;
        if let Err(error) = &ended {
            self.begin_recovery(RecoveryCause::Failure, Some(error.to_string()));
            self.handle.rescale_stops(Instant::now());
            self.handle.say_why_whole(self.refusal.take());
        }
        if attempt.checkpoint_asked && !matches!(ended, Ok(Ended::Finished | Ended::Stopped)) {
            self.put_off.push_back(JobCommand::Checkpoint);
        }
        let founding = if matches!(ended, Ok(Ended::Renewed)) { attempt.checkpoint_running.take() } else { None };
        self.settling = attempt.give_up_checkpoint().await;
        // Nothing of this attempt is to run beside the next one. A callback that does not end in time is cut off from everything by then.
        if tokio::time::timeout(CANCEL_PATIENCE, attempt.running.tasks.shutdown()).await.is_err() {
            tracing::warn!(job = %self.spec.name, "a subtask does not end");
        }
        self.handle.reach(RecoveryStep::Cancelled);
        match &ended {
            Ok(Ended::Renewed) => self.succeed(&mut attempt, founding)?,
            // What DROP deletes next had better not come again.
            Ok(Ended::Stopped) => drop(tokio::time::timeout(CANCEL_PATIENCE, self.settling.settled()).await),
            Ok(Ended::Finished) | Err(_) => {}
        }
        ended
    }

    async fn drive(&mut self, attempt: &mut Attempt) -> Result<Ended> {
        // Where nothing has come since the checkpoint there is nothing to catch up with.
        let stands_at = self.handle.sealed();
        if stands_at >= self.shared.coordinator.closed().epoch {
            self.handle.rescale_seals();
        }
        self.note_progress(attempt, stands_at, self.shared.coordinator.closed());
        let mut pulse = self.shared.coordinator.pulse();
        let mut second = tokio::time::interval(Duration::from_secs(1));
        loop {
            if attempt.renewal == Renewal::Due {
                self.handle.rescale_stopped();
                self.shared.reach("rescale::due")?;
                return Ok(Ended::Renewed);
            }
            pulse.mark_unchanged();
            self.inject(attempt)?;
            let next_switch = attempt.next_switch();
            tokio::select! {
                command = self.next_command() => match command {
                    // Who asks for one does not mean after the pause for the last that failed.
                    Some(JobCommand::Checkpoint) => {
                        (attempt.checkpoint_wanted, attempt.checkpoint_asked) = (true, true);
                        attempt.no_checkpoint_before = Instant::now();
                    }
                    Some(JobCommand::Reconfigure(options)) => self.reconfigure(attempt, options),
                    Some(JobCommand::Fail(id)) => attempt.running.controls.get(&id).into_iter().for_each(Control::fail),
                    Some(JobCommand::LetGo | JobCommand::Resume { .. }) => {}
                    Some(JobCommand::Stop) | None => return Ok(Ended::Stopped),
                },
                // A channel without senders is always ready: a job need not have readers of collections, and its subtasks may have ended.
                Some(event) = attempt.running.events.recv() => if let Some(ended) = self.on_event(attempt, event).await? {
                    return Ok(ended);
                },
                Some(passed) = attempt.running.passed.recv() => attempt.passed.push(passed),
                ended = attempt.running.tasks.join_next(), if !attempt.running.tasks.is_empty() => on_task_end(ended)?,
                done = wait_checkpoint(&mut attempt.checkpoint_running) => {
                    attempt.checkpoint_running = None;
                    if self.on_checkpoint(attempt, done)? {
                        return Ok(Ended::Finished);
                    }
                }
                checkpoint = wait_switch(next_switch) => attempt.switch(checkpoint),
                _ = pulse.changed() => {}
                _ = second.tick() => {
                    self.handle.measure_rate();
                    // What came last is not to wait for what may never come.
                    attempt.checkpoint_wanted |= attempt.is_changed && attempt.last_checkpoint.elapsed() >= self.options.checkpoint_interval;
                }
            }
        }
    }

    /// Restores and spawns. `None` if the checkpoint says that the job had finished.
    pub(super) async fn start(&mut self) -> Result<Option<Attempt>> {
        let inputs = JobInputs::resolve(&self.spec, &self.shared.coordinator, &|id| self.shared.collection(id))?;
        self.orders.hand_over_at(Epoch(0));
        self.options.give(&self.orders);
        let Some(Beginning { checkpointer, store, origin, positions, injected, restart, checkpoint }) = self.begin(&inputs).await? else {
            return Ok(None);
        };
        let ready = injected.is_some() && self.collection.as_ref().is_none_or(|collection| collection.published());
        let begins_at = injected;
        let injected = injected.unwrap_or_default();
        store.expect_rewinds(self.options.recovery != Recovery::Job);
        let in_flight = self.passed_again(&restart);
        let spawn = Spawn {
            spec: &self.spec,
            parallelism: self.options.parallelism,
            orders: self.orders.clone(),
            inputs: &inputs,
            positions: &positions,
            restart,
            begins_at,
            store: store.clone(),
            origin,
            side: self.shared.side_output(self.spec.id),
            budget: self.shared.memory.clone(),
            clock: self.shared.coordinator.clock().clone(),
            runtime: &self.shared.runtime,
        };
        let origin = spawn.origin.clone();
        self.shared.reach("job::spawn")?;
        let running = Running::spawn(spawn, &self.handle)?;
        self.note_restored(&origin);
        let width = |fragment| fragment_parallelism(fragment, self.options.parallelism);
        *self.handle.subtasks.lock() = self.spec.graph.fragments.iter().map(width).collect();
        self.handle.recover_from(injected);
        self.handle.reach(RecoveryStep::Restored);
        self.handle.rescale_started(self.options.parallelism);
        in_flight.iter().for_each(|flight| running.inject(flight.barrier, &inputs));
        self.set_state(if ready { JobState::CatchingUp } else { JobState::Backfilling });
        self.note_backfill(&inputs, &positions);
        Ok(Some(Attempt {
            running,
            checkpointer,
            store,
            inputs,
            applied: BTreeMap::new(),
            // From the first barrier on all scans of a source stand together.
            positions: ScanPositions { splits: BTreeMap::new(), ..positions.clone() },
            positions_at_start: positions,
            injected,
            upper_at_start: self.collection.as_ref().map_or(Epoch(0), |collection| collection.upper()),
            in_flight,
            passed: Vec::new(),
            checkpoint_wanted: false,
            checkpoint_asked: false,
            is_changed: false,
            checkpoint_failures: 0,
            is_founded: checkpoint.is_none(),
            checkpoint_running: checkpoint,
            last_checkpoint: self.first_checkpoint_since(),
            no_checkpoint_before: Instant::now(),
            final_injected: false,
            renewal: Renewal::None,
            handed: Vec::new(),
            left: None,
            ready,
            can_overtake: self.spec.graph.aligned_fragments().contains(&false),
            state_bytes: BTreeMap::new(),
            restarted: BTreeSet::new(),
            rewinds: JoinSet::new(),
        }))
    }

    /// From when on the interval to the next checkpoint runs, if there was none before: jobs that are started together, each at another part of
    /// it, do not take their checkpoints together later.
    fn first_checkpoint_since(&self) -> Instant {
        let lead = self.options.checkpoint_interval.mul_f64(phase(self.spec.id));
        Instant::now().checked_sub(lead).unwrap_or_else(Instant::now)
    }

    /// Changes after the checkpoint must stay until the next one is complete. If any of them is gone the job cannot go on.
    pub(super) fn hold_from(&mut self, inputs: &JobInputs, epoch: Epoch) -> Result<()> {
        let behind = |oldest: Epoch| StorageError::FallenBehind { asked: epoch.0, oldest: oldest.0 };
        if let Some(known) = inputs.sources.values().map(|source| source.known_from()).find(|known| epoch < *known) {
            return Err(behind(known).into());
        }
        // The new holds are placed before the old ones go.
        self.holds = inputs.collections.values().map(|collection| collection.hold(epoch)).collect::<Result<_, _>>()?;
        self.handle.resume_at(epoch);
        Ok(())
    }

    /// Injects the next barrier, if there is an epoch to close and room in flight.
    fn inject(&mut self, attempt: &mut Attempt) -> Result<()> {
        let full = attempt.is_full(self.options.checkpoint_interval);
        let closed = self.shared.coordinator.closed();
        if attempt.final_injected && attempt.ready && attempt.in_flight.is_empty() && self.handle.sealed() < closed.epoch {
            // What it has is that of every later epoch, however long the store is away that its last checkpoint needs.
            self.advance_collection(closed);
        }
        if attempt.final_injected || full || attempt.renewal.holds_back() {
            return Ok(());
        }
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
        if barrier.kind == BarrierKind::Checkpoint {
            self.renew_at(attempt, barrier.epoch);
        }
        attempt.running.inject(barrier, &attempt.inputs);
        attempt.injected = barrier.epoch;
        attempt.is_changed = !barrier.kind.is_checkpoint();
        if barrier.kind.is_checkpoint() {
            attempt.checkpoint_wanted = false;
            attempt.last_checkpoint = if attempt.ready { Instant::now() } else { self.first_checkpoint_since() };
        }
        attempt.final_injected = barrier.kind == BarrierKind::Final;
        let mut flight = InFlight { roots_left: attempt.running.roots, ..InFlight::new(barrier, attempt.running.subtasks) };
        if barrier.kind.is_checkpoint() {
            flight.barriers = attempt.in_flight.iter().map(|flight| flight.barrier).chain([barrier]).collect();
        }
        let timeout = attempt.renewal.timeout(self.options.aligned_checkpoint_timeout);
        if barrier.kind == BarrierKind::Checkpoint && attempt.may_overtake() {
            flight.switch_at = flight.injected_at.checked_add(timeout);
        }
        attempt.in_flight.push_back(flight);
        if timeout.is_zero() && attempt.may_overtake() && barrier.kind == BarrierKind::Checkpoint {
            attempt.switch(barrier.epoch);
        }
    }

    /// The next order. Those come first that came while rows were sealed.
    async fn next_command(&mut self) -> Option<JobCommand> {
        match self.put_off.pop_front() {
            Some(command) => Some(command),
            None => self.commands.recv().await,
        }
    }

    /// Answers how the attempt has ended if it has.
    async fn on_event(&mut self, attempt: &mut Attempt, event: TaskEvent) -> Result<Option<Ended>> {
        match event {
            TaskEvent::Barrier { id, barrier, part, state_bytes, handed } => {
                attempt.handed.extend(handed);
                attempt.state_bytes.insert(id, state_bytes);
                self.handle.state_bytes.store(attempt.state_bytes.values().sum::<usize>() as u64, Ordering::Relaxed);
                if self.is_through(attempt, id, barrier)?
                    && let Some(ended) = self.seal(attempt, barrier).await?
                {
                    return Ok(Some(ended));
                }
                if let Some(part) = part {
                    self.on_part(attempt, Part { id, part, delay: Duration::ZERO })?;
                }
            }
            TaskEvent::Cut { id, part, handed } => {
                attempt.handed.extend(handed);
                self.on_part(attempt, Part { id, part, delay: Duration::ZERO })?;
            }
            TaskEvent::Failed { id, failure } => self.on_failed(attempt, id, *failure)?,
            TaskEvent::Restored { id } => self.handle.reach_alone(id, RecoveryStep::Restored),
            TaskEvent::Replayed { id } => self.on_replayed(attempt, id),
        }
        while attempt.in_flight.front().is_some_and(|flight| flight.tasks_left == 0) {
            let flight = attempt.in_flight.pop_front().expect("the front was looked at");
            self.passed_everywhere(attempt, flight)?;
        }
        Ok(None)
    }

    /// A subtask has passed a barrier; answers whether all that emit the job's rows have.
    fn is_through(&self, attempt: &mut Attempt, id: SubtaskId, barrier: Barrier) -> Result<bool> {
        let is_root = id.fragment + 1 == self.spec.graph.fragments.len();
        let flight = attempt.flight(barrier.epoch)?;
        flight.tasks_left -= 1;
        flight.roots_left -= usize::from(is_root);
        Ok(is_root && flight.roots_left == 0)
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
}
