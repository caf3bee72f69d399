//! Decoded but not yet typed values of a COPY, column by column.

use arrow::array::{Array, ArrayRef, StringBuilder};
use std::sync::Arc;

use crate::error::{Result, SqlError};

/// Longest row of COPY data.
pub(crate) const ROW_BYTES_LIMIT: usize = 256 << 20;

/// SQLSTATE of bytes that are no text.
pub(crate) const NOT_IN_ENCODING: &str = "22021";
/// Bytes of a value or row that an error shows.
const SHOWN_BYTES: usize = 100;
/// Bytes that are kept of a row to be shown: one more tells that there is more.
pub(crate) const KEPT_BYTES: usize = SHOWN_BYTES + 1;

/// Values of some rows as text, one builder per column.
pub(crate) struct Fields {
    columns: Vec<StringBuilder>,
    names: Vec<String>,
    next: usize,
    rows: usize,
    bytes: usize,
    places: Places,
}

/// Where rows came from: the line of each, and how it begins there.
#[derive(Default)]
struct Places {
    lines: Vec<u64>,
    texts: Vec<u8>,
    ends: Vec<usize>,
}

impl Places {
    fn push(&mut self, line: u64, text: &[u8]) {
        self.lines.push(line);
        self.texts.extend_from_slice(&text[..text.len().min(KEPT_BYTES)]);
        self.ends.push(self.texts.len());
    }

    fn text(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[start..self.ends[row]]
    }
}

/// The lines of the rows of a batch.
pub(crate) enum Lines {
    /// Each row is one line, from this on.
    From(u64),
    /// Rows go over lines.
    Each(Vec<u64>),
}

impl Lines {
    /// The line of a row.
    pub(crate) fn of(&self, row: usize) -> u64 {
        match self {
            Self::From(first) => first + row as u64,
            Self::Each(lines) => lines[row],
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::From(_) => 0,
            Self::Each(lines) => lines.len() * size_of::<u64>(),
        }
    }
}

/// Whole rows that were decoded.
pub(crate) struct Piece {
    /// Their values, in the order of the data.
    pub(crate) columns: Vec<ArrayRef>,
    places: Places,
}

impl Piece {
    /// How many rows there are.
    pub(crate) fn rows(&self) -> usize {
        self.places.lines.len()
    }

    /// Where a row was: its line, and how it begins.
    pub(crate) fn place(&self, row: usize) -> (u64, &[u8]) {
        (self.places.lines[row], self.places.text(row))
    }

    /// The lines of all rows.
    pub(crate) fn into_lines(self) -> Lines {
        let lines = self.places.lines;
        let first = lines.first().copied().unwrap_or(1);
        let consecutive = lines.iter().zip(first..).all(|(line, expected)| *line == expected);
        if consecutive { Lines::From(first) } else { Lines::Each(lines) }
    }
}

/// A value or row as an error shows it; nothing if it is no text.
pub(crate) fn shown(text: &[u8]) -> Option<String> {
    let (start, dots) = if text.len() > SHOWN_BYTES { (&text[..SHOWN_BYTES], "...") } else { (text, "") };
    let start = match std::str::from_utf8(start) {
        Ok(start) => start,
        // The cut went through a character.
        Err(error) if error.error_len().is_none() && !dots.is_empty() => std::str::from_utf8(&start[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    Some(format!("{start}{dots}"))
}

impl Fields {
    /// For the columns of these names.
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self { columns: names.iter().map(|_| StringBuilder::new()).collect(), names, next: 0, rows: 0, bytes: 0, places: Places::default() }
    }

    /// The next value of the current row, raw bytes in UTF-8.
    pub(crate) fn push(&mut self, value: Option<&[u8]>) -> Result<()> {
        let Some(column) = self.columns.get_mut(self.next) else {
            // An error when the row has ended and can be shown whole.
            self.next += 1;
            return Ok(());
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

    /// The current row has ended. It was on that line, and began with this text.
    pub(crate) fn end_row(&mut self, line: u64, text: &[u8]) -> Result<()> {
        if self.next < self.columns.len() {
            return Err(SqlError::new("22P04", format!("missing data for column \"{}\"", self.names[self.next])));
        }
        if self.next > self.columns.len() {
            return Err(SqlError::new("22P04", "extra data after last expected column"));
        }
        self.next = 0;
        self.rows += 1;
        self.places.push(line, text);
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

    /// Takes the whole rows; what there is of another row stays.
    pub(crate) fn take(&mut self) -> Piece {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let columns = self.columns.iter_mut().enumerate().map(|(number, column)| {
            let values = column.finish();
            if number < self.next {
                column.append_option(values.is_valid(rows).then(|| values.value(rows)));
            }
            Arc::new(values.slice(0, rows)) as ArrayRef
        });
        Piece { columns: columns.collect(), places: std::mem::take(&mut self.places) }
    }
}

/// Bytes as text (22021).
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let bad = &bytes[error.valid_up_to()..];
        let shown: Vec<String> = bad.iter().take(error.error_len().unwrap_or(1).max(1)).map(|byte| format!("0x{byte:02x}")).collect();
        SqlError::new(NOT_IN_ENCODING, format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")))
    })?;
    if text.as_bytes().contains(&0) {
        return Err(SqlError::new(NOT_IN_ENCODING, "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    Ok(text)
}

/// A decoder of one of the formats.
pub(crate) trait RowDecoder: Send {
    /// Takes the next bytes and appends the rows that end in them.
    fn push(&mut self, bytes: &[u8], fields: &mut Fields) -> Result<()>;

    /// The data has ended.
    fn finish(&mut self, fields: &mut Fields) -> Result<()>;

    /// The line or row that is being read, from 1, and how it begins, where that can be shown.
    fn place(&self) -> (u64, Option<&[u8]>);
}
