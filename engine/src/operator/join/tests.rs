mod history;
mod times;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::{
    logical_expr::Operator as BinaryOperator,
    physical_expr::expressions::{binary, col},
};

use crate::{
    graph::{Expression, JoinKind, JoinSpec, OperatorSpec, StreamProperties, TimeBound},
    harness::{Harness, Settings, node},
};

/// Columns of either side: k bigint, v bigint, t timestamp, s text.
fn input(prefix: &str) -> SchemaRef {
    let columns = [
        ("k", DataType::Int64),
        ("v", DataType::Int64),
        ("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("s", DataType::Utf8View),
    ];
    Arc::new(Schema::new(columns.map(|(name, data_type)| Field::new(format!("{prefix}{name}"), data_type, true)).to_vec()))
}

/// `left.v < right.v`.
fn condition() -> Expression {
    let fields: Vec<_> = input("l").fields().iter().chain(input("r").fields()).cloned().collect();
    let schema = Schema::new(fields);
    let physical = binary(col("lv", &schema).unwrap(), BinaryOperator::Lt, col("rv", &schema).unwrap(), &schema).unwrap();
    Expression { text: physical.to_string(), physical }
}

fn spec(kind: JoinKind, with_condition: bool) -> JoinSpec {
    let output = match kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => vec![0, 1, 4, 5],
        JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::RightSemi | JoinKind::RightAnti => vec![0, 1],
        JoinKind::LeftMark => vec![0, 1, 4],
    };
    JoinSpec {
        kind,
        on: vec![(0, 0)],
        null_equal: vec![false],
        condition: with_condition.then(condition),
        output,
        left: StreamProperties::default(),
        right: StreamProperties::default(),
        left_bounds: Box::default(),
        right_bounds: Box::default(),
        left_expiry: None,
        right_expiry: None,
    }
}

fn append_only(mut spec: JoinSpec) -> JoinSpec {
    spec.left.append_only = true;
    spec.right.append_only = true;
    spec
}

fn bench(spec: JoinSpec, settings: Settings) -> Harness {
    let inputs = [input("l"), input("r")];
    let fields = spec.output.iter().map(|column| match spec.kind {
        JoinKind::LeftMark if *column == 4 => Field::new("mark", DataType::Boolean, false),
        JoinKind::RightSemi | JoinKind::RightAnti => inputs[1].field(*column).clone(),
        _ if *column < 4 => inputs[0].field(*column).clone(),
        _ => inputs[1].field(*column - 4).clone(),
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Harness::new(node(OperatorSpec::Join(spec), 2, schema), inputs.to_vec(), settings)
}

fn rows(text: &str) -> String {
    text.lines().map(|line| format!("{line} NULL x")).collect::<Vec<_>>().join("\n")
}

#[test]
fn inner_pairs_come_and_go() {
    for spec in [spec(JoinKind::Inner, false), spec(JoinKind::Inner, true)] {
        let mut bench = bench(spec, Settings::default());
        bench.push(0, &rows("+ 1 10\n+ 1 10\n+ 2 20\n+ NULL 1"));
        assert_eq!(bench.barrier(), "");
        bench.push(1, &rows("+ 1 100\n+ 3 300\n+ NULL 5"));
        assert_eq!(bench.barrier(), "+ 1 10 1 100\n+ 1 10 1 100");
        bench.push(0, &rows("- 1 10"));
        bench.push(1, &rows("+ 2 200"));
        assert_eq!(bench.barrier(), "- 1 10 1 100\n+ 2 20 2 200");
        bench.restart(2);
        bench.push(1, &rows("U- 1 100\nU+ 2 100\n- 3 300"));
        assert_eq!(bench.barrier(), "- 1 10 1 100\n+ 2 20 2 100");
    }
}

#[test]
fn outer_rows_come_with_nulls_while_they_have_no_match() {
    let mut bench = bench(spec(JoinKind::Full, true), Settings::default());
    bench.push(0, &rows("+ 1 10\n+ NULL 7"));
    bench.push(1, &rows("+ 1 5\n+ NULL 8"));
    assert_eq!(bench.barrier(), "+ 1 10 NULL NULL\n+ NULL 7 NULL NULL\n+ NULL NULL 1 5\n+ NULL NULL NULL 8");
    bench.push(1, &rows("+ 1 50"));
    assert_eq!(bench.barrier(), "+ 1 10 1 50\n- 1 10 NULL NULL");
    bench.push(0, &rows("+ 1 3"));
    assert_eq!(bench.barrier(), "+ 1 3 1 5\n+ 1 3 1 50\n- NULL NULL 1 5");
    bench.push(0, &rows("- 1 3\n- NULL 7"));
    bench.push(1, &rows("- 1 50"));
    let expected = "- 1 10 1 50\n+ 1 10 NULL NULL\n- 1 3 1 5\n- 1 3 1 50\n- NULL 7 NULL NULL\n+ NULL NULL 1 5";
    assert_eq!(bench.barrier(), expected);
}

#[test]
fn semi_anti_and_mark_follow_the_first_match() {
    for with_condition in [false, true] {
        let expectations = [
            (JoinKind::LeftSemi, "", "+ 1 10", "- 1 10"),
            (JoinKind::LeftAnti, "+ 1 10\n+ NULL 1", "- 1 10", "+ 1 10"),
            (JoinKind::LeftMark, "+ 1 10 false\n+ NULL 1 false", "- 1 10 false\n+ 1 10 true", "+ 1 10 false\n- 1 10 true"),
        ];
        for (kind, alone, matched, unmatched) in expectations {
            let mut bench = bench(spec(kind, with_condition), Settings::default());
            bench.push(0, &rows("+ 1 10\n+ NULL 1"));
            assert_eq!(bench.barrier(), alone, "{kind:?}");
            bench.push(1, &rows("+ 1 20\n+ 1 20\n+ 1 30"));
            assert_eq!(bench.barrier(), matched, "{kind:?}");
            bench.push(1, &rows("- 1 20\n- 1 20"));
            bench.restart(3);
            assert_eq!(bench.barrier(), "", "{kind:?}");
            bench.push(1, &rows("- 1 30"));
            assert_eq!(bench.barrier(), unmatched, "{kind:?}");
        }
        let mut semi = bench(spec(JoinKind::RightSemi, with_condition), Settings::default());
        semi.push(1, &rows("+ 1 20"));
        assert_eq!(semi.barrier(), "");
        semi.push(0, &rows("+ 1 10"));
        assert_eq!(semi.barrier(), "+ 1 20");
    }
}

#[test]
fn null_keys_match_when_asked_to() {
    let mut spec = spec(JoinKind::Inner, false);
    spec.null_equal = vec![true];
    let mut bench = bench(spec, Settings::default());
    bench.push(0, &rows("+ NULL 1"));
    bench.push(1, &rows("+ NULL 2\n+ 1 3"));
    assert_eq!(bench.barrier(), "+ NULL 1 NULL 2");
}

#[test]
fn a_join_without_keys_is_a_product_under_the_condition() {
    let mut spec = spec(JoinKind::Left, true);
    spec.on.clear();
    spec.null_equal.clear();
    let mut bench = bench(spec, Settings::default());
    bench.push(0, &rows("+ 1 1\n+ 2 9"));
    bench.push(1, &rows("+ 7 5\n+ NULL 6"));
    assert_eq!(bench.barrier(), "+ 1 1 7 5\n+ 1 1 NULL 6\n+ 2 9 NULL NULL");
}

#[test]
fn one_row_that_matches_many_gives_them_in_steps() {
    for spec in [spec(JoinKind::Left, false), append_only(spec(JoinKind::Left, true))] {
        let mut bench = bench(spec, Settings { room: 100, ..Settings::default() });
        let many: Vec<String> = (0..20_000).map(|v| format!("+ 1 {v}")).collect();
        many.chunks(4096).for_each(|chunk| bench.push(1, &rows(&chunk.join("\n"))));
        bench.barrier();
        bench.push(0, &rows("+ 1 -1"));
        assert_eq!(bench.barrier().lines().count(), 20_000);
    }
    let mut bench = bench(spec(JoinKind::Inner, false), Settings { room: 100, ..Settings::default() });
    bench.push(0, &rows(&vec!["+ 1 10"; 300].join("\n")));
    bench.push(1, &rows(&vec!["+ 1 20"; 300].join("\n")));
    assert_eq!(bench.barrier().lines().count(), 90_000);
}

#[test]
fn watermarks_on_join_columns_are_the_minimum() {
    let mut spec = spec(JoinKind::Inner, false);
    spec.on = vec![(2, 2)];
    spec.left_bounds = [TimeBound { column: 2, partner: 2, shift_us: 0 }].into();
    spec.right_bounds = spec.left_bounds.clone();
    spec.output = vec![1, 2, 5, 6];
    let mut bench = bench(spec, Settings::default());
    bench.watermark(0, 2, 50);
    assert_eq!(bench.emitted_watermark(1), None);
    bench.watermark(1, 2, 30);
    assert_eq!(bench.emitted_watermark(1), Some(30));
    assert_eq!(bench.emitted_watermark(3), Some(30));
    bench.watermark(1, 2, i64::MAX);
    bench.watermark(0, 2, i64::MAX);
    assert_eq!(bench.emitted_watermark(1), Some(i64::MAX));
}
