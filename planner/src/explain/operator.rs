//! One operator in words, and the state it keeps.

use arrow::datatypes::Schema;
use millpond_engine::graph::{
    AggregateCall, AggregateFunction, AggregateSpec, CollectionKeySpec, Expression, JoinKind, JoinSpec, OperatorNode, OperatorSpec,
    OrderColumn, RankKind, TimeBound, TopNSpec, WindowStep,
};

use super::{column_name, names, number};

/// The operator with its arguments.
pub(super) fn describe(node: &OperatorNode, inputs: &[&Schema], name: &dyn Fn(u64) -> String) -> String {
    let number = number(node);
    let all: Vec<usize> = (0..node.schema.fields().len()).collect();
    let input = |at: usize| inputs.get(at).copied().unwrap_or(&node.schema);
    match &node.spec {
        OperatorSpec::SourceScan { source, .. } => format!("SourceScan {number} {} ({})", name(*source), names(&node.schema, &all)),
        OperatorSpec::CollectionScan { collection, .. } => {
            format!("CollectionScan {number} {} ({})", name(*collection), names(&node.schema, &all))
        }
        OperatorSpec::Values { batch } => format!("Values {number}, {} rows", batch.num_rows()),
        OperatorSpec::Filter { predicate } => format!("Filter {number} {predicate}"),
        OperatorSpec::Project { expressions } => {
            let columns: Vec<String> =
                expressions.iter().enumerate().map(|(at, expression)| named(expression, node.schema.field(at).name())).collect();
            format!("Project {number} {}", columns.join(", "))
        }
        OperatorSpec::Union => format!("Union {number}"),
        OperatorSpec::HopWindow { time_column, slide, size, offset_us } => {
            let time = column_name(input(0), *time_column);
            let offset = if *offset_us == 0 { String::new() } else { format!(", offset {}", micros(*offset_us)) };
            match slide == size {
                true => format!("TumbleWindow {number} on {time}, size {}{offset}", step(*size)),
                false => format!("HopWindow {number} on {time}, slide {}, size {}{offset}", step(*slide), step(*size)),
            }
        }
        OperatorSpec::Aggregate(spec) => describe_aggregate(spec, &number, input(0)),
        OperatorSpec::Join(spec) => describe_join(spec, &number, input(0), input(1)),
        OperatorSpec::TopN(spec) => describe_top_n(spec, &number, input(0)),
        OperatorSpec::EmitOnWindowClose { column } => format!("EmitOnWindowClose {number} by {}", column_name(input(0), *column)),
        OperatorSpec::ScalarSubquery => format!("ScalarSubquery {number}"),
        OperatorSpec::Materialize { collection, key } => {
            let key = match key {
                CollectionKeySpec::Columns(columns) => format!("key ({})", names(&node.schema, columns)),
                CollectionKeySpec::WholeRow => "key is the whole row".to_owned(),
                CollectionKeySpec::AppendOnly => "append-only".to_owned(),
            };
            format!("Materialize {number} {}, {key}", name(*collection))
        }
        OperatorSpec::Discard => format!("Discard {number}"),
    }
}

fn named(expression: &Expression, name: &str) -> String {
    let text = &expression.text;
    if text == name || text.rsplit('.').next() == Some(name) { text.clone() } else { format!("{text} AS {name}") }
}

fn describe_aggregate(spec: &AggregateSpec, number: &str, input: &Schema) -> String {
    let what = if spec.calls.is_empty() { "Distinct" } else { "Aggregate" };
    let by = if spec.group_by.is_empty() { String::new() } else { format!(" by ({})", names(input, &spec.group_by)) };
    let calls: Vec<String> = spec.calls.iter().map(|call| describe_call(call, input)).collect();
    let calls = if calls.is_empty() { String::new() } else { format!(": {}", calls.join(", ")) };
    let close = spec.emit_on_close.map(|at| format!(", emitted when {} closes", column_name(input, spec.group_by[at])));
    format!("{what} {number}{by}{calls}{}", close.unwrap_or_default())
}

fn describe_call(call: &AggregateCall, input: &Schema) -> String {
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    let arguments = if call.arguments.is_empty() { "*".to_owned() } else { names(input, &call.arguments) };
    let order = if call.order_by.is_empty() { String::new() } else { format!(" ORDER BY {}", order(&call.order_by, input)) };
    let filter = call.filter.map(|column| format!(" FILTER ({})", column_name(input, column))).unwrap_or_default();
    format!("{}({distinct}{arguments}{order}){filter}", function_name(call.function))
}

fn function_name(function: AggregateFunction) -> &'static str {
    match function {
        AggregateFunction::Count => "count",
        AggregateFunction::Sum => "sum",
        AggregateFunction::Avg => "avg",
        AggregateFunction::Min => "min",
        AggregateFunction::Max => "max",
        AggregateFunction::BoolAnd => "bool_and",
        AggregateFunction::BoolOr => "bool_or",
        AggregateFunction::StringAgg => "string_agg",
        AggregateFunction::ArrayAgg => "array_agg",
        AggregateFunction::FirstValue => "first_value",
        AggregateFunction::LastValue => "last_value",
        AggregateFunction::Variance { sample: true, root: false } => "var_samp",
        AggregateFunction::Variance { sample: false, root: false } => "var_pop",
        AggregateFunction::Variance { sample: true, root: true } => "stddev_samp",
        AggregateFunction::Variance { sample: false, root: true } => "stddev_pop",
        AggregateFunction::BitXor => "bit_xor",
    }
}

fn describe_join(spec: &JoinSpec, number: &str, left: &Schema, right: &Schema) -> String {
    let kind = match spec.kind {
        JoinKind::Inner => "InnerJoin",
        JoinKind::Left => "LeftJoin",
        JoinKind::Right => "RightJoin",
        JoinKind::Full => "FullJoin",
        JoinKind::LeftSemi | JoinKind::RightSemi => "SemiJoin",
        JoinKind::LeftAnti | JoinKind::RightAnti => "AntiJoin",
        JoinKind::LeftMark => "MarkJoin",
    };
    let pair = |((one, two), null_equal): (&(usize, usize), &bool)| {
        let equals = if *null_equal { "IS NOT DISTINCT FROM" } else { "=" };
        format!("{} {equals} {}", column_name(left, *one), column_name(right, *two))
    };
    let on: Vec<String> = spec.on.iter().zip(&spec.null_equal).map(pair).collect();
    let on = if on.is_empty() { " of all rows".to_owned() } else { format!(" on {}", on.join(" and ")) };
    let condition = spec.condition.as_ref().map(|condition| format!(", if {condition}")).unwrap_or_default();
    format!("{kind} {number}{on}{condition}")
}

fn describe_top_n(spec: &TopNSpec, number: &str, input: &Schema) -> String {
    let rank = match spec.rank {
        RankKind::RowNumber => "row_number",
        RankKind::Rank => "rank",
        RankKind::DenseRank => "dense_rank",
    };
    let mut text = format!("TopN {number} {rank}");
    if !spec.partition_by.is_empty() {
        text.push_str(&format!(" per ({})", names(input, &spec.partition_by)));
    }
    if !spec.order_by.is_empty() {
        text.push_str(&format!(" in order {}", order(&spec.order_by, input)));
    }
    if let Some(limit) = spec.limit {
        text.push_str(&format!(", limit {limit}"));
    }
    if spec.offset > 0 {
        text.push_str(&format!(", offset {}", spec.offset));
    }
    if spec.emit_rank {
        text.push_str(", with rank");
    }
    text
}

fn order(columns: &[OrderColumn], input: &Schema) -> String {
    let one = |order: &OrderColumn| {
        let direction = if order.descending { " DESC" } else { "" };
        // What Postgres takes as the default is left out.
        let nulls = match (order.descending, order.nulls_first) {
            (true, false) => " NULLS LAST",
            (false, true) => " NULLS FIRST",
            _ => "",
        };
        format!("{}{direction}{nulls}", column_name(input, order.column))
    };
    columns.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What the operator keeps, and until when.
pub(super) fn state(node: &OperatorNode, inputs: &[&Schema]) -> Vec<String> {
    let input = |at: usize| inputs.get(at).copied().unwrap_or(&node.schema);
    let until = |column: Option<usize>, schema: &Schema| match column {
        Some(column) => format!("until the watermark passes {}", column_name(schema, column)),
        None => "for ever".to_owned(),
    };
    match &node.spec {
        OperatorSpec::SourceScan { .. } => vec!["offset of each split".to_owned()],
        OperatorSpec::CollectionScan { .. } => vec!["position in the collection".to_owned()],
        OperatorSpec::Aggregate(spec) => {
            let until = until(spec.expiry.map(|at| spec.group_by[at]), input(0));
            let mut kept = vec![format!("groups, {until}")];
            let values: Vec<String> = spec
                .calls
                .iter()
                .filter(|call| keeps_values(call, spec.append_only_input))
                .map(|call| describe_call(call, input(0)))
                .collect();
            if !values.is_empty() {
                kept.push(format!("values of {}, {until}", values.join(", ")));
            }
            kept
        }
        OperatorSpec::Join(spec) => vec![
            format!("left rows, {}", join_until(spec.left_expiry, &spec.left_bounds, input(0))),
            format!("right rows, {}", join_until(spec.right_expiry, &spec.right_bounds, input(1))),
        ],
        OperatorSpec::TopN(spec) => vec![format!("rows, {}", until(spec.expiry.map(|at| spec.partition_by[at]), input(0)))],
        OperatorSpec::EmitOnWindowClose { column } => vec![format!("rows, {}", until(Some(*column), input(0)))],
        OperatorSpec::ScalarSubquery => vec!["its row".to_owned()],
        OperatorSpec::Values { .. }
        | OperatorSpec::Filter { .. }
        | OperatorSpec::Project { .. }
        | OperatorSpec::Union
        | OperatorSpec::HopWindow { .. }
        | OperatorSpec::Materialize { .. }
        | OperatorSpec::Discard => Vec::new(),
    }
}

fn join_until(expiry: Option<usize>, bounds: &[TimeBound], schema: &Schema) -> String {
    let Some(column) = expiry else { return "for ever".to_owned() };
    let name = column_name(schema, column);
    // What the other side's watermark has to pass, which lags behind or hurries on.
    match bounds.iter().filter(|bound| bound.column == column).map(|bound| bound.shift_us).max() {
        None | Some(0) => format!("until the watermark passes {name}"),
        Some(shift) if shift < 0 => format!("until the watermark passes {name} + {}", micros(-shift)),
        Some(shift) => format!("until the watermark passes {name} - {}", micros(shift)),
    }
}

/// Whether a call needs the single values of a group, not only a sum of them.
fn keeps_values(call: &AggregateCall, append_only: bool) -> bool {
    call.distinct
        || match call.function {
            AggregateFunction::Min | AggregateFunction::Max => !append_only,
            AggregateFunction::StringAgg | AggregateFunction::ArrayAgg | AggregateFunction::FirstValue | AggregateFunction::LastValue => {
                true
            }
            AggregateFunction::Count
            | AggregateFunction::Sum
            | AggregateFunction::Avg
            | AggregateFunction::BoolAnd
            | AggregateFunction::BoolOr
            | AggregateFunction::Variance { .. }
            | AggregateFunction::BitXor => false,
        }
}

fn step(step: WindowStep) -> String {
    match step {
        WindowStep::Micros(length) => micros(length),
        WindowStep::Months(months) => format!("{months} months"),
    }
}

fn micros(length: i64) -> String {
    match length {
        length if length % 1_000_000 == 0 => format!("{} s", length / 1_000_000),
        length if length % 1_000 == 0 => format!("{} ms", length / 1_000),
        length => format!("{length} us"),
    }
}
