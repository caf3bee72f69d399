//! Jobs on hand-built graphs: tables in, a view out, through failures of the process.

mod backfill;
mod crashes;
mod debloat;
mod folder;
mod rescale;
mod sink;
mod snapshots;
mod splits;
mod task_local;
mod unaligned;

use std::{path::Path, sync::Arc, time::Duration};

use arrow::{
    array::{AsArray, Int64Array},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use millpond_storage::{
    collection::{Collection, CollectionKey, CollectionSpec, ScanRequest},
    env::Clock,
    epoch::Epoch,
    epoch_log::LogOptions,
    memory::MemoryBudget,
    object::ObjectStorage,
    signed_batch::SignedBatch,
    state_store::StateBackend,
};

use super::spec::{DEFAULT_RECOVERY_TARGET, JobKind, JobOptions, JobSpec, ReadableWhen, Recovery};
use crate::{
    coordinator::read::Freshness,
    coordinator::table::TableSpec,
    engine::{Engine, EngineConfig},
    graph::*,
};

const TABLE: u64 = 1;
const VIEW: u64 = 2;

fn schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect::<Vec<_>>()))
}

fn rows(pairs: &[(i64, i64)]) -> RecordBatch {
    let k = Int64Array::from_iter_values(pairs.iter().map(|(k, _)| *k));
    let v = Int64Array::from_iter_values(pairs.iter().map(|(_, v)| *v));
    RecordBatch::try_new(schema(&["k", "v"]), vec![Arc::new(k), Arc::new(v)]).expect("two columns")
}

/// SELECT k, count(*), max(v) FROM t GROUP BY k
fn grouped() -> DataflowGraph {
    let table = schema(&["k", "v"]);
    let view = schema(&["k", "n", "m"]);
    let scan = OperatorNode {
        id: 0,
        spec: OperatorSpec::CollectionScan { collection: TABLE, projection: vec![0, 1] },
        inputs: vec![],
        schema: table.clone(),
        properties: StreamProperties::default(),
    };
    let call = |function, arguments: Vec<usize>| AggregateCall {
        function,
        arguments,
        distinct: false,
        filter: None,
        order_by: vec![],
        output: DataType::Int64,
    };
    let aggregate = OperatorNode {
        id: 1,
        spec: OperatorSpec::Aggregate(AggregateSpec {
            group_by: vec![0],
            calls: vec![call(AggregateFunction::Count, vec![]), call(AggregateFunction::Max, vec![1])],
            append_only_input: false,
            expiry: None,
            emit_on_close: None,
        }),
        inputs: vec![NodeInput::Exchange(0)],
        schema: view.clone(),
        properties: StreamProperties::default(),
    };
    let root = OperatorNode {
        id: 2,
        spec: OperatorSpec::Materialize { collection: VIEW, key: CollectionKeySpec::Columns(vec![0]) },
        inputs: vec![NodeInput::Node(0)],
        schema: view,
        properties: StreamProperties::default(),
    };
    let edge = Exchange { id: 0, from: 0, to: 1, distribution: Distribution::Hash(vec![0]), schema: table, mode: ExchangeMode::Pipelined };
    DataflowGraph {
        fragments: vec![
            Fragment { id: 0, nodes: vec![scan], parallelism: Parallelism::Single },
            Fragment { id: 1, nodes: vec![aggregate, root], parallelism: Parallelism::Job },
        ],
        exchanges: vec![edge],
    }
}

async fn open(dir: &Path) -> Arc<Engine> {
    open_with(dir, LogOptions::default()).await
}

async fn open_with(dir: &Path, log: LogOptions) -> Arc<Engine> {
    let engine = bare_engine(dir, log).await;
    engine.recover().await.expect("recovers");
    engine
}

/// An engine with the table, before it recovers.
async fn bare_engine(dir: &Path, log: LogOptions) -> Arc<Engine> {
    bare_engine_at(dir, log, Clock::system()).await
}

/// The same with a clock of the test's.
async fn bare_engine_at(dir: &Path, log: LogOptions, clock: Clock) -> Arc<Engine> {
    bare_engine_over(dir, log, clock, ObjectStorage::local(&dir.join("objects")).expect("a folder")).await
}

/// The same with its objects elsewhere, or with faults.
async fn bare_engine_over(dir: &Path, log: LogOptions, clock: Clock, objects: ObjectStorage) -> Arc<Engine> {
    let config = EngineConfig {
        data_dir: dir.to_path_buf(),
        objects,
        memory: MemoryBudget::new(64 << 20),
        parallelism: 2,
        tick: Duration::from_millis(20),
        log,
        clock,
    };
    let engine = Engine::open(config).await.expect("opens");
    let table = TableSpec {
        id: TABLE,
        name: "t".into(),
        schema: schema(&["k", "v"]),
        primary_key: None,
        append_only: false,
        watermark: None,
        diverts_late_rows: false,
    };
    engine.create_table(table).expect("a table");
    engine
}

/// The contents of a view with these columns.
fn view(dir: &Path, columns: &[&str], key: CollectionKey) -> CollectionSpec {
    CollectionSpec { id: VIEW, schema: schema(columns), key, directory: dir.join("ignored"), durable_deltas: true }
}

/// Settings of a job with frequent checkpoints.
fn options(parallelism: usize) -> JobOptions {
    JobOptions {
        parallelism,
        checkpoint_interval: Duration::from_millis(200),
        aligned_checkpoint_timeout: Duration::from_secs(1),
        buffer_debloat_target: Duration::from_secs(1),
        recovery_target: DEFAULT_RECOVERY_TARGET,
        readable: ReadableWhen::AtOnce,
        state_backend: StateBackend::RocksDb,
        recovery: Recovery::ExactlyOnce,
    }
}

fn start(engine: &Engine, dir: &Path, parallelism: usize) -> Arc<super::status::JobHandle> {
    let (collection, options) = (Some(view(dir, &["k", "n", "m"], CollectionKey::Columns(vec![0]))), options(parallelism));
    let spec = JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph: grouped(), collection, sink: None, options };
    let handle = engine.start_job(spec).expect("starts");
    engine.start_maintenance();
    handle
}

async fn read(engine: &Engine) -> Vec<(i64, i64, i64)> {
    let point = engine.read_epoch(&[VIEW], Freshness::Default, Duration::from_secs(20)).await;
    let point = point.unwrap_or_else(|error| panic!("{error}: {:?}", engine.jobs()));
    rows_of(&engine.collection(VIEW).expect("the view"), point.epoch)
}

/// The rows of a view of three columns at an epoch.
fn rows_of(collection: &Arc<Collection>, epoch: Epoch) -> Vec<(i64, i64, i64)> {
    let mut found = Vec::new();
    for step in collection.scan(epoch, ScanRequest::default()).expect("a scan") {
        let batch = step.expect("a batch").batch;
        let column = |i: usize| batch.column(i).as_primitive::<Int64Type>().clone();
        let (k, n, m) = (column(0), column(1), column(2));
        found.extend((0..batch.num_rows()).map(|row| (k.value(row), n.value(row), m.value(row))));
    }
    found.sort_unstable();
    found
}

async fn insert(engine: &Engine, pairs: &[(i64, i64)]) {
    engine.append(vec![(TABLE, vec![SignedBatch::inserts(rows(pairs))])]).await.expect("appended");
}

async fn delete(engine: &Engine, pairs: &[(i64, i64)]) {
    engine.append(vec![(TABLE, vec![SignedBatch::new(rows(pairs), vec![-1; pairs.len()])])]).await.expect("appended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_shows_every_acknowledged_change_also_after_restarts_at_another_parallelism() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = open(dir.path()).await;
    insert(&engine, &[(1, 10), (1, 30), (2, 5)]).await;
    let job = start(&engine, dir.path(), 2);
    job.wait_ready().await.expect("ready");
    assert_eq!(read(&engine).await, [(1, 2, 30), (2, 1, 5)]);
    delete(&engine, &[(1, 30)]).await;
    insert(&engine, &[(3, 7)]).await;
    assert_eq!(read(&engine).await, [(1, 1, 10), (2, 1, 5), (3, 1, 7)]);
    job.checkpoint().await.expect("a checkpoint");
    insert(&engine, &[(1, 11)]).await;
    assert_eq!(read(&engine).await, [(1, 2, 11), (2, 1, 5), (3, 1, 7)]);
    engine.stop().await;
    drop((engine, job));
    for parallelism in [3, 1] {
        let engine = open(dir.path()).await;
        let job = start(&engine, dir.path(), parallelism);
        assert_eq!(read(&engine).await, [(1, 2, 11), (2, 1, 5), (3, 1, 7)], "parallelism {parallelism}");
        insert(&engine, &[(9, parallelism as i64)]).await;
        assert!(read(&engine).await.contains(&(9, 1, parallelism as i64)));
        delete(&engine, &[(9, parallelism as i64)]).await;
        assert_eq!(read(&engine).await.len(), 3);
        engine.stop().await;
        drop((engine, job));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_cut_from_the_log_and_nothing_is_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let small = || LogOptions { segment_bytes: 4 << 10, ..LogOptions::default() };
    let mut engine = open_with(dir.path(), small()).await;
    let mut job = start(&engine, dir.path(), 2);
    for round in 0..4 {
        for k in 0..150 {
            insert(&engine, &[(k, round)]).await;
        }
        let expected: Vec<_> = (0..150).map(|k| (k, round + 1, round)).collect();
        assert_eq!(read(&engine).await, expected);
        let long = engine.coordinator().log().bytes();
        // Nobody needs what the job's checkpoint and the table's base have.
        job.checkpoint().await.expect("a checkpoint");
        engine.collection(TABLE).expect("the table").fold_now().expect("folded");
        crate::maintenance::cut_log(engine.shared()).await;
        let short = engine.coordinator().log().bytes();
        assert!(short < 10 << 10 && short < long, "round {round}: {long} bytes, cut to {short}");
        let closed = engine.coordinator().closed().epoch;
        insert(&engine, &[(1000, round)]).await;
        delete(&engine, &[(1000, round)]).await;
        engine.stop().await;
        drop((engine, job));
        engine = open_with(dir.path(), small()).await;
        assert!(engine.coordinator().closed().epoch >= closed, "epochs go on where they were");
        job = start(&engine, dir.path(), 2);
        assert_eq!(read(&engine).await, expected, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_parked_job_needs_is_kept_until_it_takes_too_much() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = open(dir.path()).await;
    insert(&engine, &[(1, 1)]).await;
    engine.park(77, [TABLE]);
    assert_eq!(engine.shared().needed_from(), Epoch(0));
    let table = engine.collection(TABLE).expect("the table");
    let held = table.since();
    insert(&engine, &[(2, 2)]).await;
    engine.coordinator().tick().await.expect("a tick");
    table.fold_now().expect("folded");
    assert_eq!(table.since(), held);
    engine.shared().let_go();
    table.fold_now().expect("folded");
    assert!(table.since() > held && engine.shared().needed_from() > Epoch(0));
}
