//! The guard of an uncorrelated scalar subquery: its input has at most one row, or the query fails with 21000; while it is empty, one row
//! of NULLs stands for it. So the node always has exactly one row.

use std::fmt;

use datafusion::{
    common::{DFSchemaRef, Result, plan_err},
    logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore},
};

/// Checks that its input has at most one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub struct SingleRowNode {
    input: LogicalPlan,
}

impl SingleRowNode {
    /// A guard over `input`.
    pub fn new(input: LogicalPlan) -> Self {
        Self { input }
    }

    /// As a plan.
    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: std::sync::Arc::new(self) })
    }

    /// The guarded plan.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }
}

impl UserDefinedLogicalNodeCore for SingleRowNode {
    fn name(&self) -> &str {
        "SingleRow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SingleRow")
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) if exprs.is_empty() => Ok(Self { input }),
            _ => plan_err!("a single-row guard takes one input and no expression"),
        }
    }
}
