//! Statements that define, change and drop objects.

use sqlparser::{
    ast::{self, Expr, Ident, ObjectName, Query},
    tokenizer::{Location, Span},
};

/// A key and a value of WITH (..).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithOption {
    /// Lower case, dots inside.
    pub key: String,
    /// As text: strings without quotes, numbers and words as written.
    pub value: String,
    /// Where the key stands.
    pub span: Span,
}

/// A column of a table or source.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDefinition {
    /// The name.
    pub name: Ident,
    /// The type.
    pub data_type: ast::DataType,
    /// NOT NULL.
    pub not_null: bool,
    /// DEFAULT: the expression and its text.
    pub default: Option<(Expr, String)>,
    /// PRIMARY KEY.
    pub primary_key: bool,
    /// CHECK: name, expression, text.
    pub checks: Vec<CheckDefinition>,
}

/// CHECK (..).
#[derive(Clone, Debug, PartialEq)]
pub struct CheckDefinition {
    /// CONSTRAINT name.
    pub name: Option<Ident>,
    /// The condition.
    pub expression: Expr,
    /// Its text.
    pub text: String,
}

/// WATERMARK FOR column AS expression.
#[derive(Clone, Debug, PartialEq)]
pub struct WatermarkDefinition {
    /// The event time column.
    pub column: Ident,
    /// Below it no further rows come.
    pub expression: Expr,
    /// Its text.
    pub text: String,
}

/// What stands in the parentheses of CREATE TABLE and CREATE SOURCE.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableElements {
    /// Columns, in order.
    pub columns: Vec<ColumnDefinition>,
    /// PRIMARY KEY (..), with the name of the constraint.
    pub primary_key: Option<(Option<Ident>, Vec<Ident>)>,
    /// CHECK (..).
    pub checks: Vec<CheckDefinition>,
    /// WATERMARK FOR ..
    pub watermark: Option<WatermarkDefinition>,
}

/// CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// The name.
    pub name: ObjectName,
    /// No error if it is there.
    pub if_not_exists: bool,
    /// Columns and constraints.
    pub elements: TableElements,
    /// WITH (..), APPEND ONLY.
    pub options: Vec<WithOption>,
}

/// CREATE TABLE .. AS query.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTableAs {
    /// The name.
    pub name: ObjectName,
    /// No error if it is there.
    pub if_not_exists: bool,
    /// Names of columns, if given.
    pub columns: Vec<Ident>,
    /// WITH (..).
    pub options: Vec<WithOption>,
    /// Where rows come from.
    pub query: Box<Query>,
    /// WITH NO DATA.
    pub no_data: bool,
}

/// CREATE SOURCE.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSource {
    /// The name.
    pub name: ObjectName,
    /// No error if it is there.
    pub if_not_exists: bool,
    /// Columns; none if they are to be inferred.
    pub elements: TableElements,
    /// WITH (..), and FORMAT .. ENCODE .. (..) turned into the key `format` and the encoder's own.
    pub options: Vec<WithOption>,
}

/// The text of a query inside of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryText {
    /// The text.
    pub text: String,
    /// Where it starts in the script.
    pub start: Location,
}

/// Where a sink's rows come from.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkInput {
    /// FROM relation
    Relation(ObjectName),
    /// AS query, with its text
    Query(Box<Query>, QueryText),
}

/// CREATE SINK.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSink {
    /// The name.
    pub name: ObjectName,
    /// No error if it is there.
    pub if_not_exists: bool,
    /// Where its rows come from.
    pub input: SinkInput,
    /// EMIT ON WINDOW CLOSE.
    pub emit_on_window_close: bool,
    /// As [`CreateSource::options`].
    pub options: Vec<WithOption>,
}

/// CREATE [MATERIALIZED] VIEW.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// The name.
    pub name: ObjectName,
    /// Kept up to date.
    pub materialized: bool,
    /// OR REPLACE.
    pub or_replace: bool,
    /// No error if it is there.
    pub if_not_exists: bool,
    /// Names of columns, if given.
    pub columns: Vec<Ident>,
    /// WITH (..).
    pub options: Vec<WithOption>,
    /// What it shows.
    pub query: Box<Query>,
    /// The query's text.
    pub query_text: QueryText,
    /// EMIT ON WINDOW CLOSE.
    pub emit_on_window_close: bool,
}

/// CREATE INDEX.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// The name, if given.
    pub name: Option<Ident>,
    /// On what.
    pub table: ObjectName,
    /// No error if it is there.
    pub if_not_exists: bool,
    /// UNIQUE.
    pub unique: bool,
    /// Columns, and which are descending.
    pub columns: Vec<(Ident, bool)>,
}

/// Kinds of objects that statements name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A source.
    Source,
    /// A sink.
    Sink,
    /// A view.
    View,
    /// A materialized view.
    MaterializedView,
    /// An index.
    Index,
    /// A schema.
    Schema,
}

impl ObjectKind {
    /// As in tags: `DROP MATERIALIZED VIEW`.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Table => "TABLE",
            Self::Source => "SOURCE",
            Self::Sink => "SINK",
            Self::View => "VIEW",
            Self::MaterializedView => "MATERIALIZED VIEW",
            Self::Index => "INDEX",
            Self::Schema => "SCHEMA",
        }
    }

    /// As in messages: `materialized view`.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Source => "source",
            Self::Sink => "sink",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Index => "index",
            Self::Schema => "schema",
        }
    }
}

/// DROP.
#[derive(Clone, Debug, PartialEq)]
pub struct Drop {
    /// What kind.
    pub kind: ObjectKind,
    /// Which ones.
    pub names: Vec<ObjectName>,
    /// No error if one is not there.
    pub if_exists: bool,
    /// Dependants too.
    pub cascade: bool,
}

/// ALTER.
#[derive(Clone, Debug, PartialEq)]
pub struct Alter {
    /// What kind.
    pub kind: ObjectKind,
    /// Which one.
    pub name: ObjectName,
    /// No error if it is not there.
    pub if_exists: bool,
    /// What is changed.
    pub action: AlterAction,
}

/// What ALTER changes.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterAction {
    /// RENAME TO
    Rename(Ident),
    /// RENAME COLUMN .. TO
    RenameColumn(Ident, Ident),
    /// SET SCHEMA
    SetSchema(Ident),
    /// OWNER TO, which changes nothing
    Owner(Ident),
    /// SET (option = value, ..), SET PARALLELISM, RESET (option, ..): names in lower case; `None` for what is reset
    SetOptions(Vec<(String, Option<String>)>),
    /// RESUME [SKIP]
    Resume {
        /// What failed is left out.
        skip: bool,
    },
    /// FAIL SUBTASK .. OF FRAGMENT
    FailSubtask {
        /// The fragment.
        fragment: i64,
        /// Index in it.
        subtask: i64,
    },
}

impl AlterAction {
    /// Whether it is an order to the job behind the object.
    pub fn is_about_a_job(&self) -> bool {
        matches!(self, Self::SetOptions(_) | Self::Resume { .. } | Self::FailSubtask { .. })
    }
}

/// COMMENT ON.
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    /// The kind of object; `None` for a column.
    pub kind: Option<ObjectKind>,
    /// The object; for a column, its name is the last part.
    pub name: ObjectName,
    /// The text; `None` removes it.
    pub text: Option<String>,
}
