//! Bounded plans give the same rows with and without the engine's exchanges.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, Int64Array, StringArray},
    datatypes::Int64Type,
    record_batch::RecordBatch,
};
use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    datasource::MemTable,
    physical_plan::{ExecutionPlan, collect, displayable, execute_stream},
    prelude::{SessionConfig, SessionContext},
};
use futures::StreamExt;

use super::with_exchanges;

/// A session of `threads` partitions with `big` (20,000 rows: a = 0.., b = a % 97) and `small` (b = 0..50, name).
fn session(threads: usize) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(threads).with_batch_size(512);
    let context = SessionContext::new_with_config(config);
    let big: Vec<Vec<RecordBatch>> = (0..threads as i64)
        .map(|part| {
            (0..10)
                .map(|piece| {
                    let first = (part * 10 + piece) * 500;
                    let a: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + 500));
                    let b: ArrayRef = Arc::new(Int64Array::from_iter_values((first..first + 500).map(|a| a % 97)));
                    RecordBatch::try_from_iter([("a", a), ("b", b)]).expect("two columns")
                })
                .collect()
        })
        .collect();
    let schema = big[0][0].schema();
    context.register_table("big", Arc::new(MemTable::try_new(schema, big).expect("a table"))).expect("a new name");
    let b: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50));
    let name: ArrayRef = Arc::new(StringArray::from_iter_values((0..50).map(|b| format!("name {b}"))));
    context.register_batch("small", RecordBatch::try_from_iter([("b", b), ("name", name)]).expect("two columns")).expect("a new name");
    context
}

async fn planned(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    context.sql(sql).await.expect("a query").create_physical_plan().await.expect("a plan")
}

async fn rows(context: &SessionContext, plan: Arc<dyn ExecutionPlan>) -> Vec<String> {
    let batches = collect(plan, context.task_ctx()).await.expect("rows");
    let text = arrow::util::pretty::pretty_format_batches(&batches).expect("text").to_string();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_answer_the_same_on_exchanges() {
    let context = session(4);
    for sql in [
        "SELECT b, count(*), sum(a) FROM big GROUP BY b",
        "SELECT DISTINCT a % 3 FROM big",
        "SELECT name, count(*) FROM big JOIN small ON big.b = small.b GROUP BY name ORDER BY name",
        "SELECT big.a FROM big LEFT JOIN small ON big.b = small.b WHERE small.b IS NULL ORDER BY a DESC LIMIT 7",
        "SELECT x.a, y.b FROM big x JOIN big y ON x.a = y.a WHERE x.b < 3",
        "SELECT b, a, row_number() OVER (PARTITION BY b ORDER BY a) FROM big WHERE a < 2000",
        "SELECT count(*) FROM big, small WHERE big.a < 100",
        "SELECT a FROM big WHERE b > (SELECT avg(b) FROM big) ORDER BY a LIMIT 5",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT i, count(*) FROM n JOIN big ON n.i = big.b GROUP BY i",
        "SELECT a FROM big UNION ALL SELECT b FROM small",
    ] {
        let expected = rows(&context, planned(&context, sql).await).await;
        let plan = with_exchanges(planned(&context, sql).await).expect("a plan");
        let text = displayable(plan.as_ref()).indent(false).to_string();
        assert!(!text.contains("RepartitionExec"), "{sql}\n{text}");
        assert_eq!(rows(&context, plan).await, expected, "{sql}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_is_cut_where_partitions_change() {
    let context = session(2);
    let plan = with_exchanges(planned(&context, "SELECT b, count(*) AS n FROM big GROUP BY b ORDER BY n").await).expect("a plan");
    let text = displayable(plan.as_ref()).indent(false).to_string();
    let exchanges: Vec<&str> = text.lines().map(str::trim).filter(|line| line.starts_with("Exchange:")).collect();
    assert_eq!(exchanges, ["Exchange: forward, pipelined, 2 -> 2 subtasks", "Exchange: hash(b@0), pipelined, 2 -> 2 subtasks"], "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_below_an_exchange_ends_the_query() {
    let context = session(4);
    let plan = with_exchanges(planned(&context, "SELECT 1 / (a - 19999), count(*) FROM big GROUP BY 1").await).expect("a plan");
    let error = collect(plan, context.task_ctx()).await.expect_err("a division by zero");
    assert!(error.to_string().to_lowercase().contains("divide by zero"), "{error}");
}

/// The first rows are enough: what is left below is stopped, and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_dropped_stops_its_producers() {
    let context = session(4);
    // A hundred million pairs: the test would not end if they were made.
    let sql = "SELECT x.a, y.a FROM big x JOIN big y ON x.b <> y.b WHERE x.a % 2 <> y.a % 7";
    let plan = with_exchanges(planned(&context, sql).await).expect("a plan");
    let mut producers = 0;
    plan.apply(|node| {
        producers += usize::from(node.name() == "ExchangeExec");
        Ok(TreeNodeRecursion::Continue)
    })
    .expect("no errors");
    assert!(producers > 0);
    let mut stream = execute_stream(plan, context.task_ctx()).expect("a stream");
    let first = stream.next().await.expect("rows").expect("no error");
    assert!(!first.column(0).as_primitive::<Int64Type>().values().is_empty());
    drop(stream);
}

/// A plan runs once; one that is to run again is reset first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_is_read_once() {
    let context = session(2);
    let plan = with_exchanges(planned(&context, "SELECT a FROM big ORDER BY a").await).expect("a plan");
    let first = rows(&context, plan.clone()).await;
    assert_eq!(first.len(), 10_000 + 4);
    let again = collect(plan, context.task_ctx()).await.expect_err("the plan has run");
    assert!(again.to_string().contains("read twice"), "{again}");
}
