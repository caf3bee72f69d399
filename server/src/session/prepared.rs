//! Prepared statements by name. Those of PREPARE and those of the extended protocol share their names, as in Postgres.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use crate::{
    error::{Result, SqlError},
    session::Prepared,
};

/// Most statements a session may prepare.
const PREPARED_LIMIT: usize = 20_000;

/// A prepared statement, and where it comes from.
struct Named {
    prepared: Arc<Prepared>,
    /// By PREPARE, not by a Parse message.
    from_sql: bool,
}

/// A session's prepared statements.
#[derive(Default)]
pub(crate) struct PreparedStatements(BTreeMap<String, Named>);

impl PreparedStatements {
    /// Whether a statement may be given this name.
    ///
    /// # Errors
    /// 42P05 if there is one of that name, 53400 if there are too many.
    pub(crate) fn check_free(&self, name: &str) -> Result<()> {
        if self.0.contains_key(name) {
            return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        if self.0.len() >= PREPARED_LIMIT {
            return Err(
                SqlError::new("53400", "too many prepared statements in this session").with_hint("DEALLOCATE what is no longer used.")
            );
        }
        Ok(())
    }

    /// Names a statement.
    ///
    /// # Errors
    /// As [`Self::check_free`].
    pub(crate) fn insert(&mut self, name: String, prepared: Arc<Prepared>, from_sql: bool) -> Result<()> {
        self.check_free(&name)?;
        if let Entry::Vacant(free) = self.0.entry(name) {
            free.insert(Named { prepared, from_sql });
        }
        Ok(())
    }

    /// The statement of that name.
    ///
    /// # Errors
    /// 26000 if there is none.
    pub(crate) fn get(&self, name: &str) -> Result<&Arc<Prepared>> {
        self.0.get(name).map(|named| &named.prepared).ok_or_else(|| missing(name))
    }

    /// Forgets a statement.
    ///
    /// # Errors
    /// 26000 if there is none of that name.
    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        self.0.remove(name).map(|_| ()).ok_or_else(|| missing(name))
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Name, text and whether it comes from PREPARE, of each.
    pub(crate) fn list(&self) -> Vec<(String, String, bool)> {
        let text = |named: &Named| named.prepared.plan.as_ref().map_or(String::new(), |plan| plan.text.to_string());
        self.0.iter().map(|(name, named)| (name.clone(), text(named), named.from_sql)).collect()
    }
}

fn missing(name: &str) -> SqlError {
    SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))
}
