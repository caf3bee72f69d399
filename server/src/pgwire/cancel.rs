//! Cancel requests, which come on connections of their own and name a session by a number and a secret.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::session::cancel::CancelHandle;

/// The running sessions by number.
#[derive(Clone, Default)]
pub(super) struct CancelRegistry {
    sessions: Arc<Mutex<Sessions>>,
}

#[derive(Default)]
struct Sessions {
    last: i32,
    by_number: HashMap<i32, (i32, CancelHandle)>,
}

/// A session's entry; dropping it takes the entry out.
pub(super) struct Registration {
    registry: CancelRegistry,
    pub(super) process_id: i32,
    pub(super) secret: i32,
}

impl CancelRegistry {
    /// A number that no running session has, with a secret. It can be cancelled once it has been attached.
    pub(super) fn reserve(&self) -> Registration {
        let mut sessions = self.sessions.lock();
        loop {
            sessions.last = if sessions.last == i32::MAX { 1 } else { sessions.last + 1 };
            if !sessions.by_number.contains_key(&sessions.last) {
                break;
            }
        }
        Registration { registry: self.clone(), process_id: sessions.last, secret: rand::random() }
    }

    /// Ends the running statement of a session, if the secret is right. Says nothing, so that secrets cannot be tried.
    pub(super) fn cancel(&self, process_id: i32, secret: i32) {
        let handle = match self.sessions.lock().by_number.get(&process_id) {
            Some((expected, handle)) if *expected == secret => handle.clone(),
            _ => return,
        };
        handle.fire();
    }
}

impl Registration {
    /// From now on the session can be cancelled.
    pub(super) fn attach(&self, handle: CancelHandle) {
        self.registry.sessions.lock().by_number.insert(self.process_id, (self.secret, handle));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.sessions.lock().by_number.remove(&self.process_id);
    }
}
