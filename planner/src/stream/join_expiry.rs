//! When rows kept by a join can die: if each row's partners lie in a bounded stretch of event time, it is dead once the watermark has passed
//! the stretch. Windows joined by equality are the simple case; `l BETWEEN r - x AND r + y` is the other.

use arrow::datatypes::IntervalMonthDayNano;
use datafusion::{
    common::{Column, DFSchema, ScalarValue},
    logical_expr::{Between, BinaryExpr, Expr, Operator, expr::ScalarFunction, utils::split_conjunction},
};

use super::properties::Properties;

/// `right <= left + right_after` and `left <= right + left_after`, in microseconds: what is known of two time columns of the joined rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeBound {
    left: usize,
    right: usize,
    right_after: Option<i64>,
    left_after: Option<i64>,
}

/// A column of each side with the microseconds after which its row is dead.
pub(crate) type Expiry = ((usize, i64), (usize, i64));

/// The columns by which rows of a join die, if both sides have a watermark that no row falls below.
pub(crate) fn expiry(on: &[(usize, usize)], bounds: &[TimeBound], left: &Properties, right: &Properties) -> Option<Expiry> {
    let strict = |side: &Properties, column: usize| side.watermark(column).filter(|watermark| watermark.strict);
    let equal = on.iter().filter_map(|(one, two)| Some((strict(left, *one)?.role, *one, *two, strict(right, *two)?)));
    if let Some((_, one, two, _)) = equal.max_by_key(|(role, one, ..)| (*role, std::cmp::Reverse(*one))) {
        return Some(((one, 0), (two, 0)));
    }
    bounds.iter().find_map(|bound| {
        strict(left, bound.left).and(strict(right, bound.right))?;
        Some(((bound.left, bound.right_after?.max(0)), (bound.right, bound.left_after?.max(0))))
    })
}

/// The bounds that a join condition puts on columns of its sides; the columns of `schema` from `left_width` on are the right side's.
pub(crate) fn time_bounds(condition: &Expr, schema: &DFSchema, left_width: usize) -> Vec<TimeBound> {
    let mut bounds: Vec<TimeBound> = Vec::new();
    for (low, high) in split_conjunction(condition).into_iter().flat_map(ordered_pairs) {
        // low <= high, each a column plus a constant: low's column <= high's column + slack.
        let (Some(low), Some(high)) = (shifted(low, schema), shifted(high, schema)) else { continue };
        let Some(slack) = high.1.checked_sub(low.1) else { continue };
        let (left, right, is_left_bound) = match (low.0 < left_width, high.0 < left_width) {
            (true, false) => (low.0, high.0 - left_width, true),
            (false, true) => (high.0, low.0 - left_width, false),
            _ => continue,
        };
        let known = bounds.iter().position(|bound| bound.left == left && bound.right == right).unwrap_or_else(|| {
            bounds.push(TimeBound { left, right, right_after: None, left_after: None });
            bounds.len() - 1
        });
        let slot = if is_left_bound { &mut bounds[known].left_after } else { &mut bounds[known].right_after };
        *slot = Some(slot.map_or(slack, |other| other.min(slack)));
    }
    bounds
}

/// The inequalities of a conjunct, as (smaller, greater).
fn ordered_pairs(conjunct: &Expr) -> Vec<(&Expr, &Expr)> {
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::LtEq | Operator::Lt => vec![(left, right)],
            Operator::GtEq | Operator::Gt => vec![(right, left)],
            _ => Vec::new(),
        },
        Expr::Between(Between { expr, negated: false, low, high }) => vec![(low, expr), (expr, high)],
        _ => Vec::new(),
    }
}

/// A column plus microseconds.
fn shifted(expression: &Expr, schema: &DFSchema) -> Option<(usize, i64)> {
    let (left, op, right) = match expression {
        Expr::Column(column) => return Some((schema.maybe_index_of_column(column)?, 0)),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => (left.as_ref(), *op, right.as_ref()),
        Expr::ScalarFunction(call) => {
            let [left, right] = call.args.as_slice() else { return None };
            (left, operator_of(call)?, right)
        }
        _ => return None,
    };
    let (column, shift) = shifted(left, schema)?;
    match op {
        Operator::Plus => Some((column, shift.checked_add(constant_micros(right)?)?)),
        Operator::Minus => Some((column, shift.checked_sub(constant_micros(right)?)?)),
        _ => None,
    }
}

/// The operator that a function stands for (arithmetic that checks for overflow is a function): it shows itself between its arguments.
fn operator_of(call: &ScalarFunction) -> Option<Operator> {
    let argument = |name: &str| Expr::Column(Column::new_unqualified(name));
    match call.func.schema_name(&[argument("x"), argument("y")]).ok()?.as_str() {
        "(x + y)" => Some(Operator::Plus),
        "(x - y)" => Some(Operator::Minus),
        _ => None,
    }
}

/// A constant interval of fixed length; months have none.
fn constant_micros(expression: &Expr) -> Option<i64> {
    let Expr::Literal(value, _) = expression else { return None };
    match value {
        ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months: 0, days, nanoseconds })) => {
            i64::from(*days).checked_mul(86_400_000_000)?.checked_add(nanoseconds / 1_000)
        }
        ScalarValue::DurationMicrosecond(Some(micros)) => Some(*micros),
        _ => None,
    }
}
