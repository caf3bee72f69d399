//! The batch codec: a record batch column by column, for logs. Version 1. A batch of one row costs some tens of bytes, a large one little more
//! than its values; only the bytes that the rows show are written, whatever buffers the columns share with others.
//!
//! ```text
//! version (u8) | columns (u16) | rows (u32) | per column: name, type, nullable (u8), values
//! values: has NULLs (u8) | bitmap, if so (1 = present) | body
//! body:   numbers little-endian | booleans as bitmap | uuids | lengths (u32 each), then bytes | lengths (u32 each), then values of the elements
//! ```

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, FixedSizeBinaryArray, ListArray, NullArray, PrimitiveArray,
        RecordBatchOptions,
    },
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer},
    datatypes::{DataType, Field, Schema},
    record_batch::RecordBatch,
};

use super::{
    bytes::{ByteColumn, ByteColumnBuilder},
    cursor::{Cursor, write_bytes},
    data_type::{is_bytes, read_data_type, write_data_type},
    primitive::{FixedValue, PrimitiveVisitor, array, visit_primitive},
};
use crate::error::{Result, StorageError};

/// Version of the encoding, the first byte of every batch.
pub const BATCH_CODEC_VERSION: u8 = 1;

/// Appends a batch to `out`.
pub fn write_batch(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
    let rows = u32::try_from(batch.num_rows()).map_err(|_| StorageError::Internal("a batch has more than 2^32 rows".into()))?;
    out.push(BATCH_CODEC_VERSION);
    out.extend_from_slice(&(batch.num_columns() as u16).to_le_bytes());
    out.extend_from_slice(&rows.to_le_bytes());
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        write_bytes(out, field.name().as_bytes());
        write_data_type(field.data_type(), out)?;
        out.push(u8::from(field.is_nullable()));
        write_values(column.as_ref(), out)?;
    }
    Ok(())
}

fn write_values(array: &dyn Array, out: &mut Vec<u8>) -> Result<()> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    out.push(u8::from(nulls.is_some()));
    if let Some(nulls) = nulls {
        write_bits(nulls.inner(), out);
    }
    match array.data_type() {
        DataType::Null => {}
        DataType::Boolean => write_bits(array.as_boolean().values(), out),
        DataType::FixedSizeBinary(_) => {
            let values = array.as_fixed_size_binary();
            (0..values.len()).for_each(|row| out.extend_from_slice(values.value(row)));
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            offsets.windows(2).for_each(|ends| out.extend_from_slice(&(ends[1] - ends[0]).to_le_bytes()));
            let (first, last) = (offsets[0] as usize, offsets[list.len()] as usize);
            write_values(list.values().slice(first, last - first).as_ref(), out)?;
        }
        other => match ByteColumn::of(array) {
            Some(bytes) => write_byte_column(&bytes, array.len(), nulls, out),
            None => visit_primitive(other, WritePrimitive { array, out })
                .ok_or_else(|| StorageError::Internal(format!("values of type {other} cannot be stored")))?,
        },
    }
    Ok(())
}

fn write_bits(bits: &BooleanBuffer, out: &mut Vec<u8>) {
    let bytes = bits.len().div_ceil(8);
    let start = out.len();
    out.extend_from_slice(&bits.sliced().as_slice()[..bytes]);
    if !bits.len().is_multiple_of(8) {
        out[start + bytes - 1] &= (1 << (bits.len() % 8)) - 1;
    }
}

fn write_byte_column(bytes: &ByteColumn<'_>, rows: usize, nulls: Option<&NullBuffer>, out: &mut Vec<u8>) {
    let value = |row: usize| if nulls.is_none_or(|nulls| nulls.is_valid(row)) { bytes.value(row) } else { &[] };
    (0..rows).for_each(|row| out.extend_from_slice(&(value(row).len() as u32).to_le_bytes()));
    (0..rows).for_each(|row| out.extend_from_slice(value(row)));
}

struct WritePrimitive<'w> {
    array: &'w dyn Array,
    out: &'w mut Vec<u8>,
}

impl PrimitiveVisitor for WritePrimitive<'_> {
    type Output = ();
    fn visit<T: ArrowPrimitiveType>(self)
    where
        T::Native: FixedValue,
    {
        let values = self.array.as_primitive::<T>().values();
        let start = self.out.len();
        self.out.resize(start + values.len() * T::Native::WIDTH, 0);
        let places = self.out[start..].chunks_exact_mut(T::Native::WIDTH);
        places.zip(values.iter()).for_each(|(place, value)| value.write(place));
    }
}

/// Reads the batch that `bytes` are; `name` stands in errors.
pub fn read_only_batch(bytes: &[u8], name: &'static str) -> Result<RecordBatch> {
    let mut cursor = Cursor::new(bytes, name);
    let batch = read_batch(&mut cursor)?;
    if cursor.remaining() > 0 {
        return Err(cursor.corrupt(format!("{} bytes behind a batch", cursor.remaining())));
    }
    Ok(batch)
}

/// Reads a batch that [`write_batch`] wrote.
pub(crate) fn read_batch(from: &mut Cursor<'_>) -> Result<RecordBatch> {
    let version = from.u8()?;
    if version != BATCH_CODEC_VERSION {
        return Err(from.corrupt(format!("unknown version {version} of a batch")));
    }
    let columns = from.u16()?;
    let rows = from.u32()? as usize;
    let mut fields = Vec::with_capacity(usize::from(columns));
    let mut arrays = Vec::with_capacity(usize::from(columns));
    for _ in 0..columns {
        let name = from.sized_text()?;
        let data_type = read_data_type(from)?;
        let nullable = from.u8()? != 0;
        arrays.push(read_values(from, &data_type, rows)?);
        fields.push(Field::new(name, data_type, nullable));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

fn read_values(from: &mut Cursor<'_>, data_type: &DataType, rows: usize) -> Result<ArrayRef> {
    let nulls = match from.u8()? {
        0 => None,
        _ => Some(NullBuffer::new(read_bits(from, rows)?)),
    };
    Ok(match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => Arc::new(BooleanArray::new(read_bits(from, rows)?, nulls)),
        DataType::FixedSizeBinary(width) => {
            let bytes = from.bytes(rows.saturating_mul(*width as usize))?;
            Arc::new(FixedSizeBinaryArray::try_new(*width, Buffer::from(bytes), nulls)?)
        }
        DataType::List(field) => {
            let lengths = read_lengths(from, rows)?;
            let elements = read_values(from, field.data_type(), lengths.iter().sum())?;
            Arc::new(ListArray::try_new(field.clone(), OffsetBuffer::from_lengths(lengths), elements, nulls)?)
        }
        other if is_bytes(other) => {
            let lengths = read_lengths(from, rows)?;
            let mut builder = ByteColumnBuilder::with_capacity(rows);
            let mut rest = from.bytes(lengths.iter().sum())?;
            for length in lengths {
                let (value, after) = rest.split_at(length);
                builder.push(value);
                rest = after;
            }
            builder.finish(other, nulls)?
        }
        other => match visit_primitive(other, ReadPrimitive { from, data_type, rows, nulls }) {
            Some(array) => array?,
            None => return Err(StorageError::Internal(format!("values of type {other} cannot be read"))),
        },
    })
}

fn read_bits(from: &mut Cursor<'_>, rows: usize) -> Result<BooleanBuffer> {
    Ok(BooleanBuffer::new(Buffer::from(from.bytes(rows.div_ceil(8))?), 0, rows))
}

fn read_lengths(from: &mut Cursor<'_>, rows: usize) -> Result<Vec<usize>> {
    let bytes = from.bytes(rows.saturating_mul(4))?;
    Ok(bytes.chunks_exact(4).map(|length| u32::from_le_bytes(array(length)) as usize).collect())
}

struct ReadPrimitive<'r, 'b> {
    from: &'r mut Cursor<'b>,
    data_type: &'r DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
}

impl PrimitiveVisitor for ReadPrimitive<'_, '_> {
    type Output = Result<ArrayRef>;
    fn visit<T: ArrowPrimitiveType>(self) -> Result<ArrayRef>
    where
        T::Native: FixedValue,
    {
        let bytes = self.from.bytes(self.rows.saturating_mul(T::Native::WIDTH))?;
        let values: Vec<T::Native> = bytes.chunks_exact(T::Native::WIDTH).map(T::Native::read).collect();
        Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), self.nulls).with_data_type(self.data_type.clone())))
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::encoding::testing::{random_array, random_types};

    #[test]
    fn reading_gives_back_what_was_written() {
        for seed in 0..300 {
            let rng = &mut StdRng::seed_from_u64(seed);
            let types = random_types(rng, rng.clone().random_range(0..8));
            let rows = rng.random_range(0..50);
            let columns: Vec<_> = types.iter().map(|data_type| random_array(rng, data_type, rows)).collect();
            let fields: Vec<_> = types.iter().enumerate().map(|(at, kind)| Field::new(format!("c{at}"), kind.clone(), true)).collect();
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap();
            let mut bytes = Vec::new();
            write_batch(&batch, &mut bytes).unwrap();
            let mut cursor = Cursor::new(&bytes, "test");
            let read = read_batch(&mut cursor).unwrap();
            assert_eq!(cursor.remaining(), 0);
            assert_eq!(read.schema(), batch.schema());
            // Text form, since NaN is not equal to itself.
            assert_eq!(format!("{read:?}"), format!("{batch:?}"), "seed {seed}");
            let mut again = Vec::new();
            write_batch(&read, &mut again).unwrap();
            let cut = rng.random_range(0..bytes.len());
            read_batch(&mut Cursor::new(&bytes[..cut], "test")).unwrap_err();
        }
    }
}
