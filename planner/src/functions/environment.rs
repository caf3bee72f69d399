//! What functions know of the session and the catalog.

use std::sync::Arc;

use crate::{catalog::Catalog, pg_text::TextSettings};

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
}

impl Environment {
    /// Whether functions give the same under both: the catalog is left out, it belongs to one statement.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        self.text == other.text && self.search_path == other.search_path && self.user == other.user && self.database == other.database
    }
}
