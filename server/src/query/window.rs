//! TUMBLE and HOP over bounded input: each row once per window that contains it.

use std::{fmt, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, TimestampMicrosecondArray, UInt32Array},
    compute::take_record_batch,
    datatypes::{DataType, SchemaRef, TimestampMicrosecondType},
};
use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime};
use datafusion::{
    common::{Result, tree_node::TreeNodeRecursion},
    execution::TaskContext,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, SendableRecordBatchStream,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::StreamExt;
use millpond_engine::graph::WindowStep;

/// Assigns rows to windows.
#[derive(Debug)]
pub(crate) struct WindowExec {
    input: Arc<dyn ExecutionPlan>,
    windows: Windows,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

#[derive(Clone, Copy, Debug)]
struct Windows {
    time: usize,
    slide: WindowStep,
    size: WindowStep,
    offset_us: i64,
}

impl WindowExec {
    /// Windows over column `time` of the input; `schema` has two columns more.
    pub(crate) fn new(
        input: Arc<dyn ExecutionPlan>,
        time: usize,
        slide: WindowStep,
        size: WindowStep,
        offset_us: i64,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            datafusion::physical_plan::Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, windows: Windows { time, slide, size, offset_us }, schema, properties: Arc::new(properties) }
    }
}

impl Windows {
    /// The starts and ends of the windows that contain an instant.
    fn of(&self, time_us: i64, mut add: impl FnMut(i64, i64)) {
        if matches!(time_us, i64::MAX | i64::MIN) {
            return;
        }
        match (self.slide, self.size) {
            (WindowStep::Micros(slide), WindowStep::Micros(size)) => {
                let mut start = time_us - (time_us - self.offset_us).rem_euclid(slide);
                while start > time_us.saturating_sub(size) {
                    if let Some(end) = start.checked_add(size) {
                        add(start, end);
                    }
                    let Some(earlier) = start.checked_sub(slide) else { break };
                    start = earlier;
                }
            }
            (_, WindowStep::Months(months)) | (WindowStep::Months(months), _) => {
                if let Some((start, end)) = month_window(time_us - self.offset_us, months) {
                    add(start + self.offset_us, end + self.offset_us);
                }
            }
        }
    }

    fn assign(&self, rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let times = rows.column(self.time).as_primitive::<TimestampMicrosecondType>();
        let (mut numbers, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for row in (0..rows.num_rows()).filter(|row| times.is_valid(*row)) {
            self.of(times.value(row), |start, end| {
                numbers.push(row as u32);
                starts.push(start);
                ends.push(end);
            });
        }
        let zone = match rows.column(self.time).data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let mut columns = take_record_batch(rows, &UInt32Array::from(numbers))?.columns().to_vec();
        for bounds in [starts, ends] {
            columns.push(Arc::new(TimestampMicrosecondArray::from(bounds).with_timezone_opt(zone.clone())) as ArrayRef);
        }
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    }
}

/// The window of whole months, counted from January of year 0, that contains an instant.
fn month_window(time_us: i64, months: i32) -> Option<(i64, i64)> {
    let date = DateTime::from_timestamp_micros(time_us)?.date_naive();
    let number = date.year() * 12 + date.month0() as i32;
    let first = number.div_euclid(months) * months;
    let start = NaiveDate::from_ymd_opt(first.div_euclid(12), first.rem_euclid(12) as u32 + 1, 1)?;
    let end = start.checked_add_months(Months::new(months.unsigned_abs()))?;
    let micros = |date: NaiveDate| Some(NaiveDateTime::from(date).and_utc().timestamp_micros());
    Some((micros(start)?, micros(end)?))
}

impl DisplayAs for WindowExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WindowExec: slide={:?}, size={:?}, offset={}us", self.windows.slide, self.windows.size, self.windows.offset_us)
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

    fn apply_expressions(&self, _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let input = children.pop().unwrap_or_else(|| self.input.clone());
        let Windows { time, slide, size, offset_us } = self.windows;
        Ok(Arc::new(Self::new(input, time, slide, size, offset_us, self.schema.clone())))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (windows, schema) = (self.windows, self.schema.clone());
        let rows = self.input.execute(partition, context)?;
        let assigned = rows.map(move |rows| windows.assign(&rows?, &schema));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), assigned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(slide: WindowStep, size: WindowStep, offset_us: i64, time_us: i64) -> Vec<(i64, i64)> {
        let mut found = Vec::new();
        Windows { time: 0, slide, size, offset_us }.of(time_us, |start, end| found.push((start, end)));
        found
    }

    #[test]
    fn tumbling_and_hopping() {
        let micros = WindowStep::Micros;
        assert_eq!(windows(micros(10), micros(10), 0, 25), [(20, 30)]);
        assert_eq!(windows(micros(10), micros(10), 0, -1), [(-10, 0)]);
        assert_eq!(windows(micros(10), micros(10), 3, 25), [(23, 33)]);
        assert_eq!(windows(micros(10), micros(25), 0, 25), [(20, 45), (10, 35)]);
        assert_eq!(windows(micros(10), micros(25), 0, 24), [(20, 45), (10, 35), (0, 25)]);
        assert!(windows(micros(10), micros(10), 0, i64::MAX).is_empty());
    }

    #[test]
    fn months() {
        let day = 86_400_000_000;
        assert_eq!(windows(WindowStep::Months(1), WindowStep::Months(1), 0, 40 * day), [(31 * day, 59 * day)]);
        assert_eq!(windows(WindowStep::Months(3), WindowStep::Months(3), 0, -1), [(-92 * day, 0)]);
    }
}
