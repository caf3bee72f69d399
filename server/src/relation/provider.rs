//! A table or view as a DataFusion table: a leaf that scans [`Contents`] with projection, key conditions and limit pushed into it.

use std::{fmt, sync::Arc};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{Constraints, Result, Statistics, stats::Precision, tree_node::TreeNodeRecursion},
    error::DataFusionError,
    execution::TaskContext,
    logical_expr::{Expr, TableProviderFilterPushDown, TableType},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
        coop::make_cooperative,
        execution_plan::{Boundedness, EmissionType, SchedulingType},
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};

use crate::{
    error::SqlError,
    relation::{
        contents::Contents,
        key_filter::{self, KeyPart},
    },
};

/// A relation at one moment, as DataFusion sees it.
#[derive(Debug)]
pub(crate) struct RelationTable {
    name: String,
    contents: Arc<dyn Contents>,
    constraints: Constraints,
}

impl RelationTable {
    /// The relation called `name`.
    pub(crate) fn new(name: impl Into<String>, contents: Arc<dyn Contents>) -> Self {
        Self { name: name.into(), contents, constraints: Constraints::default() }
    }

    /// The same with the constraints that its statement was bound with.
    #[must_use]
    pub(crate) fn with_constraints(&self, constraints: Constraints) -> Self {
        Self { name: self.name.clone(), contents: self.contents.clone(), constraints }
    }

    /// The columns by which its rows are told apart; none if equal rows are counted.
    pub(crate) fn key(&self) -> &[usize] {
        self.contents.key()
    }
}

#[async_trait]
impl TableProvider for RelationTable {
    fn schema(&self) -> SchemaRef {
        self.contents.schema()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.contents.schema();
        let part = key_filter::key_part(filters, &schema, self.contents.key()).map_err(external)?;
        let projected = match projection {
            Some(projection) => Arc::new(schema.project(projection)?),
            None => schema,
        };
        Ok(Arc::new(RelationScan::new(self.name.clone(), self.contents.clone(), part, projection.cloned(), projected, limit)))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let schema = self.contents.schema();
        let support = |filter: &&Expr| {
            // Inexact: the part that is read may have rows that fail the filter.
            if key_filter::is_key_condition(filter, &schema, self.contents.key()) {
                TableProviderFilterPushDown::Inexact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(statistics(&*self.contents, &self.contents.schema()))
    }
}

fn statistics(contents: &dyn Contents, schema: &SchemaRef) -> Statistics {
    let mut statistics = Statistics::new_unknown(schema);
    statistics.num_rows = Precision::Inexact(usize::try_from(contents.row_estimate()).unwrap_or(usize::MAX));
    statistics.total_byte_size = Precision::Inexact(usize::try_from(contents.byte_estimate()).unwrap_or(usize::MAX));
    statistics
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The leaf of a physical plan.
#[derive(Debug)]
struct RelationScan {
    name: String,
    contents: Arc<dyn Contents>,
    part: KeyPart,
    projection: Option<Vec<usize>>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl RelationScan {
    fn new(
        name: String,
        contents: Arc<dyn Contents>,
        part: KeyPart,
        projection: Option<Vec<usize>>,
        schema: SchemaRef,
        limit: Option<usize>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { name, contents, part, projection, limit, properties: Arc::new(properties) }
    }
}

impl DisplayAs for RelationScan {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scan: {}", self.name)?;
        match &self.part {
            KeyPart::Everything => {}
            KeyPart::Points(points) => write!(f, ", {} key(s)", points.len())?,
            KeyPart::Range(_) => f.write_str(", key range")?,
            KeyPart::Nothing => f.write_str(", nothing")?,
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for RelationScan {
    fn name(&self) -> &str {
        "RelationScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(&self, _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = self.contents.open(self.part.clone(), self.projection.clone(), self.limit).map_err(external)?;
        let schema = self.schema();
        // A collection has its own names for a view's columns.
        let named = move |batch: Result<RecordBatch, SqlError>| -> Result<RecordBatch> {
            let batch = batch.map_err(external)?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            Ok(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?)
        };
        let stream = futures::stream::iter(batches.map(named));
        let adapter = RecordBatchStreamAdapter::new(self.schema(), stream);
        Ok(make_cooperative(Box::pin(adapter)))
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let mut statistics = statistics(&*self.contents, &self.schema());
        match &self.part {
            KeyPart::Points(points) => statistics.num_rows = Precision::Inexact(points.len()),
            KeyPart::Nothing => statistics.num_rows = Precision::Exact(0),
            // Without a histogram a range is taken for a tenth.
            KeyPart::Range(_) => statistics.num_rows = Precision::Inexact((self.contents.row_estimate() / 10) as usize),
            KeyPart::Everything => {}
        }
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}
