//! Statements that change the catalog: each gives a change to be applied and recorded, and the plan of a stored query.

mod alter;
mod columns;
mod comment;
mod drop;
mod index;
mod sink;
mod source;
mod table;
mod table_as;
mod view;

use std::collections::BTreeMap;

pub use self::columns::{checks_of, default_of};
use super::{
    binder::Binder,
    bound::{BoundNotice, BoundQuery},
};
use crate::{
    catalog::{
        Catalog, CatalogChange, Object, ObjectBody, QualifiedName, already_exists,
        object::{Column, LateRows, QuerySettings},
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::WithOption,
};

/// Where a new object will be.
pub(super) struct NewName {
    pub(super) schema: u64,
    pub(super) name: String,
}

impl Binder<'_> {
    /// The place of a new object; `None` and a NOTICE if the name is taken and IF NOT EXISTS was said.
    ///
    /// # Errors
    /// 42P07 if the name is taken.
    pub(super) fn new_name(&self, name: &QualifiedName, if_not_exists: bool, notices: &mut Vec<BoundNotice>) -> Result<Option<NewName>> {
        let catalog = self.context.catalog;
        let schema = catalog.creation_schema(name, self.context.search_path)?;
        match catalog.in_schema(schema.id, &name.name) {
            None => Ok(Some(NewName { schema: schema.id, name: name.name.clone() })),
            Some(_) if if_not_exists => {
                notices.push(BoundNotice {
                    sqlstate: sqlstate::DUPLICATE_TABLE,
                    ..BoundNotice::new(format!("relation \"{}\" already exists, skipping", name.name))
                });
                Ok(None)
            }
            Some(object) => Err(already_exists(object)),
        }
    }

    /// A new object that depends on what the statement has named so far.
    pub(super) fn new_object(&self, place: NewName, sql: &str, body: ObjectBody) -> Object {
        Object {
            id: self.context.catalog.next_id(),
            schema: place.schema,
            name: place.name,
            comment: None,
            depends_on: self.dependencies(),
            sql: sql.to_owned(),
            body,
        }
    }

    pub(super) fn create_schema(&self, name: &str, if_not_exists: bool, sql: &str) -> Result<(Option<CatalogChange>, Vec<BoundNotice>)> {
        if let Some(schema) = self.context.catalog.schema(name) {
            if !if_not_exists {
                return Err(already_exists(schema));
            }
            let message = format!("schema \"{name}\" already exists, skipping");
            return Ok((None, vec![BoundNotice { sqlstate: sqlstate::DUPLICATE_SCHEMA, ..BoundNotice::new(message) }]));
        }
        if name.starts_with("pg_") {
            return Err(PlanError::new(sqlstate::RESERVED_NAME, format!("unacceptable schema name \"{name}\""))
                .with_detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        let mut object = Object::schema(self.context.catalog.next_id(), name);
        object.sql = sql.to_owned();
        Ok((Some(CatalogChange::put(object)), Vec::new()))
    }

    /// The settings that a stored query keeps.
    pub(super) fn query_settings(&self) -> QuerySettings {
        crate::bind::statement::settings_of(self.context.text)
    }

    /// Refuses parameters in a definition.
    pub(super) fn no_parameters(&self, query: &BoundQuery) -> Result<()> {
        if query.parameters.is_empty() {
            return Ok(());
        }
        Err(PlanError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1"))
    }
}

/// Options by key.
pub(super) fn option_map(options: &[WithOption]) -> BTreeMap<String, String> {
    options.iter().map(|option| (option.key.clone(), option.value.clone())).collect()
}

/// `late_rows = 'divert' | 'keep'`
pub(super) fn late_rows(options: &BTreeMap<String, String>, default: LateRows) -> Result<LateRows> {
    match options.get("late_rows").map(|value| value.to_lowercase()).as_deref() {
        None => Ok(default),
        Some("divert") => Ok(LateRows::Divert),
        Some("keep") => Ok(LateRows::Keep),
        Some(other) => Err(invalid_option("late_rows", other).with_hint("Available values: divert, keep.")),
    }
}

/// A boolean option.
pub(super) fn boolean_option(options: &BTreeMap<String, String>, key: &str) -> Result<bool> {
    match options.get(key).map(|value| value.to_lowercase()).as_deref() {
        None | Some("false" | "off" | "no" | "0") => Ok(false),
        Some("true" | "on" | "yes" | "1" | "") => Ok(true),
        Some(other) => {
            Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid value for boolean option \"{key}\": {other}")))
        }
    }
}

pub(super) fn invalid_option(key: &str, value: &str) -> PlanError {
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("invalid value for option \"{key}\": \"{value}\""))
}

/// Refuses two columns of one name.
pub(super) fn distinct_names(columns: &[Column]) -> Result<()> {
    for (index, column) in columns.iter().enumerate() {
        if columns[..index].iter().any(|other| other.name == column.name) {
            let message = format!("column \"{}\" specified more than once", column.name);
            return Err(PlanError::new(sqlstate::DUPLICATE_COLUMN, message));
        }
    }
    Ok(())
}

/// A name that no object of the schema has: `t_v_idx`, `t_v_idx1`.
pub(super) fn free_name(catalog: &Catalog, schema: u64, wanted: &str) -> String {
    let taken = |name: &str| catalog.in_schema(schema, name).is_some();
    if !taken(wanted) {
        return wanted.to_owned();
    }
    let numbered = (1_u64..).map(|number| format!("{wanted}{number}"));
    numbered.into_iter().find(|name| !taken(name)).unwrap_or_else(|| wanted.to_owned())
}
