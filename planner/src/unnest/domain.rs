//! The combinations of outer values that a subquery depends on.

use std::cell::Cell;

use datafusion::{
    common::{Column, Result},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
};

use super::Unnesting;

/// The domain of a subquery. Each leaf of the subquery gets a copy of its own, so that names stay unique.
pub(super) struct Domain<'u> {
    /// The outer columns.
    pub(super) outer: Vec<Column>,
    plan: LogicalPlan,
    number: usize,
    copies: Cell<usize>,
    unnesting: &'u Unnesting,
}

impl<'u> Domain<'u> {
    /// The domain of columns of the outer plan.
    pub(super) fn new(outer: &LogicalPlan, columns: Vec<Column>, unnesting: &'u Unnesting) -> Result<Self> {
        let plan =
            LogicalPlanBuilder::from(outer.clone()).project(columns.iter().cloned().map(Expr::Column).collect::<Vec<_>>())?.distinct()?;
        Ok(Self { outer: columns, plan: plan.build()?, number: unnesting.next(), copies: Cell::new(0), unnesting })
    }

    /// A copy and its columns, in the order of `outer`.
    pub(super) fn copy(&self) -> Result<(LogicalPlan, Vec<Column>)> {
        self.unnesting.add(&self.plan)?;
        let copy = self.copies.replace(self.copies.get() + 1);
        let name = |index: usize| format!("__outer_{}_{copy}_{index}", self.number);
        let outputs: Vec<Expr> =
            self.outer.iter().cloned().enumerate().map(|(index, column)| Expr::Column(column).alias(name(index))).collect();
        let plan = LogicalPlanBuilder::from(self.plan.clone()).project(outputs)?.build()?;
        Ok((plan, (0..self.outer.len()).map(|index| Column::new_unqualified(name(index))).collect()))
    }
}
