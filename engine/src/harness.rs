//! An operator test bench: runs one operator, on one or several subtasks, over text chunks, watermarks and barriers, and gives what came out as
//! text, consolidated per epoch. State goes through real tables; `restart` takes a real checkpoint and restores it, with any parallelism.
//!
//! Checkers watch the protocol: at a barrier no row may have been deleted more often than inserted, and no row may come below a watermark
//! that was emitted before it.

mod checks;
mod instance;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use arrow::datatypes::SchemaRef;
use millpond_storage::{
    epoch::Epoch,
    key_group::{key_group, subtask_of},
    state_store::StateBackend,
};

use self::{
    checks::Checks,
    instance::{Instance, Place},
};
use crate::{
    chunk::{Chunk, Op},
    graph::{NodeInput, OperatorNode, OperatorSpec, StreamProperties},
    message::{Barrier, BarrierKind, Watermark},
    operator::{Origin, SideOutput},
};

/// Rows with their multiplicities.
pub(crate) type Contents = BTreeMap<String, i64>;

/// See the module.
pub(crate) struct Harness {
    node: OperatorNode,
    inputs: Vec<SchemaRef>,
    settings: Settings,
    place: Place,
    instances: Vec<Instance>,
    side: Arc<Refused>,
    epoch: u64,
    checks: Checks,
    contents: Contents,
    changes: Contents,
    /// Of large histories only the number of rows is kept.
    counts_only: bool,
    was_counted: bool,
    emitted: i64,
}

/// How a bench is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Subtasks.
    pub(crate) parallelism: usize,
    /// Bytes of the memory budget.
    pub(crate) budget_bytes: usize,
    /// Rows after which the output is full.
    pub(crate) room: usize,
    /// Where state goes that memory has no room for.
    pub(crate) backend: StateBackend,
}

impl Default for Settings {
    fn default() -> Self {
        Self { parallelism: 1, budget_bytes: 64 << 20, room: 4096, backend: StateBackend::Memory }
    }
}

/// Rows that the operator refused.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    late: Mutex<Vec<String>>,
    bad: Mutex<Vec<String>>,
}

impl SideOutput for Refused {
    fn late_row(&self, _operator: &str, row_text: String, _reason: String, _origin: Option<Origin<'_>>) {
        self.late.lock().expect("no test thread panics with the lock").push(row_text);
    }

    fn bad_row(&self, _operator: &str, row_text: String, reason: String, _origin: Option<Origin<'_>>) {
        self.bad.lock().expect("no test thread panics with the lock").push(format!("{row_text}: {reason}"));
    }
}

/// A node of a graph for a test: `spec` over one input per port.
pub(crate) fn node(spec: OperatorSpec, ports: usize, schema: SchemaRef) -> OperatorNode {
    let inputs = (0..ports).map(NodeInput::Exchange).collect();
    OperatorNode { id: 3, spec, inputs, schema, properties: StreamProperties::default() }
}

impl Harness {
    /// A bench for a node whose ports have the columns of `inputs`.
    pub(crate) fn new(node: OperatorNode, inputs: Vec<SchemaRef>, settings: Settings) -> Self {
        let place = Place::new(settings.budget_bytes, settings.backend);
        let side = Arc::new(Refused::default());
        let checks = Checks::new(&node.schema);
        let mut bench = Self {
            node,
            inputs,
            settings,
            place,
            instances: Vec::new(),
            side,
            epoch: 0,
            checks,
            contents: Contents::new(),
            changes: Contents::new(),
            counts_only: false,
            was_counted: false,
            emitted: 0,
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        let origin = self.place.restore();
        self.instances = (0..self.settings.parallelism)
            .map(|subtask| {
                let (node, inputs, side) = (&self.node, self.inputs.clone(), self.side.clone());
                Instance::build(node, inputs, side, subtask, self.settings.parallelism, &self.place, origin.clone())
            })
            .collect();
    }

    /// Feeds a chunk in text form.
    pub(crate) fn push(&mut self, port: usize, text: &str) {
        let chunk = Chunk::parse(&self.inputs[port], text).expect("a test's chunk is well-formed");
        self.push_chunk(port, chunk);
    }

    /// Feeds a chunk, each row to the subtask that owns its key.
    pub(crate) fn push_chunk(&mut self, port: usize, chunk: Chunk) {
        let parallelism = self.instances.len();
        let keys = (parallelism > 1).then(|| self.distribution_keys(port, &chunk));
        for subtask in 0..parallelism {
            let part = match &keys {
                None => chunk.clone(),
                Some(owners) => select(&chunk, |row| owners[row] == subtask),
            };
            let emitted = self.instances[subtask].on_chunk(port, part, self.settings.room);
            self.take(subtask, emitted);
        }
    }

    /// Which subtask owns each row.
    fn distribution_keys(&self, port: usize, chunk: &Chunk) -> Vec<usize> {
        let columns: Vec<usize> = match &self.node.spec {
            OperatorSpec::Aggregate(spec) => spec.group_by.clone(),
            OperatorSpec::TopN(spec) => spec.partition_by.clone(),
            OperatorSpec::EmitOnWindowClose { column } => vec![*column],
            OperatorSpec::Join(spec) if port == 0 => spec.on.iter().map(|(left, _)| *left).collect(),
            OperatorSpec::Join(spec) => spec.on.iter().map(|(_, right)| *right).collect(),
            _ => (0..chunk.batch().num_columns()).collect(),
        };
        if columns.is_empty() {
            return vec![0; chunk.num_rows()];
        }
        let keys = instance::encode_keys(chunk, &columns);
        keys.iter().map(|key| subtask_of(key_group(key), self.instances.len())).collect()
    }

    /// Feeds a watermark to every subtask.
    pub(crate) fn watermark(&mut self, port: usize, column: usize, micros: i64) {
        for subtask in 0..self.instances.len() {
            let emitted = self.instances[subtask].on_watermark(port, Watermark { column, micros }, self.settings.room);
            self.take(subtask, emitted);
        }
    }

    /// Ends the epoch; gives its consolidated changes, one per line, in order.
    pub(crate) fn barrier(&mut self) -> String {
        self.epoch += 1;
        let barrier = Barrier { epoch: Epoch(self.epoch), time_us: 0, kind: BarrierKind::Epoch };
        for subtask in 0..self.instances.len() {
            let emitted = self.instances[subtask].on_barrier(barrier, self.settings.room);
            self.take(subtask, emitted);
        }
        for (row, change) in &self.changes {
            *self.contents.entry(row.clone()).or_default() += change;
        }
        self.contents.retain(|_, count| *count != 0);
        if !self.was_counted {
            self.checks.at_barrier(&self.contents);
        }
        text_of(&std::mem::take(&mut self.changes))
    }

    /// Ends the epoch for the first subtask alone; gives its changes.
    pub(crate) fn barrier_of_first(&mut self) -> String {
        let barrier = Barrier { epoch: Epoch(self.epoch + 1), time_us: 0, kind: BarrierKind::Epoch };
        let emitted = self.instances[0].on_barrier(barrier, self.settings.room);
        self.take(0, emitted);
        let changes = std::mem::take(&mut self.changes);
        for (row, change) in &changes {
            *self.contents.entry(row.clone()).or_default() += change;
        }
        text_of(&changes)
    }

    /// Takes a checkpoint now, also in mid-epoch, and goes on from it with another parallelism.
    pub(crate) fn restart(&mut self, parallelism: usize) {
        self.epoch += 1;
        self.restart_from(parallelism, Epoch(self.epoch), 0);
    }

    /// The same, when the first subtask has closed one epoch more than the others: that epoch is closed again.
    pub(crate) fn restart_apart(&mut self, parallelism: usize) {
        self.restart_from(parallelism, Epoch(self.epoch + 2), 1);
    }

    fn restart_from(&mut self, parallelism: usize, checkpoint: Epoch, ahead: u64) {
        let epoch = self.epoch;
        let closed = |subtask: usize| Epoch(epoch + if subtask == 0 { ahead } else { 0 });
        let applied = self.instances.iter().map(Instance::applied_watermark).min().unwrap_or(i64::MIN);
        let parts = self.instances.iter_mut().enumerate();
        let parts = parts.map(|(subtask, instance)| instance.snapshot(closed(subtask), checkpoint)).collect();
        self.instances.clear();
        self.place.complete(checkpoint, Epoch(self.epoch), applied, parts);
        self.settings.parallelism = parallelism;
        self.checks.restarted();
        self.start();
    }

    /// The rows of a chunk in text form that belong to a subtask.
    pub(crate) fn rows_of(&self, subtask: usize, port: usize, text: &str) -> String {
        let chunk = Chunk::parse(&self.inputs[port], text).expect("a test's chunk is well-formed");
        let owners = self.distribution_keys(port, &chunk);
        select(&chunk, |row| owners[row] == subtask).lines().join("\n")
    }

    fn take(&mut self, subtask: usize, emitted: Vec<crate::operator::Emitted>) {
        for message in emitted {
            match message {
                crate::operator::Emitted::Chunk(chunk) if self.counts_only => {
                    self.emitted += (0..chunk.num_rows()).map(|row| i64::from(chunk.op(row).sign())).sum::<i64>();
                }
                crate::operator::Emitted::Chunk(chunk) => {
                    self.checks.on_chunk(subtask, &chunk);
                    let rows = chunk.lines();
                    for (number, line) in rows.iter().enumerate() {
                        let (_, row) = line.split_once(' ').unwrap_or((line, ""));
                        *self.changes.entry(row.to_owned()).or_default() += i64::from(chunk.op(number).sign());
                    }
                }
                crate::operator::Emitted::Watermark(watermark) => self.checks.on_watermark(subtask, watermark),
            }
        }
    }

    /// From now on rows that come out are only counted, not kept.
    pub(crate) fn count_only(&mut self, counts_only: bool) {
        self.counts_only = counts_only;
        self.was_counted |= counts_only;
    }

    /// Rows that were counted: inserts less deletes.
    pub(crate) fn emitted(&self) -> i64 {
        self.emitted
    }

    /// Bytes taken from the budget.
    pub(crate) fn memory_used(&self) -> usize {
        self.place.memory_used()
    }

    /// The output as of the last barrier.
    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The watermark last emitted under a column, the minimum over the subtasks.
    pub(crate) fn emitted_watermark(&self, column: usize) -> Option<i64> {
        self.checks.watermark(column, self.instances.len())
    }

    /// Rows refused as late so far.
    pub(crate) fn late(&self) -> Vec<String> {
        self.side.late.lock().expect("no test thread panics with the lock").clone()
    }

    /// Rows refused as bad so far, with reasons.
    pub(crate) fn bad(&self) -> Vec<String> {
        self.side.bad.lock().expect("no test thread panics with the lock").clone()
    }
}

/// Subtasks of which one had closed an epoch more than the others when the checkpoint was taken go on, at any parallelism, to the same changes as
/// those that never stopped. `rest` is what a row has behind its key and its number.
pub(crate) fn check_epochs_apart(new: impl Fn(Settings) -> Harness, rest: &str) {
    let rows = |sign: &str, x: i64| (0..40).map(|key| format!("{sign} {key} {x} {rest}")).collect::<Vec<_>>().join("\n");
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    for parallelism in [1, 2, 3, 5] {
        let mut apart = new(Settings { parallelism: 2, ..Settings::default() });
        let mut straight = new(Settings::default());
        let later = apart.rows_of(0, 0, &format!("{}\n{}", rows("-", 1), rows("+", 9)));
        for bench in [&mut apart, &mut straight] {
            bench.push(0, &rows("+", 1));
            bench.barrier();
            bench.push(0, &rows("+", 5));
        }
        let first = apart.barrier_of_first();
        apart.push(0, &later);
        apart.restart_apart(parallelism);
        assert!(!first.is_empty());
        assert_eq!(sorted(format!("{first}\n{}", apart.barrier()).trim().to_owned()), sorted(straight.barrier()), "{parallelism} subtasks");
        straight.push(0, &later);
        assert_eq!(apart.barrier(), straight.barrier(), "{parallelism} subtasks");
        apart.push(0, &rows("-", 5));
        straight.push(0, &rows("-", 5));
        apart.restart(2);
        assert_eq!(apart.barrier(), straight.barrier(), "{parallelism} subtasks");
    }
}

/// The rows of a chunk for which `keep` holds.
fn select(chunk: &Chunk, keep: impl Fn(usize) -> bool) -> Chunk {
    let rows: Vec<u32> = (0..chunk.num_rows()).filter(|row| keep(*row)).map(|row| row as u32).collect();
    let ops: Vec<Op> = rows.iter().map(|row| Op::from_sign(chunk.op(*row as usize).sign())).collect();
    let batch = arrow::compute::take_record_batch(chunk.batch(), &arrow::array::UInt32Array::from(rows));
    Chunk::new(batch.expect("rows are in the chunk"), ops)
}

/// The first row of which two bags have different numbers: (row, found, expected).
pub(crate) fn first_difference(found: &Contents, expected: &Contents) -> Option<(String, i64, i64)> {
    let count = |contents: &Contents, row: &String| contents.get(row).copied().unwrap_or(0);
    let mut rows = found.keys().chain(expected.keys());
    let row = rows.find(|row| count(found, row) != count(expected, row))?;
    Some((row.clone(), count(found, row), count(expected, row)))
}

/// One line per net change.
pub(crate) fn text_of(changes: &Contents) -> String {
    let mut lines = Vec::new();
    for (row, count) in changes {
        let op = if *count > 0 { "+" } else { "-" };
        lines.extend(std::iter::repeat_n(format!("{op} {row}").trim_end().to_owned(), count.unsigned_abs() as usize));
    }
    lines.join("\n")
}
