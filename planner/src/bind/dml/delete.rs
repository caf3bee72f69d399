//! DELETE.

use datafusion::{
    common::Column,
    logical_expr::{Expr, LogicalPlanBuilder},
};
use sqlparser::ast::{self, FromTable, Spanned};

use crate::{
    bind::{binder::Binder, bound::BoundDelete},
    error::{PlanError, Result, sqlstate},
    parse::statement::WithCommon,
};

impl Binder<'_> {
    pub(in crate::bind) fn delete(&self, WithCommon { with, statement: delete }: &WithCommon<ast::Delete>) -> Result<BoundDelete> {
        let tables = match &delete.from {
            FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables) => tables,
        };
        let [target] = tables.as_slice() else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "DELETE needs the name of one table").at(delete.span()));
        };
        if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() || delete.output.is_some() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "this form of DELETE is not SQL").at(delete.span()));
        }
        let common = self.common_tables(with.as_ref())?;
        let (table, rows) = self.target_rows(target, delete.using.as_deref().unwrap_or_default(), "delete from", &common)?;
        let plan = self.filtered(&rows, delete.selection.as_ref())?;
        let old = Self::prefixed(&table, "old");
        let mut outputs: Vec<Expr> =
            rows.own.iter().zip(&old).map(|(column, name)| Expr::Column(column.column.clone()).alias(name)).collect();
        let mut returning = None;
        if let Some(items) = &delete.returning {
            let (expressions, columns) = self.returning_list(items, &rows.scope)?;
            outputs.extend(expressions.into_iter().enumerate().map(|(index, expr)| expr.alias(format!("returning:{index}"))));
            returning = Some(columns);
        }
        let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
        debug_assert!(plan.schema().has_column(&Column::new_unqualified(&old[0])));
        Ok(BoundDelete { table, plan, returning })
    }
}
