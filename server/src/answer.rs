//! What a statement answers: rows, a command tag, or one half of a COPY. The wire layer turns it into messages.

use std::fmt;

use arrow::{datatypes::DataType, record_batch::RecordBatch};
use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::error::SqlError;

/// A stream of batches, all of one schema. It ends with the first error. Dropping it stops the query.
pub type BatchStream = BoxStream<'static, Result<RecordBatch, SqlError>>;

/// A result column as Postgres describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, `?column?` when it has none.
    pub name: String,
    /// The Arrow type its values come in.
    pub data_type: DataType,
    /// OID of the Postgres type.
    pub type_oid: i32,
    /// Type modifier (length or precision), -1 when there is none.
    pub type_modifier: i32,
    /// OID of the table it is taken from unchanged, else 0.
    pub table_oid: i32,
    /// Number of the column in that table from 1, else 0.
    pub column_number: i16,
}

/// Which command tag follows the rows. The wire layer counts the rows it has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowsTag {
    /// `SELECT n`
    Select,
    /// `INSERT 0 n`
    InsertReturning,
    /// `UPDATE n`
    UpdateReturning,
    /// `DELETE n`
    DeleteReturning,
    /// `FETCH n`
    Fetch,
    /// `SHOW`
    Show,
    /// `EXPLAIN`
    Explain,
}

impl RowsTag {
    /// The tag after `rows` rows.
    pub fn text(self, rows: u64) -> String {
        match self {
            RowsTag::Select => format!("SELECT {rows}"),
            RowsTag::InsertReturning => format!("INSERT 0 {rows}"),
            RowsTag::UpdateReturning => format!("UPDATE {rows}"),
            RowsTag::DeleteReturning => format!("DELETE {rows}"),
            RowsTag::Fetch => format!("FETCH {rows}"),
            RowsTag::Show => "SHOW".to_owned(),
            RowsTag::Explain => "EXPLAIN".to_owned(),
        }
    }
}

/// The encoding of a COPY, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// Tab-separated lines with backslash escapes.
    Text {
        /// Between two values.
        delimiter: u8,
        /// Stands for NULL.
        null: String,
        /// First line names the columns.
        header: bool,
    },
    /// RFC 4180.
    Csv {
        /// Between two values.
        delimiter: u8,
        /// Stands for NULL (unquoted).
        null: String,
        /// First line names the columns.
        header: bool,
        /// Encloses values.
        quote: u8,
        /// Escapes a quote inside quotes.
        escape: u8,
        /// TO: by column, values that are not NULL are quoted whatever they are.
        force_quote: Vec<bool>,
        /// FROM: by column, an unquoted NULL text is a value all the same.
        force_not_null: Vec<bool>,
        /// FROM: by column, a quoted NULL text is NULL too.
        force_null: Vec<bool>,
    },
    /// Postgres' binary format.
    Binary,
}

/// Takes the data of a `COPY .. FROM STDIN`. Nothing of it is visible before `finish` has returned.
#[async_trait]
pub trait CopySink: Send {
    /// The next bytes, cut anywhere. Waits while the table takes no more.
    async fn push(&mut self, bytes: &[u8]) -> Result<(), SqlError>;

    /// The client has sent everything: the rows are written. Answers the command tag, `COPY n`.
    async fn finish(self: Box<Self>) -> Result<String, SqlError>;

    /// The client gave up, with its reason.
    async fn abort(self: Box<Self>, reason: String) -> SqlError;
}

/// The answer to one statement.
pub enum Answer {
    /// Rows. Only when the stream has ended without an error has the statement succeeded.
    Rows {
        /// The columns of the batches.
        columns: Vec<Column>,
        /// The rows.
        stream: BatchStream,
        /// What follows them.
        tag: RowsTag,
    },
    /// No rows.
    Done {
        /// The command tag.
        tag: String,
    },
    /// The statement was empty.
    Empty,
    /// The client is to send data.
    CopyIn {
        /// The columns expected, in order.
        columns: Vec<Column>,
        /// Their encoding.
        format: CopyFormat,
        /// Where the data goes.
        sink: Box<dyn CopySink>,
    },
    /// Data for the client.
    CopyOut {
        /// The columns of the batches.
        columns: Vec<Column>,
        /// Their encoding.
        format: CopyFormat,
        /// The rows.
        stream: BatchStream,
    },
}

impl Answer {
    /// A command tag and nothing else.
    pub fn done(tag: impl Into<String>) -> Self {
        Answer::Done { tag: tag.into() }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Rows { columns, tag, .. } => f.debug_struct("Rows").field("columns", columns).field("tag", tag).finish_non_exhaustive(),
            Answer::Done { tag } => f.debug_struct("Done").field("tag", tag).finish(),
            Answer::Empty => f.write_str("Empty"),
            Answer::CopyIn { columns, format, .. } => {
                f.debug_struct("CopyIn").field("columns", columns).field("format", format).finish_non_exhaustive()
            }
            Answer::CopyOut { columns, format, .. } => {
                f.debug_struct("CopyOut").field("columns", columns).field("format", format).finish_non_exhaustive()
            }
        }
    }
}
