//! Calls of aggregates.

use datafusion::logical_expr::{
    Expr,
    expr::{AggregateFunction, Sort},
    lit,
};
use sqlparser::{
    ast::{self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, OrderByExpr, Spanned},
    tokenizer::Span,
};

use super::{Place, not_supported};
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    error::{PlanError, Result, sqlstate},
    functions::{
        aggregate::{self, collected},
        comparison,
        row_key::row_key,
    },
    types::SqlType,
};

/// Where arguments of aggregates stand; the name makes the message of a nested call.
const ARGUMENT: &str = "an aggregate's argument";

/// The parts of an aggregate's parentheses.
pub(super) struct AggregateArguments {
    pub(super) values: Vec<Typed>,
    pub(super) star: bool,
    pub(super) distinct: bool,
    pub(super) order_by: Vec<OrderByExpr>,
}

/// An aggregate as it is computed.
pub(super) struct Lowered {
    pub(super) chosen: aggregate::Chosen,
    pub(super) values: Vec<Expr>,
    pub(super) collected: Option<collected::Collected>,
}

impl Binder<'_> {
    pub(super) fn aggregate_call(&self, name: &str, function: &ast::Function, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = function.name.span();
        if !place.aggregates {
            return Err(misplaced(place, span));
        }
        let inner = Place { named_windows: &[], ..Place::scalar(ARGUMENT) };
        let arguments = self.aggregate_arguments(function, scope, &inner)?;
        let filter = match &function.filter {
            Some(filter) => Some(Box::new(self.condition_of(filter, scope, &Place::scalar("FILTER"))?)),
            None => None,
        };
        if !function.within_group.is_empty() {
            return self.ordered_set_call(name, arguments.values, &function.within_group, filter, scope, span);
        }
        if collected::is_ordered_set(name) {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
            return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
        }
        if arguments.star && name != "count" {
            return Err(super::call::undefined(name, &[], span));
        }
        let Lowered { chosen, mut values, collected } = self.lower_aggregate(name, &arguments, span)?;
        let mut order_by = self.aggregate_order(&arguments.order_by, arguments.distinct, &mut values, scope, &inner, span)?;
        if let ("count", true, [value]) = (name, arguments.distinct, arguments.values.as_slice())
            && let Some(key) = row_key(self, value)
        {
            // How many differ does not depend on their order.
            (values, order_by) = (vec![key], Vec::new());
        }
        if values.is_empty() {
            values.push(lit(1_i64));
        }
        let call = AggregateFunction::new_udf(chosen.function, values, arguments.distinct, filter, order_by, None);
        let value = Typed::new(Expr::AggregateFunction(call), chosen.result);
        match collected {
            Some(collected) => collected.finish(self, value),
            None => Ok(value),
        }
    }

    /// The function that is called, what it is called with, and what makes the aggregate of its result.
    pub(super) fn lower_aggregate(&self, name: &str, arguments: &AggregateArguments, span: Span) -> Result<Lowered> {
        if let ("regr_count", [left, right]) = (name, arguments.values.as_slice()) {
            // Rows in which both are there.
            let both = left.expr.clone().is_not_null().and(right.expr.clone().is_not_null());
            let value = Expr::Case(datafusion::logical_expr::Case::new(None, vec![(Box::new(both), Box::new(lit(true)))], None));
            let chosen = aggregate::choose("count", &[SqlType::Boolean]).ok_or_else(|| PlanError::internal("count is not registered"))?;
            return Ok(Lowered { chosen, values: vec![value], collected: None });
        }
        let collected = collected::collect(self, name, &arguments.values)?;
        let (chosen, values) = match &collected {
            Some(collected) => (aggregate::list_of(collected.element.sql_type.clone()), vec![collected.element.clone()]),
            None => (self.choose_aggregate(name, arguments, span)?, arguments.values.clone()),
        };
        let values = self.aggregate_values(values, &chosen.arguments, arguments.distinct)?;
        Ok(Lowered { chosen, values, collected })
    }

    pub(super) fn aggregate_arguments(&self, function: &ast::Function, scope: &Scope<'_>, place: &Place<'_>) -> Result<AggregateArguments> {
        let span = function.name.span();
        let mut parts = AggregateArguments { values: Vec::new(), star: false, distinct: false, order_by: Vec::new() };
        let list = match &function.args {
            FunctionArguments::List(list) => list,
            FunctionArguments::Subquery(query) => {
                parts.values.push(self.scalar_subquery(query, scope)?);
                return Ok(parts);
            }
            FunctionArguments::None => return Ok(parts),
        };
        parts.distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        for argument in &list.args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(ast)) => parts.values.push(self.expression(ast, scope, place)?),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) if list.args.len() == 1 => parts.star = true,
                FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                    let name = crate::catalog::QualifiedName::from_ast(name)?;
                    parts.values.push(self.whole_row(name.schema.as_deref(), &name.name, scope, span)?);
                }
                other => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("argument {other} is not supported")).at(span)),
            }
        }
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(items) => parts.order_by.clone_from(items),
                other => return Err(not_supported(&format!("{other} in an aggregate"), "Use ORDER BY and FILTER.", span)),
            }
        }
        if parts.star && parts.distinct {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "DISTINCT specified, but no argument given").at(span));
        }
        if !parts.star && parts.values.is_empty() && function.name.to_string().eq_ignore_ascii_case("count") {
            let message = "count(*) must be used to call a parameterless aggregate function";
            return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
        }
        Ok(parts)
    }

    pub(super) fn choose_aggregate(&self, name: &str, arguments: &AggregateArguments, span: Span) -> Result<aggregate::Chosen> {
        let types: Vec<SqlType> = arguments.values.iter().map(|value| value.sql_type.clone()).collect();
        aggregate::choose(name, &types).ok_or_else(|| super::call::undefined(name, &types, span))
    }

    /// The arguments as the aggregate wants them; values that are told apart have one form each.
    pub(super) fn aggregate_values(&self, values: Vec<Typed>, types: &[SqlType], distinct: bool) -> Result<Vec<Expr>> {
        let values = values.into_iter().zip(types).map(|(value, sql_type)| {
            let value = self.implicit(value, sql_type)?;
            Ok(if distinct { comparison::distinct_form(self, value) } else { value }.expr)
        });
        values.collect()
    }

    /// ORDER BY inside of an aggregate.
    fn aggregate_order(
        &self,
        items: &[OrderByExpr],
        distinct: bool,
        values: &mut [Expr],
        scope: &Scope<'_>,
        place: &Place<'_>,
        span: Span,
    ) -> Result<Vec<Sort>> {
        let mut order = Vec::with_capacity(items.len());
        for item in items {
            let value = self.known(self.expression(&item.expr, scope, place)?)?;
            let key = comparison::sort_key(self, value);
            if distinct && !values.contains(&key) {
                let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message).at(span));
            }
            order.push(self.sort(key, &item.options));
        }
        Ok(order)
    }

    /// `percentile_cont(0.5) WITHIN GROUP (ORDER BY x)`
    fn ordered_set_call(
        &self,
        name: &str,
        direct: Vec<Typed>,
        within: &[OrderByExpr],
        filter: Option<Box<Expr>>,
        scope: &Scope<'_>,
        span: Span,
    ) -> Result<Typed> {
        let [item] = within else {
            return Err(not_supported("WITHIN GROUP with several columns", "Order by one column.", span));
        };
        let value = self.known(self.expression(&item.expr, scope, &Place::scalar(ARGUMENT))?)?;
        if !collected::is_ordered_set(name) {
            let message = format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP");
            return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
        }
        let types: Vec<SqlType> = direct.iter().chain([&value]).map(|argument| argument.sql_type.clone()).collect();
        let collected = collected::collect_ordered(self, name, direct, value)?.ok_or_else(|| super::call::undefined(name, &types, span))?;
        let chosen = aggregate::list_of(collected.element.sql_type.clone());
        let order = vec![self.sort(comparison::sort_key(self, collected.element.clone()), &item.options)];
        let call = AggregateFunction::new_udf(chosen.function, vec![collected.element.expr.clone()], false, filter, order, None);
        collected.finish(self, Typed::new(Expr::AggregateFunction(call), chosen.result))
    }

    /// `GROUPING(a, b)`
    pub(super) fn grouping_call(&self, function: &ast::Function, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = function.name.span();
        if !place.aggregates {
            return Err(
                PlanError::new(sqlstate::GROUPING_ERROR, format!("grouping operations are not allowed in {}", place.clause)).at(span)
            );
        }
        let values = self.arguments(&function.args, scope, &Place::scalar("GROUPING"))?;
        let values = values.into_iter().map(|value| value.expr).collect();
        let call =
            AggregateFunction::new_udf(datafusion::functions_aggregate::grouping::grouping_udaf(), values, false, None, vec![], None);
        Ok(Typed::new(Expr::AggregateFunction(call), SqlType::Integer))
    }
}

/// 42803 in the words of the place.
fn misplaced(place: &Place<'_>, span: Span) -> PlanError {
    let message = if place.clause == ARGUMENT {
        "aggregate function calls cannot be nested".to_owned()
    } else {
        format!("aggregate functions are not allowed in {}", place.clause)
    };
    PlanError::new(sqlstate::GROUPING_ERROR, message).at(span)
}
