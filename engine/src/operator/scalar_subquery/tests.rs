use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::{
    graph::OperatorSpec,
    harness::{Harness, Settings, node},
};

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true), Field::new("s", DataType::Utf8View, true)]))
}

fn bench() -> Harness {
    Harness::new(node(OperatorSpec::ScalarSubquery, 1, input()), vec![input()], Settings::default())
}

#[test]
fn there_is_always_one_row() {
    let mut bench = bench();
    assert_eq!(bench.barrier(), "+ NULL NULL");
    bench.push(0, "+ 1 a");
    assert_eq!(bench.barrier(), "+ 1 a\n- NULL NULL");
    assert_eq!(bench.barrier(), "");
    // Within an epoch there may be more, and deletes may come first.
    bench.push(0, "- 2 b\n+ 2 b\n+ 3 c\n- 1 a");
    bench.restart(1);
    assert_eq!(bench.barrier(), "- 1 a\n+ 3 c");
    bench.push(0, "- 3 c\n+ 3 c");
    assert_eq!(bench.barrier(), "");
    bench.push(0, "- 3 c");
    bench.restart(1);
    assert_eq!(bench.barrier(), "- 3 c\n+ NULL NULL");
}

#[test]
#[should_panic(expected = "more than one row returned by a subquery used as an expression")]
fn more_than_one_row_fails_the_job() {
    let mut bench = bench();
    bench.push(0, "+ 1 a\n+ 2 b");
    bench.barrier();
}
