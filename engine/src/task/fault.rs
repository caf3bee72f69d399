//! Which row an operator fails on, and rows that are left out because one did.
//!
//! A chunk has thousands of rows, and an operator that has failed on one has taken some of them: it cannot be asked again. So when a job has
//! failed twice at the same epoch and at the same operator, its next attempt hands that operator its rows one at a time, and the one that
//! it fails on is known. Who resumes the job without that row has it left out of what the operator is given, its deletion like its insertion: an
//! operator is a function of its rows, and one that it never saw need not be taken back.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use arrow::{
    array::BooleanArray,
    compute::filter_record_batch,
    record_batch::RecordBatch,
    row::{RowConverter, SortField},
};
use millpond_storage::encoding::batch::{read_only_batch, write_batch};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use crate::{
    chunk::{Chunk, Op},
    error::{EngineError, Result, panic_text},
    expression::keep_rows,
};

/// No operator.
const NOBODY: usize = usize::MAX;

/// Rows that a job leaves out at most. Who has more of them has another problem.
const MOST_SKIPPED: usize = 100;

/// Where a subtask was when it failed.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Number of the operator in the graph.
    pub node: usize,
    /// The input that it was given something from.
    pub port: usize,
    /// The one row that it was given.
    pub row: Option<RecordBatch>,
}

/// A row that an operator is not given, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRow {
    node: usize,
    port: usize,
    /// A batch of one row in the storage codec, hexadecimal.
    row: String,
}

/// A row that is left out, and its written form.
#[derive(Debug)]
struct Skipped {
    place: (usize, usize),
    row: RecordBatch,
    stored: SkippedRow,
}

/// What is known of failures of a job, over all its attempts.
#[derive(Debug)]
pub struct Faults {
    suspect: AtomicUsize,
    newest: Mutex<Option<Fault>>,
    is_skipping: AtomicBool,
    skipped: RwLock<Vec<Skipped>>,
}

/// What an operator is to be given of a chunk.
pub enum Screened {
    /// All at once.
    Whole(Chunk),
    /// One after the other.
    Apart(Vec<Chunk>),
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            suspect: AtomicUsize::new(NOBODY),
            newest: Mutex::default(),
            is_skipping: AtomicBool::new(false),
            skipped: RwLock::default(),
        }
    }
}

impl Faults {
    /// The operator that is given its rows one at a time from the next chunk on.
    pub fn suspect(&self, node: Option<usize>) {
        self.suspect.store(node.unwrap_or(NOBODY), Ordering::Relaxed);
    }

    /// Where the job failed last, once.
    pub fn take(&self) -> Option<Fault> {
        self.newest.lock().take()
    }

    /// Leaves the row of a fault out from now on. Answers whether there is one and room for it.
    pub fn skip(&self, fault: &Fault) -> bool {
        let Some(row) = fault.row.as_ref().filter(|row| row.num_columns() > 0) else { return false };
        let mut bytes = Vec::new();
        let mut skipped = self.skipped.write();
        if skipped.len() == MOST_SKIPPED || write_batch(row, &mut bytes).is_err() {
            return false;
        }
        let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let stored = SkippedRow { node: fault.node, port: fault.port, row: text };
        skipped.push(Skipped { place: (fault.node, fault.port), row: row.clone(), stored });
        self.is_skipping.store(true, Ordering::Release);
        true
    }

    /// The rows that are left out, as a checkpoint keeps them.
    pub fn skipped(&self) -> Vec<SkippedRow> {
        self.skipped.read().iter().map(|skipped| skipped.stored.clone()).collect()
    }

    /// Leaves out what a checkpoint says was left out, besides what has been added since.
    pub fn restore(&self, stored: Vec<SkippedRow>) -> Result<()> {
        let known = self.skipped();
        for row in stored.into_iter().filter(|row| !known.contains(row)) {
            let malformed = || EngineError::Internal("a row that is left out cannot be read".into());
            let digits = (0..row.row.len()).step_by(2).map(|at| row.row.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()));
            let bytes: Vec<u8> = digits.collect::<Option<_>>().ok_or_else(malformed)?;
            let batch = read_only_batch(&bytes, "row that is left out")?;
            self.skip(&Fault { node: row.node, port: row.port, row: Some(batch) });
        }
        Ok(())
    }

    /// What an operator is to be given of a chunk: all of it, unless something is known of its rows.
    pub fn screen(&self, node: usize, port: usize, chunk: Chunk) -> Result<Screened> {
        let chunk = match self.is_skipping.load(Ordering::Acquire) {
            true => self.without_skipped(node, port, chunk)?,
            false => chunk,
        };
        let is_suspect = self.suspect.load(Ordering::Relaxed) == node;
        Ok(match chunk.num_rows() {
            0 => Screened::Apart(Vec::new()),
            rows if rows > 1 && is_suspect => Screened::Apart((0..rows).map(|row| alone(&chunk, row)).collect()),
            _ => Screened::Whole(chunk),
        })
    }

    fn without_skipped(&self, node: usize, port: usize, chunk: Chunk) -> Result<Chunk> {
        let skipped = self.skipped.read();
        let rows: Vec<&RecordBatch> = skipped.iter().filter(|skipped| skipped.place == (node, port)).map(|skipped| &skipped.row).collect();
        if rows.is_empty() {
            return Ok(chunk);
        }
        let batch = chunk.batch();
        let converter =
            RowConverter::new(batch.schema_ref().fields().iter().map(|field| SortField::new(field.data_type().clone())).collect())?;
        let encoded = converter.convert_columns(batch.columns())?;
        let refused = rows.iter().map(|row| converter.convert_columns(row.columns())).collect::<Result<Vec<_>, _>>()?;
        let kept = |row: usize| Some(refused.iter().all(|refused| refused.row(0) != encoded.row(row)));
        let kept: BooleanArray = (0..batch.num_rows()).map(kept).collect();
        let batch = filter_record_batch(batch, &kept)?;
        Ok(if batch.num_rows() == chunk.num_rows() { chunk } else { keep_rows(&chunk, batch, &kept) })
    }

    /// Hands an operator a chunk. Where and on what it fails or panics is noted.
    pub fn watch<T>(&self, (node, port): (usize, usize), chunk: Chunk, call: impl FnOnce(Chunk) -> Result<T>) -> Result<T> {
        let row = (chunk.num_rows() == 1).then(|| chunk.batch().clone());
        let result = catch_unwind(AssertUnwindSafe(|| call(chunk)));
        let result = result.unwrap_or_else(|panic| Err(EngineError::Internal(format!("a subtask panicked: {}", panic_text(&*panic)))));
        if result.is_err() {
            *self.newest.lock() = Some(Fault { node, port, row });
        }
        result
    }
}

/// One row of a chunk. Half of an update is a change of its own.
fn alone(chunk: &Chunk, row: usize) -> Chunk {
    Chunk::new(chunk.batch().slice(row, 1), vec![Op::from_sign(chunk.op(row).sign())])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("t", DataType::Utf8View, true)]))
    }

    fn chunk(text: &str) -> Chunk {
        Chunk::parse(&schema(), text).expect("a chunk")
    }

    fn given(faults: &Faults, node: usize, port: usize, text: &str) -> Vec<String> {
        match faults.screen(node, port, chunk(text)).expect("screened") {
            Screened::Whole(chunk) => vec![chunk.to_string()],
            Screened::Apart(rows) => rows.iter().map(Chunk::to_string).collect(),
        }
    }

    #[test]
    fn a_suspect_gets_its_rows_one_at_a_time_and_its_fault_is_known() {
        let faults = Faults::default();
        let text = "+ 1 a\nU- 2 b\nU+ 3 c\n- NULL NULL";
        assert_eq!(given(&faults, 4, 0, text), [text]);
        faults.suspect(Some(4));
        assert_eq!(given(&faults, 5, 0, text), [text]);
        assert_eq!(given(&faults, 4, 0, text), ["+ 1 a", "- 2 b", "+ 3 c", "- NULL NULL"]);
        let error = faults.watch((4, 1), chunk("- 2 b"), |_| -> Result<()> { panic!("no such row") }).expect_err("it panics");
        assert!(error.to_string().contains("no such row"), "{error}");
        let fault = faults.take().expect("noted");
        assert_eq!((fault.node, fault.port, fault.row), (4, 1, Some(chunk("- 2 b").batch().clone())));
        assert!(faults.take().is_none());
        faults.suspect(None);
        assert_eq!(given(&faults, 4, 0, text), [text]);
        // Of a chunk with more rows it is not known which it was.
        assert!(faults.watch((4, 0), chunk(text), |_| -> Result<()> { Err(EngineError::Cancelled) }).is_err());
        assert!(faults.take().is_some_and(|fault| fault.row.is_none()));
    }

    #[test]
    fn skipped_rows_are_left_out_also_after_a_restart() {
        let faults = Faults::default();
        let row = |text: &str| Fault { node: 4, port: 1, row: Some(chunk(text).batch().clone()) };
        assert!(faults.skip(&row("+ 2 b")) && faults.skip(&row("+ NULL \"\"")));
        assert!(!faults.skip(&Fault { node: 4, port: 1, row: None }));
        let text = "+ 1 a\nU- 2 b\nU+ 3 c\n- 2 b\n+ 2 c\n+ NULL \"\"\n+ NULL NULL";
        assert_eq!(given(&faults, 4, 0, text), [text]);
        let left = ["+ 1 a\n+ 3 c\n+ 2 c\n+ NULL NULL"];
        assert_eq!(given(&faults, 4, 1, text), left);
        assert!(given(&faults, 4, 1, "- 2 b").is_empty());
        let stored = serde_json::to_string(&faults.skipped()).expect("text");
        let later = Faults::default();
        assert!(later.skip(&row("+ 2 b")));
        later.restore(serde_json::from_str(&stored).expect("what was written")).expect("restored");
        assert_eq!(given(&later, 4, 1, text), left);
        assert_eq!(later.skipped(), faults.skipped());
    }
}
