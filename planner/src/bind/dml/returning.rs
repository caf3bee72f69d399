//! RETURNING.

use datafusion::logical_expr::Expr;
use sqlparser::ast::SelectItem;

use super::conflict::row_scope;
use crate::{
    bind::{
        binder::Binder,
        bound::{OutputColumn, Returning},
        expression::Place,
        scope::Scope,
    },
    catalog::Object,
    error::{PlanError, Result},
};

impl Binder<'_> {
    /// RETURNING over one row of a table.
    pub(super) fn returning_of_row(&self, items: &[SelectItem], table: &Object, alias: &str) -> Result<Returning> {
        let scope = row_scope(table, Returning::ROW, alias, self.context.catalog.schema_name(table));
        let (expressions, columns) = self.returning_list(items, &scope)?;
        if expressions.iter().any(Expr::contains_scalar_subquery) {
            return Err(PlanError::unsupported("subqueries in RETURNING of INSERT are not supported"));
        }
        Ok(Returning { expressions, columns })
    }

    /// RETURNING over the relations of a scope.
    pub(super) fn returning_list(&self, items: &[SelectItem], scope: &Scope<'_>) -> Result<(Vec<Expr>, Vec<OutputColumn>)> {
        let outputs = self.select_list(items, scope, &Place::scalar("RETURNING"))?;
        let mut expressions = Vec::with_capacity(outputs.len());
        let mut columns = Vec::with_capacity(outputs.len());
        for output in outputs {
            let value = self.shown(self.known(output.value)?)?;
            columns.push(OutputColumn {
                name: output.name,
                sql_type: value.sql_type.clone(),
                modifier: value.modifier,
                origin: output.origin,
                nullable: true,
            });
            expressions.push(value.expr);
        }
        Ok((expressions, columns))
    }
}
