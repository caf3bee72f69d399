//! From the parts of all subtasks to a complete checkpoint, aligned or not, and what follows.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{
    checkpoint::{CheckpointReport, Checkpointer, ManifestInput},
    collection::Collection,
    epoch::Epoch,
    error::StorageError,
    state_table::TaskCheckpoint,
};

use super::{
    attempt::{Attempt, CheckpointEnd, Part, RunningCheckpoint},
    driver::Driver,
    failure::may_pass,
    renewal::Renewal,
    status::{CheckpointStatus, JobHandle, JobState, SubtaskCheckpoint},
};
use crate::{
    error::{EngineError, Result},
    message::{Barrier, BarrierKind},
    task::restart::CutNote,
};

/// Name of the manifest note that holds the scan positions.
pub(super) const POSITIONS_NOTE: &str = "scan_positions";
/// Name of the manifest note that says in which epochs an unaligned checkpoint was taken.
pub(super) const CUT_NOTE: &str = "cut";
/// Name of the manifest note that says by which watermarks rows are late.
pub(super) const WATERMARKS_NOTE: &str = "applied_watermarks";
/// Name of the manifest note that says that the job had finished.
pub(super) const FINISHED_NOTE: &str = "finished";
/// Name of the manifest note that lists the rows that are left out, if there are any.
pub(super) const SKIPPED_NOTE: &str = "skipped_rows";
/// Pause after a checkpoint that the store refused; doubled for each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest pause before another checkpoint is tried: so long a store that is back may be unnoticed.
const LONGEST_RETRY: Duration = Duration::from_secs(16);

/// A checkpoint whose manifest is written.
pub(super) struct CompleteCheckpoint {
    status: CheckpointStatus,
    /// Nothing of the inputs is needed up to this epoch.
    consumed: Epoch,
}

impl Driver {
    /// A subtask has given its part. When all have, and some did not wait for the barrier, the checkpoint need not wait for it either.
    pub(super) fn on_part(&self, attempt: &mut Attempt, mut part: Part) -> Result<()> {
        let subtasks = attempt.running.subtasks;
        let fragments = self.spec.graph.fragments.len();
        let checkpoint = part.part.checkpoint;
        let flight = attempt.flight(checkpoint)?;
        part.delay = flight.injected_at.elapsed();
        flight.parts.push(part);
        if flight.parts.len() < subtasks || !flight.parts.iter().any(|part| part.part.is_cut) {
            return Ok(());
        }
        flight.is_checkpointed = true;
        let (barrier, injected_at, parts) = (flight.barrier, flight.injected_at, std::mem::take(&mut flight.parts));
        let closed = parts.iter().map(|part| (part.id.fragment, part.part.closed));
        let cut = CutNote::new(fragments, closed, std::mem::take(&mut flight.barriers).into_iter());
        self.begin_checkpoint(attempt, barrier, injected_at, parts, Some(cut))
    }

    /// Starts completing a checkpoint of which all parts have come. `cut` says where it was taken if not at the barrier.
    pub(super) fn begin_checkpoint(
        &self,
        attempt: &mut Attempt,
        barrier: Barrier,
        injected_at: Instant,
        parts: Vec<Part>,
        cut: Option<CutNote>,
    ) -> Result<()> {
        let consumed = cut.as_ref().map_or(barrier.epoch, CutNote::consumed);
        attempt.applied = lowest_watermarks(&parts);
        let mut notes = notes(attempt, barrier, &parts, cut.as_ref())?;
        let skipped = self.orders.faults.skipped();
        if !skipped.is_empty() {
            notes.insert(SKIPPED_NOTE.to_string(), serde_json::to_string(&skipped).map_err(|e| EngineError::Internal(e.to_string()))?);
        }
        let upstream: Vec<Arc<Collection>> = attempt.inputs.collections.values().cloned().collect();
        let named = attempt.inputs.collections.keys().map(|id| (*id, consumed)).collect();
        let (state, flights, subtasks) = split_parts(parts);
        let manifest = ManifestInput { epoch: barrier.epoch, parts: state, in_flight: cut.map(|_| flights), upstream: named, notes };
        let (own, checkpointer, job) = (self.collection.clone(), attempt.checkpointer.clone(), self.spec.id);
        let is_unaligned = manifest.in_flight.is_some();
        attempt.renewal.on_begun_checkpoint(barrier.epoch, attempt.ready, is_unaligned);
        // Others go on meanwhile with what is given to this checkpoint now.
        let hands_over = matches!(attempt.renewal, Renewal::Due { .. });
        let previous = attempt.checkpoint_running.take();
        let began = Instant::now();
        // A job that nobody can read yet fails soon instead, and so does its definition.
        let is_last = self.established && (barrier.kind == BarrierKind::Final || attempt.renewal == Renewal::Begun(barrier.epoch));
        let (shared, handle) = (self.shared.clone(), self.handle.clone());
        let task = self.shared.runtime.spawn(async move {
            if let Some(mut previous) = previous
                && let Err(error) = previous.end().await.result
                && !(is_last && may_pass(&error))
                && !(hands_over && is_carried_on(&error))
            {
                return Err(if hands_over { lost(error) } else { error });
            }
            let before = async {
                shared.reach("job::flush")?;
                // What the checkpoint is taken to contain must be durable before it says so: upstream changes, and this job's own.
                for collection in upstream.iter().chain(&own) {
                    let collection = collection.clone();
                    tokio::task::spawn_blocking(move || collection.flush()).await.map_err(|e| EngineError::Internal(e.to_string()))??;
                }
                shared.reach("job::complete")?;
                Ok(())
            };
            // Those who go on have no way to give again what has not been taken over.
            before.await.map_err(|error: EngineError| if hands_over { lost(error) } else { error })?;
            let report = match (is_last, hands_over) {
                (true, _) => complete_last(&checkpointer, manifest, &handle, injected_at).await?,
                (false, false) => checkpointer.complete(manifest).await?,
                (false, true) => {
                    let complete = checkpointer.complete(manifest).await.map_err(EngineError::from);
                    // Also if it was refused: then what they gave goes into the first one of those that go on.
                    checkpointer.succeed_tasks().await;
                    complete.map_err(|error| if is_carried_on(&error) { error } else { lost(error) })?
                }
            };
            let durations = (injected_at.elapsed(), began.elapsed());
            Ok(CompleteCheckpoint { status: status(job, report, is_unaligned, durations, subtasks), consumed })
        });
        attempt.checkpoint_running = Some(RunningCheckpoint { epoch: barrier.epoch, injected_at, task });
        Ok(())
    }

    /// Answers whether the job has finished.
    pub(super) fn on_checkpoint(&mut self, attempt: &mut Attempt, end: CheckpointEnd) -> Result<bool> {
        let CompleteCheckpoint { status, consumed } = match end.result {
            Ok(complete) => complete,
            Err(error) => return self.on_failed_checkpoint(attempt, end.epoch, end.duration, error).map(|()| false),
        };
        (attempt.checkpoint_failures, attempt.checkpoint_asked) = (0, false);
        let (epoch, is_unaligned) = (status.epoch, status.in_flight_bytes.is_some());
        attempt.running.complete(epoch);
        if !is_unaligned {
            // What had been read ahead of an unaligned one is read again.
            self.orders.set_skip_bad_rows(false);
        }
        self.handle.remember_checkpoint(status);
        self.hold_from(&attempt.inputs, consumed)?;
        if let Some(hold) = &mut self.own_hold {
            hold.advance(epoch);
        }
        self.established = true;
        attempt.is_founded = true;
        let ends = attempt.final_injected && attempt.in_flight.is_empty();
        attempt.checkpoint_wanted |= attempt.renewal.on_checkpoint(epoch);
        if !attempt.ready && attempt.publishable_at(epoch) {
            attempt.ready = true;
            if let Some(collection) = &self.collection {
                collection.set_published(true)?;
            }
            self.own_hold = None;
            // Who waits for a job that has ended already sees it as finished at once.
            if !ends {
                self.set_state(JobState::Running);
            }
        }
        self.handle.checkpointed.send_replace(epoch);
        Ok(ends)
    }

    /// The parts of a checkpoint that the store refused go into the next one; the job goes on.
    fn on_failed_checkpoint(&self, attempt: &mut Attempt, epoch: Epoch, duration: Duration, error: EngineError) -> Result<()> {
        self.handle.remember_checkpoint(failed(self.spec.id, epoch, duration, &error));
        // After the last checkpoint of an attempt its subtasks have ended.
        let goes_on = !attempt.final_injected && !matches!(attempt.renewal, Renewal::Begun(_));
        match error {
            EngineError::Storage(StorageError::Io { .. } | StorageError::ObjectStore { .. }) if goes_on => {
                attempt.checkpoint_failures += 1;
                attempt.checkpoint_wanted = true;
                attempt.no_checkpoint_before = Instant::now() + pause_after(attempt.checkpoint_failures, &self.spec.name, epoch, &error);
                Ok(())
            }
            EngineError::Storage(StorageError::GivenUp { .. }) if goes_on => {
                attempt.checkpoint_wanted = true;
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// Whether the next checkpoint takes over what was given to one that failed so.
fn is_carried_on(error: &EngineError) -> bool {
    matches!(error, EngineError::Storage(StorageError::Io { .. } | StorageError::ObjectStore { .. }))
}

/// The job has to start again from the checkpoint before.
fn lost(error: EngineError) -> EngineError {
    match error {
        error if may_pass(&error) || matches!(error, EngineError::Storage(StorageError::GivenUp { .. })) => {
            EngineError::Retryable(format!("the last checkpoint before a change of the job failed: {error}"))
        }
        other => other,
    }
}

/// Completes the last checkpoint of an attempt, behind which no other comes that could take over its parts: it is tried until the store takes it.
/// The subtasks have ended, and their job has all that it would have to restore from that store.
async fn complete_last(
    checkpointer: &Checkpointer,
    mut manifest: ManifestInput,
    handle: &JobHandle,
    injected_at: Instant,
) -> Result<CheckpointReport> {
    let mut failures = 0;
    loop {
        let ManifestInput { epoch, in_flight, upstream, notes, .. } = &manifest;
        let (epoch, in_flight, upstream, notes) = (*epoch, in_flight.clone(), upstream.clone(), notes.clone());
        let error = match checkpointer.complete(manifest).await {
            Ok(report) => return Ok(report),
            Err(error) => EngineError::from(error),
        };
        if !may_pass(&error) {
            return Err(error);
        }
        handle.remember_checkpoint(failed(handle.id, epoch, injected_at.elapsed(), &error));
        failures += 1;
        tokio::time::sleep(pause_after(failures, &handle.name, epoch, &error)).await;
        // The parts have been taken over.
        manifest = ManifestInput { epoch, parts: Vec::new(), in_flight, upstream, notes };
    }
}

/// Tells of a checkpoint that is tried again, after so many failures. Answers after how long.
fn pause_after(failures: u32, job: &str, epoch: Epoch, error: &EngineError) -> Duration {
    let pause = FIRST_RETRY.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_RETRY);
    tracing::warn!(job, %epoch, %error, failures, ?pause, "checkpoint failed; it is tried again");
    pause
}

fn failed(job: u64, epoch: Epoch, duration: Duration, error: &EngineError) -> CheckpointStatus {
    CheckpointStatus {
        job,
        epoch,
        duration_us: duration.as_micros() as u64,
        log_bytes: 0,
        materialized_bytes: 0,
        in_flight_bytes: None,
        stored_bytes: 0,
        replay_bytes: 0,
        replay_us: 0,
        async_us: 0,
        subtasks: Vec::new(),
        error: Some(error.to_string()),
    }
}

/// Per node, the lowest watermark by which rows were late on any subtask.
fn lowest_watermarks(parts: &[Part]) -> BTreeMap<usize, i64> {
    let mut lowest: BTreeMap<usize, i64> = BTreeMap::new();
    for (node, micros) in parts.iter().flat_map(|part| &part.part.applied) {
        lowest.entry(*node).and_modify(|lowest| *lowest = (*lowest).min(*micros)).or_insert(*micros);
    }
    lowest
}

/// What the job wants to find again.
fn notes(attempt: &Attempt, barrier: Barrier, parts: &[Part], cut: Option<&CutNote>) -> Result<BTreeMap<String, String>> {
    let failed = |error: serde_json::Error| EngineError::Internal(format!("notes of a checkpoint: {error}"));
    let mut notes = BTreeMap::new();
    let positions = match cut {
        None => attempt.positions.clone(),
        Some(cut) => {
            notes.insert(CUT_NOTE.to_string(), serde_json::to_string(cut).map_err(failed)?);
            let places = parts.iter().map(|part| part.part.places.clone());
            attempt.positions_at_start.in_midst(&attempt.positions, places)
        }
    };
    notes.insert(POSITIONS_NOTE.to_string(), serde_json::to_string(&positions).map_err(failed)?);
    notes.insert(WATERMARKS_NOTE.to_string(), serde_json::to_string(&attempt.applied).map_err(failed)?);
    if barrier.kind == BarrierKind::Final {
        notes.insert(FINISHED_NOTE.to_string(), "true".to_string());
    }
    Ok(notes)
}

type SplitParts = (Vec<TaskCheckpoint>, Vec<millpond_storage::checkpoint::InFlight>, Vec<(u32, SubtaskCheckpoint)>);

/// The parts' state, what they found in flight, and what is told of them, with the number of the subtask in the job.
fn split_parts(mut parts: Vec<Part>) -> SplitParts {
    parts.sort_by_key(|part| part.id);
    let (mut state, mut flights, mut subtasks) = (Vec::new(), Vec::new(), Vec::new());
    for Part { id, part, delay } in parts {
        let told = SubtaskCheckpoint {
            fragment: id.fragment,
            subtask: id.index,
            is_unaligned: part.is_cut,
            delay_us: delay.as_micros() as u64,
            alignment_us: part.alignment.as_micros() as u64,
            sync_us: part.sync.as_micros() as u64,
            log_bytes: part.state.log_bytes(),
            in_flight_bytes: 0,
        };
        subtasks.push((part.in_flight.subtask, told));
        state.push(part.state);
        flights.push(part.in_flight);
    }
    (state, flights, subtasks)
}

fn status(
    job: u64,
    report: CheckpointReport,
    is_unaligned: bool,
    (all, after_parts): (Duration, Duration),
    subtasks: Vec<(u32, SubtaskCheckpoint)>,
) -> CheckpointStatus {
    let bytes = |number: &u32| report.bytes_in_flight.get(number).copied().unwrap_or(0);
    CheckpointStatus {
        job,
        epoch: report.epoch,
        duration_us: all.as_micros() as u64,
        log_bytes: report.bytes_log,
        materialized_bytes: report.bytes_materialized,
        in_flight_bytes: is_unaligned.then(|| report.bytes_in_flight.values().sum()),
        stored_bytes: report.bytes_stored,
        replay_bytes: report.bytes_replay,
        replay_us: report.replay.as_micros() as u64,
        async_us: after_parts.as_micros() as u64,
        subtasks: subtasks.into_iter().map(|(number, subtask)| SubtaskCheckpoint { in_flight_bytes: bytes(&number), ..subtask }).collect(),
        error: None,
    }
}
