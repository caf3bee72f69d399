//! How a table scan in a logical plan names its relation: by the catalog id of a [`RelationSource`], the `TableSource` of every scan
//! of a source, table or materialized view.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::{
    common::Constraints,
    logical_expr::{LogicalPlan, TableSource, TableType},
};

/// What stands behind a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelationKind {
    /// An external source: its rows are read from a connector and never deleted.
    Source,
    /// A table or a materialized view: contents at an epoch, and the changes after it.
    Collection,
}

/// The relation of a scan.
#[derive(Clone, Debug)]
pub struct RelationSource {
    /// Catalog id.
    pub id: u64,
    /// What stands behind it.
    pub kind: RelationKind,
    /// All columns that a query may name, in order.
    pub schema: SchemaRef,
    /// Primary key and unique constraints *that are enforced*: the optimizer drops GROUP BY columns that depend on them.
    pub constraints: Constraints,
}

impl RelationSource {
    /// A relation without constraints.
    pub fn new(id: u64, kind: RelationKind, schema: SchemaRef) -> Self {
        Self { id, kind, schema, constraints: Constraints::default() }
    }

    /// The same with enforced constraints.
    #[must_use]
    pub fn with_constraints(mut self, constraints: Constraints) -> Self {
        self.constraints = constraints;
        self
    }

    /// The relation of a scan; `None` for every other plan node and for scans of other table sources (system relations).
    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::TableScan(scan) => scan.source.downcast_ref::<Self>(),
            _ => None,
        }
    }

    /// As a table source.
    pub fn into_source(self) -> Arc<dyn TableSource> {
        Arc::new(self)
    }
}

impl TableSource for RelationSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }
}
