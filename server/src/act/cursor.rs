//! DECLARE, FETCH, MOVE and CLOSE.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use datafusion::scalar::ScalarValue;
use futures::StreamExt;
use millpond_planner::{
    bind::BoundQuery,
    catalog::fold,
    parse::statement::{Fetch, FetchDirection},
};

use crate::{
    act::select,
    answer::{Answer, BatchStream, Column, RowsTag},
    error::{Result, SqlError},
    query::run::{self, Run},
    session::{Session, cancel::Cancel, transaction::Phase},
    statement,
};

/// Most cursors of a session.
const CURSOR_LIMIT: usize = 1_000;
/// Most bytes of rows that a cursor keeps to go back to: one declared SCROLL fails beyond it, one that only might go back no longer can.
const SCROLL_BYTES_LIMIT: usize = 256 << 20;
const PLAIN_BYTES_LIMIT: usize = 16 << 20;

/// One cursor. Position 0 is before the first row.
struct Cursor {
    columns: Vec<Column>,
    rows: BatchStream,
    /// Rows taken from the stream that are not behind the position yet; for a scrollable cursor all rows taken.
    kept: Vec<RecordBatch>,
    /// How many rows were dropped in front of `kept`.
    dropped: u64,
    /// The stream has ended.
    ended: bool,
    position: u64,
    /// It can go back.
    scroll: bool,
    /// It was declared to be able to.
    must_scroll: bool,
    hold: bool,
    /// Its transaction has been committed.
    committed: bool,
    text: String,
}

/// A session's cursors.
#[derive(Default)]
pub(crate) struct Cursors {
    open: BTreeMap<String, Cursor>,
}

impl Cursors {
    /// The transaction has ended: only held cursors of committed ones stay.
    pub(crate) fn end_transaction(&mut self, committed: bool) {
        self.open.retain(|_, cursor| cursor.committed || (committed && cursor.hold));
        self.open.values_mut().for_each(|cursor| cursor.committed = true);
    }

    /// Name, text, held?, scrollable? of each, for `pg_cursors`.
    pub(crate) fn list(&self) -> Vec<(String, String, bool, bool)> {
        self.open.iter().map(|(name, cursor)| (name.clone(), cursor.text.clone(), cursor.hold, cursor.must_scroll)).collect()
    }

    /// Closes all.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }
}

/// What DECLARE says.
pub(crate) struct Declaration<'a> {
    /// The cursor's name.
    pub(crate) name: &'a str,
    /// What it shows.
    pub(crate) query: &'a BoundQuery,
    /// It must be able to go back.
    pub(crate) scroll: bool,
    /// It may go back if that costs little.
    pub(crate) may_scroll: bool,
    /// It outlives the transaction.
    pub(crate) hold: bool,
    /// The statement.
    pub(crate) text: &'a str,
}

/// DECLARE name CURSOR FOR query.
pub(crate) async fn declare(
    session: &mut Session,
    declaration: Declaration<'_>,
    values: &[ScalarValue],
    cancel: &Cancel,
) -> Result<Answer> {
    let Declaration { name, query, scroll, may_scroll, hold, text } = declaration;
    if session.transaction.phase() == Phase::Idle && !hold {
        return Err(SqlError::new("25P01", "DECLARE CURSOR can only be used in transaction blocks"));
    }
    if session.cursors.open.contains_key(name) {
        return Err(SqlError::new("42P03", format!("cursor \"{name}\" already exists")));
    }
    if session.cursors.open.len() >= CURSOR_LIMIT {
        return Err(SqlError::new("54000", "too many cursors in this session"));
    }
    let run = select::prepare(session, query.plan.clone(), values, Vec::new(), cancel.clone()).await?;
    // Its rows are of later statements, which have cancels of their own.
    let run = Run { cancel: Cancel::never(), ..run.with_hints(&query.hints) };
    let rows = cancel.race(run::stream(&session.server, run)).await?;
    let columns = query.columns.iter().map(statement::column).collect();
    let committed = session.transaction.phase() == Phase::Idle;
    let cursor = Cursor {
        columns,
        rows,
        kept: Vec::new(),
        dropped: 0,
        ended: false,
        position: 0,
        scroll: scroll || may_scroll,
        must_scroll: scroll,
        hold,
        committed,
        text: text.to_owned(),
    };
    session.cursors.open.insert(name.to_owned(), cursor);
    Ok(Answer::done("DECLARE CURSOR"))
}

/// CLOSE name, CLOSE ALL.
pub(crate) fn close(session: &mut Session, name: Option<&str>) -> Result<Answer> {
    match name {
        None => {
            session.cursors.clear();
            Ok(Answer::done("CLOSE CURSOR ALL"))
        }
        Some(name) => match session.cursors.open.remove(name) {
            Some(_) => Ok(Answer::done("CLOSE CURSOR")),
            None => Err(no_cursor(name)),
        },
    }
}

/// FETCH and MOVE.
pub(crate) async fn fetch(session: &mut Session, fetch: &Fetch, cancel: &Cancel) -> Result<Answer> {
    let name = &fold(&fetch.cursor);
    let cursor = session.cursors.open.get_mut(name).ok_or_else(|| no_cursor(name))?;
    let rows = cursor.fetch(fetch.direction, cancel).await?;
    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
    if fetch.moves {
        return Ok(Answer::done(format!("MOVE {count}")));
    }
    let stream = futures::stream::iter(rows.into_iter().map(Ok)).boxed();
    Ok(Answer::Rows { columns: cursor.columns.clone(), stream, tag: RowsTag::Fetch })
}

/// The columns FETCH from a cursor answers.
pub(crate) fn columns(session: &Session, name: &str) -> Result<Vec<Column>> {
    session.cursors.open.get(name).map(|cursor| cursor.columns.clone()).ok_or_else(|| no_cursor(name))
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new("34000", format!("cursor \"{name}\" does not exist"))
}

impl Cursor {
    async fn fetch(&mut self, direction: FetchDirection, cancel: &Cancel) -> Result<Vec<RecordBatch>> {
        match direction {
            FetchDirection::Forward(count) if count >= 0 => self.forward(count as u64, cancel).await,
            FetchDirection::Forward(count) => self.backward(count.unsigned_abs()),
            FetchDirection::ForwardAll => self.forward(u64::MAX, cancel).await,
            FetchDirection::Backward(count) if count >= 0 => self.backward(count as u64),
            FetchDirection::Backward(count) => self.forward(count.unsigned_abs(), cancel).await,
            FetchDirection::BackwardAll => self.backward(u64::MAX),
            FetchDirection::Relative(0) => self.rows_at(self.position, 1),
            FetchDirection::Relative(count) => self.go_to(self.position.saturating_add_signed(count), cancel).await,
            FetchDirection::Absolute(row) if row >= 0 => self.go_to(row as u64, cancel).await,
            FetchDirection::Absolute(from_end) => {
                self.take_until(u64::MAX, cancel).await?;
                self.go_to(self.known().saturating_add_signed(from_end).saturating_add(1), cancel).await
            }
        }
    }

    /// Rows taken from the stream so far.
    fn known(&self) -> u64 {
        self.dropped + self.kept.iter().map(|rows| rows.num_rows() as u64).sum::<u64>()
    }

    /// Takes rows from the stream until row `row` is there, or the end.
    async fn take_until(&mut self, row: u64, cancel: &Cancel) -> Result<()> {
        let mut known = self.known();
        let mut bytes: usize = self.kept.iter().map(RecordBatch::get_array_memory_size).sum();
        while !self.ended && known < row {
            match cancel.race(async { Ok::<_, SqlError>(self.rows.next().await) }).await? {
                None => self.ended = true,
                Some(rows) => {
                    let rows = rows?;
                    known += rows.num_rows() as u64;
                    bytes += rows.get_array_memory_size();
                    self.kept.push(rows);
                    if self.must_scroll && bytes > SCROLL_BYTES_LIMIT {
                        return Err(SqlError::new("54000", "a scrollable cursor has too many rows").with_hint("Declare it NO SCROLL."));
                    }
                    self.scroll &= self.must_scroll || bytes <= PLAIN_BYTES_LIMIT;
                }
            }
        }
        Ok(())
    }

    async fn forward(&mut self, count: u64, cancel: &Cancel) -> Result<Vec<RecordBatch>> {
        if count == 0 {
            return self.rows_at(self.position, 1);
        }
        let from = self.position + 1;
        self.take_until(self.position.saturating_add(count), cancel).await?;
        let available = self.known().saturating_sub(self.position).min(count);
        let rows = self.rows_at(from, available)?;
        // Having run past the end, the position is behind the last row.
        self.position += if available < count { available + 1 } else { available };
        self.position = self.position.min(self.known() + 1);
        self.forget();
        Ok(rows)
    }

    fn backward(&mut self, count: u64) -> Result<Vec<RecordBatch>> {
        self.require_scroll()?;
        if count == 0 {
            return self.rows_at(self.position, 1);
        }
        let available = self.position.saturating_sub(1).min(count);
        let mut rows = Vec::new();
        for step in 1..=available {
            rows.extend(self.rows_at(self.position - step, 1)?);
        }
        self.position = if available < count { 0 } else { self.position - available };
        Ok(rows)
    }

    async fn go_to(&mut self, row: u64, cancel: &Cancel) -> Result<Vec<RecordBatch>> {
        if row < self.position {
            self.require_scroll()?;
        }
        self.take_until(row, cancel).await?;
        self.position = row.min(self.known() + 1);
        let rows = self.rows_at(row, 1)?;
        self.forget();
        Ok(rows)
    }

    /// Rows `from..from + count`, counted from 1, as far as they are kept.
    fn rows_at(&self, from: u64, count: u64) -> Result<Vec<RecordBatch>> {
        if from == 0 {
            return Ok(Vec::new());
        }
        let (mut first, mut found) = (self.dropped + 1, Vec::new());
        for rows in &self.kept {
            let after = first + rows.num_rows() as u64;
            let low = from.max(first);
            let high = from.saturating_add(count).min(after);
            if low < high {
                found.push(rows.slice((low - first) as usize, (high - low) as usize));
            }
            first = after;
        }
        Ok(found)
    }

    /// A cursor that only goes forward keeps the row it stands on and those after it.
    fn forget(&mut self) {
        while !self.scroll
            && let Some(first) = self.kept.first()
            && self.dropped + (first.num_rows() as u64) < self.position
        {
            self.dropped += first.num_rows() as u64;
            self.kept.remove(0);
        }
    }

    fn require_scroll(&self) -> Result<()> {
        if self.scroll {
            return Ok(());
        }
        Err(SqlError::new("55000", "cursor can only scan forward").with_hint("Declare it with SCROLL option to enable backward scan."))
    }
}
