//! What the exchange before a slow operator holds: a table, and a function behind a hash edge that takes as many rows as it is let, and for each a
//! millisecond of the engine's time, which nothing else moves on.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use datafusion::{
    common::Result as DataFusionResult,
    logical_expr::ColumnarValue,
    physical_expr::{PhysicalExpr, expressions::Column},
};
use parking_lot::{Condvar, Mutex};

use super::{
    unaligned::{edge, node},
    *,
};
use crate::{
    exchange::debloat::{Bounds, CHANNEL_ROWS},
    job::status::{ExchangeStatus, JobHandle},
};

const ROWS: usize = 5000;
/// Rows a second of the slow function.
const RATE: f64 = 1000.0;
const TARGET: Duration = Duration::from_millis(100);
/// Rows that a channel may hold then, and a chunk more of what comes together.
const HELD_ROWS: usize = 100 + 16;
/// For what comes however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many rows the slow function may take.
struct Gate {
    clock: Clock,
    rows: Mutex<GateRows>,
    moved: Condvar,
}

#[derive(Default)]
struct GateRows {
    /// What it may still take.
    allowed: usize,
    taken: usize,
    /// What it has been called with and may not take yet.
    waiting: usize,
}

impl GateRows {
    fn take(&mut self, count: usize) -> bool {
        let may = self.allowed >= count;
        if may {
            self.allowed -= count;
            self.taken += count;
        }
        may
    }
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::new(Self { clock: Clock::manual(1_000_000), rows: Mutex::default(), moved: Condvar::new() })
    }

    fn let_through(&self, more: usize) {
        let mut rows = self.rows.lock();
        rows.allowed = rows.allowed.saturating_add(more);
        // Those who wait look again.
        rows.waiting = 0;
        self.moved.notify_all();
    }

    /// Waits until so many rows may be taken, and takes them.
    fn pass(&self, count: usize) {
        if !self.rows.lock().take(count) {
            // Others have the thread meanwhile.
            tokio::task::block_in_place(|| {
                let mut rows = self.rows.lock();
                while !rows.take(count) {
                    rows.waiting += count;
                    self.moved.wait(&mut rows);
                }
            });
        }
        self.clock.advance(Duration::from_secs_f64(count as f64 / RATE));
    }

    fn waiting(&self) -> usize {
        self.rows.lock().waiting
    }

    fn taken(&self) -> usize {
        self.rows.lock().taken
    }
}

/// Opens a gate at the end of its test, which could not end otherwise.
struct Opening(Arc<Gate>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.let_through(usize::MAX);
    }
}

/// Doubles a column.
#[derive(Clone)]
struct Slow {
    column: usize,
    gate: Arc<Gate>,
}

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.column == other.column && Arc::ptr_eq(&self.gate, &other.gate)
    }
}

impl Eq for Slow {}

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
    }
}

impl fmt::Debug for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow(#{})", self.column)
    }
}

impl PhysicalExpr for Slow {
    fn data_type(&self, _schema: &Schema) -> DataFusionResult<DataType> {
        Ok(DataType::Int64)
    }

    fn nullable(&self, _schema: &Schema) -> DataFusionResult<bool> {
        Ok(true)
    }

    fn evaluate(&self, batch: &RecordBatch) -> DataFusionResult<ColumnarValue> {
        self.gate.pass(batch.num_rows());
        let values = batch.column(self.column).as_primitive::<Int64Type>();
        Ok(ColumnarValue::Array(Arc::new(values.iter().map(|value| value.map(|value| value * 2)).collect::<Int64Array>())))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn PhysicalExpr>>) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// SELECT k, v, slow(v) FROM t
fn slow(gate: &Arc<Gate>) -> DataflowGraph {
    let (t, view) = (schema(&["k", "v"]), schema(&["k", "v", "w"]));
    let scan = node(0, OperatorSpec::CollectionScan { collection: TABLE, projection: vec![0, 1] }, vec![], &t);
    let column = |index: usize, name: &str| Expression { physical: Arc::new(Column::new(name, index)), text: name.into() };
    let slow = Expression { physical: Arc::new(Slow { column: 1, gate: gate.clone() }), text: "slow(v)".into() };
    let project = OperatorSpec::Project { expressions: vec![column(0, "k"), column(1, "v"), slow] };
    let project = node(1, project, vec![NodeInput::Exchange(0)], &view);
    let root = OperatorSpec::Materialize { collection: VIEW, key: CollectionKeySpec::WholeRow };
    let root = node(2, root, vec![NodeInput::Exchange(1)], &view);
    DataflowGraph {
        fragments: vec![
            Fragment { id: 0, nodes: vec![scan], parallelism: Parallelism::Single },
            Fragment { id: 1, nodes: vec![project], parallelism: Parallelism::Job },
            Fragment { id: 2, nodes: vec![root], parallelism: Parallelism::Job },
        ],
        exchanges: vec![edge(0, 0, 1, &t), edge(1, 1, 2, &view)],
    }
}

fn options_with(target: Duration, parallelism: usize) -> JobOptions {
    let checkpoint = Duration::from_secs(3600);
    JobOptions {
        checkpoint_interval: checkpoint,
        aligned_checkpoint_timeout: checkpoint,
        buffer_debloat_target: target,
        ..options(parallelism)
    }
}

/// A job that is readable and has then been given all rows at once, in epochs up to the one answered.
async fn flooded(dir: &Path, gate: &Arc<Gate>, target: Duration, parallelism: usize) -> (Arc<Engine>, Arc<JobHandle>, Epoch) {
    let engine = bare_engine_at(dir, LogOptions::default(), gate.clock.clone()).await;
    engine.recover().await.expect("recovers");
    let spec = JobSpec {
        id: VIEW,
        name: "v".into(),
        kind: JobKind::View,
        graph: slow(gate),
        collection: Some(view(dir, &["k", "v", "w"], CollectionKey::WholeRow)),
        sink: None,
        options: options_with(target, parallelism),
    };
    let job = engine.start_job(spec).expect("starts");
    job.wait_ready().await.expect("ready");
    insert(&engine, &(0..ROWS as i64).map(|key| (key, 10 * key)).collect::<Vec<_>>()).await;
    engine.coordinator().tick().await.expect("a tick");
    let owed = engine.coordinator().closed().epoch;
    (engine, job, owed)
}

/// The channels before the slow operator.
fn before_slow(job: &JobHandle) -> Vec<ExchangeStatus> {
    job.exchanges().into_iter().filter(|edge| edge.exchange == Some(0)).collect()
}

fn buffered_rows(edges: &[ExchangeStatus]) -> usize {
    edges.iter().map(|edge| edge.channel.buffered_rows).sum()
}

fn expected() -> Vec<(i64, i64, i64)> {
    (0..ROWS as i64).map(|key| (key, 10 * key, 20 * key)).collect()
}

/// Waits for what is bound to come.
pub(super) async fn until(mut has_come: impl FnMut() -> bool) {
    let waiting = async {
        while !has_come() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it comes");
}

/// The slow operator waits, and so does who feeds it: an exchange of it has no room.
async fn standstill(gate: &Gate, job: &JobHandle) -> Vec<ExchangeStatus> {
    let is_full = |edge: &ExchangeStatus| edge.channel.buffered_rows >= edge.channel.bounds.rows;
    until(|| gate.waiting() > 0 && before_slow(job).iter().any(is_full)).await;
    before_slow(job)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_holds_what_a_slow_consumer_takes_within_the_target() {
    for parallelism in [1, 2] {
        let (dir, gate) = (tempfile::tempdir().expect("a folder"), Gate::closed());
        let (engine, job, owed) = flooded(dir.path(), &gate, TARGET, parallelism).await;
        let opening = Opening(gate.clone());
        // Nothing is known of the consumers.
        let edges = standstill(&gate, &job).await;
        assert_eq!(edges.len(), parallelism);
        assert!(
            edges.iter().all(|edge| edge.channel.bounds == Bounds::first(TARGET) && edge.channel.rows_per_second.is_none()),
            "{edges:?}"
        );
        assert!(edges.iter().any(|edge| edge.channel.buffered_rows > 2 * HELD_ROWS), "{edges:?}");
        // By now it is, and what had come before has gone. Two of them share the one clock, so that each seems slower.
        gate.let_through(3000);
        let edges = standstill(&gate, &job).await;
        for ExchangeStatus { channel, target, .. } in &edges {
            let (rate, is_alone) = (channel.rows_per_second.expect("a rate"), parallelism == 1);
            assert!(rate < RATE + 1.0 && (rate > RATE - 1.0 || !is_alone), "{edges:?}");
            assert!(channel.bounds.rows <= 100 && (channel.bounds.rows >= 99 || !is_alone) && channel.bounds.chunk_rows == 16, "{edges:?}");
            assert!(channel.buffered_rows <= HELD_ROWS && *target == TARGET, "{edges:?}");
        }
        // Not because there is nothing left to come.
        assert!(gate.taken() + gate.waiting() + buffered_rows(&edges) < ROWS, "{edges:?}");
        drop(opening);
        until(|| {
            let edges = before_slow(&job);
            assert!(edges.iter().all(|edge| edge.channel.bounds.rows <= 100), "larger again: {edges:?}");
            job.sealed() >= owed
        })
        .await;
        assert_eq!(read(&engine).await, expected());
        // Another target takes effect while the job runs.
        job.reconfigure(options_with(Duration::ZERO, parallelism));
        while before_slow(&job).iter().any(|edge| edge.channel.bounds.is_debloated()) {
            insert(&engine, &(0..200).map(|key| (key, 0)).collect::<Vec<_>>()).await;
            read(&engine).await;
        }
        engine.stop().await;
        assert!(job.exchanges().is_empty(), "nothing runs any more");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_is_not_debloated_holds_all_that_comes() {
    for parallelism in [1, 2] {
        let (dir, gate) = (tempfile::tempdir().expect("a folder"), Gate::closed());
        let (engine, job, _) = flooded(dir.path(), &gate, Duration::ZERO, parallelism).await;
        let opening = Opening(gate.clone());
        until(|| {
            let edges = before_slow(&job);
            assert!(edges.iter().all(|edge| edge.channel.bounds.rows == CHANNEL_ROWS), "{edges:?}");
            gate.waiting() + buffered_rows(&edges) == ROWS
        })
        .await;
        drop(opening);
        assert_eq!(read(&engine).await, expected());
        engine.stop().await;
    }
}
