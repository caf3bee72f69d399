//! CREATE SOURCE.

use super::{late_rows, option_map};
use crate::{
    bind::{binder::Binder, bound::BoundNotice},
    catalog::{
        CatalogChange, Object, ObjectBody, QualifiedName,
        object::{Column, LateRows, Source},
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::CreateSource,
};

impl Binder<'_> {
    pub(in crate::bind) fn create_source(&self, create: &CreateSource, sql: &str) -> Result<(Option<CatalogChange>, Vec<BoundNotice>)> {
        let name = QualifiedName::from_ast(&create.name)?;
        let mut notices = Vec::new();
        let Some(place) = self.new_name(&name, create.if_not_exists, &mut notices)? else { return Ok((None, notices)) };
        let options = option_map(&create.options);
        if !options.contains_key("connector") {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "missing option \"connector\"")
                .with_hint("For example, WITH (connector = 'file', path = '...', format = 'csv')."));
        }
        // A watermark on columns still to be inferred is settled with them; its text stays in the statement.
        let mut definition = create.elements.clone();
        let inferred = definition.columns.is_empty();
        if inferred {
            definition.watermark = None;
        }
        let elements = self.table_elements(&definition, &name.name)?;
        if elements.primary_key.is_some() {
            return Err(PlanError::unsupported("a primary key of a source is not supported").with_hint("Sources are append-only streams."));
        }
        if !elements.checks.is_empty() || elements.columns.iter().any(|column| column.default.is_some()) {
            return Err(PlanError::unsupported("CHECK and DEFAULT of a source are not supported").with_hint("Use a view over it."));
        }
        let source =
            Source { columns: elements.columns, watermark: elements.watermark, late_rows: late_rows(&options, LateRows::Divert)?, options };
        Ok((Some(CatalogChange::put(self.new_object(place, sql, ObjectBody::Source(source)))), notices))
    }

    /// The source with columns that were inferred from its files, and the watermark that its statement puts on one of them.
    pub(in crate::bind) fn source_with_columns(&self, create: &CreateSource, object: &Object, columns: Vec<Column>) -> Result<Object> {
        let mut object = object.clone();
        let ObjectBody::Source(source) = &mut object.body else { return Err(PlanError::internal("the object is no source")) };
        super::distinct_names(&columns)?;
        source.watermark = match &create.elements.watermark {
            Some(definition) => Some(self.watermark(definition, &columns)?),
            None => None,
        };
        source.columns = columns;
        Ok(object)
    }
}
