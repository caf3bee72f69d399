//! Decoded but not yet typed values of a COPY, column by column.

use arrow::array::{ArrayRef, StringBuilder};
use std::sync::Arc;

use crate::error::{Result, SqlError};

/// Longest row of COPY data.
pub(crate) const ROW_BYTES_LIMIT: usize = 256 << 20;

/// Values of some rows as text, one builder per column.
pub(crate) struct Fields {
    columns: Vec<StringBuilder>,
    names: Vec<String>,
    next: usize,
    rows: usize,
    bytes: usize,
}

impl Fields {
    /// For the columns of these names.
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { columns: names.iter().map(|_| StringBuilder::new()).collect(), names, next: 0, rows: 0, bytes: 0 }
    }

    /// The next value of the current row, raw bytes in UTF-8.
    pub(crate) fn push(&mut self, value: Option<&[u8]>) -> Result<()> {
        let Some(column) = self.columns.get_mut(self.next) else {
            return Err(SqlError::new("22P04", "extra data after last expected column"));
        };
        match value {
            None => column.append_null(),
            Some(value) => {
                column.append_value(utf8(value)?);
                self.bytes += value.len();
            }
        }
        self.next += 1;
        self.bytes += 16;
        Ok(())
    }

    /// The current row has ended.
    pub(crate) fn end_row(&mut self) -> Result<()> {
        if self.next < self.columns.len() {
            return Err(SqlError::new("22P04", format!("missing data for column \"{}\"", self.names[self.next])));
        }
        self.next = 0;
        self.rows += 1;
        Ok(())
    }

    /// How many columns there are.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Whole rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// About how many bytes they have.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the whole rows.
    pub(crate) fn take(&mut self) -> Vec<ArrayRef> {
        (self.rows, self.bytes) = (0, 0);
        self.columns.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef).collect()
    }
}

/// Bytes as text (22021).
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let bad = &bytes[error.valid_up_to()..];
        let shown: Vec<String> = bad.iter().take(error.error_len().unwrap_or(1).max(1)).map(|byte| format!("0x{byte:02x}")).collect();
        SqlError::new("22021", format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")))
    })?;
    if text.as_bytes().contains(&0) {
        return Err(SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    Ok(text)
}

/// A decoder of one of the formats.
pub(crate) trait RowDecoder: Send {
    /// Takes the next bytes and appends the rows that end in them.
    fn push(&mut self, bytes: &[u8], fields: &mut Fields) -> Result<()>;

    /// The data has ended.
    fn finish(&mut self, fields: &mut Fields) -> Result<()>;

    /// Number of the line or row that is being read, from 1, for error messages.
    fn line(&self) -> u64;
}
