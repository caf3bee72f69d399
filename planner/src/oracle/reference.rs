//! DataFusion's answer to a query.

use std::sync::Arc;

use arrow::{record_batch::RecordBatch, util::display::array_value_to_string};
use datafusion::{datasource::MemTable, prelude::SessionContext};

use super::{Contents, history::History};

pub(super) struct Reference {
    runtime: tokio::runtime::Runtime,
}

impl Reference {
    pub(super) fn new() -> Self {
        Self { runtime: tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made") }
    }

    /// The rows of `sql` over the tables as they are.
    pub(super) fn answer(&self, history: &History, sql: &str) -> Result<Contents, String> {
        let session = SessionContext::new();
        for table in history.tables() {
            let memory = MemTable::try_new(Arc::clone(&table.schema), vec![vec![table.contents()]]).map_err(|error| error.to_string())?;
            session.register_table(table.name, Arc::new(memory)).map_err(|error| error.to_string())?;
        }
        let batches = self.runtime.block_on(async { session.sql(sql).await?.collect().await }).map_err(|error| error.to_string())?;
        let mut contents = Contents::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                *contents.entry(row_text(batch, row)).or_insert(0) += 1;
            }
        }
        Ok(contents)
    }
}

/// A row as text; equal values of different types (views and plain strings, ranks in u64 and i64) are equal.
pub(super) fn row_text(batch: &RecordBatch, row: usize) -> String {
    let value = |column: &arrow::array::ArrayRef| {
        if column.is_null(row) { "NULL".to_owned() } else { array_value_to_string(column, row).unwrap_or_else(|error| error.to_string()) }
    };
    batch.columns().iter().map(value).collect::<Vec<_>>().join(" | ")
}
