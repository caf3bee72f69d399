//! Running a [`WindowNode`] over bounded input: each row once per window that contains it, with the window's bounds.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, TimestampMicrosecondArray, UInt64Array},
    compute::take_record_batch,
    datatypes::{DataType, SchemaRef, TimestampMicrosecondType},
    record_batch::RecordBatch,
};
use async_trait::async_trait;
use datafusion::{
    catalog::Session,
    common::tree_node::TreeNodeRecursion,
    error::Result as DataFusionResult,
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{LogicalPlan, UserDefinedLogicalNode, physical_planning_context::PhysicalPlanningContext},
    physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, coop::make_cooperative,
        execution_plan::SchedulingType, stream::RecordBatchStreamAdapter,
    },
    physical_planner::{ExtensionPlanner, PhysicalPlanner},
};
use futures::{TryStreamExt, stream};
use millpond_engine::graph::WindowStep;

use super::window::WindowNode;
use crate::{
    error::{PlanError, sqlstate},
    pg_text::{MICROS_PER_DAY, civil_from_days, days_from_civil},
};

/// Plans [`WindowNode`]s.
pub(crate) struct WindowPlanner;

#[async_trait]
impl ExtensionPlanner for WindowPlanner {
    async fn plan_extension(
        &self,
        _: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _: &dyn Session,
        _: &PhysicalPlanningContext,
    ) -> DataFusionResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<WindowNode>() else { return Ok(None) };
        let ([logical], [input]) = (logical_inputs, physical_inputs) else {
            return Err(PlanError::internal("a window has one input").into());
        };
        let time = logical.schema().index_of_column(node.time())?;
        let windows = Windows { slide: node.slide(), size: node.size(), offset_us: node.offset_us() };
        let schema = Arc::clone(node.schema_ref().inner());
        Ok(Some(Arc::new(WindowExec::new(Arc::clone(input), time, windows, schema))))
    }
}

/// The windows there are.
#[derive(Clone, Copy, Debug)]
struct Windows {
    slide: WindowStep,
    size: WindowStep,
    offset_us: i64,
}

impl Windows {
    /// Calls `found` with the bounds of each window that contains a time, the earliest first.
    fn containing(self, time: i64, mut found: impl FnMut(i64, i64)) -> Result<(), PlanError> {
        let range = || PlanError::new(sqlstate::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
        if time == i64::MAX || time == i64::MIN {
            return Err(range());
        }
        let local = time.checked_sub(self.offset_us).ok_or_else(range)?;
        let shifted = |local: i64| local.checked_add(self.offset_us);
        match (self.slide, self.size) {
            (WindowStep::Micros(slide), WindowStep::Micros(size)) => {
                let latest = local.div_euclid(slide).checked_mul(slide).ok_or_else(range)?;
                let earliest = latest.checked_sub((size - 1) / slide * slide).ok_or_else(range)?;
                shifted(earliest).zip(latest.checked_add(size).and_then(shifted)).ok_or_else(range)?;
                let windows = (0..=(latest - earliest) / slide).map(|number| earliest + number * slide);
                for start in windows.filter(|start| start + size > local) {
                    found(start + self.offset_us, start + size + self.offset_us);
                }
            }
            (_, WindowStep::Months(months)) => {
                let (year, month, _) = civil_from_days(local.div_euclid(MICROS_PER_DAY));
                let number = (year - 1970) * 12 + i64::from(month) - 1;
                let first = number.div_euclid(i64::from(months)) * i64::from(months);
                let start_of = |number: i64| {
                    let days = days_from_civil(1970 + number.div_euclid(12), number.rem_euclid(12) as u32 + 1, 1);
                    days.checked_mul(MICROS_PER_DAY).and_then(shifted).ok_or_else(range)
                };
                found(start_of(first)?, start_of(first + i64::from(months))?);
            }
            (WindowStep::Months(_), WindowStep::Micros(_)) => return Err(PlanError::internal("a window of two kinds of steps")),
        }
        Ok(())
    }
}

/// The operator.
#[derive(Debug)]
struct WindowExec {
    input: Arc<dyn ExecutionPlan>,
    time: usize,
    windows: Windows,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl WindowExec {
    fn new(input: Arc<dyn ExecutionPlan>, time: usize, windows: Windows, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { input, time, windows, schema, properties: Arc::new(properties) }
    }
}

impl DisplayAs for WindowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WindowExec: time={}, slide={:?}, size={:?}", self.time, self.windows.slide, self.windows.size)
    }
}

impl ExecutionPlan for WindowExec {
    fn name(&self) -> &str {
        "WindowExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, self.time, self.windows, Arc::clone(&self.schema)))),
            _ => Err(PlanError::internal("a window has one input").into()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let batch_rows = context.session_config().batch_size();
        let input = self.input.execute(partition, context)?;
        let (time, windows, schema) = (self.time, self.windows, Arc::clone(&self.schema));
        let expanded = input
            .map_ok(move |batch| {
                let rows = Expansion { batch, time, windows, schema: Arc::clone(&schema), batch_rows, row: 0 };
                stream::iter(rows)
            })
            .try_flatten();
        // One batch of input can become thousands.
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), expanded))))
    }
}

/// The rows of a batch with their windows, in pieces of about so many rows, made one by one: a row may be in thousands of windows.
struct Expansion {
    batch: RecordBatch,
    time: usize,
    windows: Windows,
    schema: SchemaRef,
    batch_rows: usize,
    /// The next row of the batch.
    row: usize,
}

impl Expansion {
    fn piece(&mut self) -> DataFusionResult<Option<RecordBatch>> {
        let times = self.batch.column(self.time).as_primitive::<TimestampMicrosecondType>();
        let (mut rows, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        while rows.len() < self.batch_rows && self.row < times.len() {
            if times.is_valid(self.row) {
                self.windows.containing(times.value(self.row), |start, end| {
                    rows.push(self.row as u64);
                    starts.push(start);
                    ends.push(end);
                })?;
            }
            self.row += 1;
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let taken = take_record_batch(&self.batch, &UInt64Array::from(rows))?;
        let zone = match times.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let column = |values: Vec<i64>| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone.clone())) };
        let mut columns = taken.columns().to_vec();
        columns.extend([column(starts), column(ends)]);
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }
}

impl Iterator for Expansion {
    type Item = DataFusionResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.piece().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(windows: Windows, time: i64) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        windows.containing(time, |start, end| found.push((start, end))).unwrap();
        found
    }

    #[test]
    fn a_batch_is_expanded_piece_by_piece() {
        use arrow::datatypes::{Field, Schema, TimeUnit};
        let field = |name| Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, None), true);
        let times: TimestampMicrosecondArray = (0..8192).map(|time| (time % 3 > 0).then_some(time)).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field("at")])), vec![Arc::new(times)]).unwrap();
        let windows = Windows { slide: WindowStep::Micros(1), size: WindowStep::Micros(10_000), offset_us: 0 };
        let schema = Arc::new(Schema::new(vec![field("at"), field("window_start"), field("window_end")]));
        let mut expansion = Expansion { batch, time: 0, windows, schema, batch_rows: 8192, row: 0 };
        for row in 1..4 {
            assert_eq!(expansion.next().unwrap().unwrap().num_rows(), 10_000);
            assert_eq!(expansion.row, row + row / 3 + 1, "no row is expanded before its turn");
        }
    }

    #[test]
    fn windows_start_at_the_floor() {
        let tumble = Windows { slide: WindowStep::Micros(10), size: WindowStep::Micros(10), offset_us: 0 };
        assert_eq!(of(tumble, -1), [(-10, 0)]);
        assert_eq!(of(tumble, 0), [(0, 10)]);
        let hop = Windows { slide: WindowStep::Micros(2), size: WindowStep::Micros(5), offset_us: 1 };
        assert_eq!(of(hop, 4), [(1, 6), (3, 8)]);
        assert_eq!(of(hop, 5), [(1, 6), (3, 8), (5, 10)]);
        let gaps = Windows { slide: WindowStep::Micros(10), size: WindowStep::Micros(5), offset_us: 0 };
        assert_eq!(of(gaps, 7), []);
        let month = Windows { slide: WindowStep::Months(1), size: WindowStep::Months(1), offset_us: 0 };
        assert_eq!(of(month, 0), [(0, 31 * MICROS_PER_DAY)]);
    }
}
