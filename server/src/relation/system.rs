//! System relations in a plan: named while it is bound, filled with rows when it is run.

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{
    catalog::{MemTable, TableProvider},
    logical_expr::TableSource,
};

use crate::error::Result;

/// The table source of a system relation.
#[derive(Clone, Debug)]
pub(crate) struct SystemSource {
    /// Its schema.
    pub(crate) schema_name: &'static str,
    /// Its name.
    pub(crate) name: String,
    /// Its columns.
    pub(crate) schema: SchemaRef,
}

impl TableSource for SystemSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The rows of one, as a table.
pub(crate) fn table(rows: RecordBatch) -> Result<Arc<dyn TableProvider>> {
    Ok(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?))
}
