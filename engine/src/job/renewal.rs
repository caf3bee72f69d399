//! From one attempt to the next while a job runs: `ALTER .. SET PARALLELISM`.
//!
//! State stays where it is. A last checkpoint is taken, right behind another one, so that little has to be written for it; nothing is injected behind
//! it. Each subtask leaves its state tables in memory, and ends. Those of the next attempt own other ranges of key groups and take over from the
//! tables what is theirs ([`millpond_storage::state_table::HandedTables`]). Readers see the collection as it was until the next attempt seals.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{
    checkpoint::Checkpointer,
    epoch::Epoch,
    state_table::{HandedTables, JobStore},
};

use super::{
    attempt::{Attempt, RunningCheckpoint},
    driver::Driver,
    recovery::RecoveryCause,
    rescale::RescaleStatus,
    running::ScanPositions,
    spec::{JobOptions, Recovery},
};
use crate::error::Result;

/// What exchanges may hold before the last checkpoint, as time of their consumers: its barrier comes behind that, and everybody waits for it.
const RENEWAL_DEBLOAT_TARGET: Duration = Duration::from_millis(50);

/// How far the change to another attempt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    /// None is wanted.
    None,
    /// The next checkpoint is the last but one.
    Wanted,
    /// The last but one is under way.
    Near,
    /// The next checkpoint is the last one.
    Next,
    /// The checkpoint of this epoch is under way.
    Begun(Epoch),
    /// The subtasks have given all to the checkpoint, and have left their state in memory. Or it was taken in the midst of what was in flight; then
    /// it is complete.
    Due {
        /// They have.
        handed_over: bool,
    },
}

impl Renewal {
    /// Nothing is to be injected any more.
    pub(super) fn holds_back(self) -> bool {
        matches!(self, Self::Begun(_) | Self::Due { .. })
    }

    /// All parts of a checkpoint have come.
    pub(super) fn on_begun_checkpoint(&mut self, epoch: Epoch, is_ready: bool, is_unaligned: bool) {
        match *self {
            Self::Wanted if is_ready => *self = Self::Near,
            // What is left of it is to write it.
            Self::Begun(begun) if begun == epoch && !is_unaligned => *self = Self::Due { handed_over: true },
            Self::None | Self::Wanted | Self::Near | Self::Next | Self::Begun(_) | Self::Due { .. } => {}
        }
    }

    /// A checkpoint is complete. Answers whether another one is wanted at once.
    pub(super) fn on_checkpoint(&mut self, epoch: Epoch) -> bool {
        match *self {
            Self::Near => {
                *self = Self::Next;
                true
            }
            Self::Begun(begun) if begun == epoch => {
                *self = Self::Due { handed_over: false };
                false
            }
            Self::None | Self::Wanted | Self::Next | Self::Begun(_) | Self::Due { .. } => false,
        }
    }
}

/// What an attempt leaves to the next one.
pub(super) struct Succession {
    /// The epoch of the last checkpoint.
    pub(super) epoch: Epoch,
    /// Where the scans stood there.
    pub(super) positions: ScanPositions,
    /// By which watermarks rows were late there, per node.
    pub(super) applied: BTreeMap<usize, i64>,
    /// State that is not in memory.
    pub(super) store: Arc<JobStore>,
    /// State that is.
    pub(super) handed: HandedTables,
    /// The last checkpoint, which is being written.
    pub(super) checkpoint: Option<RunningCheckpoint>,
    /// Knows the manifests.
    pub(super) checkpointer: Arc<Checkpointer>,
}

impl Driver {
    /// Takes new settings. Another number of subtasks needs another attempt.
    pub(super) fn reconfigure(&mut self, attempt: &mut Attempt, options: JobOptions) {
        if options.parallelism != self.options.parallelism && !attempt.renewal.holds_back() {
            attempt.renewal = Renewal::Wanted;
            attempt.checkpoint_wanted = true;
            let (from, now) = (self.options.parallelism, self.shared.coordinator.clock().wall_micros());
            self.handle.order_rescale(RescaleStatus::new(self.spec.id, from, options.parallelism, now));
        }
        attempt.store.expect_rewinds(options.recovery != Recovery::Job);
        self.set_options(options);
        if attempt.renewal != Renewal::None {
            let target = self.orders.debloat_target();
            self.orders.set_debloat_target(if target.is_zero() { RENEWAL_DEBLOAT_TARGET } else { target.min(RENEWAL_DEBLOAT_TARGET) });
        }
    }

    /// A barrier that asks for a checkpoint is about to be sent: perhaps it is the attempt's last one.
    pub(super) fn renew_at(&self, attempt: &mut Attempt, epoch: Epoch) {
        if attempt.renewal == Renewal::Next {
            self.begin_recovery(RecoveryCause::Alter, None);
            // What is on its way has been waited for since the last epoch was sealed.
            self.handle.rescale_stops(if attempt.in_flight.is_empty() { Instant::now() } else { self.sealed_at });
            attempt.renewal = Renewal::Begun(epoch);
            self.orders.hand_over_at(epoch);
        }
    }

    /// An attempt has ended because another one is due.
    ///
    /// # Errors
    /// None but what a test puts here.
    pub(super) fn succeed(&mut self, attempt: &mut Attempt, checkpoint: Option<RunningCheckpoint>) -> Result<()> {
        self.shared.reach("rescale::succeed")?;
        if attempt.renewal == (Renewal::Due { handed_over: true }) {
            self.succession = Some(Succession {
                epoch: attempt.injected,
                positions: attempt.positions.clone(),
                applied: attempt.applied.clone(),
                store: attempt.store.clone(),
                handed: HandedTables::new(std::mem::take(&mut attempt.handed)),
                checkpoint,
                checkpointer: attempt.checkpointer.clone(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_checkpoint_follows_one_that_began_after_the_order() {
        let mut renewal = Renewal::Wanted;
        // One that was under way already.
        assert!(!renewal.on_checkpoint(Epoch(3)));
        renewal.on_begun_checkpoint(Epoch(4), false, false);
        assert_eq!(renewal, Renewal::Wanted, "the job has nothing to show yet");
        renewal.on_begun_checkpoint(Epoch(4), true, true);
        assert!(renewal.on_checkpoint(Epoch(4)) && renewal == Renewal::Next && !renewal.holds_back());
        renewal = Renewal::Begun(Epoch(5));
        renewal.on_begun_checkpoint(Epoch(5), true, true);
        assert!(renewal == Renewal::Begun(Epoch(5)) && renewal.holds_back(), "what was in flight is in the checkpoint only");
        assert!(!renewal.on_checkpoint(Epoch(5)) && renewal == Renewal::Due { handed_over: false });
        renewal = Renewal::Begun(Epoch(6));
        renewal.on_begun_checkpoint(Epoch(6), true, false);
        assert_eq!(renewal, Renewal::Due { handed_over: true });
    }
}
