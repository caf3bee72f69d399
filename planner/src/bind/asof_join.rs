//! `a ASOF [LEFT] JOIN b ON a.k = b.k AND a.at >= b.at`: each row of `a` with the row of `b` that comes closest among those that match.
//!
//! It is planned with what there is: the pairs that match, of which a rank keeps the closest. Equal rows of `b` are one partner, so they are
//! made distinct first; equal rows of `a` tie in everything, so that as many stay as there are. Rows of `b` that are equally close break
//! their tie by their columns in order. All pairs are kept: a row costs as much as it has candidates.

use std::rc::Rc;

use datafusion::{
    common::{DFSchema, JoinType},
    logical_expr::{BinaryExpr, Expr, LogicalPlanBuilder, Operator, expr::Sort, lit, utils::split_conjunction},
};
use sqlparser::{
    ast::{self, JoinConstraint, Value},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    expression::Place,
    from::FromItem,
    join::make_nullable,
    scope::{CommonTables, Scope},
};
use crate::{
    error::{PlanError, Result, sqlstate},
    functions::window,
};

const FORM: &str = "Write ON a.key = b.key AND a.time >= b.time: equalities and one comparison, each between a column of either side.";

impl Binder<'_> {
    /// `mark` says whether rows of the left side without a partner are kept.
    pub(super) fn asof_join<'p>(
        &self,
        left: FromItem<'p>,
        right: FromItem<'p>,
        (mark, constraint, span): (&ast::Expr, &JoinConstraint, Span),
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let ast::Expr::Value(mark) = mark else {
            return Err(PlanError::unsupported("MATCH_CONDITION is not supported").with_hint(FORM).at(span));
        };
        let join_type = if mark.value == Value::Boolean(true) { JoinType::Left } else { JoinType::Inner };
        let JoinConstraint::On(condition) = constraint else {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "an ASOF JOIN needs ON").with_hint(FORM).at(span));
        };
        if right.pending.is_some() {
            return Err(PlanError::unsupported("ASOF JOIN with a table function over other relations is not supported").at(span));
        }
        let mut scope = left.scope;
        scope.append(right.scope)?;
        scope.parent = outer;
        scope.common = Rc::clone(common);
        let condition = self.condition_of(condition, &scope, &Place::filter("JOIN/ON"))?;
        let closest = closest(&condition, left.plan.schema(), right.plan.schema()).ok_or_else(|| {
            let message = "an ASOF JOIN needs at least one equality and exactly one inequality between its sides";
            PlanError::unsupported(message).with_hint(FORM).at(span)
        })?;
        let partition_by = left.plan.schema().columns().into_iter().map(Expr::Column).collect();
        let ties = right.plan.schema().columns().into_iter().map(|column| Expr::Column(column).sort(true, false));
        let order_by = std::iter::once(closest).chain(ties).collect();
        let right = LogicalPlanBuilder::from(right.plan).distinct()?.build()?;
        let joined = LogicalPlanBuilder::from(left.plan).join_on(right, join_type, [condition])?.build()?;
        let columns: Vec<Expr> = joined.schema().columns().into_iter().map(Expr::Column).collect();
        let ranked = LogicalPlanBuilder::from(joined).window([window::rank(partition_by, order_by)])?.build()?;
        let rank = Expr::Column(ranked.schema().qualified_field(columns.len()).into());
        let plan = LogicalPlanBuilder::from(ranked).filter(rank.lt_eq(lit(1_i64)))?.project(columns)?.build()?;
        make_nullable(&mut scope, plan.schema());
        Ok(FromItem::new(plan, scope))
    }
}

/// The order in which partners are closer, if the condition has the form of an ASOF join.
fn closest(condition: &Expr, left: &DFSchema, right: &DFSchema) -> Option<Sort> {
    let of = |expression: &Expr, schema: &DFSchema| {
        let columns = expression.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    let (mut equalities, mut order) = (0, None);
    for conjunct in split_conjunction(condition) {
        let Expr::BinaryExpr(BinaryExpr { left: one, op, right: other }) = conjunct else { return None };
        let (partner, op) = if of(one, left) && of(other, right) {
            (other, *op)
        } else if of(one, right) && of(other, left) {
            (one, op.swap()?)
        } else {
            return None;
        };
        // The greatest partner that is not above, or the least that is not below.
        let ascending = match op {
            Operator::Eq => {
                equalities += 1;
                continue;
            }
            Operator::Gt | Operator::GtEq => false,
            Operator::Lt | Operator::LtEq => true,
            _ => return None,
        };
        if order.replace(partner.as_ref().clone().sort(ascending, false)).is_some() {
            return None;
        }
    }
    order.filter(|_| equalities > 0)
}
