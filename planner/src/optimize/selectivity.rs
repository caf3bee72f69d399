//! Which share of rows a condition keeps.

use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, ScalarValue},
    logical_expr::{
        BinaryExpr, Expr, Operator,
        expr::{Between, Cast, InList},
        utils::split_conjunction,
    },
};

use super::{estimate::ColumnEstimate, statistics::ColumnStatistics};

/// Distinct values of an expression of which nothing is known.
pub(super) const DEFAULT_DISTINCT: f64 = 200.0;
/// What a comparison with an unknown value keeps.
const DEFAULT_RANGE: f64 = 1.0 / 3.0;
/// What a range between two unknown values keeps.
const DEFAULT_BETWEEN: f64 = 0.1;
/// What a pattern keeps.
const DEFAULT_PATTERN: f64 = 0.05;
/// Share of NULLs of which nothing is known.
const DEFAULT_NULL_SHARE: f64 = 0.01;
/// What any other condition keeps.
const DEFAULT_OTHER: f64 = 1.0 / 3.0;

/// The columns that conditions read.
pub(super) struct Columns<'a> {
    pub(super) schema: &'a DFSchema,
    pub(super) columns: &'a [ColumnEstimate],
    pub(super) rows: f64,
}

impl Columns<'_> {
    /// Which share of rows all of these conditions keep. Conditions on the same rows are rarely independent: each further one, the most selective
    /// first, counts by the root of the one before.
    pub(super) fn all<'e>(&self, conditions: impl IntoIterator<Item = &'e Expr>) -> f64 {
        let conditions = conditions.into_iter().flat_map(split_conjunction);
        let mut shares: Vec<f64> = conditions.map(|condition| self.share(condition)).collect();
        shares.sort_by(f64::total_cmp);
        let mut exponent = 1.0;
        let mut product = 1.0;
        for share in shares {
            product *= share.powf(exponent);
            exponent /= 2.0;
        }
        product
    }

    /// Which share of rows a condition keeps, 0 to 1.
    pub(super) fn share(&self, condition: &Expr) -> f64 {
        let share = match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self.binary(left, *op, right),
            Expr::Not(inner) => 1.0 - self.share(inner),
            Expr::IsNull(inner) => self.null_share(inner),
            Expr::IsNotNull(inner) => 1.0 - self.null_share(inner),
            Expr::IsTrue(inner) => self.share(inner),
            Expr::Between(Between { expr, negated, low, high }) => {
                let inside = self.between(expr, low, high);
                if *negated { 1.0 - inside } else { inside }
            }
            Expr::InList(InList { expr, list, negated }) => {
                let inside: f64 = list.iter().map(|value| self.equality(expr, value)).sum();
                if *negated { 1.0 - inside } else { inside }
            }
            Expr::Like(like) if like.negated => 1.0 - DEFAULT_PATTERN,
            Expr::Like(_) | Expr::SimilarTo(_) => DEFAULT_PATTERN,
            Expr::Literal(ScalarValue::Boolean(value), _) => f64::from(value.unwrap_or(false)),
            Expr::Column(_) => 0.5,
            Expr::Alias(alias) => self.share(&alias.expr),
            _ => DEFAULT_OTHER,
        };
        share.clamp(0.0, 1.0)
    }

    fn binary(&self, left: &Expr, op: Operator, right: &Expr) -> f64 {
        match op {
            Operator::And => self.all([left, right]),
            Operator::Or => {
                let (one, two) = (self.share(left), self.share(right));
                one + two - one * two
            }
            Operator::Eq | Operator::IsNotDistinctFrom => self.equality(left, right),
            Operator::NotEq | Operator::IsDistinctFrom => 1.0 - self.equality(left, right),
            Operator::Lt | Operator::LtEq => {
                self.below(left, right).or_else(|| Some(1.0 - self.below(right, left)?)).unwrap_or(DEFAULT_RANGE)
            }
            Operator::Gt | Operator::GtEq => {
                self.below(right, left).or_else(|| Some(1.0 - self.below(left, right)?)).unwrap_or(DEFAULT_RANGE)
            }
            Operator::LikeMatch | Operator::ILikeMatch | Operator::RegexMatch | Operator::RegexIMatch => DEFAULT_PATTERN,
            _ => DEFAULT_OTHER,
        }
    }

    fn equality(&self, left: &Expr, right: &Expr) -> f64 {
        let (compared, value) = match (literal(left), literal(right)) {
            (Some(value), _) => (right, Some(value)),
            (_, Some(value)) => (left, Some(value)),
            _ => (left, None),
        };
        if value.is_none() && !left.column_refs().is_empty() && !right.column_refs().is_empty() {
            return 1.0 / self.distinct(left).max(self.distinct(right)).max(1.0);
        }
        let distinct = self.distinct(compared).max(1.0);
        let Some(known) = self.known(compared) else { return 1.0 / distinct };
        let Some(value) = value else { return 1.0 / distinct };
        if let Some((_, share)) = known.common.iter().find(|(common, _)| same(common, value)) {
            return *share;
        }
        if outside(known, value) {
            return 0.5 / self.rows.max(1.0);
        }
        let common: f64 = known.common.iter().map(|(_, share)| share).sum();
        let rest = (distinct - known.common.len() as f64).max(1.0);
        (1.0 - common - known.null_share.unwrap_or(0.0)).max(0.0) / rest
    }

    /// The share of `column`'s values that are below `value`.
    fn below(&self, column: &Expr, value: &Expr) -> Option<f64> {
        let (known, value) = (self.known(column)?, literal(value)?);
        share_below(known, value)
    }

    fn between(&self, column: &Expr, low: &Expr, high: &Expr) -> f64 {
        match (self.below(column, low), self.below(column, high)) {
            (Some(low), Some(high)) => (high - low).max(0.5 / self.rows.max(1.0)),
            _ => DEFAULT_BETWEEN,
        }
    }

    fn null_share(&self, expr: &Expr) -> f64 {
        self.known(expr).and_then(|known| known.null_share).unwrap_or(DEFAULT_NULL_SHARE)
    }

    fn distinct(&self, expr: &Expr) -> f64 {
        let known = self.estimate(expr).and_then(|column| column.distinct);
        known.unwrap_or(DEFAULT_DISTINCT).min(self.rows.max(1.0))
    }

    fn known(&self, expr: &Expr) -> Option<&ColumnStatistics> {
        self.estimate(expr)?.statistics.as_deref()
    }

    fn estimate(&self, expr: &Expr) -> Option<&ColumnEstimate> {
        match expr {
            Expr::Column(column) => self.columns.get(self.schema.index_of_column(column).ok()?),
            Expr::Cast(Cast { expr, .. }) => self.estimate(expr),
            _ => None,
        }
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        Expr::Cast(Cast { expr, .. }) => literal(expr),
        _ => None,
    }
}

fn same(one: &ScalarValue, two: &ScalarValue) -> bool {
    match (position(one), position(two)) {
        (Some(one), Some(two)) => one == two,
        _ => match (one.try_as_str(), two.try_as_str()) {
            (Some(one), Some(two)) => one == two,
            _ => one == two,
        },
    }
}

fn outside(known: &ColumnStatistics, value: &ScalarValue) -> bool {
    let before = |one: &ScalarValue, two: &ScalarValue| less(one, two).unwrap_or(false);
    known.min.as_ref().is_some_and(|min| before(value, min)) || known.max.as_ref().is_some_and(|max| before(max, value))
}

fn less(one: &ScalarValue, two: &ScalarValue) -> Option<bool> {
    if let (Some(one), Some(two)) = (position(one), position(two)) {
        return Some(one < two);
    }
    match (one.try_as_str(), two.try_as_str()) {
        (Some(Some(one)), Some(Some(two))) => Some(one < two),
        _ => None,
    }
}

/// The share of rows whose value is below another, from the most common values and the histogram, or from the bounds.
fn share_below(known: &ColumnStatistics, value: &ScalarValue) -> Option<f64> {
    let common: f64 = known.common.iter().map(|(_, share)| share).sum();
    let common_below: f64 = known.common.iter().filter(|(common, _)| less(common, value) == Some(true)).map(|(_, share)| share).sum();
    let rest = (1.0 - common - known.null_share.unwrap_or(0.0)).max(0.0);
    let part = match known.histogram.as_slice() {
        [first, .., _] => {
            less(first, value)?;
            histogram_below(&known.histogram, value)
        }
        _ => {
            let (min, max, at) = (position(known.min.as_ref()?)?, position(known.max.as_ref()?)?, position(value)?);
            if max > min { ((at - min) / (max - min)).clamp(0.0, 1.0) } else { f64::from(at > min) }
        }
    };
    Some(common_below + rest * part)
}

fn histogram_below(bounds: &[ScalarValue], value: &ScalarValue) -> f64 {
    let below = bounds.iter().filter(|bound| less(bound, value) == Some(true)).count();
    if below == 0 {
        return 0.0;
    }
    let parts = (bounds.len() - 1) as f64;
    let Some(next) = bounds.get(below) else { return 1.0 };
    let inside = match (position(&bounds[below - 1]), position(next), position(value)) {
        (Some(low), Some(high), Some(at)) if high > low => ((at - low) / (high - low)).clamp(0.0, 1.0),
        _ => 0.5,
    };
    ((below - 1) as f64 + inside) / parts
}

/// Where a value stands on a line, for those that stand on one.
fn position(value: &ScalarValue) -> Option<f64> {
    use ScalarValue::{
        Boolean, Date32, Date64, Time64Microsecond, TimestampMicrosecond, TimestampMillisecond, TimestampNanosecond, TimestampSecond,
    };
    match value {
        Boolean(value) => value.map(f64::from),
        // All moments in microseconds: a date is compared with a timestamp.
        Date32(days) => days.map(|days| f64::from(days) * 86_400e6),
        Date64(millis) | TimestampMillisecond(millis, _) => millis.map(|millis| millis as f64 * 1e3),
        TimestampSecond(seconds, _) => seconds.map(|seconds| seconds as f64 * 1e6),
        TimestampMicrosecond(micros, _) | Time64Microsecond(micros) => micros.map(|micros| micros as f64),
        TimestampNanosecond(nanos, _) => nanos.map(|nanos| nanos as f64 / 1e3),
        other if other.data_type().is_numeric() => match other.cast_to(&DataType::Float64).ok()? {
            ScalarValue::Float64(value) => value,
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::{
        arrow::datatypes::{Field, Schema},
        logical_expr::{col, lit},
    };

    use super::*;

    fn share(statistics: ColumnStatistics, condition: &Expr) -> f64 {
        let schema = DFSchema::try_from(Schema::new(vec![Field::new("v", DataType::Int64, true)])).expect("a schema");
        let distinct = statistics.distinct;
        let columns = [ColumnEstimate { distinct, width: 8.0, statistics: Some(Arc::new(statistics)) }];
        Columns { schema: &schema, columns: &columns, rows: 1000.0 }.share(condition)
    }

    fn close(one: f64, two: f64) {
        assert!((one - two).abs() < 1e-9, "{one} {two}");
    }

    fn integers(values: &[i64]) -> Vec<ScalarValue> {
        values.iter().map(|value| ScalarValue::from(*value)).collect()
    }

    #[test]
    fn equality_by_distinct_values_and_the_most_common_ones() {
        let distinct = ColumnStatistics { distinct: Some(50.0), ..Default::default() };
        close(share(distinct, &col("v").eq(lit(3_i64))), 0.02);
        let common = ColumnStatistics {
            distinct: Some(6.0),
            null_share: Some(0.1),
            common: vec![(ScalarValue::from(3_i64), 0.4)],
            ..Default::default()
        };
        close(share(common.clone(), &col("v").eq(lit(3_i64))), 0.4);
        close(share(common.clone(), &col("v").eq(lit(4_i64))), 0.1);
        close(share(common.clone(), &col("v").in_list(vec![lit(3_i64), lit(4_i64)], false)), 0.5);
        close(share(common.clone(), &col("v").is_null()), 0.1);
        close(share(common, &col("v").not_eq(lit(3_i64))), 0.6);
    }

    #[test]
    fn ranges_by_bounds_and_histograms() {
        let bounds = ColumnStatistics { min: Some(ScalarValue::from(0_i64)), max: Some(ScalarValue::from(100_i64)), ..Default::default() };
        close(share(bounds.clone(), &col("v").lt(lit(25_i64))), 0.25);
        close(share(bounds.clone(), &lit(25_i64).gt(col("v"))), 0.25);
        close(share(bounds.clone(), &col("v").gt(lit(25_i64))), 0.75);
        close(share(bounds.clone(), &col("v").between(lit(20_i64), lit(50_i64))), 0.3);
        close(share(bounds.clone(), &col("v").gt(lit(200_i64))), 0.0);
        assert!(share(bounds, &col("v").eq(lit(200_i64))) < 0.001);
        let histogram = ColumnStatistics { histogram: integers(&[0, 10, 20, 1000]), ..Default::default() };
        close(share(histogram.clone(), &col("v").lt(lit(15_i64))), 0.5);
        close(share(histogram.clone(), &col("v").lt(lit(0_i64))), 0.0);
        close(share(histogram, &col("v").lt_eq(lit(2000_i64))), 1.0);
    }

    #[test]
    fn further_conditions_count_less() {
        let distinct = ColumnStatistics { distinct: Some(100.0), ..Default::default() };
        let equal = |value: i64| col("v").eq(lit(value));
        close(share(distinct.clone(), &equal(1).and(equal(2))), 0.001);
        close(share(distinct, &equal(1).or(equal(2))), 0.0199);
    }
}
