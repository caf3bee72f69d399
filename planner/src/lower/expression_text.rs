//! How EXPLAIN writes expressions: SQL-like, strings in quotes, casts shown. Never parsed again.

use arrow::{datatypes::DataType, util::display::array_value_to_string};
use datafusion::{
    common::{
        Column, ScalarValue,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::Expr,
};

/// The text of an expression. What DataFusion would show in its own notation is replaced, from the leaves up, by a column of that name.
pub(super) fn text(expression: &Expr) -> String {
    let written = expression.clone().transform_up(|inner| {
        let text = match &inner {
            Expr::Literal(value, _) => literal(value),
            Expr::Cast(cast) => format!("CAST({} AS {})", cast.expr.human_display(), type_name(cast.field.data_type())),
            // Arithmetic that checks for overflow is a function that shows itself as an operator.
            Expr::ScalarFunction(call) => call.func.schema_name(&call.args)?,
            _ => return Ok(Transformed::no(inner)),
        };
        Ok(Transformed::yes(Expr::Column(Column::new_unqualified(text))))
    });
    match written {
        Ok(written) => written.data.human_display().to_string(),
        Err(_) => expression.human_display().to_string(),
    }
}

/// A constant as SQL has it.
pub(super) fn literal(value: &ScalarValue) -> String {
    if value.is_null() {
        return "NULL".to_owned();
    }
    if let Some(Some(text)) = value.try_as_str() {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let shown = value.to_array().ok().and_then(|array| array_value_to_string(&array, 0).ok());
    match (value.data_type(), shown) {
        (DataType::Interval(_), Some(shown)) => format!("INTERVAL '{}'", interval(&shown)),
        (data_type @ (DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..)), Some(shown)) => {
            format!("{} '{}'", type_name(&data_type), shown.replace('T', " "))
        }
        (_, Some(shown)) => shown,
        (_, None) => value.to_string(),
    }
}

/// Arrow writes `10.000000000 secs`.
fn interval(shown: &str) -> String {
    let words = shown.split(' ').map(|word| match word.split_once('.') {
        Some((whole, fraction)) if fraction.chars().all(|digit| digit == '0') => whole,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A type as SQL has it.
pub(super) fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int16 => "smallint".to_owned(),
        DataType::Int32 => "int".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Utf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Time64(_) => "time".to_owned(),
        DataType::Timestamp(_, None) => "timestamp".to_owned(),
        DataType::Timestamp(_, Some(_)) => "timestamptz".to_owned(),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::Interval(_) => "interval".to_owned(),
        other => other.to_string(),
    }
}
