//! Joins: ON, USING and NATURAL, with one merged column for each pair that USING names.

use std::rc::Rc;

use datafusion::{
    common::{
        Column, JoinType, NullHandling, TableReference, UnnestOptions,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Expr, LogicalPlanBuilder},
};
use sqlparser::{
    ast::{Join, JoinConstraint, JoinOperator, ObjectName, Spanned, TableWithJoins},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    expression::Place,
    from::FromItem,
    scope::{CommonTables, Scope, ScopeColumn},
    typed::Typed,
};
use crate::{
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    types::coercion::common_type,
};

impl Binder<'_> {
    pub(super) fn table_with_joins<'p>(
        &self,
        table: &TableWithJoins,
        before: Option<&Scope<'_>>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let mut joined = self.factor(&table.relation, before, outer, common)?;
        for join in &table.joins {
            // LATERAL sees the relations of this item and those before it.
            let mut visible = before.cloned().unwrap_or_default();
            let right = if visible.append(joined.scope.clone()).is_ok() {
                self.factor(&join.relation, Some(&visible), outer, common)?
            } else {
                self.factor(&join.relation, Some(&joined.scope), outer, common)?
            };
            joined = self.join(joined, right, join, outer, common)?;
        }
        Ok(joined)
    }

    pub(super) fn cross<'p>(&self, left: FromItem<'p>, right: FromItem<'p>) -> Result<FromItem<'p>> {
        if right.pending.is_some() {
            return self.expand_over(left, right, NullHandling::Drop);
        }
        let mut scope = left.scope;
        scope.append(right.scope)?;
        let plan = LogicalPlanBuilder::from(left.plan).cross_join(right.plan)?.build()?;
        Ok(FromItem::new(plan, scope))
    }

    fn join<'p>(
        &self,
        left: FromItem<'p>,
        right: FromItem<'p>,
        join: &Join,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let (join_type, constraint) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (JoinType::Inner, constraint),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (JoinType::Left, constraint),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (JoinType::Right, constraint),
            JoinOperator::FullOuter(constraint) => (JoinType::Full, constraint),
            JoinOperator::CrossJoin(JoinConstraint::None) => return self.cross(left, right),
            JoinOperator::AsOf { match_condition, constraint } => {
                return self.asof_join(left, right, (match_condition, constraint, join.relation.span()), outer, common);
            }
            other => {
                let word = match other {
                    JoinOperator::CrossApply | JoinOperator::OuterApply => "APPLY",
                    _ => "this kind of join",
                };
                return Err(PlanError::unsupported(format!("{word} is not supported")).with_hint("INNER, LEFT, RIGHT, FULL and CROSS are."));
            }
        };
        if right.pending.is_some() {
            return self.join_lists(left, right, join_type, constraint, outer, common);
        }
        match constraint {
            JoinConstraint::On(condition) => {
                let mut scope = left.scope;
                scope.append(right.scope)?;
                scope.parent = outer;
                scope.common = Rc::clone(common);
                let condition = self.condition_of(condition, &scope, &Place::filter("JOIN/ON"))?;
                let plan = LogicalPlanBuilder::from(left.plan).join_on(right.plan, join_type, [condition])?.build()?;
                make_nullable(&mut scope, plan.schema());
                Ok(FromItem::new(plan, scope))
            }
            JoinConstraint::Using(names) => {
                let names = names.iter().map(using_name).collect::<Result<Vec<_>>>()?;
                self.join_using(left, right, join_type, &names)
            }
            JoinConstraint::Natural => {
                let shared: Vec<(String, Span)> = left
                    .scope
                    .visible_columns()
                    .filter(|column| right.scope.visible_columns().any(|other| other.name == column.name))
                    .map(|column| (column.name.clone(), Span::empty()))
                    .collect();
                if shared.is_empty() && join_type == JoinType::Inner {
                    return self.cross(left, right);
                }
                self.join_using(left, right, join_type, &shared)
            }
            JoinConstraint::None => {
                Err(PlanError::new(sqlstate::SYNTAX_ERROR, "syntax error: a join needs ON or USING").at(join.relation.span()))
            }
        }
    }

    /// A join with a table function over columns of the left side.
    fn join_lists<'p>(
        &self,
        left: FromItem<'p>,
        right: FromItem<'p>,
        join_type: JoinType,
        constraint: &JoinConstraint,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let JoinConstraint::On(condition) = constraint else {
            return Err(PlanError::unsupported("USING and NATURAL are not supported with a table function over other relations"));
        };
        let nulls = match join_type {
            JoinType::Inner => NullHandling::Drop,
            JoinType::Left => NullHandling::PreserveAndExpandEmpty,
            _ => {
                let message = "the combining JOIN type must be INNER or LEFT for a LATERAL reference";
                return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message));
            }
        };
        let mut item = self.expand_over(left, right, nulls)?;
        item.scope.parent = outer;
        item.scope.common = Rc::clone(common);
        let condition = self.condition_of(condition, &item.scope, &Place::filter("JOIN/ON"))?;
        if condition == datafusion::logical_expr::lit(true) {
            return Ok(item);
        }
        if join_type == JoinType::Left {
            return Err(PlanError::unsupported("LEFT JOIN of a table function with a condition is not supported").with_hint("Use ON true."));
        }
        item.plan = LogicalPlanBuilder::from(item.plan).filter(condition)?.build()?;
        Ok(item)
    }

    /// Expands the lists of a table function beside the rows they are made of.
    fn expand_over<'p>(&self, left: FromItem<'p>, right: FromItem<'p>, nulls: NullHandling) -> Result<FromItem<'p>> {
        let pending = right.pending.ok_or_else(|| PlanError::internal("nothing to expand"))?;
        let mut outputs: Vec<Expr> = self.repeated_columns(&left.plan);
        let mut columns = Vec::with_capacity(pending.lists.len());
        for (name, list) in pending.lists {
            let own = |column: &Column| left.scope.columns.iter().any(|candidate| candidate.column == *column);
            let list = list.transform(|expr| {
                Ok(match expr {
                    Expr::OuterReferenceColumn(_, column) if own(&column) => Transformed::yes(Expr::Column(column)),
                    other => Transformed::no(other),
                })
            })?;
            outputs.push(list.data.alias(&name));
            columns.push(Column::new_unqualified(name));
        }
        let options = UnnestOptions::new().with_null_handling(nulls);
        let plan = LogicalPlanBuilder::from(left.plan).project(outputs)?.unnest_columns_with_options(columns, options)?.build()?;
        let mut scope = left.scope;
        scope.append(right.scope)?;
        Ok(FromItem::new(plan, scope))
    }

    fn join_using<'p>(
        &self,
        left: FromItem<'p>,
        right: FromItem<'p>,
        join_type: JoinType,
        names: &[(String, Span)],
    ) -> Result<FromItem<'p>> {
        let mut conditions = Vec::with_capacity(names.len());
        let mut pairs = Vec::with_capacity(names.len());
        for (name, span) in names {
            let left_column = using_column(&left.scope, name, "left", *span)?;
            let right_column = using_column(&right.scope, name, "right", *span)?;
            let types = [left_column.sql_type.clone(), right_column.sql_type.clone()];
            if common_type(&types).is_none() {
                let message = format!("JOIN/USING types {} and {} cannot be matched", types[0].name(), types[1].name());
                return Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message).at(*span));
            }
            let equal = self.call_operator("=", vec![value_of(&left_column), value_of(&right_column)], *span)?;
            conditions.push(equal.expr);
            pairs.push((left_column, right_column));
        }
        let left_width = left.scope.columns.len();
        let mut scope = left.scope;
        scope.append(right.scope)?;
        let condition = if conditions.is_empty() { vec![datafusion::logical_expr::lit(true)] } else { conditions };
        let mut plan = LogicalPlanBuilder::from(left.plan).join_on(right.plan, join_type, condition)?.build()?;
        make_nullable(&mut scope, plan.schema());
        let merged = self.merged_columns(&mut plan, &pairs, join_type, names)?;
        let hidden: Vec<usize> = (0..scope.columns.len())
            .filter(|index| {
                pairs.iter().any(|(left, right)| {
                    is_side(&scope.columns[*index], left, *index < left_width)
                        || is_side(&scope.columns[*index], right, *index >= left_width)
                })
            })
            .collect();
        let rest: Vec<usize> = scope.visible.iter().copied().filter(|column| !hidden.contains(column)).collect();
        let first = scope.columns.len();
        scope.visible = (first..first + merged.len()).chain(rest).collect();
        scope.columns.extend(merged);
        Ok(FromItem::new(plan, scope))
    }

    /// The columns that stand for pairs: the left one, of a right join the right one, of a full join whichever is there.
    fn merged_columns(
        &self,
        plan: &mut datafusion::logical_expr::LogicalPlan,
        pairs: &[(ScopeColumn, ScopeColumn)],
        join_type: JoinType,
        names: &[(String, Span)],
    ) -> Result<Vec<ScopeColumn>> {
        let mut merged = Vec::with_capacity(pairs.len());
        let mut computed = Vec::new();
        let qualifier = TableReference::bare(self.unique_qualifier("using"));
        for ((left, right), (name, span)) in pairs.iter().zip(names) {
            let plain = match join_type {
                JoinType::Right => right,
                _ => left,
            };
            if join_type != JoinType::Full && left.sql_type == right.sql_type {
                merged.push(ScopeColumn { nullable: plain.nullable || join_type != JoinType::Inner, ..plain.clone() });
                continue;
            }
            let value = match join_type {
                JoinType::Full => self.call("coalesce", vec![value_of(left), value_of(right)], *span)?,
                _ => {
                    let common = common_type(&[left.sql_type.clone(), right.sql_type.clone()]).unwrap_or(left.sql_type.clone());
                    self.implicit(value_of(plain), &common)?
                }
            };
            let sql_type = value.sql_type.clone();
            computed.push(value.expr.alias_qualified(Some(qualifier.clone()), name));
            merged.push(ScopeColumn {
                name: name.clone(),
                column: Column::new(Some(qualifier.clone()), name),
                sql_type,
                modifier: if left.modifier == right.modifier { left.modifier } else { crate::types::modifier::NONE },
                nullable: true,
                origin: None,
            });
        }
        if !computed.is_empty() {
            let outputs: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).chain(computed).collect();
            *plan = LogicalPlanBuilder::from(plan.clone()).project(outputs)?.build()?;
        }
        Ok(merged)
    }
}

fn value_of(column: &ScopeColumn) -> Typed {
    Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone()).with_modifier(column.modifier)
}

fn is_side(column: &ScopeColumn, key: &ScopeColumn, side: bool) -> bool {
    side && column.column == key.column && column.name == key.name
}

fn using_name(name: &ObjectName) -> Result<(String, Span)> {
    match name.0.as_slice() {
        [part] => match part.as_ident() {
            Some(ident) => Ok((fold(ident), ident.span)),
            None => Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{name}\"")).at(name.span())),
        },
        _ => Err(PlanError::new(sqlstate::SYNTAX_ERROR, "syntax error at or near \".\"").at(name.span())),
    }
}

fn using_column(scope: &Scope<'_>, name: &str, side: &str, span: Span) -> Result<ScopeColumn> {
    let mut found = scope.visible_columns().filter(|column| column.name == name);
    match (found.next(), found.next()) {
        (Some(column), None) => Ok(column.clone()),
        (Some(_), Some(_)) => {
            let message = format!("common column name \"{name}\" appears more than once in {side} table");
            Err(PlanError::new(sqlstate::AMBIGUOUS_COLUMN, message).at(span))
        }
        (None, _) => {
            let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(PlanError::new(sqlstate::UNDEFINED_COLUMN, message).at(span))
        }
    }
}

/// Takes over what an outer join makes nullable.
pub(super) fn make_nullable(scope: &mut Scope<'_>, schema: &datafusion::common::DFSchema) {
    for column in &mut scope.columns {
        if let Ok(field) = schema.qualified_field_from_column(&column.column).map(|(_, field)| field) {
            column.nullable = field.is_nullable();
        }
    }
}
