//! The catalog on disk: each change is one JSON record with a version. Structs of their own, so that a change of the catalog's shape is a
//! choice about the format too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Catalog, CatalogChange, ChangeStep, FIRST_USER_ID, Object, ObjectBody,
    object::{
        Check, Column, Index, LateRows, MaterializedView, PrimaryKey, QuerySettings, Sink, SinkInput, Source, Table, View, Watermark,
    },
};
use crate::{
    error::{PlanError, Result},
    types::{SqlType, name::parse_type_name},
};

/// Version of the records that are written.
pub const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct ChangeRecord {
    version: u32,
    next_id: u64,
    #[serde(default)]
    put: Vec<ObjectRecord>,
    #[serde(default)]
    remove: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct ObjectRecord {
    id: u64,
    schema: u64,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    depends_on: BTreeSet<u64>,
    sql: String,
    #[serde(flatten)]
    body: BodyRecord,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum BodyRecord {
    Schema,
    Table {
        columns: Vec<ColumnRecord>,
        primary_key: Option<(String, Vec<usize>)>,
        checks: Vec<(String, String)>,
        watermark: Option<(usize, i64)>,
        divert_late_rows: bool,
        append_only: bool,
        options: BTreeMap<String, String>,
    },
    Source {
        columns: Vec<ColumnRecord>,
        watermark: Option<(usize, i64)>,
        divert_late_rows: bool,
        options: BTreeMap<String, String>,
    },
    View {
        columns: Vec<ColumnRecord>,
        definition: String,
    },
    MaterializedView {
        columns: Vec<ColumnRecord>,
        definition: String,
        emit_on_window_close: bool,
        options: BTreeMap<String, String>,
        settings: SettingsRecord,
        unique_key: Option<Vec<usize>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        join_order: Option<String>,
    },
    Sink {
        columns: Vec<ColumnRecord>,
        from: Option<u64>,
        definition: Option<String>,
        emit_on_window_close: bool,
        options: BTreeMap<String, String>,
        settings: SettingsRecord,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        join_order: Option<String>,
    },
    Index {
        relation: u64,
        columns: Vec<(usize, bool)>,
        unique: bool,
    },
}

/// The type is written as SQL: `numeric(5,2)`. Numerics whose digits no declaration gave (results of expressions) are written with `digits`.
#[derive(Serialize, Deserialize)]
struct ColumnRecord {
    name: String,
    r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digits: Option<(u8, i8)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    not_null: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct SettingsRecord {
    time_zone: String,
    date_style: String,
    interval_style: String,
    bytea_output: String,
    extra_float_digits: i32,
}

impl CatalogChange {
    /// The record of the change.
    pub fn to_record(&self) -> Vec<u8> {
        let mut record = ChangeRecord { version: VERSION, next_id: self.next_id, put: Vec::new(), remove: Vec::new() };
        for step in &self.steps {
            match step {
                ChangeStep::Put(object) => record.put.push(write_object(object)),
                ChangeStep::Remove(id) => record.remove.push(*id),
            }
        }
        serde_json::to_vec(&record).expect("records hold strings, numbers and lists only")
    }

    /// The change of a record.
    ///
    /// # Errors
    /// XX000 for a record that is none, or of a later version.
    pub fn from_record(bytes: &[u8]) -> Result<Self> {
        let record: ChangeRecord =
            serde_json::from_slice(bytes).map_err(|error| PlanError::internal(format!("catalog record cannot be read: {error}")))?;
        if record.version > VERSION {
            let message = format!("catalog record has version {}, this server reads up to {VERSION}", record.version);
            return Err(PlanError::internal(message).with_hint("Start the newer server again."));
        }
        let mut steps: Vec<_> = record.remove.into_iter().map(ChangeStep::Remove).collect();
        for object in record.put {
            steps.push(ChangeStep::Put(Arc::new(read_object(object)?)));
        }
        Ok(Self { steps, next_id: record.next_id })
    }
}

impl Catalog {
    /// The catalog that records, in order, lead to.
    ///
    /// # Errors
    /// As [`CatalogChange::from_record`] and [`Catalog::apply`].
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Result<Self> {
        records.into_iter().try_fold(Self::default(), |catalog, record| catalog.apply(&CatalogChange::from_record(record)?))
    }

    /// One record that leads to this catalog.
    pub fn to_record(&self) -> Vec<u8> {
        let changed = |object: &&Arc<Object>| object.id >= FIRST_USER_ID || object.comment.is_some();
        let steps = self.objects().filter(changed).map(|object| ChangeStep::Put(Arc::clone(object))).collect();
        CatalogChange { steps, next_id: self.next_id() }.to_record()
    }
}

fn write_object(object: &Object) -> ObjectRecord {
    let columns = |columns: &[Column]| columns.iter().map(write_column).collect();
    let watermark = |watermark: Option<Watermark>| watermark.map(|watermark| (watermark.column, watermark.delay_us));
    let body = match &object.body {
        ObjectBody::Schema => BodyRecord::Schema,
        ObjectBody::Table(table) => BodyRecord::Table {
            columns: columns(&table.columns),
            primary_key: table.primary_key.as_ref().map(|key| (key.name.clone(), key.columns.clone())),
            checks: table.checks.iter().map(|check| (check.name.clone(), check.expression.clone())).collect(),
            watermark: watermark(table.watermark),
            divert_late_rows: table.late_rows == LateRows::Divert,
            append_only: table.append_only,
            options: table.options.clone(),
        },
        ObjectBody::Source(source) => BodyRecord::Source {
            columns: columns(&source.columns),
            watermark: watermark(source.watermark),
            divert_late_rows: source.late_rows == LateRows::Divert,
            options: source.options.clone(),
        },
        ObjectBody::View(view) => BodyRecord::View { columns: columns(&view.columns), definition: view.definition.clone() },
        ObjectBody::MaterializedView(view) => BodyRecord::MaterializedView {
            columns: columns(&view.columns),
            definition: view.definition.clone(),
            emit_on_window_close: view.emit_on_window_close,
            options: view.options.clone(),
            settings: write_settings(&view.settings),
            unique_key: view.unique_key.clone(),
            join_order: view.join_order.clone(),
        },
        ObjectBody::Sink(sink) => BodyRecord::Sink {
            columns: columns(&sink.columns),
            from: if let SinkInput::Relation(id) = sink.input { Some(id) } else { None },
            definition: if let SinkInput::Query(text) = &sink.input { Some(text.clone()) } else { None },
            emit_on_window_close: sink.emit_on_window_close,
            options: sink.options.clone(),
            settings: write_settings(&sink.settings),
            join_order: sink.join_order.clone(),
        },
        ObjectBody::Index(index) => BodyRecord::Index { relation: index.relation, columns: index.columns.clone(), unique: index.unique },
    };
    ObjectRecord {
        id: object.id,
        schema: object.schema,
        name: object.name.clone(),
        comment: object.comment.clone(),
        depends_on: object.depends_on.clone(),
        sql: object.sql.clone(),
        body,
    }
}

fn read_object(record: ObjectRecord) -> Result<Object> {
    let columns = |columns: Vec<ColumnRecord>| columns.into_iter().map(read_column).collect::<Result<Vec<_>>>();
    let watermark = |watermark: Option<(usize, i64)>| watermark.map(|(column, delay_us)| Watermark { column, delay_us });
    let late_rows = |divert: bool| if divert { LateRows::Divert } else { LateRows::Keep };
    let body = match record.body {
        BodyRecord::Schema => ObjectBody::Schema,
        BodyRecord::Table { columns: list, primary_key, checks, watermark: mark, divert_late_rows, append_only, options } => {
            ObjectBody::Table(Table {
                columns: columns(list)?,
                primary_key: primary_key.map(|(name, columns)| PrimaryKey { name, columns }),
                checks: checks.into_iter().map(|(name, expression)| Check { name, expression }).collect(),
                watermark: watermark(mark),
                late_rows: late_rows(divert_late_rows),
                append_only,
                options,
            })
        }
        BodyRecord::Source { columns: list, watermark: mark, divert_late_rows, options } => ObjectBody::Source(Source {
            columns: columns(list)?,
            watermark: watermark(mark),
            late_rows: late_rows(divert_late_rows),
            options,
        }),
        BodyRecord::View { columns: list, definition } => ObjectBody::View(View { columns: columns(list)?, definition }),
        BodyRecord::MaterializedView { columns: list, definition, emit_on_window_close, options, settings, unique_key, join_order } => {
            let (columns, settings) = (columns(list)?, read_settings(settings));
            ObjectBody::MaterializedView(MaterializedView {
                columns,
                definition,
                emit_on_window_close,
                options,
                settings,
                unique_key,
                join_order,
            })
        }
        BodyRecord::Sink { columns: list, from, definition, emit_on_window_close, options, settings, join_order } => {
            let input = match (from, definition) {
                (Some(id), _) => SinkInput::Relation(id),
                (None, Some(text)) => SinkInput::Query(text),
                (None, None) => return Err(PlanError::internal("catalog record of a sink without input")),
            };
            let (columns, settings) = (columns(list)?, read_settings(settings));
            ObjectBody::Sink(Sink { columns, input, emit_on_window_close, options, settings, join_order })
        }
        BodyRecord::Index { relation, columns, unique } => ObjectBody::Index(Index { relation, columns, unique }),
    };
    Ok(Object {
        id: record.id,
        schema: record.schema,
        name: record.name,
        comment: record.comment,
        depends_on: record.depends_on,
        sql: record.sql,
        body,
    })
}

fn write_column(column: &Column) -> ColumnRecord {
    ColumnRecord {
        name: column.name.clone(),
        r#type: column.sql_type.name_with(column.modifier),
        digits: match column.sql_type {
            SqlType::Numeric(precision, scale) if column.modifier < 0 && column.sql_type != SqlType::NUMERIC => Some((precision, scale)),
            _ => None,
        },
        not_null: column.not_null,
        default: column.default.clone(),
        comment: column.comment.clone(),
    }
}

fn read_column(record: ColumnRecord) -> Result<Column> {
    let (sql_type, modifier) = parse_type_name(&record.r#type)?;
    let sql_type = record.digits.map_or(sql_type, |(precision, scale)| SqlType::Numeric(precision, scale));
    let (not_null, default, comment) = (record.not_null, record.default, record.comment);
    Ok(Column { name: record.name, sql_type, modifier, not_null, default, comment })
}

fn write_settings(settings: &QuerySettings) -> SettingsRecord {
    SettingsRecord {
        time_zone: settings.time_zone.clone(),
        date_style: settings.date_style.clone(),
        interval_style: settings.interval_style.clone(),
        bytea_output: settings.bytea_output.clone(),
        extra_float_digits: settings.extra_float_digits,
    }
}

fn read_settings(record: SettingsRecord) -> QuerySettings {
    let SettingsRecord { time_zone, date_style, interval_style, bytea_output, extra_float_digits } = record;
    QuerySettings { time_zone, date_style, interval_style, bytea_output, extra_float_digits }
}
