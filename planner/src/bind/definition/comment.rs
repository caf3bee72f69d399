//! COMMENT ON.

use sqlparser::ast::{ObjectName, Spanned};

use crate::{
    bind::binder::Binder,
    catalog::{CatalogChange, Object, QualifiedName},
    error::{PlanError, Result, sqlstate},
    parse::statement::Comment,
};

impl Binder<'_> {
    pub(in crate::bind) fn comment(&self, comment: &Comment) -> Result<CatalogChange> {
        let text = comment.text.clone().filter(|text| !text.is_empty());
        let catalog = self.context.catalog;
        let Some(kind) = comment.kind else {
            let mut parts = comment.name.0.clone();
            let column = parts.pop().ok_or_else(|| PlanError::internal("a name without parts"))?;
            let column = QualifiedName::from_ast(&ObjectName(vec![column]))?.name;
            if parts.is_empty() {
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "column name must be qualified").at(comment.name.span()));
            }
            let object = self.find_relation(&QualifiedName::from_ast(&ObjectName(parts))?, comment.name.span())?;
            let mut changed = Object::clone(&object);
            let found = changed.columns_mut().and_then(|columns| columns.iter_mut().find(|other| other.name == column));
            let found = found.ok_or_else(|| {
                let message = format!("column \"{column}\" of relation \"{}\" does not exist", object.name);
                PlanError::new(sqlstate::UNDEFINED_COLUMN, message)
            })?;
            found.comment = text;
            return Ok(CatalogChange::put_all(vec![changed]));
        };
        let name = QualifiedName::from_ast(&comment.name)?;
        let object = catalog.expect(kind, &name, self.context.search_path).map_err(|mut error| {
            error.hint = None;
            error.at(comment.name.span())
        })?;
        let mut changed = Object::clone(object);
        changed.comment = text;
        Ok(CatalogChange::put_all(vec![changed]))
    }
}
