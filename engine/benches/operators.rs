//! Rows a second that one core takes through the stateful operators, on rows shaped like Nexmark's. Run with an optional filter by name.
#![allow(missing_docs, clippy::print_stdout, clippy::disallowed_methods)]

use std::{
    sync::{Arc, atomic::AtomicI64},
    time::Instant,
};

use arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, StringViewArray, TimestampMicrosecondArray},
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit},
    record_batch::RecordBatch,
};
use datafusion::{
    logical_expr::Operator as BinaryOperator,
    physical_expr::expressions::{binary, col},
};
use millpond_engine::{
    chunk::{Chunk, Op},
    graph::{
        AggregateCall, AggregateFunction, AggregateSpec, Expression, JoinKind, JoinSpec, NodeInput, OperatorNode, OperatorSpec,
        StreamProperties, WindowStep,
    },
    message::{Barrier, BarrierKind, Watermark},
    operator::{Emitted, Operator, OperatorContext, Origin, Output, Progress, SideOutput, build},
};
use millpond_storage::{
    epoch::Epoch,
    memory::MemoryBudget,
    rocks::RocksShared,
    state_store::StateBackend,
    state_table::{JobStore, JobStoreSpec, StateOrigin, TaskState},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

const CHUNK: usize = 4096;
/// Chunks between barriers: about a tenth of a second at a million rows a second.
const CHUNKS_PER_EPOCH: usize = 25;

struct Nowhere;

impl SideOutput for Nowhere {
    fn late_row(&self, _operator: &str, _row_text: String, _reason: String, _origin: Option<Origin<'_>>) {}
    fn bad_row(&self, _operator: &str, _row_text: String, _reason: String, _origin: Option<Origin<'_>>) {}
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn schema_of(columns: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect::<Vec<_>>()))
}

fn bid_schema() -> SchemaRef {
    let columns = [
        ("auction", DataType::Int64),
        ("bidder", DataType::Int64),
        ("price", DataType::Int64),
        ("channel", DataType::Utf8View),
        ("date_time", timestamp()),
        ("extra", DataType::Utf8View),
        ("r1", DataType::Boolean),
        ("r2", DataType::Boolean),
        ("r3", DataType::Boolean),
    ];
    schema_of(&columns)
}

/// Bids as the generator makes them: half on a hot auction, the others on one of the last hundred; 10,000 events a second.
fn bids(chunks: usize) -> Vec<Chunk> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut number = 0i64;
    let mut chunk = || {
        let mut columns: [Vec<i64>; 4] = Default::default();
        let (mut channels, mut extras) = (Vec::new(), Vec::new());
        for _ in 0..CHUNK {
            number += 1;
            let last = 1000 + number * 3 / 46;
            let auction = if random.random_bool(0.5) { last / 100 * 100 } else { last - random.random_range(0..100) };
            let person = 1000 + number / 46;
            let bidder = if random.random_bool(0.75) { person / 100 * 100 + 1 } else { person - random.random_range(0..1000) };
            let price = 10f64.powf(random.random_range(0.0..1.0) * 6.0) as i64 * 100;
            columns[0].push(auction);
            columns[1].push(bidder);
            columns[2].push(price);
            columns[3].push(number * 100 / 1000 * 1000);
            channels.push(["Google", "Facebook", "Baidu", "Apple"][random.random_range(0..4)].to_owned());
            extras.push(format!("{:x}", random.random::<u128>()));
        }
        let flags = |low: i64, high: i64| -> ArrayRef {
            Arc::new(columns[2].iter().map(|price| Some((low..high).contains(price))).collect::<BooleanArray>())
        };
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(columns[0].clone())),
            Arc::new(Int64Array::from(columns[1].clone())),
            Arc::new(Int64Array::from(columns[2].clone())),
            Arc::new(StringViewArray::from_iter_values(channels)),
            Arc::new(TimestampMicrosecondArray::from(columns[3].clone())),
            Arc::new(StringViewArray::from_iter_values(extras)),
            flags(0, 10_000),
            flags(10_000, 1_000_000),
            flags(1_000_000, i64::MAX),
        ];
        Chunk::inserts(RecordBatch::try_new(bid_schema(), arrays).expect("columns fit"))
    };
    (0..chunks).map(|_| chunk()).collect()
}

/// One auction per 46/3 bids, in step with them.
fn auctions(chunks: usize) -> Vec<Chunk> {
    let schema = schema_of(&[("id", DataType::Int64), ("item", DataType::Utf8View), ("date_time", timestamp()), ("expires", timestamp())]);
    let mut number = 1000i64;
    let mut chunk = || {
        let ids: Vec<i64> = (0..CHUNK as i64 * 3 / 46 + 1).map(|index| number + index).collect();
        number += ids.len() as i64;
        let times: Vec<i64> = ids.iter().map(|id| (id - 1000) * 1533).collect();
        let expires: Vec<i64> = times.iter().map(|time| time + 2_000_000).collect();
        let items = ids.iter().map(|id| format!("item number {id} of the auction"));
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(ids.clone())),
            Arc::new(StringViewArray::from_iter_values(items)),
            Arc::new(TimestampMicrosecondArray::from(times)),
            Arc::new(TimestampMicrosecondArray::from(expires)),
        ];
        Chunk::inserts(RecordBatch::try_new(schema.clone(), arrays).expect("columns fit"))
    };
    (0..chunks).map(|_| chunk()).collect()
}

struct Bench {
    operator: Box<dyn Operator>,
    context: OperatorContext,
    out: Output,
    emitted: Vec<Chunk>,
    rows_out: usize,
    epoch: u64,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new(spec: OperatorSpec, inputs: Vec<SchemaRef>, schema: SchemaRef, budget_bytes: usize) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let budget = MemoryBudget::new(budget_bytes);
        let store = JobStore::open(JobStoreSpec {
            directory: directory.path().join("state"),
            backend: StateBackend::RocksDb,
            budget: budget.clone(),
            shared: RocksShared::new(64 << 20),
        });
        let state = TaskState::new(store.expect("a store"), 0, 0..256, StateOrigin::Empty).expect("state");
        let node = OperatorNode {
            id: 1,
            spec,
            inputs: (0..inputs.len()).map(NodeInput::Exchange).collect(),
            schema,
            properties: StreamProperties::default(),
        };
        let epoch_time_us = Arc::new(AtomicI64::new(0));
        let mut context = OperatorContext {
            state,
            side: Arc::new(Nowhere),
            budget,
            epoch_time_us,
            subtask: 0,
            parallelism: 1,
            inputs,
            closed: Epoch(0),
            applied_watermark: i64::MIN,
        };
        let operator = build(&node, &mut context).expect("an operator");
        Self { operator, context, out: Output::with_room(4096), emitted: Vec::new(), rows_out: 0, epoch: 0, _directory: directory }
    }

    fn finish(&mut self, mut progress: Progress) {
        loop {
            for emitted in self.out.take() {
                if let Emitted::Chunk(chunk) = emitted {
                    self.rows_out += chunk.num_rows();
                    self.emitted.push(chunk);
                }
            }
            if progress == Progress::Done {
                break;
            }
            progress = self.operator.resume(&mut self.out).expect("the operator goes on");
        }
        self.operator.tables().into_iter().for_each(|table| table.relieve().expect("memory is given back"));
    }

    fn push(&mut self, port: usize, chunk: &Chunk) {
        let progress = self.operator.on_chunk(port, chunk.clone(), &mut self.out).expect("a chunk is taken");
        self.finish(progress);
    }

    fn watermark(&mut self, port: usize, column: usize, micros: i64) {
        let progress = self.operator.on_watermark(port, Watermark { column, micros }, &mut self.out).expect("a watermark is taken");
        self.finish(progress);
    }

    fn barrier(&mut self) {
        self.epoch += 1;
        let barrier = Barrier { epoch: Epoch(self.epoch), time_us: 0, kind: BarrierKind::Epoch };
        let progress = self.operator.on_barrier(&barrier, &mut self.out).expect("a barrier is taken");
        self.finish(progress);
        if self.epoch.is_multiple_of(100) {
            self.operator.snapshot(Epoch(self.epoch)).expect("a snapshot");
            let checkpoint = self.context.state.snapshot(&mut self.operator.tables(), Epoch(self.epoch));
            drop(checkpoint.expect("a checkpoint"));
        }
    }
}

/// Feeds all chunks, with barriers, and reports.
fn measure(name: &str, bench: &mut Bench, chunks: &[(usize, Chunk)], time: Option<(usize, usize)>) {
    let start = Instant::now();
    let mut rows = 0;
    for (number, (port, chunk)) in chunks.iter().enumerate() {
        bench.push(*port, chunk);
        bench.emitted.clear();
        rows += chunk.num_rows();
        if number % CHUNKS_PER_EPOCH == CHUNKS_PER_EPOCH - 1 {
            if let Some((column, micros_per_chunk)) = time {
                bench.watermark(0, column, (number as i64 - 100).max(0) * micros_per_chunk as i64);
            }
            bench.barrier();
            bench.emitted.clear();
        }
    }
    bench.barrier();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name:32} {:8.2} M rows/s in, {:8.2} M rows out, {:6.0} MiB",
        rows as f64 / seconds / 1e6,
        bench.rows_out as f64 / 1e6,
        bench.context.budget.used() as f64 / 1048576.0
    );
}

fn call(function: AggregateFunction, arguments: &[usize], filter: Option<usize>, output: DataType) -> AggregateCall {
    AggregateCall { function, arguments: arguments.to_vec(), distinct: false, filter, order_by: Vec::new(), output }
}

fn distinct(mut call: AggregateCall) -> AggregateCall {
    call.distinct = true;
    call
}

fn aggregate(
    input: &SchemaRef,
    group_by: &[usize],
    calls: Vec<AggregateCall>,
    append_only: bool,
    expiry: Option<usize>,
) -> (OperatorSpec, SchemaRef) {
    let groups = group_by.iter().map(|column| input.field(*column).clone());
    let results = calls.iter().enumerate().map(|(number, call)| Field::new(format!("a{number}"), call.output.clone(), true));
    let schema = Arc::new(Schema::new(groups.chain(results).collect::<Vec<_>>()));
    let spec = AggregateSpec { group_by: group_by.to_vec(), calls, append_only_input: append_only, expiry, emit_on_close: None };
    (OperatorSpec::Aggregate(spec), schema)
}

fn wanted(name: &str) -> bool {
    std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).all(|filter| name.contains(&filter))
}

fn run_aggregate(
    name: &str,
    input: &SchemaRef,
    group_by: &[usize],
    calls: Vec<AggregateCall>,
    append_only: bool,
    chunks: &[Chunk],
    budget: usize,
) {
    if !wanted(name) {
        return;
    }
    let (spec, schema) = aggregate(input, group_by, calls, append_only, None);
    let mut bench = Bench::new(spec, vec![input.clone()], schema, budget);
    let chunks: Vec<(usize, Chunk)> = chunks.iter().map(|chunk| (0, chunk.clone())).collect();
    measure(name, &mut bench, &chunks, None);
}

fn q17_calls() -> Vec<AggregateCall> {
    let bigint = DataType::Int64;
    let count = |filter| call(AggregateFunction::Count, &[], filter, DataType::Int64);
    vec![
        count(None),
        count(Some(6)),
        count(Some(7)),
        count(Some(8)),
        call(AggregateFunction::Min, &[2], None, bigint.clone()),
        call(AggregateFunction::Max, &[2], None, bigint),
        call(AggregateFunction::Avg, &[2], None, DataType::Decimal256(76, 20)),
        call(AggregateFunction::Sum, &[2], None, DataType::Decimal128(38, 0)),
    ]
}

fn q15_calls() -> Vec<AggregateCall> {
    let count = |column: usize, filter| call(AggregateFunction::Count, &[column], filter, DataType::Int64);
    let mut calls: Vec<AggregateCall> = [None, Some(6), Some(7), Some(8)].iter().map(|filter| count(0, *filter)).collect();
    for column in [1, 0] {
        calls.extend([None, Some(6), Some(7), Some(8)].iter().map(|filter| distinct(count(column, *filter))));
    }
    calls
}

/// The same rows with one in three taken back later.
fn with_deletes(chunks: &[Chunk]) -> Vec<Chunk> {
    let mut result = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        result.push(chunk.clone());
        if number >= 20 {
            let old = &chunks[number - 20];
            result.push(Chunk::new(old.slice(0, CHUNK / 2).batch().clone(), vec![Op::Delete; CHUNK / 2]));
        }
    }
    result
}

fn aggregates(chunks: &[Chunk]) {
    let input = bid_schema();
    let count = || call(AggregateFunction::Count, &[], None, DataType::Int64);
    let sum = || call(AggregateFunction::Sum, &[2], None, DataType::Decimal128(38, 0));
    let big = 2 << 30;
    run_aggregate("count, sum by channel", &input, &[3], vec![count(), sum()], true, chunks, big);
    run_aggregate("count global", &input, &[], vec![count()], true, chunks, big);
    run_aggregate("q17 by auction", &input, &[0], q17_calls(), true, chunks, big);
    run_aggregate("q17 by auction, deletes", &input, &[0], q17_calls(), false, &with_deletes(chunks), big);
    run_aggregate("count by bid (new groups)", &input, &[0, 1, 2], vec![count()], true, chunks, big);
    run_aggregate("count by bid (new), 16 MiB", &input, &[0, 1, 2], vec![count()], true, chunks, 16 << 20);
    run_aggregate("q15 distinct global", &input, &[], q15_calls(), true, chunks, big);
    run_aggregate("q16 distinct by channel", &input, &[3], q15_calls(), true, chunks, big);
    run_aggregate(
        "min max global, deletes",
        &input,
        &[],
        vec![call(AggregateFunction::Min, &[2], None, DataType::Int64), call(AggregateFunction::Max, &[2], None, DataType::Int64)],
        false,
        &with_deletes(chunks),
        big,
    );
    if wanted("q5 hop window") {
        let mut columns: Vec<Field> = input.fields().iter().map(|field| field.as_ref().clone()).collect();
        columns.extend(["window_start", "window_end"].map(|name| Field::new(name, timestamp(), true)));
        let windows = Arc::new(Schema::new(columns));
        let second = 1_000_000;
        let spec = OperatorSpec::HopWindow {
            time_column: 4,
            slide: WindowStep::Micros(2 * second),
            size: WindowStep::Micros(10 * second),
            offset_us: 0,
        };
        let mut hop = Bench::new(spec, vec![input.clone()], windows.clone(), big);
        let mut hopped = Vec::new();
        let start = Instant::now();
        for chunk in chunks {
            hop.push(0, chunk);
            hopped.extend(hop.emitted.drain(..).map(|chunk| (0, chunk)));
        }
        println!("{:32} {:8.2} M rows/s in", "hop window alone", (chunks.len() * CHUNK) as f64 / start.elapsed().as_secs_f64() / 1e6);
        let (spec, schema) = aggregate(&windows, &[0, 9, 10], vec![count()], true, Some(2));
        let mut bench = Bench::new(spec, vec![windows], schema, big);
        measure("q5 hop window count (hopped rows)", &mut bench, &hopped, Some((10, CHUNK * 100 / 5)));
    }
}

fn join_spec(kind: JoinKind, with_condition: bool, append_only: bool) -> (JoinSpec, SchemaRef, Vec<SchemaRef>) {
    let auctions =
        schema_of(&[("id", DataType::Int64), ("item", DataType::Utf8View), ("date_time", timestamp()), ("expires", timestamp())]);
    let bids = bid_schema();
    let fields: Vec<Field> = auctions.fields().iter().chain(bids.fields()).map(|field| field.as_ref().clone()).collect();
    let joined =
        Schema::new(fields.iter().enumerate().map(|(number, field)| field.clone().with_name(format!("c{number}"))).collect::<Vec<_>>());
    let physical = binary(col("c8", &joined).expect("a column"), BinaryOperator::GtEq, col("c2", &joined).expect("a column"), &joined);
    let physical = physical.expect("an expression");
    let condition = with_condition.then(|| Expression { text: physical.to_string(), physical });
    let output: Vec<usize> = match kind {
        JoinKind::LeftSemi => vec![0, 1],
        _ => vec![0, 1, 4, 5, 6, 8],
    };
    let schema = Arc::new(Schema::new(output.iter().map(|column| fields[*column].clone()).collect::<Vec<_>>()));
    let properties = StreamProperties { append_only, ..StreamProperties::default() };
    let spec = JoinSpec {
        kind,
        on: vec![(0, 0)],
        null_equal: vec![false],
        condition,
        output,
        left: properties.clone(),
        right: properties,
        left_bounds: Box::default(),
        right_bounds: Box::default(),
        left_expiry: None,
        right_expiry: None,
    };
    (spec, schema, vec![auctions, bids])
}

fn joins(bids: &[Chunk]) {
    let auctions = auctions(bids.len());
    let chunks: Vec<(usize, Chunk)> =
        bids.iter().zip(&auctions).flat_map(|(bid, auction)| [(0, auction.clone()), (1, bid.clone())]).collect();
    let cases = [
        ("join inner, append-only", JoinKind::Inner, false, true, 2 << 30),
        ("join inner, condition, append", JoinKind::Inner, true, true, 2 << 30),
        ("join inner, weighted", JoinKind::Inner, false, false, 2 << 30),
        ("join inner, append, 16 MiB", JoinKind::Inner, false, true, 16 << 20),
        ("join left, condition, append", JoinKind::Left, true, true, 2 << 30),
        ("join semi, append", JoinKind::LeftSemi, false, true, 2 << 30),
    ];
    for (name, kind, with_condition, append_only, budget) in cases {
        if wanted(name) {
            let (spec, schema, inputs) = join_spec(kind, with_condition, append_only);
            let mut bench = Bench::new(OperatorSpec::Join(spec), inputs, schema, budget);
            measure(name, &mut bench, &chunks, None);
        }
    }
}

fn main() {
    let chunks = bids(500);
    aggregates(&chunks);
    joins(&chunks);
}
