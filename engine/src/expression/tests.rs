use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::{
    logical_expr::Operator as BinaryOperator,
    physical_expr::expressions::{binary, cast, col, lit},
    physical_plan::PhysicalExpr,
};

use super::*;
use crate::{
    graph::OperatorSpec,
    harness::{Harness, Settings, node},
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("s", DataType::Utf8View, true)]))
}

fn expression(physical: Arc<dyn PhysicalExpr>) -> Expression {
    Expression { text: physical.to_string(), physical }
}

fn hundred_over_a() -> Arc<dyn PhysicalExpr> {
    let schema = schema();
    binary(lit(100i64), BinaryOperator::Divide, col("a", &schema).unwrap(), &schema).unwrap()
}

fn project() -> Harness {
    let schema = schema();
    let number = cast(col("s", &schema).unwrap(), &schema, DataType::Int64).unwrap();
    let output = Arc::new(Schema::new(vec![Field::new("q", DataType::Int64, true), Field::new("n", DataType::Int64, true)]));
    let expressions = vec![expression(hundred_over_a()), expression(number)];
    Harness::new(node(OperatorSpec::Project { expressions }, 1, output), vec![schema], Settings::default())
}

#[test]
fn failing_rows_leave_and_the_others_stay() {
    let mut bench = project();
    bench.push(0, "+ 1 7\n+ 0 8\n+ 5 x\n+ NULL 9\n+ 20 NULL");
    assert_eq!(bench.barrier(), "+ 100 7\n+ 5 NULL\n+ NULL 9");
    let bad = bench.bad();
    assert_eq!(bad.len(), 2);
    assert!(bad[0].starts_with("0 8: division by zero"), "{bad:?}");
    assert!(bad[1].starts_with("5 x: "), "{bad:?}");
}

#[test]
fn a_refused_row_is_refused_again_when_it_is_deleted() {
    let mut bench = project();
    bench.push(0, "+ 0 8\n+ 4 1");
    assert_eq!(bench.barrier(), "+ 25 1");
    bench.push(0, "U- 0 8\nU+ 10 8\nU- 4 1\nU+ 0 1");
    assert_eq!(bench.barrier(), "+ 10 8\n- 25 1");
    assert_eq!(bench.bad().len(), 3);
}

#[test]
fn an_update_that_lost_one_half_is_a_plain_change() {
    let mut bench = project();
    bench.push(0, "+ 4 1");
    bench.barrier();
    let chunk = Chunk::parse(&schema(), "U- 4 1\nU+ 0 1").unwrap();
    let kept = BooleanArray::from(vec![true, false]);
    let rest = keep_rows(&chunk, chunk.batch().slice(0, 1), &kept);
    assert_eq!(rest.to_string(), "- 4 1");
}

#[test]
fn predicates_read_null_and_failures_as_false() {
    let schema = schema();
    let predicate = binary(hundred_over_a(), BinaryOperator::Gt, lit(10i64), &schema).unwrap();
    let spec = OperatorSpec::Filter { predicate: expression(predicate) };
    let mut bench = Harness::new(node(spec, 1, schema.clone()), vec![schema], Settings::default());
    bench.push(0, "+ 1 a\n+ 0 b\n+ NULL c\n+ 50 d\n+ 2 e");
    assert_eq!(bench.barrier(), "+ 1 a\n+ 2 e");
    assert_eq!(bench.bad().len(), 1);
    bench.watermark(0, 0, 17);
    assert_eq!(bench.emitted_watermark(0), Some(17));
}

#[test]
fn one_bad_row_among_many_costs_a_few_evaluations() {
    let mut bench = project();
    let text: Vec<String> = (1..=4096).map(|a| format!("+ {} 1", if a == 3000 { 0 } else { a })).collect();
    bench.push(0, &text.join("\n"));
    assert_eq!(bench.barrier().lines().count(), 4095);
    assert_eq!(bench.bad().len(), 1);
}
