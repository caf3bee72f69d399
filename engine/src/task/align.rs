//! Barrier alignment of a subtask's input channels: pure, events in, decisions out.
//!
//! A channel that has delivered the barrier of an epoch that the subtask has not closed yet is blocked; the epoch closes when no channel may
//! deliver more of it (Carbone et al. 2015, section 3.2). A channel that delivered its final barrier counts as having delivered every later
//! one, and so does a channel restored from a checkpoint once it is drained: what followed on it comes on others.
//!
//! Channels need not begin at the same epoch: of a subtask that is restored from an unaligned checkpoint some have passed barriers that others
//! have still to deliver. All channels deliver the same barriers in the same order, so the lowest that is known is the next to close.

use std::collections::BTreeMap;

use millpond_storage::epoch::Epoch;

use crate::message::{Barrier, BarrierKind};

#[derive(Clone, Copy, Debug)]
struct Progress {
    /// The last barrier that was delivered.
    passed: Epoch,
    /// It was the final one.
    is_final: bool,
    /// Restored, and drained.
    is_gone: bool,
}

/// Alignment state.
#[derive(Clone, Debug)]
pub struct Aligner {
    closed: Epoch,
    channels: Vec<Progress>,
    blocked: Vec<bool>,
    /// Barriers that are known and not closed: some channel has delivered them, in this life or an earlier one.
    known: BTreeMap<Epoch, Barrier>,
}

impl Aligner {
    /// The subtask has closed every epoch up to `closed`; `passed` is the last barrier that each channel delivered in an earlier life, `in_flight`
    /// what they may be.
    pub fn new(closed: Epoch, passed: Vec<Epoch>, in_flight: &[Barrier]) -> Self {
        let channels: Vec<_> = passed.into_iter().map(|passed| Progress { passed, is_final: false, is_gone: false }).collect();
        let known = in_flight.iter().filter(|barrier| barrier.epoch > closed).map(|barrier| (barrier.epoch, *barrier)).collect();
        let mut aligner = Self { closed, blocked: vec![false; channels.len()], channels, known };
        aligner.block();
        aligner
    }

    /// Channels that must not be read now.
    pub fn blocked(&self) -> &[bool] {
        &self.blocked
    }

    /// The last epoch that was closed.
    pub fn closed(&self) -> Epoch {
        self.closed
    }

    /// The last barrier that a channel has delivered.
    pub fn passed(&self, channel: usize) -> Epoch {
        self.channels[channel].passed
    }

    /// Whether nothing will come on a channel any more.
    pub fn has_ended(&self, channel: usize) -> bool {
        self.channels[channel].is_final || self.channels[channel].is_gone
    }

    /// A barrier has arrived. [`close_next`](Self::close_next) must follow.
    pub fn on_barrier(&mut self, channel: usize, barrier: Barrier) {
        let progress = &mut self.channels[channel];
        debug_assert!(progress.passed <= self.closed && !progress.is_final, "a blocked or ended channel is not read");
        progress.passed = barrier.epoch;
        progress.is_final = barrier.kind == BarrierKind::Final;
        self.known.entry(barrier.epoch).and_modify(|other| *other = merge(*other, barrier)).or_insert(barrier);
        self.block();
    }

    /// A restored channel is drained. [`close_next`](Self::close_next) must follow.
    pub fn on_drained(&mut self, channel: usize) {
        self.channels[channel].is_gone = true;
        self.block();
    }

    /// Closes the next epoch, if no channel may deliver more of it. To be called until it answers `None`. The barrier is final only if every
    /// channel has ended with one.
    pub fn close_next(&mut self) -> Option<Barrier> {
        let holds_back = |channel: &Progress| channel.passed <= self.closed && !channel.is_final && !channel.is_gone;
        if self.channels.iter().any(holds_back) {
            return None;
        }
        let passed = self.channels.iter().filter(|channel| !channel.is_gone && channel.passed > self.closed);
        let lowest = passed.map(|channel| channel.passed).min()?;
        // All channels may have passed several barriers before.
        let epoch = self.known.first_key_value().map_or(lowest, |(epoch, _)| lowest.min(*epoch));
        let merged = self.known.remove(&epoch);
        debug_assert!(merged.is_some(), "an epoch closes by a barrier that is known");
        let merged = merged.unwrap_or(Barrier { epoch, time_us: 0, kind: BarrierKind::Epoch });
        self.closed = epoch;
        self.block();
        let kind = if self.channels.iter().all(|channel| channel.is_final || channel.is_gone) {
            BarrierKind::Final
        } else if merged.kind == BarrierKind::Final {
            BarrierKind::Checkpoint
        } else {
            merged.kind
        };
        Some(Barrier { kind, ..merged })
    }

    fn block(&mut self) {
        for (blocked, channel) in self.blocked.iter_mut().zip(&self.channels) {
            *blocked = channel.is_final || channel.is_gone || channel.passed > self.closed;
        }
    }
}

/// The stronger of two: a channel may deliver a plain barrier where another one asks for a checkpoint.
fn merge(a: Barrier, b: Barrier) -> Barrier {
    let kind = if a.kind.is_checkpoint() { a.kind } else { b.kind };
    Barrier { kind, ..a }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(epoch: u64, kind: BarrierKind) -> Barrier {
        Barrier { epoch: Epoch(epoch), time_us: 0, kind }
    }

    fn deliver(aligner: &mut Aligner, channel: usize, barrier: Barrier) -> Option<Barrier> {
        aligner.on_barrier(channel, barrier);
        aligner.close_next()
    }

    fn fresh(channels: usize) -> Aligner {
        Aligner::new(Epoch(0), vec![Epoch(0); channels], &[])
    }

    #[test]
    fn blocks_until_all_have_delivered() {
        let mut aligner = fresh(3);
        assert_eq!(deliver(&mut aligner, 1, barrier(5, BarrierKind::Checkpoint)), None);
        assert_eq!(aligner.blocked(), [false, true, false]);
        assert_eq!(deliver(&mut aligner, 0, barrier(5, BarrierKind::Epoch)), None);
        assert_eq!(deliver(&mut aligner, 2, barrier(5, BarrierKind::Checkpoint)), Some(barrier(5, BarrierKind::Checkpoint)));
        assert_eq!(aligner.blocked(), [false, false, false]);
        assert_eq!((aligner.close_next(), aligner.closed()), (None, Epoch(5)));
    }

    #[test]
    fn an_ended_channel_holds_back_nothing() {
        let mut aligner = fresh(2);
        assert_eq!(deliver(&mut aligner, 0, barrier(1, BarrierKind::Final)), None);
        let merged = deliver(&mut aligner, 1, barrier(1, BarrierKind::Epoch));
        assert_eq!(merged, Some(barrier(1, BarrierKind::Checkpoint)), "not final while a channel is left");
        assert_eq!(aligner.blocked(), [true, false]);
        assert_eq!(deliver(&mut aligner, 1, barrier(2, BarrierKind::Epoch)), Some(barrier(2, BarrierKind::Epoch)));
        assert_eq!(deliver(&mut aligner, 1, barrier(3, BarrierKind::Final)), Some(barrier(3, BarrierKind::Final)));
        assert_eq!(aligner.close_next(), None);
    }

    #[test]
    fn restored_channels_begin_at_epochs_of_their_own() {
        // Channel 0 goes on where a producer had closed 4; 1 and 2 are rests, one of which had delivered the barrier of 4 already.
        let mut aligner = Aligner::new(Epoch(2), vec![Epoch(4), Epoch(2), Epoch(4)], &[]);
        assert_eq!(aligner.blocked(), [true, false, true]);
        assert_eq!(deliver(&mut aligner, 1, barrier(3, BarrierKind::Epoch)), Some(barrier(3, BarrierKind::Epoch)));
        assert_eq!(deliver(&mut aligner, 1, barrier(4, BarrierKind::Epoch)), Some(barrier(4, BarrierKind::Epoch)));
        assert_eq!(aligner.blocked(), [false; 3]);
        aligner.on_drained(1);
        assert_eq!(deliver(&mut aligner, 0, barrier(5, BarrierKind::Epoch)), None, "channel 2 may have more of epoch 5");
        aligner.on_drained(2);
        assert_eq!(aligner.close_next(), Some(barrier(5, BarrierKind::Epoch)));
        assert_eq!(aligner.blocked(), [false, true, true]);
    }

    #[test]
    fn what_all_channels_had_delivered_closes_at_once() {
        let in_flight = [2, 3, 5].map(|epoch| Barrier { epoch: Epoch(epoch), time_us: epoch as i64, kind: BarrierKind::Epoch });
        let mut aligner = Aligner::new(Epoch(2), vec![Epoch(5), Epoch(3)], &in_flight);
        assert_eq!(aligner.close_next(), Some(in_flight[1]));
        assert_eq!((aligner.close_next(), aligner.blocked()), (None, &[true, false][..]));
        let mut aligner = Aligner::new(Epoch(1), vec![Epoch(5), Epoch(5)], &in_flight);
        assert_eq!([(); 4].map(|()| aligner.close_next()), [Some(in_flight[0]), Some(in_flight[1]), Some(in_flight[2]), None]);
    }
}
