//! `IN (subquery)` with SQL's three values, and subquery predicates outside of filters.
//!
//! DataFusion decorrelates `x IN (S)` in a filter to a semi or mark join, which answers false where SQL says NULL; that is the same only as
//! long as nothing negates it. And it decorrelates nothing but filters. So, with `y` the column of `S`:
//! - `x NOT IN (S)` as a conjunct of a filter becomes
//!   `NOT EXISTS (S WHERE y = x) AND NOT EXISTS (S WHERE y IS NULL) AND (x IS NOT NULL OR NOT EXISTS (S))`;
//! - elsewhere `x IN (S)` becomes
//!   `CASE WHEN EXISTS (S WHERE y = x) THEN true WHEN EXISTS (S WHERE y IS NULL) OR (x IS NULL AND EXISTS (S)) THEN NULL ELSE false END`;
//! - outside of filters `EXISTS (S)` becomes `(SELECT bool_or(true) FROM S) IS NOT NULL`, a scalar subquery.
//!
//! Only equalities correlate, so all of them decorrelate to equality joins. Parts about NULL are left out where a column has none.

use std::sync::Arc;

use datafusion::{
    common::{
        Column, DFSchema, ExprSchema, Result, ScalarValue,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    functions_aggregate::bool_and_or::bool_or_udaf,
    logical_expr::{
        BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
        expr::{AggregateFunction, Exists, InSubquery},
        lit,
        logical_plan::Subquery,
        utils::{conjunction, split_conjunction_owned},
        when,
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// Gives subquery predicates SQL's answers in every place.
#[derive(Debug)]
pub(super) struct NullAwareSubquery;

impl OptimizerRule for NullAwareSubquery {
    fn name(&self) -> &str {
        "null_aware_subquery"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if has_in(&filter.predicate) => {
                let schema = Arc::clone(filter.input.schema());
                let conjuncts = split_conjunction_owned(filter.predicate.clone())
                    .into_iter()
                    .map(|conjunct| conjunct_of_filter(conjunct, &schema))
                    .collect::<Result<Vec<_>>>()?;
                let predicate = conjunction(conjuncts).unwrap_or_else(|| lit(true));
                let transformed = predicate != filter.predicate;
                Ok(Transformed::new(LogicalPlan::Filter(Filter::new(predicate, filter.input)), transformed, TreeNodeRecursion::Continue))
            }
            LogicalPlan::Projection(projection) if projection.expr.iter().any(has_predicate) => {
                let schema = Arc::clone(projection.input.schema());
                let expressions = projection
                    .expr
                    .into_iter()
                    .map(|expression| {
                        let name = expression.qualified_name();
                        let valued = exists_as_scalar(three_valued(expression, &schema)?)?;
                        Ok(if valued.qualified_name() == name { valued } else { valued.alias_qualified(name.0, name.1) })
                    })
                    .collect::<Result<Vec<_>>>()?;
                Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(expressions, projection.input)?)))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn has_in(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(matches!(inner, Expr::InSubquery(_)))).unwrap_or(false)
}

fn has_predicate(expression: &Expr) -> bool {
    expression.exists(|inner| Ok(matches!(inner, Expr::InSubquery(_) | Expr::Exists(_)))).unwrap_or(false)
}

/// A conjunct of a filter, where NULL counts as false.
fn conjunct_of_filter(conjunct: Expr, outer: &DFSchema) -> Result<Expr> {
    match conjunct {
        Expr::InSubquery(InSubquery { expr, subquery, negated: true }) => not_in(*expr, &subquery, outer),
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(InSubquery { expr, subquery, negated: false }) => not_in(*expr, &subquery, outer),
            other => three_valued(Expr::Not(Box::new(other)), outer),
        },
        positive @ Expr::InSubquery(_) => Ok(positive),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Or | Operator::And), right }) => {
            let (left, right) = (conjunct_of_filter(*left, outer)?, conjunct_of_filter(*right, outer)?);
            Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
        }
        other => three_valued(other, outer),
    }
}

/// The parts of an IN: (a row is equal, a row is NULL, the value is NULL, there is any row); parts that are never true are `None`.
struct InParts {
    equal: Subquery,
    null_row: Option<Subquery>,
    null_value: Option<Expr>,
    any: Subquery,
}

fn parts(value: &Expr, subquery: &Subquery, outer: &DFSchema) -> Result<InParts> {
    let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
    let column = Expr::Column(Column::from((qualifier, field)));
    let outer_value = as_outer(value, outer)?;
    let null_row = field.is_nullable().then(|| filtered(subquery, column.clone().is_null())).transpose()?;
    let null_value = value.nullable(outer)?.then(|| value.clone());
    let equal = filtered(subquery, column.eq(outer_value))?;
    Ok(InParts { equal, null_row, null_value, any: subquery.clone() })
}

fn not_in(value: Expr, subquery: &Subquery, outer: &DFSchema) -> Result<Expr> {
    let InParts { equal, null_row, null_value, any } = parts(&value, subquery, outer)?;
    let mut result = negated_exists(equal);
    if let Some(null_row) = null_row {
        result = result.and(negated_exists(null_row));
    }
    if let Some(value) = null_value {
        result = result.and(value.is_not_null().or(negated_exists(any)));
    }
    Ok(result)
}

/// Every IN of an expression as a CASE over EXISTS.
fn three_valued(expression: Expr, outer: &DFSchema) -> Result<Expr> {
    let rewritten = expression.transform_up(|inner| {
        let Expr::InSubquery(InSubquery { expr, subquery, negated }) = inner else { return Ok(Transformed::no(inner)) };
        let InParts { equal, null_row, null_value, any } = parts(&expr, &subquery, outer)?;
        let row = null_row.map(plain_exists);
        let value = null_value.map(|value| value.is_null().and(plain_exists(any)));
        let unknown = match (row, value) {
            (Some(row), Some(value)) => Some(row.or(value)),
            (row, value) => row.or(value),
        };
        let mut case = when(plain_exists(equal), lit(!negated));
        if let Some(unknown) = unknown {
            case = case.when(unknown, lit(ScalarValue::Boolean(None)));
        }
        Ok(Transformed::yes(case.otherwise(lit(negated))?))
    })?;
    Ok(rewritten.data)
}

/// Every EXISTS of an expression as a scalar subquery, which DataFusion decorrelates in projections too.
fn exists_as_scalar(expression: Expr) -> Result<Expr> {
    let rewritten = expression.transform_up(|inner| {
        let Expr::Exists(Exists { subquery, negated }) = inner else { return Ok(Transformed::no(inner)) };
        let call = AggregateFunction::new_udf(bool_or_udaf(), vec![lit(true)], false, None, vec![], None);
        let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(subquery.subquery))
            .aggregate(Vec::<Expr>::new(), [Expr::AggregateFunction(call)])?
            .build()?;
        let scalar = Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery });
        Ok(Transformed::yes(if negated { scalar.is_null() } else { scalar.is_not_null() }))
    })?;
    Ok(rewritten.data)
}

fn plain_exists(subquery: Subquery) -> Expr {
    Expr::Exists(Exists { subquery, negated: false })
}

fn negated_exists(subquery: Subquery) -> Expr {
    Expr::Exists(Exists { subquery, negated: true })
}

/// The subquery with a filter on top.
fn filtered(subquery: &Subquery, predicate: Expr) -> Result<Subquery> {
    let mut references: Vec<Expr> = subquery.outer_ref_columns.clone();
    predicate.apply(|inner| {
        if matches!(inner, Expr::OuterReferenceColumn(..)) && !references.contains(inner) {
            references.push(inner.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let plan = LogicalPlan::Filter(Filter::new(predicate, Arc::clone(&subquery.subquery)));
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns: references, spans: subquery.spans.clone() })
}

/// An expression of the outer query as seen from inside the subquery.
fn as_outer(expression: &Expr, outer: &DFSchema) -> Result<Expr> {
    let referenced = expression.clone().transform_up(|inner| match inner {
        Expr::Column(column) => {
            let field = Arc::clone(outer.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(referenced.data)
}
