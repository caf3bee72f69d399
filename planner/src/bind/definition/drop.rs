//! DROP.

use crate::{
    bind::{
        binder::Binder,
        bound::{BoundDrop, BoundNotice},
    },
    catalog::{CatalogChange, QualifiedName},
    error::{Result, sqlstate},
    parse::statement::{Drop, ObjectKind},
};
use sqlparser::ast::Spanned;

impl Binder<'_> {
    pub(in crate::bind) fn drop_objects(&self, drop: &Drop) -> Result<BoundDrop> {
        let catalog = self.context.catalog;
        let mut targets = Vec::with_capacity(drop.names.len());
        let mut notices = Vec::new();
        for name in &drop.names {
            let qualified = QualifiedName::from_ast(name)?;
            match catalog.expect(drop.kind, &qualified, self.context.search_path) {
                Ok(object) if targets.contains(&object.id) => {}
                Ok(object) => targets.push(object.id),
                Err(error) if drop.if_exists && is_missing(error.sqlstate) => {
                    let subject = missing_subject(drop.kind, &qualified, |schema| catalog.schema(schema).is_some());
                    notices.push(BoundNotice::new(format!("{subject} does not exist, skipping")));
                }
                Err(error) => return Err(error.at(name.span())),
            }
        }
        if targets.is_empty() {
            return Ok(BoundDrop { ids: Vec::new(), change: None, notices });
        }
        let plan = catalog.plan_drop(&targets, drop.cascade, self.context.search_path)?;
        if let Some((message, detail)) = plan.notice {
            notices.push(BoundNotice { detail, ..BoundNotice::new(message) });
        }
        let change = Some(CatalogChange::remove(plan.ids.iter().copied()));
        Ok(BoundDrop { ids: plan.ids, change, notices })
    }
}

fn is_missing(code: &str) -> bool {
    [sqlstate::UNDEFINED_TABLE, sqlstate::UNDEFINED_OBJECT, sqlstate::INVALID_SCHEMA_NAME].contains(&code)
}

/// What does not exist: the object, or already its schema.
fn missing_subject(kind: ObjectKind, name: &QualifiedName, has_schema: impl Fn(&str) -> bool) -> String {
    match &name.schema {
        Some(schema) if kind != ObjectKind::Schema && !has_schema(schema) => format!("schema \"{schema}\""),
        _ => format!("{} \"{}\"", kind.noun(), name.name),
    }
}
