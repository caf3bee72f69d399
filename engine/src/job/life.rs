//! The life of a job: one attempt after the other, pauses between them, and what happens when no attempt helps.

use std::{sync::atomic::Ordering, time::Duration};

use millpond_storage::epoch::Epoch;

use super::{
    driver::{Driver, Ended},
    failure::{is_final, may_pass},
    recovery::{RecoveryCause, RecoveryStatus, RecoveryStep},
    spec::JobOptions,
    status::{JobCommand, JobFailure, JobState},
};
/// Pause before the first restart; doubled for each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Longest pause before a restart.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// Failures at the same epoch after which a job is parked.
const FAILURES_TO_PARK: u32 = 3;

/// What follows from a command that reaches a driver between two attempts.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    Stop,
    Resume,
    Wait,
}

impl Driver {
    /// Runs the job.
    pub async fn run(mut self) {
        let mut failures = (Epoch(0), 0);
        let mut backoff = FIRST_BACKOFF;
        self.begin_recovery(RecoveryCause::Restart, None);
        self.handle.reach(RecoveryStep::Cancelled);
        loop {
            let before = self.handle.sealed();
            let error = match self.attempt().await {
                Ok(Ended::Stopped) => return,
                Ok(Ended::Renewed) => continue,
                Ok(Ended::Finished) => {
                    self.holds.clear();
                    self.handle.resume_never();
                    self.set_state(JobState::Finished);
                    return self.follow_closed().await;
                }
                Err(error) => error,
            };
            let at = self.handle.sealed();
            let fault = self.orders.faults.take();
            // A subtask that was restarted alone at the same epoch, and did not get on, was the first failure.
            failures = if failures.0 == at { (at, failures.1 + 1) } else { (at, 1 + u32::from(self.was_tried_at(at))) };
            if at > before {
                backoff = FIRST_BACKOFF;
            }
            let told = self.told(&error, fault.as_ref());
            tracing::warn!(job = %self.spec.name, error = told.message, epoch = %at, failures = failures.1, "job failed");
            *self.handle.error.lock() = Some(told.message.clone());
            // The last attempt of all finds out which row it is.
            let suspect = fault.as_ref().filter(|_| failures.1 + 1 == FAILURES_TO_PARK).map(|fault| fault.node);
            self.orders.faults.suspect(suspect);
            let is_patient = self.established && may_pass(&error);
            if is_final(&error) || (failures.1 >= FAILURES_TO_PARK && !is_patient) {
                self.parked_at = fault;
                if !self.park(told).await {
                    return;
                }
                (failures, backoff) = ((Epoch(0), 0), FIRST_BACKOFF);
                continue;
            }
            self.handle.restarts.fetch_add(1, Ordering::Relaxed);
            self.set_state(JobState::CatchingUp);
            if !self.pause(backoff).await {
                return;
            }
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
    }

    pub(super) fn begin_recovery(&self, cause: RecoveryCause, error: Option<String>) {
        self.handle.begin_recovery(self.recovery(cause, error));
    }

    pub(super) fn recovery(&self, cause: RecoveryCause, error: Option<String>) -> RecoveryStatus {
        RecoveryStatus::new(self.spec.id, cause, error, self.shared.coordinator.clock().wall_micros())
    }

    /// The job does not go on by itself. What it has not consumed is kept, for it may be mended, until it is dropped or that takes too much.
    /// Answers whether it is to go on.
    async fn park(&mut self, failure: JobFailure) -> bool {
        *self.handle.failure.lock() = Some(failure);
        self.set_state(JobState::Failed);
        loop {
            let command = self.commands.recv().await;
            match self.between_attempts(command) {
                Next::Stop => return false,
                Next::Wait => {}
                Next::Resume => {
                    self.begin_recovery(RecoveryCause::Resume, None);
                    self.handle.reach(RecoveryStep::Cancelled);
                    self.handle.restarts.fetch_add(1, Ordering::Relaxed);
                    *self.handle.failure.lock() = None;
                    self.set_state(if self.established { JobState::CatchingUp } else { JobState::Backfilling });
                    return true;
                }
            }
        }
    }

    /// Waits before another attempt; answers whether there is to be one.
    async fn pause(&mut self, time: Duration) -> bool {
        let until = tokio::time::Instant::now() + time;
        loop {
            let command = tokio::select! {
                () = tokio::time::sleep_until(until) => return true,
                command = self.commands.recv() => command,
            };
            if self.between_attempts(command) == Next::Stop {
                return false;
            }
        }
    }

    /// Takes a command that reaches the driver while no attempt runs.
    pub(super) fn between_attempts(&mut self, command: Option<JobCommand>) -> Next {
        match command {
            None | Some(JobCommand::Stop) => return Next::Stop,
            Some(JobCommand::Resume { skip }) => {
                self.orders.set_skip_bad_rows(skip);
                if skip {
                    self.skip_row();
                }
                return Next::Resume;
            }
            Some(JobCommand::Reconfigure(options)) => self.set_options(options),
            // Whoever waits for it has it from the next attempt.
            Some(JobCommand::Checkpoint) if !self.put_off.iter().any(|order| matches!(order, JobCommand::Checkpoint)) => {
                self.put_off.push_back(JobCommand::Checkpoint);
            }
            Some(JobCommand::Checkpoint | JobCommand::Fail(_)) => {}
            Some(JobCommand::LetGo) if self.handle.state() == JobState::Failed => {
                self.holds.clear();
                self.handle.resume_never();
                tracing::warn!(job = %self.spec.name, "a failed job has fallen behind: what it has not read is not kept any more");
            }
            Some(JobCommand::LetGo) => {}
        }
        Next::Wait
    }

    /// A finished job's contents are those of every later epoch.
    async fn follow_closed(&mut self) {
        let mut pulse = self.shared.coordinator.pulse();
        loop {
            let closed = self.shared.coordinator.closed();
            if self.handle.sealed() < closed.epoch {
                self.advance_collection(closed);
            }
            tokio::select! {
                changed = pulse.changed() => if changed.is_err() { return },
                command = self.commands.recv() => if self.between_attempts(command) == Next::Stop { return },
            }
        }
    }

    pub(super) fn set_options(&mut self, options: JobOptions) {
        options.give(&self.orders);
        self.replay.set_target(options.recovery_target);
        self.handle.set_readable(options.readable);
        self.options = options;
    }
}
