//! The rules of batch queries: DataFusion's, and those of ours for what it would refuse or answer otherwise than Postgres.

use std::sync::Arc;

use datafusion::optimizer::{
    Optimizer, OptimizerRule, eliminate_join::EliminateJoin, extract_equijoin_predicate::ExtractEquijoinPredicate,
};

use super::null_safe_keys::NullSafeKeys;
use crate::unnest::UnnestLimits;

/// The rules, in their order.
pub(crate) fn batch_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![Arc::new(UnnestLimits), Arc::new(NullSafeKeys)];
    for rule in Optimizer::new().rules {
        // It makes semi joins of some inner ones, depending on their order, and comes after that has been chosen.
        if rule.name() == EliminateJoin::new().name() {
            continue;
        }
        if rule.name() == ExtractEquijoinPredicate::new().name() {
            rules.push(Arc::new(NullSafeKeys));
        }
        rules.push(rule);
    }
    rules
}
