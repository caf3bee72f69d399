//! How rows of a collection become keys and values.
//!
//! | key | bytes of the key | value in the base |
//! |---|---|---|
//! | `Columns` | key codec over the key columns | row codec over all other columns, and key columns that the key codec does not keep exactly |
//! | `WholeRow` | key codec over all columns, then row codec over those that it does not keep exactly | how often the row is there (i64) |
//! | `AppendOnly` | ordinal of the row (u64 big-endian) | - (segments) |

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatchOptions},
    compute::cast,
    datatypes::{DataType, SchemaRef},
    record_batch::RecordBatch,
};

use super::CollectionKey;
use crate::{
    encoding::{
        EncodedRows,
        key::{KeyCodec, is_lossy},
        row::RowCodec,
    },
    error::{Result, StorageError},
};

/// The codecs of a collection.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) schema: SchemaRef,
    pub(super) key: CollectionKey,
    /// Columns that the key codec encodes, in key order.
    key_columns: Vec<usize>,
    pub(super) key_codec: KeyCodec,
    /// Columns kept beside the key: in the value (`Columns`) or behind the key (`WholeRow`).
    exact_columns: Vec<usize>,
    exact_codec: RowCodec,
}

impl Layout {
    pub(super) fn new(schema: SchemaRef, key: CollectionKey) -> Result<Self> {
        let data_type = |column: usize| schema.field(column).data_type().clone();
        let columns = schema.fields().len();
        if let CollectionKey::Columns(key) = &key
            && (key.is_empty() || key.iter().any(|column| *column >= columns))
        {
            return Err(StorageError::Internal(format!("columns {key:?} cannot be the key of {columns} columns")));
        }
        let key_columns = match &key {
            CollectionKey::Columns(key) => key.clone(),
            CollectionKey::WholeRow => (0..columns).collect(),
            CollectionKey::AppendOnly => Vec::new(),
        };
        let kept_by_key = |column: &usize| key_columns.contains(column) && !is_lossy(&data_type(*column));
        let exact_columns: Vec<usize> = match &key {
            CollectionKey::AppendOnly => Vec::new(),
            _ => (0..columns).filter(|column| !kept_by_key(column)).collect(),
        };
        let types = |columns: &[usize]| columns.iter().map(|column| data_type(*column)).collect::<Vec<_>>();
        Ok(Self {
            key_codec: KeyCodec::ascending(&types(&key_columns))?,
            exact_codec: RowCodec::new(&types(&exact_columns))?,
            schema: schema.clone(),
            key,
            key_columns,
            exact_columns,
        })
    }

    /// Whether a key stands for one row (as opposed to equal rows and their number).
    pub(super) fn is_unique(&self) -> bool {
        matches!(self.key, CollectionKey::Columns(_))
    }

    /// The batch with this collection's schema: strings in its layout, its field names.
    pub(super) fn normalise(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if batch.schema_ref() == &self.schema {
            return Ok(batch.clone());
        }
        if batch.num_columns() != self.schema.fields().len() {
            let (given, declared) = (batch.num_columns(), self.schema.fields().len());
            return Err(StorageError::Internal(format!("rows of {given} columns were given to a collection of {declared}")));
        }
        let columns = batch.columns().iter().zip(self.schema.fields()).map(|(column, field)| {
            if column.data_type() == field.data_type() { Ok(column.clone()) } else { cast(column, field.data_type()) }
        });
        self.batch(columns.collect::<Result<_, _>>()?, batch.num_rows())
    }

    /// A batch of all columns.
    pub(super) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &row_count(rows))?)
    }

    /// The keys of all rows.
    pub(super) fn encode_keys(&self, batch: &RecordBatch) -> Result<EncodedRows> {
        if self.key_columns.is_empty() {
            return Ok((0..batch.num_rows()).map(|_| []).collect());
        }
        let keys = self.key_codec.encode(&columns_of(batch, &self.key_columns))?;
        if self.is_unique() || self.exact_columns.is_empty() {
            return Ok(keys);
        }
        let exact = self.encode_exact(batch)?;
        let mut whole = EncodedRows::with_capacity(keys.len(), keys.total_bytes() + exact.total_bytes());
        keys.iter().zip(exact.iter()).for_each(|(key, exact)| whole.push_pair(key, exact));
        Ok(whole)
    }

    /// The columns kept beside the key, of all rows. With `Columns` this is the value in the base.
    pub(super) fn encode_exact(&self, batch: &RecordBatch) -> Result<EncodedRows> {
        if self.exact_columns.is_empty() {
            return Ok((0..batch.num_rows()).map(|_| []).collect());
        }
        self.exact_codec.encode(&columns_of(batch, &self.exact_columns))
    }

    /// The columns `projection` of rows in the base. `values` are ignored for `WholeRow`, where all is in the key.
    pub(super) fn decode(&self, keys: &EncodedRows, values: &EncodedRows, projection: &[usize]) -> Result<Vec<ArrayRef>> {
        let mut decoded: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        let exact_places = self.places(&self.exact_columns, projection);
        if !exact_places.is_empty() {
            let columns = if self.is_unique() {
                self.exact_codec.decode(values.iter(), &exact_places)?
            } else {
                let starts = keys.iter().map(|key| self.key_codec.key_length(key)).collect::<Result<Vec<_>>>()?;
                let rows = keys.iter().zip(&starts).map(|(key, start)| &key[*start..]);
                self.exact_codec.decode(rows, &exact_places)?
            };
            exact_places.iter().zip(columns).for_each(|(place, column)| decoded[self.exact_columns[*place]] = Some(column));
        }
        let mut key_places = self.places(&self.key_columns, projection);
        key_places.retain(|place| decoded[self.key_columns[*place]].is_none());
        if !key_places.is_empty() {
            let columns = self.key_codec.decode_wanted(keys.iter(), &key_places)?;
            key_places.iter().zip(columns).for_each(|(place, column)| decoded[self.key_columns[*place]] = Some(column));
        }
        let column = |column: &usize| decoded[*column].clone().expect("every column is in the key or beside it");
        Ok(projection.iter().map(column).collect())
    }

    /// Where, ascending, those of `columns` are that the projection wants.
    fn places(&self, columns: &[usize], projection: &[usize]) -> Vec<usize> {
        (0..columns.len()).filter(|place| projection.contains(&columns[*place])).collect()
    }

    /// The schema of some columns.
    pub(super) fn projected_schema(&self, projection: &[usize]) -> Result<SchemaRef> {
        Ok(std::sync::Arc::new(self.schema.project(projection)?))
    }
}

/// Options of a batch that may have no columns.
pub(super) fn row_count(rows: usize) -> RecordBatchOptions {
    RecordBatchOptions::new().with_row_count(Some(rows))
}

fn columns_of(batch: &RecordBatch, columns: &[usize]) -> Vec<ArrayRef> {
    columns.iter().map(|column| batch.column(*column).clone()).collect()
}

/// A batch is compacted when it keeps more than this many times the bytes that it shows.
const WASTE_FACTOR: usize = 2;

/// The same rows without the buffers of rows that are gone: what is kept must not keep alive the chunks that it came from.
pub(super) fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(compact_column).collect();
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &row_count(batch.num_rows()))?)
}

fn compact_column(column: &ArrayRef) -> ArrayRef {
    let wasteful = |buffers: &[arrow::buffer::Buffer], used: usize| {
        buffers.iter().map(|buffer| buffer.len()).sum::<usize>() > WASTE_FACTOR * used + 1024
    };
    match column.data_type() {
        DataType::Utf8View => {
            let views = column.as_string_view();
            let waste = wasteful(views.data_buffers(), views.total_buffer_bytes_used());
            if waste { std::sync::Arc::new(views.gc()) } else { column.clone() }
        }
        DataType::BinaryView => {
            let views = column.as_binary_view();
            let waste = wasteful(views.data_buffers(), views.total_buffer_bytes_used());
            if waste { std::sync::Arc::new(views.gc()) } else { column.clone() }
        }
        _ => column.clone(),
    }
}

/// Bytes that the rows of a batch take.
pub(super) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column_bytes(column.as_ref())).sum()
}

fn column_bytes(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View => column.len() * 16 + column.as_string_view().data_buffers().iter().map(|buffer| buffer.len()).sum::<usize>(),
        DataType::BinaryView => column.len() * 16 + column.as_binary_view().data_buffers().iter().map(|buffer| buffer.len()).sum::<usize>(),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let offsets = list.value_offsets();
            let elements = list.values().slice(offsets[0] as usize, (offsets[list.len()] - offsets[0]) as usize);
            column.len() * 4 + column_bytes(elements.as_ref())
        }
        _ => column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()),
    }
}
