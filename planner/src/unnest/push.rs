//! Carries the domain up through a subquery: each operator computes for all combinations of outer values at once.

use std::sync::Arc;

use datafusion::{
    common::{Column, JoinType, NullEquality, Result, ScalarValue},
    functions::core::expr_fn::coalesce,
    logical_expr::{
        Aggregate, Distinct, DistinctOn, Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection, Sort, SortExpr, SubqueryAlias,
        Unnest, Values, Window, WindowFrame,
        expr::{WindowFunction, WindowFunctionParams},
        lit,
        utils::conjunction,
    },
};

use super::{
    domain::Domain,
    expression::{named_as, renamed_subquery, with_domain},
    same_key,
    shape::is_correlated,
};

/// A plan with the columns it had, first and in their order, and the columns of the domain.
pub(super) struct Pushed {
    pub(super) plan: LogicalPlan,
    /// In the order of the outer columns.
    pub(super) keys: Vec<Column>,
}

/// The plan for all rows of the domain; `None` if one of its operators cannot be computed that way.
pub(super) fn push(plan: &LogicalPlan, domain: &Domain) -> Result<Option<Pushed>> {
    if !is_correlated(plan) {
        let (copy, keys) = domain.copy()?;
        let crossed = LogicalPlanBuilder::from(plan.clone()).cross_join(copy)?.build()?;
        return Ok(Some(Pushed { plan: crossed, keys }));
    }
    match plan {
        LogicalPlan::Filter(filter) => filtered(filter, domain),
        LogicalPlan::Projection(projection) => match push(&projection.input, domain)? {
            Some(input) => project(projection, input, domain).map(Some),
            None => Ok(None),
        },
        LogicalPlan::SubqueryAlias(alias) => match push(&alias.input, domain)? {
            Some(input) => aliased(alias, input).map(Some),
            None => Ok(None),
        },
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate, domain),
        LogicalPlan::Distinct(Distinct::All(input)) => match push(input, domain)? {
            Some(Pushed { plan, keys }) => Ok(Some(Pushed { plan: LogicalPlan::Distinct(Distinct::All(Arc::new(plan))), keys })),
            None => Ok(None),
        },
        LogicalPlan::Distinct(Distinct::On(distinct)) => first_of_each(distinct, domain),
        LogicalPlan::Sort(Sort { input, fetch: None, .. }) => push(input, domain),
        LogicalPlan::Limit(limit) => match (constant(limit.skip.as_deref()), constant(limit.fetch.as_deref())) {
            (Some(skip), Some(fetch)) => limited(&limit.input, (skip.unwrap_or(0), fetch), domain),
            _ => Ok(None),
        },
        LogicalPlan::Window(window) => windowed(window, domain),
        LogicalPlan::Union(union) => united(&union.inputs, plan, domain),
        LogicalPlan::Join(join) => joined(join, domain),
        LogicalPlan::Unnest(unnest) => expanded(unnest, domain),
        LogicalPlan::Values(values) => listed(values, domain),
        LogicalPlan::Subquery(subquery) => push(&subquery.subquery, domain),
        _ => Ok(None),
    }
}

/// A number that a LIMIT says: `None` if it is no constant, `Some(None)` if there is none.
fn constant(expression: Option<&Expr>) -> Option<Option<i64>> {
    match expression {
        None => Some(None),
        Some(Expr::Literal(ScalarValue::Int64(value), _)) => Some(*value),
        Some(_) => None,
    }
}

fn columns(keys: &[Column]) -> impl Iterator<Item = Expr> + '_ {
    keys.iter().cloned().map(Expr::Column)
}

/// The expressions in terms of the domain, under their old names.
fn renamed(expressions: &[Expr], domain: &Domain, keys: &[Column]) -> Result<Vec<Expr>> {
    let one = |expression: &Expr| {
        let name = expression.qualified_name();
        Ok(named_as(with_domain(expression.clone(), &domain.outer, keys)?, name))
    };
    expressions.iter().map(one).collect()
}

fn filtered(filter: &Filter, domain: &Domain) -> Result<Option<Pushed>> {
    let Some(Pushed { plan, keys }) = push(&filter.input, domain)? else { return Ok(None) };
    let predicate = with_domain(filter.predicate.clone(), &domain.outer, &keys)?;
    Ok(Some(Pushed { plan: LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?), keys }))
}

fn project(projection: &Projection, Pushed { plan, keys }: Pushed, domain: &Domain) -> Result<Pushed> {
    let mut outputs = renamed(&projection.expr, domain, &keys)?;
    outputs.extend(columns(&keys));
    Ok(Pushed { plan: LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(plan))?), keys })
}

fn aliased(alias: &SubqueryAlias, Pushed { plan, keys }: Pushed) -> Result<Pushed> {
    let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), alias.alias.clone())?);
    // The domain's columns keep names without a qualifier.
    let own = plan.schema().columns();
    let (values, carried) = own.split_at(own.len() - keys.len());
    let outputs = values.iter().cloned().map(Expr::Column);
    let outputs = outputs.chain(carried.iter().zip(&keys).map(|(column, key)| Expr::Column(column.clone()).alias(&key.name)));
    let keys: Vec<Column> = keys.iter().map(|key| Column::new_unqualified(&key.name)).collect();
    let plan = LogicalPlan::Projection(Projection::try_new(outputs.collect(), Arc::new(plan))?);
    Ok(Pushed { plan, keys })
}

/// Groups within each combination. Without GROUP BY a combination without rows has its row, too.
fn aggregated(aggregate: &Aggregate, domain: &Domain) -> Result<Option<Pushed>> {
    if aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
        return Ok(None);
    }
    let Some(Pushed { plan, keys }) = push(&aggregate.input, domain)? else { return Ok(None) };
    let mut groups: Vec<Expr> = renamed(&aggregate.group_expr, domain, &keys)?;
    groups.extend(columns(&keys));
    let calls = renamed(&aggregate.aggr_expr, domain, &keys)?;
    let grouped = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(plan), groups, calls)?);
    let own = aggregate.schema.columns();
    if !aggregate.group_expr.is_empty() {
        let outputs = own.into_iter().map(Expr::Column).chain(columns(&keys)).collect();
        return Ok(Some(Pushed { plan: LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(grouped))?), keys }));
    }
    let (all, all_keys) = domain.copy()?;
    let same = columns(&all_keys).zip(columns(&keys)).map(|(left, right)| same_key(left, right)).collect::<Vec<_>>();
    let complete = LogicalPlanBuilder::from(all).join_on(grouped, JoinType::Left, same)?.build()?;
    let values = own.into_iter().zip(&aggregate.aggr_expr).map(|(column, call)| {
        let value = Expr::Column(column.clone());
        let value = if is_count(call) { coalesce(vec![value, lit(0_i64)]) } else { value };
        named_as(value, (column.relation, column.name))
    });
    let outputs = values.chain(columns(&all_keys)).collect();
    Ok(Some(Pushed { plan: LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(complete))?), keys: all_keys }))
}

/// Whether an aggregate of nothing is 0 and not NULL.
fn is_count(call: &Expr) -> bool {
    match call {
        Expr::Alias(alias) => is_count(&alias.expr),
        Expr::AggregateFunction(call) => call.func.name() == "count",
        _ => false,
    }
}

fn first_of_each(distinct: &DistinctOn, domain: &Domain) -> Result<Option<Pushed>> {
    let Some(Pushed { plan, keys }) = push(&distinct.input, domain)? else { return Ok(None) };
    let replaced = |expression: &Expr| with_domain(expression.clone(), &domain.outer, &keys);
    let on = columns(&keys).chain(distinct.on_expr.iter().map(replaced).collect::<Result<Vec<_>>>()?).collect();
    let mut select = renamed(&distinct.select_expr, domain, &keys)?;
    select.extend(columns(&keys));
    let order = match &distinct.sort_expr {
        None => None,
        Some(order) => {
            let own = order.iter().map(|sort| Ok(sort.with_expr(replaced(&sort.expr)?))).collect::<Result<Vec<_>>>()?;
            Some(columns(&keys).map(|key| SortExpr::new(key, true, false)).chain(own).collect())
        }
    };
    let plan = LogicalPlan::Distinct(Distinct::On(DistinctOn::try_new(on, select, order, Arc::new(plan))?));
    let own = plan.schema().columns();
    let keys = own[own.len() - keys.len()..].to_vec();
    Ok(Some(Pushed { plan, keys }))
}

/// The first rows of each combination: those with the lowest numbers in the order below.
fn limited(plan: &LogicalPlan, bounds: (i64, Option<i64>), domain: &Domain) -> Result<Option<Pushed>> {
    match plan {
        LogicalPlan::Projection(projection) => match limited(&projection.input, bounds, domain)? {
            Some(input) => project(projection, input, domain).map(Some),
            None => Ok(None),
        },
        LogicalPlan::SubqueryAlias(alias) => match limited(&alias.input, bounds, domain)? {
            Some(input) => aliased(alias, input).map(Some),
            None => Ok(None),
        },
        LogicalPlan::Sort(Sort { input, expr, fetch: None }) => ranked(input, expr, bounds, domain),
        other => ranked(other, &[], bounds, domain),
    }
}

fn ranked(plan: &LogicalPlan, order: &[SortExpr], (skip, fetch): (i64, Option<i64>), domain: &Domain) -> Result<Option<Pushed>> {
    let own = plan.schema().columns();
    let Some(Pushed { plan, keys }) = push(plan, domain)? else { return Ok(None) };
    let order_by =
        order.iter().map(|sort| Ok(sort.with_expr(with_domain(sort.expr.clone(), &domain.outer, &keys)?))).collect::<Result<Vec<_>>>()?;
    let window_frame = WindowFrame::new((!order_by.is_empty()).then_some(false));
    let params = WindowFunctionParams {
        args: vec![],
        partition_by: columns(&keys).collect(),
        order_by,
        window_frame,
        filter: None,
        null_treatment: None,
        distinct: false,
    };
    let number = Expr::WindowFunction(Box::new(WindowFunction { fun: crate::functions::window::numbering().into(), params }));
    let name = Column::new_unqualified(number.schema_name().to_string());
    let plan = LogicalPlanBuilder::window_plan(plan, [number])?;
    let mut conditions = Vec::new();
    if skip > 0 {
        conditions.push(Expr::Column(name.clone()).gt(lit(skip)));
    }
    if let Some(fetch) = fetch {
        conditions.push(Expr::Column(name).lt_eq(lit(skip.saturating_add(fetch))));
    }
    let mut builder = LogicalPlanBuilder::from(plan);
    if let Some(condition) = conjunction(conditions) {
        builder = builder.filter(condition)?;
    }
    let plan = builder.project(own.into_iter().map(Expr::Column).chain(columns(&keys)).collect::<Vec<_>>())?.build()?;
    Ok(Some(Pushed { plan, keys }))
}

fn windowed(window: &Window, domain: &Domain) -> Result<Option<Pushed>> {
    let Some(Pushed { plan, keys }) = push(&window.input, domain)? else { return Ok(None) };
    let below = window.input.schema().columns();
    let own: Vec<Column> = window.schema.columns().split_off(below.len());
    let mut calls = Vec::with_capacity(window.window_expr.len());
    for call in &window.window_expr {
        let mut call = with_domain(call.clone().unalias(), &domain.outer, &keys)?;
        let Expr::WindowFunction(function) = &mut call else { return Ok(None) };
        function.params.partition_by.extend(columns(&keys));
        calls.push(call);
    }
    let names: Vec<Column> = calls.iter().map(|call| Column::new_unqualified(call.schema_name().to_string())).collect();
    let plan = LogicalPlanBuilder::window_plan(plan, calls)?;
    let values = names.into_iter().zip(own).map(|(name, own)| named_as(Expr::Column(name), (own.relation, own.name)));
    let outputs = below.into_iter().map(Expr::Column).chain(values).chain(columns(&keys)).collect();
    Ok(Some(Pushed { plan: LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(plan))?), keys }))
}

/// Inputs with the same columns in the same places, one after the other, under the names that the whole had.
fn united(inputs: &[Arc<LogicalPlan>], whole: &LogicalPlan, domain: &Domain) -> Result<Option<Pushed>> {
    let width = whole.schema().fields().len();
    let mut plans = Vec::with_capacity(inputs.len());
    for input in inputs {
        let Some(Pushed { plan, keys }) = push(input, domain)? else { return Ok(None) };
        let own = plan.schema().columns().into_iter().take(width).enumerate();
        let own = own.map(|(index, column)| Expr::Column(column).alias(format!("__column_{index}")));
        let keys = keys.into_iter().enumerate().map(|(index, key)| Expr::Column(key).alias(format!("__of_union_{index}")));
        plans.push(LogicalPlanBuilder::from(plan).project(own.chain(keys).collect::<Vec<_>>())?.build()?);
    }
    let mut plans = plans.into_iter();
    let Some(first) = plans.next() else { return Ok(None) };
    let plan = plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?.build()?;
    restored(plan, whole, domain).map(Some)
}

/// The columns by their places under the names of `whole`, and the domain's after them under new names.
fn restored(plan: LogicalPlan, whole: &LogicalPlan, domain: &Domain) -> Result<Pushed> {
    let (_, keys) = domain.copy()?;
    let found = plan.schema().columns();
    let names = whole.schema().columns();
    let values =
        names.iter().zip(&found).map(|(name, column)| named_as(Expr::Column(column.clone()), (name.relation.clone(), name.name.clone())));
    let carried = found[names.len()..].iter().zip(&keys).map(|(column, key)| Expr::Column(column.clone()).alias(&key.name));
    let outputs = values.chain(carried).collect();
    Ok(Pushed { plan: LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(plan))?), keys })
}

fn joined(join: &Join, domain: &Domain) -> Result<Option<Pushed>> {
    let condition = |keys: &[Column]| {
        let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
        let all = conjunction(equal.chain(join.filter.clone()));
        all.map(|condition| with_domain(condition, &domain.outer, keys)).transpose()
    };
    if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty() {
        return Ok(None);
    }
    let lateral = lateral_of(&join.right);
    let (left_only, right_only) = (!is_correlated(&join.right), !is_correlated(&join.left));
    let own = join.schema.columns();
    let of_left = matches!(join.join_type, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti);
    if of_left && (left_only || lateral) {
        let Some(Pushed { plan, keys }) = push(&join.left, domain)? else { return Ok(None) };
        let right = if lateral { with_domain_of(&join.right, domain, &keys)? } else { join.right.as_ref().clone() };
        let plan = LogicalPlanBuilder::from(plan)
            .join_on(right, join.join_type, Some(condition(&keys)?.unwrap_or(lit(true))))?
            .project(own.into_iter().map(Expr::Column).chain(columns(&keys)).collect::<Vec<_>>())?
            .build()?;
        return Ok(Some(Pushed { plan, keys }));
    }
    if right_only && matches!(join.join_type, JoinType::Inner | JoinType::Right) {
        let Some(Pushed { plan, keys }) = push(&join.right, domain)? else { return Ok(None) };
        let plan = LogicalPlanBuilder::from(join.left.as_ref().clone())
            .join_on(plan, join.join_type, Some(condition(&keys)?.unwrap_or(lit(true))))?
            .project(own.into_iter().map(Expr::Column).chain(columns(&keys)).collect::<Vec<_>>())?
            .build()?;
        return Ok(Some(Pushed { plan, keys }));
    }
    let (Some(left), Some(right)) = (push(&join.left, domain)?, push(&join.right, domain)?) else { return Ok(None) };
    let kept = if join.join_type == JoinType::Right { &right.keys } else { &left.keys };
    let same = columns(&left.keys).zip(columns(&right.keys)).map(|(left, right)| same_key(left, right));
    let conditions: Vec<Expr> = same.chain(condition(kept)?).collect();
    let joined = LogicalPlanBuilder::from(left.plan).join_on(right.plan, join.join_type, conditions)?.build()?;
    let (_, keys) = domain.copy()?;
    let carried = left.keys.iter().zip(&right.keys).zip(&keys).map(|((left, right), key)| {
        let (left, right) = (Expr::Column(left.clone()), Expr::Column(right.clone()));
        let value = match join.join_type {
            JoinType::Full => coalesce(vec![left, right]),
            JoinType::Right => right,
            _ => left,
        };
        value.alias(&key.name)
    });
    let outputs: Vec<Expr> = own.into_iter().map(Expr::Column).chain(carried).collect();
    let plan = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(joined))?);
    Ok(Some(Pushed { plan, keys }))
}

/// Whether the plan is a subquery that may mention the columns of what it is joined to.
fn lateral_of(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Subquery(_) => true,
        LogicalPlan::SubqueryAlias(alias) => lateral_of(&alias.input),
        _ => false,
    }
}

/// A lateral subquery that finds the outer values beside it, in the columns of the domain.
fn with_domain_of(plan: &LogicalPlan, domain: &Domain, keys: &[Column]) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Subquery(subquery) => Ok(LogicalPlan::Subquery(renamed_subquery(subquery, &domain.outer, keys)?)),
        LogicalPlan::SubqueryAlias(alias) => {
            let input = with_domain_of(&alias.input, domain, keys)?;
            Ok(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?))
        }
        other => Ok(other.clone()),
    }
}

fn expanded(unnest: &Unnest, domain: &Domain) -> Result<Option<Pushed>> {
    let Some(Pushed { plan, keys }) = push(&unnest.input, domain)? else { return Ok(None) };
    let own = unnest.schema.columns();
    let plan = LogicalPlanBuilder::from(plan)
        .unnest_columns_with_options(unnest.exec_columns.clone(), unnest.options.clone())?
        .project(own.into_iter().map(Expr::Column).chain(columns(&keys)).collect::<Vec<_>>())?
        .build()?;
    Ok(Some(Pushed { plan, keys }))
}

/// Each row of VALUES for each combination.
fn listed(values: &Values, domain: &Domain) -> Result<Option<Pushed>> {
    let whole = LogicalPlan::Values(values.clone());
    let mut plans = Vec::with_capacity(values.values.len());
    for row in &values.values {
        let (copy, keys) = domain.copy()?;
        let mut outputs = Vec::with_capacity(row.len() + keys.len());
        for (index, value) in row.iter().enumerate() {
            outputs.push(with_domain(value.clone(), &domain.outer, &keys)?.alias(format!("__column_{index}")));
        }
        outputs.extend(keys.iter().enumerate().map(|(index, key)| Expr::Column(key.clone()).alias(format!("__of_union_{index}"))));
        plans.push(LogicalPlanBuilder::from(copy).project(outputs)?.build()?);
    }
    let mut plans = plans.into_iter();
    let Some(first) = plans.next() else { return Ok(None) };
    let plan = plans.try_fold(LogicalPlanBuilder::from(first), LogicalPlanBuilder::union)?.build()?;
    restored(plan, &whole, domain).map(Some)
}
