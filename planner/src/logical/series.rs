//! `generate_series` over constants in a bounded query: its values are made as they are asked for, so that a long series needs no memory and a
//! limit ends it. Times are such a series where every step is as long as the first. To the binder it is a list that is expanded into rows, as
//! for any function that returns rows.

use std::{fmt, ops::RangeInclusive, sync::Arc};

use arrow::{
    array::{ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray},
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit},
};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{Column, Statistics, stats::Precision, tree_node::TreeNodeRecursion},
    datasource::provider_as_source,
    error::Result as DataFusionResult,
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableType, Unnest},
    physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        coop::make_cooperative,
        execution_plan::{Boundedness, EmissionType, SchedulingType},
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use futures::stream;

use crate::{
    error::Result,
    functions::{sequence, session::evaluate_constant},
};

/// The name of a series in plans.
const NAME: &str = "generate_series";

/// The scan that an expansion becomes, if it is a series that can be made number by number.
///
/// # Errors
/// 22023 for a step of zero, and errors of the arguments.
pub(super) fn of(unnest: &Unnest) -> DataFusionResult<Option<LogicalPlan>> {
    Series::of(unnest)?.map(|(series, name)| series.into_plan(&name)).transpose()
}

/// Numbers from the first up or down, of which there are `count`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Series {
    first: i64,
    step: i64,
    count: u64,
    data_type: DataType,
}

impl Series {
    /// The series that an expansion is, and the name of its column.
    fn of(unnest: &Unnest) -> Result<Option<(Self, String)>> {
        let LogicalPlan::Projection(projection) = &*unnest.input else { return Ok(None) };
        let [Expr::Alias(alias)] = projection.expr.as_slice() else { return Ok(None) };
        let Expr::ScalarFunction(call) = &*alias.expr else { return Ok(None) };
        let is_one_row = matches!(&*projection.input, LogicalPlan::EmptyRelation(empty) if empty.produce_one_row);
        if !is_one_row || call.name() != sequence::SERIES_LIST || unnest.list_type_columns.len() != 1 {
            return Ok(None);
        }
        let data_type = unnest.schema.field(0).data_type().clone();
        let zoned = match &data_type {
            DataType::Int32 | DataType::Int64 => false,
            DataType::Timestamp(TimeUnit::Microsecond, zone) => zone.is_some(),
            _ => return Ok(None),
        };
        let mut arguments = Vec::with_capacity(call.args.len());
        for argument in &call.args {
            let Some(value) = evaluate_constant(argument.clone())? else { return Ok(None) };
            if value.is_null() {
                arguments.push(None);
                continue;
            }
            let Some(number) = sequence::number_of(&value, zoned) else { return Ok(None) };
            arguments.push(Some(number));
        }
        let series = match arguments.as_slice() {
            [Some(first), Some(last)] => Self::new(*first, *last, 1, data_type)?,
            [Some(first), Some(last), Some(step)] => Self::new(*first, *last, *step, data_type)?,
            // A NULL among them.
            _ => Self { first: 0, step: 1, count: 0, data_type },
        };
        Ok(Some((series, unnest.schema.field(0).name().clone())))
    }

    fn new(first: i64, last: i64, step: i64, data_type: DataType) -> Result<Self> {
        if step == 0 {
            return Err(sequence::zero_step());
        }
        let steps = (i128::from(last) - i128::from(first)) / i128::from(step);
        // The way from one end of the integers to the other has one number more than the greatest count.
        let count = u64::try_from((steps + 1).max(0)).unwrap_or(u64::MAX);
        let goes_there = if step > 0 { first <= last } else { first >= last };
        Ok(Self { first, step, count: if goes_there { count } else { 0 }, data_type })
    }

    /// The numbers of these places.
    fn numbers(&self, places: RangeInclusive<u64>) -> ArrayRef {
        let number = |place: u64| (i128::from(self.first) + i128::from(place) * i128::from(self.step)) as i64;
        match &self.data_type {
            DataType::Int32 => Arc::new(places.map(|place| number(place) as i32).collect::<Int32Array>()),
            DataType::Timestamp(_, zone) => {
                Arc::new(TimestampMicrosecondArray::from_iter_values(places.map(number)).with_timezone_opt(zone.clone()))
            }
            _ => Arc::new(places.map(number).collect::<Int64Array>()),
        }
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new(NAME, self.data_type.clone(), true)]))
    }

    /// A scan whose column has the name.
    fn into_plan(self, name: &str) -> DataFusionResult<LogicalPlan> {
        let source = provider_as_source(Arc::new(SeriesTable(self)));
        let column = Expr::Column(Column::new(Some(NAME), NAME));
        LogicalPlanBuilder::scan(NAME, source, None)?.project(vec![column.alias(name)])?.build()
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Series: {} number(s) from {}", self.count, self.first)?;
        if self.step == 1 { Ok(()) } else { write!(f, " by {}", self.step) }
    }
}

/// The series as a table.
#[derive(Debug)]
struct SeriesTable(Series);

#[async_trait]
impl TableProvider for SeriesTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let series = Series { count: limit.map_or(self.0.count, |limit| self.0.count.min(limit as u64)), ..self.0.clone() };
        let schema = match projection {
            Some(projection) => Arc::new(series.schema().project(projection)?),
            None => series.schema(),
        };
        Ok(Arc::new(SeriesExec::new(series, schema)))
    }
}

/// The leaf of a physical plan. Its schema has one column, or none when only the rows count.
#[derive(Debug)]
struct SeriesExec {
    series: Series,
    properties: Arc<PlanProperties>,
}

impl SeriesExec {
    fn new(series: Series, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { series, properties: Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative)) }
    }
}

impl DisplayAs for SeriesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.series)
    }
}

impl ExecutionPlan for SeriesExec {
    fn name(&self) -> &str {
        "SeriesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let (series, schema, size) = (self.series.clone(), self.schema(), context.session_config().batch_size().max(1) as u64);
        let mut next = 0_u64;
        let batches = std::iter::from_fn(move || {
            let rows = size.min(series.count - next);
            if rows == 0 {
                return None;
            }
            let columns = if schema.fields().is_empty() { Vec::new() } else { vec![series.numbers(next..=next + (rows - 1))] };
            next += rows;
            let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
            Some(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options).map_err(Into::into))
        });
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::iter(batches)))))
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], _: &StatisticsArgs) -> DataFusionResult<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = usize::try_from(self.series.count).map_or(Precision::Absent, Precision::Exact);
        Ok(Arc::new(statistics))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;

    fn numbers(first: i64, last: i64, step: i64) -> Vec<i64> {
        let series = Series::new(first, last, step, DataType::Int64).unwrap();
        if series.count == 0 {
            return Vec::new();
        }
        series.numbers(0..=series.count - 1).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec()
    }

    #[test]
    fn numbers_of_a_series() {
        assert_eq!(numbers(1, 3, 1), [1, 2, 3]);
        assert_eq!(numbers(1, 10, 4), [1, 5, 9]);
        assert_eq!(numbers(3, 1, -1), [3, 2, 1]);
        assert_eq!(numbers(3, 0, -2), [3, 1]);
        assert_eq!(numbers(5, 5, -7), [5]);
        assert!(numbers(3, 1, 1).is_empty() && numbers(1, 3, -1).is_empty());
        assert_eq!(numbers(i64::MAX - 1, i64::MAX, 1), [i64::MAX - 1, i64::MAX]);
        assert_eq!(numbers(i64::MIN, i64::MAX, i64::MAX), [i64::MIN, -1, i64::MAX - 1]);
        assert_eq!(Series::new(i64::MIN, i64::MAX, 1, DataType::Int64).unwrap().count, u64::MAX);
        assert!(Series::new(1, 2, 0, DataType::Int64).is_err());
    }
}
