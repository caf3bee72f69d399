//! Parquet files: their columns in the types the engine works with, and batches of rows from any row on. Only the wanted columns are
//! decoded; row groups before the start are not read.
//!
//! Types without a counterpart are read as the nearest that holds all their values: `int8` as smallint, unsigned integers one size larger,
//! any timestamp in microseconds, dictionaries as their values. A column declared with another type than the file has is cast; a value
//! that does not fit refuses its row.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BooleanArray},
    compute::{CastOptions, can_cast_types, cast_with_options, filter_record_batch},
    datatypes::{DataType, Field, FieldRef, IntervalUnit, Schema, SchemaRef, TimeUnit},
    record_batch::{RecordBatch, RecordBatchOptions},
    util::display::FormatOptions,
};
use datafusion::parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    errors::ParquetError,
    file::reader::ChunkReader,
};

use super::cells::Refused;
use crate::{
    chunk::CHUNK_ROWS,
    error::{EngineError, Result},
};

/// An error of a Parquet file, with the file's name.
pub fn parquet_error(file: &str, error: &ParquetError) -> EngineError {
    EngineError::user("XX001", format!("could not read file \"{file}\": {error}"))
}

/// The columns of a file, in the engine's types.
pub fn file_schema<R: ChunkReader>(file: &str, reader: &R) -> Result<SchemaRef> {
    let metadata = ArrowReaderMetadata::load(reader, ArrowReaderOptions::new()).map_err(|error| parquet_error(file, &error))?;
    let fields: Result<Vec<Field>> = metadata
        .schema()
        .fields()
        .iter()
        .map(|field| {
            let data_type = engine_type(field.data_type()).ok_or_else(|| EngineError::User {
                sqlstate: "0A000",
                message: format!("column \"{}\" of file \"{file}\" has type {}, which is not supported", field.name(), field.data_type()),
                hint: Some("Declare the columns to read without it.".into()),
            })?;
            Ok(Field::new(field.name(), data_type, true))
        })
        .collect();
    Ok(Arc::new(Schema::new(fields?)))
}

/// The type a file's type is read as.
fn engine_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal256(..)
        | DataType::FixedSizeBinary(16)
        | DataType::Date32 => data_type.clone(),
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) | DataType::Decimal128(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date64 => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.as_ref().map(|_| "UTC".into())),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, value) => engine_type(value)?,
        DataType::List(item) | DataType::LargeList(item) if !item.data_type().is_nested() => {
            DataType::List(Arc::new(Field::new("item", engine_type(item.data_type())?, true)))
        }
        _ => return None,
    })
}

/// Reads batches of one file.
pub struct ParquetBatches {
    file: String,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    /// Per output column, its place among the decoded ones.
    places: Vec<usize>,
    /// Columns that are decoded only to see whether their values fit, with their places.
    checked: Vec<(FieldRef, usize)>,
}

/// Rows of one batch, the refused ones with their number in it.
#[derive(Debug)]
pub struct ParquetRows {
    /// Rows whose values all fit.
    pub batch: RecordBatch,
    /// Per row of `batch`, its number among the rows read.
    pub numbers: Vec<u32>,
    /// The others: number and reason.
    pub refused: Vec<(u32, String)>,
    /// Rows read.
    pub read: usize,
}

impl ParquetBatches {
    /// Reads the columns `wanted` of those of `declared` (by name) from row `from` on. Names are compared exactly, else without regard to case.
    pub fn open<R: ChunkReader + 'static>(file: &str, reader: R, declared: &SchemaRef, wanted: &[usize], from: u64) -> Result<Self> {
        let failed = |error: ParquetError| parquet_error(file, &error);
        let found = ArrowReaderMetadata::load(&reader, ArrowReaderOptions::new()).map_err(failed)?;
        let schema = Arc::new(declared.project(wanted)?);
        let mut columns = schema.fields().iter().map(|field| column_of(file, found.schema(), field.name())).collect::<Result<Vec<_>>>()?;
        // Text is decoded as views, which share the pages they come from.
        let hints: Vec<Field> = found.schema().fields().iter().map(|field| with_views(field)).collect();
        let hints = Arc::new(Schema::new_with_metadata(hints, found.schema().metadata().clone()));
        let options = ArrowReaderOptions::new().with_schema(hints);
        let metadata = ArrowReaderMetadata::try_new(found.metadata().clone(), options).map_err(failed)?;
        let mut checked = Vec::new();
        for field in (0..declared.fields().len()).filter(|column| !wanted.contains(column)).map(|column| &declared.fields()[column]) {
            // What nobody reads need not be there.
            let Ok(column) = column_of(file, found.schema(), field.name()) else { continue };
            let (has, declared) = (metadata.schema().field(column).data_type(), field.data_type());
            if !always_fits(has, declared) && can_cast_types(has, declared) {
                columns.push(column);
                checked.push(Arc::clone(field));
            }
        }
        let mut kept: Vec<usize> = columns.clone();
        kept.sort_unstable();
        kept.dedup();
        let places = columns.iter().map(|column| kept.iter().position(|other| other == column)).collect::<Option<Vec<_>>>();
        let mut places = places.ok_or_else(|| EngineError::Internal("a column of a Parquet file was lost".into()))?;
        let checked = checked.into_iter().zip(places.split_off(wanted.len())).collect();
        let mask = ProjectionMask::roots(metadata.parquet_schema(), kept);
        let (groups, skipped) = groups_from(&metadata, from);
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(reader, metadata)
            .with_projection(mask)
            .with_row_groups(groups)
            .with_offset(skipped)
            .with_batch_size(CHUNK_ROWS)
            .build()
            .map_err(failed)?;
        Ok(Self { file: file.to_owned(), reader, schema, places, checked })
    }

    /// The next rows; `None` at the end.
    pub fn read(&mut self) -> Result<Option<ParquetRows>> {
        let Some(batch) = self.reader.next() else { return Ok(None) };
        let batch = batch.map_err(|error| EngineError::user("XX001", format!("could not read file \"{}\": {error}", self.file)))?;
        let mut refused = Refused::default();
        let columns = self
            .places
            .iter()
            .zip(self.schema.fields())
            .map(|(place, field)| convert(batch.column(*place), field, &mut refused))
            .collect::<Result<Vec<_>>>()?;
        for (field, place) in &self.checked {
            convert(batch.column(*place), field, &mut refused)?;
        }
        let read = batch.num_rows();
        let options = RecordBatchOptions::new().with_row_count(Some(read));
        let mut batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mut numbers: Vec<u32> = (0..read as u32).collect();
        if !refused.is_empty() {
            let keep: Vec<bool> = (0..read).map(|row| !refused.contains(row)).collect();
            numbers.retain(|row| keep[*row as usize]);
            batch = filter_record_batch(&batch, &BooleanArray::from(keep))?;
        }
        let refused = refused.iter().map(|(row, reason)| (row as u32, reason.to_owned())).collect();
        Ok(Some(ParquetRows { batch, numbers, refused, read }))
    }
}

fn column_of(file: &str, schema: &Schema, name: &str) -> Result<usize> {
    let exact = schema.fields().iter().position(|field| field.name() == name);
    exact
        .or_else(|| schema.fields().iter().position(|field| field.name().eq_ignore_ascii_case(name)))
        .ok_or_else(|| EngineError::user("42703", format!("column \"{name}\" does not exist in file \"{file}\"")))
}

fn with_views(field: &Field) -> Field {
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => field.clone().with_data_type(DataType::Utf8View),
        _ => field.clone(),
    }
}

/// The row groups that hold row `from` and those after it, and the rows of the first of them before it.
fn groups_from(metadata: &ArrowReaderMetadata, from: u64) -> (Vec<usize>, usize) {
    let groups = metadata.metadata().row_groups();
    let mut before = 0;
    for (number, group) in groups.iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        if before + rows > from {
            return ((number..groups.len()).collect(), usize::try_from(from - before).unwrap_or(usize::MAX));
        }
        before += rows;
    }
    (Vec::new(), 0)
}

/// Whether every value of a type of the file is one of the declared type.
fn always_fits(found: &DataType, declared: &DataType) -> bool {
    let is_integer = |data_type: &DataType| matches!(data_type, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64);
    found == declared
        || is_integer(found) && is_integer(declared) && found.primitive_width() <= declared.primitive_width()
        || matches!(
            (found, declared),
            (DataType::UInt8, DataType::Int16) | (DataType::UInt16, DataType::Int32) | (DataType::UInt32, DataType::Int64)
        )
}

/// A decoded column in the type it was declared with.
fn convert(column: &ArrayRef, field: &Field, refused: &mut Refused) -> Result<ArrayRef> {
    if column.data_type() == field.data_type() {
        return Ok(column.clone());
    }
    let options = CastOptions { safe: true, format_options: FormatOptions::default() };
    let cast = cast_with_options(column, field.data_type(), &options)
        .map_err(|error| EngineError::user("42804", format!("column \"{}\" is of type {}: {error}", field.name(), column.data_type())))?;
    if cast.null_count() > column.logical_null_count() {
        for row in (0..cast.len()).filter(|row| cast.is_null(*row) && !column.is_null(*row)) {
            refused.add(row, || format!("value of column \"{}\" is out of range for type {}", field.name(), field.data_type()));
        }
    }
    Ok(cast)
}
