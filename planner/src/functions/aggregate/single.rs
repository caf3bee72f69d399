//! The only value of an input: what makes a scalar subquery of a correlated query.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{DataType, FieldRef, Int64Type},
};
use datafusion::{
    common::{Result as DataFusionResult, ScalarValue},
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
    },
};

use crate::error::{PlanError, sqlstate};

/// The function, for values of any type.
pub(super) fn single_value() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(SingleValue { signature: Signature::any(1, Volatility::Immutable) }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleValue {
    signature: Signature,
}

impl AggregateUDFImpl for SingleValue {
    fn name(&self) -> &str {
        "single_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(types.first().cloned().unwrap_or(DataType::Null))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(Single { value: ScalarValue::try_new_null(args.return_type())?, rows: 0 }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        let field = |name: &str, data_type: DataType| Arc::new(arrow::datatypes::Field::new(name, data_type, true));
        Ok(vec![field("value", args.return_field.data_type().clone()), field("rows", DataType::Int64)])
    }
}

#[derive(Debug)]
struct Single {
    value: ScalarValue,
    rows: i64,
}

impl Single {
    fn add(&mut self, value: ScalarValue, rows: i64) -> DataFusionResult<()> {
        if rows == 0 {
            return Ok(());
        }
        self.rows += rows;
        if self.rows > 1 {
            let message = "more than one row returned by a subquery used as an expression";
            return Err(PlanError::new(sqlstate::CARDINALITY_VIOLATION, message).into());
        }
        self.value = value;
        Ok(())
    }
}

impl Accumulator for Single {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        match values[0].len() {
            0 => Ok(()),
            rows => self.add(ScalarValue::try_from_array(&values[0], 0)?, rows as i64),
        }
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Int64(Some(self.rows))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let rows = states[1].as_primitive::<Int64Type>();
        for row in 0..rows.len() {
            self.add(ScalarValue::try_from_array(&states[0], row)?, rows.value(row))?;
        }
        Ok(())
    }
}
