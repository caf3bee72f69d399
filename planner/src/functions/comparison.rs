//! Comparisons. They stay DataFusion's own binary expressions, which its optimizer knows, over forms of the values that compare by their bytes.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use sqlparser::tokenizer::Span;

use super::{float, interval, signature::Entry};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    types::{SqlType, coercion::common_type},
};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("=(anycompatible, anycompatible) boolean", |binder, values| compare(binder, "=", Operator::Eq, values)),
    Entry::rewrite("<>(anycompatible, anycompatible) boolean", |binder, values| compare(binder, "<>", Operator::NotEq, values)),
    Entry::rewrite("<(anycompatible, anycompatible) boolean", |binder, values| compare(binder, "<", Operator::Lt, values)),
    Entry::rewrite("<=(anycompatible, anycompatible) boolean", |binder, values| compare(binder, "<=", Operator::LtEq, values)),
    Entry::rewrite(">(anycompatible, anycompatible) boolean", |binder, values| compare(binder, ">", Operator::Gt, values)),
    Entry::rewrite(">=(anycompatible, anycompatible) boolean", |binder, values| compare(binder, ">=", Operator::GtEq, values)),
];

fn compare(binder: &Binder<'_>, symbol: &str, operator: Operator, values: Vec<Typed>) -> Result<Typed> {
    let [left, right] = pair(values)?;
    let ordered = !matches!(operator, Operator::Eq | Operator::NotEq);
    let missing = match &left.sql_type {
        SqlType::Json => true,
        SqlType::Array(element) => **element == SqlType::Json,
        SqlType::Boolean | SqlType::Uuid => false,
        SqlType::Void => true,
        _ => ordered && matches!(left.sql_type, SqlType::Unknown),
    };
    if missing {
        let name = left.sql_type.name();
        return Err(PlanError::new(sqlstate::UNDEFINED_FUNCTION, format!("operator does not exist: {name} {symbol} {name}"))
            .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts."));
    }
    if let (true, Some(function)) = (matches!(left.sql_type, SqlType::Array(_)), array_order(operator)) {
        return binder.call(function, vec![left, right], Span::empty());
    }
    let (left, right) = operands(binder, left, right, Span::empty())?;
    Ok(Typed::boolean(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))))
}

/// The function that orders arrays, in which DataFusion takes NULL for less than all else.
fn array_order(operator: Operator) -> Option<&'static str> {
    match operator {
        Operator::Lt => Some("array_lt"),
        Operator::LtEq => Some("array_le"),
        Operator::Gt => Some("array_gt"),
        Operator::GtEq => Some("array_ge"),
        _ => None,
    }
}

/// The two arguments of a call.
pub(super) fn pair(values: Vec<Typed>) -> Result<[Typed; 2]> {
    <[Typed; 2]>::try_from(values).map_err(|_| PlanError::internal("a call that takes two arguments has others"))
}

/// Two values brought to one type, in forms that compare.
///
/// # Errors
/// 42883 if they have no common type.
pub(crate) fn operands(binder: &Binder<'_>, left: Typed, right: Typed, span: Span) -> Result<(Expr, Expr)> {
    let types = [left.sql_type.clone(), right.sql_type.clone()];
    // Compared with another text, a `char(n)` is one without its blanks.
    let mixed = types.contains(&SqlType::Char) && types.iter().any(|other| matches!(other, SqlType::Text | SqlType::Varchar));
    let common = if mixed { Some(SqlType::Text) } else { common_type(&types) };
    let common = common.ok_or_else(|| {
        let message = format!("operator does not exist: {} = {}", types[0].name(), types[1].name());
        PlanError::new(sqlstate::UNDEFINED_FUNCTION, message)
            .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
            .at(span)
    })?;
    let (left, right) = (binder.implicit(left, &common)?, binder.implicit(right, &common)?);
    Ok((sort_key(binder, left), sort_key(binder, right)))
}

/// Whether values of a type are equal if and only if they are held the same.
pub(crate) fn compares_as_it_is(sql_type: &SqlType) -> bool {
    !matches!(
        sql_type,
        SqlType::Interval | SqlType::Json | SqlType::Char | SqlType::Void | SqlType::Record(_) | SqlType::Real | SqlType::Double
    )
}

/// The form by which values of a type are compared and ordered.
pub(crate) fn sort_key(binder: &Binder<'_>, value: Typed) -> Expr {
    match value.sql_type {
        SqlType::Interval => interval::normal_form(binder, value).expr,
        SqlType::Real | SqlType::Double => float::normal_form(binder, value).expr,
        SqlType::Char => match binder.call("rtrim", vec![Typed::new(value.expr.clone(), SqlType::Text)], Span::empty()) {
            Ok(trimmed) => trimmed.expr,
            Err(_) => value.expr,
        },
        _ => value.expr,
    }
}

/// One form for all values that are equal, so that they fall into one group and count as one.
pub(crate) fn distinct_form(binder: &Binder<'_>, value: Typed) -> Typed {
    match value.sql_type {
        SqlType::Interval => interval::normal_form(binder, value),
        SqlType::Real | SqlType::Double => float::normal_form(binder, value),
        _ => value,
    }
}

/// The expression that [`distinct_form`] was made of, if it changed it.
pub(crate) fn undo_distinct_form(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::ScalarFunction(function) if matches!(function.name(), interval::NORMAL_FORM | float::NORMAL_FORM) => {
            function.args.first().cloned()
        }
        _ => None,
    }
}
