//! From an [`AggregateSpec`] to an operator: which calls are fed by rows, which by sets of values.

use arrow::datatypes::{DataType, SchemaRef};
use millpond_storage::encoding::{EncodedRows, key::KeyCodec};

use super::{
    Aggregate, Scratch,
    emit::Stage,
    groups::Groups,
    values::{DistinctCall, Purpose, ValueSet, Values},
};
use crate::{
    accumulator::{CallState, call_state},
    error::{EngineError, Result},
    graph::{AggregateCall, AggregateFunction, AggregateSpec},
    operator::{OperatorContext, state::TableIds, timers::Timers},
};

/// How rows reach a call.
pub(super) enum Route {
    /// Directly.
    Rows { arguments: Vec<usize>, filter: Option<usize> },
    /// Through a set of values, counted under this filter.
    Values { filter: Option<usize> },
}

impl Route {
    /// The filter column, if there is one.
    pub(super) fn filters(&self) -> impl Iterator<Item = &usize> {
        match self {
            Route::Rows { filter, .. } | Route::Values { filter } => filter.iter(),
        }
    }
}

impl Aggregate {
    /// An operator over an input of `input` columns with an output of `schema`. `name` names it in the side output.
    pub(crate) fn new(
        name: String,
        spec: &AggregateSpec,
        input: &SchemaRef,
        schema: SchemaRef,
        ids: TableIds,
        context: &mut OperatorContext,
    ) -> Result<Self> {
        let types: Vec<DataType> = input.fields().iter().map(|field| field.data_type().clone()).collect();
        let group_types: Vec<DataType> = spec.group_by.iter().map(|column| types[*column].clone()).collect();
        let time_position = spec.emit_on_close.or(spec.expiry);
        let calls = spec.calls.iter().map(|call| call_state(call, &types, spec.append_only_input)).collect::<Result<Vec<_>>>()?;
        let (routes, sets) = plan_routes(spec, &calls, &types)?;
        let states = context.state.point_table(ids.table(0))?;
        let open = context.state.point_table(ids.table(1))?;
        let values = match sets.is_empty() {
            true => None,
            false => Some(Values::new(context.state.range_table(ids.table(2))?, sets, spec.append_only_input)),
        };
        let timers = match time_position {
            None => None,
            Some(_) => {
                let groups = context.state.key_groups();
                Some(Timers::new(context.state.range_table(ids.table(3))?, groups))
            }
        };
        let mut groups = Groups::new(calls, time_position.is_some(), (states, open), context.closed, context.budget.handle("aggregate"));
        groups.find_open()?;
        Ok(Self {
            name,
            schema,
            codec: KeyCodec::ascending(&group_types)?,
            routes,
            groups,
            values,
            timers,
            time_position,
            emit_on_close: spec.emit_on_close.is_some(),
            watermarks: vec![(None, None); spec.group_by.len()],
            group_by: spec.group_by.clone(),
            applied: context.applied_watermark,
            closing_epoch: context.closed,
            stage: Stage::Idle,
            side: context.side.clone(),
            scratch: Scratch { keys: EncodedRows::new(), ..Scratch::default() },
        })
    }
}

/// Whether a call needs to know which values are distinct: for the extremes and the logical functions it makes no difference.
fn counts_distinct(call: &AggregateCall) -> bool {
    let indifferent =
        matches!(call.function, AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::BoolAnd | AggregateFunction::BoolOr);
    call.distinct && !indifferent
}

fn plan_routes(spec: &AggregateSpec, calls: &[CallState], types: &[DataType]) -> Result<(Vec<Route>, Vec<ValueSet>)> {
    let mut routes = Vec::new();
    let mut sets: Vec<ValueSet> = Vec::new();
    for (number, (call, state)) in spec.calls.iter().zip(calls).enumerate() {
        let direct = match state {
            CallState::Summary(_) => !counts_distinct(call),
            CallState::Extreme(_) => spec.append_only_input,
            CallState::Ordered(_) => false,
        };
        routes.push(match direct {
            true => Route::Rows { arguments: arguments_of(call), filter: call.filter },
            false => Route::Values { filter: call.filter },
        });
        if direct {
            continue;
        }
        match state {
            CallState::Summary(_) => add_distinct(&mut sets, number, call, types)?,
            CallState::Extreme(extreme) => sets.push(ValueSet {
                codec: extreme.codec().clone(),
                columns: call.arguments.clone(),
                filters: vec![call.filter],
                skip_nulls_of: call.arguments.clone(),
                purpose: Purpose::Extreme(number),
            }),
            CallState::Ordered(ordered) => sets.push(ValueSet {
                codec: ordered.codec().clone(),
                columns: ordered.columns().to_vec(),
                filters: vec![call.filter],
                skip_nulls_of: ordered.skips_null_of().into_iter().collect(),
                purpose: Purpose::Ordered(number),
            }),
        }
    }
    if sets.len() > usize::from(u8::MAX) {
        return Err(EngineError::user("54001", "a view can have at most 255 DISTINCT, min, max and ordered aggregates in one GROUP BY"));
    }
    Ok((routes, sets))
}

/// The arguments an accumulator looks at.
fn arguments_of(call: &AggregateCall) -> Vec<usize> {
    call.arguments.clone()
}

/// Adds a call to the set of its distinct argument values, which it may share with others.
fn add_distinct(sets: &mut Vec<ValueSet>, call: usize, spec: &AggregateCall, types: &[DataType]) -> Result<()> {
    let Some(argument) = spec.arguments.first().copied() else {
        return Err(EngineError::Internal("DISTINCT needs an argument".into()));
    };
    let shared = |set: &&mut ValueSet| matches!(set.purpose, Purpose::Distinct(_)) && set.columns == spec.arguments;
    if let Some(set) = sets.iter_mut().find(shared) {
        let filter = set.filters.iter().position(|filter| *filter == spec.filter).unwrap_or_else(|| {
            set.filters.push(spec.filter);
            set.filters.len() - 1
        });
        if let Purpose::Distinct(calls) = &mut set.purpose {
            calls.push(DistinctCall { call, filter, argument });
        }
        return Ok(());
    }
    let argument_types: Vec<DataType> = spec.arguments.iter().map(|column| types[*column].clone()).collect();
    sets.push(ValueSet {
        codec: KeyCodec::ascending(&argument_types)?,
        columns: spec.arguments.clone(),
        filters: vec![spec.filter],
        skip_nulls_of: spec.arguments.clone(),
        purpose: Purpose::Distinct(vec![DistinctCall { call, filter: 0, argument }]),
    });
    Ok(())
}
