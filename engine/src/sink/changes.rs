//! Deltas -> the batches a sink writes.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, UInt32Array},
    compute::take_record_batch,
    datatypes::SchemaRef,
};
use millpond_storage::{collection::Delta, signed_batch::SignedBatch};

use super::options::SinkChanges;
use crate::error::{EngineError, Result};

/// The batches of a delta: of an epoch, what disappears comes before what appears.
pub(super) fn batches(delta: &Delta, changes: SinkChanges, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
    let mut written = Vec::new();
    if changes == SinkChanges::Changelog {
        for batch in &delta.batches {
            written.extend(rows_with_sign(batch, false)?.map(|rows| with_op(&rows, "delete", delta, schema)).transpose()?);
        }
    }
    for batch in &delta.batches {
        let retracts = batch.signs.as_ref().is_some_and(|signs| signs.iter().any(|sign| *sign < 0));
        if retracts && changes == SinkChanges::AppendOnly {
            return Err(EngineError::Internal("the input of an append-only sink retracted a row".into()));
        }
        let Some(rows) = rows_with_sign(batch, true)? else { continue };
        written.push(if changes == SinkChanges::Changelog { with_op(&rows, "insert", delta, schema)? } else { rows });
    }
    Ok(written)
}

/// The rows that appear (or disappear), as often as their sign counts.
fn rows_with_sign(batch: &SignedBatch, appear: bool) -> Result<Option<RecordBatch>> {
    let Some(signs) = &batch.signs else {
        return Ok((appear && batch.batch.num_rows() > 0).then(|| batch.batch.clone()));
    };
    let mut rows: Vec<u32> = Vec::with_capacity(signs.len());
    for (row, sign) in signs.iter().enumerate() {
        if (*sign > 0) == appear {
            rows.extend(std::iter::repeat_n(row as u32, usize::from(sign.unsigned_abs())));
        }
    }
    if rows.is_empty() { Ok(None) } else { Ok(Some(take_record_batch(&batch.batch, &UInt32Array::from(rows))?)) }
}

fn with_op(rows: &RecordBatch, op: &str, delta: &Delta, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns.push(Arc::new(StringViewArray::from_iter_values(std::iter::repeat_n(op, rows.num_rows()))));
    columns.push(Arc::new(Int64Array::from_value(i64::try_from(delta.to.0).unwrap_or(i64::MAX), rows.num_rows())));
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
