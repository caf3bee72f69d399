//! Every stateful operator with a budget of 4 MiB and a hundred times as much state, in RocksDB.

use std::sync::{Arc, LazyLock};

use arrow::{
    array::{ArrayRef, Int64Array, StringViewArray, TimestampMicrosecondArray},
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit},
    record_batch::RecordBatch,
};
use millpond_storage::state_store::StateBackend;

use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::{
    chunk::{Chunk, Op},
    graph::{
        AggregateCall, AggregateFunction, AggregateSpec, JoinKind, JoinSpec, OperatorSpec, OrderColumn, RankKind, StreamProperties,
        TopNSpec,
    },
    harness::{Harness, Settings, node},
};

const BUDGET: usize = 4 << 20;

/// Characters of the text of a row.
const WIDTH: usize = 4_000;

/// Rows of a history: with their texts a hundred times the budget.
const ROWS: i64 = (100 * BUDGET / WIDTH) as i64;

const CHUNK: i64 = 64;

/// `k` (the row's number), `g` (k % 10), `t` (k seconds) and `s`, a text that hardly compresses and orders like `k`.
fn input() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let fields = [("k", DataType::Int64), ("g", DataType::Int64), ("t", time), ("s", DataType::Utf8View)];
    Arc::new(Schema::new(fields.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()))
}

/// Random letters, out of which each row cuts its text.
static LETTERS: LazyLock<String> = LazyLock::new(|| {
    let mut random = SmallRng::seed_from_u64(1);
    (0..1 << 20).map(|_| random.random_range(b'a'..=b'z') as char).collect()
});

fn text(k: i64) -> String {
    let from = (k as usize).wrapping_mul(7919) % (LETTERS.len() - WIDTH);
    format!("{k:012}{}", &LETTERS[from..from + WIDTH - 12])
}

fn chunk(keys: impl IntoIterator<Item = i64>, op: Op) -> Chunk {
    let keys: Vec<i64> = keys.into_iter().collect();
    let times = TimestampMicrosecondArray::from_iter_values(keys.iter().map(|k| k * 1_000_000));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(keys.clone())),
        Arc::new(Int64Array::from_iter_values(keys.iter().map(|k| k % 10))),
        Arc::new(times),
        Arc::new(StringViewArray::from_iter_values(keys.iter().map(|k| text(*k)))),
    ];
    let batch = RecordBatch::try_new(input(), columns).expect("four columns");
    let ops = vec![op; batch.num_rows()];
    Chunk::new(batch, ops)
}

/// A bench with little memory whose output is counted.
struct Bench {
    harness: Harness,
    most: usize,
}

impl Bench {
    fn new(spec: OperatorSpec, ports: usize, output: &[usize]) -> Self {
        let schema = Arc::new(input().project(output).expect("columns of the input"));
        Self::over(spec, ports, schema)
    }

    fn over(spec: OperatorSpec, ports: usize, output: SchemaRef) -> Self {
        let settings = Settings { budget_bytes: BUDGET, backend: StateBackend::RocksDb, ..Settings::default() };
        let mut harness = Harness::new(node(spec, ports, output), vec![input(); ports], settings);
        harness.count_only(true);
        Self { harness, most: 0 }
    }

    fn push(&mut self, port: usize, chunk: Chunk) {
        self.harness.push_chunk(port, chunk);
        self.most = self.most.max(self.harness.memory_used());
    }

    /// All rows, epoch by epoch.
    fn fill(&mut self, port: usize, rows: i64) {
        for first in (0..rows).step_by(CHUNK as usize) {
            self.push(port, chunk(first..(first + CHUNK).min(rows), Op::Insert));
            if first % (CHUNK * 100) == 0 {
                self.harness.barrier();
            }
        }
        self.harness.barrier();
    }

    /// The changes of one more epoch, in which texts are cut to the numbers they begin with.
    fn changes(&mut self, port: usize, changes: &[(i64, Op)]) -> String {
        self.harness.count_only(false);
        for (k, op) in changes {
            self.push(port, chunk([*k], *op));
        }
        let text = self.harness.barrier();
        self.harness.count_only(true);
        let short = |word: &str| if word.len() > 12 { word[..12].trim_start_matches('0').to_owned() } else { word.to_owned() };
        text.lines().map(|line| line.split(' ').map(short).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("\n")
    }

    /// The budget was kept but for what a chunk touches, which an operator and each of its tables keep in any case.
    fn check_memory(&self) {
        assert!(self.most < 3 * BUDGET, "{} bytes were taken from a budget of {BUDGET}", self.most);
    }
}

fn call(function: AggregateFunction, arguments: &[usize], distinct: bool, output: DataType) -> AggregateCall {
    AggregateCall { function, arguments: arguments.to_vec(), distinct, filter: None, order_by: Vec::new(), output }
}

fn aggregate(group_by: usize, calls: Vec<AggregateCall>, append_only_input: bool) -> Bench {
    let mut fields = vec![input().field(group_by).clone()];
    fields.extend(calls.iter().map(|call| Field::new("value", call.output.clone(), true)));
    let spec = AggregateSpec { group_by: vec![group_by], calls, append_only_input, expiry: None, emit_on_close: None };
    Bench::over(OperatorSpec::Aggregate(spec), 1, Arc::new(Schema::new(fields)))
}

#[test]
fn many_wide_groups() {
    let mut bench = aggregate(0, vec![call(AggregateFunction::Max, &[3], false, DataType::Utf8View)], true);
    bench.fill(0, ROWS);
    assert_eq!(bench.harness.emitted(), ROWS);
    // A group that was written long ago is read back: it has this text already.
    assert_eq!(bench.changes(0, &[(7, Op::Insert)]), "");
    bench.check_memory();
}

#[test]
fn all_values_of_few_groups() {
    let calls =
        vec![call(AggregateFunction::Min, &[3], false, DataType::Utf8View), call(AggregateFunction::Count, &[3], true, DataType::Int64)];
    let mut bench = aggregate(1, calls, false);
    bench.fill(0, ROWS / 2);
    assert_eq!(bench.harness.emitted(), 10);
    let count = (ROWS / 2 - 4 + 9) / 10;
    assert_eq!(bench.changes(0, &[(4, Op::Delete), (14, Op::Delete), (24, Op::Insert)]), format!("- 4 4 {count}\n+ 4 24 {}", count - 2));
    bench.check_memory();
}

#[test]
fn a_top_n_over_all_rows() {
    let order = OrderColumn { column: 0, descending: false, nulls_first: false };
    let spec = TopNSpec {
        partition_by: vec![1],
        order_by: vec![order],
        limit: Some(2),
        offset: 0,
        rank: RankKind::RowNumber,
        emit_rank: false,
        append_only_input: false,
        expiry: None,
    };
    let mut bench = Bench::new(OperatorSpec::TopN(spec), 1, &[0, 1, 2, 3]);
    bench.fill(0, ROWS);
    assert_eq!(bench.harness.emitted(), 20);
    let changes = bench.changes(0, &[(5, Op::Delete)]);
    assert_eq!(changes.lines().map(|line| line.split(' ').take(2).collect::<String>()).collect::<Vec<_>>(), ["+25", "-5"]);
    bench.check_memory();
}

fn join(kind: JoinKind, output: &[usize]) -> Bench {
    let spec = JoinSpec {
        kind,
        on: vec![(0, 0)],
        null_equal: vec![false],
        condition: None,
        output: output.to_vec(),
        left: StreamProperties::default(),
        right: StreamProperties::default(),
        left_bounds: Box::default(),
        right_bounds: Box::default(),
        left_expiry: None,
        right_expiry: None,
    };
    Bench::new(OperatorSpec::Join(spec), 2, &output.iter().map(|column| column % 4).collect::<Vec<_>>())
}

#[test]
fn joins_of_wide_sides() {
    // One kind of join with all the state there is to be, the others with a part of it.
    for (kind, output, unmatched, share) in
        [(JoinKind::Full, [0, 3, 7], 2, 1), (JoinKind::Inner, [0, 3, 7], 0, 10), (JoinKind::LeftAnti, [0, 1, 3], 1, 10)]
    {
        let mut bench = join(kind, &output);
        // The sides overlap in no key but those of the changes below.
        let half = ROWS / 2 / share;
        for first in (0..half).step_by(CHUNK as usize) {
            bench.push(0, chunk((first..first + CHUNK).map(|k| 2 * k), Op::Insert));
            bench.push(1, chunk((first..first + CHUNK).map(|k| 2 * k + 1), Op::Insert));
            if first % (CHUNK * 100) == 0 {
                bench.harness.barrier();
            }
        }
        bench.harness.barrier();
        let side = half.div_euclid(CHUNK) * CHUNK + if half % CHUNK == 0 { 0 } else { CHUNK };
        assert_eq!(bench.harness.emitted(), unmatched * side, "{kind:?}");
        // A row that was written long ago meets one of the other side.
        let changes = bench.changes(1, &[(8, Op::Insert)]);
        let expected = match kind {
            JoinKind::Inner => "+ 8 8 8",
            JoinKind::Full => "+ 8 8 8\n- 8 8 NULL",
            _ => "- 8 8 8",
        };
        assert_eq!(changes, expected, "{kind:?}");
        bench.check_memory();
    }
}

#[test]
fn rows_that_wait_for_a_watermark() {
    let mut bench = Bench::new(OperatorSpec::EmitOnWindowClose { column: 2 }, 1, &[0, 1, 2, 3]);
    bench.fill(0, ROWS);
    assert_eq!(bench.harness.emitted(), 0);
    bench.harness.watermark(0, 2, 1000 * 1_000_000);
    bench.harness.barrier();
    let early = bench.harness.emitted();
    assert!((1000..=1001).contains(&early), "{early}");
    bench.harness.watermark(0, 2, i64::MAX);
    bench.harness.barrier();
    assert_eq!(bench.harness.emitted(), ROWS);
    bench.check_memory();
}
