//! Operators between values.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use sqlparser::{
    ast::{self, BinaryOperator, Spanned},
    tokenizer::Span,
};

use super::{Place, precedence, strip};
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    error::{PlanError, Result, sqlstate},
    functions::{registry, resolve::Unresolved},
    parse::spelling,
    types::SqlType,
};

/// Joins conditions by AND or OR into a tree that is as flat as it can be.
pub(in crate::bind) fn balanced(mut operands: Vec<Expr>, operator: Operator) -> Expr {
    if operands.is_empty() {
        return datafusion::logical_expr::lit(operator == Operator::And);
    }
    while operands.len() > 1 {
        let mut pairs = Vec::with_capacity(operands.len().div_ceil(2));
        let mut rest = operands.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))),
                None => left,
            });
        }
        operands = pairs;
    }
    operands.swap_remove(0)
}

/// The operands of a chain of one operator, from left to right.
fn chain<'e>(ast: &'e ast::Expr, wanted: &BinaryOperator) -> Vec<&'e ast::Expr> {
    let mut operands = Vec::new();
    let mut open = vec![ast];
    while let Some(next) = open.pop() {
        match next {
            ast::Expr::BinaryOp { left, op, right } if op == wanted => {
                open.push(right);
                open.push(left);
            }
            other => operands.push(other),
        }
    }
    operands
}

impl Binder<'_> {
    pub(super) fn binary(
        &self,
        ast: &ast::Expr,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let (clause, operator) = if *op == BinaryOperator::And { ("AND", Operator::And) } else { ("OR", Operator::Or) };
                let inner = Place { clause, filter: place.filter, ..*place };
                let operands = chain(ast, op).into_iter().map(|operand| {
                    let value = self.expression(operand, scope, &inner)?;
                    self.condition(value, clause, operand.span())
                });
                Ok(Typed::boolean(balanced(operands.collect::<Result<_>>()?, operator)))
            }
            BinaryOperator::Custom(symbol) if symbol == spelling::DISTINCT => self.distinct_test(left, right, false, scope, place),
            BinaryOperator::Custom(symbol) if symbol == spelling::NOT_DISTINCT => self.distinct_test(left, right, true, scope, place),
            _ => {
                if let Some(regrouped) = precedence::prefix_after_arithmetic(left, op, right) {
                    return self.expression(&regrouped, scope, place);
                }
                if let (ast::Expr::Tuple(left), ast::Expr::Tuple(right)) = (strip(left), strip(right)) {
                    return self.compare_rows(left, op, right, scope, place, ast.span());
                }
                let symbol = symbol_of(op, ast.span())?;
                let place = place.in_value();
                let (left, right) = (self.expression(left, scope, &place)?, self.expression(right, scope, &place)?);
                self.call_operator(&symbol, vec![left, right], ast.span())
            }
        }
    }

    /// `(a, b) = (1, 2)`, `(a, b) < (1, 2)`
    fn compare_rows(
        &self,
        left: &[ast::Expr],
        op: &BinaryOperator,
        right: &[ast::Expr],
        scope: &Scope<'_>,
        place: &Place<'_>,
        span: Span,
    ) -> Result<Typed> {
        if left.len() != right.len() {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "unequal number of entries in row expressions").at(span));
        }
        let place = place.in_value();
        let bind = |items: &[ast::Expr]| items.iter().map(|item| self.expression(item, scope, &place)).collect::<Result<Vec<_>>>();
        self.compare_typed_rows(bind(left)?, &symbol_of(op, span)?, bind(right)?, span)
    }

    /// Rows of values compared column by column.
    pub(in crate::bind) fn compare_typed_rows(&self, left: Vec<Typed>, symbol: &str, right: Vec<Typed>, span: Span) -> Result<Typed> {
        let pair = |symbol: &str, left: &Typed, right: &Typed| {
            self.call_operator(symbol, vec![left.clone(), right.clone()], span).map(|compared| compared.expr)
        };
        let pairs = || left.iter().zip(&right);
        let all = |symbol: &str, operator: Operator| {
            let compared = pairs().map(|(left, right)| pair(symbol, left, right)).collect::<Result<Vec<_>>>()?;
            Ok(Typed::boolean(balanced(compared, operator)))
        };
        match symbol {
            "=" => all("=", Operator::And),
            "<>" => all("<>", Operator::Or),
            "<" | ">" | "<=" | ">=" => {
                let strict = &symbol[..1];
                let mut result = None;
                for (left, right) in pairs().rev() {
                    result = Some(match result {
                        None => pair(symbol, left, right)?,
                        Some(rest) => {
                            let (greater, equal) = (pair(strict, left, right)?, pair("=", left, right)?);
                            greater.or(equal.and(rest))
                        }
                    });
                }
                result
                    .map(Typed::boolean)
                    .ok_or_else(|| PlanError::new(sqlstate::SYNTAX_ERROR, "cannot compare rows of zero length").at(span))
            }
            other => {
                let message = format!("operator {other} cannot be used between rows");
                Err(PlanError::unsupported(message).at(span))
            }
        }
    }

    /// Calls an operator by its symbol.
    ///
    /// # Errors
    /// 42883 `operator does not exist: integer + boolean`, 42725 if several fit.
    pub(crate) fn call_operator(&self, symbol: &str, operands: Vec<Typed>, span: Span) -> Result<Typed> {
        let types: Vec<SqlType> = operands.iter().map(|operand| operand.sql_type.clone()).collect();
        match self.try_call(registry::overloads(symbol), operands, true) {
            Ok(result) => result.map_err(|error| error.at(span)),
            Err(problem) => {
                let shown = match types.as_slice() {
                    [left, right] => format!("{} {symbol} {}", left.name(), right.name()),
                    [only] => format!("{symbol} {}", only.name()),
                    _ => symbol.to_owned(),
                };
                let hint = "You might need to add explicit type casts.";
                Err(match problem {
                    Unresolved::None => PlanError::new(sqlstate::UNDEFINED_FUNCTION, format!("operator does not exist: {shown}"))
                        .with_hint(format!("No operator matches the given name and argument types. {hint}")),
                    Unresolved::Ambiguous => PlanError::new(sqlstate::AMBIGUOUS_FUNCTION, format!("operator is not unique: {shown}"))
                        .with_hint(format!("Could not choose a best candidate operator. {hint}")),
                }
                .at(span))
            }
        }
    }
}

/// The symbol under which an operator is registered.
pub(in crate::bind) fn symbol_of(op: &BinaryOperator, span: Span) -> Result<String> {
    Ok(match op {
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
        BinaryOperator::Custom(symbol) => symbol.clone(),
        BinaryOperator::NotEq => "<>".to_owned(),
        BinaryOperator::PGBitwiseXor => "#".to_owned(),
        BinaryOperator::BitwiseXor | BinaryOperator::PGExp => "^".to_owned(),
        BinaryOperator::Xor | BinaryOperator::Spaceship | BinaryOperator::Match | BinaryOperator::Regexp => {
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{op}\"")).at(span));
        }
        other => match other.to_string().as_str() {
            "!=" => "<>".to_owned(),
            symbol => symbol.to_owned(),
        },
    })
}
