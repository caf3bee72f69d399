//! Counters in the text form of Prometheus. They are read from where they are counted when they are asked for; nothing is counted twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus::{Encoder, IntCounter, IntGauge, Registry, TextEncoder};

use crate::pgwire::WireCounters;

/// The metrics of one server.
pub(crate) struct Metrics {
    registry: Registry,
    wire: Arc<WireCounters>,
    sessions: IntGauge,
    connections: IntCounter,
    refused: IntCounter,
}

impl Metrics {
    /// Metrics over the counters of the parts.
    ///
    /// # Errors
    /// None as long as the names below differ.
    pub(crate) fn new(wire: Arc<WireCounters>) -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("millpond".to_string()), None)?;
        let sessions = IntGauge::new("sessions", "Sessions that are connected now")?;
        let connections = IntCounter::new("connections_total", "Connections accepted since the start")?;
        let refused = IntCounter::new("connections_refused_total", "Connections refused, or failed before their session began")?;
        registry.register(Box::new(sessions.clone()))?;
        registry.register(Box::new(connections.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        Ok(Self { registry, wire, sessions, connections, refused })
    }

    /// All of them, as text.
    ///
    /// # Errors
    /// A bug in a metric's name or labels.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        self.sessions.set(self.wire.sessions.load(Ordering::Relaxed));
        catch_up(&self.connections, self.wire.connections.load(Ordering::Relaxed));
        catch_up(&self.refused, self.wire.refused.load(Ordering::Relaxed));
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Brings a counter to a total that never falls.
fn catch_up(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_show_their_totals() {
        let wire = Arc::new(WireCounters::default());
        let metrics = Metrics::new(Arc::clone(&wire)).expect("metrics");
        wire.connections.store(3, Ordering::Relaxed);
        wire.sessions.store(2, Ordering::Relaxed);
        for _ in 0..2 {
            let text = metrics.text().expect("text");
            assert!(text.contains("\nmillpond_connections_total 3\n") || text.starts_with("millpond_connections_total 3\n"), "{text}");
            assert!(text.contains("millpond_sessions 2\n"), "{text}");
        }
    }
}
