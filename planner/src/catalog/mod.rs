//! What exists: schemas, tables, sources, views, materialized views, sinks and indexes, as an immutable value that is cheap to copy.
//!
//! A change ([`CatalogChange`]) gives a new catalog and can be written as a record ([`record`]); the records in order give the catalog back.
//! An object's number never changes and is never used again: it is the object's OID, and the id of its collection.

pub mod change;
pub mod dependency;
pub mod name;
pub mod object;
pub mod record;

use std::{collections::BTreeMap, sync::Arc};

pub use change::{CatalogChange, ChangeStep};
pub use name::{QualifiedName, fold};
pub use object::{Object, ObjectBody};

use crate::{
    error::{PlanError, Result, sqlstate},
    parse::statement::ObjectKind,
};

/// The first number that is given to a user's object; Postgres' own border.
pub const FIRST_USER_ID: u64 = 16_384;
/// Number of the schema `pg_catalog`.
pub const PG_CATALOG_ID: u64 = 11;
/// Number of the schema `public`.
pub const PUBLIC_ID: u64 = 2_200;
/// Number of the schema `information_schema`.
pub const INFORMATION_SCHEMA_ID: u64 = 13_000;
/// Number of the schema `millpond`, which shows jobs, checkpoints and the like.
pub const MILLPOND_ID: u64 = 13_001;
/// The one database.
pub const DATABASE: &str = "millpond";

/// All objects.
#[derive(Clone, Debug)]
pub struct Catalog {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    objects: BTreeMap<u64, Arc<Object>>,
    /// Relations and indexes, which share names, by schema and name.
    names: BTreeMap<(u64, String), u64>,
    schemas: BTreeMap<String, u64>,
    next_id: u64,
}

impl Default for Catalog {
    fn default() -> Self {
        let mut inner = Inner { objects: BTreeMap::new(), names: BTreeMap::new(), schemas: BTreeMap::new(), next_id: FIRST_USER_ID };
        for (id, name) in
            [(PG_CATALOG_ID, "pg_catalog"), (PUBLIC_ID, "public"), (INFORMATION_SCHEMA_ID, "information_schema"), (MILLPOND_ID, "millpond")]
        {
            inner.put(Arc::new(Object::schema(id, name)));
        }
        Self { inner: Arc::new(inner) }
    }
}

impl Inner {
    fn put(&mut self, object: Arc<Object>) {
        if let Some(old) = self.objects.get(&object.id).cloned() {
            self.forget_name(&old);
        }
        if matches!(object.body, ObjectBody::Schema) {
            self.schemas.insert(object.name.clone(), object.id);
        } else {
            self.names.insert((object.schema, object.name.clone()), object.id);
        }
        self.next_id = self.next_id.max(object.id + 1);
        self.objects.insert(object.id, object);
    }

    fn remove(&mut self, id: u64) {
        if let Some(object) = self.objects.remove(&id) {
            self.forget_name(&object);
        }
    }

    /// The name may already belong to another object, when two swap theirs.
    fn forget_name(&mut self, object: &Object) {
        if matches!(object.body, ObjectBody::Schema) {
            self.schemas.remove(&object.name);
        } else {
            let key = (object.schema, object.name.clone());
            if self.names.get(&key) == Some(&object.id) {
                self.names.remove(&key);
            }
        }
    }
}

impl Catalog {
    /// The number the next object gets.
    pub fn next_id(&self) -> u64 {
        self.inner.next_id
    }

    /// The object of a number.
    pub fn get(&self, id: u64) -> Option<&Arc<Object>> {
        self.inner.objects.get(&id)
    }

    /// All objects, by number.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.inner.objects.values()
    }

    /// The schema of a name.
    pub fn schema(&self, name: &str) -> Option<&Arc<Object>> {
        self.get(*self.inner.schemas.get(name)?)
    }

    /// The name of the schema an object is in.
    pub fn schema_name(&self, object: &Object) -> &str {
        self.get(object.schema).map_or("", |schema| schema.name.as_str())
    }

    /// The relation or index of a name in a schema.
    pub fn in_schema(&self, schema: u64, name: &str) -> Option<&Arc<Object>> {
        self.get(*self.inner.names.get(&(schema, name.to_owned()))?)
    }

    /// The relation or index of a name: in its schema, or else in the first schema of the path that has it.
    pub fn find(&self, name: &QualifiedName, search_path: &[String]) -> Option<&Arc<Object>> {
        match &name.schema {
            Some(schema) => self.in_schema(self.schema(schema)?.id, &name.name),
            None => search_path.iter().filter_map(|schema| self.schema(schema)).find_map(|schema| self.in_schema(schema.id, &name.name)),
        }
    }

    /// The object of a kind, for statements that say which kind they mean.
    ///
    /// # Errors
    /// If there is none of the name, or it is of another kind.
    pub fn expect(&self, kind: ObjectKind, name: &QualifiedName, search_path: &[String]) -> Result<&Arc<Object>> {
        if kind == ObjectKind::Schema {
            return self.schema(&name.name).ok_or_else(|| no_schema(&name.name));
        }
        let object = self.find(name, search_path).ok_or_else(|| missing(kind, name))?;
        if object.kind() == kind {
            return Ok(object);
        }
        let article = if kind == ObjectKind::Index { "an" } else { "a" };
        let message = format!("\"{}\" is not {article} {}", object.name, kind.noun());
        let (found, other) = (object.kind().noun(), object.kind().keyword());
        let article = if object.kind() == ObjectKind::Index { "an" } else { "a" };
        Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).with_hint(format!("Use DROP {other} to remove {article} {found}.")))
    }

    /// The schema in which a new object is to be.
    ///
    /// # Errors
    /// 3F000 if it does not exist, 42501 if it is not for users.
    pub fn creation_schema(&self, name: &QualifiedName, search_path: &[String]) -> Result<&Arc<Object>> {
        let schema = match &name.schema {
            Some(schema) => self.schema(schema).ok_or_else(|| no_schema(schema))?,
            None => search_path
                .iter()
                .find_map(|schema| self.schema(schema))
                .ok_or_else(|| PlanError::new(sqlstate::INVALID_SCHEMA_NAME, "no schema has been selected to create in"))?,
        };
        if schema.id != PUBLIC_ID && schema.id < FIRST_USER_ID {
            let message = format!("permission denied to create \"{}.{}\"", schema.name, name.name);
            return Err(PlanError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("System catalog modifications are currently disallowed."));
        }
        Ok(schema)
    }

    /// The object as an error message names it: with its schema if the path does not lead to it.
    pub fn shown_name(&self, object: &Object, search_path: &[String]) -> String {
        let plain = QualifiedName { schema: None, name: object.name.clone() };
        let visible =
            matches!(object.body, ObjectBody::Schema) || self.find(&plain, search_path).is_some_and(|found| found.id == object.id);
        if visible {
            name::quoted(&object.name)
        } else {
            format!("{}.{}", name::quoted(self.schema_name(object)), name::quoted(&object.name))
        }
    }

    /// The catalog after a change.
    ///
    /// # Errors
    /// 42P07, 42P06: a name would belong to two objects.
    pub fn apply(&self, change: &CatalogChange) -> Result<Self> {
        let mut inner = Inner::clone(&self.inner);
        for step in &change.steps {
            if let ChangeStep::Remove(id) = step {
                inner.remove(*id);
            }
        }
        for step in &change.steps {
            let ChangeStep::Put(object) = step else { continue };
            let owner = match object.body {
                ObjectBody::Schema => inner.schemas.get(&object.name),
                _ => inner.names.get(&(object.schema, object.name.clone())),
            };
            if owner.is_some_and(|owner| *owner != object.id) {
                return Err(already_exists(object));
            }
            inner.put(Arc::clone(object));
        }
        inner.next_id = inner.next_id.max(change.next_id);
        Ok(Self { inner: Arc::new(inner) })
    }
}

/// 42P07 or 42P06.
pub fn already_exists(object: &Object) -> PlanError {
    match object.body {
        ObjectBody::Schema => PlanError::new(sqlstate::DUPLICATE_SCHEMA, format!("schema \"{}\" already exists", object.name)),
        _ => PlanError::new(sqlstate::DUPLICATE_TABLE, format!("relation \"{}\" already exists", object.name)),
    }
}

/// 3F000.
pub fn no_schema(name: &str) -> PlanError {
    PlanError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

/// The error that an object of a kind does not exist.
pub fn missing(kind: ObjectKind, name: &QualifiedName) -> PlanError {
    let code = match kind {
        ObjectKind::Index | ObjectKind::Sink => sqlstate::UNDEFINED_OBJECT,
        ObjectKind::Schema => sqlstate::INVALID_SCHEMA_NAME,
        _ => sqlstate::UNDEFINED_TABLE,
    };
    PlanError::new(code, format!("{} \"{name}\" does not exist", kind.noun()))
}

#[cfg(test)]
mod tests;
