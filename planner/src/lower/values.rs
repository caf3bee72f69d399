//! Constant rows: VALUES, SELECT without FROM, and what the optimizer proved empty.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, new_empty_array},
    datatypes::{DataType, Field, Schema, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use datafusion::{
    common::{DFSchema, DataFusionError, ScalarValue},
    logical_expr::{EmptyRelation, Values},
};
use millpond_engine::{
    error::EngineError,
    graph::{Expression, OperatorSpec},
};

use super::{Lowering, internal, nullable_schema};
use crate::{
    error::{PlanError, Result},
    stream::node::NodeIndex,
};

impl Lowering<'_> {
    /// Lowers a relation with no row, or with one row of no columns. That one gets a column: operators keep no rows without any.
    pub(super) fn empty(&mut self, empty: &EmptyRelation) -> Result<NodeIndex> {
        let schema = nullable_schema(&empty.schema);
        let rows = usize::from(empty.produce_one_row);
        if schema.fields().is_empty() {
            let row: ArrayRef = Arc::new(BooleanArray::from(vec![true; rows]));
            return self.constant(vec![row], rows, Arc::new(Schema::new(vec![Field::new("row", DataType::Boolean, true)])));
        }
        let columns = schema.fields().iter().map(|field| arrow::array::new_null_array(field.data_type(), rows)).collect();
        self.constant(columns, rows, schema)
    }

    /// A relation that is always empty.
    pub(super) fn no_rows(&mut self, schema: SchemaRef) -> Result<NodeIndex> {
        let columns = schema.fields().iter().map(|field| new_empty_array(field.data_type())).collect();
        self.constant(columns, 0, schema)
    }

    /// Lowers VALUES.
    pub(super) fn values(&mut self, values: &Values) -> Result<NodeIndex> {
        let schema = nullable_schema(&values.schema);
        let one_row = no_columns(1)?;
        let none = DFSchema::empty();
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (at, field) in schema.fields().iter().enumerate() {
            let mut scalars = Vec::with_capacity(values.values.len());
            for row in &values.values {
                let value = self.expression(&row[at], &none)?;
                let array = evaluate(&value, &one_row)?;
                scalars.push(ScalarValue::try_from_array(&array, 0).map_err(constant_error)?);
            }
            let column = if scalars.is_empty() {
                new_empty_array(field.data_type())
            } else {
                ScalarValue::iter_to_array(scalars).map_err(constant_error)?
            };
            columns.push(arrow::compute::cast(&column, field.data_type()).map_err(|error| constant_error(error.into()))?);
        }
        self.constant(columns, values.values.len(), schema)
    }

    /// A projection of constant rows, computed now.
    pub(super) fn constant_projection(&mut self, batch: &RecordBatch, expressions: &[Expression], schema: &SchemaRef) -> Result<NodeIndex> {
        let columns = expressions.iter().map(|expression| evaluate(expression, batch)).collect::<Result<Vec<_>>>()?;
        self.constant(columns, batch.num_rows(), Arc::clone(schema))
    }

    fn constant(&mut self, columns: Vec<ArrayRef>, rows: usize, schema: SchemaRef) -> Result<NodeIndex> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options).map_err(|error| internal(error.to_string()))?;
        Ok(self.arena.add(OperatorSpec::Values { batch }, vec![], schema))
    }
}

fn no_columns(rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).map_err(|error| internal(error.to_string()))
}

fn evaluate(expression: &Expression, batch: &RecordBatch) -> Result<ArrayRef> {
    expression.physical.evaluate(batch).and_then(|value| value.into_array(batch.num_rows())).map_err(constant_error)
}

/// An error in a constant (`1 / 0`) is the user's.
fn constant_error(error: DataFusionError) -> PlanError {
    match EngineError::from(error) {
        EngineError::User { sqlstate, message, hint } => {
            let error = PlanError::new(sqlstate, message);
            match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        }
        other => internal(other.to_string()),
    }
}
