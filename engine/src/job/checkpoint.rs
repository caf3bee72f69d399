//! From the parts of all subtasks to a complete checkpoint, aligned or not, and what follows.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use millpond_storage::{
    checkpoint::{InFlight, ManifestInput},
    epoch::Epoch,
    error::StorageError,
    state_table::TaskCheckpoint,
};
use serde::Serialize;

use super::{
    attempt::{Attempt, CheckpointEnd, Part, RunningCheckpoint},
    completion::{CompleteCheckpoint, Completion, Successors, failed, pause_after},
    driver::Driver,
    renewal::{Left, Renewal},
    running::ScanPositions,
    status::{JobState, SubtaskCheckpoint},
};
use crate::{
    error::{EngineError, Result},
    message::{Barrier, BarrierKind},
    task::restart::{CutNote, Restart},
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
        let (consumed, is_unaligned) = (cut.as_ref().map_or(barrier.epoch, CutNote::consumed), cut.is_some());
        attempt.applied = lowest_watermarks(&parts);
        let positions = positions(attempt, &parts, cut.as_ref());
        let notes = self.notes(attempt, barrier, &positions, cut.as_ref())?;
        let (state, flights, subtasks) = split_parts(parts);
        attempt.renewal.on_begun_checkpoint(barrier.epoch, attempt.ready);
        let successors = if attempt.renewal == Renewal::Due {
            let restart = self.restart_behind(barrier.epoch, cut, &flights)?.with_applied(attempt.applied.clone());
            attempt.left = Some(Left { positions, restart });
            Successors::Others
        } else if barrier.kind == BarrierKind::Final && self.established {
            Successors::None
        } else {
            // A job that nobody can read yet fails soon instead of waiting for the store, and so does its definition.
            Successors::Same
        };
        let upstream = attempt.inputs.collections.keys().map(|id| (*id, consumed)).collect();
        let in_flight = is_unaligned.then_some(flights);
        let completion = Completion {
            manifest: ManifestInput { epoch: barrier.epoch, parts: state, in_flight, upstream, notes },
            injected_at,
            consumed,
            subtasks,
            successors,
            previous: attempt.checkpoint_running.take(),
            collections: attempt.inputs.collections.values().chain(&self.collection).cloned().collect(),
            checkpointer: attempt.checkpointer.clone(),
            shared: self.shared.clone(),
            handle: self.handle.clone(),
        };
        let task = self.shared.runtime.spawn(completion.complete());
        attempt.checkpoint_running = Some(RunningCheckpoint { epoch: barrier.epoch, injected_at, task });
        Ok(())
    }

    /// Where subtasks start that go on behind a checkpoint of which all parts have come.
    fn restart_behind(&self, epoch: Epoch, cut: Option<CutNote>, flights: &[InFlight]) -> Result<Restart> {
        let fragments = self.spec.graph.fragments.len();
        match cut {
            None => Ok(Restart::aligned(fragments, epoch)),
            Some(cut) => Restart::unaligned(fragments, cut, flights.to_vec()),
        }
    }

    /// What the job wants to find again.
    fn notes(
        &self,
        attempt: &Attempt,
        barrier: Barrier,
        positions: &ScanPositions,
        cut: Option<&CutNote>,
    ) -> Result<BTreeMap<String, String>> {
        let mut notes =
            BTreeMap::from([(POSITIONS_NOTE.to_string(), json(positions)?), (WATERMARKS_NOTE.to_string(), json(&attempt.applied)?)]);
        if let Some(cut) = cut {
            notes.insert(CUT_NOTE.to_string(), json(cut)?);
        }
        if barrier.kind == BarrierKind::Final {
            notes.insert(FINISHED_NOTE.to_string(), "true".to_string());
        }
        let skipped = self.orders.faults.skipped();
        if !skipped.is_empty() {
            notes.insert(SKIPPED_NOTE.to_string(), json(&skipped)?);
        }
        Ok(notes)
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
        attempt.checkpoint_wanted |= attempt.renewal.on_checkpoint();
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
        let goes_on = !attempt.final_injected;
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

/// Per node, the lowest watermark by which rows were late on any subtask.
fn lowest_watermarks(parts: &[Part]) -> BTreeMap<usize, i64> {
    let mut lowest: BTreeMap<usize, i64> = BTreeMap::new();
    for (node, micros) in parts.iter().flat_map(|part| &part.part.applied) {
        lowest.entry(*node).and_modify(|lowest| *lowest = (*lowest).min(*micros)).or_insert(*micros);
    }
    lowest
}

/// Where the scans stand at a checkpoint.
fn positions(attempt: &Attempt, parts: &[Part], cut: Option<&CutNote>) -> ScanPositions {
    match cut {
        None => attempt.positions.clone(),
        Some(_) => {
            let places = parts.iter().map(|part| part.part.places.clone());
            attempt.positions_at_start.in_midst(&attempt.positions, places)
        }
    }
}

fn json(note: &impl Serialize) -> Result<String> {
    serde_json::to_string(note).map_err(|error| EngineError::Internal(format!("notes of a checkpoint: {error}")))
}

type SplitParts = (Vec<TaskCheckpoint>, Vec<InFlight>, Vec<(u32, SubtaskCheckpoint)>);

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
