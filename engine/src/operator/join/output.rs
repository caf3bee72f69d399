//! Output columns of a join, and output rows with weights that may have to wait for room.

use std::{collections::VecDeque, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, UInt32Array, new_null_array},
    compute::take_record_batch,
    datatypes::SchemaRef,
    record_batch::{RecordBatch, RecordBatchOptions},
};

use crate::{
    chunk::{CHUNK_ROWS, Chunk, Op},
    error::{EngineError, Result},
    operator::Output,
};

/// Where an output column comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// An input column of a side.
    Side(usize, usize),
    /// The boolean of a mark join.
    Mark,
}

/// The output columns.
pub(super) struct OutputPlan {
    schema: SchemaRef,
    sources: Vec<Source>,
}

impl OutputPlan {
    pub(super) fn new(schema: SchemaRef, sources: Vec<Source>) -> Self {
        Self { schema, sources }
    }

    /// Side and input column of an output column.
    pub(super) fn side_column(&self, column: usize) -> Option<(usize, usize)> {
        match self.sources[column] {
            Source::Side(side, input) => Some((side, input)),
            Source::Mark => None,
        }
    }

    /// Input columns of a side that are in the output, without repetition.
    pub(super) fn columns_of(&self, side: usize) -> Vec<usize> {
        let mut columns = Vec::new();
        for source in &self.sources {
            match source {
                Source::Side(from, column) if *from == side && !columns.contains(column) => columns.push(*column),
                Source::Side(..) | Source::Mark => {}
            }
        }
        columns
    }

    /// Output rows: `column(side, input)` gives a side's column or `None` where it is all NULL; `marks` is the mark column.
    pub(super) fn batch(
        &self,
        rows: usize,
        mut column: impl FnMut(usize, usize) -> Result<Option<ArrayRef>>,
        marks: Option<&[bool]>,
    ) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            columns.push(match source {
                Source::Side(side, input) => column(*side, *input)?.unwrap_or_else(|| new_null_array(field.data_type(), rows)),
                Source::Mark => {
                    let marks = marks.ok_or_else(|| EngineError::Internal("a mark column needs marks".into()))?;
                    Arc::new(BooleanArray::from(marks.to_vec()))
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Rows that stand for several equal ones, waiting for room.
#[derive(Default)]
pub(super) struct Weighted {
    parts: VecDeque<Part>,
}

struct Part {
    batch: RecordBatch,
    weights: Vec<i64>,
    /// The next row, and how many of its copies were emitted.
    row: usize,
    copies: u64,
}

impl Weighted {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Emits rows, each as often as its weight says; a negative weight deletes. What needs room it has to wait for is kept.
    pub(super) fn emit(&mut self, batch: RecordBatch, weights: Vec<i64>, out: &mut Output) -> Result<()> {
        if weights.iter().all(|weight| *weight == 1) {
            out.emit(Chunk::inserts(batch));
            return Ok(());
        }
        if weights.iter().all(|weight| weight.abs() == 1) {
            let ops = weights.iter().map(|weight| Op::from_sign(*weight as i8)).collect();
            out.emit(Chunk::new(batch, ops));
            return Ok(());
        }
        self.parts.push_back(Part { batch, weights, row: 0, copies: 0 });
        self.drain(out)
    }

    /// Emits what waits as long as there is room.
    pub(super) fn drain(&mut self, out: &mut Output) -> Result<()> {
        while let Some(part) = self.parts.front_mut() {
            if out.is_full() {
                return Ok(());
            }
            match part.next_chunk()? {
                Some(chunk) => out.emit(chunk),
                None => drop(self.parts.pop_front()),
            }
        }
        Ok(())
    }
}

impl Part {
    fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let (mut rows, mut ops) = (Vec::new(), Vec::new());
        while self.row < self.weights.len() && rows.len() < CHUNK_ROWS {
            let weight = self.weights[self.row];
            let copies = (weight.unsigned_abs() - self.copies).min((CHUNK_ROWS - rows.len()) as u64);
            rows.extend(std::iter::repeat_n(self.row as u32, copies as usize));
            ops.extend(std::iter::repeat_n(Op::from_sign(weight.signum() as i8), copies as usize));
            self.copies += copies;
            if self.copies == weight.unsigned_abs() {
                self.row += 1;
                self.copies = 0;
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(Chunk::new(take_record_batch(&self.batch, &UInt32Array::from(rows))?, ops)))
    }
}
