//! EMIT ON WINDOW CLOSE: the view shows a window's rows once, when they are final.
//!
//! Going down from the root through operators that work row by row, the first one whose output carries a watermark decides: an aggregate
//! by a time column emits each group at its close; above anything else, rows are withheld until the watermark has passed their time.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use millpond_engine::graph::{AggregateSpec, JoinSpec, OperatorSpec};

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
            let Some(close) = input.closing_position(&spec.group_by, false) else { return Err(no_watermark()) };
            // Late rows are dropped from now on, so the state can die too.
            let spec = AggregateSpec { emit_on_close: Some(close), expiry: Some(close), ..spec.clone() };
            Ok(lowering.arena.add(OperatorSpec::Aggregate(spec), node.inputs, node.schema))
        }
        OperatorSpec::Join(spec) => {
            let wide = with_join_columns(lowering, spec, &node);
            let withheld = withhold(lowering, wide)?;
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
    let Some(column) = node.properties.closing_position(&columns, false) else { return Err(no_watermark()) };
    let schema = SchemaRef::clone(&node.schema);
    Ok(lowering.arena.add(OperatorSpec::EmitOnWindowClose { column }, vec![index], schema))
}

/// The join with the left columns of its equalities at the end: the query may not show the window that closes its rows.
fn with_join_columns(lowering: &mut Lowering<'_>, spec: &JoinSpec, node: &StreamNode) -> NodeIndex {
    let missing: Vec<usize> = spec.on.iter().map(|(left, _)| *left).filter(|column| !spec.output.contains(column)).collect();
    let left = SchemaRef::clone(&lowering.arena.node(node.inputs[0]).schema);
    let extra = missing.iter().map(|column| Arc::clone(&left.fields()[*column]));
    let fields: Vec<_> = node.schema.fields().iter().map(Arc::clone).chain(extra).collect();
    let spec = JoinSpec { output: spec.output.iter().copied().chain(missing).collect(), ..spec.clone() };
    lowering.arena.add(OperatorSpec::Join(spec), node.inputs.clone(), Arc::new(Schema::new(fields)))
}

fn no_watermark() -> PlanError {
    PlanError::unsupported("EMIT ON WINDOW CLOSE needs a window whose time column has a watermark")
        .with_detail("A join with anything but the same window of the other side, and a global aggregate, lose the watermark.")
        .with_hint("Declare WATERMARK FOR on the source or table, and group by window_start and window_end of TUMBLE or HOP over it.")
}
