//! Aggregates over all values of a group in an order: `string_agg`, `array_agg`, `first_value`, `last_value`.
//!
//! The values are a multiset in a state table, under the key encoding of (order columns, argument columns), so that a scan gives them in order
//! and ties break by value. For `last_value` the whole order is turned round, so that one entry is enough for it as for `first_value`.
//! A result is computed from such a scan when it is needed; a slot holds one only while an epoch is open (the value last emitted) and while
//! results are emitted.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, StringBuilder, new_null_array},
    buffer::{NullBuffer, OffsetBuffer},
    compute::{cast, interleave, take},
    datatypes::{DataType, UInt32Type},
};
use millpond_storage::encoding::{
    EncodedRows,
    key::{KeyCodec, SortColumn},
    row::RowCodec,
};

use super::{
    Accumulator, Rows,
    bytes::{get_array, get_bytes, put_bytes},
    resize_states,
};
use crate::{
    error::{EngineError, Result},
    graph::{AggregateCall, AggregateFunction, OrderColumn},
};

/// Which aggregate it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Strings,
    Array,
    /// The first entry of the scan; `last_value` scans the other way round.
    First,
}

/// The scanned values of some groups, one group after the other.
#[derive(Default)]
pub(crate) struct Entries {
    /// Encoded order and argument columns.
    pub(crate) values: EncodedRows,
    /// How often each value occurs, above zero.
    pub(crate) counts: Vec<usize>,
    /// How many entries each group has.
    pub(crate) lengths: Vec<usize>,
}

/// See the module.
pub(crate) struct OrderedValues {
    kind: Kind,
    distinct: bool,
    codec: KeyCodec,
    /// Order columns, then argument columns, of the input.
    columns: Vec<usize>,
    /// Place of the argument among `columns`.
    argument: usize,
    output: DataType,
    output_codec: RowCodec,
    results: Vec<Option<(ArrayRef, u32)>>,
}

impl OrderedValues {
    /// For one call over input columns of these types.
    pub(crate) fn new(call: &AggregateCall, types: &[DataType]) -> Result<Self> {
        let kind = match call.function {
            AggregateFunction::StringAgg => Kind::Strings,
            AggregateFunction::ArrayAgg => Kind::Array,
            AggregateFunction::FirstValue | AggregateFunction::LastValue => Kind::First,
            other => return Err(EngineError::Internal(format!("{other:?} has no order"))),
        };
        let reverse = call.function == AggregateFunction::LastValue;
        let arguments = call.arguments.iter().map(|column| OrderColumn { column: *column, descending: false, nulls_first: false });
        let columns: Vec<OrderColumn> = call.order_by.iter().copied().chain(arguments).collect();
        let sort = |column: &OrderColumn| SortColumn {
            data_type: types[column.column].clone(),
            descending: column.descending != reverse,
            nulls_first: column.nulls_first != reverse,
        };
        Ok(Self {
            kind,
            distinct: call.distinct,
            codec: KeyCodec::new(columns.iter().map(sort).collect())?,
            argument: call.order_by.len(),
            columns: columns.iter().map(|column| column.column).collect(),
            output: call.output.clone(),
            output_codec: RowCodec::new(std::slice::from_ref(&call.output))?,
            results: Vec::new(),
        })
    }

    /// The codec of the multiset's values.
    pub(crate) fn codec(&self) -> &KeyCodec {
        &self.codec
    }

    /// The input columns that the codec encodes.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Whether rows with a NULL argument do not count; its place is the input column.
    pub(crate) fn skips_null_of(&self) -> Option<usize> {
        (self.kind == Kind::Strings).then(|| self.columns[self.argument])
    }

    /// How many entries of a group a result needs at most.
    pub(crate) fn entries_needed(&self) -> usize {
        if self.kind == Kind::First { 1 } else { usize::MAX }
    }

    /// Computes the results of slots from their entries, in the same order.
    pub(crate) fn compute(&mut self, slots: &[u32], entries: &Entries) -> Result<()> {
        let decoded = self.codec.decode(entries.values.iter())?;
        let results = match self.kind {
            Kind::Strings => self.strings(&decoded, entries)?,
            Kind::Array => self.arrays(&decoded[self.argument], entries)?,
            Kind::First => self.firsts(&decoded[self.argument], entries)?,
        };
        for (row, slot) in slots.iter().enumerate() {
            self.results[*slot as usize] = Some((Arc::clone(&results), row as u32));
        }
        Ok(())
    }

    /// Forgets the results of slots.
    pub(crate) fn forget(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| self.results[*slot as usize] = None);
    }

    fn repeats(&self, count: usize) -> usize {
        if self.distinct { 1 } else { count }
    }

    /// `array_agg` of no rows is NULL, and so is `string_agg`.
    fn strings(&self, decoded: &[ArrayRef], entries: &Entries) -> Result<ArrayRef> {
        let text = |place: usize| decoded.get(place).map(|array| cast(array, &DataType::Utf8)).transpose();
        let (values, separators) = (text(self.argument)?, text(self.argument + 1)?);
        let values = values.ok_or_else(|| EngineError::Internal("string_agg has an argument".into()))?;
        let values = values.as_string::<i32>();
        let separators = separators.as_ref().map(|array| array.as_string::<i32>());
        let mut builder = StringBuilder::new();
        let mut text = String::new();
        let mut entry = 0;
        for length in &entries.lengths {
            text.clear();
            let first = entry;
            while entry < first + length {
                for repeat in 0..self.repeats(entries.counts[entry]) {
                    if entry > first || repeat > 0 {
                        let separator = separators.filter(|separators| separators.is_valid(entry));
                        text.push_str(separator.map_or("", |separators| separators.value(entry)));
                    }
                    text.push_str(values.value(entry));
                }
                entry += 1;
            }
            builder.append_option((*length > 0).then_some(&text));
        }
        Ok(cast(&builder.finish(), &self.output)?)
    }

    fn arrays(&self, values: &ArrayRef, entries: &Entries) -> Result<ArrayRef> {
        let DataType::List(item) = &self.output else {
            return Err(EngineError::Internal(format!("array_agg cannot give {}", self.output)));
        };
        let mut indices = Vec::new();
        let mut lengths = Vec::with_capacity(entries.lengths.len());
        let mut entry = 0;
        for length in &entries.lengths {
            let before = indices.len();
            for index in entry..entry + length {
                indices.extend(std::iter::repeat_n(index as u32, self.repeats(entries.counts[index])));
            }
            lengths.push(indices.len() - before);
            entry += length;
        }
        let items = take(values, &arrow::array::PrimitiveArray::<UInt32Type>::from(indices), None)?;
        let items = cast(&items, item.data_type())?;
        let nulls = NullBuffer::from_iter(lengths.iter().map(|length| *length > 0));
        Ok(Arc::new(ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, Some(nulls))?))
    }

    fn firsts(&self, values: &ArrayRef, entries: &Entries) -> Result<ArrayRef> {
        let mut entry = 0;
        let indices = entries.lengths.iter().map(|length| {
            let first = (*length > 0).then_some(entry as u32);
            entry += length;
            first
        });
        let indices: arrow::array::PrimitiveArray<UInt32Type> = indices.collect();
        Ok(cast(&take(values, &indices, None)?, &self.output)?)
    }
}

impl Accumulator for OrderedValues {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.results, slots, None);
    }

    fn clear(&mut self, slot: u32) {
        self.results[slot as usize] = None;
    }

    fn copy(&mut self, from: u32, to: u32) {
        self.results[to as usize] = self.results[from as usize].clone();
    }

    fn update(&mut self, _rows: &Rows<'_>, _arguments: &[ArrayRef]) -> Result<()> {
        Err(EngineError::Internal("ordered values are kept in a state table".into()))
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let nothing = new_null_array(&self.output, 1);
        let mut arrays: Vec<&dyn Array> = vec![&nothing];
        let mut places = Vec::with_capacity(slots.len());
        for slot in slots {
            places.push(match &self.results[*slot as usize] {
                None => (0, 0),
                Some((array, row)) => {
                    if arrays.last().is_none_or(|last| !std::ptr::addr_eq(*last, Arc::as_ptr(array))) {
                        arrays.push(array.as_ref());
                    }
                    (arrays.len() - 1, *row as usize)
                }
            });
        }
        Ok(interleave(&arrays, &places)?)
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        let encoded =
            self.results[slot as usize].as_ref().and_then(|(array, row)| self.output_codec.encode(&[array.slice(*row as usize, 1)]).ok());
        out.push(u8::from(encoded.is_some()));
        if let Some(encoded) = encoded {
            put_bytes(out, encoded.row(0));
        }
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        self.results[slot as usize] = match get_array(input, 1)?[0] {
            0 => None,
            _ => {
                let row = get_bytes(input)?;
                let mut columns = self.output_codec.decode(std::iter::once(row), &[0])?;
                Some((columns.swap_remove(0), 0))
            }
        };
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.results.capacity() * size_of::<Option<(ArrayRef, u32)>>()
    }
}
