//! Columns out of spans: one typed loop per column. A value that its type does not take refuses its whole row; the row gets a NULL here and is
//! left out by the caller.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanArray, BooleanBufferBuilder, FixedSizeBinaryBuilder, LargeStringBuilder,
        NullBufferBuilder, PrimitiveArray, StringViewArray, make_view,
    },
    buffer::{Buffer, NullBuffer, ScalarBuffer},
    compute::kernels::cast_utils::parse_interval_month_day_nano,
    datatypes::{
        DataType, Date32Type, Decimal128Type, Decimal256Type, DecimalType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
    },
};

use super::{
    block::{Span, TextBlock},
    cell_lists::{self, ListSyntax},
    jsonb, scalar,
    timestamp::{self, TimestampParser},
};
use crate::error::{EngineError, Result};

/// Characters of a refused value that its reason shows.
const SHOWN_CHARACTERS: usize = 100;

/// The values of one column.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a> {
    /// What spans refer to. All of it that spans cover is valid UTF-8.
    pub block: &'a TextBlock,
    /// Rows of `width` spans.
    pub spans: &'a [Span],
    /// Spans per row.
    pub width: usize,
    /// This column's place in a row.
    pub slot: usize,
}

impl<'a> Cells<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.spans.len() / self.width.max(1)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn spans(&self) -> impl Iterator<Item = Span> + 'a {
        self.spans.iter().skip(self.slot).step_by(self.width.max(1)).copied()
    }

    /// The bytes of each value, `None` for NULL.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + 'a {
        let (text, arena) = (self.block.text.as_slice(), self.block.arena.as_slice());
        self.spans().map(move |span| {
            let source = if span.in_arena() { arena } else { text };
            (!span.is_null()).then(|| &source[span.start() as usize..(span.start() + span.len()) as usize])
        })
    }
}

/// Rows that hold a value their column does not take, with the first reason.
#[derive(Debug, Default)]
pub struct Refused(BTreeMap<usize, String>);

impl Refused {
    /// Refuses `row`, unless it is refused already.
    pub fn add(&mut self, row: usize, reason: impl FnOnce() -> String) {
        self.0.entry(row).or_insert_with(reason);
    }

    /// Whether no row is refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rows and reasons, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().map(|(row, reason)| (*row, reason.as_str()))
    }

    /// Whether `row` is refused.
    pub fn contains(&self, row: usize) -> bool {
        self.0.contains_key(&row)
    }
}

/// Whether text can be decoded into a type.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => !matches!(item.data_type(), DataType::List(_)) && is_supported(item.data_type()),
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Utf8View
        | DataType::LargeUtf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Time64(TimeUnit::Microsecond)
        | DataType::Timestamp(TimeUnit::Microsecond, _)
        | DataType::Interval(IntervalUnit::MonthDayNano)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::FixedSizeBinary(16) => true,
        _ => false,
    }
}

/// Builds one column. Reasons go to `refused`.
pub fn build(data_type: &DataType, cells: Cells<'_>, lists: ListSyntax, refused: &mut Refused) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Int64 => Arc::new(primitive::<Int64Type>(cells, refused, scalar::parse_i64, |text| integer_reason("bigint", text))),
        DataType::Int32 => {
            let parse = |text: &[u8]| scalar::parse_i64(text)?.try_into().ok();
            Arc::new(primitive::<Int32Type>(cells, refused, parse, |text| integer_reason("integer", text)))
        }
        DataType::Int16 => {
            let parse = |text: &[u8]| scalar::parse_i64(text)?.try_into().ok();
            Arc::new(primitive::<Int16Type>(cells, refused, parse, |text| integer_reason("smallint", text)))
        }
        DataType::Float64 => Arc::new(primitive::<Float64Type>(cells, refused, scalar::parse_f64, |text| syntax("double precision", text))),
        DataType::Float32 => Arc::new(primitive::<Float32Type>(cells, refused, scalar::parse_f32, |text| syntax("real", text))),
        DataType::Boolean => Arc::new(booleans(cells, refused)),
        DataType::Utf8View => Arc::new(text_views(cells)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let (mut parser, zoned) = (TimestampParser::default(), zone.is_some());
            let parse = |text: &[u8]| parser.parse(text, zoned);
            let column = primitive::<TimestampMicrosecondType>(cells, refused, parse, |text| syntax(timestamp_name(zoned), text));
            Arc::new(column.with_timezone_opt(zone.clone()))
        }
        DataType::Date32 => Arc::new(primitive::<Date32Type>(cells, refused, timestamp::parse_date, |text| syntax("date", text))),
        DataType::Time64(TimeUnit::Microsecond) => {
            Arc::new(primitive::<Time64MicrosecondType>(cells, refused, timestamp::parse_time, |text| syntax("time", text)))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let parse = |text: &[u8]| parse_interval_month_day_nano(std::str::from_utf8(text).ok()?).ok();
            Arc::new(primitive::<IntervalMonthDayNanoType>(cells, refused, parse, |text| syntax("interval", text)))
        }
        DataType::Decimal128(precision, scale) => Arc::new(decimal::<Decimal128Type>(cells, refused, *precision, *scale)?),
        DataType::Decimal256(precision, scale) => Arc::new(decimal::<Decimal256Type>(cells, refused, *precision, *scale)?),
        DataType::LargeUtf8 => Arc::new(documents(cells, refused)),
        DataType::Binary => Arc::new(binaries(cells, refused)),
        DataType::FixedSizeBinary(16) => Arc::new(uuids(cells, refused)?),
        DataType::List(item) => cell_lists::build(item, cells, lists, refused)?,
        other => return Err(EngineError::user("0A000", format!("columns of type {other} cannot be read from text"))),
    })
}

/// Whether a value of the type can be refused once its text has been found.
pub fn can_refuse(data_type: &DataType) -> bool {
    *data_type != DataType::Utf8View
}

/// Refuses the rows whose values of one column cannot be read, without building the column.
pub fn check(data_type: &DataType, cells: Cells<'_>, lists: ListSyntax, refused: &mut Refused) -> Result<()> {
    match data_type {
        DataType::Int64 => {
            refuse(cells, refused, |text| digits(text, 18) || scalar::parse_i64(text).is_some(), |text| integer_reason("bigint", text));
        }
        DataType::Int32 => {
            let fits = |text: &[u8]| digits(text, 9) || scalar::parse_i64(text).is_some_and(|value| i32::try_from(value).is_ok());
            refuse(cells, refused, fits, |text| integer_reason("integer", text));
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let (mut parser, zoned) = (TimestampParser::default(), zone.is_some());
            refuse(cells, refused, |text| parser.parse(text, zoned).is_some(), |text| syntax(timestamp_name(zoned), text));
        }
        other if can_refuse(other) => {
            build(other, cells, lists, refused)?;
        }
        _ => {}
    }
    Ok(())
}

/// Whether a text is at least one and at most so many digits: as good as parsed, and found out faster.
fn digits(text: &[u8], most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.iter().all(u8::is_ascii_digit)
}

/// Refuses the rows whose value is not `valid`.
fn refuse(cells: Cells<'_>, refused: &mut Refused, mut valid: impl FnMut(&[u8]) -> bool, reason: impl Fn(&[u8]) -> String) {
    for (row, cell) in cells.iter().enumerate() {
        if let Some(text) = cell
            && !valid(text)
        {
            refused.add(row, || reason(text));
        }
    }
}

fn timestamp_name(zoned: bool) -> &'static str {
    if zoned { "timestamp with time zone" } else { "timestamp" }
}

/// "invalid input syntax for type x", as Postgres says it.
pub(crate) fn syntax(type_name: &str, text: &[u8]) -> String {
    format!("invalid input syntax for type {type_name}: \"{}\"", shown(text))
}

fn integer_reason(type_name: &str, text: &[u8]) -> String {
    if scalar::is_integer(text) {
        format!("value \"{}\" is out of range for type {type_name}", shown(text))
    } else {
        syntax(type_name, text)
    }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(SHOWN_CHARACTERS).collect()
}

fn primitive<T: ArrowPrimitiveType>(
    cells: Cells<'_>,
    refused: &mut Refused,
    mut parse: impl FnMut(&[u8]) -> Option<T::Native>,
    reason: impl Fn(&[u8]) -> String,
) -> PrimitiveArray<T> {
    let mut values = Vec::with_capacity(cells.len());
    let mut nulls = NullBufferBuilder::new(cells.len());
    for (row, cell) in cells.iter().enumerate() {
        let value = cell.and_then(|text| {
            let value = parse(text);
            if value.is_none() {
                refused.add(row, || reason(text));
            }
            value
        });
        nulls.append(value.is_some());
        values.push(value.unwrap_or_default());
    }
    PrimitiveArray::new(ScalarBuffer::from(values), nulls.finish())
}

fn decimal<T: DecimalType>(cells: Cells<'_>, refused: &mut Refused, precision: u8, scale: i8) -> Result<PrimitiveArray<T>> {
    let column = primitive::<T>(
        cells,
        refused,
        |text| scalar::parse_decimal::<T>(text, precision, scale),
        |text| match scalar::parse_f64(text) {
            Some(value) if value.is_finite() => "numeric field overflow".to_owned(),
            _ => syntax("numeric", text),
        },
    );
    Ok(column.with_precision_and_scale(precision, scale)?)
}

fn booleans(cells: Cells<'_>, refused: &mut Refused) -> BooleanArray {
    let mut values = BooleanBufferBuilder::new(cells.len());
    let mut nulls = NullBufferBuilder::new(cells.len());
    for (row, cell) in cells.iter().enumerate() {
        let value = cell.and_then(scalar::parse_bool);
        if let (None, Some(text)) = (value, cell) {
            refused.add(row, || syntax("boolean", text));
        }
        nulls.append(value.is_some());
        values.append(value.unwrap_or_default());
    }
    BooleanArray::new(values.finish(), nulls.finish())
}

/// Text columns share the block: a view of twelve bytes or less holds its value, a longer one refers to the block or the arena.
fn text_views(cells: Cells<'_>) -> StringViewArray {
    let mut views: Vec<u128> = Vec::with_capacity(cells.len());
    let mut nulls = NullBufferBuilder::new(cells.len());
    let mut refers = false;
    for (span, cell) in cells.spans().zip(cells.iter()) {
        nulls.append(cell.is_some());
        let text = cell.unwrap_or_default();
        refers |= text.len() > 12;
        views.push(make_view(text, u32::from(span.in_arena()), span.start()));
    }
    let buffers = if refers { vec![cells.block.text.clone(), cells.block.arena.clone()] } else { Vec::new() };
    view_array(ScalarBuffer::from(views), buffers, nulls.finish())
}

#[allow(unsafe_code)]
fn view_array(views: ScalarBuffer<u128>, buffers: Vec<Buffer>, nulls: Option<NullBuffer>) -> StringViewArray {
    debug_assert!(
        StringViewArray::try_new(views.clone(), buffers.clone(), nulls.clone()).is_ok(),
        "text was checked before it was scanned"
    );
    // SAFETY: every view was made from a slice of the buffer it names, so lengths, offsets and prefixes agree; the decoder has checked
    // that all rows of the block are UTF-8 and spans are cut at ASCII characters or come from the unescaper, which writes whole characters.
    // Checking each value once more costs a third of the time of reading a CSV file.
    unsafe { StringViewArray::new_unchecked(views, buffers, nulls) }
}

fn documents(cells: Cells<'_>, refused: &mut Refused) -> arrow::array::LargeStringArray {
    let mut column = LargeStringBuilder::with_capacity(cells.len(), cells.block.text.len());
    for (row, cell) in cells.iter().enumerate() {
        let document = cell.and_then(jsonb::normalize);
        if let (None, Some(text)) = (&document, cell) {
            refused.add(row, || syntax("json", text));
        }
        column.append_option(document);
    }
    column.finish()
}

fn binaries(cells: Cells<'_>, refused: &mut Refused) -> arrow::array::BinaryArray {
    let mut column = BinaryBuilder::with_capacity(cells.len(), 0);
    for (row, cell) in cells.iter().enumerate() {
        let bytes = cell.and_then(scalar::parse_bytea);
        if let (None, Some(text)) = (&bytes, cell) {
            refused.add(row, || syntax("bytea", text));
        }
        column.append_option(bytes);
    }
    column.finish()
}

fn uuids(cells: Cells<'_>, refused: &mut Refused) -> Result<arrow::array::FixedSizeBinaryArray> {
    let mut column = FixedSizeBinaryBuilder::with_capacity(cells.len(), 16);
    for (row, cell) in cells.iter().enumerate() {
        match (cell.and_then(scalar::parse_uuid), cell) {
            (Some(bytes), _) => column.append_value(bytes)?,
            (None, Some(text)) => {
                refused.add(row, || syntax("uuid", text));
                column.append_null();
            }
            (None, None) => column.append_null(),
        }
    }
    Ok(column.finish())
}
