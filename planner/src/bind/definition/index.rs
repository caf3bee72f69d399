//! CREATE INDEX.

use sqlparser::ast::Spanned;

use super::{NewName, free_name};
use crate::{
    bind::{
        binder::Binder,
        bound::BoundNotice,
        reference::{Form, Reference},
    },
    catalog::{CatalogChange, ObjectBody, QualifiedName, already_exists, fold, object::Index},
    error::{PlanError, Result, sqlstate},
    parse::statement::CreateIndex,
};

impl Binder<'_> {
    /// The change, and the notice that it makes nothing faster.
    pub(in crate::bind) fn create_index(&self, create: &CreateIndex, sql: &str) -> Result<(Option<CatalogChange>, Vec<BoundNotice>)> {
        let span = create.table.span();
        let table = self.find_relation(&QualifiedName::from_ast(&create.table)?, span)?;
        if !matches!(table.body, ObjectBody::Table(_) | ObjectBody::MaterializedView(_)) {
            let message = format!("cannot create index on relation \"{}\"", table.name);
            return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message)
                .with_detail("Only tables and materialized views have indexes.")
                .at(span));
        }
        if create.unique {
            return Err(PlanError::unsupported("unique indexes are not supported").with_hint("Declare a PRIMARY KEY."));
        }
        let mut columns = Vec::with_capacity(create.columns.len());
        for (ident, descending) in &create.columns {
            let name = fold(ident);
            let number =
                table.columns().iter().position(|column| column.name == name).ok_or_else(|| {
                    PlanError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")).at(ident.span)
                })?;
            columns.push((number, *descending));
        }
        let catalog = self.context.catalog;
        let name = match &create.name {
            Some(name) => fold(name),
            None => {
                let parts: Vec<&str> = columns.iter().map(|(number, _)| table.columns()[*number].name.as_str()).collect();
                free_name(catalog, table.schema, &format!("{}_{}_idx", table.name, parts.join("_")))
            }
        };
        if let Some(other) = catalog.in_schema(table.schema, &name) {
            if !create.if_not_exists {
                return Err(already_exists(other));
            }
            return Ok((None, vec![BoundNotice::new(format!("relation \"{name}\" already exists, skipping"))]));
        }
        self.depend_on(Reference { id: table.id, span, form: Form::Name { implied_alias: None } });
        let body = ObjectBody::Index(Index { relation: table.id, columns, unique: false });
        let notice = BoundNotice {
            detail: Some(
                "Lookups are fast by the primary key of a table and the key of a materialized view; others read the whole relation."
                    .to_owned(),
            ),
            ..BoundNotice::new(format!("index \"{name}\" is kept in the catalog, but no query uses it yet"))
        };
        let object = self.new_object(NewName { schema: table.schema, name }, sql, body);
        Ok((Some(CatalogChange::put(object)), vec![notice]))
    }
}
