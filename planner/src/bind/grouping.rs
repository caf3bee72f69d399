//! GROUP BY and aggregates: the plan that groups, and the expressions above it in terms of its columns.
//!
//! Several grouping sets become a union of one aggregation each, so that the empty set has its one row over no rows, and a view maintains
//! them like any other aggregation.

use std::collections::BTreeMap;

use datafusion::{
    common::{
        Column, TableReference,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, expr::AggregateFunction, lit},
};
use sqlparser::{
    ast::{self, GroupByExpr, GroupByWithModifier},
    tokenizer::Location,
};

use super::{
    binder::Binder,
    expression::{Place, strip},
    ordering::Named,
    scope::Scope,
    select::Parts,
    select_list::Output,
    typed::null_of,
};
use crate::{
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    functions::comparison,
};

/// Most grouping sets, Postgres' number.
const MAX_SETS: usize = 4_096;

/// What GROUP BY says.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// The expressions, each once.
    expressions: Vec<Expr>,
    /// Sets of them, by number; one set for a plain GROUP BY. None at all without GROUP BY.
    sets: Vec<Vec<usize>>,
}

impl Groups {
    fn number(&mut self, expr: Expr) -> usize {
        match self.expressions.iter().position(|other| *other == expr) {
            Some(number) => number,
            None => {
                self.expressions.push(expr);
                self.expressions.len() - 1
            }
        }
    }

    /// Combines the sets so far with each of `more`.
    fn cross(&mut self, more: Vec<Vec<usize>>) -> Result<()> {
        if self.sets.len().saturating_mul(more.len()) > MAX_SETS {
            return Err(PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, format!("too many grouping sets present (maximum {MAX_SETS})")));
        }
        let combined = self.sets.iter().flat_map(|set| {
            more.iter().map(move |other| {
                let mut set = set.clone();
                set.extend(other.iter().copied().filter(|number| !set.contains(number)).collect::<Vec<_>>());
                set
            })
        });
        self.sets = combined.collect();
        Ok(())
    }
}

impl Binder<'_> {
    pub(super) fn group_by(&self, group_by: &GroupByExpr, outputs: &[Output], scope: &Scope<'_>) -> Result<Groups> {
        let (items, modifiers) = match group_by {
            GroupByExpr::Expressions(items, modifiers) => (items, modifiers),
            GroupByExpr::All(_) => return Err(PlanError::unsupported("GROUP BY ALL is not supported").with_hint("List the expressions.")),
        };
        let mut groups = Groups::default();
        if items.is_empty() && modifiers.is_empty() {
            return Ok(groups);
        }
        groups.sets.push(Vec::new());
        for item in items {
            let sets = self.grouping_item(item, &mut groups, outputs, scope)?;
            groups.cross(sets)?;
        }
        for modifier in modifiers {
            match modifier {
                GroupByWithModifier::GroupingSets(item) => {
                    let sets = self.grouping_item(item, &mut groups, outputs, scope)?;
                    groups.cross(sets)?;
                }
                other => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{other}\""))),
            }
        }
        Ok(groups)
    }

    /// The sets of one item: itself, or those of ROLLUP, CUBE and GROUPING SETS.
    fn grouping_item(&self, item: &ast::Expr, groups: &mut Groups, outputs: &[Output], scope: &Scope<'_>) -> Result<Vec<Vec<usize>>> {
        let mut elements = |lists: &[Vec<ast::Expr>]| -> Result<Vec<Vec<usize>>> {
            let element = |list: &Vec<ast::Expr>, groups: &mut Groups| {
                list.iter().map(|item| Ok(groups.number(self.group_expression(item, outputs, scope)?))).collect::<Result<Vec<_>>>()
            };
            lists.iter().map(|list| element(list, groups)).collect()
        };
        match item {
            ast::Expr::Rollup(lists) => {
                let elements = elements(lists)?;
                Ok((0..=elements.len()).rev().map(|length| elements[..length].concat()).collect())
            }
            ast::Expr::Cube(lists) => {
                let elements = elements(lists)?;
                if elements.len() > 12 {
                    return Err(PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "CUBE is limited to 12 elements"));
                }
                let subset = |mask: usize| {
                    let chosen = elements.iter().enumerate().filter(|(index, _)| mask >> (elements.len() - 1 - index) & 1 == 1);
                    chosen.flat_map(|(_, element)| element.iter().copied()).collect()
                };
                Ok((0..1_usize << elements.len()).rev().map(subset).collect())
            }
            ast::Expr::GroupingSets(lists) => {
                let mut sets = Vec::new();
                for list in lists {
                    match list.as_slice() {
                        [nested @ (ast::Expr::Rollup(_) | ast::Expr::Cube(_) | ast::Expr::GroupingSets(_))] => {
                            sets.extend(self.grouping_item(nested, groups, outputs, scope)?);
                        }
                        items => {
                            let numbers = items.iter().flat_map(flatten_tuple).map(|item| {
                                let expr = self.group_expression(item, outputs, scope)?;
                                Ok(groups.number(expr))
                            });
                            sets.push(numbers.collect::<Result<_>>()?);
                        }
                    }
                }
                Ok(sets)
            }
            other => {
                let numbers = flatten_tuple(other).into_iter().map(|item| {
                    let expr = self.group_expression(item, outputs, scope)?;
                    Ok(groups.number(expr))
                });
                Ok(vec![numbers.collect::<Result<_>>()?])
            }
        }
    }

    /// A column of FROM first, then a column of the result by name or number, then any expression.
    fn group_expression(&self, ast: &ast::Expr, outputs: &[Output], scope: &Scope<'_>) -> Result<Expr> {
        let names: Vec<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
        let of_from = match strip(ast) {
            ast::Expr::Identifier(ident) => scope.own_column_named(&fold(ident), ident.span)?.is_some(),
            _ => false,
        };
        let named = if of_from { Named::Expression } else { self.named_output(ast, &names, "GROUP BY")? };
        let value = match named {
            Named::Output(index) => {
                let value = outputs[index].value.clone();
                if contains(&value.expr, |expr| matches!(expr, Expr::AggregateFunction(_))) {
                    return Err(
                        PlanError::new(sqlstate::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY").at(outputs[index].span)
                    );
                }
                value
            }
            Named::Expression => self.known(self.expression(ast, scope, &Place::scalar("GROUP BY"))?)?,
        };
        Ok(comparison::distinct_form(self, value).expr)
    }

    /// Puts the aggregation into the plan, if there is one.
    pub(super) fn aggregate(&self, parts: &mut Parts, mut groups: Groups) -> Result<()> {
        order_lists(parts)?;
        let calls = self.calls(parts)?;
        if calls.is_empty() && groups.sets.is_empty() && parts.having.is_none() {
            return Ok(());
        }
        if groups.sets.is_empty() {
            groups.sets.push(Vec::new());
        }
        self.normalise_intervals(parts, &groups)?;
        self.add_dependent_columns(parts, &mut groups)?;
        let input = std::mem::take(&mut parts.plan);
        let (plan, columns) = if groups.sets.len() == 1 && !calls.iter().any(is_grouping) {
            one_set(input, &groups, &calls)?
        } else {
            self.several_sets(input, &groups, &calls)?
        };
        parts.plan = plan;
        parts.map(|expr| replace(expr, &columns))
    }

    /// Grouping by an interval shows its justified form: outputs that are the same expression have to become that form too.
    fn normalise_intervals(&self, parts: &mut Parts, groups: &Groups) -> Result<()> {
        let pairs: Vec<(Expr, Expr)> =
            groups.expressions.iter().filter_map(|expr| comparison::undo_distinct_form(expr).map(|plain| (plain, expr.clone()))).collect();
        if pairs.is_empty() {
            return Ok(());
        }
        parts.map(|expr| {
            let replaced = expr.transform_down(|expr| {
                if matches!(expr, Expr::AggregateFunction(_)) {
                    return Ok(Transformed::new(expr, false, TreeNodeRecursion::Jump));
                }
                Ok(match pairs.iter().find(|(plain, form)| *plain == expr || *form == expr) {
                    Some((_, form)) => Transformed::new(form.clone(), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(expr),
                })
            })?;
            Ok(replaced.data)
        })
    }

    /// The aggregate calls in all expressions, each once.
    fn calls(&self, parts: &Parts) -> Result<Vec<Expr>> {
        let mut calls: Vec<Expr> = Vec::new();
        for expr in parts.expressions() {
            expr.apply(|expr| {
                if let Expr::AggregateFunction(_) = expr {
                    if !calls.contains(expr) {
                        calls.push(expr.clone());
                    }
                    return Ok(TreeNodeRecursion::Jump);
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(calls)
    }

    /// Columns that the primary key among the groups decides are grouped by too.
    fn add_dependent_columns(&self, parts: &Parts, groups: &mut Groups) -> Result<()> {
        let mut ungrouped: Vec<Column> = Vec::new();
        for expr in parts.expressions() {
            collect_ungrouped(expr, &groups.expressions, &mut ungrouped)?;
        }
        if ungrouped.is_empty() {
            return Ok(());
        }
        let keys = primary_keys(&parts.plan);
        for column in ungrouped {
            let decided = column.relation.as_ref().and_then(|relation| keys.get(relation)).is_some_and(|key| {
                let grouped = |part: &Column| groups.expressions.iter().any(|expr| matches!(expr, Expr::Column(found) if found == part));
                !key.is_empty() && key.iter().all(grouped)
            });
            if !decided || groups.sets.len() != 1 {
                return Err(ungrouped_error(&column));
            }
            let number = groups.number(Expr::Column(column));
            groups.sets[0].push(number);
        }
        Ok(())
    }

    fn several_sets(&self, input: LogicalPlan, groups: &Groups, calls: &[Expr]) -> Result<(LogicalPlan, Vec<(Expr, Column)>)> {
        let qualifier = self.unique_qualifier("__groups");
        let name = |prefix: &str, index: usize| format!("{prefix}{index}");
        let (group_calls, real_calls): (Vec<&Expr>, Vec<&Expr>) = calls.iter().partition(|call| is_grouping(call));
        let mut plans = Vec::with_capacity(groups.sets.len());
        for set in &groups.sets {
            let one = Groups { expressions: groups.expressions.clone(), sets: vec![set.clone()] };
            let owned: Vec<Expr> = real_calls.iter().map(|call| (*call).clone()).collect();
            let (plan, columns) = one_set(input.clone(), &one, &owned)?;
            let column_of = |expr: &Expr| columns.iter().find(|(found, _)| found == expr).map(|(_, column)| Expr::Column(column.clone()));
            let mut outputs = Vec::new();
            for (index, expr) in groups.expressions.iter().enumerate() {
                let value = match set.contains(&index).then(|| column_of(expr)).flatten() {
                    Some(column) => column,
                    None => {
                        use datafusion::logical_expr::ExprSchemable;
                        Expr::Literal(null_of(&expr.get_type(input.schema())?), None)
                    }
                };
                outputs.push(value.alias(name("g", index)));
            }
            for (index, call) in real_calls.iter().enumerate() {
                let value = column_of(call).ok_or_else(|| PlanError::internal("an aggregate without a column"))?;
                outputs.push(value.alias(name("a", index)));
            }
            for (index, call) in group_calls.iter().enumerate() {
                outputs.push(lit(grouping_value(call, groups, set)?).alias(name("s", index)));
            }
            plans.push(LogicalPlanBuilder::from(plan).project(outputs)?.build()?);
        }
        let mut plans = plans.into_iter();
        let first = plans.next().ok_or_else(|| PlanError::internal("GROUP BY without a grouping set"))?;
        let union = plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?;
        let plan = union.alias(TableReference::bare(qualifier.clone()))?.build()?;
        let column = |prefix: &str, index: usize| Column::new(Some(TableReference::bare(qualifier.clone())), name(prefix, index));
        let mut columns = Vec::new();
        columns.extend(groups.expressions.iter().enumerate().map(|(index, expr)| (expr.clone(), column("g", index))));
        columns.extend(real_calls.iter().enumerate().map(|(index, call)| ((*call).clone(), column("a", index))));
        columns.extend(group_calls.iter().enumerate().map(|(index, call)| ((*call).clone(), column("s", index))));
        Ok((plan, columns))
    }
}

/// Lists without an order of their own take that of the rows they are made of, as `SELECT array_agg(x) FROM (SELECT .. ORDER BY x)` expects.
fn order_lists(parts: &mut Parts) -> Result<()> {
    let order = super::ordering::order_of(&parts.plan);
    if order.is_empty() {
        return Ok(());
    }
    parts.map(|expr| {
        let ordered = expr.transform_down(|expr| {
            Ok(match expr {
                Expr::AggregateFunction(mut call) if is_list(&call) => {
                    call.params.order_by.clone_from(&order);
                    Transformed::new(Expr::AggregateFunction(call), true, TreeNodeRecursion::Jump)
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(ordered.data)
    })
}

fn is_list(call: &AggregateFunction) -> bool {
    call.params.order_by.is_empty() && !call.params.distinct && matches!(call.func.name(), "array_agg" | "first_value" | "last_value")
}

fn flatten_tuple(ast: &ast::Expr) -> Vec<&ast::Expr> {
    match ast {
        ast::Expr::Tuple(items) => items.iter().collect(),
        other => vec![other],
    }
}

fn contains(expr: &Expr, test: impl Fn(&Expr) -> bool) -> bool {
    expr.exists(|expr| Ok(test(expr))).unwrap_or(false)
}

fn is_grouping(call: &Expr) -> bool {
    matches!(call, Expr::AggregateFunction(call) if call.func.name() == "grouping")
}

/// The bits of GROUPING: 1 for what the set leaves out.
fn grouping_value(call: &Expr, groups: &Groups, set: &[usize]) -> Result<i32> {
    let Expr::AggregateFunction(AggregateFunction { params, .. }) = call else { return Err(PlanError::internal("no call of GROUPING")) };
    params.args.iter().try_fold(0, |bits, argument| {
        let number = groups.expressions.iter().position(|expr| expr == argument).ok_or_else(|| {
            PlanError::new(sqlstate::GROUPING_ERROR, "arguments to GROUPING must be grouping expressions of the associated query level")
        })?;
        Ok(bits << 1 | i32::from(!set.contains(&number)))
    })
}

/// One aggregation, and the columns that stand for its groups and calls.
fn one_set(input: LogicalPlan, groups: &Groups, calls: &[Expr]) -> Result<(LogicalPlan, Vec<(Expr, Column)>)> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    // Different expressions may be written the same, as casts are in names of columns.
    let mut named = |expr: &Expr| {
        let (qualifier, name) = expr.qualified_name();
        let count = used.entry(format!("{qualifier:?}{name}")).and_modify(|count| *count += 1).or_insert(0);
        if *count == 0 {
            (expr.clone(), Column::new(qualifier, name))
        } else {
            let name = format!("{name}:{count}");
            (expr.clone().alias(&name), Column::new_unqualified(name))
        }
    };
    let mut columns = Vec::with_capacity(groups.expressions.len() + calls.len());
    let mut group_exprs = Vec::new();
    for number in &groups.sets[0] {
        let (expr, column) = named(&groups.expressions[*number]);
        columns.push((groups.expressions[*number].clone(), column));
        group_exprs.push(expr);
    }
    let mut call_exprs = Vec::with_capacity(calls.len());
    for call in calls {
        let (expr, column) = named(call);
        columns.push((call.clone(), column));
        call_exprs.push(expr);
    }
    if group_exprs.is_empty() && call_exprs.is_empty() {
        // `HAVING` or `GROUP BY ()` alone: one row, whatever is in it.
        let count = AggregateFunction::new_udf(crate::functions::aggregate::count(), vec![lit(1_i64)], false, None, vec![], None);
        call_exprs.push(Expr::AggregateFunction(count));
    }
    let plan = LogicalPlanBuilder::from(input).aggregate(group_exprs, call_exprs)?.build()?;
    Ok((plan, columns))
}

/// The expression in terms of the columns that stand for groups and calls.
fn replace(expr: Expr, columns: &[(Expr, Column)]) -> Result<Expr> {
    let replaced = expr.transform_down(|expr| {
        if let Some((_, column)) = columns.iter().find(|(found, _)| *found == expr) {
            return Ok(Transformed::new(Expr::Column(column.clone()), true, TreeNodeRecursion::Jump));
        }
        match &expr {
            Expr::Column(column) => Err(ungrouped_error(column).into()),
            _ => Ok(Transformed::no(expr)),
        }
    })?;
    Ok(replaced.data)
}

fn collect_ungrouped(expr: &Expr, groups: &[Expr], ungrouped: &mut Vec<Column>) -> Result<()> {
    expr.apply(|expr| {
        if groups.contains(expr) || matches!(expr, Expr::AggregateFunction(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        let mut note = |column: &Column| {
            let grouped = groups.iter().any(|group| matches!(group, Expr::Column(found) if found == column));
            if !grouped && !ungrouped.contains(column) {
                ungrouped.push(column.clone());
            }
        };
        match expr {
            Expr::Column(column) => note(column),
            Expr::ScalarSubquery(subquery) => subquery.outer_ref_columns.iter().for_each(|outer| {
                if let Expr::OuterReferenceColumn(_, column) = outer {
                    note(column);
                }
            }),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// 42803.
fn ungrouped_error(column: &Column) -> PlanError {
    let message = format!("column \"{}\" must appear in the GROUP BY clause or be used in an aggregate function", column.flat_name());
    let error = PlanError::new(sqlstate::GROUPING_ERROR, message);
    match column.spans.first() {
        Some(span) => error.at_location(Location { line: span.start.line, column: span.start.column }),
        None => error,
    }
}

/// The primary keys of the relations that a plan scans or joins, by qualifier.
fn primary_keys(plan: &LogicalPlan) -> BTreeMap<TableReference, Vec<Column>> {
    let mut keys = BTreeMap::new();
    let mut open = vec![(plan, None::<TableReference>)];
    while let Some((plan, alias)) = open.pop() {
        match plan {
            LogicalPlan::SubqueryAlias(inner) => open.push((&inner.input, Some(inner.alias.clone()))),
            LogicalPlan::TableScan(scan) => {
                let qualifier = alias.unwrap_or_else(|| scan.table_name.clone());
                keys.insert(qualifier.clone(), key_of(scan, &qualifier));
            }
            LogicalPlan::Filter(filter) => open.push((&filter.input, alias)),
            LogicalPlan::Join(join) => {
                open.push((&join.left, None));
                open.push((&join.right, None));
            }
            _ => {}
        }
    }
    keys
}

fn key_of(scan: &TableScan, qualifier: &TableReference) -> Vec<Column> {
    let schema = scan.source.schema();
    let constraints = scan.source.constraints();
    let key = constraints.into_iter().flat_map(|constraints| constraints.iter()).find_map(|constraint| match constraint {
        datafusion::common::Constraint::PrimaryKey(columns) => Some(columns.clone()),
        datafusion::common::Constraint::Unique(_) => None,
    });
    key.unwrap_or_default().into_iter().map(|column| Column::new(Some(qualifier.clone()), schema.field(column).name())).collect()
}
