//! WITH, and WITH RECURSIVE.

use std::{rc::Rc, sync::Arc};

use arrow::datatypes::{Field, Schema};
use datafusion::{
    catalog::cte_worktable::CteWorkTable,
    common::{Column, TableReference},
    datasource::provider_as_source,
    logical_expr::{Expr, LogicalPlanBuilder},
};
use sqlparser::ast::{Cte, Query, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor, With};

use super::{
    binder::Binder,
    query::BoundRows,
    scope::{CommonTable, CommonTables, Scope, ScopeColumn},
    select_list::unique_names,
    typed::Typed,
};
use crate::{
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    types::coercion::CoercionContext,
};

impl Binder<'_> {
    pub(super) fn with_clause(&self, with: &With, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<CommonTables> {
        let mut tables = CommonTables::below(common);
        for cte in &with.cte_tables {
            let name = fold(&cte.alias.name);
            if tables.defines(&name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                return Err(PlanError::new(sqlstate::DUPLICATE_ALIAS, message).at(cte.alias.name.span));
            }
            let visible = Rc::new(tables.clone());
            let before = self.relations();
            let rows = if with.recursive && mentions(&cte.query, &name) {
                self.recursive(cte, &name, outer, &visible)?
            } else {
                let rows = self.query(&cte.query, outer, &visible)?;
                rename(rows, cte, &name)?
            };
            let columns = self.under_alias_columns(&rows);
            tables.insert(name, CommonTable { plan: rows.plan, columns, relations: self.relations() - before });
        }
        Ok(tables)
    }

    fn under_alias_columns(&self, rows: &BoundRows) -> Vec<ScopeColumn> {
        rows.columns.clone()
    }

    /// `base UNION [ALL] step`, where the step reads what the last round gave.
    fn recursive(&self, cte: &Cte, name: &str, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        let span = cte.alias.name.span;
        let malformed = || {
            let message = format!("recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term");
            PlanError::new(sqlstate::INVALID_RECURSION, message).at(span)
        };
        let query = cte.query.as_ref();
        if query.order_by.is_some() || query.limit_clause.is_some() || query.with.is_some() {
            return Err(PlanError::unsupported("ORDER BY, LIMIT and WITH in a recursive query are not implemented").at(span));
        }
        let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } = query.body.as_ref() else {
            return Err(malformed());
        };
        if mentions_in(left, name) {
            return Err(malformed());
        }
        let all = *set_quantifier == SetQuantifier::All;
        let base = self.set_expression(left, outer, common)?;
        let base = rename(base, cte, name)?;
        let names: Vec<String> = base.columns.iter().map(|column| column.name.clone()).collect();
        let plan_names = unique_names(&names);
        let outputs = base.columns.iter().zip(&plan_names).map(|(column, name)| Expr::Column(column.column.clone()).alias(name));
        let base_plan = LogicalPlanBuilder::from(base.plan).project(outputs.collect::<Vec<_>>())?.build()?;
        // What tells the rows of the base apart does not tell those of all steps apart.
        let base_plan = LogicalPlanBuilder::from(base_plan.clone()).project(self.repeated_columns(&base_plan))?.build()?;
        let work_name = self.unique_qualifier(name);
        let fields: Vec<Field> =
            plan_names.iter().zip(&base.columns).map(|(name, column)| Field::new(name, column.sql_type.arrow(), true)).collect();
        let work = provider_as_source(Arc::new(CteWorkTable::new(&work_name, Arc::new(Schema::new(fields)))));
        let work_plan = LogicalPlanBuilder::scan(TableReference::bare(work_name.clone()), work, None)?.build()?;
        let work_columns: Vec<ScopeColumn> = base
            .columns
            .iter()
            .zip(&plan_names)
            .map(|(column, name)| ScopeColumn {
                column: Column::new(Some(TableReference::bare(work_name.clone())), name),
                nullable: true,
                origin: None,
                ..column.clone()
            })
            .collect();
        let mut tables = CommonTables::below(common);
        tables.insert(name.to_owned(), CommonTable { plan: work_plan, columns: work_columns, relations: 1 });
        let step = self.set_expression(right, outer, &Rc::new(tables))?;
        if step.columns.len() != base.columns.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(cte.query.span()));
        }
        let outputs = self.step_outputs(&step.columns, &base.columns, &plan_names, name, span)?;
        let step_plan = LogicalPlanBuilder::from(step.plan).project(outputs)?.build()?;
        let plan = LogicalPlanBuilder::from(base_plan).to_recursive_query(work_name, step_plan, !all)?.build()?;
        let columns = base.columns.iter().zip(plan.schema().columns()).map(|(column, found)| ScopeColumn {
            column: found,
            nullable: true,
            origin: None,
            ..column.clone()
        });
        Ok(BoundRows { columns: columns.collect(), plan })
    }

    /// The columns of the step with the types of the base.
    fn step_outputs(
        &self,
        step: &[ScopeColumn],
        base: &[ScopeColumn],
        plan_names: &[String],
        name: &str,
        span: sqlparser::tokenizer::Span,
    ) -> Result<Vec<Expr>> {
        let mut outputs = Vec::with_capacity(step.len());
        for (index, (column, wanted)) in step.iter().zip(base).enumerate() {
            if !column.sql_type.same(&wanted.sql_type)
                && !crate::types::coercion::can_coerce(&column.sql_type, &wanted.sql_type, CoercionContext::Implicit)
            {
                let (own, other) = (wanted.sql_type.name(), column.sql_type.name());
                let message = format!(
                    "recursive query \"{name}\" column {} has type {own} in non-recursive term but type {other} overall",
                    index + 1
                );
                return Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message)
                    .with_hint("Cast the output of the non-recursive term to the correct type.")
                    .at(span));
            }
            let value = Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone());
            outputs.push(self.coerce(value, &wanted.sql_type, CoercionContext::Explicit, span)?.expr.alias(&plan_names[index]));
        }
        Ok(outputs)
    }
}

/// Gives the columns the names of the WITH item.
fn rename(mut rows: BoundRows, cte: &Cte, name: &str) -> Result<BoundRows> {
    if cte.alias.columns.len() > rows.columns.len() {
        let message =
            format!("WITH query \"{name}\" has {} columns available but {} columns specified", rows.columns.len(), cte.alias.columns.len());
        return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message).at(cte.alias.name.span));
    }
    for (column, alias) in rows.columns.iter_mut().zip(&cte.alias.columns) {
        column.name = fold(&alias.name);
    }
    Ok(rows)
}

/// Whether a query names a relation of WITH somewhere in a FROM.
fn mentions(query: &Query, name: &str) -> bool {
    use sqlparser::ast::{Visit, Visitor};
    struct Search<'n>(&'n str);
    impl Visitor for Search<'_> {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> std::ops::ControlFlow<()> {
            match factor {
                TableFactor::Table { name, .. } if name.0.len() == 1 => match name.0[0].as_ident() {
                    Some(ident) if fold(ident) == self.0 => std::ops::ControlFlow::Break(()),
                    _ => std::ops::ControlFlow::Continue(()),
                },
                _ => std::ops::ControlFlow::Continue(()),
            }
        }
    }
    query.visit(&mut Search(name)).is_break()
}

fn mentions_in(body: &SetExpr, name: &str) -> bool {
    let query = Query {
        with: None,
        body: Box::new(body.clone()),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    };
    mentions(&query, name)
}
