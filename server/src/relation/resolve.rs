//! From a bound plan, whose scans name relations, to one that can be run: every scan gets the rows it is to read.

use std::{collections::BTreeMap, sync::Arc};

use datafusion::{
    catalog::TableProvider,
    common::tree_node::{Transformed, TreeNodeRecursion},
    datasource::provider_as_source,
    error::DataFusionError,
    logical_expr::LogicalPlan,
};
use millpond_planner::relation_source::{RelationKind, RelationSource};

use crate::{
    error::{Result, SqlError},
    relation::{provider::RelationTable, system::SystemSource},
};

/// What a plan reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relations {
    /// Tables and materialized views, by number.
    pub(crate) collections: Vec<u64>,
    /// Sources, by number.
    pub(crate) sources: Vec<u64>,
    /// Whether any system relation is read.
    pub(crate) system: bool,
}

/// The relations under a plan, subqueries included.
pub(crate) fn relations(plan: &LogicalPlan) -> Result<Relations> {
    let mut found = Relations::default();
    plan.apply_with_subqueries(|node| {
        match (RelationSource::of(node), node) {
            (Some(relation), _) => match relation.kind {
                RelationKind::Collection => found.collections.push(relation.id),
                RelationKind::Source => found.sources.push(relation.id),
            },
            (None, LogicalPlan::TableScan(scan)) => found.system |= scan.source.downcast_ref::<SystemSource>().is_some(),
            (None, _) => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for ids in [&mut found.collections, &mut found.sources] {
        ids.sort_unstable();
        ids.dedup();
    }
    Ok(found)
}

/// Gives every scan its rows. `system` is asked for each system relation, `tables` hold those of the others by number.
pub(crate) fn resolve(
    plan: LogicalPlan,
    tables: &BTreeMap<u64, Arc<dyn TableProvider>>,
    system: &dyn Fn(&SystemSource) -> Result<Arc<dyn TableProvider>>,
) -> Result<LogicalPlan> {
    let resolved = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider: Arc<dyn TableProvider> = if let Some(relation) = scan.source.downcast_ref::<RelationSource>() {
            let table = tables.get(&relation.id).cloned().ok_or_else(|| {
                DataFusionError::External(Box::new(SqlError::internal(format!("relation {} was not opened", relation.id))))
            })?;
            match table.downcast_ref::<RelationTable>() {
                Some(table) => Arc::new(table.with_constraints(relation.constraints.clone())),
                None => Arc::clone(&table),
            }
        } else if let Some(relation) = scan.source.downcast_ref::<SystemSource>() {
            system(relation).map_err(|error| DataFusionError::External(Box::new(error)))?
        } else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        scan.source = provider_as_source(provider);
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(resolved.data)
}
