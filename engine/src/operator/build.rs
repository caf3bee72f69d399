//! From a node of the dataflow graph to its operator.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};

use super::{
    Operator, OperatorContext, aggregate::Aggregate, discard::Discard, emit_on_window_close::EmitOnWindowClose, filter::Filter,
    hop_window::HopWindow, join::Join, project::Project, scalar_subquery::ScalarSubquery, state::TableIds, top_n::TopN, union::Union,
};
use crate::{
    error::{EngineError, Result},
    expression::Evaluator,
    graph::{OperatorNode, OperatorSpec},
};

/// Builds the operator of a node. Scans and the operator that maintains a collection are built by the task, which has their channels.
pub fn build(node: &OperatorNode, context: &mut OperatorContext) -> Result<Box<dyn Operator>> {
    let ids = TableIds::of_node(node.id)?;
    let schema = Arc::clone(&node.schema);
    let inputs = context.inputs.clone();
    let input = |port: usize| -> Result<&SchemaRef> {
        inputs.get(port).ok_or_else(|| EngineError::Internal(format!("operator {} has no input {port}", node.id)))
    };
    let name = |kind: &str| format!("{kind} {}", node.id);
    Ok(match &node.spec {
        OperatorSpec::Filter { predicate } => {
            Box::new(Filter::new(Evaluator::predicate(predicate.clone(), name("Filter"), context.side.clone())))
        }
        OperatorSpec::Project { expressions } => {
            let types: Vec<DataType> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
            let evaluator = Evaluator::new(expressions.clone(), types, name("Project"), context.side.clone());
            Box::new(Project::new(evaluator, Arc::clone(input(0)?), schema, &node.properties.watermark_columns))
        }
        OperatorSpec::Union => Box::new(Union::new(schema, node.inputs.len())),
        OperatorSpec::HopWindow { time_column, slide, size, offset_us } => {
            Box::new(HopWindow::new(name("HopWindow"), *time_column, (*slide, *size, *offset_us), schema, context.side.clone())?)
        }
        OperatorSpec::Aggregate(spec) => Box::new(Aggregate::new(name("Aggregate"), spec, input(0)?, schema, ids, context)?),
        OperatorSpec::Join(spec) => Box::new(Join::new(name("Join"), spec, [input(0)?, input(1)?], schema, ids, context)?),
        OperatorSpec::Discard => Box::new(Discard),
        OperatorSpec::TopN(spec) => Box::new(TopN::new(name("TopN"), spec, input(0)?, schema, ids, context)?),
        OperatorSpec::EmitOnWindowClose { column } => {
            Box::new(EmitOnWindowClose::new(name("EmitOnWindowClose"), *column, input(0)?, ids, context)?)
        }
        OperatorSpec::ScalarSubquery => Box::new(ScalarSubquery::new(input(0)?, ids, context)?),
        OperatorSpec::SourceScan { .. }
        | OperatorSpec::CollectionScan { .. }
        | OperatorSpec::Values { .. }
        | OperatorSpec::Materialize { .. } => {
            return Err(EngineError::Internal(format!("operator {} is built by its task", node.id)));
        }
    })
}
