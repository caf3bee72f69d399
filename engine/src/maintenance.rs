//! Background work: folding deltas into bases, looking for new splits, cutting the epoch log.

use std::{sync::Weak, time::Duration};

use crate::engine::Shared;

/// Pause between rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// The log may become so long for the sake of jobs that do not run.
const RETENTION_BYTES: u64 = 1 << 30;

/// Works until the engine is gone.
pub(crate) async fn run(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(shared) = shared.upgrade() else { return };
        for source in shared.coordinator.all_sources() {
            if let Err(error) = source.rediscover().await {
                tracing::warn!(source = %source.name, %error, "could not look for new splits");
            }
        }
        for collection in shared.collections() {
            let folded = tokio::task::spawn_blocking(move || collection.fold()).await;
            if let Ok(Err(error)) = folded {
                tracing::warn!(%error, "could not fold changes into a collection's base");
            }
        }
        cut_log(&shared).await;
    }
}

/// Cuts the epoch log below what tables and jobs need.
pub(crate) async fn cut_log(shared: &Shared) {
    let log = shared.coordinator.log();
    if log.bytes() > RETENTION_BYTES {
        shared.let_go();
    }
    if let Err(error) = shared.coordinator.forget(shared.needed_from()).await {
        tracing::warn!(%error, "could not cut the epoch log");
    }
}
