//! The driver of a sink: a reader of its collection's deltas that writes durable epochs to the target.
//!
//! The target says how far it got; that is asked at every start, so a crash between a write and anything of ours repeats nothing. A
//! failing target is tried again for ever, with backoff: the deltas stay, held.

use std::{sync::Arc, time::Duration};

use millpond_storage::{collection::Hold, epoch::Epoch};

use super::{spec::SinkFactory, status::JobHandle};
use crate::{coordinator::Coordinator, error::Result};

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// Feeds the sink until the job is dropped. `hold` keeps what it has not written yet, also while the target fails.
pub async fn run(handle: Arc<JobHandle>, mut hold: Hold, factory: SinkFactory, coordinator: Arc<Coordinator>) {
    let mut backoff = FIRST_BACKOFF;
    loop {
        match feed(&handle, &mut hold, &factory, &coordinator).await {
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

async fn feed(handle: &JobHandle, hold: &mut Hold, factory: &SinkFactory, coordinator: &Coordinator) -> Result<()> {
    let collection = hold.collection().clone();
    let mut sink = factory().await?;
    let mut reached = sink.reached().await?;
    hold.advance(reached);
    let mut pulse = coordinator.pulse();
    loop {
        pulse.mark_unchanged();
        if collection.published() && collection.upper() > reached {
            let flushing = collection.clone();
            let durable = tokio::task::spawn_blocking(move || flushing.flush())
                .await
                .map_err(|error| crate::error::EngineError::Internal(error.to_string()))??;
            let deltas = collection.deltas(reached.max(Epoch(0)), durable)?;
            if !deltas.is_empty() {
                sink.write(&deltas, durable).await?;
                *handle.error.lock() = None;
            }
            reached = durable.max(reached);
            hold.advance(reached);
        }
        tokio::select! {
            changed = pulse.changed() => if changed.is_err() { return Ok(()) },
            () = handle.commands.closed() => return Ok(()),
        }
    }
}
