//! How large relations are, and sizes for people to read.

use arrow::{
    array::ArrayRef,
    datatypes::{Int32Type, Int64Type},
};

use crate::{
    catalog::DATABASE,
    error::{PlanError, Result, sqlstate},
    functions::{environment::Environment, kernel::Call},
};

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Bytes of a relation's rows; 0 of what keeps none, NULL of what is no relation.
pub(super) fn of_relation(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build::<Int64Type>(|row| Ok(oids.get(row).map(|oid| signed(environment.live.relation_bytes(u64::from(oid as u32)).unwrap_or(0)))))
}

/// An index is an order that its relation is kept in, or nothing but a name.
pub(super) fn of_indexes(call: &Call<'_>) -> Result<ArrayRef> {
    let oids = call.values::<Int32Type>(0)?;
    call.build::<Int64Type>(|row| Ok(oids.get(row).map(|_| 0)))
}

fn of_all(environment: &Environment) -> i64 {
    let sizes = environment.catalog.objects().filter_map(|object| environment.live.relation_bytes(object.id));
    signed(sizes.fold(0, u64::saturating_add))
}

/// Bytes of all relations.
pub(super) fn of_database(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build::<Int64Type>(|row| match names.get(row) {
        None => Ok(None),
        Some(DATABASE) => Ok(Some(of_all(environment))),
        Some(name) => Err(PlanError::new(sqlstate::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))),
    })
}

/// All relations are in the one that Postgres calls `pg_default`.
pub(super) fn of_tablespace(call: &Call<'_>) -> Result<ArrayRef> {
    const PG_DEFAULT: i32 = 1663;
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build::<Int64Type>(|row| Ok(oids.get(row).map(|oid| if oid == PG_DEFAULT { of_all(environment) } else { 0 })))
}

/// `8192 bytes`, `16 kB`
pub(super) fn pretty(call: &Call<'_>) -> Result<ArrayRef> {
    let sizes = call.values::<Int64Type>(0)?;
    call.build_texts(|row| Ok(sizes.get(row).map(pretty_size)))
}

/// 10 kB and more are shown in the next unit, rounded.
fn pretty_size(bytes: i64) -> String {
    const LIMIT: i64 = 10 * 1024;
    let mut size = bytes;
    let mut units = ["bytes", "kB", "MB", "GB", "TB", "PB"].into_iter();
    let mut unit = units.next().unwrap_or("bytes");
    for next in units {
        let limit = if unit == "bytes" { LIMIT } else { LIMIT * 2 - 1 };
        if size.abs() < limit {
            break;
        }
        // One bit more than is shown, for rounding at the end.
        size = if unit == "bytes" { size >> 9 } else { size >> 10 };
        unit = next;
    }
    let shown = if unit == "bytes" { size } else { (size + 1) / 2 };
    format!("{shown} {unit}")
}
