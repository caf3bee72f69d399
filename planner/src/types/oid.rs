//! Postgres' numbers for types.

use super::SqlType;

impl SqlType {
    /// The type's oid.
    pub fn oid(&self) -> i32 {
        match self {
            Self::Boolean => 16,
            Self::Bytea => 17,
            Self::InternalChar => 18,
            Self::Name => 19,
            Self::BigInt => 20,
            Self::SmallInt => 21,
            Self::Integer => 23,
            Self::RegProc => 24,
            Self::Text | Self::Unknown => 25,
            Self::Oid => 26,
            Self::Json => 114,
            Self::Real => 700,
            Self::Double => 701,
            Self::Char => 1042,
            Self::Varchar => 1043,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::TimestampTz => 1184,
            Self::Interval => 1186,
            Self::Numeric(..) => 1700,
            Self::RegOperator => 2204,
            Self::RegClass => 2205,
            Self::RegType => 2206,
            Self::Record(_) => 2249,
            Self::Void => 2278,
            Self::Uuid => 2950,
            Self::Jsonb => 3802,
            Self::RegNamespace => 4089,
            Self::Array(element) => element.array_oid(),
        }
    }

    /// The oid of an array of this type.
    fn array_oid(&self) -> i32 {
        match self {
            Self::Boolean => 1000,
            Self::Bytea => 1001,
            Self::InternalChar => 1002,
            Self::Name => 1003,
            Self::SmallInt => 1005,
            Self::Integer => 1007,
            Self::RegProc => 1008,
            Self::Text | Self::Unknown | Self::Void => 1009,
            Self::Char => 1014,
            Self::Varchar => 1015,
            Self::BigInt => 1016,
            Self::Real => 1021,
            Self::Double => 1022,
            Self::Oid => 1028,
            Self::Timestamp => 1115,
            Self::Date => 1182,
            Self::Time => 1183,
            Self::TimestampTz => 1185,
            Self::Interval => 1187,
            Self::Numeric(..) => 1231,
            Self::Json => 199,
            Self::RegOperator => 2209,
            Self::RegClass => 2210,
            Self::RegType => 2211,
            Self::Record(_) => 2287,
            Self::Uuid => 2951,
            Self::Jsonb => 3807,
            Self::RegNamespace => 4090,
            Self::Array(element) => element.array_oid(),
        }
    }

    /// The type of an oid that a client declared for a parameter; `None` for types the server has not.
    pub fn from_oid(oid: i32) -> Option<Self> {
        const SCALARS: &[SqlType] = &[
            SqlType::Boolean,
            SqlType::Bytea,
            SqlType::InternalChar,
            SqlType::Name,
            SqlType::BigInt,
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::RegProc,
            SqlType::Text,
            SqlType::Oid,
            SqlType::Json,
            SqlType::Real,
            SqlType::Double,
            SqlType::Char,
            SqlType::Varchar,
            SqlType::Date,
            SqlType::Time,
            SqlType::Timestamp,
            SqlType::TimestampTz,
            SqlType::Interval,
            SqlType::NUMERIC,
            SqlType::RegOperator,
            SqlType::RegClass,
            SqlType::RegType,
            SqlType::Uuid,
            SqlType::Jsonb,
            SqlType::RegNamespace,
        ];
        SCALARS.iter().find_map(|scalar| match oid {
            oid if oid == scalar.oid() => Some(scalar.clone()),
            oid if oid == scalar.array_oid() => Some(Self::array(scalar.clone())),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids_lead_back_to_their_types() {
        for oid in [16, 20, 21, 23, 25, 700, 701, 1043, 1082, 1114, 1184, 1186, 1700, 2950, 3802, 1007, 1009, 1016, 1231, 2951] {
            assert_eq!(SqlType::from_oid(oid).map(|sql_type| sql_type.oid()), Some(oid));
        }
        assert_eq!(SqlType::from_oid(600), None);
    }
}
