//! The batch answer to a query: the same bound plan, run by DataFusion over the tables as they are.

use std::sync::Arc;

use arrow::{record_batch::RecordBatch, util::display::array_value_to_string};
use datafusion::{
    catalog::TableProvider,
    common::{Result, tree_node::Transformed},
    datasource::{MemTable, provider_as_source},
    execution::{SessionState, runtime_env::RuntimeEnv},
    logical_expr::LogicalPlan,
    physical_plan::collect,
};

use super::{Contents, history::History};
use crate::{
    functions::session::{session_config, session_state},
    relation_source::RelationSource,
    test_bench::Bench,
};

pub(super) struct Reference {
    state: SessionState,
    runtime: tokio::runtime::Runtime,
}

impl Reference {
    pub(super) fn new() -> Self {
        let state = session_state(session_config().with_target_partitions(1), Arc::new(RuntimeEnv::default()), Vec::new());
        Self { state, runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made") }
    }

    /// The rows of `sql` over the tables as they are.
    pub(super) fn answer(&self, bench: &Bench, history: &History, sql: &str) -> std::result::Result<Contents, String> {
        let plan = bench.bound(sql).map_err(|error| format!("{error} {:?}", error.detail))?;
        let plan = with_contents(plan, history).map_err(|error| error.to_string())?;
        let batches = self.runtime.block_on(async {
            let physical = self.state.create_physical_plan(&plan).await?;
            collect(physical, self.state.task_ctx()).await
        });
        let mut contents = Contents::new();
        for batch in &batches.map_err(|error| error.to_string())? {
            for row in 0..batch.num_rows() {
                *contents.entry(row_text(batch, row)).or_insert(0) += 1;
            }
        }
        Ok(contents)
    }
}

fn with_contents(plan: LogicalPlan, history: &History) -> Result<LogicalPlan> {
    let replaced = plan.transform_up_with_subqueries(|plan| {
        let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
        if let Some(source) = scan.source.downcast_ref::<RelationSource>()
            && let Some(batch) = history.contents(source.id)
        {
            let batch = RecordBatch::try_new(Arc::clone(&source.schema), batch.columns().to_vec())?;
            let table: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(Arc::clone(&source.schema), vec![vec![batch]])?);
            scan.source = provider_as_source(table);
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(replaced.data)
}

/// A row as text.
pub(super) fn row_text(batch: &RecordBatch, row: usize) -> String {
    let value = |column: &arrow::array::ArrayRef| {
        if column.is_null(row) { "NULL".to_owned() } else { array_value_to_string(column, row).unwrap_or_else(|error| error.to_string()) }
    };
    batch.columns().iter().map(value).collect::<Vec<_>>().join(" | ")
}
