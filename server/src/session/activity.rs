//! What every session is doing, for `pg_stat_activity`.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;

use crate::session::{SessionInfo, cancel::CancelHandle};

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    entries: Mutex<BTreeMap<u64, Arc<Activity>>>,
    next: std::sync::atomic::AtomicU64,
}

/// One session's part; gone when it is dropped.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    sessions: Arc<Sessions>,
    number: u64,
    activity: Arc<Activity>,
}

#[derive(Debug)]
struct Activity {
    info: SessionInfo,
    cancel: CancelHandle,
    started_us: i64,
    now: Mutex<Now>,
}

#[derive(Clone, Debug)]
struct Now {
    state: &'static str,
    query: Arc<str>,
    application_name: Option<String>,
    query_start_us: Option<i64>,
    transaction_start_us: Option<i64>,
    state_change_us: i64,
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct ActivityView {
    pub(crate) process_id: i32,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) application_name: String,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) started_us: i64,
    pub(crate) state: &'static str,
    pub(crate) query: Arc<str>,
    pub(crate) query_start_us: Option<i64>,
    pub(crate) transaction_start_us: Option<i64>,
    pub(crate) state_change_us: i64,
}

impl Sessions {
    /// Adds a session.
    pub(crate) fn enter(self: &Arc<Self>, info: &SessionInfo, cancel: &CancelHandle, now_us: i64) -> SessionEntry {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let now = Now {
            state: "idle",
            query: Arc::from(""),
            application_name: None,
            query_start_us: None,
            transaction_start_us: None,
            state_change_us: now_us,
        };
        let activity = Arc::new(Activity { info: info.clone(), cancel: cancel.clone(), started_us: now_us, now: Mutex::new(now) });
        self.entries.lock().insert(number, activity.clone());
        SessionEntry { sessions: self.clone(), number, activity }
    }

    /// What reaches the session of a number.
    pub(crate) fn cancel_of(&self, process_id: i32) -> Option<CancelHandle> {
        let entries = self.entries.lock();
        entries.values().find(|entry| entry.info.process_id == process_id).map(|entry| entry.cancel.clone())
    }

    /// Every session, oldest first.
    pub(crate) fn list(&self) -> Vec<ActivityView> {
        let entries: Vec<Arc<Activity>> = self.entries.lock().values().cloned().collect();
        entries.iter().map(|entry| entry.view()).collect()
    }
}

impl Activity {
    fn view(&self) -> ActivityView {
        let now = self.now.lock().clone();
        ActivityView {
            process_id: self.info.process_id,
            user: self.info.user.clone(),
            database: self.info.database.clone(),
            application_name: now.application_name.unwrap_or_else(|| self.info.application_name.clone()),
            peer: self.info.peer,
            started_us: self.started_us,
            state: now.state,
            query: now.query,
            query_start_us: now.query_start_us,
            transaction_start_us: now.transaction_start_us,
            state_change_us: now.state_change_us,
        }
    }
}

impl SessionEntry {
    /// A statement starts.
    pub(crate) fn start(&self, query: Arc<str>, now_us: i64) {
        let mut now = self.activity.now.lock();
        (now.state, now.query, now.query_start_us, now.state_change_us) = ("active", query, Some(now_us), now_us);
    }

    /// It has ended.
    pub(crate) fn end(&self, state: &'static str, transaction_start_us: Option<i64>, now_us: i64) {
        let mut now = self.activity.now.lock();
        (now.state, now.transaction_start_us, now.state_change_us) = (state, transaction_start_us, now_us);
    }

    /// The client calls itself something else now.
    pub(crate) fn rename(&self, application_name: &str) {
        self.activity.now.lock().application_name = Some(application_name.to_owned());
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        self.sessions.entries.lock().remove(&self.number);
    }
}
