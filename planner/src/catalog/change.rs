//! Changes of the catalog.

use std::sync::Arc;

use super::Object;

/// A change, applied and recorded as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogChange {
    /// What happens: removals first, then the rest in order.
    pub steps: Vec<ChangeStep>,
    /// No number below this is given to a new object afterwards.
    pub next_id: u64,
}

/// A step of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeStep {
    /// The object of this number is now this.
    Put(Arc<Object>),
    /// The object of this number is gone.
    Remove(u64),
}

impl CatalogChange {
    /// One new or changed object.
    pub fn put(object: Object) -> Self {
        let next_id = object.id + 1;
        Self { steps: vec![ChangeStep::Put(Arc::new(object))], next_id }
    }

    /// Several new or changed objects.
    pub fn put_all(objects: Vec<Object>) -> Self {
        Self { steps: objects.into_iter().map(|object| ChangeStep::Put(Arc::new(object))).collect(), next_id: 0 }
    }

    /// These objects go.
    pub fn remove(ids: impl IntoIterator<Item = u64>) -> Self {
        Self { steps: ids.into_iter().map(ChangeStep::Remove).collect(), next_id: 0 }
    }

    /// The one object that is put, of a change that puts one.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match self.steps.as_slice() {
            [ChangeStep::Put(object)] => Some(object),
            _ => None,
        }
    }
}
