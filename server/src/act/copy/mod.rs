//! COPY .. FROM STDIN: decodes rows in bounded pieces, checks them as they come, and writes them as one change when the client has sent all.
//!
//! All rows of a COPY are one transaction and become visible in one epoch. They are kept in memory until then, within the memory budget: a
//! load that does not fit is refused with 53200 and has to be cut.

pub(crate) mod binary;
pub(crate) mod csv;
pub(crate) mod fields;
mod fit;
mod start;
#[cfg(test)]
mod tests;
pub(crate) mod text;

pub(crate) use start::{from_stdin, to_stdout};

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use datafusion::physical_expr::PhysicalExpr;
use millpond_planner::pg_text::{TextSettings, parse_text_array};
use millpond_storage::memory::MemoryHandle;
use parking_lot::Mutex;

use crate::{
    act::{
        copy::fields::{Fields, Lines, Piece, RowDecoder, shown},
        dml::{table_change::TableChange, target::Target, work::Work},
    },
    answer::{CopyFormat, CopySink},
    error::{Result, SqlError},
    session::cancel::Cancel,
    state::ServerState,
};

/// Rows and bytes after which decoded values are typed and checked.
const PIECE_ROWS: usize = 8192;
const PIECE_BYTES: usize = 4 << 20;

/// A transaction's work while a COPY has it.
#[derive(Default)]
pub(crate) struct Lent {
    /// The work, before and after.
    pub(crate) work: Option<Work>,
    /// The COPY failed, and its transaction with it.
    pub(crate) failed: bool,
    /// The COPY has ended.
    pub(crate) ended: bool,
}

/// Where the rows of a COPY go.
pub(crate) enum Destination {
    /// Into a transaction of their own.
    Alone,
    /// Into the transaction of the session, which waits for it.
    Lent(Arc<Mutex<Lent>>),
}

/// How a column of the table is filled.
pub(crate) enum Filling {
    /// With this value of the row.
    Value(usize),
    /// With its default, an expression without columns.
    Default(Arc<dyn PhysicalExpr>),
}

/// Into what the rows are made.
pub(crate) struct CopyTarget {
    /// The table.
    pub(crate) target: Arc<Target>,
    /// Its columns that the data gives, in the order of the data.
    pub(crate) columns: Vec<usize>,
    /// Where each of its columns comes from.
    pub(crate) filling: Vec<Filling>,
    /// How values look.
    pub(crate) text: TextSettings,
}

/// The rows of one COPY.
pub(crate) struct TableCopy {
    state: Arc<ServerState>,
    target: Arc<Target>,
    columns: Vec<usize>,
    filling: Vec<Filling>,
    decoder: Box<dyn RowDecoder>,
    fields: Fields,
    text: TextSettings,
    destination: Destination,
    rows: Vec<(RecordBatch, Lines)>,
    count: u64,
    memory: MemoryHandle,
    cancel: Cancel,
}

impl TableCopy {
    /// A COPY into a table.
    pub(crate) fn new(state: Arc<ServerState>, copy: CopyTarget, format: &CopyFormat, destination: Destination, cancel: Cancel) -> Self {
        let CopyTarget { target, columns, filling, text } = copy;
        let names = columns.iter().map(|column| target.schema().field(*column).name().clone()).collect();
        let decoder: Box<dyn RowDecoder> = match format {
            CopyFormat::Text { delimiter, null, header } => Box::new(text::TextDecoder::new(*delimiter, null, *header)),
            CopyFormat::Csv { delimiter, null, header, quote, escape, force_not_null, force_null, .. } => {
                let decoder = csv::CsvDecoder::new(*delimiter, *quote, *escape, null, *header);
                Box::new(decoder.with_forced(force_not_null.clone(), force_null.clone()))
            }
            CopyFormat::Binary => {
                let types = columns.iter().map(|column| target.object.columns()[*column].sql_type.clone()).collect();
                Box::new(binary::BinaryDecoder::new(types, text.clone()))
            }
        };
        let memory = state.memory.handle("copy");
        let (fields, rows) = (Fields::new(names), Vec::new());
        Self { fields, state, target, columns, filling, decoder, text, destination, rows, count: 0, memory, cancel }
    }

    /// Types and checks the rows decoded so far.
    fn take_piece(&mut self) -> Result<()> {
        let rows = self.fields.rows();
        if rows == 0 {
            return Ok(());
        }
        let piece = self.fields.take();
        let batch = self.typed(&piece.columns, rows).map_err(|error| self.first_failure(&piece).unwrap_or(error))?;
        let lines = piece.into_lines();
        if !self.memory.try_grow(batch.get_array_memory_size() + lines.bytes()) {
            return Err(SqlError::new("53200", "out of memory")
                .with_detail("The rows of the COPY do not fit into the server's memory limit.")
                .with_hint("Copy in smaller parts."));
        }
        self.count += rows as u64;
        self.rows.push((batch, lines));
        Ok(())
    }

    /// Rows of the table from decoded values, checked.
    fn typed(&self, texts: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
        let schema = self.target.schema().clone();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.filling.len());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        for (number, filling) in self.filling.iter().enumerate() {
            columns.push(match filling {
                Filling::Value(value) => self.typed_column(number, &texts[*value])?,
                Filling::Default(default) => {
                    let empty = RecordBatch::try_new_with_options(Arc::new(arrow::datatypes::Schema::empty()), Vec::new(), &options)?;
                    default.evaluate(&empty)?.into_array(rows)?
                }
            });
        }
        let batch = RecordBatch::try_new_with_options(nullable(&schema), columns, &options)?;
        self.target.check(&batch, &self.text)?;
        checked(&batch, &schema)
    }

    /// A column of the table from decoded values.
    fn typed_column(&self, number: usize, texts: &ArrayRef) -> Result<ArrayRef> {
        let column = &self.target.object.columns()[number];
        let typed = parse_text_array(texts, self.target.schema().field(number).data_type(), &self.text)
            .map_err(|error| SqlError::new(error.sqlstate, error.message))?;
        fit::fit(typed, &column.sql_type, column.modifier)
    }

    /// The error of the first row that is refused, with its place: columns are typed whole, so one that failed may have hidden an earlier row's.
    fn first_failure(&self, piece: &Piece) -> Option<SqlError> {
        (0..piece.rows()).find_map(|row| {
            let (line, start) = piece.place(row);
            let texts: Vec<ArrayRef> = piece.columns.iter().map(|column| column.slice(row, 1)).collect();
            for (number, text) in self.columns.iter().zip(&texts) {
                if let Err(error) = self.typed_column(*number, text) {
                    return Some(error.with_context(self.column_context(line, *number, text)));
                }
            }
            self.typed(&texts, 1).err().map(|error| error.with_context(self.context(line, Some(start))))
        })
    }

    fn column_context(&self, line: u64, number: usize, text: &ArrayRef) -> String {
        let place = format!("{}, column {}", self.context(line, None), self.target.object.columns()[number].name);
        if text.is_null(0) {
            return format!("{place}: null input");
        }
        match self.decoder.place().1.and_then(|_| shown(text.as_string::<i32>().value(0).as_bytes())) {
            Some(value) => format!("{place}: \"{value}\""),
            None => place,
        }
    }

    fn context(&self, line: u64, start: Option<&[u8]>) -> String {
        let place = format!("COPY {}, line {line}", self.target.object.name);
        match start.filter(|_| self.decoder.place().1.is_some()).and_then(shown) {
            Some(text) => format!("{place}: \"{text}\""),
            None => place,
        }
    }

    /// The error of the row that could not be decoded, unless a row before it is refused.
    fn undecoded(&mut self, error: SqlError) -> SqlError {
        if let Err(earlier) = self.take_piece() {
            return earlier;
        }
        let (line, start) = self.decoder.place();
        let context = self.context(line, start.filter(|_| error.sqlstate != fields::NOT_IN_ENCODING));
        error.with_context(context)
    }

    async fn write(&mut self, work: &mut Work, locked: bool) -> Result<()> {
        let change = TableChange::read(self.target.clone(), self.text.clone(), locked);
        for (rows, lines) in std::mem::take(&mut self.rows) {
            self.cancel.check()?;
            if let Some(row) = change.try_insert(work, &rows)? {
                return Err(self.target.duplicate(&rows, row, &self.text).with_context(self.context(lines.of(row), None)));
            }
            tokio::task::yield_now().await;
        }
        // From here on the transaction accounts for them.
        self.memory.shrink(self.memory.used());
        work.account()
    }

    async fn write_to_destination(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.destination, Destination::Alone) {
            Destination::Alone => {
                let mut work = Work::new(&self.state.memory);
                let guard = self.cancel.locked(self.target.handle.lock()).await?;
                work.keep_guard(self.target.object.id, guard, self.state.engine.log_failures());
                self.write(&mut work, true).await?;
                work.commit(&self.state.engine, &self.cancel).await
            }
            Destination::Lent(lent) => {
                let work = lent.lock().work.take();
                let mut work = work.unwrap_or_else(|| Work::new(&self.state.memory));
                let result = self.write(&mut work, false).await;
                let mut back = lent.lock();
                (back.work, back.failed, back.ended) = (Some(work), result.is_err(), true);
                result
            }
        }
    }

    fn give_back(&mut self) {
        if let Destination::Lent(lent) = &self.destination {
            let mut lent = lent.lock();
            (lent.failed, lent.ended) = (true, true);
        }
    }
}

/// The schema with every column nullable, so that NOT NULL is found out with Postgres' words.
pub(crate) fn nullable(schema: &arrow::datatypes::SchemaRef) -> arrow::datatypes::SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows whose NULLs have been checked, under the schema that forbids them.
pub(crate) fn checked(rows: &RecordBatch, schema: &arrow::datatypes::SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), rows.columns().to_vec(), &options)?)
}

#[async_trait]
impl CopySink for TableCopy {
    async fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.cancel.check()?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PIECE_BYTES));
            rest = after;
            self.decoder.push(piece, &mut self.fields).map_err(|error| self.undecoded(error))?;
            if self.fields.rows() >= PIECE_ROWS || self.fields.bytes() >= PIECE_BYTES {
                self.take_piece()?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<String> {
        self.decoder.finish(&mut self.fields).map_err(|error| self.undecoded(error))?;
        self.take_piece()?;
        self.write_to_destination().await?;
        Ok(format!("COPY {}", self.count))
    }

    async fn abort(mut self: Box<Self>, reason: String) -> SqlError {
        self.give_back();
        SqlError::new("57014", format!("COPY from stdin failed: {reason}"))
    }
}

impl Drop for TableCopy {
    /// A client that has vanished, or an error while rows were decoded, fails the transaction.
    fn drop(&mut self) {
        self.give_back();
    }
}
