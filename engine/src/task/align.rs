//! Barrier alignment of a subtask's input channels: pure, events in, decisions out.
//!
//! A barrier that has arrived on a channel blocks it until the same barrier has arrived on all (Carbone et al. 2015, section 3.2). A channel that
//! delivered its final barrier counts as having delivered every later one.

use crate::message::{Barrier, BarrierKind};

/// Alignment state.
#[derive(Debug)]
pub struct Aligner {
    blocked: Vec<bool>,
    ended: Vec<bool>,
    current: Option<Barrier>,
}

impl Aligner {
    /// Nothing has arrived on any of `channels`.
    pub fn new(channels: usize) -> Self {
        Self { blocked: vec![false; channels], ended: vec![false; channels], current: None }
    }

    /// Channels that must not be read now.
    pub fn blocked(&self) -> &[bool] {
        &self.blocked
    }

    /// A barrier has arrived. Answers it once it has arrived everywhere; then all channels are open again. The barrier is final only if every
    /// channel has ended.
    pub fn on_barrier(&mut self, channel: usize, barrier: Barrier) -> Option<Barrier> {
        debug_assert!(!self.blocked[channel] && !self.ended[channel], "a blocked or ended channel is not read");
        self.blocked[channel] = true;
        if barrier.kind == BarrierKind::Final {
            self.ended[channel] = true;
        }
        let merged = match self.current {
            Some(other) => merge(other, barrier),
            None => barrier,
        };
        self.current = Some(merged);
        if self.blocked.iter().any(|blocked| !blocked) {
            return None;
        }
        self.current = None;
        self.blocked.clone_from(&self.ended);
        let kind = if self.ended.iter().all(|ended| *ended) {
            BarrierKind::Final
        } else if merged.kind == BarrierKind::Final {
            BarrierKind::Checkpoint
        } else {
            merged.kind
        };
        Some(Barrier { kind, ..merged })
    }
}

fn merge(a: Barrier, b: Barrier) -> Barrier {
    debug_assert_eq!(a.epoch, b.epoch, "one job's barriers are injected in one order");
    let kind = if a.kind.is_checkpoint() { a.kind } else { b.kind };
    Barrier { kind, ..a }
}

#[cfg(test)]
mod tests {
    use millpond_storage::epoch::Epoch;

    use super::*;

    fn barrier(epoch: u64, kind: BarrierKind) -> Barrier {
        Barrier { epoch: Epoch(epoch), time_us: 0, kind }
    }

    #[test]
    fn blocks_until_all_have_delivered() {
        let mut aligner = Aligner::new(3);
        assert_eq!(aligner.on_barrier(1, barrier(5, BarrierKind::Checkpoint)), None);
        assert_eq!(aligner.blocked(), [false, true, false]);
        assert_eq!(aligner.on_barrier(0, barrier(5, BarrierKind::Checkpoint)), None);
        assert_eq!(aligner.on_barrier(2, barrier(5, BarrierKind::Checkpoint)), Some(barrier(5, BarrierKind::Checkpoint)));
        assert_eq!(aligner.blocked(), [false, false, false]);
    }

    #[test]
    fn an_ended_channel_holds_back_nothing() {
        let mut aligner = Aligner::new(2);
        assert_eq!(aligner.on_barrier(0, barrier(1, BarrierKind::Final)), None);
        assert_eq!(aligner.on_barrier(1, barrier(1, BarrierKind::Epoch)), Some(barrier(1, BarrierKind::Checkpoint)));
        assert_eq!(aligner.blocked(), [true, false]);
        assert_eq!(aligner.on_barrier(1, barrier(2, BarrierKind::Epoch)), Some(barrier(2, BarrierKind::Epoch)));
        assert_eq!(aligner.on_barrier(1, barrier(3, BarrierKind::Final)), Some(barrier(3, BarrierKind::Final)));
    }
}
