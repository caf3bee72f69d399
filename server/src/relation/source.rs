//! A source as a DataFusion table. A bounded one is read to its end; an unbounded one up to what its splits are bound to, so that a SELECT
//! sees the rows its views have seen or are about to see. Nothing is diverted as late. Rows that cannot be read are left out, and counted.

use std::{collections::BTreeMap, fmt, sync::Arc};

use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{Result, Statistics, tree_node::TreeNodeRecursion},
    error::DataFusionError,
    execution::TaskContext,
    logical_expr::{Expr, TableType},
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
        coop::make_cooperative,
        execution_plan::{Boundedness, EmissionType, SchedulingType},
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{Stream, TryStreamExt, stream};
use millpond_engine::{
    coordinator::sources::SourceHandle,
    source::{BadRow, Offset, ReadOutcome, Source, Split},
};

use crate::relation::{contents::BATCH_ROWS, left_out::LeftOut};

/// A source at one moment.
#[derive(Debug)]
pub(crate) struct SourceTable {
    name: String,
    source: Arc<dyn Source>,
    /// What each unbounded split is bound to; one that is not named is not read. Bounded splits are read to their end.
    ends: BTreeMap<String, Offset>,
    /// Whether there is a job that moves the ends on.
    has_job: bool,
    /// What becomes of rows that cannot be decoded.
    bad: BadRows,
    /// What is left out.
    left_out: Arc<LeftOut>,
}

/// What becomes of rows that cannot be decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BadRows {
    /// The query fails.
    Fail,
    /// They are left out and counted.
    LeaveOut,
}

impl SourceTable {
    /// What the source called `name` shows now; `has_job` says whether any job reads it. What is not shown is noted in `left_out`.
    pub(crate) fn new(name: impl Into<String>, handle: &SourceHandle, has_job: bool, left_out: Arc<LeftOut>) -> Self {
        let ends = handle.status().into_iter().filter_map(|(split, bound)| Some((split.id, bound?.end))).collect();
        let bad = if handle.fail_on_bad_rows { BadRows::Fail } else { BadRows::LeaveOut };
        Self { name: name.into(), source: handle.source().clone(), ends, has_job, bad, left_out }
    }

    /// Nothing but a job reads on in a split that has no end, so without one it stands still.
    fn note_standstill(&self, splits: &[Split]) {
        let mut endless = splits.iter().filter(|split| !split.bounded).peekable();
        if !self.has_job && endless.peek().is_some() {
            self.left_out.stands_still(endless.any(|split| self.ends.contains_key(&split.id)));
        }
    }
}

/// A split and where this query stops reading it.
#[derive(Clone, Debug)]
struct Part {
    split: Split,
    end: Offset,
}

#[async_trait]
impl TableProvider for SourceTable {
    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let discovery = self.source.discover().await.map_err(external)?;
        self.note_standstill(&discovery.splits);
        let parts = discovery.splits.into_iter().filter_map(|split| {
            // With a limit a reader does not pace itself: a bounded split is read at once however slowly its views replay it.
            let end = match split.bounded {
                true => split.end.unwrap_or(Offset::MAX),
                false => *self.ends.get(&split.id)?,
            };
            Some(Part { split, end })
        });
        let partitions = state.config().target_partitions().max(1);
        let mut lanes: Vec<Vec<Part>> = Vec::new();
        for (index, part) in parts.enumerate() {
            if lanes.len() <= index % partitions {
                lanes.push(Vec::new());
            }
            lanes[index % partitions].push(part);
        }
        if lanes.is_empty() {
            lanes.push(Vec::new());
        }
        let schema = self.source.schema();
        let projection = projection.cloned().unwrap_or_else(|| (0..schema.fields().len()).collect());
        let projected = Arc::new(schema.project(&projection)?);
        let reading =
            Reading { name: self.name.clone(), source: self.source.clone(), projection, bad: self.bad, left_out: self.left_out.clone() };
        Ok(Arc::new(SourceScan::new(reading, lanes, projected, limit)))
    }
}

fn external(error: millpond_engine::error::EngineError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// How parts of a source are read.
#[derive(Clone, Debug)]
struct Reading {
    name: String,
    source: Arc<dyn Source>,
    projection: Vec<usize>,
    bad: BadRows,
    left_out: Arc<LeftOut>,
}

#[derive(Debug)]
struct SourceScan {
    reading: Reading,
    lanes: Vec<Vec<Part>>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl SourceScan {
    fn new(reading: Reading, lanes: Vec<Vec<Part>>, schema: SchemaRef, limit: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(lanes.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { reading, lanes, limit, properties: Arc::new(properties) }
    }
}

impl DisplayAs for SourceScan {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source: {}, {} split(s)", self.reading.name, self.lanes.iter().map(Vec::len).sum::<usize>())
    }
}

impl ExecutionPlan for SourceScan {
    fn name(&self) -> &str {
        "SourceScan"
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

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reading = self.reading.clone();
        let parts = stream::iter(self.lanes[partition].clone().into_iter().map(Ok::<_, DataFusionError>));
        let rows = parts.map_ok(move |part| read_part(reading.clone(), part)).try_flatten();
        // A limit is per partition here; whoever asked for it cuts the whole again.
        let limited = limit_rows(rows, self.limit.unwrap_or(usize::MAX));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema(), limited))))
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], _args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }
}

/// The rows of one split, up to its end.
fn read_part(reading: Reading, part: Part) -> impl Stream<Item = Result<RecordBatch>> {
    stream::try_unfold((reading, part, None), |(reading, part, reader)| async move {
        let mut reader = match reader {
            Some(reader) => reader,
            None => reading.source.open(&part.split, 0, &reading.projection).await.map_err(external)?,
        };
        loop {
            match reader.read(BATCH_ROWS, Some(part.end)).await.map_err(external)? {
                ReadOutcome::Rows { batch, bad, .. } => {
                    if let Some(first) = bad.first() {
                        reading.meet_bad(&part.split, first, bad.len()).await?;
                    }
                    if batch.num_rows() > 0 {
                        return Ok(Some((batch, (reading, part, Some(reader)))));
                    }
                }
                ReadOutcome::Pending { retry_after_us, .. } => {
                    tokio::time::sleep(std::time::Duration::from_micros(retry_after_us.max(100))).await;
                }
                ReadOutcome::AtLimit | ReadOutcome::Finished => return Ok(None),
            }
        }
    })
}

impl Reading {
    /// What becomes of rows of a split that cannot be decoded, as in a view.
    async fn meet_bad(&self, split: &Split, first: &BadRow, count: usize) -> Result<()> {
        match self.bad {
            BadRows::Fail => {
                let place = self.source.row_at(split, first.offset).await;
                Err(external(first.refusal(&self.name, &place)))
            }
            BadRows::LeaveOut => {
                if self.left_out.add(count as u64) {
                    self.left_out.describe_first(format!("{}: {}", self.source.row_at(split, first.offset).await, first.reason));
                }
                Ok(())
            }
        }
    }
}

fn limit_rows(rows: impl Stream<Item = Result<RecordBatch>> + Send, limit: usize) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let state = (Box::pin(rows), limit);
    stream::try_unfold(state, |(mut rows, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(batch) = rows.try_next().await? else { return Ok(None) };
        let batch = if batch.num_rows() > left { batch.slice(0, left) } else { batch };
        let left = left - batch.num_rows();
        Ok(Some((batch, (rows, left))))
    })
}
