//! Bounded fragments: a batch query's physical plan on the engine's exchanges.
//!
//! DataFusion supplies the operators. Wherever its plan changes the number or the meaning of partitions, the plan is cut: what is below becomes
//! a fragment of its own, with one subtask per partition, and an [`ExchangeExec`] carries its chunks to the fragment above over the
//! same bounded [inbox](crate::exchange::inbox) that a view's subtasks read. All exchanges are *pipelined*: consumer and producer run at once
//! (the intermediate streams of Carbone et al., "Apache Flink: Stream and Batch Processing in a Single Engine", 2015, section 3.1).

mod exchange;
mod producer;
mod receiver;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::{
    common::tree_node::{Transformed, TreeNode},
    error::Result,
    physical_plan::{
        ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, Partitioning, ReplaceChildrenOptions,
        coalesce_partitions::CoalescePartitionsExec, repartition::RepartitionExec, sorts::sort_preserving_merge::SortPreservingMergeExec,
    },
};

pub use self::exchange::{ExchangeExec, Route};

/// The plan with an [`ExchangeExec`] at every point where partitions change.
///
/// A repartition that must keep an order stays as it is: there a consumer waits for a row of *each* producer, and with channels that are bounded
/// one by one the two could wait for each other for ever.
///
/// # Errors
/// Errors of DataFusion's when a node is built again over other children.
pub fn with_exchanges(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(replaced) = exchange_for(&node)? else { return Ok(Transformed::no(node)) };
        Ok(Transformed::yes(replaced))
    })
    .map(|transformed| transformed.data)
}

fn exchange_for(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(repartition) = node.downcast_ref::<RepartitionExec>() {
        if repartition.preserve_order() {
            return Ok(None);
        }
        let route = match repartition.partitioning() {
            Partitioning::Hash(keys, _) => Route::Hash(keys.clone()),
            Partitioning::RoundRobinBatch(_) => Route::RoundRobin,
            Partitioning::UnknownPartitioning(_) | Partitioning::Range(_) => return Ok(None),
        };
        return Ok(Some(Arc::new(ExchangeExec::new(repartition.input().clone(), route, node.properties().clone()))));
    }
    if let Some(coalesce) = node.downcast_ref::<CoalescePartitionsExec>() {
        // With a limit the node does more than to gather.
        if coalesce.fetch().is_none() && partitions(coalesce.input()) > 1 {
            return Ok(Some(Arc::new(ExchangeExec::new(coalesce.input().clone(), Route::Single, node.properties().clone()))));
        }
        return Ok(None);
    }
    if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        let input = merge.input();
        if partitions(input) > 1 && !input.is::<ExchangeExec>() {
            let forward: Arc<dyn ExecutionPlan> = Arc::new(ExchangeExec::new(input.clone(), Route::Forward, input.properties().clone()));
            return node.clone().replace_children(vec![forward], ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep)).map(Some);
        }
    }
    Ok(None)
}

fn partitions(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}
