//! Keys, checks and indexes: `pg_index`, `pg_constraint`, `pg_indexes`, and the texts of `pg_get_indexdef` and `pg_get_constraintdef`.

use millpond_planner::catalog::{Catalog, Object, ObjectBody, name::quoted};

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

/// An index as the catalog relations show it: one that was created, or the one behind a primary key.
pub(crate) struct ShownIndex<'a> {
    /// Its OID.
    pub(crate) oid: i32,
    /// Its name.
    pub(crate) name: &'a str,
    /// The relation.
    pub(crate) relation: &'a Object,
    /// Columns, and which are descending.
    pub(crate) columns: Vec<(usize, bool)>,
    /// UNIQUE.
    pub(crate) unique: bool,
    /// Behind a primary key.
    pub(crate) primary: bool,
}

/// All of them.
pub(crate) fn indexes(catalog: &Catalog) -> Vec<ShownIndex<'_>> {
    let mut indexes = Vec::new();
    for object in catalog.objects() {
        if let Some(key) = object.table().and_then(|table| table.primary_key.as_ref()) {
            indexes.push(ShownIndex {
                oid: numbers::primary_key_index(object.id),
                name: &key.name,
                relation: object,
                columns: key.columns.iter().map(|column| (*column, false)).collect(),
                unique: true,
                primary: true,
            });
        }
        if let ObjectBody::Index(index) = &object.body
            && let Some(relation) = catalog.get(index.relation)
        {
            let (name, columns) = (object.name.as_str(), index.columns.clone());
            indexes.push(ShownIndex { oid: oid(object.id), name, relation, columns, unique: index.unique, primary: false });
        }
    }
    indexes
}

impl ShownIndex<'_> {
    /// CREATE INDEX as `pg_get_indexdef` writes it; with a column number from 1, only that column.
    pub(crate) fn definition(&self, catalog: &Catalog, column: i32) -> String {
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|(column, descending)| {
                let name = self.relation.columns().get(*column).map(|column| quoted(&column.name)).unwrap_or_default();
                if *descending { format!("{name} DESC") } else { name }
            })
            .collect();
        if column > 0 {
            return names.get(column as usize - 1).cloned().unwrap_or_default();
        }
        format!(
            "CREATE {}INDEX {} ON {}.{} USING btree ({})",
            if self.unique { "UNIQUE " } else { "" },
            quoted(self.name),
            quoted(catalog.schema_name(self.relation)),
            quoted(&self.relation.name),
            names.join(", ")
        )
    }
}

fn pg_index(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |index: ShownIndex<'_>| -> Row {
        let mut row: Row = vec![
            ("indexrelid", index.oid.into()),
            ("indrelid", oid(index.relation.id).into()),
            ("indnatts", index.columns.len().into()),
            ("indnkeyatts", index.columns.len().into()),
            ("indisunique", index.unique.into()),
            ("indisprimary", index.primary.into()),
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
    let row = |index: ShownIndex<'_>| -> Row {
        vec![
            ("schemaname", catalog.schema_name(index.relation).into()),
            ("tablename", index.relation.name.as_str().into()),
            ("indexname", index.name.into()),
            ("indexdef", index.definition(catalog, 0).into()),
        ]
    };
    Ok(indexes(catalog).into_iter().map(row).collect())
}
