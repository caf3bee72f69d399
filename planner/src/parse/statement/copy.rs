//! COPY.

use sqlparser::ast::{Ident, ObjectName, Query};

/// What COPY copies.
#[derive(Clone, Debug, PartialEq)]
pub enum CopyRelation {
    /// A table and, if given, some of its columns.
    Table {
        /// The table.
        name: ObjectName,
        /// Columns, in the order of the data.
        columns: Vec<Ident>,
    },
    /// The rows of a query.
    Query(Box<Query>),
}

/// COPY .. FROM STDIN or TO STDOUT.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// What is copied.
    pub relation: CopyRelation,
    /// FROM STDIN; else TO STDOUT.
    pub from: bool,
    /// How rows are written.
    pub options: CopyOptions,
}

/// Form of COPY data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Tab-separated with backslash escapes.
    Text,
    /// Comma-separated with quotes.
    Csv,
    /// Postgres' binary form.
    Binary,
}

/// Options of COPY, with Postgres' defaults for the format filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// The form.
    pub format: CopyFormat,
    /// Between columns.
    pub delimiter: char,
    /// What stands for NULL.
    pub null: String,
    /// A first line of names (written, or skipped when read).
    pub header: bool,
    /// CSV quotes.
    pub quote: char,
    /// CSV escapes inside of quotes.
    pub escape: char,
    /// CSV: columns that are always quoted; an empty name list with `true` means all.
    pub force_quote: Vec<Ident>,
    /// CSV: every column is quoted.
    pub force_quote_all: bool,
    /// CSV: columns whose values are never NULL.
    pub force_not_null: Vec<Ident>,
    /// CSV: columns whose quoted NULL text is NULL too.
    pub force_null: Vec<Ident>,
}
