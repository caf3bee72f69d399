//! How a subtask closes an epoch.

use super::{
    cut::wait_for_the_end,
    operators::tables_of,
    subtask::{Call, Running, TaskEvent},
};
use crate::{
    error::Result,
    message::{Barrier, BarrierKind, Message},
};

impl Running {
    /// Closes every epoch of which no channel may have more. Answers whether the final barrier has passed.
    pub(super) async fn close_all(&mut self) -> Result<bool> {
        loop {
            let before = self.inputs.aligner.closed();
            let Some(barrier) = self.inputs.aligner.close_next() else { return Ok(false) };
            self.closing = Some((before, barrier));
            if self.close_to_the_end(barrier).await? {
                return Ok(true);
            }
        }
    }

    /// Closes an epoch. Answers whether its barrier is the final one.
    pub(super) async fn close_to_the_end(&mut self, barrier: Barrier) -> Result<bool> {
        self.close(barrier).await?;
        self.closing = None;
        Ok(barrier.kind == BarrierKind::Final)
    }

    /// Closes an epoch: every operator pays what it owes, the barrier leaves, and state is snapshotted if it is asked for and was not before.
    async fn close(&mut self, barrier: Barrier) -> Result<()> {
        self.task.plan.set_epoch_time_us(barrier.time_us);
        for node in 0..self.task.operators.len() {
            self.work(node, Call::Barrier(barrier)).await?;
        }
        let wanted = barrier.kind.is_checkpoint() && barrier.epoch > self.checkpointed;
        // Behind the lane's barrier the queue's closes its epoch and asks for nothing.
        let kind = if barrier.kind == BarrierKind::Checkpoint && !wanted { BarrierKind::Epoch } else { barrier.kind };
        self.send(Message::Barrier(Barrier { kind, ..barrier })).await?;
        if wanted {
            self.owed = Some(Box::new(self.part_at_barrier(barrier.epoch)?));
        } else {
            let age_us = self.task.orders.log_age_us();
            tables_of(&mut self.task.operators).for_each(|table| table.log_aged(barrier.time_us, age_us));
        }
        let state_bytes = tables_of(&mut self.task.operators).map(|table| table.memory_bytes()).sum();
        let handed = if wanted { self.hand_over(barrier.epoch)? } else { None };
        let is_last = handed.is_some();
        if !is_last {
            self.relieve()?;
        }
        if barrier.epoch > self.reported {
            self.reported = barrier.epoch;
            let part = self.owed.take();
            // A driver that is gone has cancelled the job; the subtask is about to be dropped.
            let _ = self.task.events.send(TaskEvent::Barrier { id: self.task.id, barrier, part, state_bytes, handed });
        }
        if is_last {
            wait_for_the_end().await;
        }
        Ok(())
    }
}
