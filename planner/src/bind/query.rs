//! Queries: WITH, the body, ORDER BY and LIMIT.

use std::rc::Rc;

use datafusion::{
    common::{Column, ScalarValue},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit},
};
use sqlparser::{
    ast::{self, LimitClause, OrderBy, OrderByKind, Query, SetExpr, Spanned},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    expression::{Place, with_stack},
    scope::{CommonTables, Scope, ScopeColumn},
    typed::Typed,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    types::{SqlType, coercion::CoercionContext},
};

/// A plan and its columns, named as users see them. Their plan columns are those of the plan, in order.
#[derive(Clone, Debug)]
pub(super) struct BoundRows {
    pub(super) plan: LogicalPlan,
    pub(super) columns: Vec<ScopeColumn>,
}

impl Binder<'_> {
    /// Binds a query inside of another one (`outer`) or alone.
    pub(super) fn query(&self, query: &Query, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        with_stack(|| self.query_level(query, outer, common))
    }

    fn query_level(&self, query: &Query, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        self.add_relations(1, Span::empty())?;
        if query.for_clause.is_some() || query.settings.is_some() || query.format_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "syntax error after the query").at(query.span()));
        }
        let common = match &query.with {
            Some(with) => Rc::new(self.with_clause(with, outer, common)?),
            None => Rc::clone(common),
        };
        let order_by = order_items(query.order_by.as_ref())?;
        // They are meant for this query, not for those inside of it.
        let targets = self.targets.borrow_mut().take().unwrap_or_default();
        let rows = match query.body.as_ref() {
            SetExpr::Select(select) => self.select(select, order_by, &targets, outer, &common)?,
            other => {
                let rows = self.set_expression(other, outer, &common)?;
                self.order_outputs(rows, order_by)?
            }
        };
        self.limit(rows, query, outer, &common)
    }

    /// The rows of a set expression, in no order.
    pub(super) fn set_expression(&self, body: &SetExpr, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        match body {
            SetExpr::Select(select) => self.select(select, &[], &[], outer, common),
            SetExpr::Query(query) => self.query(query, outer, common),
            SetExpr::SetOperation { .. } => with_stack(|| self.set_operation(body, outer, common)),
            SetExpr::Values(values) => self.values(values, outer, common),
            SetExpr::Table(table) => self.table_command(table, common),
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(PlanError::unsupported("statements that change data are not supported inside of a query")
                    .with_hint("Send two statements."))
            }
        }
    }

    fn limit(&self, rows: BoundRows, query: &Query, outer: Option<&Scope<'_>>, common: &Rc<CommonTables>) -> Result<BoundRows> {
        let scope = Scope::below(outer, Rc::clone(common));
        let (mut skip, mut fetch) = (None, None);
        match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
                if !limit_by.is_empty() {
                    return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "LIMIT BY is not SQL").at(query.span()));
                }
                fetch = limit.as_ref().map(|limit| self.row_count(limit, "LIMIT", &scope)).transpose()?.flatten();
                skip = offset.as_ref().map(|offset| self.row_count(&offset.value, "OFFSET", &scope)).transpose()?.flatten();
            }
            Some(LimitClause::OffsetCommaLimit { .. }) => {
                let error = PlanError::new(sqlstate::SYNTAX_ERROR, "LIMIT #,# syntax is not supported");
                return Err(error.with_hint("Use separate LIMIT and OFFSET clauses.").at(query.span()));
            }
            None => {}
        }
        if let Some(clause) = &query.fetch {
            if clause.percent {
                return Err(PlanError::unsupported("FETCH .. PERCENT is not supported").with_hint("Use percent_rank() in a subquery."));
            }
            fetch = match &clause.quantity {
                Some(quantity) => self.row_count(quantity, "LIMIT", &scope)?,
                None => Some(lit(1_i64)),
            };
        }
        if skip.is_none() && fetch.is_none() {
            return Ok(rows);
        }
        if let (Some(ast::Fetch { with_ties: true, .. }), Some(fetch)) = (&query.fetch, &fetch) {
            return with_ties(rows, skip, fetch.clone());
        }
        let plan = LogicalPlanBuilder::from(rows.plan).limit_by_expr(skip, fetch)?.build()?;
        Ok(BoundRows { plan, columns: rows.columns })
    }

    /// A number of rows; `None` if it is NULL, which means no limit.
    fn row_count(&self, ast: &ast::Expr, clause: &'static str, scope: &Scope<'_>) -> Result<Option<Expr>> {
        let span = ast.span();
        let value = self.expression(ast, scope, &Place::scalar(clause))?;
        if value.expr.any_column_refs() {
            return Err(
                PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, format!("argument of {clause} must not contain variables")).at(span)
            );
        }
        let value = self.coerce(value, &SqlType::BigInt, CoercionContext::Assignment, span)?;
        match self.constant_of(value.clone())? {
            Some(constant) if constant.is_null() => Ok(None),
            Some(constant) => {
                let negative = constant < ScalarValue::Int64(Some(0));
                let code = if clause == "LIMIT" { sqlstate::INVALID_ROW_COUNT_IN_LIMIT } else { sqlstate::INVALID_ROW_COUNT_IN_OFFSET };
                if negative {
                    return Err(PlanError::new(code, format!("{clause} must not be negative")).at(span));
                }
                Ok(Some(Expr::Literal(constant, None)))
            }
            None => Ok(Some(value.expr)),
        }
    }

    /// The value of an expression without columns, parameters and volatile functions.
    ///
    /// # Errors
    /// Errors of its evaluation.
    pub(crate) fn constant_of(&self, value: Typed) -> Result<Option<ScalarValue>> {
        crate::functions::session::evaluate_constant(value.expr)
    }
}

/// `FETCH FIRST n ROWS WITH TIES`: all rows that rank as high as the last one.
fn with_ties(rows: BoundRows, skip: Option<Expr>, fetch: Expr) -> Result<BoundRows> {
    // Keys that are not shown have been cut off above the sort.
    let (outputs, sort) = match &rows.plan {
        LogicalPlan::Projection(projection) if let LogicalPlan::Sort(sort) = projection.input.as_ref() => {
            (projection.expr.clone(), sort.clone())
        }
        LogicalPlan::Sort(sort) => (sort.input.schema().columns().into_iter().map(Expr::Column).collect(), sort.clone()),
        _ => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "WITH TIES cannot be specified without ORDER BY clause")),
    };
    let rank = crate::functions::window::rank(vec![], sort.expr.clone());
    let place = Expr::Column(Column::new_unqualified(rank.schema_name().to_string()));
    let last = match (&skip, &fetch) {
        (None, fetch) => fetch.clone(),
        (Some(Expr::Literal(ScalarValue::Int64(Some(skip)), _)), Expr::Literal(ScalarValue::Int64(Some(fetch)), _)) => {
            lit(skip.saturating_add(*fetch))
        }
        (Some(skip), fetch) => skip.clone() + fetch.clone(),
    };
    let ranked = LogicalPlanBuilder::window_plan(sort.input.as_ref().clone(), [rank])?;
    let mut builder = LogicalPlanBuilder::from(ranked).filter(place.lt_eq(last))?.sort(sort.expr)?;
    if skip.is_some() {
        builder = builder.limit_by_expr(skip, None)?;
    }
    Ok(BoundRows { plan: builder.project(outputs)?.build()?, columns: rows.columns })
}

/// The items of ORDER BY.
fn order_items(order_by: Option<&OrderBy>) -> Result<&[ast::OrderByExpr]> {
    match order_by {
        None => Ok(&[]),
        Some(OrderBy { kind: OrderByKind::Expressions(items), interpolate: None }) => Ok(items),
        Some(_) => Err(PlanError::unsupported("ORDER BY ALL is not supported").with_hint("Name the columns.")),
    }
}
