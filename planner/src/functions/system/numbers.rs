//! OIDs of what the catalog has no number of its own for: functions of the numbers it has, so that they are the same after a restart.

/// OIDs of constraints are those of their tables with a bit that no object's number reaches, and their place in the table.
const CONSTRAINT_BIT: u32 = 1 << 30;
/// Constraints of a table that can be told apart.
const CONSTRAINTS_PER_TABLE: u32 = 64;
/// Numbers of the relations of `information_schema` and of `millpond`; those of `pg_catalog` are PostgreSQL's.
const INFORMATION_SCHEMA: std::ops::Range<i32> = 13_000..13_100;
const MILLPOND: std::ops::Range<i32> = 13_100..13_200;
/// Bits of an object's number that other numbers are derived from.
const OBJECT_BITS: i32 = 0x07ff_ffff;
const PRIMARY_KEY_INDEX: i32 = 0x2000_0000;
const REWRITE_RULE: i32 = 0x3800_0000;

/// The OID of a table's constraint: 0 is the primary key, CHECKs follow.
pub fn constraint_oid(table: u64, place: usize) -> i32 {
    ((table as u32).wrapping_mul(CONSTRAINTS_PER_TABLE).wrapping_add(place as u32) & (CONSTRAINT_BIT - 1) | CONSTRAINT_BIT) as i32
}

/// The OID in a range of derived ones.
pub fn derived_oid(base: i32, id: u64) -> i32 {
    base + (i32::try_from(id).unwrap_or(i32::MAX) & OBJECT_BITS)
}

fn object_of(base: i32, oid: i32) -> Option<u64> {
    (oid & !OBJECT_BITS == base).then_some(u64::from((oid & OBJECT_BITS) as u32))
}

/// The schema of the system relation with the OID.
pub fn system_schema(oid: i32) -> &'static str {
    match oid {
        oid if INFORMATION_SCHEMA.contains(&oid) => "information_schema",
        oid if MILLPOND.contains(&oid) => "millpond",
        _ => "pg_catalog",
    }
}

/// The index behind a table's primary key.
pub fn primary_key_index_oid(table: u64) -> i32 {
    derived_oid(PRIMARY_KEY_INDEX, table)
}

/// The table whose primary key's index has the OID.
pub(super) fn table_of_index(oid: i32) -> Option<u64> {
    object_of(PRIMARY_KEY_INDEX, oid)
}

/// The rule that makes a relation a view.
pub fn rewrite_rule_oid(view: u64) -> i32 {
    derived_oid(REWRITE_RULE, view)
}

/// The view whose rule has the OID.
pub(super) fn view_of_rule(oid: i32) -> Option<u64> {
    object_of(REWRITE_RULE, oid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_numbers_lead_back() {
        assert_eq!(table_of_index(primary_key_index_oid(16_384)), Some(16_384));
        assert_eq!(view_of_rule(rewrite_rule_oid(16_390)), Some(16_390));
        assert_eq!((table_of_index(16_384), table_of_index(rewrite_rule_oid(16_390))), (None, None));
    }
}
