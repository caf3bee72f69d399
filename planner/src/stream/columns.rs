//! Expressions that are nothing but a column.

use std::sync::Arc;

use datafusion::{
    common::{
        Result,
        tree_node::{Transformed, TreeNode},
    },
    physical_expr::expressions::Column,
    physical_plan::PhysicalExpr,
};
use millpond_engine::graph::Expression;

/// The input column of an expression that is just one.
pub(crate) fn plain_column(expression: &Expression) -> Option<usize> {
    expression.physical.downcast_ref::<Column>().map(Column::index)
}

/// For each output of a projection the input column it copies, if it does.
pub(crate) fn plain_columns(expressions: &[Expression]) -> Vec<Option<usize>> {
    expressions.iter().map(plain_column).collect()
}

/// The first output that copies an input column.
pub(crate) fn output_of(plain: &[Option<usize>], column: usize) -> Option<usize> {
    plain.iter().position(|copied| *copied == Some(column))
}

/// Every column a physical expression reads, ascending and once.
pub(crate) fn columns_read(expression: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
    let mut columns: Vec<usize> =
        datafusion::physical_expr::utils::collect_columns(expression).into_iter().map(|column| column.index()).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The same expression over an input whose columns have moved: column `i` is now `map(i)`.
pub(crate) fn moved(expression: &Expression, map: &dyn Fn(usize) -> usize) -> Result<Expression> {
    let physical = Arc::clone(&expression.physical).transform_up(|inner| match inner.downcast_ref::<Column>() {
        Some(column) => Ok(Transformed::yes(Arc::new(Column::new(column.name(), map(column.index()))) as Arc<dyn PhysicalExpr>)),
        None => Ok(Transformed::no(inner)),
    })?;
    Ok(Expression { physical: physical.data, text: expression.text.clone() })
}
