//! DataFusion makes a join of a subquery by adding the columns by which it correlates to the subquery's projections. Ours name their outputs
//! without a table, so `(SELECT y FROM t WHERE t.y = outer.x)` would have `y` and `t.y`, which DataFusion takes for one name. Here a column
//! that is shown under its own name is left as it is, table and all.

use std::{collections::BTreeMap, sync::Arc};

use datafusion::{
    common::{
        Column, Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{
        Aggregate, Distinct, Expr, Filter, Limit, LogicalPlan, Projection, Sort, SubqueryAlias,
        expr::{Exists, InSubquery},
        lit,
        logical_plan::Subquery,
    },
};

use super::{expression::named_as, shape::is_correlated};

/// What columns without a table are called now.
type Renamed = BTreeMap<Column, Column>;

/// The plan with its correlated subqueries changed.
pub(super) fn with_own_names(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_down_with_subqueries(|plan| match plan {
        LogicalPlan::SubqueryAlias(alias) => lateral(alias),
        other => other.map_expressions(|expression| expression.transform_up(in_expression)),
    })?;
    Ok(changed.data)
}

/// A lateral subquery under an alias, above which only the names of columns count.
fn lateral(alias: SubqueryAlias) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Subquery(lateral) = alias.input.as_ref() else { return Ok(Transformed::no(LogicalPlan::SubqueryAlias(alias))) };
    let input = LogicalPlan::Subquery(changed(lateral.clone())?);
    Ok(Transformed::yes(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias)?)))
}

fn in_expression(expression: Expr) -> Result<Transformed<Expr>> {
    Ok(match expression {
        Expr::ScalarSubquery(subquery) => Transformed::yes(Expr::ScalarSubquery(changed(subquery)?)),
        Expr::Exists(Exists { subquery, negated }) => {
            Transformed::yes(Expr::Exists(Exists { subquery: changed(without_outputs(subquery)?)?, negated }))
        }
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Transformed::yes(Expr::InSubquery(InSubquery { expr, subquery: changed(subquery)?, negated }))
        }
        other => Transformed::no(other),
    })
}

/// A correlated subquery whose columns do not matter, with a constant one.
fn without_outputs(subquery: Subquery) -> Result<Subquery> {
    let projection = match subquery.subquery.as_ref() {
        LogicalPlan::Projection(projection) if is_correlated(&subquery.subquery) => projection,
        _ => return Ok(subquery),
    };
    let row = lit(true).alias("__row");
    let plan = LogicalPlan::Projection(Projection::try_new(vec![row], Arc::clone(&projection.input))?);
    Ok(Subquery { outer_ref_columns: plan.all_out_ref_exprs(), subquery: Arc::new(plan), ..subquery })
}

fn changed(subquery: Subquery) -> Result<Subquery> {
    let (plan, _) = own_names(&subquery.subquery)?;
    Ok(Subquery { subquery: Arc::new(plan), ..subquery })
}

fn own_names(plan: &LogicalPlan) -> Result<(LogicalPlan, Renamed)> {
    if !is_correlated(plan) {
        return Ok((plan.clone(), Renamed::new()));
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            let (input, below) = own_names(&projection.input)?;
            let (outputs, renamed) = outputs(&projection.expr, projection.schema.columns(), &below)?;
            Ok((LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(input))?), renamed))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let (input, below) = own_names(&aggregate.input)?;
            if aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
                return Ok((plan.clone(), Renamed::new()));
            }
            let (groups, calls) =
                aggregate.schema.columns().into_iter().enumerate().partition::<Vec<_>, _>(|(at, _)| *at < aggregate.group_expr.len());
            let own = |columns: Vec<(usize, Column)>| columns.into_iter().map(|(_, column)| column).collect::<Vec<_>>();
            let (groups, mut renamed) = outputs(&aggregate.group_expr, own(groups), &below)?;
            let (calls, of_calls) = outputs(&aggregate.aggr_expr, own(calls), &below)?;
            renamed.extend(of_calls);
            Ok((LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, calls)?), renamed))
        }
        LogicalPlan::Filter(filter) => {
            let (input, below) = own_names(&filter.input)?;
            Ok((LogicalPlan::Filter(Filter::try_new(replaced(filter.predicate.clone(), &below)?, Arc::new(input))?), below))
        }
        LogicalPlan::Sort(sort) => {
            let (input, below) = own_names(&sort.input)?;
            let order = sort.expr.iter().map(|key| Ok(key.with_expr(replaced(key.expr.clone(), &below)?))).collect::<Result<Vec<_>>>()?;
            Ok((LogicalPlan::Sort(Sort { expr: order, input: Arc::new(input), fetch: sort.fetch }), below))
        }
        LogicalPlan::Limit(limit) => {
            let (input, below) = own_names(&limit.input)?;
            Ok((LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit.clone() }), below))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let (input, below) = own_names(input)?;
            Ok((LogicalPlan::Distinct(Distinct::All(Arc::new(input))), below))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let (input, _) = own_names(&alias.input)?;
            Ok((LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?), Renamed::new()))
        }
        other => Ok((other.clone(), Renamed::new())),
    }
}

/// The expressions over the changed input, and which of their names have changed.
fn outputs(expressions: &[Expr], names: Vec<Column>, below: &Renamed) -> Result<(Vec<Expr>, Renamed)> {
    let mut renamed = Renamed::new();
    let mut outputs = Vec::with_capacity(expressions.len());
    for (expression, name) in expressions.iter().zip(names) {
        let expression = replaced(expression.clone(), below)?;
        outputs.push(match own_column(&expression) {
            Some(column) => {
                let column = column.clone();
                if column != name {
                    renamed.insert(name, column.clone());
                }
                Expr::Column(column)
            }
            None => named_as(expression, (name.relation, name.name)),
        });
    }
    Ok((outputs, renamed))
}

/// The column that an output shows under its own name.
fn own_column(expression: &Expr) -> Option<&Column> {
    match expression {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) if alias.relation.is_none() => match alias.expr.as_ref() {
            Expr::Column(column) if column.name == alias.name => Some(column),
            _ => None,
        },
        _ => None,
    }
}

fn replaced(expression: Expr, renamed: &Renamed) -> Result<Expr> {
    let replaced = expression.transform_up(|inner| {
        Ok(match inner {
            Expr::Column(column) => match renamed.get(&column) {
                Some(new) => Transformed::yes(Expr::Column(new.clone())),
                None => Transformed::no(Expr::Column(column)),
            },
            other => Transformed::no(other),
        })
    })?;
    Ok(replaced.data)
}
