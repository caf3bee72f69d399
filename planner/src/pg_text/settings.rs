//! What a session may choose about text forms, and the error of a text that is not a value.

use arrow::datatypes::{DataType, IntervalUnit as ArrowIntervalUnit};
use thiserror::Error;

use super::zone::Zone;

/// `DateStyle`: the look of dates and timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateStyle {
    /// 1997-12-17 07:37:16-08
    Iso,
    /// 12/17/1997 07:37:16.00 PST
    Sql,
    /// Wed Dec 17 07:37:16 1997 PST
    Postgres,
    /// 17.12.1997 07:37:16.00 PST
    German,
}

/// `DateStyle`: how 01/02/03 is read, and the order of day and month in the styles that are not ISO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// Year, month, day.
    Ymd,
    /// Day, month, year.
    Dmy,
    /// Month, day, year.
    Mdy,
}

/// `IntervalStyle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalStyle {
    /// 1 year 2 mons 3 days 04:05:06
    Postgres,
    /// @ 1 year 2 mons 3 days 4 hours 5 mins 6 secs
    PostgresVerbose,
    /// +1-2 +3 +4:05:06
    SqlStandard,
    /// P1Y2M3DT4H5M6S
    Iso8601,
}

/// `bytea_output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteaOutput {
    /// \x6b6579
    Hex,
    /// key\000
    Escape,
}

/// The session's choices.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSettings {
    /// `TimeZone`.
    pub time_zone: Zone,
    /// First half of `DateStyle`.
    pub date_style: DateStyle,
    /// Second half of `DateStyle`.
    pub date_order: DateOrder,
    /// `IntervalStyle`.
    pub interval_style: IntervalStyle,
    /// `bytea_output`.
    pub bytea_output: ByteaOutput,
    /// `extra_float_digits`, -15 to 3; above 0 means shortest exact digits.
    pub extra_float_digits: i32,
    /// The transaction's time in microseconds since 1970, for `'now'` and `'today'`; without it these words are refused.
    pub now_us: Option<i64>,
}

impl Default for TextSettings {
    /// What a session has before it sets anything.
    fn default() -> Self {
        Self {
            time_zone: Zone::utc(),
            date_style: DateStyle::Iso,
            date_order: DateOrder::Mdy,
            interval_style: IntervalStyle::Postgres,
            bytea_output: ByteaOutput::Hex,
            extra_float_digits: 1,
            now_us: None,
        }
    }
}

/// A text is not a value of the type, or the value does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TextError {
    /// Five characters: 22P02, 22003, 22007, 22008, ...
    pub sqlstate: &'static str,
    /// Postgres' words.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl TextError {
    /// An error without detail and hint.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None }
    }

    pub(super) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// 22P02, the error of most types.
    pub(super) fn invalid(type_name: &str, text: &str) -> Self {
        Self::new("22P02", format!("invalid input syntax for type {type_name}: \"{text}\""))
    }

    /// 22003, a number that its type cannot hold.
    pub(super) fn out_of_range(type_name: &str, text: &str) -> Self {
        Self::new("22003", format!("value \"{text}\" is out of range for type {type_name}"))
    }
}

/// The SQL name of an Arrow type as error messages and `format_type` show it.
pub fn sql_type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => "smallint".into(),
        DataType::UInt16 | DataType::Int32 => "integer".into(),
        DataType::UInt32 | DataType::Int64 => "bigint".into(),
        DataType::UInt64 | DataType::Decimal32(..) | DataType::Decimal64(..) => "numeric".into(),
        DataType::Decimal128(..) | DataType::Decimal256(..) => "numeric".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::LargeUtf8 => "jsonb".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea".into(),
        DataType::FixedSizeBinary(16) => "uuid".into(),
        DataType::FixedSizeBinary(_) => "bytea".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(ArrowIntervalUnit::YearMonth | ArrowIntervalUnit::DayTime | ArrowIntervalUnit::MonthDayNano) => {
            "interval".into()
        }
        DataType::Duration(_) => "interval".into(),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::ListView(item) => {
            let inner = sql_type_name(item.data_type());
            // Postgres has one array type for all numbers of dimensions.
            if inner.ends_with("[]") { inner } else { format!("{inner}[]") }
        }
        DataType::Dictionary(_, value) => sql_type_name(value),
        DataType::Struct(_) => "record".into(),
        _ => "text".into(),
    }
}
