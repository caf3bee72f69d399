//! A block of text -> a record batch, through a scanner and the column builders.

use std::sync::Arc;

use arrow::{
    array::BooleanArray,
    buffer::Buffer,
    compute::filter_record_batch,
    datatypes::{DataType, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
};

use super::{
    block::{RowRange, RowScanner, ScannedRows, Span, TextBlock, invalid_text},
    cell_lists::ListSyntax,
    cells::{self, Cells, Refused},
};
use crate::{error::Result, source::BadRow};

/// Bytes of a bad row that are kept.
const BAD_ROW_BYTES: usize = 1024;

/// Rows decoded out of a block.
#[derive(Debug)]
pub struct DecodedRows {
    /// The rows that are well.
    pub batch: RecordBatch,
    /// Per row, the byte behind it, counted from the block's start.
    pub ends: Vec<u32>,
    /// The others, in order.
    pub bad: Vec<BadRow>,
    /// The byte behind the last row, good or bad.
    pub consumed: usize,
}

/// Decodes text of one format into one schema.
pub struct TextDecoder {
    scanner: Box<dyn RowScanner>,
    schema: SchemaRef,
    /// Types of columns that are read only to see whether they can be, behind those of the schema.
    checked: Vec<DataType>,
    lists: ListSyntax,
}

impl TextDecoder {
    /// A decoder whose scanner finds the columns of `schema`, in its order, and behind them columns of the types `checked`, which the batches do
    /// not have: a value there that its type does not take makes its row bad all the same.
    pub fn new(scanner: Box<dyn RowScanner>, schema: SchemaRef, checked: Vec<DataType>, lists: ListSyntax) -> Self {
        assert_eq!(scanner.width(), schema.fields().len() + checked.len(), "a scanner finds the columns that are decoded");
        Self { scanner, schema, checked, lists }
    }

    /// Decodes up to `max_rows` whole rows of `text` from byte `from` on. `base` is the split offset of the block's first byte.
    pub fn decode(&mut self, text: &Buffer, from: usize, at_end: bool, max_rows: usize, base: u64) -> Result<DecodedRows> {
        let mut scanned = ScannedRows::new(self.scanner.width());
        scanned.spans.reserve(max_rows * scanned.width);
        scanned.rows.reserve(max_rows);
        let consumed = self.scanner.scan(text, from, at_end, max_rows, &mut scanned);
        let mut refused = Refused::default();
        if invalid_text(&text[from..consumed]).is_some() {
            refuse_invalid_text(text, &mut scanned, &mut refused);
        }
        let block = TextBlock { text: text.clone(), arena: Buffer::from_vec(std::mem::take(&mut scanned.arena)) };
        let mut columns = Vec::with_capacity(scanned.width);
        let column = |slot| Cells { block: &block, spans: &scanned.spans, width: scanned.width, slot };
        for (slot, field) in self.schema.fields().iter().enumerate() {
            columns.push(cells::build(field.data_type(), column(slot), self.lists, &mut refused)?);
        }
        for (slot, data_type) in (columns.len()..).zip(&self.checked) {
            cells::check(data_type, column(slot), self.lists, &mut refused)?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(scanned.rows.len()));
        let mut batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let mut ends: Vec<u32> = scanned.rows.iter().map(|range| range.end).collect();
        let mut bad = Vec::new();
        if !refused.is_empty() || !scanned.broken.is_empty() {
            bad = bad_rows(text, &scanned, &refused, base);
        }
        if !refused.is_empty() {
            let keep: Vec<bool> = (0..ends.len()).map(|row| !refused.contains(row)).collect();
            let mut flags = keep.iter();
            ends.retain(|_| flags.next() == Some(&true));
            batch = filter_record_batch(&batch, &BooleanArray::from(keep))?;
        }
        Ok(DecodedRows { batch, ends, bad, consumed })
    }

    /// Columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Refuses the rows that are not UTF-8. Their values are blanked, so that what remains is valid text.
fn refuse_invalid_text(text: &[u8], scanned: &mut ScannedRows, refused: &mut Refused) {
    for (row, range) in scanned.rows.iter().enumerate() {
        if let Some(reason) = invalid_text(bytes_of(text, *range)) {
            refused.add(row, || reason);
            scanned.spans[row * scanned.width..(row + 1) * scanned.width].fill(Span::NULL);
        }
    }
}

fn bytes_of(text: &[u8], range: RowRange) -> &[u8] {
    &text[range.start as usize..range.end as usize]
}

/// Reports of broken and refused rows, in the order of the text.
fn bad_rows(text: &[u8], scanned: &ScannedRows, refused: &Refused, base: u64) -> Vec<BadRow> {
    let refused = refused.iter().map(|(row, reason)| (scanned.rows[row], reason));
    let broken = scanned.broken.iter().map(|(range, reason)| (*range, reason.as_str()));
    let mut bad: Vec<BadRow> =
        refused.chain(broken).map(|(range, reason)| bad_row(bytes_of(text, range), reason, base + u64::from(range.end))).collect();
    bad.sort_by_key(|row| row.offset);
    bad
}

/// A report of the row with these bytes, which ends at `offset`.
pub fn bad_row(bytes: &[u8], reason: impl Into<String>, offset: u64) -> BadRow {
    let shown = bytes.trim_ascii_end();
    let mut text = String::from_utf8_lossy(&shown[..shown.len().min(BAD_ROW_BYTES)]).into_owned();
    let mut length = text.len().min(BAD_ROW_BYTES);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    text.truncate(length);
    BadRow { text, reason: reason.into(), offset }
}
