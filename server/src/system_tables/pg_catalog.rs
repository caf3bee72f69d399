//! Relations, columns, schemas, and what hangs on them: `pg_class`, `pg_attribute`, `pg_namespace`, `pg_attrdef`, `pg_description`,
//! `pg_depend`, `pg_rewrite`.

use millpond_planner::{
    catalog::{Catalog, Object, ObjectBody, object::Column},
    types::{SqlType, modifier},
};

use crate::{
    error::Result,
    system_tables::{
        millpond,
        numbers::{self, OWNER, oid},
        registry::{MakeRows, SystemContext, SystemRelation},
        rows::{Cell, Row},
    },
};

/// The maker of a relation's rows, if it is one of these.
pub(crate) fn rows_of(name: &str) -> Option<MakeRows> {
    Some(match name {
        "pg_class" => pg_class,
        "pg_attribute" => pg_attribute,
        "pg_namespace" => pg_namespace,
        "pg_attrdef" => pg_attrdef,
        "pg_description" => pg_description,
        "pg_depend" => pg_depend,
        "pg_rewrite" => pg_rewrite,
        _ => return None,
    })
}

/// The kind that `pg_class` shows an object as; `None` for those that are no relations to Postgres.
pub(crate) fn relation_kind(object: &Object) -> Option<&'static str> {
    match object.body {
        ObjectBody::Table(_) => Some("r"),
        ObjectBody::Source(_) | ObjectBody::Sink(_) => Some("f"),
        ObjectBody::View(_) => Some("v"),
        ObjectBody::MaterializedView(_) => Some("m"),
        ObjectBody::Index(_) => Some("i"),
        ObjectBody::Schema => None,
    }
}

/// Objects with rows: tables, sources, views, materialized views.
pub(crate) fn relations(catalog: &Catalog) -> impl Iterator<Item = &Object> {
    catalog.objects().map(AsRef::as_ref).filter(|object| object.is_readable())
}

fn pg_class(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for object in context.catalog.objects() {
        let Some(kind) = relation_kind(object) else { continue };
        let mut row = class_row(oid(object.id), &object.name, oid(object.schema), kind);
        let columns = match &object.body {
            ObjectBody::Index(index) => index.columns.len(),
            _ => object.columns().len(),
        };
        let primary_key = object.table().and_then(|table| table.primary_key.as_ref());
        let indexed = context.catalog.dependants(object.id).any(|other| matches!(other.body, ObjectBody::Index(_)));
        row.extend([
            ("relnatts", Cell::from(columns)),
            ("relhasindex", (primary_key.is_some() || indexed).into()),
            ("relchecks", object.table().map_or(0, |table| table.checks.len()).into()),
            ("relhasrules", (kind == "v").into()),
            ("relreplident", if kind == "i" { "n" } else { "d" }.into()),
            ("reltuples", context.server.row_estimate(object.id).map_or(Cell::Float(-1.0), |rows| Cell::Float(rows as f64))),
            ("relpages", context.server.byte_estimate(object.id).map_or(0, |bytes| bytes / 8192).into()),
            ("reltype", if kind == "i" { 0 } else { numbers::row_type(object.id) }.into()),
            ("reloptions", options(object)),
        ]);
        rows.push(row);
        if let Some(key) = primary_key {
            let mut row = class_row(numbers::primary_key_index(object.id), &key.name, oid(object.schema), "i");
            row.extend([
                ("relnatts", Cell::from(key.columns.len())),
                ("relhasindex", false.into()),
                ("relchecks", 0.into()),
                ("relhasrules", false.into()),
                ("relreplident", "n".into()),
                ("reltuples", Cell::Float(-1.0)),
                ("relpages", 0.into()),
                ("reltype", 0.into()),
            ]);
            rows.push(row);
        }
    }
    for relation in context.relations.iter() {
        let mut row = class_row(relation.oid, &relation.name, schema_oid(context.catalog, relation), relation.kind);
        row.extend([
            ("relnatts", Cell::from(relation.schema.fields().len())),
            ("relhasindex", false.into()),
            ("relchecks", 0.into()),
            ("relhasrules", (relation.kind == "v").into()),
            ("relreplident", "n".into()),
            ("reltuples", Cell::Float(-1.0)),
            ("relpages", 0.into()),
            ("reltype", 0.into()),
        ]);
        rows.push(row);
    }
    Ok(rows)
}

fn schema_oid(catalog: &Catalog, relation: &SystemRelation) -> i32 {
    catalog.schema(relation.schema_name).map_or(0, |schema| oid(schema.id))
}

/// The columns of `pg_class` that say the same of all relations of a kind.
fn class_row(number: i32, name: &str, schema: i32, kind: &'static str) -> Row {
    let access_method = match kind {
        "r" | "m" => numbers::HEAP,
        "i" => numbers::BTREE,
        _ => 0,
    };
    let mut row: Row = vec![
        ("oid", number.into()),
        ("relname", name.into()),
        ("relnamespace", schema.into()),
        ("relowner", OWNER.into()),
        ("relam", access_method.into()),
        ("relfilenode", number.into()),
        ("relpersistence", "p".into()),
        ("relkind", kind.into()),
        ("relispopulated", true.into()),
    ];
    for name in ["reloftype", "reltablespace", "relallvisible", "reltoastrelid", "relrewrite", "relfrozenxid", "relminmxid"] {
        row.push((name, 0.into()));
    }
    for name in ["relisshared", "relhastriggers", "relhassubclass", "relrowsecurity", "relforcerowsecurity", "relispartition"] {
        row.push((name, false.into()));
    }
    row
}

fn options(object: &Object) -> Cell {
    let options = match &object.body {
        ObjectBody::Table(table) => &table.options,
        ObjectBody::MaterializedView(view) => &view.options,
        _ => return Cell::Null,
    };
    if options.is_empty() { Cell::Null } else { Cell::Texts(options.iter().map(|(key, value)| format!("{key}={value}")).collect()) }
}

/// How Postgres stores values of a type: length, by value, alignment, storage, collation.
fn layout(sql_type: &SqlType) -> (i16, bool, &'static str, &'static str, i32) {
    const DEFAULT_COLLATION: i32 = 100;
    match sql_type {
        SqlType::Boolean | SqlType::InternalChar => (1, true, "c", "p", 0),
        SqlType::SmallInt => (2, true, "s", "p", 0),
        SqlType::Integer | SqlType::Real | SqlType::Date => (4, true, "i", "p", 0),
        oid if oid.is_oid() => (4, true, "i", "p", 0),
        SqlType::BigInt | SqlType::Double | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => (8, true, "d", "p", 0),
        SqlType::Interval => (16, false, "d", "p", 0),
        SqlType::Uuid => (16, false, "c", "p", 0),
        SqlType::Name => (64, false, "c", "p", 950),
        SqlType::Numeric(..) => (-1, false, "i", "m", 0),
        SqlType::Text | SqlType::Varchar | SqlType::Char => (-1, false, "i", "x", DEFAULT_COLLATION),
        _ => (-1, false, "i", "x", 0),
    }
}

struct Attribute<'a> {
    relation: i32,
    name: &'a str,
    number: usize,
    sql_type: &'a SqlType,
    modifier: i32,
    not_null: bool,
    has_default: bool,
}

fn attribute_row(attribute: &Attribute<'_>) -> Row {
    let (length, by_value, align, storage, collation) = layout(attribute.sql_type);
    vec![
        ("attrelid", attribute.relation.into()),
        ("attname", attribute.name.into()),
        ("atttypid", attribute.sql_type.oid().into()),
        ("attstattarget", (-1).into()),
        ("attlen", length.into()),
        ("attnum", attribute.number.into()),
        ("attndims", i32::from(matches!(attribute.sql_type, SqlType::Array(_))).into()),
        ("attcacheoff", (-1).into()),
        ("atttypmod", attribute.modifier.into()),
        ("attbyval", by_value.into()),
        ("attalign", align.into()),
        ("attstorage", storage.into()),
        ("attcompression", "".into()),
        ("attnotnull", attribute.not_null.into()),
        ("atthasdef", attribute.has_default.into()),
        ("atthasmissing", false.into()),
        ("attidentity", "".into()),
        ("attgenerated", "".into()),
        ("attisdropped", false.into()),
        ("attislocal", true.into()),
        ("attinhcount", 0.into()),
        ("attcollation", collation.into()),
    ]
}

fn column_row(relation: i32, number: usize, column: &Column) -> Row {
    attribute_row(&Attribute {
        relation,
        name: &column.name,
        number,
        sql_type: &column.sql_type,
        modifier: column.modifier,
        not_null: column.not_null,
        has_default: column.default.is_some(),
    })
}

fn pg_attribute(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for object in context.catalog.objects() {
        if object.is_readable() || matches!(object.body, ObjectBody::Sink(_)) {
            rows.extend(object.columns().iter().zip(1..).map(|(column, number)| column_row(oid(object.id), number, column)));
        }
        let mut index_columns = |index: i32, relation: &Object, columns: &mut dyn Iterator<Item = usize>| {
            for (column, number) in columns.zip(1..) {
                if let Some(column) = relation.columns().get(column) {
                    rows.push(column_row(index, number, &Column { not_null: false, default: None, ..column.clone() }));
                }
            }
        };
        if let Some(key) = object.table().and_then(|table| table.primary_key.as_ref()) {
            index_columns(numbers::primary_key_index(object.id), object, &mut key.columns.iter().copied());
        }
        if let ObjectBody::Index(index) = &object.body
            && let Some(relation) = context.catalog.get(index.relation)
        {
            index_columns(oid(object.id), relation, &mut index.columns.iter().map(|(column, _)| *column));
        }
    }
    for relation in context.relations.iter() {
        for (field, number) in relation.schema.fields().iter().zip(1..) {
            let sql_type = SqlType::from_field(field).unwrap_or(SqlType::Text);
            rows.push(attribute_row(&Attribute {
                relation: relation.oid,
                name: field.name(),
                number,
                sql_type: &sql_type,
                modifier: modifier::NONE,
                not_null: false,
                has_default: false,
            }));
        }
    }
    Ok(rows)
}

fn pg_namespace(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let schemas = context.catalog.objects().filter(|object| matches!(object.body, ObjectBody::Schema));
    Ok(schemas
        .map(|schema| vec![("oid", oid(schema.id).into()), ("nspname", schema.name.as_str().into()), ("nspowner", OWNER.into())])
        .collect())
}

fn pg_attrdef(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for object in relations(context.catalog) {
        for (number, column) in object.columns().iter().enumerate() {
            if let Some(default) = &column.default {
                rows.push(vec![
                    ("oid", numbers::column_default(object.id, number).into()),
                    ("adrelid", oid(object.id).into()),
                    ("adnum", (number + 1).into()),
                    ("adbin", default.as_str().into()),
                ]);
            }
        }
    }
    Ok(rows)
}

fn pg_description(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut add = |object: i32, class: i32, column: usize, text: &str| {
        rows.push(vec![("objoid", object.into()), ("classoid", class.into()), ("objsubid", column.into()), ("description", text.into())]);
    };
    for object in context.catalog.objects() {
        let class = if matches!(object.body, ObjectBody::Schema) { numbers::PG_NAMESPACE } else { numbers::PG_CLASS };
        if let Some(comment) = &object.comment {
            add(oid(object.id), class, 0, comment);
        }
        for (column, number) in object.columns().iter().zip(1..) {
            if let Some(comment) = &column.comment {
                add(oid(object.id), numbers::PG_CLASS, number, comment);
            }
        }
    }
    for (name, text) in millpond::descriptions() {
        let (name, column) = name.split_once('.').map_or((name, None), |(relation, column)| (relation, Some(column)));
        let Some(relation) = context.relations.find("millpond", name) else { continue };
        let number = column.map_or(Some(0), |column| relation.schema.index_of(column).ok().map(|index| index + 1));
        if let Some(number) = number {
            add(relation.oid, numbers::PG_CLASS, number, text);
        }
    }
    Ok(rows)
}

/// A view depends on what it reads through its rule, as in Postgres.
fn pg_depend(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for object in context.catalog.objects() {
        let is_view = matches!(object.body, ObjectBody::View(_) | ObjectBody::MaterializedView(_));
        let (class, number) =
            if is_view { (numbers::PG_REWRITE, numbers::rewrite_rule(object.id)) } else { (numbers::PG_CLASS, oid(object.id)) };
        let mut add = |referenced: i32, kind: &str| {
            rows.push(vec![
                ("classid", class.into()),
                ("objid", number.into()),
                ("objsubid", 0.into()),
                ("refclassid", numbers::PG_CLASS.into()),
                ("refobjid", referenced.into()),
                ("refobjsubid", 0.into()),
                ("deptype", kind.into()),
            ]);
        };
        if is_view {
            add(oid(object.id), "i");
        }
        object.depends_on.iter().for_each(|id| add(oid(*id), if matches!(object.body, ObjectBody::Index(_)) { "a" } else { "n" }));
    }
    Ok(rows)
}

fn pg_rewrite(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let views = relations(context.catalog).filter(|object| matches!(object.body, ObjectBody::View(_) | ObjectBody::MaterializedView(_)));
    let row = |view: &Object| -> Row {
        vec![
            ("oid", numbers::rewrite_rule(view.id).into()),
            ("rulename", "_RETURN".into()),
            ("ev_class", oid(view.id).into()),
            ("ev_type", "1".into()),
            ("ev_enabled", "O".into()),
            ("is_instead", true.into()),
            ("ev_qual", "<>".into()),
            ("ev_action", view.definition().unwrap_or_default().into()),
        ]
    };
    Ok(views.map(row).collect())
}
