//! Keys, checks and indexes: `pg_index`, `pg_constraint`, `pg_indexes`.

use millpond_planner::{
    catalog::{Catalog, Object},
    functions::system::describe::IndexText,
};

use crate::{
    error::Result,
    system_tables::{
        numbers::{self, oid},
        pg_catalog::relations,
        registry::{MakeRows, SystemContext},
        rows::{Cell, Row},
    },
};

/// The maker of a relation's rows, if it is one of these.
pub(crate) fn rows_of(name: &str) -> Option<MakeRows> {
    Some(match name {
        "pg_index" => pg_index,
        "pg_constraint" => pg_constraint,
        "pg_indexes" => pg_indexes,
        _ => return None,
    })
}

/// An index as the catalog relations show it.
pub(crate) struct ShownIndex<'a> {
    /// Its OID.
    pub(crate) oid: i32,
    /// Its name, relation and columns.
    pub(crate) text: IndexText<'a>,
    /// Behind a primary key.
    pub(crate) primary: bool,
}

/// All of them: those that were created, and those behind primary keys.
pub(crate) fn indexes(catalog: &Catalog) -> Vec<ShownIndex<'_>> {
    let mut indexes = Vec::new();
    for object in catalog.objects() {
        if let Some(text) = IndexText::of_primary_key(object) {
            indexes.push(ShownIndex { oid: numbers::primary_key_index(object.id), text, primary: true });
        }
        if let Some(text) = IndexText::of_index(catalog, object) {
            indexes.push(ShownIndex { oid: oid(object.id), text, primary: false });
        }
    }
    indexes
}

fn pg_index(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |ShownIndex { oid: number, text: index, primary }: ShownIndex<'_>| -> Row {
        let mut row: Row = vec![
            ("indexrelid", number.into()),
            ("indrelid", oid(index.relation.id).into()),
            ("indnatts", index.columns.len().into()),
            ("indnkeyatts", index.columns.len().into()),
            ("indisunique", index.unique.into()),
            ("indisprimary", primary.into()),
            ("indkey", Cell::Ints(index.columns.iter().map(|(column, _)| *column as i64 + 1).collect())),
            ("indcollation", Cell::Ints(vec![0; index.columns.len()])),
            ("indclass", Cell::Ints(vec![0; index.columns.len()])),
            // Descending is bit 0, NULLs first, which goes with it, bit 1.
            ("indoption", Cell::Ints(index.columns.iter().map(|(_, descending)| if *descending { 3 } else { 0 }).collect())),
        ];
        for name in ["indimmediate", "indisvalid", "indisready", "indislive"] {
            row.push((name, true.into()));
        }
        for name in ["indnullsnotdistinct", "indisexclusion", "indisclustered", "indcheckxmin", "indisreplident"] {
            row.push((name, false.into()));
        }
        row
    };
    Ok(indexes(context.catalog).into_iter().map(row).collect())
}

/// A constraint as the catalog relations show it.
pub(crate) struct ShownConstraint<'a> {
    /// Its OID.
    pub(crate) oid: i32,
    /// Its name.
    pub(crate) name: &'a str,
    /// `p` or `c`.
    pub(crate) kind: &'static str,
    /// The table.
    pub(crate) table: &'a Object,
    /// Columns of a key.
    pub(crate) columns: Vec<usize>,
    /// The condition of a check.
    pub(crate) condition: Option<&'a str>,
}

/// All of them.
pub(crate) fn constraints(catalog: &Catalog) -> Vec<ShownConstraint<'_>> {
    let mut constraints = Vec::new();
    for object in relations(catalog) {
        let Some(table) = object.table() else { continue };
        if let Some(key) = &table.primary_key {
            constraints.push(ShownConstraint {
                oid: numbers::primary_key_constraint(object.id),
                name: &key.name,
                kind: "p",
                table: object,
                columns: key.columns.clone(),
                condition: None,
            });
        }
        for (number, check) in table.checks.iter().enumerate() {
            constraints.push(ShownConstraint {
                oid: numbers::check_constraint(object.id, number),
                name: &check.name,
                kind: "c",
                table: object,
                columns: Vec::new(),
                condition: Some(&check.expression),
            });
        }
    }
    constraints
}

fn pg_constraint(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |constraint: ShownConstraint<'_>| -> Row {
        let index = if constraint.kind == "p" { numbers::primary_key_index(constraint.table.id) } else { 0 };
        let mut row: Row = vec![
            ("oid", constraint.oid.into()),
            ("conname", constraint.name.into()),
            ("connamespace", oid(constraint.table.schema).into()),
            ("contype", constraint.kind.into()),
            ("convalidated", true.into()),
            ("conrelid", oid(constraint.table.id).into()),
            ("conindid", index.into()),
            ("conislocal", true.into()),
            ("conkey", Cell::Ints(constraint.columns.iter().map(|column| *column as i64 + 1).collect())),
            ("conbin", constraint.condition.into()),
        ];
        for name in ["condeferrable", "condeferred", "connoinherit"] {
            row.push((name, false.into()));
        }
        for name in ["contypid", "conparentid", "confrelid", "coninhcount"] {
            row.push((name, 0.into()));
        }
        for name in ["confupdtype", "confdeltype", "confmatchtype"] {
            row.push((name, " ".into()));
        }
        row
    };
    Ok(constraints(context.catalog).into_iter().map(row).collect())
}

fn pg_indexes(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let catalog = context.catalog;
    let row = |ShownIndex { text: index, .. }: ShownIndex<'_>| -> Row {
        vec![
            ("schemaname", catalog.schema_name(index.relation).into()),
            ("tablename", index.relation.name.as_str().into()),
            ("indexname", index.name.into()),
            ("indexdef", index.definition(catalog).into()),
        ]
    };
    Ok(indexes(catalog).into_iter().map(row).collect())
}
