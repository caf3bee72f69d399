//! COPY.

use std::rc::Rc;

use crate::{
    bind::{
        binder::Binder,
        bound::{BoundCopyFrom, BoundQuery},
        query::BoundRows,
        scope::Scope,
    },
    error::{PlanError, Result, sqlstate},
    parse::statement::{Copy, CopyRelation},
};

use super::target::{column_numbers, table_of};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use sqlparser::ast::Spanned;

impl Binder<'_> {
    pub(in crate::bind) fn copy_from(&self, copy: &Copy) -> Result<BoundCopyFrom> {
        let CopyRelation::Table { name, columns } = &copy.relation else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "COPY query instruction is not allowed for COPY FROM"));
        };
        let table = self.target_table(name, "copy to", true)?;
        table_of(&table)?;
        let all = table.columns();
        let columns = if columns.is_empty() { (0..all.len()).collect() } else { column_numbers(&table, columns)? };
        let mut defaults = Vec::new();
        for (number, column) in all.iter().enumerate().filter(|(number, _)| !columns.contains(number)) {
            defaults.push((number, self.default_value(column)?.expr));
        }
        let options = copy.options.clone();
        Ok(BoundCopyFrom { columns, defaults, options, table })
    }

    pub(in crate::bind) fn copy_to(&self, copy: &Copy) -> Result<BoundQuery> {
        match &copy.relation {
            CopyRelation::Query(query) => self.top_query(query),
            CopyRelation::Table { name, columns } => {
                let qualified = crate::catalog::QualifiedName::from_ast(name)?;
                let item = self.relation(&qualified, None, name.span(), &Rc::default())?;
                let scope: Scope<'_> = item.scope;
                let mut chosen = Vec::new();
                for ident in columns {
                    let name = crate::catalog::fold(ident);
                    let column = scope.own_column_named(&name, ident.span)?.cloned().ok_or_else(|| {
                        let message = format!("column \"{name}\" of relation \"{}\" does not exist", qualified.name);
                        PlanError::new(sqlstate::UNDEFINED_COLUMN, message).at(ident.span)
                    })?;
                    chosen.push(column);
                }
                if columns.is_empty() {
                    chosen = scope.visible_columns().cloned().collect();
                }
                let outputs: Vec<Expr> = chosen.iter().map(|column| Expr::Column(column.column.clone())).collect();
                let plan = LogicalPlanBuilder::from(item.plan).project(outputs)?.build()?;
                self.finish_query(BoundRows { plan, columns: chosen })
            }
        }
    }
}
