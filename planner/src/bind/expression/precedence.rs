//! Where `sqlparser` groups operators otherwise than Postgres: a sign binds closer than `^` (`-2 ^ 2` is 4), and the other prefix operators
//! (`~`, `@`, `|/`, `||/`) bind less than arithmetic (`~1 + 1` is `~(1 + 1)`). Parentheses are nodes of their own, so that what was
//! grouped by hand is not touched.

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

use super::with_stack;

/// `-(a ^ b)`, written without parentheses, as `(-a) ^ b`.
pub(super) fn sign_before_power(sign: UnaryOperator, operand: &Expr) -> Option<Expr> {
    if !matches!(sign, UnaryOperator::Minus | UnaryOperator::Plus) || !matches!(operand, Expr::BinaryOp { op, .. } if is_power(op)) {
        return None;
    }
    Some(signed(operand.clone(), sign))
}

fn signed(expr: Expr, sign: UnaryOperator) -> Expr {
    match expr {
        Expr::BinaryOp { left, op, right } if is_power(&op) => {
            let left = with_stack(|| Box::new(signed(*left, sign)));
            Expr::BinaryOp { left, op, right }
        }
        first => Expr::UnaryOp { op: sign, expr: Box::new(first) },
    }
}

/// `(~a) + b`, written without parentheses, as `~(a + b)`.
pub(super) fn prefix_after_arithmetic(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    if !is_arithmetic(op) {
        return None;
    }
    let mut first = left;
    while let Expr::BinaryOp { left, op, .. } = first
        && is_arithmetic(op)
    {
        first = left.as_ref();
    }
    let Expr::UnaryOp { op: prefix, .. } = first else { return None };
    if !matches!(prefix, UnaryOperator::BitwiseNot | UnaryOperator::PGAbs | UnaryOperator::PGSquareRoot | UnaryOperator::PGCubeRoot) {
        return None;
    }
    let prefix = *prefix;
    let mut whole = Expr::BinaryOp { left: Box::new(left.clone()), op: op.clone(), right: Box::new(right.clone()) };
    let mut first = &mut whole;
    while let Expr::BinaryOp { left, .. } = first {
        first = left.as_mut();
    }
    if let Expr::UnaryOp { expr, .. } = first {
        let operand = std::mem::replace(expr.as_mut(), Expr::Value(sqlparser::ast::Value::Null.into()));
        *first = operand;
    }
    Some(Expr::UnaryOp { op: prefix, expr: Box::new(whole) })
}

fn is_power(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::PGExp | BinaryOperator::BitwiseXor)
}

fn is_arithmetic(op: &BinaryOperator) -> bool {
    is_power(op)
        || matches!(
            op,
            BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Modulo
        )
}
