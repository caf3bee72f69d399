//! The seam to the outside: time and threads. Everything that would make a run differ from another one with the same input is reached
//! through here, so that tests can put their own in its place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Tells the time.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System { start: Instant },
    Manual(Arc<ManualTime>),
}

#[derive(Debug, Default)]
struct ManualTime {
    wall_micros: AtomicI64,
    monotonic_micros: AtomicU64,
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Kind::System { start: Instant::now() })
    }

    /// A clock that stands at `wall_micros` until it is moved, for tests. Clones move together.
    pub fn manual(wall_micros: i64) -> Self {
        let time = ManualTime { wall_micros: AtomicI64::new(wall_micros), monotonic_micros: AtomicU64::new(0) };
        Self(Kind::Manual(Arc::new(time)))
    }

    /// Microseconds since 1970, UTC. May jump, also backwards.
    #[expect(clippy::disallowed_methods, reason = "the one place where the machine's clock is read")]
    pub fn wall_micros(&self) -> i64 {
        match &self.0 {
            Kind::System { .. } => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => since.as_micros() as i64,
                Err(before) => -(before.duration().as_micros() as i64),
            },
            Kind::Manual(time) => time.wall_micros.load(Ordering::Acquire),
        }
    }

    /// Time since an arbitrary moment. Never goes backwards.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Kind::System { start } => start.elapsed(),
            Kind::Manual(time) => Duration::from_micros(time.monotonic_micros.load(Ordering::Acquire)),
        }
    }

    /// Moves a manual clock on. The machine's clock moves by itself.
    pub fn advance(&self, by: Duration) {
        if let Kind::Manual(time) = &self.0 {
            time.wall_micros.fetch_add(by.as_micros() as i64, Ordering::AcqRel);
            time.monotonic_micros.fetch_add(by.as_micros() as u64, Ordering::AcqRel);
        }
    }
}

/// Starts a named operating system thread. A process that cannot start threads cannot go on: it panics.
pub fn spawn_thread<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().name(name.into()).spawn(body).expect("the operating system starts a thread")
}

/// Waits. To be used where waiting itself is wanted, never to wait for something else.
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
