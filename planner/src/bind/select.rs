//! One SELECT: FROM, WHERE, GROUP BY and HAVING, window functions, functions that return rows, DISTINCT, ORDER BY, in this order.

use std::rc::Rc;

use datafusion::{
    common::{
        Column,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, expr::Sort},
};
use sqlparser::ast::{self, Distinct, OrderByExpr, Select, Spanned, WindowSpec};

use super::{
    binder::Binder,
    expression::Place,
    ordering::Named,
    query::BoundRows,
    scope::{CommonTables, Scope, ScopeColumn},
    select_list::{Output, unique_names},
    typed::Typed,
};
use crate::{
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    functions::comparison,
    types::{SqlType, coercion::CoercionContext},
};

/// An item of ORDER BY.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// By the column of this number.
    Output(usize, ast::OrderByOptions),
    /// By an expression of the query.
    Expression(Typed, ast::OrderByOptions),
}

/// The parts of a SELECT, bound, before they are put together.
pub(super) struct Parts {
    pub(super) plan: LogicalPlan,
    pub(super) outputs: Vec<Output>,
    pub(super) having: Option<Expr>,
    pub(super) order_by: Vec<Order>,
    pub(super) distinct_on: Vec<Typed>,
}

impl Parts {
    /// Rewrites every expression.
    pub(super) fn map(&mut self, mut rewrite: impl FnMut(Expr) -> Result<Expr>) -> Result<()> {
        let mut in_place = |expr: &mut Expr| -> Result<()> {
            let taken = std::mem::take(expr);
            *expr = rewrite(taken)?;
            Ok(())
        };
        self.outputs.iter_mut().try_for_each(|output| in_place(&mut output.value.expr))?;
        if let Some(having) = &mut self.having {
            in_place(having)?;
        }
        for order in &mut self.order_by {
            if let Order::Expression(value, _) = order {
                in_place(&mut value.expr)?;
            }
        }
        self.distinct_on.iter_mut().try_for_each(|value| in_place(&mut value.expr))
    }

    /// All expressions.
    pub(super) fn expressions(&self) -> Vec<&Expr> {
        let ordered = self.order_by.iter().filter_map(|order| match order {
            Order::Expression(value, _) => Some(&value.expr),
            Order::Output(..) => None,
        });
        let distinct = self.distinct_on.iter().map(|value| &value.expr);
        self.outputs.iter().map(|output| &output.value.expr).chain(self.having.as_ref()).chain(ordered).chain(distinct).collect()
    }
}

impl Binder<'_> {
    pub(super) fn select(
        &self,
        select: &Select,
        order_by: &[OrderByExpr],
        targets: &[SqlType],
        outer: Option<&Scope<'_>>,
        common: &Rc<CommonTables>,
    ) -> Result<BoundRows> {
        check_clauses(select)?;
        let from = self.from(&select.from, outer, common)?;
        let (mut plan, scope) = (from.plan, from.scope);
        if let Some(selection) = &select.selection {
            let condition = self.condition_of(selection, &scope, &Place::filter("WHERE"))?;
            plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
        }
        let windows = named_windows(select)?;
        let place = Place { aggregates: true, windows: true, sets: true, named_windows: &windows, ..Place::scalar("SELECT") };
        let mut outputs = self.select_list(&select.projection, &scope, &place)?;
        for (index, output) in outputs.iter_mut().enumerate().filter(|(_, output)| output.value.is_unknown()) {
            let target = targets.get(index).cloned().unwrap_or(SqlType::Text);
            output.value = self.coerce(output.value.clone(), &target, CoercionContext::Implicit, output.span)?;
        }
        let having = match &select.having {
            Some(having) => {
                let place = Place { aggregates: true, ..Place::filter("HAVING") };
                Some(self.condition_of(having, &scope, &place)?)
            }
            None => None,
        };
        let order_place = Place { clause: "ORDER BY", ..place };
        let order_by = self.order_items(order_by, &outputs, &scope, &order_place)?;
        let distinct_on = self.distinct_on(select, &outputs, &scope, &order_place)?;
        let groups = self.group_by(&select.group_by, &outputs, &scope)?;
        let mut parts = Parts { plan, outputs, having, order_by, distinct_on };
        self.aggregate(&mut parts, groups)?;
        if let Some(having) = parts.having.take() {
            parts.plan = LogicalPlanBuilder::from(parts.plan).filter(having)?.build()?;
        }
        self.windows(&mut parts)?;
        self.expand_sets(&mut parts)?;
        match &select.distinct {
            Some(Distinct::On(_)) => self.finish_distinct_on(parts),
            Some(Distinct::Distinct) => self.finish(parts, true),
            Some(Distinct::All) | None => self.finish(parts, false),
        }
    }

    fn order_items(&self, items: &[OrderByExpr], outputs: &[Output], scope: &Scope<'_>, place: &Place<'_>) -> Result<Vec<Order>> {
        let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        let mut order = Vec::with_capacity(items.len());
        for item in items {
            if item.with_fill.is_some() {
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "syntax error at or near \"FILL\"").at(item.expr.span()));
            }
            let named = match self.named_output(&item.expr, &names, "ORDER BY") {
                // Columns of one name that show the same are no ambiguity.
                Err(error) if error.sqlstate == sqlstate::AMBIGUOUS_COLUMN => match same_outputs(&item.expr, outputs) {
                    Some(index) => Named::Output(index),
                    None => return Err(error),
                },
                named => named?,
            };
            order.push(match named {
                Named::Output(index) => Order::Output(index, item.options),
                Named::Expression => {
                    let value = self.known(self.expression(&item.expr, scope, place)?)?;
                    match outputs.iter().position(|output| output.value.expr == value.expr) {
                        Some(index) => Order::Output(index, item.options),
                        None => Order::Expression(value, item.options),
                    }
                }
            });
        }
        Ok(order)
    }

    fn distinct_on(&self, select: &Select, outputs: &[Output], scope: &Scope<'_>, place: &Place<'_>) -> Result<Vec<Typed>> {
        let Some(Distinct::On(items)) = &select.distinct else { return Ok(Vec::new()) };
        let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        let place = Place { clause: "DISTINCT ON", ..*place };
        let bind = |item: &ast::Expr| match self.named_output(item, &names, "DISTINCT ON")? {
            Named::Output(index) => Ok(outputs[index].value.clone()),
            Named::Expression => self.known(self.expression(item, scope, &place)?),
        };
        items.iter().map(bind).collect()
    }

    /// Rows for the elements of lists that `Expr::Unnest` marks. Lists inside of others are expanded before them.
    fn expand_sets(&self, parts: &mut Parts) -> Result<()> {
        loop {
            let mut lists: Vec<Expr> = Vec::new();
            for expr in parts.expressions() {
                collect_lists(expr, &mut lists)?;
            }
            if lists.is_empty() {
                return Ok(());
            }
            let mut inner: Vec<Expr> = Vec::new();
            for list in &lists {
                collect_lists(list, &mut inner)?;
            }
            inner.retain(|list| !matches!(list.exists(|inner| Ok(matches!(inner, Expr::Unnest(_)))), Ok(true)));
            self.expand_lists(parts, if inner.is_empty() { &lists } else { &inner })?;
        }
    }

    /// Expands some lists side by side.
    fn expand_lists(&self, parts: &mut Parts, lists: &[Expr]) -> Result<()> {
        let names: Vec<String> = lists.iter().map(|_| self.unique_qualifier("__list")).collect();
        let plan = std::mem::take(&mut parts.plan);
        let mut outputs: Vec<Expr> = self.repeated_columns(&plan);
        outputs.extend(lists.iter().zip(&names).map(|(list, name)| list.clone().alias(name)));
        let columns = names.iter().map(Column::new_unqualified).collect();
        parts.plan = LogicalPlanBuilder::from(plan)
            .project(outputs)?
            .unnest_columns_with_options(columns, super::table_function::drop_empty())?
            .build()?;
        parts.map(|expr| {
            let replaced = expr.transform_down(|expr| {
                Ok(match &expr {
                    Expr::Unnest(unnest) => match lists.iter().position(|list| *list == *unnest.expr) {
                        Some(index) => Transformed::yes(Expr::Column(Column::new_unqualified(&names[index]))),
                        None => Transformed::no(expr),
                    },
                    _ => Transformed::no(expr),
                })
            })?;
            Ok(replaced.data)
        })
    }

    /// Projection, DISTINCT and ORDER BY.
    fn finish(&self, parts: Parts, distinct: bool) -> Result<BoundRows> {
        let names: Vec<String> = parts.outputs.iter().map(|output| output.name.clone()).collect();
        let plan_names = unique_names(&names);
        let mut expressions = Vec::with_capacity(parts.outputs.len());
        let mut columns = Vec::with_capacity(parts.outputs.len());
        for (output, name) in parts.outputs.into_iter().zip(&plan_names) {
            let value = if distinct { comparison::distinct_form(self, output.value) } else { output.value };
            columns.push(column_of(name, &value, output.name, output.origin));
            expressions.push(value.expr.alias(name));
        }
        let mut hidden = Vec::new();
        let mut sorts: Vec<Sort> = Vec::with_capacity(parts.order_by.len());
        for order in parts.order_by {
            let (key, options) = match order {
                Order::Output(index, options) => (self.output_key(&columns[index]), options),
                Order::Expression(_, _) if distinct => {
                    let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                    return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message));
                }
                Order::Expression(value, options) => {
                    let name = format!("__order_{}", hidden.len());
                    let key = comparison::sort_key(self, value);
                    hidden.push(key.alias(&name));
                    (Expr::Column(Column::new_unqualified(name)), options)
                }
            };
            sorts.push(self.sort(key, &options));
        }
        let extended: Vec<Expr> = expressions.into_iter().chain(hidden.iter().cloned()).collect();
        let mut builder = LogicalPlanBuilder::from(parts.plan).project(extended)?;
        if distinct {
            builder = builder.distinct()?;
        }
        if !sorts.is_empty() {
            builder = builder.sort(sorts)?;
        }
        if !hidden.is_empty() {
            builder = builder.project(columns.iter().map(|column| Expr::Column(column.column.clone())).collect::<Vec<_>>())?;
        }
        let mut rows = BoundRows { plan: builder.build()?, columns };
        settle_nullability(&mut rows);
        Ok(rows)
    }

    /// DISTINCT ON: the first row of each group, in the order that ORDER BY gives.
    fn finish_distinct_on(&self, parts: Parts) -> Result<BoundRows> {
        let names: Vec<String> = parts.outputs.iter().map(|output| output.name.clone()).collect();
        let plan_names = unique_names(&names);
        let keys: Vec<Expr> = parts.distinct_on.iter().map(|value| comparison::sort_key(self, value.clone())).collect();
        let mut sorts = Vec::with_capacity(parts.order_by.len());
        for order in &parts.order_by {
            let (value, options) = match order {
                Order::Output(index, options) => (parts.outputs[*index].value.clone(), options),
                Order::Expression(value, options) => (value.clone(), options),
            };
            sorts.push(self.sort(comparison::sort_key(self, value), options));
        }
        let matching = sorts.iter().take(keys.len()).all(|sort| keys.contains(&sort.expr));
        if !sorts.is_empty() && (!matching || sorts.len() < keys.len()) {
            let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
            return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message));
        }
        // DataFusion wants the keys in the order of ORDER BY.
        let keys = if sorts.is_empty() { keys } else { sorts.iter().take(keys.len()).map(|sort| sort.expr.clone()).collect() };
        let mut columns = Vec::with_capacity(parts.outputs.len());
        let mut expressions = Vec::with_capacity(parts.outputs.len());
        for (output, name) in parts.outputs.into_iter().zip(&plan_names) {
            columns.push(column_of(name, &output.value, output.name, output.origin));
            expressions.push(output.value.expr.alias(name));
        }
        let sorts = (!sorts.is_empty()).then_some(sorts);
        let plan = LogicalPlanBuilder::from(parts.plan).distinct_on(keys, expressions, sorts)?.build()?;
        // The schema of DISTINCT ON keeps no aliases' qualifiers; columns are found by place.
        for (column, found) in columns.iter_mut().zip(plan.schema().columns()) {
            column.column = found;
        }
        let mut rows = BoundRows { plan, columns };
        settle_nullability(&mut rows);
        Ok(rows)
    }
}

fn column_of(plan_name: &str, value: &Typed, name: String, origin: Option<(u64, i16)>) -> ScopeColumn {
    ScopeColumn {
        name,
        column: Column::new_unqualified(plan_name),
        sql_type: value.sql_type.clone(),
        modifier: value.modifier,
        nullable: true,
        origin,
    }
}

fn settle_nullability(rows: &mut BoundRows) {
    for (column, field) in rows.columns.iter_mut().zip(rows.plan.schema().fields()) {
        column.nullable = field.is_nullable();
    }
}

/// Adds the lists that an expression expands, each once.
fn collect_lists(expr: &Expr, lists: &mut Vec<Expr>) -> Result<()> {
    expr.apply(|expr| {
        if let Expr::Unnest(unnest) = expr
            && !lists.contains(&unnest.expr)
        {
            lists.push((*unnest.expr).clone());
        }
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// The number of a column, if all columns of the name show the same value.
fn same_outputs(ast: &ast::Expr, outputs: &[Output]) -> Option<usize> {
    let ast::Expr::Identifier(ident) = super::expression::strip(ast) else { return None };
    let name = fold(ident);
    let mut found = outputs.iter().enumerate().filter(|(_, output)| output.name == name);
    let (first, output) = found.next()?;
    found.all(|(_, other)| other.value.expr == output.value.expr).then_some(first)
}

fn named_windows(select: &Select) -> Result<Vec<(String, WindowSpec)>> {
    let mut windows: Vec<(String, WindowSpec)> = Vec::with_capacity(select.named_window.len());
    for ast::NamedWindowDefinition(name, definition) in &select.named_window {
        let folded = fold(name);
        if windows.iter().any(|(other, _)| *other == folded) {
            return Err(PlanError::new(sqlstate::WINDOWING_ERROR, format!("window \"{folded}\" is already defined")).at(name.span));
        }
        let spec = match definition {
            ast::NamedWindowExpr::WindowSpec(spec) => spec.clone(),
            ast::NamedWindowExpr::NamedWindow(other) => {
                WindowSpec { window_name: Some(other.clone()), partition_by: vec![], order_by: vec![], window_frame: None }
            }
        };
        windows.push((folded, spec));
    }
    Ok(windows)
}

/// Refuses clauses of other dialects.
fn check_clauses(select: &Select) -> Result<()> {
    let foreign = if select.top.is_some() {
        Some("TOP")
    } else if !select.lateral_views.is_empty() {
        Some("LATERAL VIEW")
    } else if select.prewhere.is_some() {
        Some("PREWHERE")
    } else if !select.connect_by.is_empty() {
        Some("CONNECT BY")
    } else if select.qualify.is_some() {
        Some("QUALIFY")
    } else if !select.cluster_by.is_empty() || !select.distribute_by.is_empty() || !select.sort_by.is_empty() {
        Some("SORT BY")
    } else if select.value_table_mode.is_some() || select.exclude.is_some() {
        Some("this form of SELECT")
    } else if select.into.is_some() {
        Some("SELECT .. INTO inside of a query")
    } else {
        None
    };
    match foreign {
        Some(what) => Err(PlanError::unsupported(format!("{what} is not supported")).at(select.span())),
        None => Ok(()),
    }
}
