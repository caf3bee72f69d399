//! Names of types: from the parser's tree and from text, and as Postgres shows them.

use sqlparser::{
    ast::{ArrayElemTypeDef, CharacterLength, DataType as Ast, ExactNumberInfo, TimezoneInfo},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::{NUMERIC_MAX_PRECISION, SqlType, modifier};
use crate::error::{PlanError, Result, sqlstate};

/// The type and typmod that a parsed type name means.
///
/// # Errors
/// 42704 for a name that is no type, 22023 for a precision out of bounds.
pub fn from_ast(data_type: &Ast) -> Result<(SqlType, i32)> {
    let plain = |sql_type: SqlType| Ok((sql_type, modifier::NONE));
    match data_type {
        Ast::Bool | Ast::Boolean => plain(SqlType::Boolean),
        Ast::SmallInt(_) | Ast::Int2(_) => plain(SqlType::SmallInt),
        Ast::Int(_) | Ast::Integer(_) | Ast::Int4(_) => plain(SqlType::Integer),
        Ast::BigInt(_) | Ast::Int8(_) => plain(SqlType::BigInt),
        Ast::Real | Ast::Float4 => plain(SqlType::Real),
        Ast::DoublePrecision | Ast::Float8 => plain(SqlType::Double),
        Ast::Double(ExactNumberInfo::None) => plain(SqlType::Double),
        Ast::Float(ExactNumberInfo::None) => plain(SqlType::Double),
        Ast::Float(ExactNumberInfo::Precision(bits)) => match bits {
            0 => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "precision for type float must be at least 1 bit")),
            1..=24 => plain(SqlType::Real),
            25..=53 => plain(SqlType::Double),
            _ => Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "precision for type float must be less than 54 bits")),
        },
        Ast::Numeric(info) | Ast::Decimal(info) | Ast::Dec(info) => numeric(info),
        Ast::Text | Ast::String(None) => plain(SqlType::Text),
        Ast::Varchar(length) | Ast::CharacterVarying(length) | Ast::CharVarying(length) => {
            let modifier = character_length(length.as_ref(), "varchar")?.map_or(modifier::NONE, modifier::of_length);
            Ok((SqlType::Varchar, modifier))
        }
        Ast::Char(length) | Ast::Character(length) => {
            Ok((SqlType::Char, modifier::of_length(character_length(length.as_ref(), "char")?.unwrap_or(1))))
        }
        Ast::Bytea => plain(SqlType::Bytea),
        Ast::Date => plain(SqlType::Date),
        Ast::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Ok((SqlType::Time, fraction(*digits)?)),
        Ast::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Ok((SqlType::Timestamp, fraction(*digits)?)),
        Ast::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => Ok((SqlType::TimestampTz, fraction(*digits)?)),
        Ast::Interval { precision, .. } => Ok((SqlType::Interval, fraction(*precision)?)),
        Ast::Uuid => plain(SqlType::Uuid),
        Ast::JSON => plain(SqlType::Json),
        Ast::JSONB => plain(SqlType::Jsonb),
        Ast::Regclass => plain(SqlType::RegClass),
        Ast::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            let (element, modifier) = from_ast(element)?;
            // Postgres does not tell dimensions apart: int[][] is the type int[].
            let element = if let SqlType::Array(inner) = element { *inner } else { element };
            Ok((SqlType::array(element), modifier))
        }
        Ast::Custom(name, modifiers) => custom(&name.to_string(), modifiers),
        Ast::Time(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            Err(PlanError::unsupported("type time with time zone is not supported").with_hint("Use time or timestamp with time zone."))
        }
        other => Err(undefined(&other.to_string().to_lowercase())),
    }
}

/// Types that stand for a column with a sequence behind it.
const NUMBERED: [&str; 6] = ["smallserial", "serial2", "serial", "serial4", "bigserial", "serial8"];

fn undefined(name: &str) -> PlanError {
    PlanError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

fn custom(name: &str, modifiers: &[String]) -> Result<(SqlType, i32)> {
    let quoted = name == "\"char\"" || name.ends_with(".\"char\"");
    let folded = if name.contains('"') { name.replace('"', "") } else { name.to_lowercase() };
    let bare = folded.strip_prefix("pg_catalog.").unwrap_or(&folded);
    if quoted {
        return Ok((SqlType::InternalChar, modifier::NONE));
    }
    if NUMBERED.contains(&bare) {
        let hint = "There are no sequences. Let the INSERT give the numbers, or declare the column as UUID DEFAULT gen_random_uuid().";
        return Err(PlanError::unsupported(format!("type {bare} is not supported")).with_hint(hint));
    }
    let sql_type = match bare {
        "name" => SqlType::Name,
        "oid" | "xid" | "cid" => SqlType::Oid,
        "regclass" => SqlType::RegClass,
        "regtype" => SqlType::RegType,
        "regproc" | "regprocedure" => SqlType::RegProc,
        "regoper" | "regoperator" => SqlType::RegOperator,
        "regnamespace" => SqlType::RegNamespace,
        "regrole" => SqlType::Oid,
        "bpchar" => SqlType::Char,
        "timestamptz" => SqlType::TimestampTz,
        "bool" => SqlType::Boolean,
        "int2" => SqlType::SmallInt,
        "int4" | "int" | "integer" => SqlType::Integer,
        "int8" | "bigint" => SqlType::BigInt,
        "float4" | "real" => SqlType::Real,
        "float8" => SqlType::Double,
        "text" | "string" | "citext" => SqlType::Text,
        "varchar" => SqlType::Varchar,
        "bytea" | "bytes" => SqlType::Bytea,
        "date" => SqlType::Date,
        "time" => SqlType::Time,
        "timestamp" => SqlType::Timestamp,
        "interval" => SqlType::Interval,
        "uuid" => SqlType::Uuid,
        "json" => SqlType::Json,
        "jsonb" => SqlType::Jsonb,
        "numeric" | "decimal" => SqlType::NUMERIC,
        "int2vector" => SqlType::array(SqlType::SmallInt),
        "oidvector" => SqlType::array(SqlType::Oid),
        "void" => SqlType::Void,
        "unknown" => SqlType::Unknown,
        "smallint" => SqlType::SmallInt,
        "boolean" => SqlType::Boolean,
        _ => match bare.strip_prefix('_').or_else(|| bare.strip_suffix("[]")) {
            Some(element) => SqlType::array(custom(element, &[])?.0),
            None => return Err(undefined(name)),
        },
    };
    let modifier = match (&sql_type, modifiers) {
        (SqlType::Char | SqlType::Varchar, [length]) => length.parse().map_or(modifier::NONE, modifier::of_length),
        (SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time, [digits]) => fraction(digits.parse().ok())?,
        _ => modifier::NONE,
    };
    Ok((sql_type, modifier))
}

fn numeric(info: &ExactNumberInfo) -> Result<(SqlType, i32)> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok((SqlType::NUMERIC, modifier::NONE)),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    if !(1..=1000).contains(&precision) {
        let message = format!("NUMERIC precision {precision} must be between 1 and 1000");
        return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
    }
    if precision > u64::from(NUMERIC_MAX_PRECISION) || !(0..=precision as i64).contains(&scale) {
        let message = format!("numeric({precision},{scale}) is not supported");
        return Err(PlanError::unsupported(message).with_hint("Use at most 76 digits, and a scale from 0 to the precision."));
    }
    let (precision, scale) = (precision as u8, scale as i8);
    Ok((SqlType::Numeric(precision, scale), modifier::of_numeric(precision, scale)))
}

fn character_length(length: Option<&CharacterLength>, name: &str) -> Result<Option<u32>> {
    match length {
        None | Some(CharacterLength::Max) => Ok(None),
        Some(CharacterLength::IntegerLength { length: 0, .. }) => {
            Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("length for type {name} must be at least 1")))
        }
        Some(CharacterLength::IntegerLength { length, .. }) if *length > 10_485_760 => {
            Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("length for type {name} cannot exceed 10485760")))
        }
        Some(CharacterLength::IntegerLength { length, .. }) => Ok(Some(*length as u32)),
    }
}

/// Postgres cuts a precision above 6 to 6, with a warning.
fn fraction(digits: Option<u64>) -> Result<i32> {
    Ok(digits.map_or(modifier::NONE, |digits| digits.min(6) as i32))
}

/// The type and typmod of a type's name as text: of catalog records, of `'int4'::regtype`, of field metadata.
///
/// # Errors
/// 42704 for a name that is no type, 42601 for text that is no name.
pub fn parse_type_name(name: &str) -> Result<(SqlType, i32)> {
    if name == "\"char\"" {
        return Ok((SqlType::InternalChar, modifier::NONE));
    }
    let dialect = PostgreSqlDialect {};
    let syntax = |_| PlanError::new(sqlstate::SYNTAX_ERROR, format!("invalid type name \"{name}\""));
    let mut parser = Parser::new(&dialect).try_with_sql(name).map_err(syntax)?;
    let data_type = parser.parse_data_type().map_err(syntax)?;
    from_ast(&data_type)
}

impl SqlType {
    /// Postgres' name, as in error messages and `format_type`.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Boolean => "boolean",
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
            Self::Real => "real",
            Self::Double => "double precision",
            Self::Numeric(..) => "numeric",
            Self::Text => "text",
            Self::Varchar => "character varying",
            Self::Char => "character",
            Self::Name => "name",
            Self::InternalChar => "\"char\"",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Time => "time without time zone",
            Self::Timestamp => "timestamp without time zone",
            Self::TimestampTz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Uuid => "uuid",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Oid => "oid",
            Self::RegClass => "regclass",
            Self::RegType => "regtype",
            Self::RegProc => "regproc",
            Self::RegOperator => "regoperator",
            Self::RegNamespace => "regnamespace",
            Self::Record(_) => "record",
            Self::Void => "void",
            Self::Unknown => "unknown",
            Self::Array(element) => return format!("{}[]", element.name()),
        };
        name.to_owned()
    }

    /// The name with its modifier, `numeric(5,2)`: what the catalog stores and psql shows.
    pub fn name_with(&self, modifier: i32) -> String {
        let Some(text) = modifier::text(self, modifier) else { return self.name() };
        match self {
            Self::Time | Self::Timestamp | Self::TimestampTz => {
                let name = self.name();
                let (first, rest) = name.split_once(' ').expect("names of these types have several words");
                format!("{first}({text}) {rest}")
            }
            Self::Array(element) => format!("{}[]", element.name_with(modifier)),
            _ => format!("{}({text})", self.name()),
        }
    }

    /// The short internal name (`int4`), as in `pg_type` and default column names of casts.
    pub fn internal_name(&self) -> String {
        let name = match self {
            Self::Boolean => "bool",
            Self::SmallInt => "int2",
            Self::Integer => "int4",
            Self::BigInt => "int8",
            Self::Real => "float4",
            Self::Double => "float8",
            Self::Varchar => "varchar",
            Self::Char => "bpchar",
            Self::InternalChar => "char",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::TimestampTz => "timestamptz",
            Self::Array(element) => return format!("_{}", element.internal_name()),
            _ => return self.name(),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_shown_as_postgres_shows_them() {
        for (text, shown) in [
            ("int", "integer"),
            ("INT8", "bigint"),
            ("smallint", "smallint"),
            ("float(20)", "real"),
            ("float", "double precision"),
            ("numeric", "numeric"),
            ("numeric(5,2)", "numeric(5,2)"),
            ("decimal(7)", "numeric(7,0)"),
            ("varchar(4)", "character varying(4)"),
            ("char", "character(1)"),
            ("timestamp(3)", "timestamp(3) without time zone"),
            ("timestamptz", "timestamp with time zone"),
            ("timestamp with time zone", "timestamp with time zone"),
            ("int[]", "integer[]"),
            ("varchar(4)[]", "character varying(4)[]"),
            ("jsonb", "jsonb"),
            ("pg_catalog.regtype", "regtype"),
            ("\"char\"", "\"char\""),
            ("oid", "oid"),
            ("interval", "interval"),
        ] {
            let (sql_type, modifier) = parse_type_name(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(sql_type.name_with(modifier), shown, "{text}");
            let again = parse_type_name(shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(again, (sql_type, modifier), "{shown}");
        }
        assert_eq!(parse_type_name("nosuch").unwrap_err().sqlstate, sqlstate::UNDEFINED_OBJECT);
        assert_eq!(parse_type_name("numeric(2000,3)").unwrap_err().sqlstate, sqlstate::INVALID_PARAMETER_VALUE);
    }
}
