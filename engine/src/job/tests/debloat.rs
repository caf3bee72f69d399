//! What the exchange before a slow operator holds: a table, and a function that takes a millisecond a row behind a hash edge.

use super::{
    unaligned::{edge, node, slow_projection},
    *,
};
use crate::{
    exchange::debloat::CHANNEL_ROWS,
    job::status::{ExchangeStatus, JobHandle},
};

const ROWS: i64 = 5000;
const TARGET: Duration = Duration::from_millis(100);

/// SELECT k, v, slow(v) FROM t
fn slow() -> DataflowGraph {
    let (t, view) = (schema(&["k", "v"]), schema(&["k", "v", "w"]));
    let scan = node(0, OperatorSpec::CollectionScan { collection: TABLE, projection: vec![0, 1] }, vec![], &t);
    let project = node(1, slow_projection(1, "v"), vec![NodeInput::Exchange(0)], &view);
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

fn with_target(target: Duration) -> JobOptions {
    let checkpoint = Duration::from_secs(3600);
    JobOptions { checkpoint_interval: checkpoint, aligned_checkpoint_timeout: checkpoint, buffer_debloat_target: target, ..options(2) }
}

/// A job that is readable and has then been given all rows at once, in epochs up to the one answered.
async fn flooded(dir: &Path, target: Duration) -> (Arc<Engine>, Arc<JobHandle>, Epoch) {
    let engine = open(dir).await;
    let spec = JobSpec {
        id: VIEW,
        name: "v".into(),
        kind: JobKind::View,
        graph: slow(),
        collection: Some(view(dir, &["k", "v", "w"], CollectionKey::WholeRow)),
        sink: None,
        options: with_target(target),
    };
    let job = engine.start_job(spec).expect("starts");
    job.wait_ready().await.expect("ready");
    insert(&engine, &(0..ROWS).map(|key| (key, 10 * key)).collect::<Vec<_>>()).await;
    engine.coordinator().tick().await.expect("a tick");
    let owed = engine.coordinator().closed().epoch;
    (engine, job, owed)
}

/// The channels before the slow operator.
fn before_slow(job: &JobHandle) -> Vec<ExchangeStatus> {
    job.exchanges().into_iter().filter(|edge| edge.exchange == Some(0)).collect()
}

fn expected() -> Vec<(i64, i64, i64)> {
    (0..ROWS).map(|key| (key, 10 * key, 20 * key)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn an_exchange_holds_what_a_slow_consumer_takes_within_the_target() {
    let dir = tempfile::tempdir().expect("a folder");
    let (engine, job, owed) = flooded(dir.path(), TARGET).await;
    // A channel may hold a hundred rows then, and a chunk more of what came together.
    let is_small = |edge: &ExchangeStatus| edge.channel.bounds.rows <= 125 && edge.channel.buffered_rows <= 250;
    let (mut small, mut larger_again) = (false, false);
    while job.sealed() < owed {
        engine.coordinator().tick().await.expect("a tick");
        let edges = before_slow(&job);
        assert_eq!(edges.len(), 2);
        let upstream = job.exchanges().iter().filter(|edge| edge.exchange.is_none()).map(|edge| edge.channel.buffered_rows).sum::<usize>();
        let now_small = edges.iter().all(is_small);
        larger_again |= small && !now_small;
        // Not because there is nothing left to come.
        small |= now_small && upstream > 0 && edges.iter().all(|edge| edge.channel.buffered_rows > 0);
    }
    assert!(small && !larger_again, "small: {small}, larger again: {larger_again}");
    assert_eq!(read(&engine).await, expected());
    let edge = before_slow(&job).remove(0);
    assert!(edge.channel.rows_per_second.is_some_and(|rate| (100.0..=1100.0).contains(&rate)) && edge.target == TARGET, "{edge:?}");
    // Another target takes effect while the job runs.
    job.reconfigure(with_target(Duration::ZERO));
    while before_slow(&job).iter().any(|edge| edge.channel.bounds.is_debloated()) {
        insert(&engine, &(0..200).map(|key| (key, 0)).collect::<Vec<_>>()).await;
        read(&engine).await;
    }
    engine.stop().await;
    assert!(job.exchanges().is_empty(), "nothing runs any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn an_exchange_that_is_not_debloated_holds_all_that_comes() {
    let dir = tempfile::tempdir().expect("a folder");
    let (engine, job, owed) = flooded(dir.path(), Duration::ZERO).await;
    let mut most = 0;
    while most < 1500 && job.sealed() < owed {
        // A tick could take as long as the disk does.
        tokio::task::yield_now().await;
        let edges = before_slow(&job);
        assert!(edges.iter().all(|edge| edge.channel.bounds.rows == CHANNEL_ROWS), "{edges:?}");
        most = most.max(edges.iter().map(|edge| edge.channel.buffered_rows).max().unwrap_or(0));
    }
    assert!(most >= 1500, "{most} rows at most");
    assert_eq!(read(&engine).await, expected());
    engine.stop().await;
}
