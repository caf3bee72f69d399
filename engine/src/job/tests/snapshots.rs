//! What a transaction reads first and what it reads later are of one epoch, however fast everything moves on.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    unaligned::{edge, node, slow_projection},
    *,
};

const SNAPSHOTS: usize = 20;
/// Rows of an insert: so many milliseconds the view needs for it.
const SLOW_ROWS: i64 = 100;
const OTHER: u64 = 9;
const PATIENCE: Duration = Duration::from_secs(20);

/// SELECT k, v, slow(v) FROM t
fn slow_view() -> DataflowGraph {
    let (t, shown) = (schema(&["k", "v"]), schema(&["k", "v", "w"]));
    let scan = node(0, OperatorSpec::CollectionScan { collection: TABLE, projection: vec![0, 1] }, vec![], &t);
    let project = node(1, slow_projection(1, "v"), vec![NodeInput::Node(0)], &shown);
    let root = OperatorSpec::Materialize { collection: VIEW, key: CollectionKeySpec::WholeRow };
    let root = node(2, root, vec![NodeInput::Exchange(0)], &shown);
    DataflowGraph {
        fragments: vec![
            Fragment { id: 0, nodes: vec![scan, project], parallelism: Parallelism::Single },
            Fragment { id: 1, nodes: vec![root], parallelism: Parallelism::Job },
        ],
        exchanges: vec![edge(0, 0, 1, &shown)],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_reads_later_is_still_there() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = bare_engine(dir.path(), LogOptions::default()).await;
    let other = TableSpec {
        id: OTHER,
        name: "other".into(),
        schema: schema(&["k", "v"]),
        primary_key: None,
        append_only: false,
        watermark: None,
        diverts_late_rows: false,
    };
    engine.create_table(other).expect("a table");
    engine.recover().await.expect("recovers");
    let collection = Some(view(dir.path(), &["k", "v", "w"], CollectionKey::WholeRow));
    let (graph, options) = (slow_view(), options(2));
    let job = engine.start_job(JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph, collection, sink: None, options });
    job.expect("starts").wait_ready().await.expect("ready");
    let enough = AtomicBool::new(false);
    let write = async || {
        for v in 0.. {
            engine.append(vec![(OTHER, vec![SignedBatch::inserts(rows(&[(v, v)]))])]).await.expect("appended");
            if enough.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    // Contents that nobody holds are gone at once.
    let fold = async || {
        while !enough.load(Ordering::Relaxed) {
            let collection = engine.collection(OTHER).expect("a collection");
            tokio::task::spawn_blocking(move || collection.fold_now()).await.expect("a thread").expect("folded");
        }
    };
    let read = async || {
        let pairs: Vec<(i64, i64)> = (0..SLOW_ROWS).map(|v| (v, v)).collect();
        for snapshot in 0..SNAPSHOTS {
            insert(&engine, &pairs).await;
            let [first, second] = if snapshot % 3 == 0 { [OTHER, VIEW] } else { [VIEW, OTHER] };
            let acknowledged = engine.table(OTHER).expect("the table").last_acknowledged();
            let point = engine.snapshot(&[first], Freshness::Default, PATIENCE).await.expect("an epoch");
            assert!(point.epoch >= acknowledged, "snapshot {snapshot}");
            for id in [first, second] {
                let found = engine.read_at(&[id], point.epoch, PATIENCE).await;
                let found = found.unwrap_or_else(|error| panic!("snapshot {snapshot}, relation {id}: {error}"));
                assert_eq!(found.epoch, point.epoch);
            }
        }
        enough.store(true, Ordering::Relaxed);
    };
    tokio::join!(write(), fold(), read());
    engine.stop().await;
}
