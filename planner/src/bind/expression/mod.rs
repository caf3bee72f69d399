//! Expressions.

mod aggregate_call;
mod array;
mod call;
mod column;
mod conditional;
mod literal;
mod membership;
mod operator;
mod place;
mod precedence;
mod special;
mod window_call;

use datafusion::logical_expr::Expr;
use sqlparser::{
    ast::{self, Spanned, UnaryOperator},
    tokenizer::Span,
};

pub(super) use self::{call::undefined, operator::balanced, place::Place};
use super::{binder::Binder, scope::Scope, typed::Typed};
use crate::{
    error::{PlanError, Result},
    types::{SqlType, name::from_ast},
};

/// Stack that one level of nesting may need, and how much is added when there is less.
const RED_ZONE_BYTES: usize = 512 << 10;
const MORE_STACK_BYTES: usize = 8 << 20;

/// Runs a level of recursion with enough stack.
pub(super) fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE_BYTES, MORE_STACK_BYTES, work)
}

impl Binder<'_> {
    /// Binds an expression. Its type may be left open ([`Typed::is_unknown`]) if nothing in it tells.
    pub(super) fn expression(&self, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        self.context.interrupt.check()?;
        with_stack(|| self.expression_level(ast, scope, place))
    }

    fn expression_level(&self, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        use ast::Expr as E;
        match ast {
            E::Nested(inner) => self.expression(inner, scope, place),
            E::Identifier(ident) => self.column(ident, scope),
            E::CompoundIdentifier(parts) => self.compound_column(parts, scope),
            E::Value(value) => self.value(value),
            E::TypedString(typed) => self.typed_string(typed),
            E::Interval(interval) => self.interval(interval, scope, place),
            E::BinaryOp { left, op, right } => self.binary(ast, left, op, right, scope, place),
            E::UnaryOp { op, expr } => self.unary(*op, expr, scope, place),
            E::Cast { kind: ast::CastKind::Cast | ast::CastKind::DoubleColon, expr, data_type, format: None, .. } => {
                let (sql_type, modifier) = from_ast(data_type).map_err(|error| error.at(data_type_span(ast)))?;
                let value = self.cast_operand(expr, &sql_type, scope, place)?;
                self.cast_to(value, &sql_type, modifier, expr.span())
            }
            E::IsNull(inner) => self.null_test(inner, false, scope, place),
            E::IsNotNull(inner) => self.null_test(inner, true, scope, place),
            E::IsTrue(inner) => self.boolean_test(inner, "IS TRUE", Expr::IsTrue, scope, place),
            E::IsNotTrue(inner) => self.boolean_test(inner, "IS NOT TRUE", Expr::IsNotTrue, scope, place),
            E::IsFalse(inner) => self.boolean_test(inner, "IS FALSE", Expr::IsFalse, scope, place),
            E::IsNotFalse(inner) => self.boolean_test(inner, "IS NOT FALSE", Expr::IsNotFalse, scope, place),
            E::IsUnknown(inner) => self.boolean_test(inner, "IS UNKNOWN", Expr::IsUnknown, scope, place),
            E::IsNotUnknown(inner) => self.boolean_test(inner, "IS NOT UNKNOWN", Expr::IsNotUnknown, scope, place),
            E::IsDistinctFrom(left, right) => self.distinct_test(left, right, false, scope, place),
            E::IsNotDistinctFrom(left, right) => self.distinct_test(left, right, true, scope, place),
            E::Between { expr, negated, low, high } => self.between(expr, *negated, low, high, scope, place),
            E::InList { expr, list, negated } => self.in_list(expr, list, *negated, scope, place),
            E::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated, scope, place),
            E::InUnnest { .. } => Err(not_supported("IN UNNEST", "Use = ANY (array).", ast.span())),
            E::Exists { subquery, negated } => self.exists(subquery, *negated, scope, place),
            E::Subquery(query) => self.scalar_subquery(query, scope),
            E::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, false, scope, place),
            E::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true, scope, place),
            E::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_ref(), if *negated { "!~~" } else { "~~" }, scope, place)
            }
            E::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_ref(), if *negated { "!~~*" } else { "~~*" }, scope, place)
            }
            E::Like { negated, any: true, expr, pattern, escape_char: None } => {
                self.like_any(expr, pattern, false, if *negated { "!~~" } else { "~~" }, scope, place)
            }
            E::ILike { negated, any: true, expr, pattern, escape_char: None } => {
                self.like_any(expr, pattern, false, if *negated { "!~~*" } else { "~~*" }, scope, place)
            }
            E::SimilarTo { negated, expr, pattern, escape_char } => {
                self.similar(expr, pattern, escape_char.as_ref(), *negated, scope, place)
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope, place, ast.span())
            }
            E::AtTimeZone { timestamp, time_zone } => self.call_on("timezone", &[time_zone, timestamp], scope, place, ast.span()),
            E::Collate { expr, collation } => self.collate(expr, collation, scope, place),
            E::Array(array) => self.array_constructor(array, scope, place),
            E::CompoundFieldAccess { root, access_chain } => self.field_access(root, access_chain, scope, place),
            E::Tuple(values) => self.row(values, scope, place),
            E::IsNormalized { .. } => Err(not_supported("IS NORMALIZED", "Compare with normalize(..).", ast.span())),
            E::Wildcard(_) | E::QualifiedWildcard(..) => {
                Err(PlanError::new(crate::error::sqlstate::SYNTAX_ERROR, "row expansion via \"*\" is not supported here").at(ast.span()))
            }
            other => self.call_of_any_form(other, scope, place),
        }
    }

    /// A function, also in the forms that the standard has for some.
    fn call_of_any_form(&self, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        use ast::Expr as E;
        match ast {
            E::Function(function) => self.function(function, scope, place),
            E::Extract { field, expr, .. } => self.extract(field, expr, scope, place),
            E::Ceil { expr, field } => self.ceil_or_floor("ceil", expr, field, scope, place),
            E::Floor { expr, field } => self.ceil_or_floor("floor", expr, field, scope, place),
            E::Position { expr, r#in } => self.call_on("position", &[r#in, expr], scope, place, ast.span()),
            E::Substring { expr, substring_from, substring_for, .. } => {
                self.substring(expr, substring_from.as_deref(), substring_for.as_deref(), scope, place, ast.span())
            }
            E::Trim { trim_where, trim_what, expr, trim_characters } => {
                self.trim(trim_where.as_ref(), trim_what.as_deref(), expr, trim_characters.as_deref(), scope, place)
            }
            E::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut arguments: Vec<&ast::Expr> = vec![expr, overlay_what, overlay_from];
                arguments.extend(overlay_for.as_deref());
                self.call_on("overlay", &arguments, scope, place, ast.span())
            }
            other => Err(PlanError::unsupported(format!("expression {other} is not supported")).at(ast.span())),
        }
    }

    /// A condition of a clause.
    pub(super) fn condition_of(&self, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Expr> {
        let value = self.expression(ast, scope, place)?;
        self.condition(value, place.clause, ast.span())
    }

    /// What is cast. An array constructor takes the element type of the cast, so that `ARRAY[]::int[]` has one; a number that becomes a float is read
    /// as one, for numerics have fewer digits.
    fn cast_operand(&self, ast: &ast::Expr, to: &SqlType, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        match (strip(ast), to.element()) {
            (ast::Expr::Array(array), Some(element)) if array.elem.is_empty() => {
                Ok(super::typed::Typed::literal(crate::functions::cast::empty_array(element), to.clone()))
            }
            (ast::Expr::Value(value), _) if matches!(to, SqlType::Double | SqlType::Real) => match literal::fraction(value) {
                Some(text) => Ok(text),
                None => self.expression(ast, scope, place),
            },
            _ => self.expression(ast, scope, place),
        }
    }

    fn unary(&self, op: UnaryOperator, operand: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        if let Some(regrouped) = precedence::sign_before_power(op, operand) {
            return self.expression(&regrouped, scope, place);
        }
        let symbol = match op {
            UnaryOperator::Not | UnaryOperator::BangNot => {
                if let ast::Expr::Nested(_) | ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } = operand
                    && let Some(negated) = self.negated_subquery(strip(operand), scope, place)?
                {
                    return Ok(negated);
                }
                let inner = Place { clause: "NOT", ..place.in_value() };
                let value = self.expression(operand, scope, &inner)?;
                return Ok(Typed::boolean(Expr::Not(Box::new(self.condition(value, "NOT", operand.span())?))));
            }
            UnaryOperator::Minus => {
                if let Some(literal) = self.negative_literal(operand)? {
                    return Ok(literal);
                }
                "-"
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            UnaryOperator::PGAbs => "@",
            other => return Err(PlanError::unsupported(format!("operator {other} is not supported")).at(operand.span())),
        };
        let value = self.expression(operand, scope, &place.in_value())?;
        self.call_operator(symbol, vec![value], operand.span())
    }
}

/// The expression without parentheses.
pub(super) fn strip(ast: &ast::Expr) -> &ast::Expr {
    match ast {
        ast::Expr::Nested(inner) => strip(inner),
        other => other,
    }
}

fn data_type_span(ast: &ast::Expr) -> Span {
    ast.span()
}

/// An error about a construct that could be.
pub(super) fn not_supported(what: &str, hint: &str, span: Span) -> PlanError {
    PlanError::unsupported(format!("{what} is not supported")).with_hint(hint).at(span)
}
