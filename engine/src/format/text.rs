//! Values -> text, one column at a time: Postgres' output forms, which the parsers of this module's neighbours read back.

use std::fmt::Write;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, FixedSizeBinaryArray,
        Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, LargeStringArray, ListArray,
        StringArray, StringViewArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    },
    datatypes::{DataType, IntervalUnit, TimeUnit},
};

use super::{jsonb, timestamp};
use crate::error::{EngineError, Result};

const INFALLIBLE: &str = "writing into a string does not fail";

/// A column whose values can be written as text.
pub enum TextColumn<'a> {
    /// boolean
    Boolean(&'a BooleanArray),
    /// smallint
    Int16(&'a Int16Array),
    /// integer
    Int32(&'a Int32Array),
    /// bigint
    Int64(&'a Int64Array),
    /// real
    Float32(&'a Float32Array),
    /// double precision
    Float64(&'a Float64Array),
    /// numeric
    Decimal128(&'a Decimal128Array),
    /// numeric with more digits; trailing zeros are left out if it stands for one without precision
    Decimal256(&'a Decimal256Array, bool),
    /// text
    TextView(&'a StringViewArray),
    /// text
    Text(&'a StringArray),
    /// jsonb
    Json(&'a LargeStringArray),
    /// bytea
    Bytes(&'a BinaryArray),
    /// uuid
    Uuid(&'a FixedSizeBinaryArray),
    /// date
    Date(&'a Date32Array),
    /// time
    Time(&'a Time64MicrosecondArray),
    /// timestamp, or timestamp with time zone
    Timestamp(&'a TimestampMicrosecondArray, bool),
    /// interval
    Interval(&'a IntervalMonthDayNanoArray),
    /// array
    List(&'a ListArray),
}

/// Numeric without precision is held with this many digits.
const UNCONSTRAINED_NUMERIC: DataType = DataType::Decimal256(76, 20);

impl<'a> TextColumn<'a> {
    /// The text form of `array`.
    ///
    /// # Errors
    /// 0A000 for a type that has none.
    pub fn new(array: &'a ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Boolean => Self::Boolean(array.as_boolean()),
            DataType::Int16 => Self::Int16(array.as_primitive()),
            DataType::Int32 => Self::Int32(array.as_primitive()),
            DataType::Int64 => Self::Int64(array.as_primitive()),
            DataType::Float32 => Self::Float32(array.as_primitive()),
            DataType::Float64 => Self::Float64(array.as_primitive()),
            DataType::Decimal128(..) => Self::Decimal128(array.as_primitive()),
            DataType::Decimal256(..) => Self::Decimal256(array.as_primitive(), *array.data_type() == UNCONSTRAINED_NUMERIC),
            DataType::Utf8View => Self::TextView(array.as_string_view()),
            DataType::Utf8 => Self::Text(array.as_string()),
            DataType::LargeUtf8 => Self::Json(array.as_string()),
            DataType::Binary => Self::Bytes(array.as_binary()),
            DataType::FixedSizeBinary(16) => Self::Uuid(array.as_fixed_size_binary()),
            DataType::Date32 => Self::Date(array.as_primitive()),
            DataType::Time64(TimeUnit::Microsecond) => Self::Time(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Self::Timestamp(array.as_primitive(), zone.is_some()),
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval(array.as_primitive()),
            DataType::List(_) => Self::List(array.as_list()),
            other => return Err(EngineError::user("0A000", format!("columns of type {other} cannot be written as text"))),
        })
    }

    fn array(&self) -> &'a dyn Array {
        match self {
            Self::Boolean(array) => *array,
            Self::Int16(array) => *array,
            Self::Int32(array) => *array,
            Self::Int64(array) => *array,
            Self::Float32(array) => *array,
            Self::Float64(array) => *array,
            Self::Decimal128(array) => *array,
            Self::Decimal256(array, _) => *array,
            Self::TextView(array) => *array,
            Self::Text(array) => *array,
            Self::Json(array) => *array,
            Self::Bytes(array) => *array,
            Self::Uuid(array) => *array,
            Self::Date(array) => *array,
            Self::Time(array) => *array,
            Self::Timestamp(array, _) => *array,
            Self::Interval(array) => *array,
            Self::List(array) => *array,
        }
    }

    /// Whether row `row` is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.array().is_null(row)
    }

    /// Appends the text of row `row`, which is not NULL.
    pub fn write(&self, row: usize, out: &mut String) {
        match self {
            Self::Boolean(array) => out.push_str(if array.value(row) { "true" } else { "false" }),
            Self::Int16(array) => write!(out, "{}", array.value(row)).expect(INFALLIBLE),
            Self::Int32(array) => write!(out, "{}", array.value(row)).expect(INFALLIBLE),
            Self::Int64(array) => write!(out, "{}", array.value(row)).expect(INFALLIBLE),
            Self::Float32(array) => write_float(out, f64::from(array.value(row)), &format!("{:?}", array.value(row))),
            Self::Float64(array) => write_float(out, array.value(row), &format!("{:?}", array.value(row))),
            Self::Decimal128(array) => out.push_str(&array.value_as_string(row)),
            Self::Decimal256(array, trimmed) => {
                let text = array.value_as_string(row);
                out.push_str(if *trimmed && text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text });
            }
            Self::TextView(array) => out.push_str(array.value(row)),
            Self::Text(array) => out.push_str(array.value(row)),
            Self::Json(array) => out.push_str(array.value(row)),
            Self::Bytes(array) => {
                out.push_str("\\x");
                array.value(row).iter().for_each(|byte| write!(out, "{byte:02x}").expect(INFALLIBLE));
            }
            Self::Uuid(array) => {
                for (place, byte) in array.value(row).iter().enumerate() {
                    out.push_str(if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" });
                    write!(out, "{byte:02x}").expect(INFALLIBLE);
                }
            }
            Self::Date(array) => timestamp::write_date(out, i64::from(array.value(row))),
            Self::Time(array) => timestamp::write_time(out, array.value(row)),
            Self::Timestamp(array, zoned) => timestamp::write_timestamp(out, array.value(row), *zoned),
            Self::Interval(array) => write_interval(out, array.value(row)),
            Self::List(array) => write_list(&array.value(row), out),
        }
    }

    /// Appends row `row` as a JSON value, `null` for NULL.
    pub fn write_json(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            out.push_str("null");
            return;
        }
        match self {
            Self::Boolean(_)
            | Self::Int16(_)
            | Self::Int32(_)
            | Self::Int64(_)
            | Self::Decimal128(_)
            | Self::Decimal256(..)
            | Self::Json(_) => {
                self.write(row, out);
            }
            Self::Float32(array) if array.value(row).is_finite() => self.write(row, out),
            Self::Float64(array) if array.value(row).is_finite() => self.write(row, out),
            Self::List(array) => {
                let values = array.value(row);
                // Elements have the type of a column, or the list could not have been built.
                let Ok(elements) = TextColumn::new(&values) else { return out.push_str("null") };
                out.push('[');
                for element in 0..values.len() {
                    out.push_str(if element > 0 { "," } else { "" });
                    elements.write_json(element, out);
                }
                out.push(']');
            }
            _ => {
                let mut text = String::new();
                self.write(row, &mut text);
                let mut quoted = Vec::with_capacity(text.len() + 2);
                jsonb::write_string(text.as_bytes(), &mut quoted);
                out.push_str(&String::from_utf8_lossy(&quoted));
            }
        }
    }
}

/// `shortest` is the shortest text that gives the same number; Postgres prints no `.0` and spells infinity out.
fn write_float(out: &mut String, value: f64, shortest: &str) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        out.push_str(shortest.strip_suffix(".0").unwrap_or(shortest));
    }
}

fn write_interval(out: &mut String, value: arrow::datatypes::IntervalMonthDayNano) {
    let start = out.len();
    let (years, months) = (value.months / 12, value.months % 12);
    for (amount, unit) in [(years, "year"), (months, "mon"), (value.days, "day")] {
        if amount != 0 {
            let blank = if out.len() > start { " " } else { "" };
            let plural = if amount == 1 { "" } else { "s" };
            write!(out, "{blank}{amount} {unit}{plural}").expect(INFALLIBLE);
        }
    }
    let micros = value.nanoseconds / 1000;
    if micros != 0 || out.len() == start {
        out.push_str(if out.len() > start { " " } else { "" });
        out.push_str(if micros < 0 { "-" } else { "" });
        timestamp::write_time(out, micros.saturating_abs());
    }
}

/// `{1,NULL,"a b"}`: an element is quoted if it would not be read back as it is otherwise.
fn write_list(values: &ArrayRef, out: &mut String) {
    let Ok(elements) = TextColumn::new(values) else { return out.push_str("{}") };
    out.push('{');
    let mut text = String::new();
    for element in 0..values.len() {
        out.push_str(if element > 0 { "," } else { "" });
        if elements.is_null(element) {
            out.push_str("NULL");
            continue;
        }
        text.clear();
        elements.write(element, &mut text);
        let special = |character: char| matches!(character, ',' | '{' | '}' | '"' | '\\') || character.is_whitespace();
        if text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special) {
            out.push('"');
            for character in text.chars() {
                out.push_str(if matches!(character, '"' | '\\') { "\\" } else { "" });
                out.push(character);
            }
            out.push('"');
        } else {
            out.push_str(&text);
        }
    }
    out.push('}');
}
