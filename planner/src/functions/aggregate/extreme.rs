//! `min` and `max`. NaN is the greatest of all floats; everything else is DataFusion's own.

use std::{cmp::Ordering, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{DataType, Float32Type, Float64Type},
};
use datafusion::{
    common::{Result as DataFusionResult, ScalarValue},
    functions_aggregate::min_max::{max_udaf, min_udaf},
    logical_expr::{Accumulator, AggregateUDF, EmitTo, GroupsAccumulator},
};

use super::function::Recipe;

/// The function for values of a type.
pub(super) fn extreme(max: bool, data_type: &DataType) -> Arc<AggregateUDF> {
    if !matches!(data_type, DataType::Float32 | DataType::Float64) {
        return if max { max_udaf() } else { min_udaf() };
    }
    let accumulator: fn(&Recipe) -> Box<dyn Accumulator> = if max {
        |recipe| Box::new(Extreme { max: true, value: None, result: recipe.result.clone() })
    } else {
        |recipe| Box::new(Extreme { max: false, value: None, result: recipe.result.clone() })
    };
    let groups: fn(&Recipe) -> Box<dyn GroupsAccumulator> = if max {
        |recipe| Box::new(ExtremeGroups { max: true, values: Vec::new(), result: recipe.result.clone() })
    } else {
        |recipe| Box::new(ExtremeGroups { max: false, values: Vec::new(), result: recipe.result.clone() })
    };
    Recipe {
        name: if max { "max" } else { "min" },
        arguments: vec![data_type.clone()],
        result: data_type.clone(),
        state: vec![data_type.clone()],
        never_null: false,
        accumulator,
        groups: Some(groups),
    }
    .into_function()
}

/// Floats with NaN above all.
fn compare(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| left.is_nan().cmp(&right.is_nan()))
}

fn better(max: bool, current: Option<f64>, value: f64) -> bool {
    match current {
        None => true,
        Some(current) => compare(value, current) == if max { Ordering::Greater } else { Ordering::Less },
    }
}

fn float(array: &ArrayRef, row: usize) -> Option<f64> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(row)),
        _ => array.as_primitive::<Float64Type>().value(row),
    })
}

fn scalar(value: Option<f64>, result: &DataType) -> ScalarValue {
    match result {
        DataType::Float32 => ScalarValue::Float32(value.map(|value| value as f32)),
        _ => ScalarValue::Float64(value),
    }
}

#[derive(Debug)]
struct Extreme {
    max: bool,
    value: Option<f64>,
    result: DataType,
}

impl Accumulator for Extreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        for value in (0..values[0].len()).filter_map(|row| float(&values[0], row)) {
            if better(self.max, self.value, value) {
                self.value = Some(value);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        Ok(scalar(self.value, &self.result))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.update_batch(states)
    }
}

struct ExtremeGroups {
    max: bool,
    values: Vec<Option<f64>>,
    result: DataType,
}

impl ExtremeGroups {
    fn update(&mut self, values: &ArrayRef, groups: &[usize], filter: Option<&arrow::array::BooleanArray>, total: usize) {
        use arrow::array::Array;
        self.values.resize(total, None);
        for (row, group) in groups.iter().enumerate() {
            if filter.is_some_and(|filter| !(filter.is_valid(row) && filter.value(row))) {
                continue;
            }
            if let Some(value) = float(values, row)
                && better(self.max, self.values[*group], value)
            {
                self.values[*group] = Some(value);
            }
        }
    }
}

impl GroupsAccumulator for ExtremeGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&arrow::array::BooleanArray>,
        total_num_groups: usize,
    ) -> DataFusionResult<()> {
        self.update(&values[0], group_indices, opt_filter, total_num_groups);
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DataFusionResult<ArrayRef> {
        let values = emit_to.take_needed(&mut self.values);
        if values.is_empty() {
            return Ok(arrow::array::new_empty_array(&self.result));
        }
        ScalarValue::iter_to_array(values.into_iter().map(|value| scalar(value, &self.result)))
    }

    fn state(&mut self, emit_to: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> DataFusionResult<()> {
        self.update(&values[0], group_indices, None, total_num_groups);
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&arrow::array::BooleanArray>) -> DataFusionResult<Vec<ArrayRef>> {
        match opt_filter {
            None => Ok(vec![Arc::clone(&values[0])]),
            Some(filter) => {
                let dropped = arrow::compute::not(&arrow::compute::prep_null_mask_filter(filter))?;
                Ok(vec![arrow::compute::nullif(&values[0], &dropped)?])
            }
        }
    }

    fn size(&self) -> usize {
        self.values.capacity() * size_of::<Option<f64>>()
    }
}
