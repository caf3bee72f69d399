//! UNION, INTERSECT and EXCEPT.

use std::rc::Rc;

use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::{
    ast::{SetExpr, SetOperator, SetQuantifier, Spanned},
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
            let inputs = self.union_inputs(body, outer, common)?;
            return self.union_all(inputs, body);
        }
        let left_rows = self.set_expression(left, outer, common)?;
        let right_rows = self.set_expression(right, outer, common)?;
        let mut aligned = self.align(vec![left_rows, right_rows], &word, !all || !matches!(op, SetOperator::Union), body)?;
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

    /// The inputs of a chain of UNION ALL, from left to right.
    fn union_inputs(&self, body: &SetExpr, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<Vec<BoundRows>> {
        let mut open = vec![body];
        let mut inputs = Vec::new();
        while let Some(next) = open.pop() {
            match next {
                SetExpr::SetOperation { op: SetOperator::Union, set_quantifier: SetQuantifier::All, left, right } => {
                    open.push(right);
                    open.push(left);
                }
                other => inputs.push(self.set_expression(other, outer, common)?),
            }
        }
        Ok(inputs)
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
