//! From one attempt to the next while a job runs: `ALTER .. SET PARALLELISM`.
//!
//! State stays where it is. First the subtasks bring what they have into the job's store while they go on; what changes meanwhile is brought there
//! once more, as long as that leaves less each time (the pre-copy rounds of live migration: Clark et al., NSDI 2005, section 3.1). Then a last
//! checkpoint is taken, behind which nothing is injected; each subtask flushes what has changed since, and ends. Those of the next attempt
//! own other ranges of key groups of the same store. Readers see the collection as it was until the next attempt seals.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use millpond_storage::{checkpoint::Checkpointer, epoch::Epoch, state_table::JobStore};

use super::{
    attempt::Attempt,
    driver::Driver,
    recovery::RecoveryCause,
    running::ScanPositions,
    spec::{JobOptions, Recovery},
};
use crate::error::Result;

/// How long the subtasks may go on bringing state into the store before the last checkpoint is taken all the same.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);
/// When no more than this has changed during a sweep the rest is soon handed over.
const HAND_OVER_BYTES: u64 = 8 << 20;

/// How far the change to another attempt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    /// None is wanted.
    None,
    /// At the next checkpoint it begins.
    Wanted,
    /// State is brought into the store.
    Sweeping(Round),
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

/// One sweep of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Round {
    /// What the subtasks were asked for.
    request: u64,
    /// Bytes of changes since.
    logged: u64,
    /// Bytes of changes during the round before.
    before: u64,
    /// Until when it may go on, with all rounds after it.
    until: Instant,
}

/// What a complete checkpoint says about sweeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swept {
    /// The last request that all subtasks have answered.
    pub(super) request: u64,
    /// Bytes of changes in it.
    pub(super) logged: u64,
}

impl Renewal {
    /// Nothing is to be injected any more.
    pub(super) fn holds_back(self) -> bool {
        matches!(self, Self::Begun(_) | Self::Due { .. })
    }

    /// A checkpoint begins: from now on state may be brought into the store.
    pub(super) fn on_begun_checkpoint(&mut self, is_ready: bool, store: &JobStore) {
        if *self == Self::Wanted && is_ready {
            *self = Self::Sweeping(Round {
                request: store.hasten_sweep(),
                logged: 0,
                before: u64::MAX,
                until: Instant::now() + SWEEP_PATIENCE,
            });
        }
    }

    /// A checkpoint is complete. Answers whether another one is wanted at once.
    pub(super) fn on_checkpoint(&mut self, epoch: Epoch, swept: Swept, is_unaligned: bool, store: &JobStore) -> bool {
        match *self {
            Self::Sweeping(round) => {
                *self = match round.after(swept, Instant::now()) {
                    Some(Next::Round(next)) => Self::Sweeping(Round { request: store.hasten_sweep(), ..next }),
                    Some(Next::HandOver) => Self::Swept,
                    None => Self::Sweeping(Round { logged: round.logged + swept.logged, ..round }),
                };
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

/// What comes after a round.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Another one, for what has changed meanwhile.
    Round(Round),
    /// The last checkpoint.
    HandOver,
}

impl Round {
    /// What follows when a checkpoint says `swept`; `None` while the round goes on. Rounds end when little has changed in the last one, or hardly
    /// less than in the one before.
    fn after(self, swept: Swept, now: Instant) -> Option<Next> {
        let logged = self.logged + swept.logged;
        if now >= self.until {
            return Some(Next::HandOver);
        }
        if swept.request < self.request {
            return None;
        }
        let shrinks = logged < self.before / 4 * 3;
        Some(if logged <= HAND_OVER_BYTES || !shrinks { Next::HandOver } else { Next::Round(Self { logged: 0, before: logged, ..self }) })
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
        attempt.store.expect_rewinds(options.recovery != Recovery::Job);
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
    ///
    /// # Errors
    /// None but what a test puts here.
    pub(super) async fn succeed(&mut self, attempt: &Attempt) -> Result<()> {
        self.shared.reach("rescale::succeed")?;
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_swept_until_little_changes_meanwhile() {
        let now = Instant::now();
        let swept = |request, logged| Swept { request, logged };
        let first = Round { request: 4, logged: 0, before: u64::MAX, until: now + SWEEP_PATIENCE };
        assert_eq!(first.after(swept(3, 100 << 20), now), None);
        let Some(Next::Round(second)) = first.after(swept(4, 100 << 20), now) else { panic!("much has changed") };
        assert_eq!((second.logged, second.before), (0, 100 << 20));
        assert_eq!(second.after(swept(4, 90 << 20), now), Some(Next::HandOver), "it does not become less");
        assert_eq!(second.after(swept(4, 1 << 20), now), Some(Next::HandOver), "little is left");
        assert!(matches!(second.after(swept(4, 20 << 20), now), Some(Next::Round(_))));
        assert_eq!(first.after(swept(3, 100 << 20), now + SWEEP_PATIENCE), Some(Next::HandOver), "it takes too long");
    }
}
