//! The text form of every SQL type, exactly as PostgreSQL 15 prints and reads it.
//!
//! One place serves casts, the wire protocol, COPY and text-like formats, so that a value looks the same wherever it is shown and is
//! refused with the same words wherever it is read. Nothing here knows SQL syntax, sockets or clocks.
//!
//! | SQL type | Arrow type | notes |
//! |---|---|---|
//! | numeric(p,s) | Decimal128/256(p,s) | printed with s digits after the point |
//! | numeric | Decimal256(76,20) | printed without trailing zeros |
//! | jsonb | LargeUtf8 | the stored text is the normalised form; [`normalize_json`] makes it, writing copies it |
//! | date | Date32 | `i32::MAX` and `i32::MIN` are infinity and -infinity |
//! | timestamp, timestamptz | Timestamp(us) | `i64::MAX` and `i64::MIN` are infinity and -infinity |
//! | time | Time64(us) | 24:00:00 is 86,400,000,000 |
//! | interval | Interval(MonthDayNano) | nanoseconds are cut to microseconds on output |
//! | uuid | FixedSizeBinary(16) | |
//!
//! Entry points by shape: [`write_text`] and [`parse_text`] for one value, [`format_array`] and [`parse_text_array`] for a column.

mod array;
mod binary;
mod calendar;
mod column;
mod date_fields;
mod date_parse;
mod date_tokens;
mod date_write;
mod float;
mod integer;
mod interval_parse;
mod interval_write;
mod json;
mod json_lexer;
mod numeric;
mod parse;
mod settings;
mod write;
mod zone;
mod zone_abbreviations;

pub use array::{ArrayLiteral, split_array_literal};
pub use binary::{parse_bytea, parse_uuid, write_bytea, write_uuid};
pub use calendar::{
    DATE_INFINITY, DATE_NEGATIVE_INFINITY, MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_INFINITY, TIMESTAMP_NEGATIVE_INFINITY,
    civil_from_days, days_from_civil, days_in_month, is_date,
};
pub use column::{format_array, parse_text_array};
pub use date_parse::{parse_date, parse_time, parse_timestamp, parse_timestamptz};
pub use date_write::{write_date, write_time, write_timestamp, write_timestamptz};
pub use float::{parse_float4, parse_float8, write_float4, write_float8};
pub use integer::{parse_bool, parse_int2, parse_int4, parse_int8, write_bool, write_integer};
pub use interval_parse::{IntervalUnit, parse_interval, parse_interval_with_unit};
pub use interval_write::write_interval;
pub use json::{normalize_json, write_json_string};
pub use numeric::{parse_decimal128, parse_decimal256, write_decimal128, write_decimal256};
pub use parse::parse_text;
pub use settings::{ByteaOutput, DateOrder, DateStyle, IntervalStyle, TextError, TextSettings, sql_type_name};
pub use write::write_text;
pub use zone::Zone;

#[cfg(test)]
mod tests;
