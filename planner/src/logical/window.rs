//! `TUMBLE(relation, time, size)` and `HOP(relation, time, slide, size)`: one output row per window that contains the row's time.
//!
//! Output: all columns of the input under their own qualifiers, then `window_start` and `window_end`, of the type of the time column and
//! under its qualifier (so that `FROM TUMBLE(bid, ..)` knows both `window_start` and `bid.window_start`). A row whose time is NULL is in
//! no window.

use std::{cmp::Ordering, collections::HashSet, fmt, hash::Hash, sync::Arc};

use arrow::datatypes::{DataType, Field};
use datafusion::{
    common::{Column, DFSchema, DFSchemaRef, Result, plan_err},
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
};
use millpond_engine::graph::WindowStep;

/// Name of the column with the inclusive start of a row's window.
pub const WINDOW_START: &str = "window_start";
/// Name of the column with the exclusive end of a row's window.
pub const WINDOW_END: &str = "window_end";

/// Assigns rows to tumbling or hopping windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowNode {
    input: LogicalPlan,
    time: Column,
    slide: WindowStep,
    size: WindowStep,
    offset_us: i64,
    schema: DFSchemaRef,
}

impl WindowNode {
    /// Windows of `size` that start every `slide` (`slide == size` for TUMBLE), moved by `offset_us`, over the timestamp column `time` of
    /// the input.
    ///
    /// # Errors
    /// If `time` is no timestamp column of the input.
    pub fn try_new(input: LogicalPlan, time: Column, slide: WindowStep, size: WindowStep, offset_us: i64) -> Result<Self> {
        let (qualifier, field) = input.schema().qualified_field_from_column(&time)?;
        if !matches!(field.data_type(), DataType::Timestamp(..)) {
            return plan_err!("the time column of a window must be of type timestamp or timestamp with time zone");
        }
        let (time_type, qualifier) = (field.data_type().clone(), qualifier.cloned());
        let mut fields: Vec<_> = input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
        for name in [WINDOW_START, WINDOW_END] {
            fields.push((qualifier.clone(), Arc::new(Field::new(name, time_type.clone(), false))));
        }
        let schema = DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?;
        Ok(Self { input, time, slide, size, offset_us, schema: Arc::new(schema) })
    }

    /// As a plan.
    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// The relation whose rows are assigned.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// The time column, a column of the input.
    pub fn time(&self) -> &Column {
        &self.time
    }

    /// Distance between window starts.
    pub fn slide(&self) -> WindowStep {
        self.slide
    }

    /// Length of a window.
    pub fn size(&self) -> WindowStep {
        self.size
    }

    /// The columns of its output.
    pub fn schema_ref(&self) -> &DFSchemaRef {
        &self.schema
    }

    /// Microseconds by which every window is moved.
    pub fn offset_us(&self) -> i64 {
        self.offset_us
    }
}

impl PartialOrd for WindowNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let key = |node: &Self| (node.time.clone(), node.slide, node.size, node.offset_us);
        match key(self).partial_cmp(&key(other)) {
            Some(Ordering::Equal) => self.input.partial_cmp(&other.input),
            unequal => unequal,
        }
        .filter(|ordering| *ordering != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for WindowNode {
    fn name(&self) -> &str {
        "Window"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![Expr::Column(self.time.clone())]
    }

    /// A filter on input columns may go below: a row's windows depend on the row alone.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::from([WINDOW_START.to_owned(), WINDOW_END.to_owned()])
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.slide == self.size { "Tumble" } else { "Hop" };
        write!(f, "{name}: time={}, slide={:?}, size={:?}, offset={}us", self.time, self.slide, self.size, self.offset_us)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let (Ok([Expr::Column(time)]), Ok([input])) = (<[Expr; 1]>::try_from(exprs), <[LogicalPlan; 1]>::try_from(inputs)) else {
            return plan_err!("a window takes one time column and one input");
        };
        Self::try_new(input, time, self.slide, self.size, self.offset_us)
    }

    /// Columns that nobody above needs are cut from the input; the time column is added by the caller, which looks at `expressions`.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        Some(vec![output_columns.iter().copied().filter(|column| *column < width).collect()])
    }
}
