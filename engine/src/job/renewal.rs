//! From one attempt to the next while a job runs: `ALTER .. SET PARALLELISM`.
//!
//! State stays where it is. A last checkpoint is taken, right behind another one, so that little has to be written for it; nothing is injected behind
//! it. Each subtask leaves its state tables in memory, and ends. Those of the next attempt own other ranges of key groups and take over from the
//! tables what is theirs ([`millpond_storage::state_table::HandedTables`]). Readers see the collection as it was until the next attempt seals.
//!
//! Under load much may be before the last barrier, and everybody waits for it. So it waits only for a moment until that is worked off; then it passes it,
//! as that of any checkpoint does. What it has passed is left too, in memory, and the next attempt begins in the midst of the same epochs.

use std::{
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
use crate::{error::Result, task::restart::Restart};

/// What exchanges may hold before the last checkpoint, as time of their consumers: its barrier comes behind that, and everybody waits for it.
const RENEWAL_DEBLOAT_TARGET: Duration = Duration::from_millis(50);

/// How long the last checkpoint waits for what is in its barrier's way.
const LAST_TIMEOUT: Duration = Duration::from_millis(50);

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
    /// The subtasks have given all to the checkpoint, and have left their state in memory.
    Due,
}

impl Renewal {
    /// Nothing is to be injected any more.
    pub(super) fn holds_back(self) -> bool {
        matches!(self, Self::Begun(_) | Self::Due)
    }

    /// How long the checkpoint that is injected now waits for what is in its barrier's way, if that of the job is `usual`.
    pub(super) fn timeout(self, usual: Duration) -> Duration {
        if self.holds_back() { usual.min(LAST_TIMEOUT) } else { usual }
    }

    /// All parts of a checkpoint have come.
    pub(super) fn on_begun_checkpoint(&mut self, epoch: Epoch, is_ready: bool) {
        match *self {
            Self::Wanted if is_ready => *self = Self::Near,
            // What is left of it is to write it.
            Self::Begun(begun) if begun == epoch => *self = Self::Due,
            Self::None | Self::Wanted | Self::Near | Self::Next | Self::Begun(_) | Self::Due => {}
        }
    }

    /// A checkpoint is complete. Answers whether another one is wanted at once.
    pub(super) fn on_checkpoint(&mut self) -> bool {
        let is_near = *self == Self::Near;
        if is_near {
            *self = Self::Next;
        }
        is_near
    }
}

/// Where the subtasks of an attempt have left their state.
pub(super) struct Left {
    /// Where the scans stood.
    pub(super) positions: ScanPositions,
    /// Where those of the next attempt start, and with what was in flight.
    pub(super) restart: Restart,
}

/// What an attempt leaves to the next one.
pub(super) struct Succession {
    /// The epoch of the last checkpoint.
    pub(super) epoch: Epoch,
    /// Where the subtasks stood there.
    pub(super) left: Left,
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
        if let Some(left) = attempt.left.take() {
            self.succession = Some(Succession {
                epoch: attempt.injected,
                left,
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
        let (mut renewal, second) = (Renewal::Wanted, Duration::from_secs(1));
        // One that was under way already.
        assert!(!renewal.on_checkpoint());
        renewal.on_begun_checkpoint(Epoch(4), false);
        assert_eq!(renewal, Renewal::Wanted, "the job has nothing to show yet");
        renewal.on_begun_checkpoint(Epoch(4), true);
        assert_eq!((renewal, renewal.timeout(second)), (Renewal::Near, second));
        assert!(renewal.on_checkpoint() && renewal == Renewal::Next && !renewal.holds_back());
        renewal = Renewal::Begun(Epoch(5));
        assert!(renewal.holds_back() && renewal.timeout(second) < second && renewal.timeout(Duration::ZERO).is_zero());
        renewal.on_begun_checkpoint(Epoch(4), true);
        assert_eq!(renewal, Renewal::Begun(Epoch(5)));
        renewal.on_begun_checkpoint(Epoch(5), true);
        assert!(renewal == Renewal::Due && renewal.holds_back() && !renewal.on_checkpoint());
    }
}
