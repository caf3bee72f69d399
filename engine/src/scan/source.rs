//! The reader of an external source: one per subtask of a source scan, for the splits with its number.
//!
//! Between ticks it emits rows as they come. When the coordinator has closed its gates it holds back what it has decoded until the barrier
//! arrives with the *bindings*, the offsets that belong to the epoch; then it reads each split exactly up to them, sends the source's
//! watermark and the barrier, and goes on. So all jobs agree on the rows of an epoch, however unequal their pace.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use arrow::{
    array::{Array, AsArray, BooleanArray},
    compute::filter_record_batch,
    datatypes::{DataType, TimestampMicrosecondType},
    record_batch::RecordBatch,
};
use millpond_storage::epoch::Epoch;
use tokio::{sync::mpsc, time::Instant};

use super::{
    gate::{Pass, SplitGate},
    place::{Place, Position},
    rest::Rest,
};
use crate::{
    chunk::{CHUNK_ROWS, Chunk},
    coordinator::sources::SourceHandle,
    error::{EngineError, Result},
    exchange::inbox::Sender,
    message::{Barrier, BarrierKind, Message, Watermark},
    operator::{Origin, SideOutput},
    source::{LateRows, Offset, ReadOutcome, Split, SplitReader},
    task::orders::Orders,
};

/// SQLSTATE of a file that does not exist.
const MISSING: &str = "58P01";

/// Pause of a reader that meets a tick which is being decided.
const TICK_PAUSE: Duration = Duration::from_micros(100);

/// What the driver tells a reader.
#[derive(Clone, Debug)]
pub enum SourceOrder {
    /// Read up to the bindings, then pass the barrier on.
    Advance(SourceAdvance),
    /// The job passes this epoch without a barrier: nothing of its inputs changed in it.
    Skip(Epoch),
}

/// An epoch that a reader ends.
#[derive(Clone, Debug)]
pub struct SourceAdvance {
    /// The barrier.
    pub barrier: Barrier,
    /// Bound offset and idleness per split.
    pub bindings: Arc<BTreeMap<String, BoundSplit>>,
    /// The source's watermark at this epoch.
    pub watermark_us: Option<i64>,
}

/// Where a split stands at an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundSplit {
    /// Offset after the last row of the epoch.
    pub end: Offset,
    /// The split's own watermark there.
    pub watermark_us: i64,
    /// It does not hold back the others.
    pub idle: bool,
}

/// Position of one split, as it is kept in a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SplitPosition {
    /// Offset after the last row emitted.
    pub offset: Offset,
    /// The split's own watermark there (`i64::MIN` = none).
    pub watermark_us: i64,
    /// Rows below this are late, because the split was idle while this watermark passed.
    pub floor_us: i64,
    /// Rows behind the offset, late ones not counted, that have been emitted too: a checkpoint may be taken in the midst of a chunk.
    pub skip: u64,
}

/// A reader task.
pub struct SourceReader {
    /// The source.
    pub source: Arc<SourceHandle>,
    /// Columns to emit, numbers of the source's schema.
    pub projection: Vec<usize>,
    /// Number of this subtask and of all.
    pub subtask: (usize, usize),
    /// Positions to start from.
    pub start: HashMap<String, SplitPosition>,
    /// The epoch whose barrier the job has passed.
    pub passed: Epoch,
    /// Where rows go.
    pub output: Sender,
    /// Orders of the driver.
    pub commands: mpsc::UnboundedReceiver<SourceOrder>,
    /// Late and bad rows.
    pub side: Arc<dyn SideOutput>,
    /// What the driver says besides.
    pub orders: Arc<Orders>,
}

struct OpenSplit {
    split: Split,
    name: Arc<str>,
    /// `None` when there is nothing to read it from, and the job goes on without it.
    reader: Option<Box<dyn SplitReader>>,
    gate: Arc<SplitGate>,
    position: SplitPosition,
    held: Option<Held>,
    finished: bool,
    rest: Rest,
}

impl OpenSplit {
    /// From now on it is read by `reader`, or not any more.
    fn read_from(&mut self, reader: Option<Box<dyn SplitReader>>) {
        if reader.is_none() {
            self.finished = true;
            self.gate.set_waiting(true, true);
        }
        self.reader = reader;
    }

    fn position(&self) -> Position {
        Position::Split(self.name.clone(), self.position)
    }
}

/// Rows decoded while the gate was closed.
struct Held {
    batch: RecordBatch,
    end: Offset,
    bad: Vec<crate::source::BadRow>,
}

enum Free {
    Progress,
    Wait(Duration),
}

impl SourceReader {
    /// Runs until the final barrier or until the driver is gone.
    pub async fn run(mut self) -> Result<()> {
        let mut splits: Vec<OpenSplit> = Vec::new();
        let mut seen = 0;
        let mut turn = 0;
        loop {
            self.open_new_splits(&mut splits, &mut seen).await?;
            let order = match self.commands.try_recv() {
                Ok(order) => Some(order),
                Err(mpsc::error::TryRecvError::Disconnected) => return Ok(()),
                Err(mpsc::error::TryRecvError::Empty) => match self.read_free(&mut splits, &mut turn).await? {
                    Free::Progress => None,
                    Free::Wait(duration) => tokio::select! {
                        order = self.commands.recv() => match order { Some(order) => Some(order), None => return Ok(()) },
                        () = tokio::time::sleep(duration) => None,
                        () = self.source.splits_changed() => None,
                    },
                },
            };
            match order {
                None => {}
                Some(SourceOrder::Skip(epoch)) => {
                    self.passed = epoch;
                    splits.iter().for_each(|split| split.gate.epoch_skipped(epoch));
                }
                Some(SourceOrder::Advance(advance)) => {
                    self.open_new_splits(&mut splits, &mut seen).await?;
                    self.advance(&mut splits, &advance).await?;
                    if advance.barrier.kind == BarrierKind::Final {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Opens the splits of this subtask that were discovered since.
    async fn open_new_splits(&mut self, open: &mut Vec<OpenSplit>, seen: &mut usize) -> Result<()> {
        for (number, split) in self.source.splits_from(*seen) {
            *seen = number + 1;
            if number % self.subtask.1 != self.subtask.0 {
                continue;
            }
            let fresh = SplitPosition { offset: 0, watermark_us: i64::MIN, floor_us: i64::MIN, skip: 0 };
            let position = self.start.get(&split.id).copied().unwrap_or(fresh);
            let reader = self.open(&split, position.offset).await?;
            let gate = SplitGate::new(split.id.clone(), position.offset, position.watermark_us, self.passed);
            self.source.add_gate(&gate);
            let rest = Rest::new(Instant::now());
            let mut opened =
                OpenSplit { name: split.id.as_str().into(), split, reader: None, gate, position, held: None, finished: false, rest };
            opened.read_from(reader);
            open.push(opened);
        }
        Ok(())
    }

    /// Columns that are read: the emitted ones, and the event time, since lateness must not depend on who reads.
    fn read_columns(&self) -> Vec<usize> {
        let mut columns = self.projection.clone();
        if let Some(watermark) = &self.source.watermark
            && !columns.contains(&watermark.column)
        {
            columns.push(watermark.column);
        }
        columns
    }

    /// Reads one chunk of some split, in turn, if its gate is open.
    async fn read_free(&mut self, splits: &mut [OpenSplit], turn: &mut usize) -> Result<Free> {
        let mut wait = Duration::from_secs(3600);
        let (count, now) = (splits.len(), Instant::now());
        for step in 0..count {
            let index = (*turn + step) % count;
            let split = &mut splits[index];
            if split.held.is_none() && !split.finished {
                // Whatever the reader was woken for, it was not for this split.
                if let Some(left) = split.rest.left(now) {
                    wait = wait.min(left);
                    continue;
                }
                let Some(read) = self.read(split, None).await? else { continue };
                match read {
                    ReadOutcome::Rows { batch, end, bad } => split.held = Some(Held { batch, end, bad }),
                    ReadOutcome::Pending { retry_after_us, idle } => {
                        split.gate.set_waiting(idle, false);
                        let asked = Duration::from_micros(retry_after_us.max(100));
                        wait = wait.min(split.rest.begin(now, asked, idle.then_some(count)));
                    }
                    ReadOutcome::Finished => {
                        split.finished = true;
                        split.gate.set_waiting(true, true);
                    }
                    ReadOutcome::AtLimit => {
                        return Err(EngineError::Internal("a reader without a limit answered that it was reached".into()));
                    }
                }
            }
            if let Some(held) = &split.held {
                let watermark_us = self.watermark_after(&held.batch, split.position.watermark_us);
                match split.gate.pass(held.end, watermark_us) {
                    Pass::Open => {
                        *turn = index + 1;
                        self.emit_held(split).await?;
                        return Ok(Free::Progress);
                    }
                    Pass::Ticking => wait = wait.min(TICK_PAUSE),
                    Pass::Behind => {}
                }
            }
        }
        Ok(Free::Wait(wait))
    }

    /// Reads every split up to its binding, then sends watermark and barrier and opens the gates.
    async fn advance(&mut self, splits: &mut [OpenSplit], advance: &SourceAdvance) -> Result<()> {
        for split in splits.iter_mut() {
            if let Some(bound) = advance.bindings.get(&split.split.id) {
                self.read_to(split, bound.end).await?;
                if bound.idle
                    && let Some(passed) = advance.watermark_us
                {
                    split.position.floor_us = split.position.floor_us.max(passed);
                }
            }
        }
        let column = self.source.watermark.as_ref().and_then(|w| self.projection.iter().position(|c| *c == w.column));
        if let Some(column) = column {
            let micros = if advance.barrier.kind == BarrierKind::Final { Some(i64::MAX) } else { advance.watermark_us };
            if let Some(micros) = micros {
                self.output.send(Message::Watermark(Watermark { column, micros })).await?;
            }
        }
        let positions = splits.iter().map(OpenSplit::position).collect();
        self.output.send_placed(Message::Barrier(advance.barrier), Some(Place::Barrier(positions))).await?;
        self.passed = advance.barrier.epoch;
        for split in splits.iter() {
            split.gate.barrier_passed(self.passed, split.position.offset, split.position.watermark_us);
        }
        Ok(())
    }

    /// Emits the rows of a split up to `limit`, which another reader has reached already.
    async fn read_to(&mut self, split: &mut OpenSplit, limit: Offset) -> Result<()> {
        if let Some(held) = &split.held {
            if held.end <= limit {
                self.emit_held(split).await?;
            } else if split.position.offset < limit {
                // What was decoded reaches beyond the binding: read the part up to it anew.
                split.held = None;
                split.read_from(self.open(&split.split, split.position.offset).await?);
            }
        }
        while split.position.offset < limit {
            let Some(read) = self.read(split, Some(limit)).await? else {
                split.position.offset = limit;
                break;
            };
            match read {
                ReadOutcome::Rows { batch, end, bad } => {
                    split.held = Some(Held { batch, end, bad });
                    self.emit_held(split).await?;
                }
                ReadOutcome::AtLimit => split.position.offset = limit,
                ReadOutcome::Finished => {
                    let name = &split.split.id;
                    return Err(EngineError::user("58030", format!("source \"{}\": \"{name}\" is shorter than it was", self.source.name)));
                }
                ReadOutcome::Pending { retry_after_us, .. } => tokio::time::sleep(Duration::from_micros(retry_after_us.max(100))).await,
            }
        }
        Ok(())
    }

    /// What the split gives next; `None` when it is gone and the job goes on without it.
    async fn read(&self, split: &mut OpenSplit, limit: Option<Offset>) -> Result<Option<ReadOutcome>> {
        let Some(reader) = &mut split.reader else { return Ok(None) };
        let read = reader.read(CHUNK_ROWS, limit).await;
        let read = self.unless_gone(&split.split, split.position.offset, read)?;
        if read.is_none() {
            split.read_from(None);
        }
        Ok(read)
    }

    /// A reader of a split; `None` when that is gone and the job goes on without it.
    async fn open(&self, split: &Split, offset: Offset) -> Result<Option<Box<dyn SplitReader>>> {
        let opened = self.source.open_split(split, offset, &self.read_columns()).await;
        self.unless_gone(split, offset, opened)
    }

    /// What came of an operation on a split that is read up to `offset`; `None` if it is gone and the job goes on without it: since it owes the job
    /// no rows, as a file that was removed before the job came, or since the job was told to.
    fn unless_gone<T>(&self, split: &Split, offset: Offset, result: Result<T>) -> Result<Option<T>> {
        let (message, hint) = match result {
            Err(EngineError::User { sqlstate: MISSING, message, hint }) => (message, hint),
            other => return other.map(Some),
        };
        let owes = self.owes(split, offset);
        if owes && !self.orders.skip_bad_rows() {
            let hint = hint.or_else(|| Some("ALTER .. RESUME SKIP goes on without what is missing.".into()));
            return Err(EngineError::User { sqlstate: MISSING, message, hint });
        }
        tracing::warn!(source = %self.source.name, split = %split.id, owes, "a split is gone: a job goes on without it");
        if owes {
            self.side.bad_row(
                &format!("source {}", self.source.name),
                split.id.clone(),
                message,
                Some(Origin { split: &split.id, offset: None }),
            );
        }
        Ok(None)
    }

    /// Whether a split has rows behind `offset` that the job must have. A job that has not begun must have those only that the source promised.
    fn owes(&self, split: &Split, offset: Offset) -> bool {
        let has_begun = self.passed > Epoch(0);
        self.source.is_complete() || (has_begun && self.source.bound_end(&split.id).is_some_and(|end| end > offset))
    }

    async fn emit_held(&mut self, split: &mut OpenSplit) -> Result<()> {
        let held = split.held.take().expect("the caller has looked");
        split.rest = Rest::new(Instant::now());
        let operator = format!("source {}", self.source.name);
        for bad in &held.bad {
            if self.source.fail_on_bad_rows && !self.orders.skip_bad_rows() {
                let place = self.source.source().row_at(&split.split, bad.offset).await;
                return Err(bad.refusal(&self.source.name, &place));
            }
            let origin = Origin { split: &split.split.id, offset: Some(bad.offset) };
            self.side.bad_row(&operator, bad.text.clone(), bad.reason.clone(), Some(origin));
        }
        let watermark_us = self.watermark_after(&held.batch, split.position.watermark_us);
        let batch = self.divert_late(split, held.batch, &operator)?;
        let before = split.position();
        // What was emitted before the checkpoint that this reader started from is not emitted again.
        let skipped = split.position.skip.min(batch.num_rows() as u64);
        let batch = batch.slice(skipped as usize, batch.num_rows() - skipped as usize);
        let skip = split.position.skip - skipped;
        split.position = SplitPosition { offset: held.end, watermark_us, skip, ..split.position };
        self.source.count_rows(batch.num_rows());
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let wanted: Vec<usize> = (0..self.projection.len()).collect();
        let batch = if batch.num_columns() == wanted.len() { batch } else { batch.project(&wanted)? };
        let place = Place::Rows { before, after: split.position() };
        self.output.send_placed(Message::Chunk(Chunk::inserts(batch)), Some(place)).await
    }

    /// Event times of the read columns, in microseconds.
    fn event_times<'a>(&self, batch: &'a RecordBatch) -> Option<(&'a dyn Array, &'a [i64], i64)> {
        let watermark = self.source.watermark.as_ref()?;
        let position = self.read_columns().iter().position(|c| *c == watermark.column)?;
        let column = batch.column(position);
        match column.data_type() {
            DataType::Timestamp(_, _) => {
                Some((column.as_ref(), column.as_primitive::<TimestampMicrosecondType>().values().as_ref(), watermark.delay))
            }
            _ => None,
        }
    }

    fn watermark_after(&self, batch: &RecordBatch, before: i64) -> i64 {
        let Some((column, times, delay)) = self.event_times(batch) else { return before };
        let newest = (0..times.len()).filter(|row| column.is_valid(*row)).map(|row| times[row]).max();
        newest.map_or(before, |newest| before.max(newest.saturating_sub(delay)))
    }

    /// Removes rows below the split's own running watermark. A NULL event time is never late.
    fn divert_late(&self, split: &OpenSplit, batch: RecordBatch, operator: &str) -> Result<RecordBatch> {
        if self.source.late_rows == LateRows::Keep {
            return Ok(batch);
        }
        let Some((column, times, delay)) = self.event_times(&batch) else { return Ok(batch) };
        let mut running = split.position.watermark_us;
        let mut late = Vec::new();
        for (row, time) in times.iter().enumerate() {
            if column.is_null(row) {
                continue;
            }
            if *time < running.max(split.position.floor_us) {
                late.push(row);
            }
            running = running.max(time.saturating_sub(delay));
        }
        if late.is_empty() {
            return Ok(batch);
        }
        let mut keep = vec![true; batch.num_rows()];
        for row in late {
            keep[row] = false;
            let reason = format!("event time is below the watermark of split \"{}\"", split.split.id);
            let origin = Origin { split: &split.split.id, offset: None };
            self.side.late_row(operator, crate::chunk::row_text(&batch, row), reason, Some(origin));
        }
        Ok(filter_record_batch(&batch, &BooleanArray::from(keep))?)
    }
}
