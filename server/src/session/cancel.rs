//! Cancelling the statement a session runs, from another connection.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Reaches one session's running statement. A session that runs none is not disturbed.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    running: Arc<Mutex<CancellationToken>>,
}

impl CancelHandle {
    /// Ends the running statement with 57014.
    pub fn fire(&self) {
        self.running.lock().cancel();
    }

    /// The token of a statement that starts now: what was cancelled before it does not concern it.
    pub(crate) fn start_statement(&self) -> CancellationToken {
        let mut running = self.running.lock();
        if running.is_cancelled() {
            *running = CancellationToken::new();
        }
        running.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_cancel_does_not_reach_the_next_statement() {
        let handle = CancelHandle::default();
        let first = handle.start_statement();
        handle.fire();
        assert!(first.is_cancelled());
        handle.fire();
        assert!(!handle.start_statement().is_cancelled());
    }
}
