//! CREATE TABLE .. AS.

use std::collections::BTreeMap;

use super::distinct_names;
use crate::{
    bind::{
        binder::Binder,
        bound::{BoundCreateAs, BoundQuery},
    },
    catalog::{
        CatalogChange, ObjectBody, QualifiedName, fold,
        object::{Column, LateRows, Table},
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::CreateTableAs,
};
use sqlparser::ast::Ident;

impl Binder<'_> {
    pub(in crate::bind) fn create_table_as(&self, create: &CreateTableAs, sql: &str) -> Result<BoundCreateAs> {
        let name = QualifiedName::from_ast(&create.name)?;
        let mut notices = Vec::new();
        let place = self.new_name(&name, create.if_not_exists, &mut notices)?;
        let query = self.top_query(&create.query)?;
        self.no_parameters(&query)?;
        let Some(place) = place else { return Ok(BoundCreateAs { change: None, query, fill: false, notices }) };
        let columns = named_columns(&query, &create.columns, "too many column names were specified")?;
        let table = Table {
            columns,
            primary_key: None,
            checks: Vec::new(),
            watermark: None,
            late_rows: LateRows::Keep,
            append_only: false,
            options: BTreeMap::new(),
        };
        let mut object = self.new_object(place, sql, ObjectBody::Table(table));
        // The rows are copied; the table needs nothing afterwards.
        object.depends_on.clear();
        Ok(BoundCreateAs { change: Some(CatalogChange::put(object)), query, fill: !create.no_data, notices })
    }
}

/// The columns of a query with the names that a definition gives to the first ones.
pub(super) fn named_columns(query: &BoundQuery, names: &[Ident], too_many: &str) -> Result<Vec<Column>> {
    if names.len() > query.columns.len() {
        return Err(PlanError::new(sqlstate::SYNTAX_ERROR, too_many));
    }
    let mut columns: Vec<Column> =
        query.columns.iter().map(|column| Column::new(column.name.clone(), column.sql_type.clone(), column.modifier)).collect();
    for (column, name) in columns.iter_mut().zip(names) {
        column.name = fold(name);
    }
    for column in &columns {
        if matches!(column.sql_type, crate::types::SqlType::Record(_) | crate::types::SqlType::Void) {
            let message = format!("column \"{}\" has pseudo-type {}", column.name, column.sql_type.name());
            return Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
        }
    }
    distinct_names(&columns)?;
    Ok(columns)
}
