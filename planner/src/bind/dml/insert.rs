//! INSERT.

use std::{rc::Rc, sync::Arc};

use arrow::datatypes::Schema;
use datafusion::{
    common::DFSchema,
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
};
use sqlparser::ast::{self, Ident, OnInsert, Query, SetExpr, Spanned, TableObject};

use super::target::{column_numbers, last_ident, table_of};
use crate::{
    bind::{binder::Binder, bound::BoundInsert, expression::Place, scope::Scope, typed::Typed},
    catalog::{Object, object::Column},
    error::{PlanError, Result, sqlstate},
};

impl Binder<'_> {
    pub(in crate::bind) fn insert(&self, insert: &ast::Insert) -> Result<BoundInsert> {
        check_clauses(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "INSERT needs the name of a table").at(insert.span()));
        };
        let table = self.target_table(name, "change rows of", true)?;
        table_of(&table)?;
        let named = insert.columns.iter().map(last_ident).collect::<Result<Vec<&Ident>>>()?;
        let targets = if named.is_empty() { (0..table.columns().len()).collect() } else { column_numbers(&table, named.iter().copied())? };
        let (plan, values) = self.insert_rows(insert, &table, &targets, !named.is_empty())?;
        let alias = insert.table_alias.as_ref().map(|alias| crate::catalog::fold(&alias.alias)).unwrap_or_else(|| table.name.clone());
        let on_conflict = match &insert.on {
            Some(OnInsert::OnConflict(clause)) => Some(self.on_conflict(clause, &table, &alias)?),
            Some(_) => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "ON DUPLICATE KEY is not SQL").with_hint("Use ON CONFLICT.")),
            None => None,
        };
        let returning = insert.returning.as_ref().map(|items| self.returning_of_row(items, &table, &alias)).transpose()?;
        Ok(BoundInsert { table, plan, values, on_conflict, returning })
    }

    /// The new rows as a plan, and as expressions if they are VALUES.
    fn insert_rows(
        &self,
        insert: &ast::Insert,
        table: &Object,
        targets: &[usize],
        named: bool,
    ) -> Result<(LogicalPlan, Option<Vec<Vec<Expr>>>)> {
        match &insert.source {
            None => self.rows_of_values(&[Vec::new()], table, &[], &Scope::below(None, Rc::default())),
            Some(query) => match plain_values(query) {
                Some(rows) => {
                    let count = rows.first().map_or(0, |row| row.len());
                    let targets = self.fitting_targets(count, targets, named, insert)?;
                    let rows: Vec<Vec<ast::Expr>> = rows.to_vec();
                    self.rows_of_values(&rows, table, targets, &Scope::below(None, Rc::default()))
                }
                None => self.rows_of_query(insert, query, table, targets, named).map(|plan| (plan, None)),
            },
        }
    }

    /// The columns that get values: the first ones, if fewer are given and no columns are named.
    fn fitting_targets<'t>(&self, count: usize, targets: &'t [usize], named: bool, insert: &ast::Insert) -> Result<&'t [usize]> {
        if count > targets.len() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "INSERT has more expressions than target columns").at(source_span(insert)));
        }
        if count < targets.len() && named {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "INSERT has more target columns than expressions").at(source_span(insert)));
        }
        Ok(&targets[..count])
    }

    fn rows_of_values(
        &self,
        rows: &[Vec<ast::Expr>],
        table: &Object,
        targets: &[usize],
        scope: &Scope<'_>,
    ) -> Result<(LogicalPlan, Option<Vec<Vec<Expr>>>)> {
        let place = Place::scalar("VALUES");
        let columns = table.columns();
        let defaults = self.defaults(columns, targets)?;
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            if row.len() != targets.len() {
                let span = row.first().map_or_else(sqlparser::tokenizer::Span::empty, Spanned::span);
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "VALUES lists must all be the same length").at(span));
            }
            let mut new_row: Vec<Option<Expr>> = defaults.iter().map(|value| value.as_ref().map(|value| value.expr.clone())).collect();
            for (ast, target) in row.iter().zip(targets) {
                new_row[*target] = Some(self.value_for(ast, &columns[*target], scope, &place)?.expr);
            }
            values.push(new_row.into_iter().map(|value| value.expect("every column has a value or a default")).collect::<Vec<_>>());
        }
        let has_subquery = values.iter().flatten().any(Expr::contains_scalar_subquery);
        let plan = self.plan_of_rows(&values, columns, has_subquery)?;
        Ok((plan, (!has_subquery).then_some(values)))
    }

    /// Defaults of the columns that are not among the targets.
    fn defaults(&self, columns: &[Column], targets: &[usize]) -> Result<Vec<Option<Typed>>> {
        let default = |(number, column): (usize, &Column)| {
            if targets.contains(&number) { Ok(None) } else { self.default_value(column).map(Some) }
        };
        columns.iter().enumerate().map(default).collect()
    }

    fn plan_of_rows(&self, values: &[Vec<Expr>], columns: &[Column], has_subquery: bool) -> Result<LogicalPlan> {
        if has_subquery {
            let mut plans = Vec::with_capacity(values.len());
            for row in values {
                let outputs: Vec<Expr> = row.iter().zip(columns).map(|(value, column)| value.clone().alias(&column.name)).collect();
                plans.push(LogicalPlanBuilder::empty(true).project(outputs)?.build()?);
            }
            let mut plans = plans.into_iter();
            let first = plans.next().ok_or_else(|| PlanError::internal("VALUES without rows"))?;
            return Ok(plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?.build()?);
        }
        let fields: Vec<_> =
            columns.iter().map(|column| arrow::datatypes::Field::new(&column.name, column.sql_type.arrow(), true)).collect();
        let schema = Arc::new(DFSchema::try_from(Schema::new(fields))?);
        let plan = LogicalPlanBuilder::values_with_schema(values.to_vec(), &schema)?.build()?;
        let outputs: Vec<Expr> =
            plan.schema().columns().into_iter().zip(columns).map(|(found, column)| Expr::Column(found).alias(&column.name)).collect();
        Ok(LogicalPlanBuilder::from(plan).project(outputs)?.build()?)
    }

    fn rows_of_query(&self, insert: &ast::Insert, query: &Query, table: &Object, targets: &[usize], named: bool) -> Result<LogicalPlan> {
        let columns = table.columns();
        let wanted = targets.iter().map(|target| columns[*target].sql_type.clone()).collect();
        let rows = self.query_for_targets(query, wanted)?;
        let targets = self.fitting_targets(rows.columns.len(), targets, named, insert)?;
        let mut new_row: Vec<Option<Typed>> = self.defaults(columns, targets)?;
        for (found, target) in rows.columns.iter().zip(targets) {
            let value = Typed::new(Expr::Column(found.column.clone()), found.sql_type.clone()).with_modifier(found.modifier);
            new_row[*target] = Some(self.assign(value, &columns[*target], source_span(insert))?);
        }
        let outputs: Vec<Expr> = new_row
            .into_iter()
            .zip(columns)
            .map(|(value, column)| value.expect("every column has a value or a default").expr.alias(&column.name))
            .collect();
        Ok(LogicalPlanBuilder::from(rows.plan).project(outputs)?.build()?)
    }
}

/// The rows of a query that is VALUES and nothing else.
fn plain_values(query: &Query) -> Option<Vec<Vec<ast::Expr>>> {
    if query.with.is_some() || query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
        return None;
    }
    match query.body.as_ref() {
        SetExpr::Values(values) => Some(values.rows.iter().map(|row| row.content.clone()).collect()),
        _ => None,
    }
}

fn source_span(insert: &ast::Insert) -> sqlparser::tokenizer::Span {
    insert.source.as_ref().map_or_else(sqlparser::tokenizer::Span::empty, |query| query.span())
}

fn check_clauses(insert: &ast::Insert) -> Result<()> {
    let foreign = insert.or.is_some()
        || insert.ignore
        || insert.overwrite
        || insert.partitioned.is_some()
        || !insert.after_columns.is_empty()
        || !insert.assignments.is_empty()
        || insert.replace_into
        || insert.priority.is_some()
        || insert.insert_alias.is_some()
        || insert.settings.is_some()
        || insert.format_clause.is_some();
    if foreign { Err(PlanError::new(sqlstate::SYNTAX_ERROR, "this form of INSERT is not SQL").at(insert.span())) } else { Ok(()) }
}
