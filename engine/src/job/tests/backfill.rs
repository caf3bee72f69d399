//! A view that is filled from a table with contents goes on where its newest checkpoint was.

use std::collections::BTreeMap;

use super::*;

/// More than a few steps of a backfill.
const ROWS: i64 = 400_000;
const KEYS: i64 = 1000;

fn expected(changed: &BTreeMap<i64, (i64, i64)>) -> Vec<(i64, i64, i64)> {
    let key = |k: i64| {
        let (more, highest) = changed.get(&k).copied().unwrap_or((0, 0));
        (k, ROWS / KEYS + more, highest.max(ROWS - KEYS + k))
    };
    (0..KEYS).map(key).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backfill_that_was_cut_short_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut engine = open(dir.path()).await;
    let contents: Vec<(i64, i64)> = (0..ROWS).map(|v| (v % KEYS, v)).collect();
    for part in contents.chunks(50_000) {
        insert(&engine, part).await;
    }
    drop(engine.read_epoch(&[TABLE], Freshness::Default, Duration::from_secs(20)).await.expect("the contents"));
    let mut changed = BTreeMap::new();
    let mut resumed = 0;
    for round in 1.. {
        let job = start(&engine, dir.path(), 1 + round as usize % 3);
        if engine.collection(VIEW).expect("the view").published() {
            break;
        }
        let mut checkpointed = job.checkpointed.subscribe();
        tokio::select! {
            ready = job.wait_ready() => ready.expect("ready"),
            _ = checkpointed.changed() => {}
        }
        let (k, v) = (round * 7 % KEYS, ROWS + round);
        insert(&engine, &[(k, v)]).await;
        let entry = changed.entry(k).or_insert((0, 0));
        *entry = (entry.0 + 1, v);
        resumed += usize::from(engine.recoveries().iter().any(|recovery| recovery.from_epoch > Epoch(0)));
        engine.stop().await;
        drop((engine, job));
        engine = open(dir.path()).await;
    }
    assert!(resumed > 0, "no attempt went on from a checkpoint");
    assert_eq!(read(&engine).await, expected(&changed));
}
