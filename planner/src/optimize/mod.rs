//! From an analyzed logical plan to one that a changelog can be maintained for: DataFusion's rules that are safe on changelogs, in their
//! order, with our own rules between them.
//!
//! When they have settled, the joins are put in order (`join_order`), of views as of queries.
//!
//! Absent on purpose: every rule that pushes LIMIT (a limit below anything changes which rows a changelog keeps), `SingleDistinctToGroupBy`
//! (the aggregate keeps distinct values itself), and folding of the clock (the optimizer is given no start time).

mod batch;
mod config;
mod correlated_limit;
mod distinct_on;
mod estimate;
mod filter_pushdown;
pub mod join_order;
mod limit;
mod null_safe_keys;
mod rank_filter;
mod scalar_subquery;
mod selectivity;
mod single_value;
mod sort;
pub mod statistics;
mod subquery_predicate;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::{
    common::{DataFusionError, config::ConfigOptions},
    logical_expr::{LogicalPlan, logical_plan::Subquery},
    optimizer::{
        Optimizer, OptimizerConfig, OptimizerRule, common_subexpr_eliminate::CommonSubexprEliminate,
        decorrelate_lateral_join::DecorrelateLateralJoin, decorrelate_predicate_subquery::DecorrelatePredicateSubquery,
        eliminate_cross_join::EliminateCrossJoin, eliminate_duplicated_expr::EliminateDuplicatedExpr, eliminate_filter::EliminateFilter,
        eliminate_group_by_constant::EliminateGroupByConstant, eliminate_join::EliminateJoin, eliminate_outer_join::EliminateOuterJoin,
        extract_equijoin_predicate::ExtractEquijoinPredicate, optimize_projections::OptimizeProjections, optimize_unions::OptimizeUnions,
        propagate_empty_relation::PropagateEmptyRelation, push_down_filter::PushDownFilter,
        replace_distinct_aggregate::ReplaceDistinctWithAggregate, rewrite_set_comparison::RewriteSetComparison,
        scalar_subquery_to_join::ScalarSubqueryToJoin, simplify_expressions::SimplifyExpressions,
    },
};

use self::{
    join_order::{BatchCost, Hints, Ordered, Ordering, order_joins},
    statistics::Statistics,
};
use crate::{
    error::PlanError,
    interrupt::{Interrupt, interruptible},
};
pub(crate) use batch::batch_rules;
pub(crate) use filter_pushdown::physical_rules;
pub(crate) use rank_filter::is_ranking;
pub(crate) use single_value::SINGLE_VALUE;

/// The rules, in the order in which each pass applies them.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        // Subqueries become joins: first those that DataFusion would decorrelate with another result than Postgres', then the rest.
        Arc::new(subquery_predicate::NullAwareSubquery),
        Arc::new(scalar_subquery::GuardScalarSubquery),
        Arc::new(sort::DropSort),
        Arc::new(single_value::DropSingleValue),
        Arc::new(correlated_limit::CorrelatedLimit),
        Arc::new(distinct_on::DistinctOnToTopN),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(EliminateJoin::new()),
        Arc::new(DecorrelatePredicateSubquery::new()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        // Not before: it would write subqueries several times, and each would become a join.
        Arc::new(SimplifyExpressions::new()),
        // A correlated EXISTS may lose its LIMIT above; what is left is a top-N.
        Arc::new(limit::LimitToTopN),
        Arc::new(null_safe_keys::NullSafeKeys),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        // Only now does a filter on a rank stand directly above its window.
        Arc::new(rank_filter::RankToTopN),
        Arc::new(EliminateGroupByConstant::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// Optimizes an analyzed plan for continuous maintenance. `options` are those of the session that created the view. `interrupt` is asked before
/// every step.
///
/// # Errors
/// A user error if a rule refuses the plan, XX000 if a rule breaks it; what `interrupt` says.
pub fn optimize(plan: LogicalPlan, options: &ConfigOptions, interrupt: &Interrupt) -> Result<LogicalPlan, PlanError> {
    let config = config::StreamOptimizerConfig::new(options, interrupt);
    Optimizer::with_rules(interruptible(rules())).optimize(plan, &config, |_, _| {}).map_err(|error| refused_subquery(error.into()))
}

/// Orders the joins of what [`optimize`] has made.
///
/// # Errors
/// As [`optimize`].
pub fn order_view(
    plan: LogicalPlan,
    ordering: &Ordering<'_>,
    options: &ConfigOptions,
    interrupt: &Interrupt,
) -> Result<Ordered, PlanError> {
    let ordered = order_joins(plan, ordering, interrupt)?;
    // A plan that stays as it is written stays so to the last operator: there may be state for it.
    if ordered.is_changed() { settled(ordered, &config::StreamOptimizerConfig::new(options, interrupt)) } else { Ok(ordered) }
}

/// Orders the joins of what the rules of [`crate::functions::session::session_state`] have made. `config` is the session that will run the plan.
///
/// # Errors
/// What the interrupt of its options says; XX000 if a plan cannot be rebuilt.
pub fn order_query(
    plan: LogicalPlan,
    statistics: &dyn Statistics,
    hints: &Hints,
    config: &dyn OptimizerConfig,
) -> Result<Ordered, PlanError> {
    let interrupt = Interrupt::of(&config.options());
    let ordered = order_joins(plan, &Ordering::Chosen { statistics, model: &BatchCost, hints }, &interrupt)?;
    if ordered.has_joins { settled(ordered, config) } else { Ok(ordered) }
}

/// Joins of which nothing but a match is wanted become semi joins, new filters go to the scans, and joins carry only the columns that are read above them.
fn settled(ordered: Ordered, config: &dyn OptimizerConfig) -> Result<Ordered, PlanError> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        vec![Arc::new(EliminateJoin::new()), Arc::new(PushDownFilter::new()), Arc::new(OptimizeProjections::new())];
    let plan = Optimizer::with_rules(interruptible(rules)).optimize(ordered.plan, config, |_, _| {})?;
    Ok(Ordered { plan, ..ordered })
}

/// DataFusion's checks of subqueries know nothing of views; what they refuse gets our words.
fn refused_subquery(error: PlanError) -> PlanError {
    if error.message.contains("must be aggregated to return at most one row") {
        return unsupported(
            "a correlated scalar subquery in a materialized view must have at most one row for each outer row",
            "Compare a primary key of the subquery's table with the outer row, or aggregate with max().",
        );
    }
    if error.sqlstate != "0A000" && error.message.to_ascii_lowercase().contains("correlated") {
        return unsupported("this form of correlated subquery is not supported in a materialized view", "Write it as a join.")
            .with_detail(error.message);
    }
    error
}

/// Whether a subquery's limit is one for each value of columns, so that a view can maintain it as a top-N.
pub(crate) fn limits_by_columns(subquery: &Subquery) -> bool {
    let unchecked = single_value::without_check(&subquery.subquery).ok().flatten();
    let subquery = match unchecked {
        Some(plan) => Subquery { subquery: Arc::new(plan), ..subquery.clone() },
        None => subquery.clone(),
    };
    matches!(correlated_limit::rewritten(&subquery), Ok(Some(_)))
}

/// A refusal (0A000).
pub(crate) fn unsupported(message: impl Into<String>, hint: impl Into<String>) -> PlanError {
    PlanError::unsupported(message).with_hint(hint)
}

/// A refusal (0A000) as an optimizer rule reports it.
pub(crate) fn refusal(message: impl Into<String>, hint: impl Into<String>) -> DataFusionError {
    unsupported(message, hint).into()
}
