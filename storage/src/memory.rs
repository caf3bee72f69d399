//! The memory budget of the process and the handles that draw on it.
//!
//! A budget is a counter and a limit. `grow` never fails: what already exists must be counted. Whoever can do without memory asks with
//! `try_grow`, and whoever holds a cache looks at `over_budget` and gives back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit in bytes that many handles share.
#[derive(Clone)]
pub struct MemoryBudget {
    shared: Arc<Shared>,
}

struct Shared {
    limit: usize,
    used: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        Self { shared: Arc::new(Shared { limit: limit_bytes, used: AtomicUsize::new(0) }) }
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Bytes that all handles hold together; may pass the limit.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// A handle that holds nothing yet. `name` says for whom, in logs.
    pub fn handle(&self, name: &str) -> MemoryHandle {
        MemoryHandle { shared: self.shared.clone(), used: AtomicUsize::new(0), name: name.into() }
    }
}

/// The bytes that one user holds of a [`MemoryBudget`]; dropping it gives them all back.
pub struct MemoryHandle {
    shared: Arc<Shared>,
    used: AtomicUsize,
    name: Box<str>,
}

impl MemoryHandle {
    /// Counts `bytes` more, within the limit or not.
    pub fn grow(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.shared.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` more if the budget has room for them.
    pub fn try_grow(&self, bytes: usize) -> bool {
        let room = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.shared.limit);
        let taken = self.shared.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if taken {
            self.used.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Gives `bytes` back, at most what the handle holds.
    pub fn shrink(&self, bytes: usize) {
        let mut given = 0;
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            given = bytes.min(used);
            Some(used - given)
        });
        self.shared.used.fetch_sub(given, Ordering::Relaxed);
    }

    /// Makes the handle hold exactly `bytes`.
    pub fn resize(&self, bytes: usize) {
        let used = self.used();
        if bytes > used {
            self.grow(bytes - used);
        } else {
            self.shrink(used - bytes);
        }
    }

    /// Bytes this handle holds.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether all handles together hold more than the limit.
    pub fn over_budget(&self) -> bool {
        self.excess() > 0
    }

    /// By how many bytes all handles together pass the limit.
    pub fn excess(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed).saturating_sub(self.shared.limit)
    }

    /// The limit of the budget behind the handle.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

impl fmt::Debug for MemoryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} bytes", self.name, self.used())
    }
}

impl Drop for MemoryHandle {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(*self.used.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_share_one_limit_and_return_what_they_hold() {
        let budget = MemoryBudget::new(100);
        let first = budget.handle("first");
        let second = budget.handle("second");
        assert!(first.try_grow(60));
        assert!(!second.try_grow(60));
        assert!(second.try_grow(40));
        assert!(!second.over_budget());
        second.grow(1);
        assert!(first.over_budget());
        assert_eq!(first.excess(), 1);
        first.shrink(1000);
        assert_eq!((first.used(), second.used(), budget.used()), (0, 41, 41));
        second.resize(7);
        assert_eq!(budget.used(), 7);
        drop(second);
        assert_eq!(budget.used(), 0);
    }
}
