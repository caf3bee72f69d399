//! OIDs of things that the catalog has no number for. They are functions of the numbers it has, so that they survive a restart.

use millpond_planner::functions::system::numbers::{constraint_oid, derived_oid, primary_key_index_oid, rewrite_rule_oid};

/// Postgres' number of the bootstrap superuser, who owns everything.
pub(crate) const OWNER: i32 = 10;
/// The one database.
pub(crate) const DATABASE: i32 = 16_383;
/// Access method of tables.
pub(crate) const HEAP: i32 = 2;
/// Access method of indexes.
pub(crate) const BTREE: i32 = 403;

/// `pg_class`, as other relations refer to it.
pub(crate) const PG_CLASS: i32 = 1259;
/// `pg_namespace`, likewise.
pub(crate) const PG_NAMESPACE: i32 = 2615;
/// `pg_rewrite`, likewise.
pub(crate) const PG_REWRITE: i32 = 2618;

const ROW_TYPE: i32 = 0x3000_0000;
const DEFAULT: i32 = 0x6000_0000;

/// The OID of a catalog object: its number.
pub(crate) fn oid(id: u64) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}

/// The index behind a table's primary key.
pub(crate) fn primary_key_index(table: u64) -> i32 {
    primary_key_index_oid(table)
}

/// A table's primary key.
pub(crate) fn primary_key_constraint(table: u64) -> i32 {
    constraint_oid(table, 0)
}

/// A relation's row type.
pub(crate) fn row_type(relation: u64) -> i32 {
    derived_oid(ROW_TYPE, relation)
}

/// The rule that makes a relation a view.
pub(crate) fn rewrite_rule(view: u64) -> i32 {
    rewrite_rule_oid(view)
}

/// The check constraint of that number, from 0.
pub(crate) fn check_constraint(table: u64, number: usize) -> i32 {
    constraint_oid(table, number + 1)
}

/// The default of a column.
pub(crate) fn column_default(table: u64, column: usize) -> i32 {
    (DEFAULT + ((oid(table) << 8) | column as i32)) & 0x1fff_ffff
}
