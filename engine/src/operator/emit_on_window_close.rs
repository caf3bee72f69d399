//! Withholds rows until the watermark passes the value of one column (a window's end): then they are final.
//!
//! Any changelog in; the output is append-only: the rows of a window as of the epoch in which the watermark passed it. A row with a NULL there is in no
//! window, and is dropped.
//!
//! State (the prefix is the key encoding of the column):
//! - table 0: (column, all columns) -> multiplicity and the row. A row dies when it is emitted.
//! - table 1: timers: the values of the column in table 0.
//!
//! The watermark on the column is forwarded at the barrier, after the rows it made final; no other is. A change to a row that is final already is
//! late: it goes to the side output.
//!
//! A change costs the same however large its window is; a window is emitted in steps.

use std::{ops::ControlFlow, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, UInt32Array},
    compute::take_record_batch,
    datatypes::{DataType, SchemaRef},
    record_batch::RecordBatch,
};
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec, row::RowCodec},
    state_table::{RangeTable, StateTable},
};

use super::{closing_time::ClosingTime, event_time::micros, multiplicity, state::TableIds, timers::Timers};
use crate::{
    chunk::{CHUNK_ROWS, Chunk},
    error::Result,
    message::{Barrier, Watermark},
    operator::{Operator, OperatorContext, Output, Progress},
};

/// See the module.
pub(crate) struct EmitOnWindowClose {
    column: usize,
    schema: SchemaRef,
    window: KeyCodec,
    /// All columns.
    key: KeyCodec,
    row: RowCodec,
    table: RangeTable,
    timers: Timers,
    event_time: ClosingTime,
    /// A window that is being emitted.
    emitting: Option<Place>,
    /// Windows that the watermark has passed and that are still to be emitted.
    due: Vec<Vec<u8>>,
    closing: bool,
}

/// A place in a window.
struct Place {
    window: Vec<u8>,
    /// The key of the last row emitted.
    after: Option<Vec<u8>>,
}

impl EmitOnWindowClose {
    /// An operator over rows of `input` columns. `name` names it in the side output.
    pub(crate) fn new(name: String, column: usize, input: &SchemaRef, ids: TableIds, context: &mut OperatorContext) -> Result<Self> {
        let types: Vec<DataType> = input.fields().iter().map(|field| field.data_type().clone()).collect();
        Ok(Self {
            column,
            schema: Arc::clone(input),
            window: KeyCodec::ascending(std::slice::from_ref(&types[column]))?,
            key: KeyCodec::ascending(&types)?,
            row: RowCodec::new(&types)?,
            table: context.state.range_table(ids.table(0))?,
            timers: Timers::new(context.state.range_table(ids.table(1))?, context.state.key_groups()),
            event_time: ClosingTime::new(name, &[column], Some(0), context),
            emitting: None,
            due: Vec::new(),
            closing: false,
        })
    }

    fn close(&mut self, out: &mut Output) -> Result<Progress> {
        while self.closing {
            if out.is_full() {
                return Ok(Progress::More);
            }
            if let Some(place) = self.emitting.take() {
                self.emitting = self.emit(place, out)?;
            } else if let Some(window) = self.due.pop() {
                self.emitting = Some(Place { window, after: None });
            } else if !self.find_due()? {
                self.closing = false;
                for (column, micros) in self.event_time.close() {
                    out.emit_watermark(Watermark { column, micros });
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Looks for windows that the watermark has passed; `false` if there are no more.
    fn find_due(&mut self) -> Result<bool> {
        let Some(below) = self.event_time.closing() else { return Ok(false) };
        let due = &mut self.due;
        self.timers.take_due(below, CHUNK_ROWS, |window, _| due.push(window.to_vec()))?;
        // The earliest is taken first.
        due.reverse();
        Ok(!due.is_empty())
    }

    /// Emits some rows of a window. Gives the place to go on from; at the end of the window its state dies.
    fn emit(&mut self, place: Place, out: &mut Output) -> Result<Option<Place>> {
        let Place { window, after } = place;
        let mut rows = EncodedRows::new();
        let mut copies: Vec<u32> = Vec::new();
        let mut last = None;
        self.table.scan(&window, after.as_deref(), CHUNK_ROWS, &mut |key, value| {
            let (count, row) = multiplicity::read(value);
            copies.extend((0..count.max(0)).map(|_| rows.len() as u32));
            rows.push(row);
            last = Some(key.to_vec());
            if copies.len() >= CHUNK_ROWS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let Some(last) = last else {
            self.table.delete_prefix(&window)?;
            return Ok(None);
        };
        let wanted: Vec<usize> = (0..self.schema.fields().len()).collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), self.row.decode(rows.iter(), &wanted)?)?;
        let mut taken = 0;
        while taken < copies.len() {
            let end = copies.len().min(taken + CHUNK_ROWS);
            out.emit(Chunk::inserts(take_record_batch(&batch, &UInt32Array::from(copies[taken..end].to_vec()))?));
            taken = end;
        }
        Ok(Some(Place { window, after: Some(last) }))
    }

    fn apply(&mut self, chunk: &Chunk) -> Result<()> {
        let columns: &[ArrayRef] = chunk.batch().columns();
        let times = micros(&columns[self.column])?;
        let windows = self.window.encode(std::slice::from_ref(&columns[self.column]))?;
        let keys = self.key.encode(columns)?;
        let rows = self.row.encode(columns)?;
        self.table.load(&windows)?;
        let mut value = Vec::new();
        for row in (0..chunk.num_rows()).filter(|row| times.is_valid(*row)) {
            let (window, key) = (windows.row(row), keys.row(row));
            let before = self.table.get(window, key)?.map(|value| multiplicity::read(&value).0);
            let after = before.unwrap_or(0) + i64::from(chunk.op(row).sign());
            if after == 0 {
                self.table.delete(window, key);
                continue;
            }
            if before.is_none() {
                self.timers.set(times.value(row), window, window, &[]);
            }
            multiplicity::write(after, rows.row(row), &mut value);
            self.table.put(window, key, &value);
        }
        Ok(())
    }
}

impl Operator for EmitOnWindowClose {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        let chunk = self.event_time.divert_late(chunk)?;
        self.apply(&chunk)?;
        Ok(Progress::Done)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress> {
        self.close(out)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, _out: &mut Output) -> Result<Progress> {
        self.event_time.receive(watermark);
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress> {
        self.closing = true;
        self.close(out)
    }

    fn applied_watermark(&self) -> Option<i64> {
        Some(self.event_time.applied())
    }

    fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        vec![&mut self.table, self.timers.table()]
    }
}

#[cfg(test)]
mod tests;
