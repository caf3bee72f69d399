//! OIDs of the built-in types and what the protocol wants to know about them.

use arrow::datatypes::{DataType, IntervalUnit};

pub(super) const BOOL: i32 = 16;
pub(super) const BYTEA: i32 = 17;
pub(super) const CHAR: i32 = 18;
pub(super) const NAME: i32 = 19;
pub(super) const INT8: i32 = 20;
pub(super) const INT2: i32 = 21;
pub(super) const INT4: i32 = 23;
pub(super) const TEXT: i32 = 25;
pub(super) const OID: i32 = 26;
pub(super) const JSON: i32 = 114;
pub(super) const FLOAT4: i32 = 700;
pub(super) const FLOAT8: i32 = 701;
pub(super) const BPCHAR: i32 = 1042;
pub(super) const VARCHAR: i32 = 1043;
pub(super) const DATE: i32 = 1082;
pub(super) const TIME: i32 = 1083;
pub(super) const TIMESTAMP: i32 = 1114;
pub(super) const TIMESTAMPTZ: i32 = 1184;
pub(super) const INTERVAL: i32 = 1186;
pub(super) const NUMERIC: i32 = 1700;
pub(super) const RECORD: i32 = 2249;
pub(super) const UUID: i32 = 2950;
pub(super) const JSONB: i32 = 3802;

/// (element, its array).
const ARRAYS: &[(i32, i32)] = &[
    (BOOL, 1000),
    (BYTEA, 1001),
    (CHAR, 1002),
    (NAME, 1003),
    (INT2, 1005),
    (INT4, 1007),
    (TEXT, 1009),
    (BPCHAR, 1014),
    (VARCHAR, 1015),
    (INT8, 1016),
    (FLOAT4, 1021),
    (FLOAT8, 1022),
    (OID, 1028),
    (TIMESTAMP, 1115),
    (DATE, 1182),
    (TIME, 1183),
    (TIMESTAMPTZ, 1185),
    (INTERVAL, 1187),
    (NUMERIC, 1231),
    (JSON, 199),
    (RECORD, 2287),
    (UUID, 2951),
    (JSONB, 3807),
];

/// Bytes of a value in storage, -1 when they vary (`pg_type.typlen`).
pub(super) fn type_length(oid: i32) -> i16 {
    match oid {
        BOOL | CHAR => 1,
        INT2 => 2,
        INT4 | OID | FLOAT4 | DATE => 4,
        // regproc to regdictionary are OIDs too.
        24 | 2202..=2206 | 3734 | 3769 | 4089 | 4096 | 4191 => 4,
        INT8 | FLOAT8 | TIME | TIMESTAMP | TIMESTAMPTZ => 8,
        INTERVAL | UUID => 16,
        NAME => 64,
        _ => -1,
    }
}

/// The element type of an array type.
pub(super) fn element_of(array: i32) -> Option<i32> {
    ARRAYS.iter().find(|(_, candidate)| *candidate == array).map(|(element, _)| *element)
}

/// The type that values of an Arrow type have when nothing more is known.
pub(super) fn oid_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Boolean => BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => INT2,
        DataType::UInt16 | DataType::Int32 => INT4,
        DataType::UInt32 | DataType::Int64 => INT8,
        DataType::Float16 | DataType::Float32 => FLOAT4,
        DataType::Float64 => FLOAT8,
        DataType::UInt64 | DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            NUMERIC
        }
        DataType::LargeUtf8 => JSONB,
        DataType::FixedSizeBinary(16) => UUID,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => BYTEA,
        DataType::Date32 | DataType::Date64 => DATE,
        DataType::Time32(_) | DataType::Time64(_) => TIME,
        DataType::Timestamp(_, None) => TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => TIMESTAMPTZ,
        DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano) | DataType::Duration(_) => {
            INTERVAL
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => array_of(oid_of(item.data_type())),
        DataType::Dictionary(_, value) => oid_of(value),
        DataType::Struct(_) => RECORD,
        _ => TEXT,
    }
}

/// The array type over an element type; an array of arrays is the same type with one dimension more.
fn array_of(element: i32) -> i32 {
    ARRAYS.iter().find(|(candidate, _)| *candidate == element).map_or(element, |(_, array)| *array)
}
