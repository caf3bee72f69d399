//! UPDATE.

use std::rc::Rc;

use datafusion::{
    common::Column,
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
};
use sqlparser::ast::{self, Assignment, AssignmentTarget, Spanned, TableFactor, TableWithJoins, UpdateTableFromKind};

use super::target::{column_numbers, last_ident};
use crate::{
    bind::{
        binder::Binder,
        bound::BoundUpdate,
        expression::{Place, strip},
        from::FromItem,
        query::BoundRows,
        scope::{CommonTables, Scope, ScopeColumn},
        typed::Typed,
    },
    catalog::{Object, fold},
    error::{PlanError, Result, sqlstate},
    functions::window,
    parse::statement::WithCommon,
};

/// Numbers the rows of the table when FROM may join a row with several.
const ROW_NUMBER: &str = "__row";

/// The rows that a statement looks at: those of its table, with those of the other relations it names.
pub(super) struct TargetRows<'p> {
    pub(super) plan: LogicalPlan,
    pub(super) scope: Scope<'p>,
    /// The table's own columns.
    pub(super) own: Vec<ScopeColumn>,
    /// The column that tells one row of the table from another, if other relations are joined.
    number: Option<Column>,
}

impl Binder<'_> {
    pub(in crate::bind) fn update(&self, WithCommon { with, statement: update }: &WithCommon<ast::Update>) -> Result<BoundUpdate> {
        if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() || update.output.is_some() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "this form of UPDATE is not SQL").at(update.span()));
        }
        let from: &[TableWithJoins] = match &update.from {
            Some(UpdateTableFromKind::AfterSet(tables) | UpdateTableFromKind::BeforeSet(tables)) => tables,
            None => &[],
        };
        let (table, rows) = self.target_rows(&update.table, from, "update", &self.common_tables(with.as_ref())?)?;
        let assigned = self.assignments(&update.assignments, &table, &rows.scope, &Place::scalar("UPDATE"))?;
        let plan = self.filtered(&rows, update.selection.as_ref())?;
        let (old, new) = (Self::prefixed(&table, "old"), Self::prefixed(&table, "new"));
        let mut outputs = Vec::with_capacity(2 * old.len());
        for (column, name) in rows.own.iter().zip(&old) {
            outputs.push(Expr::Column(column.column.clone()).alias(name));
        }
        for (number, (column, name)) in rows.own.iter().zip(&new).enumerate() {
            let value = match assigned.iter().find(|(target, _)| *target == number) {
                Some((_, value)) => value.expr.clone(),
                None => Expr::Column(column.column.clone()),
            };
            outputs.push(value.alias(name));
        }
        let Some(items) = &update.returning else {
            let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
            return Ok(BoundUpdate { table, plan, returning: None, assigned: assigned.into_iter().map(|(target, _)| target).collect() });
        };
        // RETURNING sees the new row under the table's name, and the other relations as they are.
        let mut scope = rows.scope.clone();
        for (column, name) in rows.own.iter().zip(&new) {
            for candidate in scope.columns.iter_mut().filter(|candidate| candidate.column == column.column) {
                candidate.column = Column::new_unqualified(name);
            }
        }
        let others = rows.scope.columns.iter().filter(|column| !rows.own.iter().any(|own| own.column == column.column));
        outputs.extend(others.map(|column| Expr::Column(column.column.clone())));
        let (expressions, columns) = self.returning_list(items, &scope)?;
        let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
        let mut outputs: Vec<Expr> = old.iter().chain(&new).map(|name| Expr::Column(Column::new_unqualified(name))).collect();
        outputs.extend(expressions.into_iter().enumerate().map(|(index, expr)| expr.alias(format!("returning:{index}"))));
        let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
        Ok(BoundUpdate { table, plan, returning: Some(columns), assigned: assigned.into_iter().map(|(target, _)| target).collect() })
    }

    /// What WITH before a statement defines.
    pub(super) fn common_tables(&self, with: Option<&ast::With>) -> Result<Rc<CommonTables>> {
        let none = Rc::<CommonTables>::default();
        match with {
            Some(with) => Ok(Rc::new(self.with_clause(with, None, &none)?)),
            None => Ok(none),
        }
    }

    pub(super) fn prefixed(table: &Object, prefix: &str) -> Vec<String> {
        table.columns().iter().map(|column| format!("{prefix}:{}", column.name)).collect()
    }

    /// The rows of the table of a statement, with those of the relations of FROM or USING.
    pub(super) fn target_rows<'p>(
        &self,
        target: &TableWithJoins,
        others: &[TableWithJoins],
        verb: &str,
        common: &Rc<CommonTables>,
    ) -> Result<(std::sync::Arc<Object>, TargetRows<'p>)> {
        let TableFactor::Table { name, alias, args: None, .. } = &target.relation else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("{} needs the name of a table", verb.to_uppercase())));
        };
        if !target.joins.is_empty() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "syntax error at or near \"JOIN\"")
                .with_hint("Name other relations in FROM or USING."));
        }
        let table = self.target_table(name, verb, false)?;
        let mut rows = self.scan(&table)?;
        let number = if others.is_empty() { None } else { Some(self.number_rows(&mut rows)?) };
        let (shown, schema) = match alias {
            Some(alias) => (fold(&alias.name), None),
            None => (table.name.clone(), Some(self.context.catalog.schema_name(&table).to_owned())),
        };
        let numbered = number.is_some();
        let mut item = self.qualified(rows, shown, schema, &[])?;
        let mut own: Vec<ScopeColumn> = item.scope.columns.clone();
        let number = if numbered { own.pop().map(|column| column.column) } else { None };
        if numbered {
            hide_last(&mut item.scope);
        }
        if !others.is_empty() {
            let joined = self.from(others, None, common)?;
            item = self.cross(item, FromItem::new(joined.plan, joined.scope))?;
        }
        item.scope.common = Rc::clone(common);
        Ok((table, TargetRows { plan: item.plan, scope: item.scope, own, number }))
    }

    fn number_rows(&self, rows: &mut BoundRows) -> Result<()> {
        let call = window::row_number(Vec::new(), Vec::new());
        let name = call.schema_name().to_string();
        let plan = LogicalPlanBuilder::window_plan(rows.plan.clone(), [call])?;
        let mut outputs: Vec<Expr> =
            rows.columns.iter().map(|column| Expr::Column(column.column.clone()).alias(&column.column.name)).collect();
        outputs.push(Expr::Column(Column::new_unqualified(name)).alias(ROW_NUMBER));
        rows.plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
        for column in &mut rows.columns {
            column.column = Column::new_unqualified(&column.column.name);
        }
        rows.columns.push(ScopeColumn {
            name: ROW_NUMBER.to_owned(),
            column: Column::new_unqualified(ROW_NUMBER),
            sql_type: crate::types::SqlType::BigInt,
            modifier: crate::types::modifier::NONE,
            nullable: false,
            origin: None,
        });
        Ok(())
    }

    /// The rows for which the condition is true, each row of the table once.
    pub(super) fn filtered(&self, rows: &TargetRows<'_>, selection: Option<&ast::Expr>) -> Result<LogicalPlan> {
        let mut builder = LogicalPlanBuilder::from(rows.plan.clone());
        if let Some(selection) = selection {
            builder = builder.filter(self.condition_of(selection, &rows.scope, &Place::filter("WHERE"))?)?;
        }
        let Some(number) = &rows.number else { return Ok(builder.build()?) };
        // The first joined row counts: rows of one number are brought to one.
        let qualifier_of = |column: &Column| column.relation.clone();
        let columns = builder.schema().columns();
        let keyed = Expr::Column(number.clone());
        let selected: Vec<Expr> = columns
            .iter()
            .map(|column| match qualifier_of(column) {
                Some(relation) => Expr::Column(column.clone()).alias_qualified(Some(relation), &column.name),
                None => Expr::Column(column.clone()),
            })
            .collect();
        Ok(builder.distinct_on(vec![keyed], selected, None)?.build()?)
    }

    /// The columns that SET assigns, with their values.
    pub(super) fn assignments(
        &self,
        assignments: &[Assignment],
        table: &Object,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Vec<(usize, Typed)>> {
        let mut assigned: Vec<(usize, Typed)> = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let columns: Vec<ast::Expr>;
            let pairs: Vec<(&ast::ObjectName, &ast::Expr)> = match &assignment.target {
                AssignmentTarget::ColumnName(name) => vec![(name, &assignment.value)],
                AssignmentTarget::Tuple(names) => match strip(&assignment.value) {
                    ast::Expr::Tuple(values) if values.len() == names.len() => names.iter().zip(values).collect(),
                    ast::Expr::Tuple(_) => {
                        let message = "number of columns does not match number of values";
                        return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(assignment.span()));
                    }
                    value if names.len() == 1 => vec![(&names[0], value)],
                    ast::Expr::Subquery(query) => {
                        columns = columns_of_subquery(query, names.len()).map_err(|error| error.at(assignment.span()))?;
                        names.iter().zip(&columns).collect()
                    }
                    _ => {
                        let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                        return Err(PlanError::unsupported(message).at(assignment.span()));
                    }
                },
            };
            for (name, value) in pairs {
                let number = column_numbers(table, [last_ident(name)?])?[0];
                let column = &table.columns()[number];
                if assigned.iter().any(|(other, _)| *other == number) {
                    let message = format!("multiple assignments to same column \"{}\"", column.name);
                    return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(name.span()));
                }
                assigned.push((number, self.value_for(value, column, scope, place)?));
            }
        }
        Ok(assigned)
    }
}

/// The columns of a subquery, each as a subquery of its own.
fn columns_of_subquery(query: &ast::Query, count: usize) -> Result<Vec<ast::Expr>> {
    if let ast::SetExpr::Select(select) = query.body.as_ref() {
        let plain = |item: &ast::SelectItem| matches!(item, ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. });
        if select.projection.iter().all(plain) && select.projection.len() != count {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "number of columns does not match number of values"));
        }
    }
    let names: Vec<String> = (1..=count).map(|number| format!("\"__column_{number}\"")).collect();
    let column = |name: &String| {
        let text = format!("SELECT {name} FROM ({query}) AS \"__assigned\" ({})", names.join(", "));
        Ok(ast::Expr::Subquery(Box::new(crate::parse::parse_query(&text)?)))
    };
    names.iter().map(column).collect()
}

/// Makes the last column of a scope one that cannot be named.
fn hide_last(scope: &mut Scope<'_>) {
    let last = scope.columns.len() - 1;
    scope.visible.retain(|column| *column != last);
    for relation in &mut scope.relations {
        relation.columns.retain(|column| *column != last);
    }
}
