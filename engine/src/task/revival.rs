//! Restarting one subtask while its peers go on.
//!
//! A panic or error of an operator ends at its subtask, which keeps what the others know of it: its inbox, its outputs, the log of what it
//! has taken ([`super::determinants`]). It drops its operators, but for their state tables, and asks the driver, and waits. The driver has the state
//! of its key groups put back to the newest complete checkpoint; then the subtask builds its operators anew around the tables and
//!
//! - *exactly once*: takes again what it had taken since, in the same order and with the same borders. What it had sent it does not send
//!   again ([`super::sent`]), nor does it report barriers that it has reported or hand over changes that it has handed over. The driver gives
//!   up a checkpoint for which its part had been given already: the changes in that part belong to the life that is over.
//! - *approximately*: goes on with the next message. What it had taken since the checkpoint is lost, but for what it had made of it for
//!   others. An epoch that it was closing it closes now, so that nobody waits.
//!
//! Whoever feeds it finds its inbox full for a while, whoever it feeds waits; nobody else is concerned.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::atomic::Ordering};

use millpond_storage::{
    checkpoint::LostTask,
    epoch::Epoch,
    error::StorageError,
    state_table::{StateOrigin, StateTable},
};

use super::{
    determinants::Mark,
    operators::tables_of,
    orders::Recovery,
    sent::SentFilter,
    subtask::{Running, TaskEvent},
};
use crate::{
    error::{EngineError, Result},
    operator::Operator,
};

/// The state that a subtask goes on with: that of its key groups at the newest complete checkpoint.
pub struct Revival {
    /// The epoch of the checkpoint.
    pub checkpoint: Epoch,
    /// Where the state is.
    pub origin: StateOrigin,
}

/// What a subtask tells of its failure.
pub struct SubtaskFailure {
    /// What happened.
    pub error: EngineError,
    /// Its state, which must be put back.
    pub lost: LostTask,
    /// Why it cannot be restarted alone, if it cannot.
    pub refusal: Option<&'static str>,
}

/// What becomes of a subtask's output.
pub(super) enum Sending {
    /// It is sent.
    Live,
    /// It has been sent in an earlier life.
    Muted,
    /// Some of it has.
    Filtered(SentFilter),
}

/// How a life of a subtask begins.
#[derive(Clone, Copy)]
pub(super) enum Beginning {
    /// With the attempt.
    Start,
    /// By taking again what was taken since a checkpoint.
    Replay(Epoch),
    /// With the next message.
    GoOn,
}

/// Whether an error is of one subtask, so that another try of it may do: not what the data is to blame for, nor what ends the job.
fn is_local(error: &EngineError) -> bool {
    match error {
        EngineError::Internal(_) | EngineError::Retryable(_) => true,
        EngineError::Storage(storage) => {
            matches!(storage, StorageError::Io { .. } | StorageError::Store(_) | StorageError::Internal(_))
        }
        EngineError::User { .. } | EngineError::Cancelled => false,
    }
}

impl Running {
    /// Sets the mark of the checkpoint with which the attempt began.
    pub(super) fn mark_start(&mut self) {
        if let Some(checkpoint) = self.task.begins_at {
            let applied = self.applied();
            self.mark(checkpoint, applied, true);
        }
    }

    /// The subtask's state has been taken for a checkpoint: here it could go on from.
    pub(super) fn mark(&mut self, checkpoint: Epoch, applied: Vec<(usize, i64)>, is_start: bool) {
        self.sent.begin();
        let index = self.task.id.index;
        self.determinants.mark(Mark {
            checkpoint,
            at: self.determinants.count(),
            is_start,
            inputs: self.inputs.clone(),
            places: self.places.clone(),
            applied: applied.into_iter().collect(),
            collected: self.task.collector.as_ref().map(|collector| collector.open(index)).unwrap_or_default(),
            time_us: self.task.plan.epoch_time_us(),
        });
    }

    /// Per node, the watermark by which its rows are late.
    pub(super) fn applied(&self) -> Vec<(usize, i64)> {
        let operators = self.task.nodes.iter().zip(&self.task.operators);
        operators.filter_map(|(node, operator)| Some((*node, operator.applied_watermark()?))).collect()
    }

    /// After a failure: gets the subtask ready for another life, if it is to have one.
    ///
    /// # Errors
    /// The failure, if it is not one of this subtask alone; another one that stands in the way.
    pub(super) async fn revive(&mut self, error: EngineError) -> Result<Beginning> {
        if !is_local(&error) {
            return Err(error);
        }
        let applied = self.applied().into_iter().collect();
        // From here on nobody writes to the key groups.
        let lost = self.lose_operators();
        let recovery = self.task.orders.recovery();
        let refusal = if recovery == Recovery::Approximate {
            None
        } else if recovery == Recovery::Job {
            Some("its recovery is of the whole job")
        } else if !self.determinants.serves_since(Epoch(self.task.completed.load(Ordering::Acquire))) {
            Some("what it had taken since the last checkpoint was more than is kept")
        } else if !self.sent.is_known() {
            Some("it was in the midst of an output too large to be told apart")
        } else {
            None
        };
        let failure = SubtaskFailure { error, lost, refusal };
        if self.task.events.send(TaskEvent::Failed { id: self.task.id, failure: Box::new(failure) }).is_err() {
            return Err(EngineError::Cancelled);
        }
        let revival = self.task.revivals.recv().await.ok_or(EngineError::Cancelled)??;
        let beginning = match recovery {
            Recovery::Approximate => self.rebuild_here(revival, &applied)?,
            Recovery::ExactlyOnce | Recovery::Job => self.rebuild_at(revival)?,
        };
        let _ = self.task.events.send(TaskEvent::Restored { id: self.task.id });
        Ok(beginning)
    }

    /// Drops the operators, but for the tables that can be had of them.
    fn lose_operators(&mut self) -> LostTask {
        let mut operators: Vec<Box<dyn Operator>> = std::mem::take(&mut self.task.operators);
        let state = &mut self.task.state;
        // An operator that has failed may fail in this, too.
        let lost = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut tables: Vec<&mut dyn StateTable> = tables_of(&mut operators).collect();
            state.lose(&mut tables)
        }));
        lost.unwrap_or_else(|_| self.task.state.lose(&mut []))
    }

    /// The subtask as it was when its state was taken for the checkpoint.
    fn rebuild_at(&mut self, Revival { checkpoint, origin }: Revival) -> Result<Beginning> {
        let Some(mark) = self.determinants.place_of(checkpoint) else {
            return Err(EngineError::Internal(format!("what was taken since the checkpoint of epoch {checkpoint} was not kept")));
        };
        let closed = mark.inputs.aligner.closed();
        self.inputs = mark.inputs.clone();
        self.places = mark.places.clone();
        if let Some(collector) = &self.task.collector {
            collector.rewind(self.task.id.index, self.reported, mark.collected.clone());
        }
        self.task.plan.set_epoch_time_us(mark.time_us);
        let applied = |node| mark.applied.get(&node).copied().unwrap_or(i64::MIN);
        (self.task.operators, self.task.state) = self.task.plan.build(origin, closed, applied)?;
        Ok(Beginning::Replay(checkpoint))
    }

    /// The subtask where it stands, with older state.
    fn rebuild_here(&mut self, Revival { origin, .. }: Revival, applied: &BTreeMap<usize, i64>) -> Result<Beginning> {
        let closed = self.closing.map_or(self.inputs.aligner.closed(), |(before, _)| before);
        let applied = |node| applied.get(&node).copied().unwrap_or(i64::MIN);
        (self.task.operators, self.task.state) = self.task.plan.build(origin, closed, applied)?;
        self.sent.begin();
        Ok(Beginning::GoOn)
    }

    /// Takes again what was taken since a checkpoint. Answers whether that was all.
    pub(super) async fn replay(&mut self, checkpoint: Epoch) -> Result<bool> {
        let mark = self.determinants.place_of(checkpoint).map(|mark| (mark.at, mark.is_start));
        let (from, is_start) = mark.ok_or_else(|| EngineError::Internal("a checkpoint is forgotten while it is gone back to".into()))?;
        let upto = self.determinants.count();
        // What the watermarks from before a later mark led to was sent before it.
        self.sending = if is_start { self.sending_step(from, upto)? } else { Sending::Muted };
        self.give_watermarks().await?;
        if !is_start {
            self.sending = self.sending_step(from, upto)?;
        }
        if self.close_all().await? {
            return Ok(true);
        }
        for number in from..upto {
            self.sending = self.sending_step(number + 1, upto)?;
            let received = self.determinants.get(number).cloned();
            let received = received.ok_or_else(|| EngineError::Internal("a message is forgotten while it is taken again".into()))?;
            if self.take(received).await? {
                return Ok(true);
            }
            self.breathe().await;
        }
        if let Sending::Filtered(filter) = std::mem::replace(&mut self.sending, Sending::Live)
            && !filter.is_used_up()
        {
            return Err(EngineError::Internal("taken again, a message led to another output".into()));
        }
        Ok(false)
    }

    /// What becomes of the output of a step, the `last` of which was under way: something of it may not have been sent.
    fn sending_step(&self, step: u64, last: u64) -> Result<Sending> {
        if step == last { Ok(Sending::Filtered(self.sent.filter()?)) } else { Ok(Sending::Muted) }
    }

    /// Goes on where the subtask was, with other state. Answers whether that was all.
    pub(super) async fn go_on(&mut self) -> Result<bool> {
        self.sending = Sending::Live;
        self.give_watermarks().await?;
        if let Some((_, barrier)) = self.closing
            && self.close_to_the_end(barrier).await?
        {
            return Ok(true);
        }
        self.close_all().await
    }
}
