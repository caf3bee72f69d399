//! The first rows of each partition: `ROW_NUMBER() OVER (PARTITION BY .. ORDER BY ..) <= n`, `RANK`, `DENSE_RANK`, `DISTINCT ON`, and
//! `ORDER BY .. LIMIT` in a view.
//!
//! Any changelog in. Out: per epoch and changed partition what differs between its first rows before and after, as deletes and inserts. Ties
//! are broken by the remaining columns in column order, so the result is a function of the contents.
//!
//! State (keys are the key encoding of the partition columns):
//! - table 0, `row_number` of an append-only input up to 64 rows: partition -> its first rows, packed;
//!   otherwise: (partition, sort key) -> multiplicity. The sort key holds all columns but the partition's, so the row is in it; values that it
//!   keeps only in a normal form (floats, intervals) stand in the value. For an append-only input rows behind the window are dropped at
//!   the barrier. A partition dies when it is empty, or when the watermark passes its `expiry` column.
//! - table 1: partition -> the last epoch closed, and its first rows when the open epoch began, for partitions it has changed. Written by a
//!   snapshot within an epoch only; an entry dies when the epoch closes.
//! - table 2: timers: event time of the partitions. Only with `expiry`.
//!
//! Watermarks on partition columns are forwarded at the barrier, after the rows of the epoch. A row of a partition that the watermark had passed
//! at the last barrier is late: it goes to the side output.
//!
//! A change costs the same however large its partition is; a changed partition costs, once per epoch, as much as its window has rows.
//! Without a limit (`rank` alone is asked for) that is the whole partition.

mod emit;
mod layout;
mod packed;
mod rank;
mod rows;
mod touched;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ops::ControlFlow};

use arrow::{
    array::{Array, Int64Array},
    datatypes::SchemaRef,
};
use millpond_storage::{
    epoch::Epoch,
    memory::MemoryHandle,
    state_table::{PointTable, StateTable},
};

use self::{
    emit::{Pending, Stage},
    layout::{EncodedChunk, Layout},
    rank::Window,
    rows::{MAX_PACKED_ROWS, Partitions, change},
    touched::{Bound, Touched},
};
use super::{closing_time::ClosingTime, event_time::micros, state::TableIds, timers::Timers};
use crate::{
    chunk::Chunk,
    error::Result,
    graph::{RankKind, TopNSpec},
    message::{Barrier, Watermark},
    operator::{Operator, OperatorContext, Output, Progress},
};

/// See the module.
pub(crate) struct TopN {
    layout: Layout,
    window: Window,
    append_only: bool,
    partitions: Partitions,
    /// Table 1.
    open: PointTable,
    open_written: bool,
    /// The epoch that is being closed, or was last.
    closed: Epoch,
    /// Entries of table 1 that a subtask had written which had closed later epochs: they count when this one has.
    waiting: BTreeMap<Epoch, Vec<OpenPartition>>,
    timers: Option<Timers>,
    event_time: ClosingTime,
    touched: Touched,
    pending: Pending,
    stage: Stage,
    memory: MemoryHandle,
    scratch: Scratch,
}

/// A partition, and its first rows when the epoch began.
type OpenPartition = (Vec<u8>, Vec<u8>);

/// Bytes of an epoch in front of an entry of table 1.
const EPOCH_BYTES: usize = 8;

/// Buffers of one chunk, kept for the next.
#[derive(Default)]
struct Scratch {
    chunk: EncodedChunk,
    value: Vec<u8>,
}

impl TopN {
    /// An operator over an input of `input` columns with an output of `schema`. `name` names it in the side output.
    pub(crate) fn new(
        name: String,
        spec: &TopNSpec,
        input: &SchemaRef,
        schema: SchemaRef,
        ids: TableIds,
        context: &mut OperatorContext,
    ) -> Result<Self> {
        let window = Window::new(spec.rank, spec.offset, spec.limit, spec.emit_rank, layout::order_codec(spec, input)?);
        let packed = spec.append_only_input && spec.rank == RankKind::RowNumber && window.last() <= MAX_PACKED_ROWS;
        let partitions = if packed {
            Partitions::Packed(Box::new(context.state.point_table(ids.table(0))?))
        } else {
            Partitions::Ordered(Box::new(context.state.range_table(ids.table(0))?))
        };
        let timers = match spec.expiry {
            Some(_) => Some(Timers::new(context.state.range_table(ids.table(2))?, context.state.key_groups())),
            None => None,
        };
        let mut operator = Self {
            layout: Layout::new(spec, input, schema)?,
            window,
            append_only: spec.append_only_input,
            partitions,
            open: context.state.point_table(ids.table(1))?,
            open_written: false,
            closed: context.closed,
            waiting: BTreeMap::new(),
            timers,
            event_time: ClosingTime::new(name, &spec.partition_by, spec.expiry, context),
            touched: Touched::default(),
            pending: Pending::default(),
            stage: Stage::Idle,
            memory: context.budget.handle("top-n"),
            scratch: Scratch::default(),
        };
        operator.find_open()?;
        Ok(operator)
    }

    /// Partitions that an epoch had changed in which a snapshot was taken.
    fn find_open(&mut self) -> Result<()> {
        let waiting = &mut self.waiting;
        self.open.scan_all(&mut |partition, value| {
            let (epoch, head) = value.split_at_checked(EPOCH_BYTES).unwrap_or_default();
            let epoch = Epoch(epoch.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
            waiting.entry(epoch).or_default().push((partition.to_vec(), head.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        self.adopt_open();
        Ok(())
    }

    /// Takes over what was open behind epochs that this subtask has closed now.
    pub(super) fn adopt_open(&mut self) {
        let later = self.waiting.split_off(&self.closed.next());
        for (partition, head) in std::mem::replace(&mut self.waiting, later).into_values().flatten() {
            self.touched.add(&partition, &head, Bound::None);
            self.open_written = true;
        }
    }

    /// Applies the encoded rows of a chunk.
    fn apply(&mut self, chunk: &Chunk, encoded: &EncodedChunk, times: Option<&Int64Array>) -> Result<()> {
        self.partitions.load(&encoded.partitions)?;
        for row in 0..chunk.num_rows() {
            let (partition, key) = (encoded.partitions.row(row), encoded.keys.row(row));
            let time = times.filter(|times| times.is_valid(row)).map(|times| times.value(row));
            match &mut self.partitions {
                Partitions::Packed(_) => self.insert_packed(partition, key, encoded.exact(row), time),
                Partitions::Ordered(_) => self.change_ordered(partition, key, encoded.exact(row), i64::from(chunk.op(row).sign()), time)?,
            }
        }
        Ok(())
    }

    fn insert_packed(&mut self, partition: &[u8], key: &[u8], exact: &[u8], time: Option<i64>) {
        let Partitions::Packed(table) = &mut self.partitions else { return };
        let list = table.get(partition).unwrap_or_default();
        if !packed::insert(list, key, exact, self.window.last(), &mut self.scratch.value) {
            return;
        }
        if let (true, Some(timers), Some(time)) = (list.is_empty(), &mut self.timers, time) {
            timers.set(time, partition, partition, &[]);
        }
        if self.touched.find(partition).is_none() {
            self.touched.add(partition, list, Bound::None);
        }
        table.put(partition, &self.scratch.value);
    }

    fn change_ordered(&mut self, partition: &[u8], key: &[u8], exact: &[u8], sign: i64, time: Option<i64>) -> Result<()> {
        let number = match self.touched.find(partition) {
            Some(number) => number,
            None => self.touch_ordered(partition, time)?,
        };
        if let (true, Bound::After(last)) = (self.append_only, self.touched.bound(number))
            && self.window.is_beyond(key, last)?
        {
            return Ok(());
        }
        let Partitions::Ordered(table) = &mut self.partitions else { return Ok(()) };
        change(table, partition, key, exact, sign, &mut self.scratch.value)
    }

    /// Notes the first rows of a partition before its first change in the epoch.
    fn touch_ordered(&mut self, partition: &[u8], time: Option<i64>) -> Result<usize> {
        let mut list = Vec::new();
        let bound = self.partitions.head(partition, &self.window, &mut list)?;
        if let (true, Some(timers), Some(time)) = (list.is_empty(), &mut self.timers, time) {
            timers.set(time, partition, partition, &[]);
        }
        Ok(self.touched.add(partition, &list, bound))
    }
}

impl Operator for TopN {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        if self.window.last() == 0 {
            return Ok(Progress::Done);
        }
        let chunk = self.event_time.divert_late(chunk)?;
        let columns = chunk.batch().columns();
        let times = self.event_time.column().map(|column| micros(&columns[column])).transpose()?;
        let mut encoded = std::mem::take(&mut self.scratch.chunk);
        self.layout.encode(columns, chunk.num_rows(), &mut encoded)?;
        self.apply(&chunk, &encoded, times.as_ref())?;
        self.scratch.chunk = encoded;
        self.account();
        Ok(Progress::Done)
    }

    fn resume(&mut self, out: &mut Output) -> Result<Progress> {
        self.close_epoch(out)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, _out: &mut Output) -> Result<Progress> {
        self.event_time.receive(watermark);
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, barrier: &Barrier, out: &mut Output) -> Result<Progress> {
        self.closed = barrier.epoch;
        self.stage = Stage::Touched(0);
        self.close_epoch(out)
    }

    fn snapshot(&mut self, closed: Epoch) -> Result<()> {
        let mut value = Vec::new();
        for number in 0..self.touched.len() {
            value.clear();
            value.extend_from_slice(&closed.0.to_be_bytes());
            value.extend_from_slice(self.touched.head(number));
            self.open.put(self.touched.key(number), &value);
        }
        self.open_written |= self.touched.len() > 0;
        Ok(())
    }

    fn applied_watermark(&self) -> Option<i64> {
        Some(self.event_time.applied())
    }

    fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        let mut tables: Vec<&mut dyn StateTable> = vec![self.partitions.table(), &mut self.open];
        tables.extend(self.timers.as_mut().map(Timers::table));
        tables
    }
}
