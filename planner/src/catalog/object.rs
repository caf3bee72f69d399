//! Objects of the catalog.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::{
    parse::statement::ObjectKind,
    pg_text::{ByteaOutput, DateOrder, DateStyle, IntervalStyle, TextSettings, Zone},
    types::SqlType,
};

/// A named object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its number for ever, which is its OID.
    pub id: u64,
    /// The number of its schema; 0 for schemas.
    pub schema: u64,
    /// Its name.
    pub name: String,
    /// COMMENT ON.
    pub comment: Option<String>,
    /// Numbers of the objects it needs.
    pub depends_on: BTreeSet<u64>,
    /// The statement that created it, as it was written.
    pub sql: String,
    /// What it is.
    pub body: ObjectBody,
}

/// What an object is.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectBody {
    /// A schema.
    Schema,
    /// A table.
    Table(Table),
    /// A source.
    Source(Source),
    /// A view.
    View(View),
    /// A materialized view.
    MaterializedView(MaterializedView),
    /// A sink.
    Sink(Sink),
    /// An index.
    Index(Index),
}

/// A column of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub sql_type: SqlType,
    /// Its typmod.
    pub modifier: i32,
    /// NOT NULL.
    pub not_null: bool,
    /// DEFAULT, as SQL.
    pub default: Option<String>,
    /// COMMENT ON COLUMN.
    pub comment: Option<String>,
}

impl Column {
    /// A column without constraints.
    pub fn new(name: impl Into<String>, sql_type: SqlType, modifier: i32) -> Self {
        Self { name: name.into(), sql_type, modifier, not_null: false, default: None, comment: None }
    }
}

/// A named condition of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// The condition, as SQL.
    pub expression: String,
}

/// A table's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryKey {
    /// The constraint's name.
    pub name: String,
    /// Columns, in the order of the key.
    pub columns: Vec<usize>,
}

/// WATERMARK FOR column AS column - delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The event time column.
    pub column: usize,
    /// Microseconds that rows may be late.
    pub delay_us: i64,
}

/// What to do with rows below the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateRows {
    /// They are kept.
    Keep,
    /// They are counted and shown in `millpond.late_rows`.
    Divert,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Its key, if any.
    pub primary_key: Option<PrimaryKey>,
    /// CHECK constraints.
    pub checks: Vec<Check>,
    /// Event time.
    pub watermark: Option<Watermark>,
    /// Of an event time below the watermark.
    pub late_rows: LateRows,
    /// Only INSERT and COPY are allowed.
    pub append_only: bool,
    /// WITH (..).
    pub options: BTreeMap<String, String>,
}

impl Table {
    /// Whether no row below the watermark is ever in it, nor leaves it.
    pub fn diverts_late_rows(&self) -> bool {
        self.append_only && self.watermark.is_some() && self.late_rows == LateRows::Divert
    }
}

/// A source.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Columns; none until they have been inferred.
    pub columns: Vec<Column>,
    /// Event time.
    pub watermark: Option<Watermark>,
    /// Of an event time below the watermark.
    pub late_rows: LateRows,
    /// WITH (..), and what FORMAT .. ENCODE .. said.
    pub options: BTreeMap<String, String>,
}

/// Settings of the session that a stored query was created in, which decide what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuerySettings {
    /// TimeZone.
    pub time_zone: String,
    /// DateStyle.
    pub date_style: String,
    /// IntervalStyle.
    pub interval_style: String,
    /// bytea_output.
    pub bytea_output: String,
    /// extra_float_digits.
    pub extra_float_digits: i32,
}

impl QuerySettings {
    /// What they say about the text form of values, in a time zone.
    pub fn text_in(&self, time_zone: Zone) -> TextSettings {
        let words: Vec<String> = self.date_style.split(',').map(|word| word.trim().to_uppercase()).collect();
        let has = |word: &str| words.iter().any(|other| other == word);
        TextSettings {
            time_zone,
            date_style: match () {
                () if has("SQL") => DateStyle::Sql,
                () if has("POSTGRES") => DateStyle::Postgres,
                () if has("GERMAN") => DateStyle::German,
                () => DateStyle::Iso,
            },
            date_order: match () {
                () if has("YMD") => DateOrder::Ymd,
                () if has("DMY") => DateOrder::Dmy,
                () => DateOrder::Mdy,
            },
            interval_style: match self.interval_style.as_str() {
                "postgres_verbose" => IntervalStyle::PostgresVerbose,
                "sql_standard" => IntervalStyle::SqlStandard,
                "iso_8601" => IntervalStyle::Iso8601,
                _ => IntervalStyle::Postgres,
            },
            bytea_output: if self.bytea_output == "escape" { ByteaOutput::Escape } else { ByteaOutput::Hex },
            extra_float_digits: self.extra_float_digits,
            now_us: None,
        }
    }
}

impl Default for QuerySettings {
    fn default() -> Self {
        Self {
            time_zone: "UTC".to_owned(),
            date_style: "ISO, MDY".to_owned(),
            interval_style: "postgres".to_owned(),
            bytea_output: "hex".to_owned(),
            extra_float_digits: 1,
        }
    }
}

/// A view.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Columns.
    pub columns: Vec<Column>,
    /// Its query, relations with their schemas.
    pub definition: String,
}

/// A materialized view.
#[derive(Clone, Debug, PartialEq)]
pub struct MaterializedView {
    /// Columns.
    pub columns: Vec<Column>,
    /// Its query, relations with their schemas.
    pub definition: String,
    /// Windows show when they are closed.
    pub emit_on_window_close: bool,
    /// WITH (..).
    pub options: BTreeMap<String, String>,
    /// Settings it was created under.
    pub settings: QuerySettings,
    /// Columns whose values are unique, once the plan has told.
    pub unique_key: Option<Vec<usize>>,
    /// The order of its joins, as [`crate::optimize::join_order::JoinOrder`] writes it, which its state depends on. None: as they are written.
    pub join_order: Option<String>,
}

/// Where a sink's rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkInput {
    /// A relation, by number.
    Relation(u64),
    /// A query, relations with their schemas.
    Query(String),
}

/// A sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Sink {
    /// Columns of its rows.
    pub columns: Vec<Column>,
    /// Where they come from.
    pub input: SinkInput,
    /// Windows leave when they are closed.
    pub emit_on_window_close: bool,
    /// WITH (..), and what FORMAT .. ENCODE .. said.
    pub options: BTreeMap<String, String>,
    /// Settings it was created under.
    pub settings: QuerySettings,
    /// The order of its query's joins, as that of a materialized view.
    pub join_order: Option<String>,
}

/// An index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The relation's number.
    pub relation: u64,
    /// Columns, and which are descending.
    pub columns: Vec<(usize, bool)>,
    /// UNIQUE.
    pub unique: bool,
}

impl Object {
    /// A schema.
    pub fn schema(id: u64, name: &str) -> Self {
        Self {
            id,
            schema: 0,
            name: name.to_owned(),
            comment: None,
            depends_on: BTreeSet::new(),
            sql: format!("CREATE SCHEMA {name}"),
            body: ObjectBody::Schema,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ObjectKind {
        match self.body {
            ObjectBody::Schema => ObjectKind::Schema,
            ObjectBody::Table(_) => ObjectKind::Table,
            ObjectBody::Source(_) => ObjectKind::Source,
            ObjectBody::View(_) => ObjectKind::View,
            ObjectBody::MaterializedView(_) => ObjectKind::MaterializedView,
            ObjectBody::Sink(_) => ObjectKind::Sink,
            ObjectBody::Index(_) => ObjectKind::Index,
        }
    }

    /// Columns that a query may name; none for schemas and indexes.
    pub fn columns(&self) -> &[Column] {
        match &self.body {
            ObjectBody::Table(table) => &table.columns,
            ObjectBody::Source(source) => &source.columns,
            ObjectBody::View(view) => &view.columns,
            ObjectBody::MaterializedView(view) => &view.columns,
            ObjectBody::Sink(sink) => &sink.columns,
            ObjectBody::Schema | ObjectBody::Index(_) => &[],
        }
    }

    /// The same, to be changed.
    pub fn columns_mut(&mut self) -> Option<&mut Vec<Column>> {
        match &mut self.body {
            ObjectBody::Table(table) => Some(&mut table.columns),
            ObjectBody::Source(source) => Some(&mut source.columns),
            ObjectBody::View(view) => Some(&mut view.columns),
            ObjectBody::MaterializedView(view) => Some(&mut view.columns),
            ObjectBody::Sink(sink) => Some(&mut sink.columns),
            ObjectBody::Schema | ObjectBody::Index(_) => None,
        }
    }

    /// The stored query of a view, materialized view or sink.
    pub fn definition(&self) -> Option<&str> {
        match &self.body {
            ObjectBody::View(view) => Some(&view.definition),
            ObjectBody::MaterializedView(view) => Some(&view.definition),
            ObjectBody::Sink(Sink { input: SinkInput::Query(definition), .. }) => Some(definition),
            _ => None,
        }
    }

    /// Replaces the stored query.
    pub fn set_definition(&mut self, text: String) {
        match &mut self.body {
            ObjectBody::View(view) => view.definition = text,
            ObjectBody::MaterializedView(view) => view.definition = text,
            ObjectBody::Sink(sink) => sink.input = SinkInput::Query(text),
            _ => {}
        }
    }

    /// The order of the joins of a materialized view or sink.
    pub fn join_order(&self) -> Option<&str> {
        match &self.body {
            ObjectBody::MaterializedView(view) => view.join_order.as_deref(),
            ObjectBody::Sink(sink) => sink.join_order.as_deref(),
            _ => None,
        }
    }

    /// Sets it, once the plan has told.
    pub fn set_join_order(&mut self, text: Option<String>) {
        match &mut self.body {
            ObjectBody::MaterializedView(view) => view.join_order = text,
            ObjectBody::Sink(sink) => sink.join_order = text,
            _ => {}
        }
    }

    /// Whether a query may read it.
    pub fn is_readable(&self) -> bool {
        matches!(self.body, ObjectBody::Table(_) | ObjectBody::Source(_) | ObjectBody::View(_) | ObjectBody::MaterializedView(_))
    }

    /// The Arrow schema of its columns.
    pub fn arrow_schema(&self) -> SchemaRef {
        Arc::new(arrow_schema(self.columns()))
    }

    /// The table, if it is one.
    pub fn table(&self) -> Option<&Table> {
        match &self.body {
            ObjectBody::Table(table) => Some(table),
            _ => None,
        }
    }
}

/// The Arrow schema of columns.
pub fn arrow_schema(columns: &[Column]) -> Schema {
    let fields = columns.iter().map(|column| Field::new(&column.name, column.sql_type.arrow(), !column.not_null));
    Schema::new(fields.collect::<Vec<_>>())
}
