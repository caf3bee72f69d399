//! From one attempt to the next while a job runs: `ALTER .. SET PARALLELISM`.
//!
//! State stays where it is. First the subtasks bring what they have into the job's store, a little with each of a few checkpoints, while
//! they go on. Then a last checkpoint is taken, behind which nothing is injected; each subtask flushes what has changed since, and ends.
//! Those of the next attempt own other ranges of key groups of the same store. Readers see the collection as it was until
//! the next attempt seals.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{checkpoint::Checkpointer, epoch::Epoch, state_table::JobStore};

use super::{attempt::Attempt, driver::Driver, recovery::RecoveryCause, running::ScanPositions, spec::JobOptions};

/// How long the subtasks may go on bringing state into the store before the last checkpoint is taken all the same.
const SWEEP_PATIENCE: Duration = Duration::from_secs(30);

/// How far the change to another attempt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    /// None is wanted.
    None,
    /// At the next checkpoint it begins.
    Wanted,
    /// State is brought into the store, until this moment at most.
    Sweeping(Instant),
    /// The next checkpoint is the last one.
    Swept,
    /// The checkpoint of this epoch is under way.
    Begun(Epoch),
    /// The checkpoint is complete. The subtasks have left their state in the store, unless it was taken in the midst of what was in flight.
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

    /// A checkpoint begins whose completion may ask for state to be brought into the store.
    pub(super) fn on_begun_checkpoint(&mut self, is_ready: bool) -> bool {
        let asks = *self == Self::Wanted && is_ready;
        if asks {
            *self = Self::Sweeping(Instant::now() + SWEEP_PATIENCE);
        }
        asks
    }

    /// A checkpoint is complete. Answers whether another one is wanted at once.
    pub(super) fn on_checkpoint(&mut self, epoch: Epoch, is_swept: bool, is_unaligned: bool) -> bool {
        match *self {
            Self::Sweeping(until) => {
                if is_swept || Instant::now() >= until {
                    *self = Self::Swept;
                }
                true
            }
            Self::Begun(begun) if begun == epoch => {
                *self = Self::Due { handed_over: !is_unaligned };
                false
            }
            _ => false,
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
    /// All state.
    pub(super) store: Arc<JobStore>,
    /// Knows the manifests.
    pub(super) checkpointer: Arc<Checkpointer>,
}

impl Driver {
    /// Takes new settings. Another number of subtasks needs another attempt.
    pub(super) fn reconfigure(&mut self, attempt: &mut Attempt, options: JobOptions) {
        if options.parallelism != self.options.parallelism && !attempt.renewal.holds_back() {
            attempt.renewal = Renewal::Wanted;
            attempt.checkpoint_wanted = true;
        }
        self.set_options(options);
    }

    /// A barrier that asks for a checkpoint is about to be sent: perhaps it is the attempt's last one.
    pub(super) fn renew_at(&self, attempt: &mut Attempt, epoch: Epoch) {
        if attempt.renewal == Renewal::Swept {
            self.begin_recovery(RecoveryCause::Alter, None);
            attempt.renewal = Renewal::Begun(epoch);
            self.orders.hand_over_at(epoch);
        }
    }

    /// An attempt has ended because another one is due.
    pub(super) async fn succeed(&mut self, attempt: &Attempt) {
        if attempt.renewal == (Renewal::Due { handed_over: true }) {
            attempt.checkpointer.succeed_tasks().await;
            self.succession = Some(Succession {
                epoch: attempt.injected,
                positions: attempt.positions.clone(),
                applied: attempt.applied.clone(),
                store: attempt.store.clone(),
                checkpointer: attempt.checkpointer.clone(),
            });
        }
    }
}
