//! SQL types: what Postgres knows of a value that Arrow does not (text or varchar, json or jsonb, oid), and how each is held in Arrow.
//!
//! A [`SqlType`] fixes the Arrow type of a value ([`SqlType::arrow`]). Declared modifiers (`varchar(4)`, `numeric(5,2)`) are kept beside it,
//! as Postgres' *typmod*: see [`modifier`].

pub mod coercion;
pub mod decimal;
pub mod modifier;
pub mod name;
pub mod oid;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

/// Digits of the widest decimal.
pub const NUMERIC_MAX_PRECISION: u8 = 76;
/// Fraction digits of `numeric` without a declared precision.
pub const NUMERIC_FREE_SCALE: i8 = 20;
/// Field metadata that names the SQL type where the Arrow type alone would say something else (system relations).
pub const SQL_TYPE_METADATA: &str = "sql_type";

/// The type of a value or column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SqlType {
    /// `boolean`
    Boolean,
    /// `smallint`
    SmallInt,
    /// `integer`
    Integer,
    /// `bigint`
    BigInt,
    /// `real`
    Real,
    /// `double precision`
    Double,
    /// `numeric` with this many digits, of which so many after the point. [`SqlType::NUMERIC`] is the one without a declared precision.
    Numeric(u8, i8),
    /// `text`
    Text,
    /// `character varying`
    Varchar,
    /// `character`, padded with blanks
    Char,
    /// `name`, of system relations
    Name,
    /// `"char"`, of system relations
    InternalChar,
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time without time zone`
    Time,
    /// `timestamp without time zone`
    Timestamp,
    /// `timestamp with time zone`
    TimestampTz,
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// `json`: text as it was given
    Json,
    /// `jsonb`: normalised
    Jsonb,
    /// `oid`
    Oid,
    /// `regclass`, a relation's oid that is shown as its name
    RegClass,
    /// `regtype`
    RegType,
    /// `regproc`
    RegProc,
    /// `regoper`, `regoperator`
    RegOperator,
    /// `regnamespace`
    RegNamespace,
    /// An array of any number of dimensions that is held as a list of this.
    Array(Box<SqlType>),
    /// A row of these; only inside of expressions.
    Record(Vec<SqlType>),
    /// Nothing
    Void,
    /// A string literal, NULL or parameter whose place has not told its type yet.
    Unknown,
}

impl SqlType {
    /// `numeric` without a declared precision.
    pub const NUMERIC: Self = Self::Numeric(NUMERIC_MAX_PRECISION, NUMERIC_FREE_SCALE);

    /// An array of `element`.
    pub fn array(element: Self) -> Self {
        Self::Array(Box::new(element))
    }

    /// The Arrow type that holds it.
    pub fn arrow(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::SmallInt => DataType::Int16,
            Self::Integer | Self::Oid | Self::RegClass | Self::RegType | Self::RegProc | Self::RegOperator | Self::RegNamespace => {
                DataType::Int32
            }
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Numeric(precision, scale) if *precision <= 38 => DataType::Decimal128(*precision, *scale),
            Self::Numeric(precision, scale) => DataType::Decimal256(*precision, *scale),
            Self::Text | Self::Varchar | Self::Char | Self::Name | Self::InternalChar => DataType::Utf8View,
            Self::Json | Self::Jsonb => DataType::LargeUtf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::Array(element) => DataType::List(Arc::new(Field::new("item", element.arrow(), true))),
            Self::Record(fields) => DataType::Struct(
                fields.iter().enumerate().map(|(index, field)| Field::new(format!("f{}", index + 1), field.arrow(), true)).collect(),
            ),
            Self::Void | Self::Unknown => DataType::Null,
        }
    }

    /// The SQL type of a column that a system relation or a DataFusion function declares by an Arrow type; `None` for types that SQL has not.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => Self::SmallInt,
            DataType::Int32 | DataType::UInt16 => Self::Integer,
            DataType::Int64 | DataType::UInt32 | DataType::Duration(_) => Self::BigInt,
            DataType::UInt64 => Self::Numeric(20, 0),
            DataType::Float16 | DataType::Float32 => Self::Real,
            DataType::Float64 => Self::Double,
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => Self::Numeric(*precision, *scale),
            DataType::Utf8 | DataType::Utf8View => Self::Text,
            DataType::LargeUtf8 => Self::Jsonb,
            DataType::Binary | DataType::BinaryView | DataType::LargeBinary => Self::Bytea,
            DataType::FixedSizeBinary(16) => Self::Uuid,
            DataType::FixedSizeBinary(_) => Self::Bytea,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::TimestampTz,
            DataType::Interval(_) => Self::Interval,
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::ListView(field)
            | DataType::LargeListView(field)
            | DataType::FixedSizeList(field, _) => Self::array(Self::from_arrow(field.data_type())?),
            DataType::Dictionary(_, value) => Self::from_arrow(value)?,
            DataType::RunEndEncoded(_, value) => Self::from_arrow(value.data_type())?,
            DataType::Struct(fields) => {
                Self::Record(fields.iter().map(|field| Self::from_arrow(field.data_type())).collect::<Option<_>>()?)
            }
            DataType::Null => Self::Unknown,
            DataType::Union(..) | DataType::Map(..) => return None,
        })
    }

    /// The SQL type of a field, by its metadata or else its Arrow type.
    pub fn from_field(field: &Field) -> Option<Self> {
        let declared = field.metadata().get(SQL_TYPE_METADATA).and_then(|name| Self::of_system_column(name));
        match declared {
            Some((sql_type, _)) => Some(sql_type),
            None => Self::from_arrow(field.data_type()),
        }
    }

    /// The typmod of a field of a system relation.
    pub fn modifier_of_field(field: &Field) -> i32 {
        let declared = field.metadata().get(SQL_TYPE_METADATA).and_then(|name| Self::of_system_column(name));
        declared.map_or(modifier::NONE, |(_, modifier)| modifier)
    }

    /// The type and typmod of a column of a system relation, as it declares them.
    pub fn of_system_column(declared: &str) -> Option<(Self, i32)> {
        match declared {
            "int2vector" => Some((Self::array(Self::SmallInt), modifier::VECTOR)),
            "oidvector" => Some((Self::array(Self::Oid), modifier::VECTOR)),
            other => name::parse_type_name(other).ok(),
        }
    }

    /// Whether both are the same type but for digits of a numeric.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Numeric(..), Self::Numeric(..)) => true,
            (Self::Array(left), Self::Array(right)) => left.same(right),
            (left, right) => left == right,
        }
    }

    /// `smallint`, `integer` or `bigint`.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::SmallInt | Self::Integer | Self::BigInt)
    }

    /// A number.
    pub fn is_number(&self) -> bool {
        self.is_integer() || matches!(self, Self::Real | Self::Double | Self::Numeric(..))
    }

    /// `numeric`, of any digits.
    pub fn is_numeric(&self) -> bool {
        matches!(self, Self::Numeric(..))
    }

    /// `real` or `double precision`.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::Real | Self::Double)
    }

    /// A string.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text | Self::Varchar | Self::Char | Self::Name | Self::InternalChar)
    }

    /// `json` or `jsonb`.
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Json | Self::Jsonb)
    }

    /// An object id, plain or shown as a name.
    pub fn is_oid(&self) -> bool {
        matches!(self, Self::Oid | Self::RegClass | Self::RegType | Self::RegProc | Self::RegOperator | Self::RegNamespace)
    }

    /// The element of an array type.
    pub fn element(&self) -> Option<&Self> {
        match self {
            Self::Array(element) => Some(element),
            _ => None,
        }
    }
}
