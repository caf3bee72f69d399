//! UNION ALL.

use std::sync::Arc;

use datafusion::logical_expr::{LogicalPlan, Union};
use millpond_engine::graph::OperatorSpec;

use super::{Lowering, nullable_schema};
use crate::{error::Result, stream::node::NodeIndex};

impl Lowering<'_> {
    /// Lowers a union; inputs that differ in type are cast to the union's.
    pub(super) fn union(&mut self, union: &Union) -> Result<NodeIndex> {
        let schema = nullable_schema(&union.schema);
        let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
        let lower = |input: &Arc<LogicalPlan>| {
            let node = self.lower(input)?;
            if types.is_empty() { Ok(self.countable(node)) } else { self.cast(node, &types) }
        };
        let inputs = union.inputs.iter().map(lower).collect::<Result<Vec<_>>>()?;
        if let [only] = inputs.as_slice() {
            return Ok(*only);
        }
        let schema = if types.is_empty() { self.schema_of(inputs[0]) } else { schema };
        Ok(self.arena.add(OperatorSpec::Union, inputs, schema))
    }
}
