//! `information_schema`: the standard's view of schemas, relations, columns and constraints.

use millpond_planner::{
    catalog::{Object, ObjectBody, object::Column},
    types::{SqlType, modifier},
};

use crate::{
    error::Result,
    session::settings::OWNER_NAME,
    system_tables::{
        pg_catalog::relations,
        pg_constraints::{ShownConstraint, constraints},
        registry::{MakeRows, SystemContext},
        rows::{Cell, Row},
    },
};

/// The maker of a relation's rows; the others have none.
pub(crate) fn rows_of(name: &str) -> Option<MakeRows> {
    Some(match name {
        "schemata" => schemata,
        "tables" => tables,
        "columns" => columns,
        "views" => views,
        "table_constraints" => table_constraints,
        "key_column_usage" => key_column_usage,
        "constraint_column_usage" => constraint_column_usage,
        "check_constraints" => check_constraints,
        "information_schema_catalog_name" => catalog_name,
        "enabled_roles" => enabled_roles,
        "character_sets" => character_sets,
        _ => return None,
    })
}

fn database(context: &SystemContext<'_>) -> Cell {
    context.session.database.as_str().into()
}

fn schemata(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let schemas = context.catalog.objects().filter(|object| matches!(object.body, ObjectBody::Schema));
    let row = |schema: &std::sync::Arc<Object>| -> Row {
        vec![("catalog_name", database(context)), ("schema_name", schema.name.as_str().into()), ("schema_owner", OWNER_NAME.into())]
    };
    Ok(schemas.map(row).collect())
}

fn tables(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |schema: &str, name: &str, kind: &'static str, insertable: bool| -> Row {
        vec![
            ("table_catalog", database(context)),
            ("table_schema", schema.into()),
            ("table_name", name.into()),
            ("table_type", kind.into()),
            ("is_insertable_into", yes_or_no(insertable)),
            ("is_typed", "NO".into()),
        ]
    };
    let mut rows = Vec::new();
    for object in relations(context.catalog) {
        let kind = match object.body {
            ObjectBody::View(_) => "VIEW",
            // The standard does not know them and Postgres leaves them out; tools that ask here are better served by seeing them.
            ObjectBody::MaterializedView(_) => "MATERIALIZED VIEW",
            ObjectBody::Source(_) => "FOREIGN",
            _ => "BASE TABLE",
        };
        rows.push(row(context.catalog.schema_name(object), &object.name, kind, matches!(object.body, ObjectBody::Table(_))));
    }
    for relation in context.relations.iter() {
        rows.push(row(relation.schema_name, &relation.name, if relation.kind == "r" { "BASE TABLE" } else { "VIEW" }, false));
    }
    Ok(rows)
}

fn yes_or_no(yes: bool) -> Cell {
    if yes { "YES".into() } else { "NO".into() }
}

fn columns(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for object in relations(context.catalog) {
        let updatable = matches!(object.body, ObjectBody::Table(_));
        for (column, number) in object.columns().iter().zip(1..) {
            rows.push(column_row(context, context.catalog.schema_name(object), &object.name, number, column, updatable));
        }
    }
    for relation in context.relations.iter() {
        for (field, number) in relation.schema.fields().iter().zip(1..) {
            let column = Column::new(field.name(), SqlType::from_field(field).unwrap_or(SqlType::Text), modifier::NONE);
            rows.push(column_row(context, relation.schema_name, &relation.name, number, &column, false));
        }
    }
    Ok(rows)
}

fn column_row(context: &SystemContext<'_>, schema: &str, table: &str, number: usize, column: &Column, updatable: bool) -> Row {
    let sql_type = &column.sql_type;
    let data_type = if matches!(sql_type, SqlType::Array(_)) { "ARRAY".to_owned() } else { sql_type.name_with(modifier::NONE) };
    let mut row: Row = vec![
        ("table_catalog", database(context)),
        ("table_schema", schema.into()),
        ("table_name", table.into()),
        ("column_name", column.name.as_str().into()),
        ("ordinal_position", number.into()),
        ("column_default", column.default.as_deref().into()),
        ("is_nullable", yes_or_no(!column.not_null)),
        ("data_type", data_type.into()),
        ("udt_catalog", database(context)),
        ("udt_schema", "pg_catalog".into()),
        ("udt_name", udt_name(sql_type).into()),
        ("dtd_identifier", number.to_string().into()),
        ("is_self_referencing", "NO".into()),
        ("is_identity", "NO".into()),
        ("identity_cycle", "NO".into()),
        ("is_generated", "NEVER".into()),
        ("is_updatable", yes_or_no(updatable)),
    ];
    match sql_type {
        SqlType::Varchar | SqlType::Char => row.push(("character_maximum_length", modifier::length(column.modifier).map(i64::from).into())),
        SqlType::Text => row.push(("character_octet_length", (1 << 30).into())),
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => {
            let bits = match sql_type {
                SqlType::SmallInt => 16,
                SqlType::Integer => 32,
                _ => 64,
            };
            row.extend([("numeric_precision", bits.into()), ("numeric_precision_radix", 2.into()), ("numeric_scale", 0.into())]);
        }
        SqlType::Real => row.extend([("numeric_precision", 24.into()), ("numeric_precision_radix", 2.into())]),
        SqlType::Double => row.extend([("numeric_precision", 53.into()), ("numeric_precision_radix", 2.into())]),
        SqlType::Numeric(precision, scale) => {
            row.push(("numeric_precision_radix", 10.into()));
            if column.modifier >= 0 {
                row.extend([("numeric_precision", i32::from(*precision).into()), ("numeric_scale", i32::from(*scale).into())]);
            }
        }
        SqlType::Date => row.push(("datetime_precision", 0.into())),
        SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => row.push(("datetime_precision", 6.into())),
        _ => {}
    }
    row
}

/// The name in `pg_type`.
fn udt_name(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Boolean => "bool".into(),
        SqlType::SmallInt => "int2".into(),
        SqlType::Integer => "int4".into(),
        SqlType::BigInt => "int8".into(),
        SqlType::Real => "float4".into(),
        SqlType::Double => "float8".into(),
        SqlType::Numeric(..) => "numeric".into(),
        SqlType::Varchar => "varchar".into(),
        SqlType::Char => "bpchar".into(),
        SqlType::InternalChar => "char".into(),
        SqlType::Time => "time".into(),
        SqlType::Timestamp => "timestamp".into(),
        SqlType::TimestampTz => "timestamptz".into(),
        SqlType::Array(element) => format!("_{}", udt_name(element)),
        other => other.name_with(modifier::NONE),
    }
}

fn views(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let views = relations(context.catalog).filter(|object| matches!(object.body, ObjectBody::View(_)));
    let row = |view: &Object| -> Row {
        vec![
            ("table_catalog", database(context)),
            ("table_schema", context.catalog.schema_name(view).into()),
            ("table_name", view.name.as_str().into()),
            ("view_definition", view.definition().into()),
            ("check_option", "NONE".into()),
            ("is_updatable", "NO".into()),
            ("is_insertable_into", "NO".into()),
            ("is_trigger_updatable", "NO".into()),
            ("is_trigger_deletable", "NO".into()),
            ("is_trigger_insertable_into", "NO".into()),
        ]
    };
    Ok(views.map(row).collect())
}

/// The columns that name a constraint.
fn constraint_name(context: &SystemContext<'_>, constraint: &ShownConstraint<'_>) -> Row {
    vec![
        ("constraint_catalog", database(context)),
        ("constraint_schema", context.catalog.schema_name(constraint.table).into()),
        ("constraint_name", constraint.name.into()),
    ]
}

/// The columns that name its table.
fn table_name(context: &SystemContext<'_>, constraint: &ShownConstraint<'_>) -> Row {
    vec![
        ("table_catalog", database(context)),
        ("table_schema", context.catalog.schema_name(constraint.table).into()),
        ("table_name", constraint.table.name.as_str().into()),
    ]
}

fn table_constraints(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |constraint: ShownConstraint<'_>| -> Row {
        let mut row = constraint_name(context, &constraint);
        row.extend(table_name(context, &constraint));
        row.extend([
            ("constraint_type", Cell::from(if constraint.kind == "p" { "PRIMARY KEY" } else { "CHECK" })),
            ("is_deferrable", "NO".into()),
            ("initially_deferred", "NO".into()),
            ("enforced", "YES".into()),
        ]);
        row
    };
    Ok(constraints(context.catalog).into_iter().map(row).collect())
}

/// One row per column of each key.
fn key_columns(context: &SystemContext<'_>, with_position: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for constraint in constraints(context.catalog) {
        for (column, position) in constraint.columns.iter().zip(1..) {
            let mut row = constraint_name(context, &constraint);
            row.extend(table_name(context, &constraint));
            row.push(("column_name", constraint.table.columns().get(*column).map(|column| column.name.as_str()).into()));
            if with_position {
                row.push(("ordinal_position", Cell::Int(position)));
            }
            rows.push(row);
        }
    }
    rows
}

fn key_column_usage(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(key_columns(context, true))
}

fn constraint_column_usage(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(key_columns(context, false))
}

fn check_constraints(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let checks = constraints(context.catalog).into_iter().filter(|constraint| constraint.kind == "c");
    let row = |constraint: ShownConstraint<'_>| -> Row {
        let mut row = constraint_name(context, &constraint);
        row.push(("check_clause", constraint.condition.into()));
        row
    };
    Ok(checks.map(row).collect())
}

fn catalog_name(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(vec![vec![("catalog_name", database(context))]])
}

fn enabled_roles(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(vec![vec![("role_name", context.session.user.as_str().into())]])
}

fn character_sets(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(vec![vec![
        ("character_set_name", "UTF8".into()),
        ("character_repertoire", "UCS".into()),
        ("form_of_use", "UTF8".into()),
        ("default_collate_catalog", database(context)),
    ]])
}
