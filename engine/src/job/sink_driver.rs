//! The driver of a sink: a reader of its collection's deltas that writes durable epochs to the target.
//!
//! Changes are gathered for the sink's commit interval, counted from the first of them, so that there is at most one transaction in that time,
//! however many epochs it has. They are written earlier when they have become many, and when no more will come.
//!
//! The target says how far it got; that is asked at every start, so a crash between a write and anything of ours repeats nothing. A
//! failing target is tried again for ever, with backoff: the deltas stay, held.

use std::{sync::Arc, time::Duration};

use millpond_storage::{
    collection::{Changed, Collection, Hold},
    epoch::Epoch,
};
use tokio::time::Instant;

use super::{
    spec::SinkTarget,
    status::{JobHandle, JobState},
};
use crate::{
    error::{EngineError, Result},
    sink::Sink,
};

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// So many bytes of changes are not gathered any longer.
const MANY_BYTES: u64 = 64 << 20;
/// Changes of nothing but the watermark are not rows to write: the target learns the epoch reached with the next rows. Until then they are held, and
/// there may be so many.
const MANY_WITHOUT_ROWS: usize = 1024;

/// Feeds the sink until the job is dropped. `hold` keeps what it has not written yet, also while the target fails.
pub async fn run(handle: Arc<JobHandle>, mut hold: Hold, target: SinkTarget) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        match feed(&handle, &mut hold, &target).await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(sink = %handle.name, %error, "sink failed, trying again");
                *handle.error.lock() = Some(error.to_string());
            }
        }
        if handle.commands.is_closed() {
            return;
        }
        tokio::time::sleep(backoff).await;
        backoff = (backoff * 2).min(LONGEST_BACKOFF);
    }
}

async fn feed(handle: &JobHandle, hold: &mut Hold, target: &SinkTarget) -> Result<()> {
    let collection = hold.collection().clone();
    let mut sink = (target.open)().await?;
    let mut reached = sink.reached().await?;
    hold.advance(reached);
    let (mut upper, mut state) = (collection.watch_upper(), handle.state.subscribe());
    let mut gathering = Gathering { interval: target.commit_interval, since: None };
    while !handle.commands.is_closed() {
        upper.mark_unchanged();
        let has_ended = *state.borrow_and_update() == JobState::Finished;
        let changed = if collection.published() { collection.changed_after(reached) } else { Changed::default() };
        let wait = match gathering.next(changed, has_ended, Instant::now()) {
            Next::Write => {
                reached = write(&collection, &mut *sink, reached).await?;
                *handle.error.lock() = None;
                hold.advance(reached);
                continue;
            }
            Next::Wait(until) => until,
        };
        let due = async {
            match wait {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = upper.changed() => if changed.is_err() { return Ok(()) },
            changed = state.changed() => if changed.is_err() { return Ok(()) },
            () = due => {}
            () = handle.commands.closed() => {}
        }
    }
    Ok(())
}

/// Makes what is sealed durable, and writes all of it behind `reached`. Answers the epoch reached then.
async fn write(collection: &Arc<Collection>, sink: &mut dyn Sink, reached: Epoch) -> Result<Epoch> {
    let flushing = collection.clone();
    let flushed = tokio::task::spawn_blocking(move || flushing.flush()).await;
    let durable = flushed.map_err(|error| EngineError::Internal(error.to_string()))??;
    let deltas = collection.deltas(reached, durable)?;
    if !deltas.is_empty() {
        sink.write(&deltas, durable).await?;
    }
    Ok(durable.max(reached))
}

/// What to do with changes that have not been written.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Write them.
    Write,
    /// Wait for more of them, until then at the latest.
    Wait(Option<Instant>),
}

/// Decides when a transaction is large enough.
struct Gathering {
    interval: Duration,
    /// When the first rows were seen that have not been written.
    since: Option<Instant>,
}

impl Gathering {
    fn next(&mut self, changed: Changed, has_ended: bool, now: Instant) -> Next {
        if changed.deltas == 0 {
            self.since = None;
            return Next::Wait(None);
        }
        let due = (changed.rows > 0).then(|| *self.since.get_or_insert(now) + self.interval);
        let is_due = due.is_some_and(|due| due <= now);
        if is_due || has_ended || changed.bytes >= MANY_BYTES || changed.deltas >= MANY_WITHOUT_ROWS {
            self.since = None;
            return Next::Write;
        }
        Next::Wait(due)
    }
}

#[cfg(test)]
mod tests;
