//! The convenience views of `pg_catalog`: tables, views, materialized views and their statistics.

use millpond_planner::catalog::{Object, ObjectBody};

use crate::{
    error::Result,
    session::settings,
    system_tables::{
        numbers::oid,
        pg_catalog::relations,
        registry::{MakeRows, SystemContext},
        rows::{Cell, Row},
    },
};

/// Who owns everything, by name.
pub(crate) const OWNER_NAME: &str = settings::OWNER_NAME;

/// The maker of a relation's rows, if it is one of these.
pub(crate) fn rows_of(name: &str) -> Option<MakeRows> {
    Some(match name {
        "pg_tables" => pg_tables,
        "pg_views" => pg_views,
        "pg_matviews" => pg_matviews,
        "pg_stat_user_tables" | "pg_stat_all_tables" => pg_stat_user_tables,
        "pg_statio_user_tables" | "pg_statio_all_tables" => pg_statio_user_tables,
        _ => return None,
    })
}

fn is_table(object: &&Object) -> bool {
    matches!(object.body, ObjectBody::Table(_))
}

fn pg_tables(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |table: &Object| -> Row {
        vec![
            ("schemaname", context.catalog.schema_name(table).into()),
            ("tablename", table.name.as_str().into()),
            ("tableowner", OWNER_NAME.into()),
            ("hasindexes", table.table().is_some_and(|table| table.primary_key.is_some()).into()),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
            ("rowsecurity", false.into()),
        ]
    };
    let mut rows: Vec<Row> = relations(context.catalog).filter(is_table).map(row).collect();
    for relation in context.relations.iter().filter(|relation| relation.kind == "r") {
        rows.push(vec![
            ("schemaname", relation.schema_name.into()),
            ("tablename", relation.name.as_str().into()),
            ("tableowner", OWNER_NAME.into()),
            ("hasindexes", false.into()),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
            ("rowsecurity", false.into()),
        ]);
    }
    Ok(rows)
}

fn pg_views(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let views = relations(context.catalog).filter(|object| matches!(object.body, ObjectBody::View(_)));
    let row = |view: &Object| -> Row {
        vec![
            ("schemaname", context.catalog.schema_name(view).into()),
            ("viewname", view.name.as_str().into()),
            ("viewowner", OWNER_NAME.into()),
            ("definition", view.definition().map(|text| format!("{text};")).into()),
        ]
    };
    Ok(views.map(row).collect())
}

fn pg_matviews(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let views = relations(context.catalog).filter(|object| matches!(object.body, ObjectBody::MaterializedView(_)));
    let row = |view: &Object| -> Row {
        let indexed = context.catalog.dependants(view.id).any(|other| matches!(other.body, ObjectBody::Index(_)));
        vec![
            ("schemaname", context.catalog.schema_name(view).into()),
            ("matviewname", view.name.as_str().into()),
            ("matviewowner", OWNER_NAME.into()),
            ("hasindexes", indexed.into()),
            ("ispopulated", context.server.is_populated(view.id).into()),
            ("definition", view.definition().map(|text| format!("{text};")).into()),
        ]
    };
    Ok(views.map(row).collect())
}

fn pg_stat_user_tables(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let kept = relations(context.catalog).filter(|object| matches!(object.body, ObjectBody::Table(_) | ObjectBody::MaterializedView(_)));
    let row = |relation: &Object| -> Row {
        let rows = context.server.row_estimate(relation.id);
        vec![
            ("relid", oid(relation.id).into()),
            ("schemaname", context.catalog.schema_name(relation).into()),
            ("relname", relation.name.as_str().into()),
            ("n_live_tup", rows.map_or(Cell::Int(0), Cell::from)),
            ("n_dead_tup", 0.into()),
            ("seq_scan", 0.into()),
            ("idx_scan", 0.into()),
        ]
    };
    Ok(kept.map(row).collect())
}

fn pg_statio_user_tables(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |relation: &Object| -> Row {
        vec![
            ("relid", oid(relation.id).into()),
            ("schemaname", context.catalog.schema_name(relation).into()),
            ("relname", relation.name.as_str().into()),
        ]
    };
    Ok(relations(context.catalog).filter(is_table).map(row).collect())
}
