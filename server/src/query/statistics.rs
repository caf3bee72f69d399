//! What is known of the relations of a query: how many rows they have at its epoch, and by which columns those are told apart.

use datafusion::{datasource::DefaultTableSource, logical_expr::TableSource};
use millpond_planner::optimize::statistics::{ProviderStatistics, RelationStatistics, Statistics};

use crate::relation::provider::RelationTable;

/// The statistics of resolved scans.
pub(crate) struct QueryStatistics;

impl Statistics for QueryStatistics {
    fn of(&self, source: &dyn TableSource) -> Option<RelationStatistics> {
        let mut known = ProviderStatistics.of(source)?;
        let relation = source.downcast_ref::<DefaultTableSource>().and_then(|source| source.table_provider.downcast_ref::<RelationTable>());
        if let Some(key) = relation.map(RelationTable::key).filter(|key| !key.is_empty()) {
            known.keys.push(key.to_vec());
        }
        Some(known)
    }
}
