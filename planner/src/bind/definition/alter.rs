//! ALTER .. RENAME and SET SCHEMA.
//!
//! Stored queries name relations by name; when one gets another name, the queries that use it are written anew and must still bind.

use std::sync::Arc;

use sqlparser::{ast::Spanned, tokenizer::Location};

use crate::{
    bind::{
        BindContext,
        binder::Binder,
        bound::{BoundAlterJob, BoundNotice, JobAction},
        reference::{Reference, write_out},
    },
    catalog::{Catalog, CatalogChange, ChangeStep, Object, ObjectBody, QualifiedName, already_exists, fold, no_schema},
    error::{PlanError, Result, sqlstate},
    parse::{
        self,
        statement::{Alter, AlterAction, ObjectKind},
    },
};

impl Binder<'_> {
    /// SET, RESET, RESUME and FAIL SUBTASK; a notice if there is no such object and IF EXISTS was said.
    pub(in crate::bind) fn alter_job(&self, alter: &Alter) -> Result<std::result::Result<BoundAlterJob, BoundNotice>> {
        let object = match self.existing_target(alter)? {
            Ok(object) => object,
            Err(notice) => return Ok(Err(notice)),
        };
        let mut changed = Object::clone(&object);
        let options = match &mut changed.body {
            ObjectBody::MaterializedView(view) => &mut view.options,
            ObjectBody::Sink(sink) => &mut sink.options,
            _ => {
                let message = format!("this form of ALTER {} is not supported", alter.kind.keyword());
                return Err(PlanError::unsupported(message).with_hint("Materialized views and sinks have options that can be changed."));
            }
        };
        let action = match &alter.action {
            AlterAction::Resume { skip } => JobAction::Resume { skip: *skip },
            AlterAction::FailSubtask { fragment, subtask } => JobAction::FailSubtask { fragment: *fragment, subtask: *subtask },
            AlterAction::SetOptions(settings) => {
                for (name, value) in settings {
                    match value {
                        Some(value) => options.insert(name.clone(), value.clone()),
                        None => options.remove(name),
                    };
                }
                let names = settings.iter().map(|(name, _)| name.clone()).collect();
                JobAction::SetOptions(CatalogChange::put_all(vec![changed]), names)
            }
            _ => return Err(PlanError::internal("an ALTER that is not about a job")),
        };
        Ok(Ok(BoundAlterJob { id: object.id, action }))
    }

    fn existing_target(&self, alter: &Alter) -> Result<std::result::Result<Arc<Object>, BoundNotice>> {
        let name = QualifiedName::from_ast(&alter.name)?;
        match self.alter_target(alter.kind, &name) {
            Ok(object) => Ok(Ok(object)),
            Err(error) if alter.if_exists && error.sqlstate != sqlstate::WRONG_OBJECT_TYPE => {
                Ok(Err(BoundNotice::new(format!("relation \"{}\" does not exist, skipping", name.name))))
            }
            Err(error) => Err(error.at(alter.name.span())),
        }
    }

    pub(in crate::bind) fn alter(&self, alter: &Alter) -> Result<(Option<CatalogChange>, Vec<BoundNotice>)> {
        let object = match self.existing_target(alter)? {
            Ok(object) => object,
            Err(notice) => return Ok((None, vec![notice])),
        };
        let mut changed = Object::clone(&object);
        match &alter.action {
            AlterAction::Owner(_) => return Ok((None, Vec::new())),
            AlterAction::Rename(new) => {
                changed.name = fold(new);
                self.check_free(&object, &changed)?;
            }
            AlterAction::SetSchema(schema) => {
                let schema = fold(schema);
                let target = self.context.catalog.schema(&schema).ok_or_else(|| no_schema(&schema))?;
                let probe = QualifiedName { schema: Some(schema), name: object.name.clone() };
                self.context.catalog.creation_schema(&probe, self.context.search_path)?;
                changed.schema = target.id;
                self.check_free(&object, &changed)?;
            }
            AlterAction::SetOptions(_) | AlterAction::Resume { .. } | AlterAction::FailSubtask { .. } => {
                return Err(PlanError::internal("an ALTER of a job changes no name"));
            }
            AlterAction::RenameColumn(from, to) => return self.rename_column(&object, &fold(from), &fold(to)),
        }
        if changed == *object {
            return Ok((None, Vec::new()));
        }
        let change = self.with_dependants(&object, changed)?;
        Ok((Some(change), Vec::new()))
    }

    /// ALTER TABLE is said of any relation, as in Postgres.
    fn alter_target(&self, kind: ObjectKind, name: &QualifiedName) -> Result<Arc<Object>> {
        let catalog = self.context.catalog;
        match kind {
            ObjectKind::Table => match catalog.find(name, self.context.search_path) {
                Some(object) => Ok(Arc::clone(object)),
                None => Err(PlanError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))),
            },
            ObjectKind::Schema => catalog.schema(&name.name).map(Arc::clone).ok_or_else(|| no_schema(&name.name)),
            _ => catalog.expect(kind, name, self.context.search_path).map(Arc::clone).map_err(|mut error| {
                // The hint of DROP is no help here.
                error.hint = None;
                error
            }),
        }
    }

    fn check_free(&self, old: &Object, new: &Object) -> Result<()> {
        let catalog = self.context.catalog;
        let owner = match new.body {
            ObjectBody::Schema if old.id < crate::catalog::FIRST_USER_ID => {
                let message = format!("permission denied: \"{}\" is a system schema", old.name);
                return Err(PlanError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message));
            }
            ObjectBody::Schema => catalog.schema(&new.name),
            _ => catalog.in_schema(new.schema, &new.name),
        };
        match owner {
            Some(owner) if owner.id != new.id => Err(already_exists(new)),
            _ => Ok(()),
        }
    }

    fn rename_column(&self, object: &Object, from: &str, to: &str) -> Result<(Option<CatalogChange>, Vec<BoundNotice>)> {
        let mut changed = object.clone();
        let missing = || PlanError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{from}\" does not exist"));
        let columns = changed.columns_mut().ok_or_else(missing)?;
        if columns.iter().any(|column| column.name == to) {
            let message = format!("column \"{to}\" of relation \"{}\" already exists", object.name);
            return Err(PlanError::new(sqlstate::DUPLICATE_COLUMN, message));
        }
        columns.iter_mut().find(|column| column.name == from).ok_or_else(missing)?.name = to.to_owned();
        let used: Vec<&Object> =
            self.context.catalog.dependants(object.id).filter(|dependant| dependant.kind() != ObjectKind::Index).collect();
        let in_checks = object.table().is_some_and(|table| !table.checks.is_empty());
        if let Some(dependant) = used.first() {
            let message =
                format!("cannot rename column \"{from}\" because {} {} depends on the relation", dependant.kind().noun(), dependant.name);
            return Err(PlanError::unsupported(message).with_hint("Drop the dependent object, rename, and create it again."));
        }
        if in_checks || !matches!(object.body, ObjectBody::Table(_)) {
            let message = format!("renaming a column of {} \"{}\" is not supported", object.kind().noun(), object.name);
            return Err(PlanError::unsupported(message).with_hint("Create a view with the other name."));
        }
        Ok((Some(CatalogChange::put_all(vec![changed])), Vec::new()))
    }

    /// The changed object, with the stored queries that name it, or objects of the changed schema.
    fn with_dependants(&self, old: &Object, changed: Object) -> Result<CatalogChange> {
        let catalog = self.context.catalog;
        let renamed = catalog.apply(&CatalogChange::put_all(vec![changed.clone()]))?;
        let mut affected: Vec<u64> = match old.body {
            ObjectBody::Schema => {
                let members: Vec<u64> = catalog.objects().filter(|object| object.schema == old.id).map(|object| object.id).collect();
                members.iter().flat_map(|member| catalog.dependants(*member).map(|object| object.id)).collect()
            }
            _ => catalog.dependants(old.id).map(|object| object.id).collect(),
        };
        affected.sort_unstable();
        affected.dedup();
        let mut steps = vec![ChangeStep::Put(Arc::new(changed))];
        for id in affected {
            let Some(dependant) = catalog.get(id) else { continue };
            let Some(definition) = dependant.definition() else { continue };
            let mut rewritten = Object::clone(dependant);
            rewritten.set_definition(self.rewritten(definition, &renamed, dependant)?);
            steps.push(ChangeStep::Put(Arc::new(rewritten)));
        }
        let change = CatalogChange { steps, next_id: 0 };
        self.check_definitions(&change)?;
        Ok(change)
    }

    /// A stored query with the names that another catalog has.
    fn rewritten(&self, definition: &str, renamed: &Catalog, dependant: &Object) -> Result<String> {
        let query = parse::parse_query(definition)?;
        let binder = Binder::new(self.context);
        binder.top_query(&query).map_err(|error| refused(dependant, &error))?;
        let references: Vec<Reference> = binder.references();
        write_out(definition, Location { line: 1, column: 1 }, &references, renamed)
    }

    /// Every stored query of a change binds in the catalog after it.
    fn check_definitions(&self, change: &CatalogChange) -> Result<()> {
        let catalog = self.context.catalog.apply(change)?;
        let context = BindContext { catalog: &catalog, ..*self.context };
        for step in &change.steps {
            let ChangeStep::Put(object) = step else { continue };
            let Some(definition) = object.definition() else { continue };
            let query = parse::parse_query(definition)?;
            Binder::new(&context).top_query(&query).map_err(|error| refused(object, &error))?;
        }
        Ok(())
    }
}

fn refused(dependant: &Object, error: &PlanError) -> PlanError {
    let message = format!("cannot rename because {} {} depends on the name", dependant.kind().noun(), dependant.name);
    PlanError::unsupported(message).with_detail(error.message.clone()).with_hint("Drop the dependent object, rename, and create it again.")
}
