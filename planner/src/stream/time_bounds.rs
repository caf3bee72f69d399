//! What a join says about the times of the rows it joins: `l BETWEEN r - x AND r + y` bounds each column by the other, an equality does so both
//! ways. A bounded column keeps a watermark, and where no row comes late, rows die that the watermark has passed.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion::{
    common::{Column, DFSchema, ScalarValue},
    logical_expr::{Between, BinaryExpr, Expr, Operator, expr::ScalarFunction, utils::split_conjunction},
};
use millpond_engine::graph::TimeBound;

use super::properties::{Properties, WatermarkColumn};

const DAY_US: i64 = 86_400_000_000;
/// Clocks are set forward and back; no two offsets from UTC differ by more.
const ZONE_SLACK_US: i64 = 2 * DAY_US;

/// `greater >= smaller + shift_us`, for all rows that join; columns of the left side, then those of the right one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inequality {
    greater: usize,
    smaller: usize,
    shift_us: i64,
}

/// The bounds of each side's time columns, and the columns by which its rows die.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct JoinTimes {
    pub(crate) left_bounds: Vec<TimeBound>,
    pub(crate) right_bounds: Vec<TimeBound>,
    pub(crate) left_expiry: Option<usize>,
    pub(crate) right_expiry: Option<usize>,
}

/// What equalities between the sides and inequalities say about columns that carry a watermark. The right columns of `inequalities` start at
/// `left_width`.
pub(crate) fn join_times(
    on: &[(usize, usize)],
    inequalities: &[Inequality],
    left_width: usize,
    left: &Properties,
    right: &Properties,
) -> JoinTimes {
    let (mut left_bounds, mut right_bounds) = (Vec::new(), Vec::new());
    for (one, two) in on {
        left_bounds.push(TimeBound { column: *one, partner: *two, shift_us: 0 });
        right_bounds.push(TimeBound { column: *two, partner: *one, shift_us: 0 });
    }
    for Inequality { greater, smaller, shift_us } in inequalities.iter().copied() {
        match (greater < left_width, smaller < left_width) {
            (true, false) => left_bounds.push(TimeBound { column: greater, partner: smaller - left_width, shift_us }),
            (false, true) => right_bounds.push(TimeBound { column: greater - left_width, partner: smaller, shift_us }),
            (true, true) | (false, false) => {}
        }
    }
    let carried = |bounds: Vec<TimeBound>, side: &Properties, partners: &Properties| -> Vec<TimeBound> {
        let both = |bound: &TimeBound| side.watermark(bound.column).is_some() && partners.watermark(bound.partner).is_some();
        bounds.into_iter().filter(both).collect()
    };
    let (left_bounds, right_bounds) = (carried(left_bounds, left, right), carried(right_bounds, right, left));
    JoinTimes {
        left_expiry: expiry(&left_bounds, left, right),
        right_expiry: expiry(&right_bounds, right, left),
        left_bounds,
        right_bounds,
    }
}

/// The watermarks that a join emits under a side's columns.
pub(crate) fn bounded_watermarks(bounds: &[TimeBound], side: &Properties, partners: &Properties) -> Vec<WatermarkColumn> {
    let mut found: Vec<WatermarkColumn> = Vec::new();
    for bound in bounds {
        let (Some(own), Some(partner)) = (side.watermark(bound.column), partners.watermark(bound.partner)) else { continue };
        match found.iter_mut().find(|watermark| watermark.column == bound.column) {
            Some(known) => known.strict &= partner.strict,
            None => found.push(WatermarkColumn { strict: own.strict && partner.strict, ..own }),
        }
    }
    found
}

/// The column by which a side's rows die, if no row of either side comes late.
fn expiry(bounds: &[TimeBound], side: &Properties, partners: &Properties) -> Option<usize> {
    let watermarks = bounded_watermarks(bounds, side, partners).into_iter().enumerate();
    let strict = watermarks.filter(|(_, watermark)| watermark.strict);
    strict.max_by_key(|(place, watermark)| (watermark.role, std::cmp::Reverse(*place))).map(|(_, watermark)| watermark.column)
}

/// The inequalities between columns in a join condition over `schema`.
pub(crate) fn inequalities(condition: &Expr, schema: &DFSchema) -> Vec<Inequality> {
    let between = |(low, high): (&Expr, &Expr)| {
        // low <= high, each a column plus a constant: high's column >= low's column + what low adds - what high adds.
        let (low, high) = (shifted(low, schema)?, shifted(high, schema)?);
        Some(Inequality { greater: high.column, smaller: low.column, shift_us: low.least_us.checked_sub(high.most_us)? })
    };
    split_conjunction(condition).into_iter().flat_map(ordered_pairs).filter_map(between).collect()
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

/// A column plus a constant, which is not always the same number of microseconds.
struct Shifted {
    column: usize,
    least_us: i64,
    most_us: i64,
}

fn shifted(expression: &Expr, schema: &DFSchema) -> Option<Shifted> {
    let (left, op, right) = match expression {
        Expr::Column(column) => return Some(Shifted { column: schema.maybe_index_of_column(column)?, least_us: 0, most_us: 0 }),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => (left.as_ref(), *op, right.as_ref()),
        Expr::ScalarFunction(call) => {
            let [left, right] = call.args.as_slice() else { return None };
            (left, operator_of(call)?, right)
        }
        _ => return None,
    };
    let Shifted { column, least_us, most_us } = shifted(left, schema)?;
    let in_zone = matches!(schema.field(column).data_type(), DataType::Timestamp(_, Some(_)));
    let (least, most) = constant_micros(right, in_zone)?;
    match op {
        Operator::Plus => Some(Shifted { column, least_us: least_us.checked_add(least)?, most_us: most_us.checked_add(most)? }),
        Operator::Minus => Some(Shifted { column, least_us: least_us.checked_sub(most)?, most_us: most_us.checked_sub(least)? }),
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

/// The least and the most that a constant interval adds to a time: months differ in length, and so do days where clocks are set.
fn constant_micros(expression: &Expr, in_zone: bool) -> Option<(i64, i64)> {
    let Expr::Literal(value, _) = expression else { return None };
    match value {
        ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months, days, nanoseconds })) => {
            let months = i64::from(*months);
            let (short, long) = (months * 28, months * 31);
            let slack = if in_zone && (months != 0 || *days != 0) { ZONE_SLACK_US } else { 0 };
            let micros = |month_days: i64| (month_days + i64::from(*days)).checked_mul(DAY_US)?.checked_add(nanoseconds / 1_000);
            Some((micros(short.min(long))?.checked_sub(slack)?, micros(short.max(long))?.checked_add(slack)?))
        }
        ScalarValue::DurationMicrosecond(Some(micros)) => Some((*micros, *micros)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema, TimeUnit};
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::stream::{
        distribution::Partitioning,
        properties::{TimeRole, WatermarkColumn},
    };

    fn schema() -> DFSchema {
        times_of(&DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn zoned() -> DFSchema {
        times_of(&DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))
    }

    fn times_of(data_type: &DataType) -> DFSchema {
        let time = |name: &str| Field::new(name, data_type.clone(), true);
        DFSchema::try_from(Schema::new(vec![time("l0"), time("l1"), time("r0"), time("r1")])).expect("names are unique")
    }

    fn seconds(count: i64) -> Expr {
        lit(ScalarValue::new_interval_mdn(0, 0, count * 1_000_000_000))
    }

    fn side(column: usize, strict: bool) -> Properties {
        let watermarks = vec![WatermarkColumn { column, role: TimeRole::Time, strict, padded: false }];
        Properties { append_only: true, stream_key: None, watermarks, partitioning: Partitioning::Any }
    }

    fn times(condition: &Expr, left: &Properties, right: &Properties) -> JoinTimes {
        join_times(&[], &inequalities(condition, &schema()), 2, left, right)
    }

    fn bound(column: usize, partner: usize, shift_us: i64) -> TimeBound {
        TimeBound { column, partner, shift_us }
    }

    #[test]
    fn rows_die_when_no_partner_can_come() {
        // r0 - 10 s <= l1 <= r0 + 2 s
        let condition = col("l1").gt_eq(col("r0") - seconds(10)).and(col("l1").lt_eq(col("r0") + seconds(2)));
        let bounds = JoinTimes {
            left_bounds: vec![bound(1, 0, -10_000_000)],
            right_bounds: vec![bound(0, 1, -2_000_000)],
            left_expiry: Some(1),
            right_expiry: Some(0),
        };
        assert_eq!(times(&condition, &side(1, true), &side(0, true)), bounds);
        assert_eq!(times(&condition, &side(0, true), &side(0, true)), JoinTimes::default(), "the bound is on another column");
        let late = JoinTimes { left_expiry: None, right_expiry: None, ..bounds };
        assert_eq!(times(&condition, &side(1, true), &side(0, false)), late, "late rows may come");
        let between = col("l0").between(col("r1"), col("r1") + seconds(5));
        let found = times(&between, &side(0, true), &side(1, true));
        assert_eq!((found.left_bounds, found.right_bounds), (vec![bound(0, 1, 0)], vec![bound(1, 0, -5_000_000)]));
    }

    #[test]
    fn one_sided_bounds_free_one_side() {
        let found = times(&(col("l1") - seconds(3)).gt(col("r0")), &side(1, true), &side(0, true));
        let expected = JoinTimes { left_bounds: vec![bound(1, 0, 3_000_000)], left_expiry: Some(1), ..JoinTimes::default() };
        assert_eq!(found, expected);
        assert_eq!(times(&col("l1").gt_eq(col("l0")), &side(1, true), &side(0, true)), JoinTimes::default(), "one side alone");
    }

    #[test]
    fn months_and_days_where_clocks_are_set_have_no_fixed_length() {
        let shift = |condition: Expr, schema: &DFSchema| inequalities(&condition, schema)[0].shift_us;
        let month = || lit(ScalarValue::new_interval_mdn(1, 0, 0));
        assert_eq!(shift(col("l1").lt_eq(col("r0") + month()), &schema()), -31 * DAY_US);
        assert_eq!(shift(col("l1").gt_eq(col("r0") + month()), &schema()), 28 * DAY_US);
        assert_eq!(shift(col("l1").gt_eq(col("r0") - month()), &schema()), -31 * DAY_US);
        let day = || lit(ScalarValue::new_interval_mdn(0, 1, 0));
        assert_eq!(shift(col("l1").lt_eq(col("r0") + day()), &schema()), -DAY_US);
        assert_eq!(shift(col("l1").lt_eq(col("r0") + day()), &zoned()), -DAY_US - ZONE_SLACK_US);
        assert_eq!(shift(col("l1").lt_eq(col("r0") + seconds(86_400)), &zoned()), -DAY_US, "hours are hours");
    }

    #[test]
    fn equal_times_die_with_the_watermark() {
        let found = join_times(&[(3, 4), (1, 0)], &[], 2, &side(1, true), &side(0, true));
        let expected = JoinTimes {
            left_bounds: vec![bound(1, 0, 0)],
            right_bounds: vec![bound(0, 1, 0)],
            left_expiry: Some(1),
            right_expiry: Some(0),
        };
        assert_eq!(found, expected);
    }
}
