use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::physical_expr::expressions::{cast, col, lit};

use crate::{
    graph::{Expression, OperatorSpec},
    harness::{Harness, Settings, node},
};

const DAY: i64 = 86_400_000_000;

#[test]
fn watermarks_follow_their_columns_and_monotone_expressions() {
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
    let input = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("t", timestamp.clone(), true)]));
    let columns = [("one", DataType::Int64), ("t", timestamp), ("day", DataType::Date32)];
    let output = Arc::new(Schema::new(columns.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()));
    let time = col("t", &input).unwrap();
    let expressions = vec![lit(1i64), time.clone(), cast(time, &input, DataType::Date32).unwrap()];
    let expressions = expressions.into_iter().map(|physical| Expression { text: physical.to_string(), physical }).collect();
    let mut node = node(OperatorSpec::Project { expressions }, 1, output);
    node.properties.watermark_columns = vec![1, 2];
    let mut bench = Harness::new(node, vec![input], Settings::default());
    bench.push(0, "+ 1 1970-01-03T12:00:00");
    assert_eq!(bench.barrier(), "+ 1 1970-01-03T12:00:00 1970-01-03");
    bench.watermark(0, 1, 2 * DAY + 5);
    assert_eq!(bench.emitted_watermark(1), Some(2 * DAY + 5));
    assert_eq!(bench.emitted_watermark(2), Some(2 * DAY));
    assert_eq!(bench.emitted_watermark(0), None);
    bench.watermark(0, 1, i64::MAX);
    assert_eq!(bench.emitted_watermark(2), Some(i64::MAX));
}
