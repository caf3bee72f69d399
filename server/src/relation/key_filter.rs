//! Which part of a keyed relation a filter confines a scan to: equality on leading key columns, then at most one range.

use std::ops::Bound;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::{
    common::Column,
    logical_expr::{BinaryExpr, Expr, Operator, expr::InList},
    scalar::ScalarValue,
};
use millpond_storage::encoding::key::KeyCodec;

use crate::error::{Result, SqlError};

/// A range of encoded keys.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Most keys an `IN` list is turned into.
const POINTS_LIMIT: usize = 1_000;

/// What the conditions on one column leave of its values.
#[derive(Clone, Debug, Default)]
struct ColumnCondition {
    equal: Option<ScalarValue>,
    low: Option<(ScalarValue, bool)>,
    high: Option<(ScalarValue, bool)>,
    /// No value satisfies them.
    contradiction: bool,
}

/// The part of a relation that a scan must look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPart {
    /// All of it.
    Everything,
    /// These keys of the whole primary key, and no others.
    Points(Vec<Vec<u8>>),
    /// Keys in this range.
    Range(KeyRange),
    /// Nothing.
    Nothing,
}

/// Whether a filter says something about a key column that `key_part` understands.
pub(crate) fn is_key_condition(filter: &Expr, schema: &SchemaRef, key: &[usize]) -> bool {
    comparisons(filter).is_some_and(|parts| {
        parts.iter().any(|part| key.iter().any(|column| schema.field(*column).name() == &part.column.name))
            && parts.iter().all(|part| literal_fits(schema, part))
    }) || in_list(filter, schema, key).is_some()
}

/// The part of the relation that satisfies all filters' key conditions; other filters are ignored, so that rows of the part may still
/// fail them.
pub(crate) fn key_part(filters: &[Expr], schema: &SchemaRef, key: &[usize]) -> Result<KeyPart> {
    if key.is_empty() {
        return Ok(KeyPart::Everything);
    }
    if let [column] = key
        && let Some(values) = filters.iter().find_map(|filter| in_list(filter, schema, key))
    {
        let codec = codec(schema, &[*column])?;
        let array = ScalarValue::iter_to_array(values)?;
        let rows = codec.encode(&[array])?;
        let mut points: Vec<Vec<u8>> = rows.iter().map(<[u8]>::to_vec).collect();
        points.sort();
        points.dedup();
        return Ok(KeyPart::Points(points));
    }
    let mut equal = Vec::new();
    for (position, column) in key.iter().enumerate() {
        let condition = condition(filters, schema, *column);
        if condition.contradiction {
            return Ok(KeyPart::Nothing);
        }
        match condition.equal {
            Some(value) => equal.push(value),
            None => return range(schema, &key[..=position], &equal, &condition),
        }
    }
    Ok(KeyPart::Points(vec![encode(schema, key, &equal)?]))
}

struct Comparison<'a> {
    column: &'a Column,
    operator: Operator,
    value: &'a ScalarValue,
}

/// The comparisons of a column with a constant that a filter is the conjunction of.
fn comparisons(filter: &Expr) -> Option<Vec<Comparison<'_>>> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut parts = comparisons(left)?;
            parts.extend(comparisons(right)?);
            Some(parts)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let known = matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq);
            match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(value, _)) if known => Some(vec![Comparison { column, operator: *op, value }]),
                (Expr::Literal(value, _), Expr::Column(column)) if known => Some(vec![Comparison { column, operator: op.swap()?, value }]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A constant says something about keys only in the column's own type, and never when NULL (the comparison is then never true, which the
/// filter itself finds out).
fn literal_fits(schema: &SchemaRef, comparison: &Comparison<'_>) -> bool {
    schema
        .field_with_name(&comparison.column.name)
        .is_ok_and(|field| !comparison.value.is_null() && same_encoding(field.data_type(), &comparison.value.data_type()))
}

fn same_encoding(column: &DataType, literal: &DataType) -> bool {
    column == literal || (is_text(column) && is_text(literal))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::Utf8View)
}

fn in_list(filter: &Expr, schema: &SchemaRef, key: &[usize]) -> Option<Vec<ScalarValue>> {
    let ([column], Expr::InList(InList { expr, list, negated: false })) = (key, filter) else { return None };
    let field = schema.field(*column);
    if !matches!(&**expr, Expr::Column(named) if &named.name == field.name()) || list.len() > POINTS_LIMIT {
        return None;
    }
    let values = list.iter().map(|item| match item {
        Expr::Literal(value, _) if !value.is_null() && same_encoding(field.data_type(), &value.data_type()) => {
            value.cast_to(field.data_type()).ok()
        }
        _ => None,
    });
    values.collect()
}

fn condition(filters: &[Expr], schema: &SchemaRef, column: usize) -> ColumnCondition {
    let name = schema.field(column).name();
    let mut condition = ColumnCondition::default();
    for part in filters.iter().filter_map(comparisons).flatten() {
        if &part.column.name != name || !literal_fits(schema, &part) {
            continue;
        }
        let Ok(value) = part.value.cast_to(schema.field(column).data_type()) else { continue };
        match part.operator {
            Operator::Eq => match &condition.equal {
                Some(other) if *other != value => condition.contradiction = true,
                _ => condition.equal = Some(value),
            },
            Operator::Gt => tighten(&mut condition.low, value, false, true),
            Operator::GtEq => tighten(&mut condition.low, value, true, true),
            Operator::Lt => tighten(&mut condition.high, value, false, false),
            Operator::LtEq => tighten(&mut condition.high, value, true, false),
            _ => {}
        }
    }
    condition
}

fn tighten(bound: &mut Option<(ScalarValue, bool)>, value: ScalarValue, inclusive: bool, is_low: bool) {
    let tighter = match bound {
        None => true,
        Some((old, old_inclusive)) => match value.partial_cmp(old) {
            Some(std::cmp::Ordering::Equal) => *old_inclusive && !inclusive,
            Some(order) => (order == std::cmp::Ordering::Greater) == is_low,
            None => false,
        },
    };
    if tighter {
        *bound = Some((value, inclusive));
    }
}

/// Keys that begin with `equal` and whose next column is within the bounds. `columns` are the key columns up to and with that one.
fn range(schema: &SchemaRef, columns: &[usize], equal: &[ScalarValue], condition: &ColumnCondition) -> Result<KeyPart> {
    let with = |value: &ScalarValue| {
        let mut values = equal.to_vec();
        values.push(value.clone());
        encode(schema, columns, &values)
    };
    let prefix = if equal.is_empty() { None } else { Some(encode(schema, &columns[..equal.len()], equal)?) };
    let low = match (&condition.low, &prefix) {
        (Some((value, true)), _) => Bound::Included(with(value)?),
        (Some((value, false)), _) => match successor(with(value)?) {
            Some(key) => Bound::Included(key),
            None => return Ok(KeyPart::Nothing),
        },
        (None, Some(prefix)) => Bound::Included(prefix.clone()),
        (None, None) => Bound::Unbounded,
    };
    let high = match (&condition.high, prefix) {
        (Some((value, false)), _) => Bound::Excluded(with(value)?),
        (Some((value, true)), _) => successor(with(value)?).map_or(Bound::Unbounded, Bound::Excluded),
        (None, Some(prefix)) => successor(prefix).map_or(Bound::Unbounded, Bound::Excluded),
        (None, None) => Bound::Unbounded,
    };
    if let (Bound::Included(low), Bound::Excluded(high)) = (&low, &high)
        && low >= high
    {
        return Ok(KeyPart::Nothing);
    }
    Ok(if (&low, &high) == (&Bound::Unbounded, &Bound::Unbounded) { KeyPart::Everything } else { KeyPart::Range((low, high)) })
}

fn codec(schema: &SchemaRef, columns: &[usize]) -> Result<KeyCodec> {
    let types: Vec<DataType> = columns.iter().map(|column| schema.field(*column).data_type().clone()).collect();
    Ok(KeyCodec::ascending(&types)?)
}

fn encode(schema: &SchemaRef, columns: &[usize], values: &[ScalarValue]) -> Result<Vec<u8>> {
    let columns = &columns[..values.len()];
    let mut arrays = Vec::with_capacity(values.len());
    for (column, value) in columns.iter().zip(values) {
        arrays.push(value.cast_to(schema.field(*column).data_type())?.to_array()?);
    }
    let rows = codec(schema, columns)?.encode(&arrays)?;
    rows.iter().next().map(<[u8]>::to_vec).ok_or_else(|| SqlError::internal("a key has no encoding"))
}

/// The smallest byte string above every string that begins with `key`.
pub(crate) fn successor(mut key: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = key.pop() {
        if last < u8::MAX {
            key.push(last + 1);
            return Some(key);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", DataType::Utf8View, false),
            Field::new("c", DataType::Int32, true),
        ]))
    }

    fn key(a: i32, b: Option<&str>) -> Vec<u8> {
        let mut values = vec![ScalarValue::Int32(Some(a))];
        values.extend(b.map(|b| ScalarValue::Utf8View(Some(b.to_owned()))));
        encode(&schema(), &[0, 1], &values).unwrap()
    }

    #[test]
    fn a_whole_key_is_a_point() {
        let filters = [col("a").eq(lit(7)), lit("x").eq(col("b")), col("c").gt(lit(1))];
        assert_eq!(key_part(&filters, &schema(), &[0, 1]).unwrap(), KeyPart::Points(vec![key(7, Some("x"))]));
    }

    #[test]
    fn a_prefix_is_a_range() {
        let part = key_part(&[col("a").eq(lit(7))], &schema(), &[0, 1]).unwrap();
        let KeyPart::Range((Bound::Included(low), Bound::Excluded(high))) = part else { panic!("{part:?}") };
        assert!(low <= key(7, Some("")) && key(7, Some("zzz")) < high && high <= key(8, None));
    }

    #[test]
    fn bounds_are_tight_and_contradictions_empty() {
        let part = key_part(&[col("a").gt(lit(3)).and(col("a").lt_eq(lit(5))), col("a").gt_eq(lit(2))], &schema(), &[0, 1]).unwrap();
        let KeyPart::Range((Bound::Included(low), Bound::Excluded(high))) = part else { panic!("{part:?}") };
        assert!(key(3, Some("~~~")) < low && low <= key(4, Some("")));
        assert!(key(5, Some("~~~")) < high && high <= key(6, Some("")));
        assert_eq!(key_part(&[col("a").eq(lit(1)), col("a").eq(lit(2))], &schema(), &[0]).unwrap(), KeyPart::Nothing);
        assert_eq!(key_part(&[col("a").gt(lit(5)), col("a").lt(lit(5))], &schema(), &[0]).unwrap(), KeyPart::Nothing);
    }

    #[test]
    fn other_types_and_columns_confine_nothing() {
        assert_eq!(key_part(&[col("a").eq(lit(7i64))], &schema(), &[0]).unwrap(), KeyPart::Everything);
        assert_eq!(key_part(&[col("c").eq(lit(7))], &schema(), &[0]).unwrap(), KeyPart::Everything);
        assert!(!is_key_condition(&col("c").eq(lit(7)), &schema(), &[0]));
        assert!(is_key_condition(&col("a").in_list(vec![lit(1), lit(2)], false), &schema(), &[0]));
        let part = key_part(&[col("a").in_list(vec![lit(2), lit(1), lit(2)], false)], &schema(), &[0]).unwrap();
        assert_eq!(part, KeyPart::Points(vec![key(1, None), key(2, None)]));
    }
}
