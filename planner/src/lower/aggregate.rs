//! GROUP BY, DISTINCT and aggregate calls.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::{
    common::DFSchema,
    logical_expr::{
        Aggregate, Expr, LogicalPlan,
        expr::{AggregateFunction as LogicalCall, AggregateFunctionParams, NullTreatment},
        utils::grouping_set_to_exprlist,
    },
};
use millpond_engine::graph::{AggregateCall, AggregateFunction, AggregateSpec, OperatorSpec, OrderColumn};

use super::{
    Lowering,
    expression::unaliased,
    input_columns::{InputColumns, Wanted},
    internal, nullable_schema, single_value,
};
use crate::{
    error::Result,
    optimize::{SINGLE_VALUE, unsupported},
    stream::{distribution::aligned, node::NodeIndex},
};

/// Group columns and calls, by their places among the wanted expressions.
pub(super) struct Grouping {
    /// Places of the group expressions.
    pub(super) groups: Vec<usize>,
    /// Calls whose columns are places.
    pub(super) calls: Vec<AggregateCall>,
}

impl Lowering<'_> {
    /// Lowers an aggregation.
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate) -> Result<NodeIndex> {
        let schema = nullable_schema(&aggregate.schema);
        if let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() {
            return self.grouping_sets(aggregate, sets, &schema);
        }
        let input = self.lower(&aggregate.input)?;
        let mut wanted = Wanted::default();
        let group_expressions = grouping_set_to_exprlist(&aggregate.group_expr)?;
        let groups: Vec<usize> = group_expressions.into_iter().map(|expression| wanted.place(expression)).collect();
        let types = schema.fields()[groups.len()..].iter().map(|field| field.data_type());
        let calls = aggregate.aggr_expr.iter().zip(types).map(|(call, output)| aggregate_call(call, output, &mut wanted));
        let mut calls = calls.collect::<Result<Vec<_>>>()?;
        // The row counts of single_value calls come after all other columns.
        let mut fields = schema.fields().to_vec();
        let mut pairs = Vec::new();
        for (at, _) in aggregate.aggr_expr.iter().enumerate().filter(|(_, call)| single_value::is_call(call)) {
            calls.push(single_value::row_count(&calls[at]));
            pairs.push((groups.len() + at, fields.len()));
            fields.push(Arc::new(Field::new("rows", DataType::Int64, true)));
        }
        let below = self.only(input, aggregate.input.schema(), &wanted)?;
        let grouping = Grouping { groups, calls };
        let node = self.grouped(&below, &grouping, &Arc::new(Schema::new(fields)))?;
        self.checked(node, &pairs, &schema)
    }

    /// Lowers DISTINCT: groups of all columns, without calls.
    pub(super) fn distinct(&mut self, plan: &LogicalPlan) -> Result<NodeIndex> {
        let input = self.lower(plan)?;
        let schema = self.schema_of(input);
        let columns: Vec<usize> = (0..schema.fields().len()).collect();
        let grouping = Grouping { groups: columns.clone(), calls: Vec::new() };
        self.grouped(&InputColumns { node: input, columns }, &grouping, &schema)
    }

    /// The aggregate over an input that has the wanted columns; group columns come out in the order of `grouping`.
    pub(super) fn grouped(&mut self, below: &InputColumns, grouping: &Grouping, schema: &Arc<Schema>) -> Result<NodeIndex> {
        let column = |place: &usize| below.columns[*place];
        let wanted_order: Vec<usize> = grouping.groups.iter().map(column).collect();
        let known = &self.arena.node(below.node).properties;
        // Groups in the order in which the input is distributed already need no exchange.
        let group_by = aligned(&wanted_order, &known.partitioning).unwrap_or_else(|| wanted_order.clone());
        let calls = grouping.calls.iter().map(|call| AggregateCall {
            arguments: call.arguments.iter().map(column).collect(),
            filter: call.filter.as_ref().map(column),
            order_by: call.order_by.iter().map(|order| OrderColumn { column: column(&order.column), ..*order }).collect(),
            ..call.clone()
        });
        let spec = AggregateSpec {
            calls: calls.collect(),
            append_only_input: known.append_only,
            expiry: known.expiry_position(&group_by),
            emit_on_close: None,
            group_by: group_by.clone(),
        };
        let place = |column: &usize| wanted_order.iter().position(|wanted| wanted == column);
        let order: Vec<usize> = group_by.iter().filter_map(place).chain(group_by.len()..schema.fields().len()).collect();
        let fields: Vec<_> = order.iter().map(|at| Arc::clone(&schema.fields()[*at])).collect();
        let node = self.arena.add(OperatorSpec::Aggregate(spec), vec![below.node], Arc::new(Schema::new(fields)));
        let columns = self.identity(node);
        let restored = (0..order.len()).filter_map(|at| order.iter().position(|from| *from == at)).map(|at| columns[at].clone());
        self.project(node, restored.collect(), Arc::clone(schema))
    }
}

/// A call, its arguments by their places among the wanted expressions.
pub(super) fn aggregate_call(expression: &Expr, output: &DataType, wanted: &mut Wanted) -> Result<AggregateCall> {
    let Expr::AggregateFunction(LogicalCall { func, params }) = unaliased(expression) else {
        return Err(internal(format!("{expression} is no aggregate call")));
    };
    let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = params;
    let Some(function) = function(func.name()) else {
        return Err(unsupported(
            format!("aggregate function {}() is not supported in a materialized view", func.name()),
            "Compute it in a SELECT over the view.",
        ));
    };
    if matches!(null_treatment, Some(NullTreatment::IgnoreNulls)) {
        return Err(unsupported(
            format!("{}() with IGNORE NULLS is not supported in a materialized view", func.name()),
            "Leave NULLs out with FILTER (WHERE .. IS NOT NULL).",
        ));
    }
    let counts_rows = function == AggregateFunction::Count && !distinct && args.iter().all(is_constant);
    let ordered = matches!(
        function,
        AggregateFunction::StringAgg | AggregateFunction::ArrayAgg | AggregateFunction::FirstValue | AggregateFunction::LastValue
    );
    let order_by = order_by.iter().filter(|_| ordered).map(|sort| OrderColumn {
        column: wanted.place(&sort.expr),
        descending: !sort.asc,
        nulls_first: sort.nulls_first,
    });
    let order_by = order_by.collect();
    Ok(AggregateCall {
        function,
        arguments: if counts_rows { Vec::new() } else { args.iter().map(|argument| wanted.place(argument)).collect() },
        // Repeated values do not move an extreme.
        distinct: *distinct && !matches!(function, AggregateFunction::Min | AggregateFunction::Max),
        filter: filter.as_ref().map(|filter| wanted.place(filter)),
        order_by,
        output: output.clone(),
    })
}

/// `count(1)` and `count(*)` count rows.
fn is_constant(argument: &Expr) -> bool {
    matches!(unaliased(argument), Expr::Literal(value, _) if !value.is_null())
}

fn function(name: &str) -> Option<AggregateFunction> {
    Some(match name.to_ascii_lowercase().as_str() {
        "count" => AggregateFunction::Count,
        "sum" => AggregateFunction::Sum,
        "avg" | "mean" => AggregateFunction::Avg,
        // Any value will do, so the one that does not depend on the order of rows.
        "min" | "any_value" | SINGLE_VALUE => AggregateFunction::Min,
        "max" => AggregateFunction::Max,
        "bool_and" | "every" => AggregateFunction::BoolAnd,
        "bool_or" => AggregateFunction::BoolOr,
        "string_agg" => AggregateFunction::StringAgg,
        "array_agg" => AggregateFunction::ArrayAgg,
        "first_value" => AggregateFunction::FirstValue,
        "last_value" => AggregateFunction::LastValue,
        "var" | "var_samp" | "var_sample" | "variance" => AggregateFunction::Variance { sample: true, root: false },
        "var_pop" | "var_population" => AggregateFunction::Variance { sample: false, root: false },
        "stddev" | "stddev_samp" => AggregateFunction::Variance { sample: true, root: true },
        "stddev_pop" => AggregateFunction::Variance { sample: false, root: true },
        "bit_xor" => AggregateFunction::BitXor,
        _ => return None,
    })
}

/// The columns of an aggregate's input.
pub(super) fn input_schema(aggregate: &Aggregate) -> &DFSchema {
    aggregate.input.schema()
}
