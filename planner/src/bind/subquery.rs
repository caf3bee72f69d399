//! Subqueries in expressions: scalar, EXISTS, IN, ANY and ALL, ARRAY(..).
//!
//! What DataFusion cannot decorrelate is brought to what it can: a subquery without FROM is its value; a correlated scalar subquery that may
//! have several rows is aggregated by `single_value`, which fails on the second; NOT IN is written with EXISTS, whose rules for NULL are
//! simple; EXISTS as a value is `count(*) > 0`.

use std::sync::Arc;

use datafusion::{
    common::{Column, Spans},
    logical_expr::{
        Expr, LogicalPlan, LogicalPlanBuilder, Operator,
        expr::{AggregateFunction, Exists, InSubquery, Sort},
        lit,
        logical_plan::Subquery,
    },
};
use sqlparser::{
    ast::{self, Query, SelectItem, SetExpr, Spanned},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    expression::{Place, strip},
    ordering::order_of,
    query::BoundRows,
    scope::Scope,
    typed::Typed,
};
use crate::{
    error::{PlanError, Result, sqlstate},
    functions::{aggregate, comparison},
    types::SqlType,
};

/// What the only value of a subquery is called, which must not be the name of a column by which the subquery correlates.
const ONLY_VALUE: &str = "__only_value";

/// A subquery as DataFusion holds it.
fn as_subquery(plan: LogicalPlan) -> Subquery {
    let outer_ref_columns = plan.all_out_ref_exprs();
    Subquery { subquery: Arc::new(plan), outer_ref_columns, spans: Spans::new() }
}

/// Whether the plan surely has at most one row.
fn has_at_most_one_row(plan: &LogicalPlan) -> bool {
    plan.max_rows().is_some_and(|rows| rows <= 1)
}

impl Binder<'_> {
    /// The expression of `SELECT expression` without anything else.
    fn only_value<'q>(&self, query: &'q Query) -> Option<&'q ast::Expr> {
        if query.with.is_some() || query.order_by.is_some() || query.limit_clause.is_some() || query.fetch.is_some() {
            return None;
        }
        match query.body.as_ref() {
            SetExpr::Query(inner) => self.only_value(inner),
            SetExpr::Select(select) => {
                let bare = select.from.is_empty()
                    && select.selection.is_none()
                    && select.having.is_none()
                    && select.distinct.is_none()
                    && matches!(&select.group_by, ast::GroupByExpr::Expressions(items, _) if items.is_empty());
                match select.projection.as_slice() {
                    [SelectItem::UnnamedExpr(ast) | SelectItem::ExprWithAlias { expr: ast, .. }] if bare => Some(ast),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The value of a subquery without FROM, if it is one of plain values.
    fn bare_value(&self, query: &Query, scope: &Scope<'_>) -> Option<Typed> {
        let ast = self.only_value(query)?;
        self.expression(ast, scope, &Place::scalar("SELECT")).ok()
    }

    fn subquery_rows(&self, query: &Query, scope: &Scope<'_>) -> Result<BoundRows> {
        self.query(query, Some(scope), &scope.common)
    }

    pub(super) fn scalar_subquery(&self, query: &Query, scope: &Scope<'_>) -> Result<Typed> {
        if let Some(value) = self.bare_value(query, scope) {
            return self.known(value);
        }
        let rows = self.subquery_rows(query, scope)?;
        let [column] = rows.columns.as_slice() else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "subquery must return only one column").at(query.span()));
        };
        let (sql_type, modifier) = (column.sql_type.clone(), column.modifier);
        let mut plan = rows.plan;
        let correlated = !plan.all_out_ref_exprs().is_empty();
        if correlated && !is_single_aggregate(&plan) {
            plan = self.single_value(plan)?;
        }
        Ok(Typed::new(Expr::ScalarSubquery(as_subquery(plan)), sql_type).with_modifier(modifier))
    }

    /// The only row of a plan of one column; 21000 when it is run if there are several.
    fn single_value(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let column = Expr::Column(Column::from(plan.schema().qualified_field(0)));
        let call = AggregateFunction::new_udf(aggregate::single_value(), vec![column], false, None, vec![], None);
        let call = Expr::AggregateFunction(call).alias(ONLY_VALUE);
        Ok(LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), vec![call])?.build()?)
    }

    pub(super) fn exists(&self, query: &Query, negated: bool, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let rows = self.subquery_rows(query, scope)?;
        let exists = self.exists_plan(rows.plan, place)?;
        Ok(Typed::boolean(if negated { not(exists) } else { exists }))
    }

    /// Whether a plan has rows, as a condition or as a value.
    fn exists_plan(&self, plan: LogicalPlan, place: &Place<'_>) -> Result<Expr> {
        if place.filter {
            return Ok(Expr::Exists(Exists::new(as_subquery(plan), false)));
        }
        let count = AggregateFunction::new_udf(aggregate::count(), vec![lit(1_i64)], false, None, vec![], None);
        let plan = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), vec![Expr::AggregateFunction(count)])?.build()?;
        Ok(Expr::ScalarSubquery(as_subquery(plan)).gt(lit(0_i64)))
    }

    /// NOT of a subquery condition, so that `NOT (x IN ..)` has the rules of NOT IN.
    pub(super) fn negated_subquery(&self, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Option<Typed>> {
        match ast {
            ast::Expr::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, !negated, scope, place).map(Some),
            ast::Expr::Exists { subquery, negated } => self.exists(subquery, !negated, scope, place).map(Some),
            _ => Ok(None),
        }
    }

    /// The left values of IN: one, or those of a row.
    fn left_values(&self, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Vec<Typed>> {
        let place = place.in_value();
        match strip(ast) {
            ast::Expr::Tuple(items) => items.iter().map(|item| self.expression(item, scope, &place)).collect(),
            other => Ok(vec![self.expression(other, scope, &place)?]),
        }
    }

    pub(super) fn in_subquery(&self, ast: &ast::Expr, query: &Query, negated: bool, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = ast.span();
        let left = self.left_values(ast, scope, place)?;
        if let ([value], Some(other)) = (left.as_slice(), self.bare_value(query, scope)) {
            return self.call_operator(if negated { "<>" } else { "=" }, vec![value.clone(), other], span);
        }
        let rows = self.subquery_rows(query, scope)?;
        if rows.columns.len() != left.len() {
            let few = if rows.columns.len() < left.len() { "few" } else { "many" };
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("subquery has too {few} columns")).at(span));
        }
        if !negated
            && place.filter
            && let [value] = left.as_slice()
            && let Some(expr) = self.plain_in(value, &rows, span)?
        {
            return Ok(Typed::boolean(expr));
        }
        self.in_by_exists(left, "=", rows, negated, place, span)
    }

    /// IN of DataFusion's, where both sides compare as they are.
    fn plain_in(&self, value: &Typed, rows: &BoundRows, span: Span) -> Result<Option<Expr>> {
        let column = &rows.columns[0];
        let item = Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone());
        let (left, right) = comparison::operands(self, value.clone(), item.clone(), span)?;
        let plan = if right == item.expr {
            rows.plan.clone()
        } else {
            LogicalPlanBuilder::from(rows.plan.clone()).project([right.alias(&column.column.name)])?.build()?
        };
        Ok(Some(Expr::InSubquery(InSubquery::new(Box::new(left), as_subquery(plan), false))))
    }

    /// `(a, b) op ANY (rows)`, written with EXISTS: true if a row compares true; otherwise NULL if one compares NULL; otherwise false.
    fn in_by_exists(&self, left: Vec<Typed>, symbol: &str, rows: BoundRows, negated: bool, place: &Place<'_>, span: Span) -> Result<Typed> {
        let outer: Vec<Typed> = left.iter().map(|value| to_outer(value.clone())).collect();
        let columns: Vec<Typed> =
            rows.columns.iter().map(|column| Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone())).collect();
        let compared = self.compare_typed_rows(outer, symbol, columns.clone(), span)?.expr;
        let filtered = |condition: Expr| Ok::<_, PlanError>(LogicalPlanBuilder::from(rows.plan.clone()).filter(condition)?.build()?);
        let matched = self.exists_plan(filtered(compared)?, place)?;
        if place.filter && !negated {
            return Ok(Typed::boolean(matched));
        }
        // A row compares NULL if either side has a NULL there, and its other columns do not differ.
        let mut unknowns = Vec::new();
        for (value, column) in left.iter().zip(&columns) {
            if let [_] = left.as_slice() {
                if self.may_be_null(&column.expr, &rows.plan) {
                    unknowns.push(self.exists_plan(filtered(column.expr.clone().is_null())?, place)?);
                }
                if value.constant().is_none_or(|constant| constant.is_null()) {
                    let any = self.exists_plan(rows.plan.clone(), place)?;
                    unknowns.push(value.expr.clone().is_null().and(any));
                }
            }
        }
        if left.len() > 1 {
            unknowns.push(self.exists_plan(filtered(self.row_is_unknown(&left, symbol, &columns, span)?)?, place)?);
        }
        if place.filter {
            let conditions = std::iter::once(matched).chain(unknowns).map(not).collect();
            return Ok(Typed::boolean(super::expression_balanced(conditions, Operator::And)));
        }
        let unknown = super::expression_balanced(unknowns, Operator::Or);
        let null = Expr::Literal(datafusion::common::ScalarValue::Boolean(None), None);
        let value = datafusion::logical_expr::when(matched, lit(!negated)).when(unknown, null).otherwise(lit(negated))?;
        Ok(Typed::boolean(value))
    }

    /// That a comparison of rows is NULL.
    fn row_is_unknown(&self, left: &[Typed], symbol: &str, columns: &[Typed], span: Span) -> Result<Expr> {
        let outer = left.iter().map(|value| to_outer(value.clone())).collect();
        Ok(self.compare_typed_rows(outer, symbol, columns.to_vec(), span)?.expr.is_null())
    }

    fn may_be_null(&self, expr: &Expr, plan: &LogicalPlan) -> bool {
        use datafusion::logical_expr::ExprSchemable;
        expr.nullable(plan.schema()).unwrap_or(true)
    }

    /// `value op ANY (query)`, `value op ALL (query)`
    pub(super) fn quantified_subquery(
        &self,
        left: &ast::Expr,
        symbol: &str,
        query: &Query,
        all: bool,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        match (symbol, all) {
            ("=", false) => return self.in_subquery(left, query, false, scope, place),
            ("<>", true) => return self.in_subquery(left, query, true, scope, place),
            _ => {}
        }
        let values = self.left_values(left, scope, place)?;
        let rows = self.subquery_rows(query, scope)?;
        if rows.columns.len() != values.len() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "subquery has too many columns").at(left.span()));
        }
        // ALL is that there is none for which the opposite holds.
        let symbol = if all { opposite(symbol).ok_or_else(|| unsupported_all(symbol, left.span()))? } else { symbol };
        self.in_by_exists(values, symbol, rows, all, place, left.span())
    }

    /// `ARRAY(SELECT ..)`
    pub(super) fn array_subquery(&self, query: &Query, scope: &Scope<'_>) -> Result<Typed> {
        let rows = self.subquery_rows(query, scope)?;
        let [column] = rows.columns.as_slice() else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "subquery must return only one column").at(query.span()));
        };
        let element = column.sql_type.clone();
        let (input, argument, order) = ordered_values(rows.plan, Expr::Column(column.column.clone()));
        let chosen = aggregate::list_of(element.clone());
        let call = AggregateFunction::new_udf(chosen.function, vec![argument], false, None, order, None);
        let plan = LogicalPlanBuilder::from(input).aggregate(Vec::<Expr>::new(), vec![Expr::AggregateFunction(call)])?.build()?;
        let value = Typed::new(Expr::ScalarSubquery(as_subquery(plan)), SqlType::array(element.clone()));
        let empty = Typed::literal(crate::functions::cast::empty_array(&element), SqlType::array(element));
        self.call("coalesce", vec![value, empty], query.span())
    }
}

/// The values of a query and their order, which may be one by columns that the query does not show.
fn ordered_values(plan: LogicalPlan, value: Expr) -> (LogicalPlan, Expr, Vec<Sort>) {
    if let LogicalPlan::Projection(projection) = &plan
        && let (LogicalPlan::Sort(sort), [shown]) = (projection.input.as_ref(), projection.expr.as_slice())
    {
        let (shown, order) = (shown.clone().unalias(), sort.expr.clone());
        return (projection.input.as_ref().clone(), shown, order);
    }
    let order = order_of(&plan);
    (plan, value, order)
}

fn not(expr: Expr) -> Expr {
    match expr {
        Expr::Exists(exists) => Expr::Exists(Exists::new(exists.subquery, !exists.negated)),
        other => Expr::Not(Box::new(other)),
    }
}

/// Columns of the query round about, seen from inside of the subquery.
fn to_outer(value: Typed) -> Typed {
    use datafusion::common::tree_node::{Transformed, TreeNode};
    let sql_type = value.sql_type.clone();
    let arrow = sql_type.arrow();
    let only_column = matches!(value.expr, Expr::Column(_));
    let expr = value
        .expr
        .transform(|expr| {
            Ok(match expr {
                Expr::Column(column) => {
                    // The type matters to whoever asks for the field; of inner columns it is looked up again when the plan is built.
                    let data_type = if only_column { arrow.clone() } else { arrow::datatypes::DataType::Null };
                    let field = arrow::datatypes::Field::new(&column.name, data_type, true);
                    Transformed::yes(Expr::OuterReferenceColumn(Arc::new(field), column))
                }
                other => Transformed::no(other),
            })
        })
        .map(|transformed| transformed.data);
    match expr {
        Ok(expr) => Typed::new(expr, sql_type).with_modifier(value.modifier),
        Err(_) => Typed::null(sql_type),
    }
}

fn is_single_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_single_aggregate(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_single_aggregate(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        other => has_at_most_one_row(other) && other.all_out_ref_exprs().is_empty(),
    }
}

fn opposite(symbol: &str) -> Option<&'static str> {
    Some(match symbol {
        "=" => "<>",
        "<>" => "=",
        "<" => ">=",
        "<=" => ">",
        ">" => "<=",
        ">=" => "<",
        "~~" => "!~~",
        "!~~" => "~~",
        "~" => "!~",
        "!~" => "~",
        _ => return None,
    })
}

fn unsupported_all(symbol: &str, span: Span) -> PlanError {
    PlanError::unsupported(format!("operator {symbol} ALL (subquery) is not supported")).at(span)
}
