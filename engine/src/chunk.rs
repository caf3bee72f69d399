//! A chunk: rows of an Arrow record batch with one change kind each. The unit that travels through a dataflow.

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray},
    datatypes::DataType,
    record_batch::RecordBatch,
};

mod text;

pub use text::row_text;
pub(crate) use text::value_text;

/// Rows a chunk is cut to when an operator has the choice. Small enough that a callback ends within about 20 ms,
/// large enough that the cost per chunk disappears.
pub const CHUNK_ROWS: usize = 4096;

/// The change that one row of a changelog stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Op {
    /// The row appears.
    Insert,
    /// The row disappears.
    Delete,
    /// The row disappears, and the next row of the changelog takes its place.
    UpdateBefore,
    /// The row takes the place of the row before it.
    UpdateAfter,
}

impl Op {
    /// +1 where the row appears, -1 where it disappears.
    pub fn sign(self) -> i8 {
        match self {
            Op::Insert | Op::UpdateAfter => 1,
            Op::Delete | Op::UpdateBefore => -1,
        }
    }

    /// The plain change (insert or delete) with this sign.
    pub fn from_sign(sign: i8) -> Self {
        if sign > 0 { Op::Insert } else { Op::Delete }
    }
}

/// Rows and their change kinds. Absent kinds mean that every row is an insert.
#[derive(Clone, Debug)]
pub struct Chunk {
    batch: RecordBatch,
    ops: Option<Arc<[Op]>>,
}

impl Chunk {
    /// A chunk of inserts.
    pub fn inserts(batch: RecordBatch) -> Self {
        Self { batch, ops: None }
    }

    /// A chunk with one change kind per row; kinds that are all `Insert` are dropped.
    pub fn new(batch: RecordBatch, ops: Vec<Op>) -> Self {
        assert_eq!(batch.num_rows(), ops.len(), "a chunk has one change kind per row");
        if ops.iter().all(|op| *op == Op::Insert) { Self::inserts(batch) } else { Self { batch, ops: Some(ops.into()) } }
    }

    /// The rows.
    pub fn batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// The change kinds, or `None` when all rows are inserts.
    pub fn ops(&self) -> Option<&[Op]> {
        self.ops.as_deref()
    }

    /// The change kind of row `row`.
    pub fn op(&self, row: usize) -> Op {
        self.ops.as_ref().map_or(Op::Insert, |ops| ops[row])
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// Bytes that the columns of its rows take, estimated; what a slice shares with others is not counted.
    pub fn bytes(&self) -> usize {
        self.batch.columns().iter().map(|column| column_bytes(column.as_ref())).sum()
    }

    /// The same changes over other columns. `batch` must have as many rows.
    pub fn with_batch(&self, batch: RecordBatch) -> Self {
        assert_eq!(batch.num_rows(), self.num_rows(), "a chunk keeps its number of rows");
        Self { batch, ops: self.ops.clone() }
    }

    /// Rows `offset..offset + length`.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        let ops = self.ops.as_ref().map(|ops| ops[offset..offset + length].into());
        Self { batch: self.batch.slice(offset, length), ops }
    }
}

fn column_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View => column.len() * 16 + column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.len() * 16 + column.as_binary_view().total_buffer_bytes_used(),
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}
