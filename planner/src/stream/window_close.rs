//! EMIT ON WINDOW CLOSE: the view shows a window's rows once, when they are final.
//!
//! Going down from the root through operators that work row by row, the first one whose output carries a watermark decides: an aggregate
//! by a time column emits each group at its close; above anything else, rows are withheld until the watermark has passed their time. A row that
//! an outer join pads has the time of the side that it comes from.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::{
    physical_expr::expressions::{Column, IsNotNullExpr, IsNullExpr},
    physical_plan::PhysicalExpr,
};
use millpond_engine::graph::{AggregateSpec, Expression, JoinKind, JoinSpec, OperatorSpec};

use super::node::{NodeIndex, StreamNode};
use crate::{
    error::{PlanError, Result},
    lower::Lowering,
};

/// The plan under `root` with windows that are emitted at their close.
///
/// # Errors
/// 0A000 if an input has no watermark by which a window could close.
pub(super) fn emit_on_close(lowering: &mut Lowering<'_>, root: NodeIndex) -> Result<NodeIndex> {
    let node = lowering.arena.node(root).clone();
    match &node.spec {
        OperatorSpec::Filter { .. } | OperatorSpec::Project { .. } | OperatorSpec::Union => {
            let inputs = node.inputs.iter().map(|input| emit_on_close(lowering, *input)).collect::<Result<Vec<_>>>()?;
            Ok(lowering.arena.add(node.spec, inputs, node.schema))
        }
        OperatorSpec::Values { .. } => Ok(root),
        OperatorSpec::Aggregate(spec) => {
            let input = &lowering.arena.node(node.inputs[0]).properties;
            let Some(close) = input.closing_position(&spec.group_by) else { return Err(no_watermark()) };
            // Late rows are dropped from now on, so the state can die too.
            let spec = AggregateSpec { emit_on_close: Some(close), expiry: Some(close), ..spec.clone() };
            Ok(lowering.arena.add(OperatorSpec::Aggregate(spec), node.inputs, node.schema))
        }
        OperatorSpec::Join(spec) => {
            let wide = with_time_columns(lowering, spec, &node);
            let withheld = match spec.kind {
                JoinKind::Full => withhold_each_side(lowering, wide, lowering.arena.node(node.inputs[0]).width())?,
                _ => withhold(lowering, wide)?,
            };
            let narrow = lowering.identity(withheld).into_iter().take(node.width()).collect();
            Ok(lowering.project_above(withheld, narrow, node.schema))
        }
        _ => withhold(lowering, root),
    }
}

/// Withholds the rows of a node until their time has passed.
fn withhold(lowering: &mut Lowering<'_>, index: NodeIndex) -> Result<NodeIndex> {
    let node = lowering.arena.node(index);
    let columns: Vec<usize> = (0..node.width()).collect();
    let Some(column) = node.properties.closing_position(&columns) else { return Err(no_watermark()) };
    Ok(withhold_by(lowering, index, column))
}

fn withhold_by(lowering: &mut Lowering<'_>, index: NodeIndex, column: usize) -> NodeIndex {
    let schema = SchemaRef::clone(&lowering.arena.node(index).schema);
    lowering.arena.add(OperatorSpec::EmitOnWindowClose { column }, vec![index], schema)
}

/// Withholds the rows of a full join: those with a left side by its time, the others by that of the right side.
fn withhold_each_side(lowering: &mut Lowering<'_>, index: NodeIndex, left_width: usize) -> Result<NodeIndex> {
    let node = lowering.arena.node(index).clone();
    let OperatorSpec::Join(spec) = &node.spec else { return withhold(lowering, index) };
    let of_side = |left: bool| {
        let found = node.properties.watermarks.iter().filter(|found| (spec.output[found.column] < left_width) == left);
        found.max_by_key(|found| (found.role, std::cmp::Reverse(found.column))).map(|found| found.column)
    };
    let (Some(left), Some(right)) = (of_side(true), of_side(false)) else { return Err(no_watermark()) };
    // A left time that is NULL of itself matches nothing, as a right one does: such a row is in no window.
    let mut branches = Vec::new();
    for (present, column) in [(true, left), (false, right)] {
        let time: Arc<dyn PhysicalExpr> = Arc::new(Column::new(node.schema.field(left).name(), left));
        let physical: Arc<dyn PhysicalExpr> = if present { Arc::new(IsNotNullExpr::new(time)) } else { Arc::new(IsNullExpr::new(time)) };
        let predicate = Expression { text: physical.to_string(), physical };
        let filtered = lowering.arena.add(OperatorSpec::Filter { predicate }, vec![index], SchemaRef::clone(&node.schema));
        branches.push(withhold_by(lowering, filtered, column));
    }
    Ok(lowering.arena.add(OperatorSpec::Union, branches, node.schema))
}

/// The join with the columns that close its rows at the end: the query may not show them.
fn with_time_columns(lowering: &mut Lowering<'_>, spec: &JoinSpec, node: &StreamNode) -> NodeIndex {
    let inputs = [0, 1].map(|side| SchemaRef::clone(&lowering.arena.node(node.inputs[side]).schema));
    let left_width = inputs[0].fields().len();
    let of_left = || spec.left_bounds.iter().map(|bound| (bound.column, Arc::clone(&inputs[0].fields()[bound.column])));
    let of_right = || spec.right_bounds.iter().map(|bound| (bound.column, Arc::clone(&inputs[1].fields()[bound.column])));
    let behind_left = || of_right().map(|(column, field)| (left_width + column, field));
    let times: Vec<_> = match spec.kind {
        JoinKind::Left | JoinKind::LeftSemi | JoinKind::LeftAnti | JoinKind::LeftMark => of_left().collect(),
        JoinKind::Right => behind_left().collect(),
        JoinKind::RightSemi | JoinKind::RightAnti => of_right().collect(),
        JoinKind::Inner | JoinKind::Full => of_left().chain(behind_left()).collect(),
    };
    let mut output = spec.output.clone();
    let mut fields = node.schema.fields().to_vec();
    for (column, field) in times {
        if !output.contains(&column) {
            output.push(column);
            fields.push(field);
        }
    }
    let spec = JoinSpec { output, ..spec.clone() };
    lowering.arena.add(OperatorSpec::Join(spec), node.inputs.clone(), Arc::new(Schema::new(fields)))
}

fn no_watermark() -> PlanError {
    PlanError::unsupported("EMIT ON WINDOW CLOSE needs a window whose time column has a watermark")
        .with_detail(
            "A global aggregate loses the watermark, and so does a join that says nothing of how far apart the times of its sides are.",
        )
        .with_hint("Declare WATERMARK FOR on the source or table, and group by window_start and window_end of TUMBLE or HOP over it.")
}
