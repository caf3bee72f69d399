//! CASE, BETWEEN, IS TRUE, IS DISTINCT FROM.

use datafusion::logical_expr::{BinaryExpr, Case, Expr, Operator};
use sqlparser::{
    ast::{self, CaseWhen, Spanned},
    tokenizer::Span,
};

use super::Place;
use crate::{
    bind::{binder::Binder, coerce::common_modifier, scope::Scope, typed::Typed},
    error::Result,
    functions::comparison,
    types::{SqlType, coercion::common_type},
};

impl Binder<'_> {
    pub(super) fn case(
        &self,
        operand: Option<&ast::Expr>,
        branches: &[CaseWhen],
        otherwise: Option<&ast::Expr>,
        scope: &Scope<'_>,
        place: &Place<'_>,
        span: Span,
    ) -> Result<Typed> {
        let place = place.in_value();
        let operand = operand.map(|operand| self.expression(operand, scope, &place)).transpose()?;
        let mut conditions = Vec::with_capacity(branches.len());
        let mut results = Vec::with_capacity(branches.len() + 1);
        for branch in branches {
            let condition = self.expression(&branch.condition, scope, &place)?;
            conditions.push(match &operand {
                Some(operand) => self.call_operator("=", vec![self.repeat(operand)?, condition], branch.condition.span())?.expr,
                None => self.condition(condition, "CASE/WHEN", branch.condition.span())?,
            });
            results.push(self.expression(&branch.result, scope, &place)?);
        }
        // The type is looked for in Postgres' order, which starts with ELSE.
        if let Some(otherwise) = otherwise {
            results.insert(0, self.expression(otherwise, scope, &place)?);
        }
        let types: Vec<SqlType> = results.iter().map(|result| result.sql_type.clone()).collect();
        let wrong = (1..types.len()).find(|end| common_type(&types[..=*end]).is_none());
        let place = wrong.and_then(|wrong| otherwise.into_iter().chain(branches.iter().map(|branch| &branch.result)).nth(wrong));
        let (mut results, sql_type) = self.unify(results, "CASE", place.map_or(span, Spanned::span))?;
        let modifier = common_modifier(&results);
        let otherwise = otherwise.is_some().then(|| Box::new(results.remove(0).expr));
        let pairs = conditions.into_iter().zip(results).map(|(condition, result)| (Box::new(condition), Box::new(result.expr))).collect();
        Ok(Typed::new(Expr::Case(Case::new(None, pairs, otherwise)), sql_type).with_modifier(modifier))
    }

    pub(super) fn between(
        &self,
        ast: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let place = place.in_value();
        let value = self.expression(ast, scope, &place)?;
        let (low, high) = (self.expression(low, scope, &place)?, self.expression(high, scope, &place)?);
        let (first, second) = if negated { ("<", ">") } else { (">=", "<=") };
        let first = self.call_operator(first, vec![self.repeat(&value)?, low], ast.span())?.expr;
        let second = self.call_operator(second, vec![value, high], ast.span())?.expr;
        Ok(Typed::boolean(if negated { first.or(second) } else { first.and(second) }))
    }

    pub(super) fn boolean_test(
        &self,
        ast: &ast::Expr,
        clause: &str,
        test: fn(Box<Expr>) -> Expr,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let value = self.expression(ast, scope, &place.in_value())?;
        Ok(Typed::boolean(test(Box::new(self.condition(value, clause, ast.span())?))))
    }

    pub(super) fn distinct_test(
        &self,
        left: &ast::Expr,
        right: &ast::Expr,
        negated: bool,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let place = place.in_value();
        let span = left.span();
        let (left, right) = (self.expression(left, scope, &place)?, self.expression(right, scope, &place)?);
        let operator = if negated { Operator::IsNotDistinctFrom } else { Operator::IsDistinctFrom };
        if let (SqlType::Unknown, SqlType::Unknown) = (&left.sql_type, &right.sql_type) {
            let (left, right) = (self.known(left)?, self.known(right)?);
            return Ok(Typed::boolean(Expr::BinaryExpr(BinaryExpr::new(Box::new(left.expr), operator, Box::new(right.expr)))));
        }
        let (left, right) = comparison::operands(self, left, right, span)?;
        Ok(Typed::boolean(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))))
    }
}
