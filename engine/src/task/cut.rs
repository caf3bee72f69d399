//! What a subtask gives to a checkpoint: at the checkpoint's barrier, or where it stands when the barrier waits no longer.

use std::time::Duration;

use millpond_storage::{
    checkpoint::InFlight,
    epoch::Epoch,
    key_group::key_group_range,
    state_table::{HandedTask, StateTable, TaskCheckpoint},
};

use super::{
    operators::tables_of,
    subtask::{Running, TaskEvent},
};
use crate::{error::Result, exchange::router::Router, scan::place::ScanPlaces};

/// A subtask's part of a checkpoint.
pub struct CheckpointPart {
    /// The epoch that names the checkpoint.
    pub checkpoint: Epoch,
    /// The barrier overtook what the subtask had still to take; it had not closed the epoch.
    pub is_cut: bool,
    /// The last epoch it had closed.
    pub closed: Epoch,
    /// What changed in its state tables.
    pub state: TaskCheckpoint,
    /// What it had still to take, and what the root had collected; of use in an unaligned checkpoint only.
    pub in_flight: InFlight,
    /// Where its scans stand; of use in an unaligned checkpoint only.
    pub places: ScanPlaces,
    /// Per node, the watermark by which its rows are late.
    pub applied: Vec<(usize, i64)>,
    /// From the arrival of the first barrier to the snapshot.
    pub alignment: Duration,
    /// The snapshot.
    pub sync: Duration,
}

impl Running {
    /// Takes the subtask's state if a checkpoint waits no longer and all producers have given their parts. Answers whether it did. If that checkpoint is
    /// the last one it does not end.
    pub(super) async fn cut_if_due(&mut self) -> Result<bool> {
        let checkpoint = self.task.switch.unaligned();
        if checkpoint <= self.checkpointed || self.task.is_aligned || self.inputs.aligner.closed() >= checkpoint {
            return Ok(false);
        }
        if !self.task.inbox.have_barrier(checkpoint, self.inputs.awaited()) {
            return Ok(false);
        }
        let part = Box::new(self.part(checkpoint, true)?);
        let handed = self.hand_over(checkpoint)?;
        let is_last = handed.is_some();
        self.task.routers.iter().for_each(|router: &Router| router.overtake(checkpoint));
        // A driver that is gone has cancelled the job; the subtask is about to be dropped.
        let _ = self.task.events.send(TaskEvent::Cut { id: self.task.id, part, handed });
        if is_last {
            wait_for_the_end().await;
        }
        Ok(true)
    }

    /// What the subtask leaves to those of the next attempt, if the checkpoint for which it has just given its part is the last one.
    pub(super) fn hand_over(&mut self, checkpoint: Epoch) -> Result<Option<HandedTask>> {
        if !self.task.orders.hands_over_at(checkpoint) {
            return Ok(None);
        }
        let mut tables: Vec<&mut dyn StateTable> = tables_of(&mut self.task.operators).collect();
        Ok(Some(self.task.state.hand_over(&mut tables)?))
    }

    /// The part of a subtask that has just closed the checkpoint's epoch.
    pub(super) fn part_at_barrier(&mut self, checkpoint: Epoch) -> Result<CheckpointPart> {
        self.part(checkpoint, false)
    }

    fn part(&mut self, checkpoint: Epoch, is_cut: bool) -> Result<CheckpointPart> {
        let began = self.clock.monotonic();
        let closed = self.inputs.aligner.closed();
        let in_flight = self.in_flight(checkpoint, closed);
        for operator in &mut self.task.operators {
            operator.snapshot(closed)?;
        }
        let mut tables: Vec<&mut dyn StateTable> = tables_of(&mut self.task.operators).collect();
        let state = self.task.state.snapshot(&mut tables, checkpoint)?;
        self.task.inbox.pass(checkpoint);
        self.checkpointed = checkpoint;
        let alignment = self.aligning_since.take().map_or(Duration::ZERO, |since| began.saturating_sub(since));
        let sync = self.clock.monotonic().saturating_sub(began);
        let applied = self.applied();
        self.mark(checkpoint, applied.clone(), false);
        Ok(CheckpointPart { checkpoint, is_cut, closed, state, in_flight, places: self.places.clone(), applied, alignment, sync })
    }

    /// What has not been taken of the channels that the barrier passes, and what the root has collected.
    fn in_flight(&self, checkpoint: Epoch, closed: Epoch) -> InFlight {
        let (number, parallelism) = self.task.number;
        let key_groups = key_group_range(self.task.id.index, parallelism);
        let unsealed = self.task.collector.as_ref().map(|collector| collector.unsealed(self.task.id.index, closed));
        let mut in_flight = InFlight { subtask: number, segments: Vec::new(), unsealed: unsealed.unwrap_or_default() };
        if self.task.is_aligned {
            return in_flight;
        }
        in_flight.segments = self.inputs.segments(&key_groups, |channel| self.task.inbox.overtaken(checkpoint, channel));
        in_flight
    }
}

/// A subtask that has left its state to others is cancelled with the attempt. Until then its channels stay open, for those who would miss them.
pub(super) async fn wait_for_the_end() {
    std::future::pending::<()>().await;
}
