//! Subqueries in expressions.

use datafusion::logical_expr::{
    Expr,
    expr::{Exists, InSubquery, SetComparison},
    logical_plan::Subquery,
};

/// The subquery that an expression itself is or compares with, not those of its parts.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}
