//! Correlated subqueries become joins, whatever is in them.
//!
//! DataFusion makes joins of subqueries that correlate by equality of two columns in a filter. All others are unnested here, in the general
//! way (Neumann and Kemper, "Unnesting Arbitrary Queries", 2015): the *domain* is the set of combinations of outer values that the subquery
//! mentions; it is joined to the leaves of the subquery, carried up through all its operators ([`push`]) as columns that group, partition and
//! join, and at the top the subquery, now computed for all outer rows at once, is joined with the outer rows by those columns. NULLs in
//! them match each other. Where the filter is all that correlates, and only the existence of rows counts, its condition is that of a semi or an
//! anti join ([`condition`]).
//!
//! This happens between binding and DataFusion's analysis, whose checks refuse what they do not know to decorrelate.

mod condition;
mod domain;
mod expression;
mod own_names;
mod push;
mod shape;

use std::{cell::Cell, sync::Arc};

use datafusion::{
    common::{
        Column, Result, Spans,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    logical_expr::{
        Aggregate, BinaryExpr, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort, SubqueryAlias,
        expr::{Exists, InSubquery},
        lit,
        logical_plan::Subquery,
        utils::{conjunction, split_conjunction_owned},
    },
    optimizer::{OptimizerConfig, OptimizerRule},
};

use self::{
    domain::Domain,
    expression::named_as,
    push::{Pushed, push},
};
use crate::{
    error::{PlanError, sqlstate},
    interrupt::Interrupt,
};

/// Unnests every subquery of a plan that DataFusion cannot make a join of.
///
/// # Errors
/// XX000 if a plan cannot be built.
pub(crate) fn unnest(plan: LogicalPlan, interrupt: &Interrupt) -> Result<LogicalPlan> {
    // Below a rewritten node are the subquery's own subqueries.
    let unnesting = Unnesting::new(0, false, interrupt.clone());
    let plan = own_names::with_own_names(plan)?;
    Ok(plan.transform_down_with_subqueries(|plan| node(plan, &unnesting))?.data)
}

/// The same for what a batch query has left of them: a view maintains a limit for each value of a column, for which batch has no operator.
#[derive(Debug)]
pub(crate) struct UnnestLimits;

impl OptimizerRule for UnnestLimits {
    fn name(&self) -> &str {
        "unnest_limits"
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !has_correlation(&plan) {
            return Ok(Transformed::no(plan));
        }
        let unnesting = Unnesting::new(FIRST_OF_BATCH, true, Interrupt::of(&config.options()));
        plan.transform_down_with_subqueries(|plan| node(plan, &unnesting))
    }
}

/// Names of the batch rule start here, so that they are none of those given before.
const FIRST_OF_BATCH: usize = 1 << 20;

/// Whether any part of a plan is correlated.
fn has_correlation(plan: &LogicalPlan) -> bool {
    let found = plan.apply_with_subqueries(|node| {
        Ok(if node.contains_outer_reference() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    matches!(found, Ok(TreeNodeRecursion::Stop))
}

/// What all subqueries that are unnested in a plan share.
struct Unnesting {
    /// Makes names unique.
    next: Cell<usize>,
    /// Whether those with a limit for each value of a column are unnested, too.
    limits: bool,
    interrupt: Interrupt,
    /// Operators of domains so far.
    operators: Cell<usize>,
}

/// Most operators of domains. Each subquery repeats the plan of its outer rows, with all that is unnested in that.
const MAX_OPERATORS: usize = 20_000;

impl Unnesting {
    fn new(first: usize, limits: bool, interrupt: Interrupt) -> Self {
        Self { next: Cell::new(first), limits, interrupt, operators: Cell::new(0) }
    }

    fn next(&self) -> usize {
        self.next.replace(self.next.get() + 1)
    }

    /// Notes that the plan gets a copy of `domain`.
    ///
    /// # Errors
    /// 54001 if these are too many; what the statement is interrupted with.
    fn add(&self, domain: &LogicalPlan) -> Result<()> {
        self.interrupt.check()?;
        let mut operators = self.operators.get();
        domain.apply_with_subqueries(|_| {
            operators += 1;
            Ok(if operators > MAX_OPERATORS { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        self.operators.set(operators);
        if operators <= MAX_OPERATORS {
            return Ok(());
        }
        let error = PlanError::new(sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex")
            .with_detail(format!("Its correlated subqueries would add more than {MAX_OPERATORS} operators to its plan."))
            .with_hint("Write some of the subqueries as joins.");
        Err(error.into())
    }
}

/// A node whose expressions hold subqueries, or a lateral join.
fn node(plan: LogicalPlan, unnesting: &Unnesting) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) if shape::is_general(&filter.predicate, unnesting.limits) => filtered(filter, unnesting),
        LogicalPlan::Projection(projection) if projection.expr.iter().any(|expr| shape::is_general(expr, unnesting.limits)) => {
            let Some((input, expressions)) = valued(projection.expr.clone(), &projection.input, unnesting)? else {
                return Ok(Transformed::no(LogicalPlan::Projection(projection)));
            };
            Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(input))?)))
        }
        LogicalPlan::Aggregate(aggregate)
            if aggregate.aggr_expr.iter().chain(&aggregate.group_expr).any(|expr| shape::is_general(expr, unnesting.limits)) =>
        {
            aggregated(aggregate, unnesting)
        }
        LogicalPlan::Sort(sort) if sort.expr.iter().any(|sort| shape::is_general(&sort.expr, unnesting.limits)) => sorted(sort, unnesting),
        LogicalPlan::Join(join) => lateral(join, unnesting),
        other => Ok(Transformed::no(other)),
    }
}

/// The conjuncts that are EXISTS or IN become semi and anti joins, the values of the others columns.
fn filtered(filter: Filter, unnesting: &Unnesting) -> Result<Transformed<LogicalPlan>> {
    let columns = filter.input.schema().columns();
    let mut input = filter.input.as_ref().clone();
    let mut rest = Vec::new();
    let mut changed = false;
    for conjunct in split_conjunction_owned(filter.predicate.clone()) {
        let (subquery, negated) = match &conjunct {
            Expr::Exists(Exists { subquery, negated }) if shape::is_general(&conjunct, unnesting.limits) => (subquery.clone(), *negated),
            Expr::InSubquery(InSubquery { expr, subquery, negated: false }) if shape::is_general(&conjunct, unnesting.limits) => {
                (shape::with_equality(expr, subquery, input.schema())?, false)
            }
            _ => {
                rest.push(conjunct);
                continue;
            }
        };
        let kind = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
        match with_rows(&input, &subquery, kind, unnesting)? {
            Some(joined) => {
                input = joined;
                changed = true;
            }
            None => rest.push(conjunct),
        }
    }
    if let Some((joined, values)) = valued(rest.clone(), &input, unnesting)? {
        (input, rest) = (joined, values.into_iter().map(Expr::unalias).collect());
        changed = true;
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let mut builder = LogicalPlanBuilder::from(input);
    if let Some(predicate) = conjunction(rest) {
        builder = builder.filter(predicate)?;
    }
    let plan = builder.project(columns.into_iter().map(Expr::Column).collect::<Vec<_>>())?.build()?;
    Ok(Transformed::yes(plan))
}

fn aggregated(aggregate: Aggregate, unnesting: &Unnesting) -> Result<Transformed<LogicalPlan>> {
    let count = aggregate.group_expr.len();
    let all: Vec<Expr> = aggregate.group_expr.iter().chain(&aggregate.aggr_expr).cloned().collect();
    let Some((input, mut groups)) = valued(all, &aggregate.input, unnesting)? else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let calls = groups.split_off(count);
    Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), groups, calls)?)))
}

fn sorted(sort: Sort, unnesting: &Unnesting) -> Result<Transformed<LogicalPlan>> {
    let columns = sort.input.schema().columns();
    let keys = sort.expr.iter().map(|sort| sort.expr.clone()).collect();
    let Some((input, keys)) = valued(keys, &sort.input, unnesting)? else {
        return Ok(Transformed::no(LogicalPlan::Sort(sort)));
    };
    let order = sort.expr.iter().zip(keys).map(|(sort, key)| sort.with_expr(key.unalias())).collect();
    let plan = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(input), fetch: sort.fetch });
    let plan = LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::Column).collect::<Vec<_>>())?.build()?;
    Ok(Transformed::yes(plan))
}

/// Expressions in which columns stand for their subqueries, under their old names, and the rows with those columns. `None` if nothing
/// could be done. A subquery that is written twice (as COALESCE does) is computed once.
fn valued(expressions: Vec<Expr>, rows: &LogicalPlan, unnesting: &Unnesting) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
    let mut input = rows.clone();
    let mut known: Vec<(Expr, Expr)> = Vec::new();
    let mut results = Vec::with_capacity(expressions.len());
    for expression in expressions {
        let name = expression.qualified_name();
        let replaced = expression.transform_up(|inner| {
            if !shape::is_general_subquery(&inner, unnesting.limits) {
                return Ok(Transformed::no(inner));
            }
            if let Some((_, value)) = known.iter().find(|(subquery, _)| *subquery == inner) {
                return Ok(Transformed::yes(value.clone()));
            }
            let outer = Outer { rows: &input, before: rows };
            let found = match &inner {
                Expr::ScalarSubquery(subquery) => with_value(&outer, subquery, unnesting)?,
                Expr::Exists(Exists { subquery, negated }) => with_mark(&outer, subquery, *negated, unnesting)?,
                Expr::InSubquery(InSubquery { expr, subquery, negated: false }) => {
                    with_mark(&outer, &shape::with_equality(expr, subquery, input.schema())?, false, unnesting)?
                }
                _ => None,
            };
            Ok(match found {
                Some((joined, value)) => {
                    input = joined;
                    known.push((inner, value.clone()));
                    Transformed::yes(value)
                }
                None => Transformed::no(inner),
            })
        })?;
        results.push(if replaced.transformed { named_as(replaced.data, name) } else { replaced.data });
    }
    Ok((!known.is_empty()).then_some((input, results)))
}

/// The rows round about a subquery.
struct Outer<'p> {
    rows: &'p LogicalPlan,
    /// The same before they got the values of other subqueries beside it.
    before: &'p LogicalPlan,
}

impl Outer<'_> {
    /// The subquery for all of the rows. Its domain is of the rows as they were before, if it mentions nothing that came since: otherwise the plan would
    /// double with each subquery.
    fn whole(&self, subquery: &Subquery, unnesting: &Unnesting) -> Result<Option<Whole>> {
        let columns = outer_columns(self.rows, subquery);
        let before = outer_columns(self.before, subquery).len() == columns.len();
        whole(if before { self.before } else { self.rows }, subquery, unnesting)
    }
}

/// The outer columns that a subquery mentions and the outer plan has.
fn outer_columns(outer: &LogicalPlan, subquery: &Subquery) -> Vec<Column> {
    let mentioned = shape::outer_columns(&subquery.subquery);
    mentioned.into_iter().filter(|column| outer.schema().has_column(column)).collect()
}

/// A subquery for all rows of the outer plan: its own columns under new names, and the domain's.
struct Whole {
    plan: LogicalPlan,
    values: Vec<Column>,
    keys: Vec<Column>,
    outer: Vec<Column>,
}

fn whole(outer: &LogicalPlan, subquery: &Subquery, unnesting: &Unnesting) -> Result<Option<Whole>> {
    let columns = outer_columns(outer, subquery);
    if columns.is_empty() {
        return Ok(None);
    }
    let domain = Domain::new(outer, columns.clone(), unnesting)?;
    let width = subquery.subquery.schema().fields().len();
    let Some(Pushed { plan, keys }) = push(&subquery.subquery, &domain)? else { return Ok(None) };
    let number = unnesting.next();
    let (mut outputs, mut values, mut new_keys) = (Vec::new(), Vec::new(), Vec::new());
    for (index, column) in plan.schema().columns().into_iter().take(width).enumerate() {
        let name = format!("__value_{number}_{index}");
        outputs.push(Expr::Column(column).alias(&name));
        values.push(Column::new_unqualified(name));
    }
    for (index, key) in keys.into_iter().enumerate() {
        let name = format!("__key_{number}_{index}");
        outputs.push(Expr::Column(key).alias(&name));
        new_keys.push(Column::new_unqualified(name));
    }
    let plan = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(plan))?);
    Ok(Some(Whole { plan, values, keys: new_keys, outer: columns }))
}

/// Joins by keys, of which NULLs equal each other.
fn joined(
    outer: &LogicalPlan,
    whole: &LogicalPlan,
    (own, keys): (Vec<Column>, Vec<Column>),
    kind: JoinType,
    filter: Option<Expr>,
) -> Result<LogicalPlan> {
    let same = |(own, key): (Column, Column)| same_key(Expr::Column(own), Expr::Column(key));
    let condition = own.into_iter().zip(keys).map(same).chain(filter);
    LogicalPlanBuilder::from(outer.clone()).join_on(whole.clone(), kind, condition)?.build()
}

/// That two values are the same, NULL or not. The optimizer finds keys in it.
fn same_key(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::IsNotDistinctFrom, Box::new(right)))
}

/// The outer rows for which the subquery has a row, or has none.
fn with_rows(outer: &LogicalPlan, subquery: &Subquery, kind: JoinType, unnesting: &Unnesting) -> Result<Option<LogicalPlan>> {
    // Whether there is a row does not depend on their order and number.
    let plan = shape::without_limit(&subquery.subquery);
    if let Some(joined) = condition::joined_by_condition(outer, &plan, kind, unnesting.next())? {
        return Ok(Some(joined));
    }
    let subquery = Subquery { subquery: Arc::new(plan), ..subquery.clone() };
    let Some(whole) = whole(outer, &subquery, unnesting)? else { return Ok(None) };
    joined(outer, &whole.plan, (whole.outer, whole.keys), kind, None).map(Some)
}

/// The outer rows with the subquery's value, NULL where it has no row.
fn with_value(outer: &Outer<'_>, subquery: &Subquery, unnesting: &Unnesting) -> Result<Option<(LogicalPlan, Expr)>> {
    let Some(whole) = outer.whole(subquery, unnesting)? else { return Ok(None) };
    let value = Expr::Column(whole.values[0].clone());
    let plan = joined(outer.rows, &whole.plan, (whole.outer, whole.keys), JoinType::Left, None)?;
    Ok(Some((plan, value)))
}

/// The outer rows with whether the subquery has a row.
fn with_mark(outer: &Outer<'_>, subquery: &Subquery, negated: bool, unnesting: &Unnesting) -> Result<Option<(LogicalPlan, Expr)>> {
    let Some(whole) = outer.whole(subquery, unnesting)? else { return Ok(None) };
    let mark = format!("__mark_{}", unnesting.next());
    let keys: Vec<Expr> = whole.keys.iter().cloned().map(Expr::Column).collect();
    let marked = LogicalPlanBuilder::from(whole.plan)
        .project(keys.clone())?
        .distinct()?
        .project(keys.into_iter().chain([lit(true).alias(&mark)]).collect::<Vec<_>>())?
        .build()?;
    let plan = joined(outer.rows, &marked, (whole.outer, whole.keys), JoinType::Left, None)?;
    let mark = Expr::Column(Column::new_unqualified(mark));
    Ok(Some((plan, if negated { mark.is_null() } else { mark.is_not_null() })))
}

/// The subquery that a side of a join is.
fn lateral_side(side: &LogicalPlan) -> Option<&Subquery> {
    match side {
        LogicalPlan::Subquery(subquery) => Some(subquery),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) => lateral_side(input),
        _ => None,
    }
}

/// A join whose right side mentions columns of the left one.
fn lateral(join: Join, unnesting: &Unnesting) -> Result<Transformed<LogicalPlan>> {
    let unchanged = |join: Join| Ok(Transformed::no(LogicalPlan::Join(join)));
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) || !join.on.is_empty() {
        return unchanged(join);
    }
    let nested;
    let subquery = match lateral_side(&join.right) {
        Some(subquery) if shape::is_general_lateral(subquery, join.join_type, unnesting.limits) => subquery,
        Some(_) => return unchanged(join),
        // A lateral subquery deeper in the right side may mention the left one, too.
        None if shape::is_correlated(&join.right) => {
            nested = Subquery { subquery: Arc::clone(&join.right), outer_ref_columns: Vec::new(), spans: Spans::new() };
            &nested
        }
        None => return unchanged(join),
    };
    let columns = join.right.schema().columns();
    let Some(whole) = whole(&join.left, subquery, unnesting)? else { return unchanged(join) };
    // The columns get back the names that the join's condition and everything above it know.
    let values = whole.values.iter().zip(&columns);
    let values = values.map(|(value, column)| named_as(Expr::Column(value.clone()), (column.relation.clone(), column.name.clone())));
    let outputs: Vec<Expr> = values.chain(whole.keys.iter().cloned().map(Expr::Column)).collect();
    let right = LogicalPlan::Projection(Projection::try_new(outputs, Arc::new(whole.plan))?);
    let kept: Vec<Expr> = join.left.schema().columns().into_iter().chain(columns).map(Expr::Column).collect();
    let plan = joined(&join.left, &right, (whole.outer, whole.keys), join.join_type, join.filter.clone())?;
    let plan = LogicalPlanBuilder::from(plan).project(kept)?.build()?;
    Ok(Transformed::yes(plan))
}
