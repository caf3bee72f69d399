//! Sources of many splits, such as the files of a folder.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::{
    unaligned::{edge, node},
    *,
};
use crate::{
    coordinator::sources::SourceSettings,
    error::Result as EngineResult,
    source::{Discovery, LateRows, Offset, ReadOutcome, Source, Split, SplitReader},
};

const SOURCE: u64 = 3;
const SPLITS: usize = 200;

/// Splits that have nothing, and say not to ask again for an hour.
#[derive(Debug)]
struct Silent(Arc<AtomicUsize>);

#[async_trait]
impl Source for Silent {
    fn schema(&self) -> SchemaRef {
        schema(&["k", "v"])
    }

    async fn discover(&self) -> EngineResult<Discovery> {
        let splits = (0..SPLITS).map(|number| Split { id: format!("s{number}"), end: None, bounded: false }).collect();
        Ok(Discovery { splits, complete: true })
    }

    async fn open(&self, _split: &Split, _from: Offset, _projection: &[usize]) -> EngineResult<Box<dyn SplitReader>> {
        Ok(Box::new(Self(self.0.clone())))
    }
}

#[async_trait]
impl SplitReader for Silent {
    async fn read(&mut self, _max_rows: usize, _limit: Option<Offset>) -> EngineResult<ReadOutcome> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(ReadOutcome::Pending { retry_after_us: 3_600_000_000, idle: true })
    }
}

/// SELECT k, count(*), max(v) FROM s GROUP BY k
fn of_source() -> DataflowGraph {
    let (columns, mut graph) = (schema(&["k", "v"]), grouped());
    graph.fragments[0].nodes = vec![node(0, OperatorSpec::SourceScan { source: SOURCE, projection: vec![0, 1] }, vec![], &columns)];
    graph.exchanges = vec![edge(0, 0, 1, &columns)];
    graph
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_is_not_asked_before_its_time_however_often_its_reader_is_woken() {
    let dir = tempfile::tempdir().expect("a folder");
    let engine = bare_engine(dir.path(), LogOptions::default()).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let settings = SourceSettings { watermark: None, late_rows: LateRows::Keep, fail_on_bad_rows: false };
    engine.create_source(SOURCE, "s", Arc::new(Silent(asked.clone())), settings).await.expect("a source");
    engine.recover().await.expect("recovers");
    let (collection, options) = (Some(view(dir.path(), &["k", "n", "m"], CollectionKey::Columns(vec![0]))), options(2));
    let spec = JobSpec { id: VIEW, name: "v".into(), kind: JobKind::View, graph: of_source(), collection, sink: None, options };
    let job = engine.start_job(spec).expect("starts");
    job.wait_ready().await.expect("ready");
    let mut pulse = engine.coordinator().pulse();
    for key in 0..50 {
        insert(&engine, &[(key, key)]).await;
        let epoch = engine.coordinator().tick().await.expect("a tick").epoch;
        while job.sealed() < epoch {
            pulse.changed().await.expect("the engine runs");
        }
    }
    assert_eq!(asked.load(Ordering::SeqCst), SPLITS);
    engine.stop().await;
}
