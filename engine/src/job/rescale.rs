//! What a change of a job's parallelism takes: from the order until the new subtasks have sealed an epoch, and for how long nothing new was seen.

use std::time::{Duration, Instant};

use super::status::JobHandle;

/// Changes remembered per job.
const RESCALES_KEPT: usize = 16;

/// The steps of a change, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RescaleStep {
    /// The last barrier of the subtasks so far is sent, or they have failed.
    Stopping,
    /// All of them have passed it.
    Stopped,
    /// The new ones run.
    Started,
    /// They have sealed an epoch, or there was nothing to seal.
    Sealed,
}

/// Number of steps.
const STEPS: usize = 4;

/// One row of `millpond.rescales`.
#[derive(Clone, Debug)]
pub struct RescaleStatus {
    /// The job.
    pub job: u64,
    /// Subtasks of its parallel parts when it was ordered.
    pub from: usize,
    /// And how many there are to be.
    pub to: usize,
    /// When it was ordered, microseconds since 1970, UTC.
    pub ordered_at_us: i64,
    begun: Instant,
    reached: [Option<Duration>; STEPS],
    /// Since when nothing has been sealed; `None` before it stops anything, and when it is over.
    silent_since: Option<Instant>,
    pause: Duration,
}

impl RescaleStatus {
    pub(super) fn new(job: u64, from: usize, to: usize, ordered_at_us: i64) -> Self {
        let (begun, reached) = (Instant::now(), [None; STEPS]);
        Self { job, from, to, ordered_at_us, begun, reached, silent_since: None, pause: Duration::ZERO }
    }

    /// Time from the order to a step; `None` if it has not been reached, or was left out since the job failed meanwhile.
    pub fn after(&self, step: RescaleStep) -> Option<Duration> {
        self.reached[step as usize]
    }

    /// The longest time without a newly sealed epoch, from the last barrier of the subtasks before to the first epoch of those after. Up to now, if it
    /// is not over.
    pub fn pause(&self) -> Duration {
        self.silent_since.map_or(self.pause, |since| self.pause.max(since.elapsed()))
    }

    /// What it is at, as shown in SQL.
    pub fn state(&self) -> &'static str {
        match self.reached.iter().rposition(Option::is_some) {
            None => "waiting for a checkpoint",
            Some(0) => "stopping",
            Some(1) => "starting",
            Some(2) => "catching up",
            Some(_) => "done",
        }
    }

    /// Whether the new subtasks have sealed an epoch.
    pub fn is_done(&self) -> bool {
        self.after(RescaleStep::Sealed).is_some()
    }

    fn reach(&mut self, step: RescaleStep) {
        if self.reached[step as usize..].iter().all(Option::is_none) {
            self.reached[step as usize] = Some(self.begun.elapsed());
        }
    }

    /// Nothing new has been seen since then.
    fn stop(&mut self, silent_since: Instant) {
        if self.reached.iter().all(Option::is_none) {
            self.silent_since = Some(silent_since);
        }
        self.reach(RescaleStep::Stopping);
    }

    /// An epoch was sealed, or there is none to seal.
    fn seal(&mut self) {
        self.pause = self.pause();
        self.silent_since = self.silent_since.map(|_| Instant::now());
        if self.after(RescaleStep::Started).is_some() {
            self.reach(RescaleStep::Sealed);
            self.silent_since = None;
        }
    }
}

impl JobHandle {
    /// The changes of parallelism remembered, oldest first.
    pub fn rescales(&self) -> Vec<RescaleStatus> {
        self.rescales.lock().iter().cloned().collect()
    }

    /// A change is ordered. One that has not stopped anything yet is another one now.
    pub(super) fn order_rescale(&self, rescale: RescaleStatus) {
        let mut rescales = self.rescales.lock();
        if let Some(last) = rescales.back_mut().filter(|last| last.after(RescaleStep::Started).is_none()) {
            last.to = rescale.to;
            return;
        }
        if rescales.len() == RESCALES_KEPT {
            rescales.pop_front();
        }
        rescales.push_back(rescale);
    }

    /// The subtasks so far come to their end. Nothing has been sealed since then.
    pub(super) fn rescale_stops(&self, silent_since: Instant) {
        self.change_rescale(|rescale| rescale.stop(silent_since));
    }

    /// All subtasks have passed their last barrier.
    pub(super) fn rescale_stopped(&self) {
        self.change_rescale(|rescale| rescale.reach(RescaleStep::Stopped));
    }

    /// So many subtasks run now in each parallel part.
    pub(super) fn rescale_started(&self, parallelism: usize) {
        self.change_rescale(|rescale| {
            rescale.to = parallelism;
            rescale.reach(RescaleStep::Started);
        });
    }

    /// An epoch was sealed, or there is none to seal.
    pub(super) fn rescale_seals(&self) {
        self.change_rescale(|rescale| {
            rescale.seal();
            if rescale.is_done() {
                let ms = |step| rescale.after(step).map(|after| after.as_millis() as u64);
                tracing::info!(
                    job = %self.name,
                    from = rescale.from,
                    to = rescale.to,
                    waited_ms = ms(RescaleStep::Stopping),
                    stopped_ms = ms(RescaleStep::Stopped),
                    started_ms = ms(RescaleStep::Started),
                    sealed_ms = ms(RescaleStep::Sealed),
                    pause_ms = rescale.pause().as_millis() as u64,
                    "rescaled"
                );
            }
        });
    }

    /// Changes what is under way.
    fn change_rescale(&self, change: impl FnOnce(&mut RescaleStatus)) {
        if let Some(rescale) = self.rescales.lock().back_mut().filter(|rescale| !rescale.is_done()) {
            change(rescale);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::job::spec::JobKind;

    #[test]
    fn the_pause_is_the_longest_silence_from_the_last_barrier_to_the_first_new_epoch() {
        let (second, now) = (Duration::from_secs(1), Instant::now());
        let ago = |seconds: u32| now.checked_sub(second * seconds).expect("the machine runs for longer");
        let mut rescale = RescaleStatus::new(1, 2, 4, 0);
        rescale.seal();
        assert_eq!((rescale.state(), rescale.pause()), ("waiting for a checkpoint", Duration::ZERO));
        rescale.stop(ago(3));
        rescale.stop(ago(9));
        assert_eq!(rescale.state(), "stopping");
        rescale.seal();
        let before = rescale.pause();
        assert!(before >= 3 * second && before < 9 * second, "{before:?}");
        rescale.reach(RescaleStep::Stopped);
        assert_eq!(rescale.state(), "starting");
        rescale.reach(RescaleStep::Started);
        rescale.silent_since = Some(ago(20));
        assert!(rescale.state() == "catching up" && rescale.pause() >= 20 * second && !rescale.is_done());
        rescale.seal();
        let pause = rescale.pause();
        assert!(rescale.is_done() && pause >= 20 * second);
        assert!(rescale.after(RescaleStep::Sealed) >= rescale.after(RescaleStep::Stopping));
        rescale.silent_since = None;
        assert_eq!(rescale.pause(), pause, "what comes later is no part of it");
    }

    #[test]
    fn an_order_replaces_one_that_has_not_come_to_anything() {
        let handle = JobHandle::new(1, "v".into(), JobKind::View, mpsc::unbounded_channel().0);
        let order = |from, to| handle.order_rescale(RescaleStatus::new(1, from, to, 0));
        let known = || handle.rescales().iter().map(|rescale| (rescale.from, rescale.to, rescale.is_done())).collect::<Vec<_>>();
        order(2, 4);
        order(4, 3);
        handle.rescale_stops(Instant::now());
        handle.rescale_started(3);
        assert_eq!(known(), [(2, 3, false)]);
        order(3, 5);
        handle.rescale_seals();
        assert_eq!(known(), [(2, 3, false), (3, 5, false)], "the new one has not stopped anything");
        handle.rescale_started(5);
        handle.rescale_seals();
        assert_eq!(known().last(), Some(&(3, 5, true)), "the job failed meanwhile and began anew");
        (0..40).for_each(|_| {
            order(5, 6);
            handle.rescale_started(6);
            handle.rescale_seals();
        });
        assert_eq!(known().len(), RESCALES_KEPT);
    }
}
