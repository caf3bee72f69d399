mod history;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::{
    graph::{AggregateCall, AggregateFunction, AggregateSpec, OperatorSpec, OrderColumn},
    harness::{Harness, Settings, check_epochs_apart, node},
};

/// Columns: 0 k bigint, 1 x bigint, 2 s text, 3 b boolean, 4 f double, 5 t timestamp.
pub(super) fn input() -> SchemaRef {
    let columns = [
        ("k", DataType::Int64),
        ("x", DataType::Int64),
        ("s", DataType::Utf8View),
        ("b", DataType::Boolean),
        ("f", DataType::Float64),
        ("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
    ];
    Arc::new(Schema::new(columns.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()))
}

pub(super) fn call(function: AggregateFunction, arguments: &[usize], output: DataType) -> AggregateCall {
    AggregateCall { function, arguments: arguments.to_vec(), distinct: false, filter: None, order_by: Vec::new(), output }
}

pub(super) fn distinct(mut call: AggregateCall) -> AggregateCall {
    call.distinct = true;
    call
}

fn filtered(mut call: AggregateCall) -> AggregateCall {
    call.filter = Some(3);
    call
}

fn ordered(mut call: AggregateCall, column: usize, descending: bool) -> AggregateCall {
    call.order_by = vec![OrderColumn { column, descending, nulls_first: descending }];
    call
}

pub(super) fn spec(group_by: &[usize], calls: Vec<AggregateCall>) -> AggregateSpec {
    AggregateSpec { group_by: group_by.to_vec(), calls, append_only_input: false, expiry: None, emit_on_close: None }
}

pub(super) fn bench(spec: AggregateSpec, settings: Settings) -> Harness {
    let input = input();
    let groups = spec.group_by.iter().map(|column| input.field(*column).clone());
    let calls = spec.calls.iter().enumerate().map(|(number, call)| Field::new(format!("a{number}"), call.output.clone(), true));
    let schema = Arc::new(Schema::new(groups.chain(calls).collect::<Vec<_>>()));
    Harness::new(node(OperatorSpec::Aggregate(spec), 1, schema), vec![input], settings)
}

fn count() -> AggregateCall {
    call(AggregateFunction::Count, &[], DataType::Int64)
}

fn text_list() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true)))
}

#[test]
fn one_update_per_group_and_epoch_and_none_when_equal() {
    let sum = call(AggregateFunction::Sum, &[1], DataType::Decimal128(38, 0));
    let mut bench = bench(spec(&[0], vec![count(), sum]), Settings::default());
    bench.push(0, "+ 1 10 a NULL NULL NULL\n+ 2 5 a NULL NULL NULL\n+ 1 20 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 2 30\n+ 2 1 5");
    bench.push(0, "+ 1 7 a NULL NULL NULL\n- 1 7 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "");
    bench.push(0, "U- 1 20 a NULL NULL NULL\nU+ 1 21 a NULL NULL NULL\n- 2 5 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "- 1 2 30\n+ 1 2 31\n- 2 1 5");
    bench.push(0, "+ NULL NULL a NULL NULL NULL");
    assert_eq!(bench.barrier(), "+ NULL 1 NULL");
}

#[test]
fn deletes_may_come_before_their_inserts_within_an_epoch() {
    let mut bench = bench(spec(&[0], vec![count()]), Settings::default());
    bench.push(0, "- 1 10 a NULL NULL NULL");
    bench.push(0, "+ 1 10 a NULL NULL NULL\n+ 1 10 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 1");
}

#[test]
fn an_aggregate_without_groups_has_a_row_from_the_start() {
    let calls = || vec![count(), call(AggregateFunction::Max, &[1], DataType::Int64)];
    let mut bench = bench(spec(&[], calls()), Settings::default());
    assert_eq!(bench.barrier(), "+ 0 NULL");
    assert_eq!(bench.barrier(), "");
    bench.restart(1);
    assert_eq!(bench.barrier(), "");
    bench.push(0, "+ 1 10 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "- 0 NULL\n+ 1 10");
    bench.push(0, "- 1 10 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "+ 0 NULL\n- 1 10");
}

#[test]
fn extremes_fall_back_when_their_value_goes() {
    let calls = vec![
        call(AggregateFunction::Min, &[1], DataType::Int64),
        call(AggregateFunction::Max, &[1], DataType::Int64),
        call(AggregateFunction::Max, &[2], DataType::Utf8View),
        call(AggregateFunction::Max, &[4], DataType::Float64),
    ];
    let mut bench = bench(spec(&[0], calls), Settings::default());
    bench.push(0, "+ 1 10 a NULL 1.5 NULL\n+ 1 -3 b NULL NaN NULL\n+ 1 7 b NULL NULL NULL\n+ 1 NULL NULL NULL NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 -3 10 b NaN");
    bench.push(0, "- 1 -3 b NULL NaN NULL\n- 1 10 a NULL 1.5 NULL");
    assert_eq!(bench.barrier(), "- 1 -3 10 b NaN\n+ 1 7 7 b NULL");
    bench.push(0, "- 1 7 b NULL NULL NULL");
    assert_eq!(bench.barrier(), "- 1 7 7 b NULL\n+ 1 NULL NULL NULL NULL");
    bench.push(0, "- 1 NULL NULL NULL NULL NULL");
    assert_eq!(bench.barrier(), "- 1 NULL NULL NULL NULL");
}

#[test]
fn distinct_values_count_once_and_filters_apply() {
    let of_x = |function, output| call(function, &[1], output);
    let calls = vec![
        distinct(of_x(AggregateFunction::Count, DataType::Int64)),
        distinct(of_x(AggregateFunction::Sum, DataType::Decimal128(38, 0))),
        filtered(distinct(of_x(AggregateFunction::Count, DataType::Int64))),
        filtered(count()),
    ];
    let mut bench = bench(spec(&[0], calls), Settings::default());
    bench.push(0, "+ 1 5 a true NULL NULL\n+ 1 5 b false NULL NULL\n+ 1 7 c NULL NULL NULL\n+ 1 NULL c true NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 2 12 1 2");
    bench.push(0, "- 1 5 a true NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 2 12 0 1\n- 1 2 12 1 2");
    bench.push(0, "- 1 5 b false NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 1 7 0 1\n- 1 2 12 0 1");
}

#[test]
fn ordered_aggregates_follow_their_order() {
    let strings = || call(AggregateFunction::StringAgg, &[2, 2], DataType::Utf8View);
    let array = || call(AggregateFunction::ArrayAgg, &[2], text_list());
    let calls = vec![
        ordered(array(), 1, false),
        ordered(array(), 1, true),
        distinct(array()),
        ordered(call(AggregateFunction::FirstValue, &[2], DataType::Utf8View), 1, false),
        ordered(call(AggregateFunction::LastValue, &[2], DataType::Utf8View), 1, false),
        ordered(strings(), 1, false),
    ];
    let mut bench = bench(spec(&[0], calls), Settings::default());
    bench.push(0, "+ 1 2 b NULL NULL NULL\n+ 1 1 c NULL NULL NULL\n+ 1 NULL a NULL NULL NULL\n+ 1 1 c NULL NULL NULL");
    assert_eq!(bench.barrier(), "+ 1 {c,c,b,a} {a,b,c,c} {a,b,c} c a cccbbaa");
    bench.push(0, "- 1 1 c NULL NULL NULL\n+ 1 0 NULL NULL NULL NULL");
    bench.restart(1);
    let changes = "+ 1 {NULL,c,b,a} {a,b,c,NULL} {a,b,c,NULL} NULL a cbbaa\n- 1 {c,c,b,a} {a,b,c,c} {a,b,c} c a cccbbaa";
    assert_eq!(bench.barrier(), changes);
}

#[test]
fn groups_die_with_the_watermark_and_late_rows_go_aside() {
    let spec = AggregateSpec { expiry: Some(1), ..spec(&[0, 5], vec![count()]) };
    let mut bench = bench(spec, Settings::default());
    bench.push(0, "+ 1 1 a NULL NULL 1970-01-01T00:00:01\n+ 1 1 a NULL NULL 1970-01-01T00:00:02\n+ 1 1 a NULL NULL NULL");
    bench.watermark(0, 5, 2_000_000);
    assert_eq!(bench.barrier(), "+ 1 1970-01-01T00:00:01 1\n+ 1 1970-01-01T00:00:02 1\n+ 1 NULL 1");
    assert_eq!(bench.emitted_watermark(1), Some(2_000_000));
    bench.restart(3);
    bench.watermark(0, 5, 2_000_000);
    bench.barrier();
    bench.push(0, "- 1 1 a NULL NULL 1970-01-01T00:00:01\n+ 1 1 a NULL NULL 1970-01-01T00:00:02\n- 1 1 a NULL NULL NULL");
    assert_eq!(bench.barrier(), "- 1 1970-01-01T00:00:02 1\n+ 1 1970-01-01T00:00:02 2\n- 1 NULL 1");
    assert_eq!(bench.late(), ["1 1 a NULL NULL 1970-01-01T00:00:01"]);
}

#[test]
fn windows_are_emitted_once_when_they_close() {
    for restart in [false, true] {
        let spec = AggregateSpec { emit_on_close: Some(0), ..spec(&[5], vec![count()]) };
        let mut bench = bench(spec, Settings::default());
        bench.push(0, "+ 1 1 a NULL NULL 1970-01-01T00:00:01\n+ 1 1 a NULL NULL 1970-01-01T00:00:02");
        assert_eq!(bench.barrier(), "");
        bench.push(0, "+ 1 1 b NULL NULL 1970-01-01T00:00:01\n+ 1 1 c NULL NULL 1970-01-01T00:00:03");
        if restart {
            bench.restart(2);
        }
        bench.push(0, "- 1 1 c NULL NULL 1970-01-01T00:00:03");
        bench.watermark(0, 5, 2_000_000);
        assert_eq!(bench.barrier(), "+ 1970-01-01T00:00:01 2");
        bench.watermark(0, 5, i64::MAX);
        assert_eq!(bench.barrier(), "+ 1970-01-01T00:00:02 1");
        assert_eq!(bench.emitted_watermark(0), Some(i64::MAX));
        assert_eq!(bench.barrier(), "");
    }
}

#[test]
fn output_stops_when_full_and_goes_on() {
    let mut bench = bench(spec(&[0], vec![count()]), Settings { room: 10, ..Settings::default() });
    let text: Vec<String> = (0..10_000).map(|key| format!("+ {key} 1 a NULL NULL NULL")).collect();
    text.chunks(4096).for_each(|rows| bench.push(0, &rows.join("\n")));
    assert_eq!(bench.barrier().lines().count(), 10_000);
}

#[test]
fn totals_that_do_not_fit_are_errors_with_a_sqlstate() {
    let narrow = call(AggregateFunction::Sum, &[1], DataType::Int64);
    let types: Vec<DataType> = input().fields().iter().map(|field| field.data_type().clone()).collect();
    assert!(crate::accumulator::call_state(&narrow, &types, false).is_ok());
    let unsupported = call(AggregateFunction::Sum, &[2], DataType::Utf8View);
    let error = crate::accumulator::call_state(&unsupported, &types, false).err().unwrap();
    assert!(matches!(error, crate::error::EngineError::User { sqlstate: "0A000", .. }));
}

#[test]
fn subtasks_that_were_epochs_apart_close_each_epoch_once() {
    let calls = || {
        vec![count(), call(AggregateFunction::Sum, &[1], DataType::Decimal128(38, 0)), call(AggregateFunction::Max, &[1], DataType::Int64)]
    };
    check_epochs_apart(|settings| bench(spec(&[0], calls()), settings), "a NULL NULL NULL");
}
