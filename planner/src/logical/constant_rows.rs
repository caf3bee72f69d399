//! Long VALUES in a bounded query: rows of constants are made a table before anything is optimized, since every rule would look at every constant.

use std::sync::Arc;

use arrow::{
    array::ArrayRef,
    datatypes::{Field, Schema},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{Column, ScalarValue},
    datasource::{MemTable, provider_as_source},
    error::Result as DataFusionResult,
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Values},
};

/// The name of such a table in plans.
const NAME: &str = "values";

/// Fewer rows may stay as they are, for the optimizer to see through.
const MANY_ROWS: usize = 256;

/// Rows of a batch of the table.
const BATCH_ROWS: usize = 8_192;

/// The plan that a VALUES becomes, if it is long and all of it is constants.
///
/// # Errors
/// If constants are not of the types that the node says.
pub(super) fn of(values: &Values) -> DataFusionResult<Option<LogicalPlan>> {
    let constant = |expr: &Expr| matches!(expr, Expr::Literal(..));
    if values.values.len() < MANY_ROWS || !values.values.iter().flatten().all(constant) {
        return Ok(None);
    }
    let names = values.schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let fields = values.schema.fields().iter().map(|field| Field::new(field.name(), field.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut batches = Vec::with_capacity(values.values.len().div_ceil(BATCH_ROWS));
    for rows in values.values.chunks(BATCH_ROWS) {
        let column = |index: usize| -> DataFusionResult<ArrayRef> {
            ScalarValue::iter_to_array(rows.iter().filter_map(|row| row[index].as_literal().cloned()))
        };
        let columns = (0..names.len()).map(column).collect::<DataFusionResult<Vec<_>>>()?;
        batches.push(RecordBatch::try_new(Arc::clone(&schema), columns)?);
    }
    let source = provider_as_source(Arc::new(MemTable::try_new(schema, vec![batches])?));
    let outputs = names.iter().map(|name| Expr::Column(Column::new(Some(NAME), name)).alias(name));
    LogicalPlanBuilder::scan(NAME, source, None)?.project(outputs)?.build().map(Some)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::lit;

    use super::*;

    fn values(rows: usize, other: Option<Expr>) -> LogicalPlan {
        let mut rows: Vec<Vec<Expr>> = (0..rows).map(|row| vec![lit(row as i64), lit(format!("v{row}"))]).collect();
        if let Some(other) = other {
            rows[0][0] = other;
        }
        LogicalPlanBuilder::values(rows).unwrap().build().unwrap()
    }

    #[test]
    fn many_rows_of_constants_become_a_table() {
        let replaced = |plan: &LogicalPlan| match plan {
            LogicalPlan::Values(values) => of(values).unwrap(),
            other => panic!("{other}"),
        };
        let plan = values(MANY_ROWS, None);
        let table = replaced(&plan).expect("a table");
        assert_eq!(table.schema().field_names(), plan.schema().field_names());
        assert_eq!(replaced(&values(MANY_ROWS - 1, None)), None);
        assert_eq!(replaced(&values(MANY_ROWS, Some(lit(1_i64) + lit(2_i64)))), None);
    }
}
