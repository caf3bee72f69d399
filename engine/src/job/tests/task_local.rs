//! One subtask fails, in the midst of what it does, and the others go on.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::atomic::{AtomicI64, Ordering},
};

use datafusion::{
    logical_expr::ColumnarValue,
    physical_expr::{PhysicalExpr, expressions::Column},
};

use super::*;
use crate::job::status::{JobHandle, JobState};

/// Passes a column of numbers on; panics when it meets the number that it waits for: once, or each time if that number is above [`ALWAYS`].
#[derive(Debug, Clone)]
struct Fuse {
    column: usize,
    waits_for: Arc<AtomicI64>,
}

/// A fuse that waits for nothing.
const CALM: i64 = -1;

/// What is added to a number that is always to be met.
const ALWAYS: i64 = 1 << 40;

impl PartialEq for Fuse {
    fn eq(&self, other: &Self) -> bool {
        self.column == other.column
    }
}

impl Eq for Fuse {}

impl Hash for Fuse {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.column.hash(state);
    }
}

impl fmt::Display for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fuse(#{})", self.column)
    }
}

impl PhysicalExpr for Fuse {
    fn data_type(&self, _schema: &Schema) -> datafusion::common::Result<DataType> {
        Ok(DataType::Int64)
    }

    fn nullable(&self, _schema: &Schema) -> datafusion::common::Result<bool> {
        Ok(true)
    }

    fn evaluate(&self, batch: &RecordBatch) -> datafusion::common::Result<ColumnarValue> {
        let column = batch.column(self.column);
        let waits_for = self.waits_for.load(Ordering::SeqCst);
        let (number, next) = if waits_for > ALWAYS { (waits_for - ALWAYS, waits_for) } else { (waits_for, CALM) };
        let meets = waits_for != CALM && column.as_primitive::<Int64Type>().values().contains(&number);
        if meets && self.waits_for.compare_exchange(waits_for, next, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            std::panic::resume_unwind(Box::new("the fuse has blown"));
        }
        Ok(ColumnarValue::Array(column.clone()))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn PhysicalExpr>>) -> datafusion::common::Result<Arc<dyn PhysicalExpr>> {
        Ok(self)
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fuse(#{})", self.column)
    }
}

/// A place of a graph in which something can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In front of the aggregate, of the values that come in.
    Before,
    /// Behind it, of the greatest values: what it emits has then left in part.
    Behind,
    /// In the root, of the same values.
    Root,
}

const PLACES: [Place; 3] = [Place::Before, Place::Behind, Place::Root];

/// `SELECT k, count(*), max(v) FROM t GROUP BY k`, the aggregate and the root on subtasks of their own, with a fuse at each place.
fn fused(fuses: &[Arc<AtomicI64>; 3]) -> DataflowGraph {
    let mut graph = grouped();
    let column = |index: usize| Expression { physical: Arc::new(Column::new("c", index)), text: format!("#{index}") };
    let fuse = |place: Place, column| Expression {
        physical: Arc::new(Fuse { column, waits_for: fuses[place as usize].clone() }),
        text: "fuse".into(),
    };
    let node = |id, expressions, input, schema: &SchemaRef| OperatorNode {
        id,
        spec: OperatorSpec::Project { expressions },
        inputs: vec![input],
        schema: schema.clone(),
        properties: StreamProperties::default(),
    };
    let (table, view) = (graph.exchanges[0].schema.clone(), schema(&["k", "n", "m"]));
    let mut inner = graph.fragments.pop().expect("two fragments").nodes;
    let root = inner.pop().expect("two operators");
    let aggregate = inner.pop().expect("two operators");
    let first = node(3, vec![column(0), fuse(Place::Before, 1)], NodeInput::Exchange(0), &table);
    let aggregate = OperatorNode { inputs: vec![NodeInput::Node(0)], ..aggregate };
    let behind = node(4, vec![column(0), column(1), fuse(Place::Behind, 2)], NodeInput::Node(1), &view);
    let last = node(5, vec![column(0), column(1), fuse(Place::Root, 2)], NodeInput::Exchange(1), &view);
    graph.fragments.push(Fragment { id: 1, nodes: vec![first, aggregate, behind], parallelism: Parallelism::Job });
    graph.fragments.push(Fragment { id: 2, nodes: vec![last, root], parallelism: Parallelism::Job });
    let edge = Exchange { id: 1, from: 1, to: 2, distribution: Distribution::Hash(vec![0]), schema: view, mode: ExchangeMode::Pipelined };
    graph.exchanges.push(edge);
    graph
}

struct Bench {
    engine: Arc<Engine>,
    fuses: [Arc<AtomicI64>; 3],
    job: Arc<JobHandle>,
}

impl Bench {
    async fn open(dir: &Path, parallelism: usize, timeout: Duration, recovery: Recovery) -> Self {
        let engine = open(dir).await;
        // There is an epoch to begin at, though nothing is in the table.
        engine.coordinator().request_extra_epoch();
        engine.coordinator().tick().await.expect("a tick");
        let fuses = std::array::from_fn(|_| Arc::new(AtomicI64::new(CALM)));
        let options = JobOptions {
            checkpoint_interval: Duration::from_millis(150),
            aligned_checkpoint_timeout: timeout,
            recovery,
            ..options(parallelism)
        };
        let (graph, collection) = (fused(&fuses), Some(view(dir, &["k", "n", "m"], CollectionKey::Columns(vec![0]))));
        let spec = JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph, collection, sink: None, options };
        let job = engine.start_job(spec).expect("starts");
        engine.start_maintenance();
        job.wait_ready().await.expect("ready");
        Self { engine, fuses, job }
    }

    fn arm(&self, place: Place, number: i64) {
        self.fuses[place as usize].store(number, Ordering::SeqCst);
    }

    fn blown(&self, place: Place) -> bool {
        self.fuses[place as usize].load(Ordering::SeqCst) == CALM
    }
}

/// What the view must show of rows (k, v).
fn expected(rows: &[(i64, i64)]) -> Vec<(i64, i64, i64)> {
    let mut groups: std::collections::BTreeMap<i64, (i64, i64)> = Default::default();
    for (k, v) in rows {
        let group = groups.entry(*k).or_insert((0, i64::MIN));
        *group = (group.0 + 1, group.1.max(*v));
    }
    groups.into_iter().map(|(k, (n, m))| (k, n, m)).collect()
}

/// Keys of which each has a row more with every round: so many that what the aggregate emits leaves in parts.
const KEYS: i64 = 20_000;

async fn fails_everywhere(timeout: Duration) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut table: Vec<(i64, i64)> = Vec::new();
    let mut round = 0;
    for parallelism in [2, 3] {
        let bench = Bench::open(dir.path(), parallelism, timeout, Recovery::ExactlyOnce).await;
        assert_eq!(read(&bench.engine).await, expected(&table), "parallelism {parallelism}");
        let mut failures = 0;
        for place in PLACES.into_iter().chain(PLACES) {
            // A subtask keeps little more than what it takes in one round of all keys: there must be a checkpoint between two of them.
            bench.job.checkpoint().await.expect("a checkpoint");
            // Few keys first, so that there is something to be replayed, then many.
            for count in [10, KEYS] {
                round += 1;
                if count == KEYS {
                    bench.arm(place, KEYS * 3 / 4);
                }
                let rows: Vec<_> = (0..count).map(|k| (k, if count == KEYS { k } else { -round })).collect();
                insert(&bench.engine, &rows).await;
                table.extend(rows);
                if count == KEYS && round % 4 == 0 {
                    delete(&bench.engine, &[(7, 7)]).await;
                    let at = table.iter().position(|row| *row == (7, 7)).expect("it is there");
                    table.remove(at);
                }
                assert_eq!(read(&bench.engine).await, expected(&table), "parallelism {parallelism}, round {round}, {place:?}");
                failures += usize::from(count == KEYS && bench.blown(place));
            }
            bench.arm(place, CALM);
        }
        let recoveries = bench.job.recoveries();
        let alone = recoveries.iter().filter(|recovery| recovery.subtask.is_some());
        assert_eq!(alone.clone().count(), failures, "{recoveries:?}");
        assert!(failures == 6 && alone.clone().all(|recovery| recovery.why_whole.is_none()), "{recoveries:?}");
        assert!(alone.clone().all(|recovery| recovery.restored_from() == Some("memory")), "{recoveries:?}");
        let status = bench.job.status(bench.engine.coordinator().closed());
        assert_eq!((status.restarts, status.approximate_from), (0, None), "{recoveries:?}");
        bench.job.checkpoint().await.expect("a checkpoint");
        insert(&bench.engine, &[(1, 1)]).await;
        table.push((1, 1));
        assert_eq!(read(&bench.engine).await, expected(&table), "parallelism {parallelism}");
        bench.engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_subtask_that_fails_is_restarted_alone_and_nothing_is_lost_or_doubled() {
    fails_everywhere(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_subtask_fails_between_checkpoints_that_do_not_wait() {
    fails_everywhere(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_no_restart_helps_against_is_found_and_can_be_left_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let bench = Bench::open(dir.path(), 2, Duration::from_secs(10), Recovery::ExactlyOnce).await;
    bench.arm(Place::Before, ALWAYS + 5);
    insert(&bench.engine, &[(1, 4), (1, 5), (1, 6), (2, 7)]).await;
    let failure = bench.job.wait_failed().await.to_string();
    assert!(failure.contains("the fuse has blown") && failure.contains("(Project 3, row: 1 5)"), "{failure}");
    let recoveries = bench.job.recoveries();
    assert_eq!(recoveries.iter().filter(|recovery| recovery.subtask.is_some()).count(), 1, "{recoveries:?}");
    let why = recoveries.iter().find_map(|recovery| recovery.why_whole.clone());
    assert_eq!(why.as_deref(), Some("the subtask had been restarted alone at the same epoch"), "{recoveries:?}");
    let status = bench.job.status(bench.engine.coordinator().closed());
    assert_eq!((status.state, status.restarts), (JobState::Failed, 1), "the subtask, the job, the job with its rows one at a time");
    bench.job.resume(true).expect("it had failed");
    assert_eq!(read(&bench.engine).await, [(1, 2, 6), (2, 1, 7)]);
    // It is left out as well when the subtask takes its rows again.
    bench.arm(Place::Before, 8);
    insert(&bench.engine, &[(1, 8), (1, 5)]).await;
    assert_eq!(read(&bench.engine).await, [(1, 3, 8), (2, 1, 7)]);
    let alone = bench.job.recoveries().iter().filter(|recovery| recovery.subtask.is_some()).count();
    assert!(bench.blown(Place::Before) && alone == 2, "{alone}");
    bench.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_approximate_job_goes_on_without_what_a_subtask_had_taken() {
    let dir = tempfile::tempdir().expect("a folder");
    let bench = Bench::open(dir.path(), 2, Duration::from_secs(10), Recovery::Approximate).await;
    let rows: Vec<_> = (0..1000).map(|k| (k, 1)).collect();
    insert(&bench.engine, &rows).await;
    assert_eq!(read(&bench.engine).await, expected(&rows));
    bench.job.checkpoint().await.expect("a checkpoint");
    bench.arm(Place::Before, 9);
    insert(&bench.engine, &[(1, 9), (2, 8)]).await;
    let found = read(&bench.engine).await;
    assert!(bench.blown(Place::Before) && found.len() == 1000, "{} groups", found.len());
    let lost = found.iter().filter(|(_, n, _)| *n == 1).count();
    assert!(lost >= 999, "what was in the chunk is lost: {lost}");
    insert(&bench.engine, &[(1, 3), (2, 4)]).await;
    let found = read(&bench.engine).await;
    assert_eq!((found[1].1, found.len()), (2, 1000), "later rows count");
    let status = bench.job.status(bench.engine.coordinator().closed());
    assert!(status.approximate_from.is_some() && status.restarts == 0 && status.state == JobState::Running, "{status:?}");
    bench.job.checkpoint().await.expect("a checkpoint");
    bench.engine.stop().await;
    let bench = Bench::open(dir.path(), 3, Duration::from_secs(10), Recovery::Approximate).await;
    assert_eq!(read(&bench.engine).await, found);
    bench.engine.stop().await;
}
