//! Sinks: what is written when, and that nothing is written twice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use futures::FutureExt;
use millpond_storage::{
    collection::{CollectionKey, Delta},
    epoch::Epoch,
};
use tokio::sync::watch;

use super::*;
use crate::{error::Result, job::spec::SinkTarget, sink::Sink};

/// The transactions that a target has: the epoch reached, and what came and went.
type Transactions = Vec<(Epoch, Vec<((i64, i64, i64), i64)>)>;

/// A target that outlives the engine.
#[derive(Clone)]
struct Target(Arc<watch::Sender<Transactions>>);

#[async_trait]
impl Sink for Target {
    async fn check(&mut self) -> Result<()> {
        Ok(())
    }

    async fn reached(&mut self) -> Result<Epoch> {
        Ok(self.0.borrow().last().map_or(Epoch(0), |(epoch, _)| *epoch))
    }

    async fn write(&mut self, deltas: &[Arc<Delta>], to: Epoch) -> Result<()> {
        let mut rows = Vec::new();
        for batch in deltas.iter().flat_map(|delta| &delta.batches) {
            let column = |index: usize| batch.batch.column(index).as_primitive::<Int64Type>();
            let sign = |row: usize| batch.signs.as_ref().map_or(1, |signs| i64::from(signs[row]));
            rows.extend(
                (0..batch.batch.num_rows()).map(|row| ((column(0).value(row), column(1).value(row), column(2).value(row)), sign(row))),
            );
        }
        self.0.send_modify(|transactions| transactions.push((to, rows)));
        Ok(())
    }
}

fn start_sink(engine: &Engine, dir: &Path, target: &Target, commit_interval: Duration) -> Arc<crate::job::status::JobHandle> {
    let target = target.clone();
    let open = Arc::new(move || {
        let target: Box<dyn Sink> = Box::new(target.clone());
        async move { Ok(target) }.boxed()
    });
    let sink = Some(SinkTarget { open, commit_interval });
    let (collection, options) = (Some(view(dir, &["k", "n", "m"], CollectionKey::Columns(vec![0]))), options(2));
    let spec = JobSpec { id: VIEW, name: "s".into(), kind: JobKind::Sink, graph: grouped(), collection, sink, options };
    let handle = engine.start_job(spec).expect("starts");
    engine.start_maintenance();
    handle
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_has_the_epochs_of_its_interval_and_a_restart_writes_what_was_gathered_once() {
    const EPOCHS: i64 = 20;
    let dir = tempfile::tempdir().expect("a folder");
    let target = Target(Arc::default());
    let mut written = target.0.subscribe();
    let engine = open(dir.path()).await;
    let job = start_sink(&engine, dir.path(), &target, Duration::from_secs(3600));
    job.wait_ready().await.expect("ready");
    for epoch in 0..EPOCHS {
        insert(&engine, &[(epoch % 3, epoch)]).await;
        assert_eq!(read(&engine).await.iter().map(|(_, n, _)| n).sum::<i64>(), epoch + 1);
    }
    assert!(written.borrow_and_update().is_empty(), "the hour is not over");
    engine.stop().await;
    drop((engine, job));

    let engine = open(dir.path()).await;
    let job = start_sink(&engine, dir.path(), &target, Duration::ZERO);
    written.wait_for(|written| !written.is_empty()).await.expect("a transaction");
    insert(&engine, &[(7, 70)]).await;
    written.wait_for(|written| written.len() == 2).await.expect("another one");
    let transactions = written.borrow().clone();
    assert!(transactions[0].0 < transactions[1].0);
    let mut net = BTreeMap::new();
    for (row, sign) in transactions.into_iter().flat_map(|(_, rows)| rows) {
        *net.entry(row).or_default() += sign;
    }
    net.retain(|_, count: &mut i64| *count != 0);
    let mut groups: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (k, v) in (0..EPOCHS).map(|epoch| (epoch % 3, epoch)).chain([(7, 70)]) {
        let group = groups.entry(k).or_insert((0, v));
        *group = (group.0 + 1, group.1.max(v));
    }
    let expected: Vec<_> = groups.into_iter().map(|(k, (n, m))| ((k, n, m), 1)).collect();
    assert_eq!(net.into_iter().collect::<Vec<_>>(), expected);
    engine.stop().await;
    drop((engine, job));
}
