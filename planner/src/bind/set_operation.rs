//! UNION, INTERSECT and EXCEPT.

use std::rc::Rc;

use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::{
    ast::{self, SelectItem, SetExpr, SetOperator, SetQuantifier, Spanned, Value},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    coerce::unmatched,
    query::BoundRows,
    scope::{CommonTables, Scope, ScopeColumn},
    select_list::unique_names,
    typed::Typed,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    functions::comparison,
    types::{
        SqlType,
        coercion::{CoercionContext, common_type},
        modifier,
    },
};

impl Binder<'_> {
    pub(super) fn set_operation(&self, body: &SetExpr, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        let SetExpr::SetOperation { op, set_quantifier, left, right } = body else {
            return Err(PlanError::internal("a set operation that is none"));
        };
        let all = match set_quantifier {
            SetQuantifier::All => true,
            SetQuantifier::None | SetQuantifier::Distinct => false,
            other => return Err(PlanError::unsupported(format!("{op} {other} is not supported")).at(body.span())),
        };
        let word = op.to_string();
        if matches!(op, SetOperator::Union) && all {
            let inputs = self.set_inputs(&union_inputs(body), outer, common)?;
            return self.union_all(inputs, body);
        }
        let inputs = self.set_inputs(&[left.as_ref(), right.as_ref()], outer, common)?;
        let mut aligned = self.align(inputs, &word, !all || !matches!(op, SetOperator::Union), body)?;
        let columns = aligned.columns;
        let (Some(right), Some(left)) = (aligned.plans.pop(), aligned.plans.pop()) else {
            return Err(PlanError::internal("two inputs were aligned"));
        };
        let plan = match op {
            SetOperator::Union => LogicalPlanBuilder::from(left).union(right)?.distinct()?.build()?,
            SetOperator::Intersect if all => self.counted(left, right, true)?,
            SetOperator::Except | SetOperator::Minus if all => self.counted(left, right, false)?,
            SetOperator::Intersect => LogicalPlanBuilder::intersect(left, right, false)?,
            SetOperator::Except | SetOperator::Minus => LogicalPlanBuilder::except(left, right, false)?,
        };
        Ok(output_of(plan, columns))
    }

    /// Binds inputs. A literal or NULL without a type takes that of the same column of the others.
    fn set_inputs(&self, bodies: &[&SetExpr], outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<Vec<BoundRows>> {
        let untyped: Vec<Vec<usize>> = bodies.iter().map(|body| untyped_items(body)).collect();
        let mut bound: Vec<Option<BoundRows>> = Vec::with_capacity(bodies.len());
        let all_untyped = untyped.iter().all(|items| !items.is_empty());
        for (body, items) in bodies.iter().zip(&untyped) {
            bound.push(if items.is_empty() || all_untyped { Some(self.set_expression(body, outer, common)?) } else { None });
        }
        let mut inputs = Vec::with_capacity(bodies.len());
        for (index, body) in bodies.iter().enumerate() {
            let items = &untyped[index];
            let targets = if items.is_empty() { Vec::new() } else { types_of_others(&bound, &untyped, index) };
            let useful = items.iter().any(|item| targets.get(*item).is_some_and(|target| *target != SqlType::Text));
            inputs.push(match bound[index].clone() {
                Some(rows) if !useful => rows,
                _ => self.with_targets(body, targets, outer, common)?,
            });
        }
        Ok(inputs)
    }

    /// Binds one input whose columns without a type become those of `targets`.
    fn with_targets(
        &self,
        body: &SetExpr,
        targets: Vec<SqlType>,
        outer: Option<&Scope<'_>>,
        common: &Rc<CommonTables>,
    ) -> Result<BoundRows> {
        match body {
            SetExpr::Select(select) => self.select(select, &[], &targets, outer, common),
            SetExpr::Query(query) => {
                *self.targets.borrow_mut() = Some(targets);
                self.query(query, outer, common)
            }
            other => self.set_expression(other, outer, common),
        }
    }

    fn union_all(&self, inputs: Vec<BoundRows>, body: &SetExpr) -> Result<BoundRows> {
        let aligned = self.align(inputs, "UNION", false, body)?;
        let mut plans = aligned.plans.into_iter();
        let first = plans.next().ok_or_else(|| PlanError::internal("a union of nothing"))?;
        let plan = plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?.build()?;
        Ok(output_of(plan, aligned.columns))
    }

    /// Brings inputs to the same names and types.
    fn align(&self, inputs: Vec<BoundRows>, word: &str, distinct: bool, body: &SetExpr) -> Result<Aligned> {
        let count = inputs.first().map_or(0, |rows| rows.columns.len());
        if inputs.iter().any(|rows| rows.columns.len() != count) {
            let message = format!("each {word} query must have the same number of columns");
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(body.span()));
        }
        let mut types = Vec::with_capacity(count);
        for index in 0..count {
            let candidates: Vec<SqlType> = inputs.iter().map(|rows| rows.columns[index].sql_type.clone()).collect();
            types.push(common_type(&candidates).ok_or_else(|| unmatched(&candidates, word).at(item_span(body, &candidates, index)))?);
        }
        let names: Vec<String> =
            inputs.first().map(|rows| rows.columns.iter().map(|column| column.name.clone()).collect()).unwrap_or_default();
        let plan_names = unique_names(&names);
        let mut columns: Vec<ScopeColumn> = inputs.first().map(|rows| rows.columns.clone()).unwrap_or_default();
        for (index, column) in columns.iter_mut().enumerate() {
            let same = inputs.iter().all(|rows| rows.columns[index].modifier == column.modifier);
            column.modifier = if same { column.modifier } else { modifier::NONE };
            column.nullable = inputs.iter().any(|rows| rows.columns[index].nullable);
            column.sql_type = types[index].clone();
            column.origin = None;
        }
        let mut plans = Vec::with_capacity(inputs.len());
        for rows in inputs {
            let mut expressions = Vec::with_capacity(count);
            for (column, (sql_type, name)) in rows.columns.iter().zip(types.iter().zip(&plan_names)) {
                let value = Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone());
                let value = self.coerce(value, sql_type, CoercionContext::Implicit, body.span())?;
                let value = if distinct { comparison::distinct_form(self, value) } else { value };
                expressions.push(value.expr.alias(name));
            }
            plans.push(LogicalPlanBuilder::from(rows.plan).project(expressions)?.build()?);
        }
        Ok(Aligned { plans, columns })
    }

    /// INTERSECT ALL and EXCEPT ALL: copies of a row are numbered on both sides, so that they can be compared one by one.
    fn counted(&self, left: LogicalPlan, right: LogicalPlan, intersect: bool) -> Result<LogicalPlan> {
        const NUMBER: &str = "copy";
        let numbered = |plan: LogicalPlan| -> Result<LogicalPlan> {
            let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
            let call = crate::functions::window::row_number(columns.clone(), Vec::new());
            let name = call.schema_name().to_string();
            let plan = LogicalPlanBuilder::window_plan(plan, [call])?;
            let mut outputs = columns;
            outputs.push(Expr::Column(datafusion::common::Column::new_unqualified(name)).alias(NUMBER));
            Ok(LogicalPlanBuilder::from(plan).project(outputs)?.build()?)
        };
        let columns: Vec<Expr> =
            left.schema().columns().into_iter().map(|column| Expr::Column(column.clone()).alias(column.name)).collect();
        let (left, right) = (numbered(left)?, numbered(right)?);
        let plan =
            if intersect { LogicalPlanBuilder::intersect(left, right, true)? } else { LogicalPlanBuilder::except(left, right, true)? };
        Ok(LogicalPlanBuilder::from(plan).project(columns)?.build()?)
    }
}

/// The inputs of a chain of UNION ALL, from left to right.
fn union_inputs(body: &SetExpr) -> Vec<&SetExpr> {
    let mut open = vec![body];
    let mut inputs = Vec::new();
    while let Some(next) = open.pop() {
        match next {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                open.push(right);
                open.push(left);
            }
            other => inputs.push(other),
        }
    }
    inputs
}

/// Columns of a SELECT that are literals without a type.
fn untyped_items(body: &SetExpr) -> Vec<usize> {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return untyped_items(&query.body),
        _ => return Vec::new(),
    };
    let is_untyped = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => matches!(
            super::expression::strip(value),
            ast::Expr::Value(ast::ValueWithSpan { value: Value::SingleQuotedString(_) | Value::Null | Value::Placeholder(_), .. })
        ),
        _ => false,
    };
    let named = |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    if !select.projection.iter().all(named) {
        return Vec::new();
    }
    select.projection.iter().enumerate().filter(|(_, item)| is_untyped(item)).map(|(index, _)| index).collect()
}

/// For each column the type that the inputs beside one give it, as far as they have types of their own; text where none has.
fn types_of_others(bound: &[Option<BoundRows>], untyped: &[Vec<usize>], own: usize) -> Vec<SqlType> {
    let width = bound.iter().flatten().map(|rows| rows.columns.len()).max().unwrap_or(0);
    let column = |column: usize| {
        let others = bound.iter().zip(untyped).enumerate().filter(|(index, (_, items))| *index != own && !items.contains(&column));
        let types: Vec<SqlType> =
            others.filter_map(|(_, (rows, _))| rows.as_ref()?.columns.get(column).map(|column| column.sql_type.clone())).collect();
        common_type(&types).unwrap_or(SqlType::Text)
    };
    (0..width).map(column).collect()
}

/// Where the column stands whose type does not go with those before it.
fn item_span(body: &SetExpr, types: &[SqlType], column: usize) -> Span {
    let fits = |end: &usize| common_type(&types[..=*end]).is_some();
    let wrong = (1..types.len()).find(|end| !fits(end)).unwrap_or(1);
    let mut open = vec![body];
    let mut inputs: Vec<&SetExpr> = Vec::new();
    while let Some(next) = open.pop() {
        match next {
            SetExpr::SetOperation { left, right, .. } => open.extend([right.as_ref(), left.as_ref()]),
            other => inputs.push(other),
        }
    }
    match inputs.get(wrong) {
        Some(SetExpr::Select(select)) => select.projection.get(column).map_or_else(|| body.span(), Spanned::span),
        _ => body.span(),
    }
}

struct Aligned {
    plans: Vec<LogicalPlan>,
    columns: Vec<ScopeColumn>,
}

/// The columns as those of the plan.
fn output_of(plan: LogicalPlan, mut columns: Vec<ScopeColumn>) -> BoundRows {
    for (column, found) in columns.iter_mut().zip(plan.schema().columns()) {
        column.column = found;
    }
    BoundRows { plan, columns }
}
