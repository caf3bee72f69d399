//! VALUES and TABLE.

use std::{rc::Rc, sync::Arc};

use arrow::datatypes::Field;
use datafusion::{
    common::{Column, DFSchema},
    logical_expr::{LogicalPlan, LogicalPlanBuilder},
};
use sqlparser::{
    ast::{self, Spanned, Values},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    coerce::common_modifier,
    expression::Place,
    query::BoundRows,
    scope::{CommonTables, Scope, ScopeColumn},
    typed::Typed,
};
use crate::{
    catalog::QualifiedName,
    error::{PlanError, Result, sqlstate},
    types::SqlType,
};

impl Binder<'_> {
    pub(super) fn values(&self, values: &Values, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        let scope = Scope::below(outer, Rc::clone(common));
        let place = Place::scalar("VALUES");
        let mut columns: Vec<Vec<Typed>> = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        for (number, row) in values.rows.iter().enumerate() {
            if number == 0 {
                columns.resize_with(row.content.len(), || Vec::with_capacity(values.rows.len()));
                spans = row.content.iter().map(Spanned::span).collect();
            } else if row.content.len() != columns.len() {
                let span = row.content.first().map_or_else(Span::empty, Spanned::span);
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "VALUES lists must all be the same length").at(span));
            }
            for (column, ast) in columns.iter_mut().zip(&row.content) {
                column.push(self.expression(ast, &scope, &place)?);
            }
        }
        let mut typed = Vec::with_capacity(columns.len());
        for (column, span) in columns.into_iter().zip(spans) {
            let (column, sql_type) = self.unify(column, "VALUES", span)?;
            typed.push((column, sql_type));
        }
        self.values_plan(typed, values.rows.len())
    }

    /// A plan of constant rows, given by columns.
    pub(super) fn values_plan(&self, columns: Vec<(Vec<Typed>, SqlType)>, rows: usize) -> Result<BoundRows> {
        let names: Vec<String> = (1..=columns.len()).map(|number| format!("column{number}")).collect();
        if columns.is_empty() {
            return Ok(BoundRows { plan: LogicalPlanBuilder::empty(true).build()?, columns: Vec::new() });
        }
        let fields: Vec<Field> = names.iter().zip(&columns).map(|(name, (_, sql_type))| Field::new(name, sql_type.arrow(), true)).collect();
        let schema = Arc::new(DFSchema::from_unqualified_fields(fields.into(), Default::default())?);
        let modifiers: Vec<i32> = columns.iter().map(|(values, _)| common_modifier(values)).collect();
        let types: Vec<SqlType> = columns.iter().map(|(_, sql_type)| sql_type.clone()).collect();
        let mut values = vec![Vec::with_capacity(columns.len()); rows];
        for (column, _) in columns {
            for (row, value) in values.iter_mut().zip(column) {
                row.push(value.expr);
            }
        }
        let has_subquery =
            values.iter().flatten().any(|value| value.contains_scalar_subquery() || !value.is_volatile() && value.contains_outer());
        let plan = if has_subquery {
            self.union_of_rows(values, &names)?
        } else {
            LogicalPlanBuilder::values_with_schema(values, &schema)?.build()?
        };
        let columns = names.into_iter().zip(types.into_iter().zip(modifiers)).map(|(name, (sql_type, modifier))| ScopeColumn {
            column: Column::new_unqualified(&name),
            name,
            sql_type,
            modifier,
            nullable: true,
            origin: None,
        });
        Ok(BoundRows { columns: columns.collect(), plan })
    }

    /// Rows that hold subqueries or columns of the query round about, which a VALUES node cannot.
    fn union_of_rows(&self, values: Vec<Vec<datafusion::logical_expr::Expr>>, names: &[String]) -> Result<LogicalPlan> {
        let mut plans = Vec::with_capacity(values.len());
        for row in values {
            let outputs = row.into_iter().zip(names).map(|(value, name)| value.alias(name)).collect::<Vec<_>>();
            plans.push(LogicalPlanBuilder::empty(true).project(outputs)?.build()?);
        }
        let mut plans = plans.into_iter();
        let first = plans.next().ok_or_else(|| PlanError::internal("VALUES without rows"))?;
        Ok(plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?.build()?)
    }

    /// `TABLE t`
    pub(super) fn table_command(&self, table: &ast::Table, common: &Rc<CommonTables>) -> Result<BoundRows> {
        // The parser keeps no quotes here: a name is taken as unquoted.
        let fold = |name: &String| name.to_lowercase();
        let name =
            QualifiedName { schema: table.schema_name.as_ref().map(fold), name: table.table_name.as_ref().map(fold).unwrap_or_default() };
        let item = self.relation(&name, None, Span::empty(), common)?;
        let columns = item.scope.visible_columns().cloned().collect();
        Ok(BoundRows { plan: item.plan, columns })
    }
}
