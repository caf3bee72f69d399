//! ORDER BY: its items as columns of the result, by name or number, or as expressions of the query.

use datafusion::{
    common::{
        Column,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, expr::Sort},
};
use sqlparser::ast::{self, OrderByExpr, OrderByOptions, Spanned, Value, ValueWithSpan};

use super::{binder::Binder, expression::strip, query::BoundRows, scope::ScopeColumn, typed::Typed};
use crate::{
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    functions::comparison,
};

/// What an item of ORDER BY, GROUP BY or DISTINCT ON names among the columns of a SELECT.
pub(super) enum Named {
    /// The column of this number.
    Output(usize),
    /// None: it is an expression of its own.
    Expression,
}

/// The order in which a plan gives its rows, as far as its columns show it; nothing if it is in none.
pub(super) fn order_of(plan: &LogicalPlan) -> Vec<Sort> {
    match plan {
        LogicalPlan::Sort(sort) => sort.expr.clone(),
        LogicalPlan::Limit(limit) => order_of(&limit.input),
        LogicalPlan::Filter(filter) => order_of(&filter.input),
        LogicalPlan::SubqueryAlias(alias) => {
            let columns: Vec<(Expr, Column)> =
                alias.input.schema().columns().into_iter().map(Expr::Column).zip(alias.schema.columns()).collect();
            renamed(order_of(&alias.input), &columns)
        }
        LogicalPlan::Projection(projection) => {
            let columns: Vec<(Expr, Column)> =
                projection.expr.iter().map(|expr| expr.clone().unalias()).zip(projection.schema.columns()).collect();
            renamed(order_of(&projection.input), &columns)
        }
        _ => Vec::new(),
    }
}

/// The leading items whose columns are all there under other names.
fn renamed(order: Vec<Sort>, columns: &[(Expr, Column)]) -> Vec<Sort> {
    let rename = |sort: Sort| {
        let renamed = sort.expr.transform_down(|expr| {
            Ok(match columns.iter().find(|(found, _)| *found == expr) {
                Some((_, column)) => {
                    Transformed::new(Expr::Column(column.clone()), true, datafusion::common::tree_node::TreeNodeRecursion::Jump)
                }
                None if matches!(expr, Expr::Column(_)) => return datafusion::common::plan_err!("the column is not there"),
                None => Transformed::no(expr),
            })
        });
        renamed.ok().map(|renamed| Sort::new(renamed.data, sort.asc, sort.nulls_first))
    };
    order.into_iter().map_while(rename).collect()
}

impl Binder<'_> {
    /// A sort by a key, with Postgres' place for NULLs.
    pub(super) fn sort(&self, key: Expr, options: &OrderByOptions) -> Sort {
        let ascending = options.asc.unwrap_or(true);
        Sort::new(key, ascending, options.nulls_first.unwrap_or(!ascending))
    }

    /// Orders rows by their own columns, as after UNION.
    pub(super) fn order_outputs(&self, rows: BoundRows, items: &[OrderByExpr]) -> Result<BoundRows> {
        if items.is_empty() {
            return Ok(rows);
        }
        let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
        let mut sorts = Vec::with_capacity(items.len());
        for item in items {
            let Named::Output(index) = self.named_output(&item.expr, &names, "ORDER BY")? else {
                return Err(PlanError::unsupported("invalid UNION/INTERSECT/EXCEPT ORDER BY clause")
                    .with_detail("Only result column names can be used, not expressions or functions.")
                    .with_hint("Add the expression/function to every SELECT, or move the UNION into a FROM clause.")
                    .at(item.expr.span()));
            };
            sorts.push(self.sort(self.output_key(&rows.columns[index]), &item.options));
        }
        let plan = LogicalPlanBuilder::from(rows.plan).sort(sorts)?.build()?;
        Ok(BoundRows { plan, columns: rows.columns })
    }

    /// What rows are ordered by for a column of the result.
    pub(super) fn output_key(&self, column: &ScopeColumn) -> Expr {
        comparison::sort_key(self, Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone()))
    }

    /// What an item names: a number, or the name of a column of the result.
    ///
    /// # Errors
    /// 42P10 for a number that is no column's, 42702 for a name that several different columns have.
    pub(super) fn named_output(&self, ast: &ast::Expr, names: &[&str], clause: &str) -> Result<Named> {
        match ast {
            ast::Expr::Value(ValueWithSpan { value: Value::Number(text, _), span }) => {
                let number: Option<usize> = text.parse().ok();
                match number {
                    Some(number) if (1..=names.len()).contains(&number) => Ok(Named::Output(number - 1)),
                    Some(number) => {
                        let message = format!("{clause} position {number} is not in select list");
                        Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message).at(*span))
                    }
                    None => Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("non-integer constant in {clause}")).at(*span)),
                }
            }
            ast::Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), span }) => {
                Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("non-integer constant in {clause}")).at(*span))
            }
            ast::Expr::Identifier(ident) => {
                let name = fold(ident);
                let mut found = names.iter().enumerate().filter(|(_, other)| **other == name).map(|(index, _)| index);
                match (found.next(), found.next()) {
                    (None, _) => Ok(Named::Expression),
                    (Some(index), None) => Ok(Named::Output(index)),
                    (Some(_), Some(_)) => {
                        let message = format!("{clause} \"{name}\" is ambiguous");
                        Err(PlanError::new(sqlstate::AMBIGUOUS_COLUMN, message).at(ident.span))
                    }
                }
            }
            ast::Expr::Nested(_) => match strip(ast) {
                inner @ ast::Expr::Identifier(_) => self.named_output(inner, names, clause),
                _ => Ok(Named::Expression),
            },
            _ => Ok(Named::Expression),
        }
    }
}
