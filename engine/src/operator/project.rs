//! Computes one output column per expression; a row that fails in one of them goes to the side output.
//!
//! Any changelog in, the same kind out. No state. A watermark passes under every output column that is its column, and under every output
//! column of which the planner says that it carries a watermark and that reads no other column: such an expression is monotone, so its
//! value at the watermark is the watermark of its values. Cost: one evaluation per chunk; a plain column costs nothing.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, new_null_array},
    compute::cast,
    datatypes::{DataType, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use datafusion::physical_expr::{expressions::Column, utils::collect_columns};

use crate::{
    chunk::Chunk,
    error::Result,
    expression::{Evaluator, keep_rows},
    graph::Expression,
    message::Watermark,
    operator::{Operator, Output, Progress, event_time::micros},
};

/// See the module.
pub(crate) struct Project {
    expressions: Evaluator,
    input: SchemaRef,
    output: SchemaRef,
    /// (input column, output column, whether the expression must be evaluated at the watermark).
    watermarks: Vec<(usize, usize, bool)>,
}

impl Project {
    /// A projection of `input` to `output`. `watermark_columns` are the output columns that the planner says carry event time.
    pub(crate) fn new(expressions: Evaluator, input: SchemaRef, output: SchemaRef, watermark_columns: &[usize]) -> Self {
        let watermarks = watermark_routes(expressions.expressions(), watermark_columns);
        Self { expressions, input, output, watermarks }
    }

    /// The value of output column `output` where input column `column` is at `micros`, if it is a time.
    fn at_watermark(&self, column: usize, output: usize, micros: i64) -> Result<Option<i64>> {
        let columns = self.input.fields().iter().enumerate().map(|(index, field)| match index == column {
            true => micros_to_array(micros, field.data_type()),
            false => Ok(new_null_array(field.data_type(), 1)),
        });
        let fields: Vec<_> = self.input.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = Arc::new(arrow::datatypes::Schema::new(fields));
        let batch = RecordBatch::try_new(schema, columns.collect::<Result<_>>()?)?;
        let value = self.expressions.expressions()[output].physical.evaluate(&batch)?.into_array(1)?;
        array_to_micros(&value)
    }
}

impl Operator for Project {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress> {
        let evaluated = self.expressions.evaluate(chunk.batch())?;
        let rows = evaluated.kept.as_ref().map_or(chunk.num_rows(), |kept| kept.true_count());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.output), evaluated.columns, &options)?;
        out.emit(match evaluated.kept {
            None => chunk.with_batch(batch),
            Some(kept) => keep_rows(&chunk, batch, &kept),
        });
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, out: &mut Output) -> Result<Progress> {
        for &(column, output, evaluate) in &self.watermarks {
            if column != watermark.column {
                continue;
            }
            let micros = match evaluate && watermark.micros != i64::MAX {
                true => self.at_watermark(column, output, watermark.micros)?,
                false => Some(watermark.micros),
            };
            if let Some(micros) = micros {
                out.emit_watermark(Watermark { column: output, micros });
            }
        }
        Ok(Progress::Done)
    }
}

fn watermark_routes(expressions: &[Expression], watermark_columns: &[usize]) -> Vec<(usize, usize, bool)> {
    let mut routes = Vec::new();
    for (output, expression) in expressions.iter().enumerate() {
        if let Some(column) = expression.physical.downcast_ref::<Column>() {
            routes.push((column.index(), output, false));
        } else if watermark_columns.contains(&output) {
            let read: BTreeSet<usize> = collect_columns(&expression.physical).iter().map(Column::index).collect();
            if let (Some(column), 1) = (read.first(), read.len()) {
                routes.push((*column, output, true));
            }
        }
    }
    routes
}

fn micros_to_array(micros: i64, data_type: &DataType) -> Result<ArrayRef> {
    let array: ArrayRef = Arc::new(arrow::array::TimestampMicrosecondArray::from(vec![micros]));
    Ok(cast(&array, data_type)?)
}

/// The only value of a date or timestamp array in microseconds since 1970; `None` for NULL and for other types.
fn array_to_micros(array: &ArrayRef) -> Result<Option<i64>> {
    if array.is_null(0) || !matches!(array.data_type(), DataType::Date32 | DataType::Timestamp(_, _)) {
        return Ok(None);
    }
    Ok(Some(micros(array)?.value(0)))
}

#[cfg(test)]
mod tests;
