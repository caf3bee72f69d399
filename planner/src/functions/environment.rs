//! What functions know of the session and the catalog.

use std::{fmt, sync::Arc};

use crate::{
    catalog::{Catalog, QualifiedName},
    pg_text::TextSettings,
};

/// What a session is told by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// To end what it runs.
    Cancel,
    /// To end.
    Terminate,
}

/// What functions ask the server while a query runs.
pub trait LiveState: fmt::Debug + Send + Sync {
    /// About how many bytes a relation's rows have; `None` for those that keep none.
    fn relation_bytes(&self, _id: u64) -> Option<u64> {
        None
    }

    /// The value of a session's setting, by its name in lower case.
    fn setting(&self, _name: &str) -> Option<String> {
        None
    }

    /// The number of a system relation.
    fn system_relation(&self, _schema: &str, _name: &str) -> Option<i32> {
        None
    }

    /// The name of a system relation.
    fn system_relation_name(&self, _oid: i32) -> Option<QualifiedName> {
        None
    }

    /// What a system relation is about, or its column of that number from 1 on.
    fn system_comment(&self, _oid: i32, _column: Option<usize>) -> Option<String> {
        None
    }

    /// The number of a function that cannot be called, but that types name for their input and output.
    fn type_function(&self, _name: &str) -> Option<i32> {
        None
    }

    /// The name of such a function.
    fn type_function_name(&self, _oid: i32) -> Option<String> {
        None
    }

    /// The name of an operator and the types of its operands, 0 for one that it has not.
    fn operator(&self, _oid: i32) -> Option<(String, i32, i32)> {
        None
    }

    /// When the server was started, in microseconds since 1970.
    fn started_us(&self) -> Option<i64> {
        None
    }

    /// Tells a session something, by the number that clients cancel it by; whether there is one.
    fn signal(&self, _process_id: i32, _signal: Signal) -> bool {
        false
    }
}

/// No server, for tests and for queries that are stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLiveState;

impl LiveState for NoLiveState {}

/// The session in which a statement was bound. Functions whose result depends on it carry it with them.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Time zone and styles.
    pub text: TextSettings,
    /// Objects.
    pub catalog: Catalog,
    /// Schemas in which names are looked for, `pg_catalog` not among them unless it was put there.
    pub search_path: Arc<[String]>,
    /// The session's user.
    pub user: Arc<str>,
    /// The database's name.
    pub database: Arc<str>,
    /// `server_version` as `version()` tells it.
    pub server_version: Arc<str>,
    /// The server.
    pub live: Arc<dyn LiveState>,
}

impl Environment {
    /// Whether functions give the same under both: the catalog is left out, it belongs to one statement.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        self.text == other.text && self.search_path == other.search_path && self.user == other.user && self.database == other.database
    }
}
