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

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::stream::{
        distribution::Partitioning,
        properties::{TimeRole, WatermarkColumn},
    };

    fn schema() -> DFSchema {
        let time = |name: &str| Field::new(name, DataType::Timestamp(TimeUnit::Microsecond, None), true);
        DFSchema::try_from(Schema::new(vec![time("l0"), time("l1"), time("r0"), time("r1")])).expect("names are unique")
    }

    fn seconds(count: i64) -> Expr {
        lit(ScalarValue::new_interval_mdn(0, 0, count * 1_000_000_000))
    }

    fn side(column: usize, strict: bool) -> Properties {
        let watermarks = vec![WatermarkColumn { column, role: TimeRole::Time, strict }];
        Properties { append_only: true, stream_key: None, watermarks, partitioning: Partitioning::Any }
    }

    #[test]
    fn rows_die_when_no_partner_can_come() {
        // r0 - 10 s <= l1 <= r0 + 2 s
        let condition = col("l1").gt_eq(col("r0") - seconds(10)).and(col("l1").lt_eq(col("r0") + seconds(2)));
        let bounds = time_bounds(&condition, &schema(), 2);
        assert_eq!(expiry(&[], &bounds, &side(1, true), &side(0, true)), Some(((1, 10_000_000), (0, 2_000_000))));
        assert_eq!(expiry(&[], &bounds, &side(0, true), &side(0, true)), None, "the bound is on another column");
        assert_eq!(expiry(&[], &bounds, &side(1, true), &side(0, false)), None, "late rows may come");
        let between = col("l0").between(col("r1"), col("r1") + seconds(5));
        assert_eq!(expiry(&[], &time_bounds(&between, &schema(), 2), &side(0, true), &side(1, true)), Some(((0, 0), (1, 5_000_000))));
    }

    #[test]
    fn one_sided_bounds_keep_rows_for_ever() {
        let condition = col("l1").gt_eq(col("r0"));
        assert_eq!(expiry(&[], &time_bounds(&condition, &schema(), 2), &side(1, true), &side(0, true)), None);
        let months = lit(ScalarValue::new_interval_mdn(1, 0, 0));
        let condition = col("l1").gt_eq(col("r0")).and(col("l1").lt_eq(col("r0") + months));
        assert_eq!(expiry(&[], &time_bounds(&condition, &schema(), 2), &side(1, true), &side(0, true)), None);
    }

    #[test]
    fn equal_times_die_with_the_watermark() {
        assert_eq!(expiry(&[(3, 4), (1, 0)], &[], &side(1, true), &side(0, true)), Some(((1, 0), (0, 0))));
    }
}
