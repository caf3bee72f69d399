//! ON CONFLICT.

use datafusion::{
    common::{Column, TableReference},
    logical_expr::Expr,
};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction};

use super::target::{column_numbers, table_of};
use crate::{
    bind::{
        binder::Binder,
        bound::OnConflict,
        expression::Place,
        scope::{Scope, ScopeColumn},
    },
    catalog::{Object, QualifiedName},
    error::{PlanError, Result, sqlstate},
};

impl Binder<'_> {
    pub(super) fn on_conflict(&self, clause: &ast::OnConflict, table: &Object, alias: &str) -> Result<OnConflict> {
        self.check_conflict_target(clause.conflict_target.as_ref(), table)?;
        let update = match &clause.action {
            OnConflictAction::DoNothing => return Ok(OnConflict::Nothing),
            OnConflictAction::DoUpdate(update) => update,
        };
        if clause.conflict_target.is_none() {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).with_hint("For example, ON CONFLICT (column_name)."));
        }
        let mut scope = row_scope(table, OnConflict::EXISTING, alias, self.context.catalog.schema_name(table));
        let excluded = row_scope(table, OnConflict::EXCLUDED, OnConflict::EXCLUDED, "");
        let own = scope.visible.clone();
        scope.append(excluded)?;
        // Names without a relation mean the row that is there.
        scope.visible = own;
        let place = Place::scalar("UPDATE");
        let assigned = self.assignments(&update.assignments, table, &scope, &place)?;
        let mut assignments = Vec::with_capacity(table.columns().len());
        for (number, column) in table.columns().iter().enumerate() {
            assignments.push(match assigned.iter().find(|(target, _)| *target == number) {
                Some((_, value)) => value.expr.clone(),
                None => Expr::Column(Column::new(Some(TableReference::bare(OnConflict::EXISTING)), &column.name)),
            });
        }
        let condition = match &update.selection {
            Some(selection) => Some(self.condition_of(selection, &scope, &Place::scalar("WHERE"))?),
            None => None,
        };
        if assignments.iter().chain(&condition).any(Expr::contains_scalar_subquery) {
            return Err(PlanError::unsupported("subqueries in ON CONFLICT DO UPDATE are not supported")
                .with_hint("Compute them in the INSERT's query."));
        }
        Ok(OnConflict::Update { assignments, condition })
    }

    fn check_conflict_target(&self, target: Option<&ConflictTarget>, table: &Object) -> Result<()> {
        let key = table_of(table)?.primary_key.as_ref();
        match target {
            None => Ok(()),
            Some(ConflictTarget::Columns(names)) => {
                let mut columns = column_numbers(table, names)?;
                columns.sort_unstable();
                let mut wanted = key.map(|key| key.columns.clone()).unwrap_or_default();
                wanted.sort_unstable();
                if key.is_some() && columns == wanted {
                    return Ok(());
                }
                let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message))
            }
            Some(ConflictTarget::OnConstraint(name)) => {
                let name = QualifiedName::from_ast(name)?.name;
                match key {
                    Some(key) if key.name == name => Ok(()),
                    _ => {
                        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                        Err(PlanError::new(sqlstate::UNDEFINED_OBJECT, message))
                    }
                }
            }
        }
    }
}

/// The columns of a row of a table, under a qualifier of the plan and a name of the user's.
pub(super) fn row_scope<'p>(table: &Object, qualifier: &str, name: &str, schema: &str) -> Scope<'p> {
    let columns = table.columns().iter().enumerate().map(|(index, column)| ScopeColumn {
        name: column.name.clone(),
        column: Column::new(Some(TableReference::bare(qualifier)), &column.name),
        sql_type: column.sql_type.clone(),
        modifier: column.modifier,
        nullable: !column.not_null,
        origin: i16::try_from(index + 1).ok().map(|number| (table.id, number)),
    });
    let schema = (!schema.is_empty()).then(|| schema.to_owned());
    Scope::of_relation(name, schema, columns.collect())
}
