//! Definitions inside of a transaction block. What a block creates or alters is there at once, for everyone, and is taken back when the block
//! is rolled back; what it drops is gone for the block, and goes for everyone when the block commits. A crash in the middle leaves what was
//! created.

use std::sync::Arc;

use millpond_planner::catalog::{Catalog, CatalogChange, ChangeStep, Object};

use crate::{
    act::ddl,
    error::{Result, SqlError},
    state::ServerState,
};

/// How one definition is taken back.
enum Undo {
    /// It goes, and everything built on it.
    Created(u64),
    /// The object is again what it was.
    Changed(Arc<Object>),
}

/// A block's definitions.
#[derive(Default)]
pub(crate) struct Definitions {
    undo: Vec<Undo>,
    /// Dependants first.
    dropped: Vec<u64>,
}

impl Definitions {
    /// Whether anything was dropped, so that the block's catalog is not everyone's.
    pub(crate) fn hides(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// The catalog as the block sees it.
    pub(crate) fn seen(&self, catalog: Catalog) -> Catalog {
        if self.dropped.is_empty() {
            return catalog;
        }
        catalog.apply(&CatalogChange::remove(self.dropped.iter().copied())).unwrap_or(catalog)
    }

    /// Notes a change that is being made. `before` is the catalog without it.
    pub(crate) fn note(&mut self, before: &Catalog, change: &CatalogChange) {
        for step in &change.steps {
            if let ChangeStep::Put(object) = step {
                self.undo.push(match before.get(object.id) {
                    Some(old) => Undo::Changed(old.clone()),
                    None => Undo::Created(object.id),
                });
            }
        }
    }

    /// Notes that objects are dropped.
    pub(crate) fn note_dropped(&mut self, ids: &[u64]) {
        self.dropped.extend_from_slice(ids);
    }

    /// A mark to come back to. What was dropped stays dropped.
    pub(crate) fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Whether a change needs a name that belongs to something the block has dropped.
    pub(crate) fn wants_dropped_name(&self, catalog: &Catalog, change: &CatalogChange) -> bool {
        self.hides()
            && change.steps.iter().any(|step| match step {
                ChangeStep::Put(object) => catalog.in_schema(object.schema, &object.name).is_some_and(|old| self.dropped.contains(&old.id)),
                ChangeStep::Remove(_) => false,
            })
    }

    /// Takes back what came after the mark.
    pub(crate) async fn undo_to(&mut self, server: &ServerState, mark: usize) {
        while self.undo.len() > mark {
            match self.undo.pop() {
                Some(Undo::Created(id)) => ddl::take_back(server, id).await,
                Some(Undo::Changed(old)) => {
                    let guard = server.catalog.lock().await;
                    // Someone else may have dropped it meanwhile.
                    if server.catalog.snapshot().get(old.id).is_some()
                        && let Err(error) = server.catalog.commit(&guard, &CatalogChange::put(Object::clone(&old)))
                    {
                        tracing::error!(object = %old.name, %error, "a change of an object could not be rolled back");
                    }
                }
                None => {}
            }
        }
    }

    /// The block commits: what it dropped goes.
    ///
    /// # Errors
    /// 2BP01 when others have built on it meanwhile.
    pub(crate) async fn finish(&mut self, server: &ServerState) -> Result<()> {
        if self.dropped.is_empty() {
            return Ok(());
        }
        let guard = server.catalog.lock().await;
        let catalog = server.catalog.snapshot();
        let wanted: Vec<u64> = std::mem::take(&mut self.dropped).into_iter().filter(|id| catalog.get(*id).is_some()).collect();
        let plan = catalog.plan_drop(&wanted, false, &[]).map_err(SqlError::from)?;
        ddl::remove(server, &guard, &plan.ids, &CatalogChange::remove(plan.ids.iter().copied())).await
    }
}
