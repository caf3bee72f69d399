//! One side of a join: its keys, its stored rows and their counts.

use std::ops::ControlFlow;

use arrow::{
    array::{Array, ArrayRef},
    buffer::NullBuffer,
    record_batch::RecordBatch,
};
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec, row::RowCodec},
    state_table::{PointTable, RangeTable, StateTable},
};

use super::{
    Kept,
    expiry::{Due, Expiry},
};
use crate::{
    accumulator::bytes::{get_bytes, get_i64, put_integer},
    error::Result,
    graph::TimeBound,
    message::Watermark,
    operator::key_groups::GroupKeys,
};

/// A stored row as a scan of its key gives it.
pub(super) struct StoredRow<'a> {
    pub(super) row: &'a [u8],
    /// Inserts minus deletes; may be below zero while an epoch is open.
    pub(super) weight: i64,
    /// Matching rows of the other side, where they are counted with the row.
    pub(super) matches: i64,
}

/// How the rows of a side are found again under their key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// By their number: the side never retracts.
    Numbered,
    /// By themselves, with a weight.
    Weighted,
}

/// Numbers that are never given twice, also after a restart: the next one is kept per key group.
pub(super) struct Numbers {
    next: u64,
    table: PointTable,
    groups: GroupKeys,
}

impl Numbers {
    /// Goes on behind every number given out in these key groups before.
    pub(super) fn new(mut table: PointTable, groups: GroupKeys) -> Result<Self> {
        let mut next = 0;
        table.scan_all(&mut |_, value| {
            next = next.max(value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self { next, table, groups })
    }

    pub(super) fn take(&mut self) -> [u8; 8] {
        self.next += 1;
        (self.next - 1).to_be_bytes()
    }

    fn write(&mut self) {
        let Self { next, table, groups } = self;
        groups.keys().iter().for_each(|key| table.put(key, &next.to_be_bytes()));
    }
}

/// See the module.
pub(super) struct Side {
    /// Join columns.
    pub(super) keys: Vec<usize>,
    pub(super) null_equal: Vec<bool>,
    pub(super) key_codec: KeyCodec,
    /// Input columns that are stored.
    pub(super) stored: Vec<usize>,
    pub(super) row_codec: RowCodec,
    pub(super) kept: Kept,
    /// Whether matches are counted with each row.
    pub(super) counts_matches: bool,
    pub(super) layout: Layout,
    pub(super) numbers: Option<Numbers>,
    /// The rows; `None` where nobody asks for them.
    pub(super) rows: Option<RangeTable>,
    /// Weight of all rows per key, where the other side asks for it.
    pub(super) weights: Option<PointTable>,
    /// What is known of its time columns.
    pub(super) bounds: Box<[TimeBound]>,
    pub(super) expiry: Option<Expiry>,
    /// Watermark per input column.
    pub(super) watermarks: Vec<Option<i64>>,
}

impl Side {
    pub(super) fn watermark_of(&self, column: usize) -> Option<i64> {
        self.watermarks[column]
    }

    pub(super) fn advance_watermark(&mut self, watermark: Watermark) {
        let reached = &mut self.watermarks[watermark.column];
        *reached = (*reached).max(Some(watermark.micros));
    }

    /// The encoded keys of all rows.
    pub(super) fn encode_keys(&self, batch: &RecordBatch, out: &mut EncodedRows) -> Result<()> {
        out.clear();
        if self.keys.is_empty() {
            (0..batch.num_rows()).for_each(|_| out.push(&[]));
            return Ok(());
        }
        let columns: Vec<ArrayRef> = self.keys.iter().map(|column| batch.column(*column).clone()).collect();
        Ok(self.key_codec.encode_into(&columns, out)?)
    }

    /// Whether a row can match at all: it has no NULL in a key column where NULLs are not equal.
    pub(super) fn matchable(&self, batch: &RecordBatch) -> Option<NullBuffer> {
        let columns = self.keys.iter().zip(&self.null_equal).filter(|(_, null_equal)| !**null_equal);
        columns.fold(None, |nulls, (column, _)| NullBuffer::union(nulls.as_ref(), batch.column(*column).logical_nulls().as_ref()))
    }

    /// Reads an entry of the rows' table.
    pub(super) fn read<'a>(&self, suffix: &'a [u8], mut value: &'a [u8]) -> Result<StoredRow<'a>> {
        let numbered = matches!(self.layout, Layout::Numbered);
        let weight = if numbered { 1 } else { get_i64(&mut value)? };
        let matches = if self.counts_matches { get_i64(&mut value)? } else { 0 };
        Ok(StoredRow { row: if numbered { value } else { suffix }, weight, matches })
    }

    /// Changes the number of matches of a stored row.
    pub(super) fn write_matches(&mut self, key: &[u8], suffix: &[u8], stored: &StoredRow<'_>, buffer: &mut Vec<u8>) {
        let Some(table) = &mut self.rows else { return };
        buffer.clear();
        let numbered = matches!(self.layout, Layout::Numbered);
        if !numbered {
            put_integer(buffer, stored.weight.into());
        }
        put_integer(buffer, stored.matches.into());
        if numbered {
            buffer.extend_from_slice(stored.row);
        }
        table.put(key, suffix, buffer);
    }

    /// Stores the rows of a chunk. `keys` gives the key of a row, or `None` where it cannot match; `matches` counts per row.
    pub(super) fn store<'k>(
        &mut self,
        batch: &RecordBatch,
        key_of: impl Fn(usize) -> Option<&'k [u8]>,
        sign_of: impl Fn(usize) -> i64,
        matches: &[i64],
    ) -> Result<()> {
        let Some(table) = &mut self.rows else { return Ok(()) };
        let columns: Vec<ArrayRef> = self.stored.iter().map(|column| batch.column(*column).clone()).collect();
        let rows = self.row_codec.encode(&columns)?;
        let times = self.expiry.as_ref().map(|expiry| expiry.times(batch)).transpose()?;
        let mut value = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            let Some(key) = key_of(number) else { continue };
            value.clear();
            let matches = self.counts_matches.then(|| matches[number]);
            let is_new = match self.layout {
                Layout::Numbered => {
                    let numbers = self.numbers.as_mut().expect("a side that numbers its rows has numbers");
                    let suffix = numbers.take();
                    put_numbered(table, key, &suffix, row, matches, &mut value);
                    if let (Some(expiry), Some(times)) = (&mut self.expiry, &times) {
                        expiry.note(times, number, key, &suffix);
                    }
                    false
                }
                Layout::Weighted => put_weighted(table, key, row, sign_of(number), matches, &mut value)?,
            };
            if let (true, Some(expiry), Some(times)) = (is_new, &mut self.expiry, &times) {
                expiry.note(times, number, key, row);
            }
        }
        self.write_expiry();
        Ok(())
    }

    /// Writes the expiry notes of a chunk.
    pub(super) fn write_expiry(&mut self) {
        if let (Some(expiry), Some(numbers)) = (&mut self.expiry, &mut self.numbers) {
            expiry.write(|| numbers.take());
        }
    }

    /// Removes some of the rows whose time has come.
    pub(super) fn expire_some(&mut self, reached: i64) -> Result<Due> {
        let Some(expiry) = &mut self.expiry else { return Ok(Due::Done) };
        let mut dead = Vec::new();
        let due = expiry.take_due(reached, |entries| dead.extend_from_slice(entries))?;
        let entries = &mut dead.as_slice();
        while !entries.is_empty() {
            let (key, suffix) = (get_bytes(entries)?, get_bytes(entries)?);
            if let Some(rows) = &mut self.rows {
                rows.delete(key, suffix);
            }
            if let Some(weights) = &mut self.weights {
                weights.delete(key);
            }
        }
        Ok(due)
    }

    /// Writes the next number for every key group.
    pub(super) fn write_numbers(&mut self) {
        if let Some(numbers) = &mut self.numbers {
            numbers.write();
        }
    }

    pub(super) fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        let mut tables: Vec<&mut dyn StateTable> = Vec::new();
        tables.extend(self.rows.as_mut().map(|table| table as &mut dyn StateTable));
        tables.extend(self.weights.as_mut().map(|table| table as &mut dyn StateTable));
        tables.extend(self.expiry.as_mut().map(Expiry::table));
        tables.extend(self.numbers.as_mut().map(|numbers| &mut numbers.table as &mut dyn StateTable));
        tables
    }
}

fn put_numbered(table: &mut RangeTable, key: &[u8], suffix: &[u8], row: &[u8], matches: Option<i64>, value: &mut Vec<u8>) {
    let Some(matches) = matches else {
        table.put(key, suffix, row);
        return;
    };
    put_integer(value, matches.into());
    value.extend_from_slice(row);
    table.put(key, suffix, value);
}

/// Changes the weight of a row. Returns whether it was not there before and is now.
fn put_weighted(table: &mut RangeTable, key: &[u8], row: &[u8], sign: i64, matches: Option<i64>, value: &mut Vec<u8>) -> Result<bool> {
    let before = table.get(key, row)?.map_or(Ok(0), |value| get_i64(&mut &*value))?;
    let after = before + sign;
    if after == 0 {
        table.delete(key, row);
        return Ok(false);
    }
    put_integer(value, after.into());
    if let Some(matches) = matches {
        put_integer(value, matches.into());
    }
    table.put(key, row, value);
    Ok(before == 0)
}
