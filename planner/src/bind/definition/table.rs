//! CREATE TABLE.

use super::{boolean_option, late_rows, option_map};
use crate::{
    bind::{binder::Binder, bound::BoundNotice},
    catalog::{
        CatalogChange, ObjectBody, QualifiedName,
        object::{LateRows, Table},
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::CreateTable,
};

/// Options that a table may have.
const OPTIONS: [&str; 5] = ["late_rows", "append_only", "appendonly", "retention_limit", "fillfactor"];

impl Binder<'_> {
    pub(in crate::bind) fn create_table(&self, create: &CreateTable, sql: &str) -> Result<(Option<CatalogChange>, Vec<BoundNotice>)> {
        let name = QualifiedName::from_ast(&create.name)?;
        let mut notices = Vec::new();
        let Some(place) = self.new_name(&name, create.if_not_exists, &mut notices)? else { return Ok((None, notices)) };
        if create.options.iter().any(|option| option.key == "connector") {
            return Err(PlanError::unsupported("a table with a connector is not supported")
                .with_hint("Use CREATE SOURCE, and a materialized view over it."));
        }
        if let Some(unknown) = create.options.iter().find(|option| !OPTIONS.contains(&option.key.as_str())) {
            let message = format!("unrecognized parameter \"{}\"", unknown.key);
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message).at(unknown.span));
        }
        if create.elements.columns.is_empty() {
            return Err(PlanError::unsupported("a table without columns is not supported").with_hint("Give it a column."));
        }
        let options = option_map(&create.options);
        let elements = self.table_elements(&create.elements, &name.name)?;
        let append_only = boolean_option(&options, "append_only")? || boolean_option(&options, "appendonly")?;
        let late_rows = late_rows(&options, LateRows::Keep)?;
        if late_rows == LateRows::Divert && !append_only {
            return Err(PlanError::unsupported("late_rows = 'divert' needs an append-only table")
                .with_hint("Write APPEND ONLY behind the columns, or keep late rows."));
        }
        let table = Table {
            columns: elements.columns,
            primary_key: elements.primary_key,
            checks: elements.checks,
            watermark: elements.watermark,
            late_rows,
            append_only,
            options,
        };
        Ok((Some(CatalogChange::put(self.new_object(place, sql, ObjectBody::Table(table)))), notices))
    }
}
