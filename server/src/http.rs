//! The small HTTP server beside the wire protocol: `/healthz` for supervisors, `/metrics` for Prometheus.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// A running HTTP server; dropping it stops it.
pub(crate) struct HttpServer {
    address: SocketAddr,
    stop: CancellationToken,
}

impl HttpServer {
    /// Binds the socket and begins to serve.
    ///
    /// # Errors
    /// What the system says when the address cannot be had.
    pub(crate) async fn start(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/healthz", get(healthz)).route("/metrics", get(metrics_text)).with_state(metrics);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(stopped.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "the HTTP server has ended");
            }
        });
        Ok(Self { address, stop })
    }

    /// The address it listens on, with the port that was given.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn metrics_text(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
