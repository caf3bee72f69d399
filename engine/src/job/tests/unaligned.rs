//! Checkpoints of a job whose input stands still and whose operator is slow: a table joined with a source, and a function that takes a
//! millisecond a row behind it.

use std::{
    fmt,
    hash::{Hash, Hasher},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use async_trait::async_trait;
use datafusion::{
    logical_expr::ColumnarValue,
    physical_expr::{PhysicalExpr, expressions::Column},
};
use millpond_storage::checkpoint::Checkpointer;
use tokio::sync::Notify;

use super::*;
use crate::{
    coordinator::sources::SourceSettings,
    error::Result as EngineResult,
    job::status::{CheckpointStatus, JobHandle},
    source::{Discovery, LateRows, Offset, ReadOutcome, Source, Split, SplitReader},
};

pub(super) const SOURCE: u64 = 3;
const READER: u64 = 4;
/// Keys that the source has a row of at first.
pub(super) const KEYS: i64 = 2500;
/// Rows of the source that its second reader does not get.
pub(super) const LATER: i64 = 100;

/// A source of rows (n, n): those up to `available`, but only `let_through` of them for readers of all columns.
#[derive(Debug, Default)]
struct Stalling {
    available: AtomicU64,
    let_through: AtomicU64,
    moved: Notify,
}

struct StallingReader {
    source: Arc<Stalling>,
    at: u64,
    projection: Vec<usize>,
}

#[derive(Debug)]
struct StallingSource(Arc<Stalling>);

#[async_trait]
impl Source for StallingSource {
    fn schema(&self) -> SchemaRef {
        schema(&["k", "w"])
    }

    async fn discover(&self) -> EngineResult<Discovery> {
        Ok(Discovery { splits: vec![Split { id: "s".into(), end: None, bounded: false }], complete: true })
    }

    async fn open(&self, _split: &Split, from: Offset, projection: &[usize]) -> EngineResult<Box<dyn SplitReader>> {
        Ok(Box::new(StallingReader { source: self.0.clone(), at: from, projection: projection.to_vec() }))
    }
}

#[async_trait]
impl SplitReader for StallingReader {
    async fn read(&mut self, max_rows: usize, limit: Option<Offset>) -> EngineResult<ReadOutcome> {
        loop {
            if limit.is_some_and(|limit| self.at >= limit) {
                return Ok(ReadOutcome::AtLimit);
            }
            let moved = self.source.moved.notified();
            let available = self.source.available.load(Ordering::SeqCst);
            let let_through = self.source.let_through.load(Ordering::SeqCst);
            let mine = if self.projection.len() < 2 { available } else { available.min(let_through) };
            let end = mine.min(self.at + max_rows as u64).min(limit.unwrap_or(u64::MAX));
            if end > self.at {
                let keys = Int64Array::from_iter_values(self.at as i64..end as i64);
                let batch = RecordBatch::try_new(schema(&["k", "w"]), vec![Arc::new(keys.clone()), Arc::new(keys)]).expect("two columns");
                self.at = end;
                return Ok(ReadOutcome::Rows { batch: batch.project(&self.projection)?, end, bad: Vec::new() });
            }
            if limit.is_none() && mine == available {
                return Ok(ReadOutcome::Pending { retry_after_us: 5000, idle: false });
            }
            moved.await;
        }
    }
}

impl Stalling {
    fn set(&self, available: u64, let_through: u64) {
        self.available.store(available, Ordering::SeqCst);
        self.let_through.store(let_through, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

/// Doubles a column, a millisecond a row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slow(pub(super) usize);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow(#{})", self.0)
    }
}

impl PhysicalExpr for Slow {
    fn data_type(&self, _schema: &Schema) -> datafusion::common::Result<DataType> {
        Ok(DataType::Int64)
    }

    fn nullable(&self, _schema: &Schema) -> datafusion::common::Result<bool> {
        Ok(true)
    }

    #[expect(clippy::disallowed_methods, reason = "the function is slow by purpose")]
    fn evaluate(&self, batch: &RecordBatch) -> datafusion::common::Result<ColumnarValue> {
        std::thread::sleep(Duration::from_millis(batch.num_rows() as u64));
        let values = batch.column(self.0).as_primitive::<Int64Type>();
        Ok(ColumnarValue::Array(Arc::new(values.iter().map(|value| value.map(|value| value * 2)).collect::<Int64Array>())))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn PhysicalExpr>>) -> datafusion::common::Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow(#{})", self.0)
    }
}

pub(super) fn node(id: usize, spec: OperatorSpec, inputs: Vec<NodeInput>, schema: &SchemaRef) -> OperatorNode {
    OperatorNode { id, spec, inputs, schema: schema.clone(), properties: StreamProperties::default() }
}

pub(super) fn edge(id: usize, from: usize, to: usize, schema: &SchemaRef) -> Exchange {
    let distribution = Distribution::Hash(vec![0]);
    Exchange { id, from, to, distribution, schema: schema.clone(), mode: ExchangeMode::Pipelined }
}

/// SELECT k, v, slow(w) FROM t JOIN s USING (k)
fn slow_join() -> DataflowGraph {
    let (t, s, joined) = (schema(&["k", "v"]), schema(&["k", "w"]), schema(&["k", "v", "w"]));
    let scan_t = node(0, OperatorSpec::CollectionScan { collection: TABLE, projection: vec![0, 1] }, vec![], &t);
    let scan_s = node(1, OperatorSpec::SourceScan { source: SOURCE, projection: vec![0, 1] }, vec![], &s);
    let join = JoinSpec {
        kind: JoinKind::Inner,
        on: vec![(0, 0)],
        null_equal: vec![false],
        condition: None,
        output: vec![0, 1, 3],
        left: StreamProperties::default(),
        right: StreamProperties { append_only: true, ..StreamProperties::default() },
        left_bounds: Box::default(),
        right_bounds: Box::default(),
        left_expiry: None,
        right_expiry: None,
    };
    let join = node(2, OperatorSpec::Join(join), vec![NodeInput::Exchange(0), NodeInput::Exchange(1)], &joined);
    let project = node(3, slow_projection(2, "w"), vec![NodeInput::Node(0)], &joined);
    let root = OperatorSpec::Materialize { collection: VIEW, key: CollectionKeySpec::WholeRow };
    let root = node(4, root, vec![NodeInput::Exchange(2)], &joined);
    DataflowGraph {
        fragments: vec![
            Fragment { id: 0, nodes: vec![scan_t], parallelism: Parallelism::Single },
            Fragment { id: 1, nodes: vec![scan_s], parallelism: Parallelism::Job },
            Fragment { id: 2, nodes: vec![join, project], parallelism: Parallelism::Job },
            Fragment { id: 3, nodes: vec![root], parallelism: Parallelism::Job },
        ],
        exchanges: vec![edge(0, 0, 2, &t), edge(1, 1, 2, &s), edge(2, 2, 3, &joined)],
    }
}

/// k, v and a function of another column that takes a millisecond a row.
pub(super) fn slow_projection(index: usize, name: &str) -> OperatorSpec {
    let column = |index: usize, name: &str| Expression { physical: Arc::new(Column::new(name, index)), text: name.into() };
    let slow = Expression { physical: Arc::new(Slow(index)), text: format!("slow({name})") };
    OperatorSpec::Project { expressions: vec![column(0, "k"), column(1, "v"), slow] }
}

/// Reads the source ahead of the view.
fn reader() -> DataflowGraph {
    let s = schema(&["k"]);
    let scan = node(0, OperatorSpec::SourceScan { source: SOURCE, projection: vec![0] }, vec![], &s);
    let root = node(1, OperatorSpec::Discard, vec![NodeInput::Node(0)], &s);
    let fragment = Fragment { id: 0, nodes: vec![scan, root], parallelism: Parallelism::Single };
    DataflowGraph { fragments: vec![fragment], exchanges: vec![] }
}

pub(super) struct Bench {
    pub(super) engine: Arc<Engine>,
    source: Arc<Stalling>,
    pub(super) view: Arc<JobHandle>,
}

/// Settings of a job that takes checkpoints only when it is told to.
pub(super) fn patient(parallelism: usize, timeout: Duration) -> JobOptions {
    JobOptions {
        checkpoint_interval: Duration::from_secs(3600),
        aligned_checkpoint_timeout: timeout,
        buffer_debloat_target: Duration::ZERO,
        ..options(parallelism)
    }
}

impl Bench {
    /// The engine over a directory, with all jobs started again, and the source with `available` rows for all.
    pub(super) async fn open(dir: &Path, parallelism: usize, timeout: Duration, available: i64) -> Self {
        let engine = bare_engine(dir, LogOptions::default()).await;
        let source = Arc::new(Stalling::default());
        source.set(available as u64, available as u64);
        let settings = SourceSettings { watermark: None, late_rows: LateRows::Keep, fail_on_bad_rows: false };
        engine.create_source(SOURCE, "s", Arc::new(StallingSource(source.clone())), settings).await.expect("a source");
        engine.recover().await.expect("recovers");
        let starting = engine.starting();
        let start = |id: u64, graph: DataflowGraph, collection: Option<CollectionSpec>| {
            let options = patient(parallelism, timeout);
            let spec = JobSpec { id, name: format!("job {id}"), kind: JobKind::View, graph, collection, sink: None, options };
            engine.start_job(spec).expect("starts")
        };
        start(READER, reader(), None);
        let view = start(VIEW, slow_join(), Some(view(dir, &["k", "v", "w"], CollectionKey::WholeRow)));
        drop(starting);
        engine.start_maintenance();
        Self { engine, source, view }
    }

    /// A job that is readable, reads both inputs, and has to wait: for rows of the source, and for its own function. Gives what it owes.
    pub(super) async fn stalled(dir: &Path, timeout: Duration) -> (Self, Vec<(i64, i64, i64)>) {
        let bench = Self::open(dir, 2, timeout, KEYS).await;
        bench.view.wait_ready().await.expect("ready");
        bench.wait_bound(KEYS).await;
        assert_eq!(read(&bench.engine).await, []);
        let pairs: Vec<_> = (0..KEYS).map(|key| (key, 7)).collect();
        insert(&bench.engine, &pairs).await;
        bench.source.set((KEYS + LATER) as u64, KEYS as u64);
        bench.wait_bound(KEYS + LATER).await;
        // Epochs that the join cannot close before the stalled one.
        insert(&bench.engine, &[(3, 8), (KEYS + 1, 9)]).await;
        delete(&bench.engine, &[(4, 7)]).await;
        let kept = pairs.into_iter().filter(|(key, _)| *key != 4).chain([(3, 8), (KEYS + 1, 9)]);
        let mut owed: Vec<_> = kept.map(|(key, value)| (key, value, 2 * key)).collect();
        owed.sort_unstable();
        (bench, owed)
    }

    /// Waits until an epoch has bound so many rows of the source.
    async fn wait_bound(&self, rows: i64) {
        let source = self.engine.source(SOURCE).expect("the source");
        let mut pulse = self.engine.coordinator().pulse();
        loop {
            pulse.mark_unchanged();
            let bound = source.bound_at(self.engine.coordinator().closed().epoch);
            if bound.get("s").is_some_and(|bound| bound.end >= rows as u64) {
                return;
            }
            pulse.changed().await.expect("the coordinator lives");
        }
    }

    /// The newest checkpoint of the view.
    fn newest(&self) -> CheckpointStatus {
        self.view.checkpoints().pop().expect("a checkpoint")
    }

    pub(super) async fn kill(self) {
        self.engine.stop().await;
    }

    /// What readers waited for comes.
    pub(super) fn release(&self) {
        self.source.set((KEYS + LATER) as u64, (KEYS + LATER) as u64);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// Bytes of messages that the newest manifest of the view lists; what it names is there and whole.
async fn in_flight_bytes(dir: &Path) -> u64 {
    let beside = tempfile::tempdir().expect("a folder");
    copy(dir, beside.path());
    let objects = ObjectStorage::local(&beside.path().join("objects")).expect("a folder");
    let checkpointer = Checkpointer::new(objects, VIEW, 1000, crate::graph_text::fingerprint(&slow_join()));
    let restored = checkpointer.restore().await.expect("it can be read").expect("a manifest");
    let flights = checkpointer.load_in_flight(&restored).await.expect("they can be read");
    assert!(restored.is_unaligned() && flights.iter().any(|flight| !flight.segments.is_empty()), "{:?}", restored.notes());
    restored.in_flight_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn a_checkpoint_waits_neither_for_an_input_that_stands_still_nor_for_a_slow_operator() {
    let dir = tempfile::tempdir().expect("a folder");
    let (bench, owed) = Bench::stalled(dir.path(), Duration::from_millis(100)).await;
    let began = Instant::now();
    bench.view.checkpoint().await.expect("a checkpoint");
    let took = began.elapsed();
    let newest = bench.newest();
    println!("unaligned: {took:?}, {newest:?}");
    assert!(took < Duration::from_secs(2), "{took:?}: {newest:?}");
    assert!(newest.in_flight_bytes.is_some_and(|bytes| bytes > 1000) && newest.error.is_none(), "{newest:?}");
    assert!(newest.subtasks.len() == 7 && newest.subtasks.iter().any(|subtask| subtask.is_unaligned), "{newest:?}");
    bench.kill().await;
    for parallelism in [1, 2, 3, 5] {
        let copied = tempfile::tempdir().expect("a folder");
        copy(dir.path(), copied.path());
        assert_eq!(in_flight_bytes(copied.path()).await, newest.in_flight_bytes.expect("it was unaligned"), "what its manifest lists");
        let bench = Bench::open(copied.path(), parallelism, Duration::from_secs(1), KEYS + LATER).await;
        assert_eq!(read(&bench.engine).await, owed, "from 2 to {parallelism}");
        assert_eq!(bench.view.recoveries()[0].from_epoch, newest.epoch, "the checkpoint that did not wait");
        bench.kill().await;
        let copied = tempfile::tempdir().expect("a folder");
        copy(dir.path(), copied.path());
        let bench = Bench::open(copied.path(), parallelism, Duration::ZERO, KEYS + LATER).await;
        // While what was in flight still drains.
        bench.view.checkpoint().await.expect("a checkpoint");
        assert!(bench.newest().in_flight_bytes.is_some(), "{:?}", bench.newest());
        bench.kill().await;
        let bench = Bench::open(copied.path(), 6 - parallelism, Duration::from_secs(1), KEYS + LATER).await;
        assert_eq!(read(&bench.engine).await, owed, "from 2 to {parallelism} to {}", 6 - parallelism);
        bench.view.checkpoint().await.expect("a checkpoint");
        bench.kill().await;
    }
}

/// The readers come to the checkpoint's barrier when the subtasks have long given their parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn behind_a_checkpoint_that_did_not_wait_the_job_goes_on_without_another() {
    let dir = tempfile::tempdir().expect("a folder");
    let (bench, mut owed) = Bench::stalled(dir.path(), Duration::from_millis(100)).await;
    bench.view.checkpoint().await.expect("a checkpoint");
    let newest = bench.newest();
    assert!(newest.in_flight_bytes.is_some(), "{newest:?}");
    bench.release();
    insert(&bench.engine, &[(5, 8)]).await;
    owed.push((5, 8, 10));
    owed.sort_unstable();
    let found = tokio::time::timeout(Duration::from_secs(60), read(&bench.engine)).await.expect("it does not stand still");
    assert_eq!(found, owed);
    assert_eq!(bench.newest().epoch, newest.epoch, "without another checkpoint");
    bench.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn an_aligned_checkpoint_waits_for_what_is_in_its_way() {
    let dir = tempfile::tempdir().expect("a folder");
    let (bench, owed) = Bench::stalled(dir.path(), Duration::from_secs(3600)).await;
    let waiting = tokio::time::timeout(Duration::from_secs(2), bench.view.checkpoint());
    assert!(waiting.await.is_err(), "{:?}", bench.newest());
    bench.release();
    assert_eq!(read(&bench.engine).await, owed);
    bench.view.checkpoint().await.expect("a checkpoint");
    assert_eq!(bench.newest().in_flight_bytes, None);
    bench.kill().await;
}
