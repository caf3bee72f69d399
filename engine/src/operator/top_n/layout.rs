//! Rows as keys and back: which columns stand where in the sort key, and which of them need an exact form beside it.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, Int64Array, make_comparator},
    compute::{SortOptions, interleave},
    datatypes::{DataType, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};
use millpond_storage::encoding::{
    EncodedRows,
    key::{KeyCodec, SortColumn, is_lossy},
    row::RowCodec,
};

use crate::{
    error::Result,
    graph::{OrderColumn, TopNSpec},
};

/// How rows are cut into partition key, sort key and exact form.
pub(super) struct Layout {
    partition_by: Vec<usize>,
    /// Columns of the sort key: order columns, then the rest.
    sorted: Vec<usize>,
    partition: KeyCodec,
    sort: KeyCodec,
    /// Input columns that keys do not keep exactly, and their codecs.
    lossy: Vec<(usize, KeyCodec)>,
    exact: RowCodec,
    types: Vec<DataType>,
    schema: SchemaRef,
    emit_rank: bool,
}

/// A chunk's rows in encoded form.
#[derive(Default)]
pub(super) struct EncodedChunk {
    /// Partition keys.
    pub partitions: EncodedRows,
    /// Sort keys.
    pub keys: EncodedRows,
    /// Exact forms, and whether a row needs its.
    exact: Option<(EncodedRows, Vec<bool>)>,
}

impl EncodedChunk {
    /// The exact form of a row; empty if its keys are exact.
    pub(super) fn exact(&self, row: usize) -> &[u8] {
        match &self.exact {
            Some((rows, needed)) if needed[row] => rows.row(row),
            _ => &[],
        }
    }
}

impl Layout {
    /// The layout of input rows with the columns of `input`; output rows have those of `schema`.
    pub(super) fn new(spec: &TopNSpec, input: &SchemaRef, schema: SchemaRef) -> Result<Self> {
        let types: Vec<DataType> = input.fields().iter().map(|field| field.data_type().clone()).collect();
        let order = order_columns(spec);
        let mut sorted: Vec<usize> = order.iter().map(|order| order.column).collect();
        let mut sort: Vec<SortColumn> = order.iter().map(|order| sort_column(&types, order)).collect();
        for (column, data_type) in types.iter().enumerate() {
            if !sorted.contains(&column) && !spec.partition_by.contains(&column) {
                sorted.push(column);
                sort.push(SortColumn::ascending(data_type.clone()));
            }
        }
        let partition: Vec<DataType> = spec.partition_by.iter().map(|column| types[*column].clone()).collect();
        let lossy: Vec<usize> = (0..types.len()).filter(|column| is_lossy(&types[*column])).collect();
        let exact_types: Vec<DataType> = lossy.iter().map(|column| types[*column].clone()).collect();
        let with_codec = |column: usize| Ok((column, KeyCodec::ascending(&[types[column].clone()])?));
        Ok(Self {
            partition_by: spec.partition_by.clone(),
            sorted,
            partition: KeyCodec::ascending(&partition)?,
            sort: KeyCodec::new(sort)?,
            lossy: lossy.into_iter().map(with_codec).collect::<Result<_>>()?,
            exact: RowCodec::new(&exact_types)?,
            types,
            schema,
            emit_rank: spec.emit_rank,
        })
    }

    /// Encodes the rows of a batch into `out`, replacing what is there.
    pub(super) fn encode(&self, columns: &[ArrayRef], rows: usize, out: &mut EncodedChunk) -> Result<()> {
        let pick = |wanted: &[usize]| wanted.iter().map(|column| Arc::clone(&columns[*column])).collect::<Vec<_>>();
        encode_into(&self.partition, &pick(&self.partition_by), rows, &mut out.partitions)?;
        encode_into(&self.sort, &pick(&self.sorted), rows, &mut out.keys)?;
        out.exact = None;
        let mut needed = vec![false; rows];
        for (column, codec) in &self.lossy {
            let original = &columns[*column];
            let keys = codec.encode(std::slice::from_ref(original))?;
            let decoded = codec.decode(keys.iter())?;
            let same = make_comparator(original, &decoded[0], SortOptions::default())?;
            for (row, needed) in needed.iter_mut().enumerate() {
                *needed |= original.is_valid(row) && same(row, row).is_ne();
            }
        }
        if needed.contains(&true) {
            let lossy: Vec<ArrayRef> = self.lossy.iter().map(|(column, _)| Arc::clone(&columns[*column])).collect();
            out.exact = Some((self.exact.encode(&lossy)?, needed));
        }
        Ok(())
    }

    /// Rows out of their partition keys, sort keys, exact forms and ranks.
    pub(super) fn decode(&self, rows: &[OutputRow<'_>]) -> Result<RecordBatch> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.types.len()];
        if !self.partition_by.is_empty() {
            let decoded = self.partition.decode(rows.iter().map(|row| row.partition))?;
            self.partition_by.iter().zip(decoded).for_each(|(column, values)| columns[*column] = Some(values));
        }
        if !self.sorted.is_empty() {
            let decoded = self.sort.decode(rows.iter().map(|row| row.key))?;
            self.sorted.iter().zip(decoded).for_each(|(column, values)| columns[*column] = Some(values));
        }
        self.put_exact(rows, &mut columns)?;
        let mut columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
        if self.emit_rank {
            columns.push(Arc::new(rows.iter().map(|row| Some(row.rank as i64)).collect::<Int64Array>()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }

    /// Replaces values that the keys do not keep exactly.
    fn put_exact(&self, rows: &[OutputRow<'_>], columns: &mut [Option<ArrayRef>]) -> Result<()> {
        let with_exact: Vec<usize> = (0..rows.len()).filter(|row| !rows[*row].exact.is_empty()).collect();
        if with_exact.is_empty() {
            return Ok(());
        }
        let wanted: Vec<usize> = (0..self.lossy.len()).collect();
        let exact = self.exact.decode(with_exact.iter().map(|row| rows[*row].exact), &wanted)?;
        let mut places: Vec<(usize, usize)> = (0..rows.len()).map(|row| (0, row)).collect();
        with_exact.iter().enumerate().for_each(|(place, row)| places[*row] = (1, place));
        for ((column, _), values) in self.lossy.iter().zip(exact) {
            if let Some(normal) = columns[*column].take() {
                columns[*column] = Some(interleave(&[normal.as_ref(), values.as_ref()], &places)?);
            }
        }
        Ok(())
    }
}

/// One row to be put out.
#[derive(Clone, Copy)]
pub(super) struct OutputRow<'a> {
    /// Partition key.
    pub partition: &'a [u8],
    /// Sort key.
    pub key: &'a [u8],
    /// Exact form, if the keys are not.
    pub exact: &'a [u8],
    /// Rank, if that is output.
    pub rank: u64,
}

/// The codec of the order columns, which begin each sort key.
pub(super) fn order_codec(spec: &TopNSpec, input: &SchemaRef) -> Result<KeyCodec> {
    let types: Vec<DataType> = input.fields().iter().map(|field| field.data_type().clone()).collect();
    Ok(KeyCodec::new(order_columns(spec).iter().map(|order| sort_column(&types, order)).collect())?)
}

/// The order columns, without repetitions and those that are the same in a whole partition.
fn order_columns(spec: &TopNSpec) -> Vec<OrderColumn> {
    let mut columns: Vec<OrderColumn> = Vec::new();
    for order in &spec.order_by {
        if !spec.partition_by.contains(&order.column) && columns.iter().all(|other| other.column != order.column) {
            columns.push(*order);
        }
    }
    columns
}

fn sort_column(types: &[DataType], order: &OrderColumn) -> SortColumn {
    SortColumn { data_type: types[order.column].clone(), descending: order.descending, nulls_first: order.nulls_first }
}

/// Encodes rows, also those of no columns.
fn encode_into(codec: &KeyCodec, columns: &[ArrayRef], rows: usize, out: &mut EncodedRows) -> Result<()> {
    out.clear();
    if columns.is_empty() {
        (0..rows).for_each(|_| out.push(&[]));
        return Ok(());
    }
    Ok(codec.encode_into(columns, out)?)
}
