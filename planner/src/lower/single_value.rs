//! `single_value(x)`: the value of the only row, NULL if there is none, 21000 if there are more. The engine keeps the smallest value and the
//! number of rows, and a function above the aggregate checks the number. Aggregates emit the net change of an epoch only, so a second row
//! that comes and goes within an epoch does no harm.

use std::sync::{Arc, LazyLock};

use arrow::{
    array::AsArray,
    datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef},
};
use datafusion::{
    common::{DataFusionError, Result as DataFusionResult, config::ConfigOptions},
    logical_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
    physical_expr::ScalarFunctionExpr,
    physical_plan::PhysicalExpr,
};
use millpond_engine::{
    error::EngineError,
    graph::{AggregateCall, AggregateFunction, Expression},
};

use super::{Lowering, expression::unaliased};
use crate::{error::Result, optimize::SINGLE_VALUE, stream::node::NodeIndex};

/// Whether a logical call is one of `single_value`.
pub(super) fn is_call(call: &Expr) -> bool {
    matches!(unaliased(call), Expr::AggregateFunction(call) if call.func.name() == SINGLE_VALUE)
}

/// The call that counts the rows of a `single_value` call.
pub(super) fn row_count(value: &AggregateCall) -> AggregateCall {
    AggregateCall { function: AggregateFunction::Count, arguments: Vec::new(), output: DataType::Int64, ..value.clone() }
}

impl Lowering<'_> {
    /// Checks the pairs (value column, rows column) of an aggregate and leaves the columns of `schema`.
    pub(super) fn checked(&mut self, node: NodeIndex, pairs: &[(usize, usize)], schema: &SchemaRef) -> Result<NodeIndex> {
        if pairs.is_empty() {
            return Ok(node);
        }
        let columns = self.identity(node);
        let input = self.schema_of(node);
        let mut expressions: Vec<Expression> = columns.iter().take(schema.fields().len()).cloned().collect();
        for (value, rows) in pairs {
            let arguments = vec![Arc::clone(&columns[*value].physical), Arc::clone(&columns[*rows].physical)];
            expressions[*value] =
                Expression { physical: check(arguments, &input)?, text: format!("single_value({})", columns[*value].text) };
        }
        self.project(node, expressions, Arc::clone(schema))
    }
}

fn check(arguments: Vec<Arc<dyn PhysicalExpr>>, input: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(OnlyRow::new())));
    Ok(Arc::new(ScalarFunctionExpr::try_new(Arc::clone(&FUNCTION), arguments, input, Arc::new(ConfigOptions::default()))?))
}

/// (value, number of rows) -> value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyRow {
    signature: Signature,
}

impl OnlyRow {
    fn new() -> Self {
        Self { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OnlyRow {
    fn name(&self) -> &str {
        "only_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DataFusionResult<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Null))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        let data_type = arguments.arg_fields.first().map_or(DataType::Null, |field| field.data_type().clone());
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let rows = arguments.args[1].to_array(arguments.number_rows)?;
        if rows.as_primitive::<Int64Type>().iter().flatten().any(|rows| rows > 1) {
            let error = EngineError::user("21000", "more than one row returned by a subquery used as an expression");
            return Err(DataFusionError::External(Box::new(error)));
        }
        Ok(arguments.args[0].clone())
    }
}
