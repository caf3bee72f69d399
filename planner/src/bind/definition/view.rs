//! CREATE VIEW and CREATE MATERIALIZED VIEW.

use std::collections::BTreeSet;

use super::{option_map, table_as::named_columns};
use crate::{
    bind::{binder::Binder, bound::BoundCreateAs, reference::write_out},
    catalog::{
        CatalogChange, Object, ObjectBody, QualifiedName,
        object::{Column, MaterializedView, View},
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::{CreateView, ObjectKind},
};

impl Binder<'_> {
    pub(in crate::bind) fn create_view(&self, create: &CreateView, sql: &str) -> Result<BoundCreateAs> {
        let name = QualifiedName::from_ast(&create.name)?;
        let mut notices = Vec::new();
        let replaced = if create.or_replace { self.replaced_view(&name)? } else { None };
        let place = match &replaced {
            Some(_) => None,
            None => self.new_name(&name, create.if_not_exists, &mut notices)?,
        };
        let query = self.top_query(&create.query)?;
        self.no_parameters(&query)?;
        if place.is_none() && replaced.is_none() {
            return Ok(BoundCreateAs { change: None, query, fill: false, notices });
        }
        let too_many = if create.materialized {
            "too many column names were specified"
        } else {
            "CREATE VIEW specifies more column names than columns"
        };
        let columns = named_columns(&query, &create.columns, too_many)?;
        let definition = write_out(&create.query_text.text, create.query_text.start, &self.references(), self.context.catalog)?;
        if create.materialized && columns.is_empty() {
            return Err(PlanError::unsupported("a materialized view without columns is not supported"));
        }
        let body = if create.materialized {
            ObjectBody::MaterializedView(MaterializedView {
                columns,
                definition,
                emit_on_window_close: create.emit_on_window_close,
                options: option_map(&create.options),
                settings: self.query_settings(),
                unique_key: None,
                join_order: None,
            })
        } else {
            if create.emit_on_window_close {
                return Err(PlanError::unsupported("EMIT ON WINDOW CLOSE is for materialized views and sinks"));
            }
            ObjectBody::View(View { columns, definition })
        };
        let object = match (replaced, place) {
            (Some(old), _) => self.replacement(&old, body, sql)?,
            (None, Some(place)) => self.new_object(place, sql, body),
            (None, None) => return Err(PlanError::internal("a view without a place")),
        };
        Ok(BoundCreateAs { change: Some(CatalogChange::put(object)), query, fill: false, notices })
    }

    fn replaced_view(&self, name: &QualifiedName) -> Result<Option<Object>> {
        let catalog = self.context.catalog;
        let schema = catalog.creation_schema(name, self.context.search_path)?;
        match catalog.in_schema(schema.id, &name.name) {
            None => Ok(None),
            Some(object) if object.kind() == ObjectKind::View => Ok(Some(Object::clone(object))),
            Some(_) => Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{}\" is not a view", name.name))),
        }
    }

    /// The same view with another query, which must keep the columns there are.
    fn replacement(&self, old: &Object, body: ObjectBody, sql: &str) -> Result<Object> {
        let depends_on: BTreeSet<u64> = self.dependencies();
        if depends_on.contains(&old.id) {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", old.name);
            return Err(PlanError::new(sqlstate::INVALID_OBJECT_DEFINITION, message));
        }
        let object = Object { depends_on, sql: sql.to_owned(), body, ..old.clone() };
        keeps_columns(old.columns(), object.columns())?;
        Ok(object)
    }
}

fn keeps_columns(old: &[Column], new: &[Column]) -> Result<()> {
    let refuse = |message: String| Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
    if new.len() < old.len() {
        return refuse("cannot drop columns from view".to_owned());
    }
    for (old, new) in old.iter().zip(new) {
        if old.name != new.name {
            return refuse(format!("cannot change name of view column \"{}\" to \"{}\"", old.name, new.name));
        }
        if !old.sql_type.same(&new.sql_type) {
            let (from, to) = (old.sql_type.name_with(old.modifier), new.sql_type.name_with(new.modifier));
            return refuse(format!("cannot change data type of view column \"{}\" from {from} to {to}", old.name));
        }
    }
    Ok(())
}
