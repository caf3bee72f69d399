//! Building the rows of a system relation.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions,
        StringViewArray, TimestampMicrosecondArray, new_null_array,
    },
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use datafusion::scalar::ScalarValue;
use millpond_planner::types::{SQL_TYPE_METADATA, SqlType};

use crate::error::{Result, SqlError};

/// A value of a system relation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// NULL
    Null,
    /// A boolean.
    Bool(bool),
    /// Any integer or oid.
    Int(i64),
    /// A float.
    Float(f64),
    /// Any text.
    Text(String),
    /// A timestamptz, microseconds since 1970.
    Time(i64),
    /// An array of integers.
    Ints(Vec<i64>),
    /// An array of texts.
    Texts(Vec<String>),
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i16> for Cell {
    fn from(value: i16) -> Self {
        Self::Int(value.into())
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::from(value as u64)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row: the columns that are not NULL.
pub(crate) type Row = Vec<(&'static str, Cell)>;

/// The schema that a list `name type, name type, ...` describes. The SQL type is kept where Arrow's says less.
pub(crate) fn schema(columns: &str) -> SchemaRef {
    let fields = columns.split(',').map(|column| {
        let (name, type_name) = column.trim().split_once(' ').expect("a system column has a name and a type");
        let (sql_type, _) = SqlType::of_system_column(type_name.trim()).expect("a system column has a known type");
        let metadata = HashMap::from([(SQL_TYPE_METADATA.to_owned(), type_name.trim().to_owned())]);
        Field::new(name, sql_type.arrow(), true).with_metadata(metadata)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The rows as a batch; columns that a row does not name are NULL.
pub(crate) fn batch(schema: &SchemaRef, rows: &[Row]) -> Result<RecordBatch> {
    let mut cells = vec![vec![&Cell::Null; rows.len()]; schema.fields().len()];
    for (number, row) in rows.iter().enumerate() {
        for (name, cell) in row {
            let column = schema.index_of(name).map_err(|_| SqlError::internal(format!("a system relation has no column {name}")))?;
            cells[column][number] = cell;
        }
    }
    let columns = schema.fields().iter().zip(&cells).map(|(field, cells)| column(field.data_type(), cells)).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

fn column(data_type: &DataType, cells: &[&Cell]) -> Result<ArrayRef> {
    let int = |cell: &&Cell| match cell {
        Cell::Int(value) | Cell::Time(value) => Some(*value),
        _ => None,
    };
    let float = |cell: &&Cell| match cell {
        Cell::Float(value) => Some(*value),
        Cell::Int(value) => Some(*value as f64),
        _ => None,
    };
    Ok(match data_type {
        DataType::Boolean => {
            Arc::new(cells.iter().map(|cell| if let Cell::Bool(value) = cell { Some(*value) } else { None }).collect::<BooleanArray>())
        }
        DataType::Int16 => Arc::new(cells.iter().map(|cell| int(cell).map(|value| value as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(cells.iter().map(|cell| int(cell).map(|value| value as i32)).collect::<Int32Array>()),
        DataType::Int64 => Arc::new(cells.iter().map(int).collect::<Int64Array>()),
        DataType::Float32 => Arc::new(cells.iter().map(|cell| float(cell).map(|value| value as f32)).collect::<Float32Array>()),
        DataType::Float64 => Arc::new(cells.iter().map(float).collect::<Float64Array>()),
        DataType::Utf8View => {
            let text = |cell: &&Cell| if let Cell::Text(value) = cell { Some(value.clone()) } else { None };
            Arc::new(cells.iter().map(text).collect::<StringViewArray>())
        }
        DataType::Timestamp(_, zone) => {
            Arc::new(cells.iter().map(int).collect::<TimestampMicrosecondArray>().with_timezone_opt(zone.clone()))
        }
        DataType::List(item) => lists(data_type, item, cells)?,
        other => new_null_array(other, cells.len()),
    })
}

fn lists(data_type: &DataType, item: &Arc<Field>, cells: &[&Cell]) -> Result<ArrayRef> {
    if cells.is_empty() {
        return Ok(new_null_array(data_type, 0));
    }
    let element = |value: ScalarValue| value.cast_to(item.data_type());
    let mut values = Vec::with_capacity(cells.len());
    for cell in cells {
        let elements: Vec<ScalarValue> = match cell {
            Cell::Ints(list) => list.iter().map(|value| element(ScalarValue::Int64(Some(*value)))).collect::<Result<_, _>>()?,
            Cell::Texts(list) => list.iter().map(|value| element(ScalarValue::Utf8View(Some(value.clone())))).collect::<Result<_, _>>()?,
            _ => {
                values.push(ScalarValue::try_from(data_type)?);
                continue;
            }
        };
        values.push(ScalarValue::List(ScalarValue::new_list(&elements, item.data_type(), true)));
    }
    Ok(ScalarValue::iter_to_array(values)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};

    use super::*;

    #[test]
    fn rows_become_columns() {
        let schema = schema("oid oid, relname name, ok boolean, keys int2[], tags text[], at timestamptz");
        assert_eq!(schema.field(0).metadata()[SQL_TYPE_METADATA], "oid");
        let first = vec![
            ("oid", 7.into()),
            ("relname", "t".into()),
            ("ok", true.into()),
            ("keys", Cell::Ints(vec![1, 2])),
            ("tags", Cell::Texts(vec!["x".into()])),
            ("at", Cell::Time(5)),
        ];
        let rows = batch(&schema, &[first, Vec::new()]).unwrap();
        assert_eq!(rows.num_rows(), 2);
        assert_eq!(rows.column(1).as_string_view().value(0), "t");
        assert_eq!(rows.column(3).as_list::<i32>().value(0).len(), 2);
        assert!(rows.column(3).is_null(1) && rows.column(5).is_null(1));
    }
}
