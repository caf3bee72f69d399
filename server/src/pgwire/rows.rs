//! Rows of an answer on their way to the client, all at once or in portions.

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use futures::{FutureExt, StreamExt};
use millpond_planner::pg_text::TextSettings;

use super::attend::{Failure, Line};
use super::encode::{Formats, RowEncoder};
use crate::answer::{BatchStream, Column, RowsTag};
use crate::error::SqlError;

/// An answer with rows of which some have perhaps been sent. Dropping it ends the query.
pub(super) struct RowsInFlight {
    pub(super) columns: Vec<Column>,
    stream: BatchStream,
    tag: RowsTag,
    formats: Formats,
    /// Received, and sent up to the row.
    current: Option<(RecordBatch, usize)>,
    ended: bool,
}

/// How far a portion went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// No more rows; the tag counts the rows of this portion.
    End { rows: u64 },
    /// The limit was met first.
    Suspended,
}

impl RowsInFlight {
    pub(super) fn new(columns: Vec<Column>, stream: BatchStream, tag: RowsTag, formats: Formats) -> Self {
        Self { columns, stream, tag, formats, current: None, ended: false }
    }

    /// The command tag after a portion of so many rows.
    pub(super) fn tag(&self, rows: u64) -> String {
        self.tag.text(rows)
    }

    /// Sends up to `limit` rows, or all.
    pub(super) async fn send(&mut self, line: &mut Line, settings: &TextSettings, limit: Option<usize>) -> Result<Portion, Failure> {
        let mut sent = 0_usize;
        loop {
            if limit.is_some_and(|limit| sent >= limit) {
                return Ok(Portion::Suspended);
            }
            let (batch, from) = match self.current.take() {
                Some(current) => current,
                None => match self.next_batch(line).await? {
                    Some(batch) => (batch, 0),
                    None => {
                        // What a query says at its end comes before its tag.
                        line.take_notices();
                        return Ok(Portion::End { rows: sent as u64 });
                    }
                },
            };
            let upto = limit.map_or(batch.num_rows(), |limit| batch.num_rows().min(from + limit - sent));
            let next = self.encode(line, &batch, from, upto, settings)?;
            sent += next - from;
            if next < batch.num_rows() {
                self.current = Some((batch, next));
            }
            if line.outbox.is_full() {
                line.flush().await?;
            }
        }
    }

    /// Writes rows until `upto` or until the buffer is full; gives the next row.
    fn encode(&self, line: &mut Line, batch: &RecordBatch, from: usize, upto: usize, settings: &TextSettings) -> Result<usize, SqlError> {
        let encoder = RowEncoder::new(batch, &self.columns, &self.formats, settings)?;
        for row in from..upto {
            encoder.write_row(row, &mut line.outbox.buffer)?;
            if line.outbox.is_full() {
                return Ok(row + 1);
            }
        }
        Ok(upto)
    }

    /// Lets go of what the query held.
    fn end(&mut self) {
        self.ended = true;
        self.stream = futures::stream::empty().boxed();
    }

    /// The next batch that has rows. While there is none yet, what has been written is sent.
    async fn next_batch(&mut self, line: &mut Line) -> Result<Option<RecordBatch>, Failure> {
        while !self.ended {
            let next = match self.stream.next().now_or_never() {
                Some(next) => next,
                None => {
                    line.flush().await?;
                    line.attend(self.stream.next()).await?
                }
            };
            match next {
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => return Ok(Some(without_dictionaries(batch)?)),
                Some(Err(error)) => {
                    self.end();
                    return Err(error.into());
                }
                None => self.end(),
            }
        }
        Ok(None)
    }
}

/// Dictionaries are unpacked once for the batch, not for every value.
pub(super) fn without_dictionaries(batch: RecordBatch) -> Result<RecordBatch, SqlError> {
    if !batch.schema().fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..))) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().enumerate().map(|(at, column)| {
        let plain = match column.data_type() {
            DataType::Dictionary(_, value) => arrow::compute::cast(column, value)?,
            _ => column.clone(),
        };
        Ok::<_, SqlError>((batch.schema().field(at).name().clone(), plain))
    });
    Ok(RecordBatch::try_from_iter(columns.collect::<Result<Vec<_>, _>>()?)?)
}
