//! A block of text, and where a scanner found rows and values in it.

use arrow::buffer::Buffer;

/// A row longer than this is refused: it bounds what a reader holds, whatever the input.
pub const MAX_ROW_BYTES: usize = 16 << 20;

/// Bit of [`Span::start`] that says that the value lies in the arena.
const IN_ARENA: u32 = 1 << 31;

/// Where one value lies: in the block, or, if it had to be unescaped, in the arena beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    start: u32,
    length: u32,
}

impl Span {
    /// SQL NULL.
    pub const NULL: Span = Span { start: 0, length: u32::MAX };

    /// Bytes `start..end` of the block. A block is shorter than 2 GiB.
    pub fn of_text(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end < IN_ARENA as usize);
        Self { start: start as u32, length: (end - start) as u32 }
    }

    /// Bytes `start..end` of the arena.
    pub fn of_arena(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end < IN_ARENA as usize);
        Self { start: start as u32 | IN_ARENA, length: (end - start) as u32 }
    }

    /// Whether it is SQL NULL.
    pub fn is_null(self) -> bool {
        self.length == u32::MAX
    }

    /// Whether it lies in the arena.
    pub fn in_arena(self) -> bool {
        self.start & IN_ARENA != 0
    }

    /// First byte in the block or arena.
    pub fn start(self) -> u32 {
        self.start & !IN_ARENA
    }

    /// Bytes.
    pub fn len(self) -> u32 {
        self.length
    }

    /// Whether the value has no bytes (and is not NULL).
    pub fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// What spans refer to. Both buffers can become data buffers of a view array.
#[derive(Clone, Debug)]
pub struct TextBlock {
    /// The text as read.
    pub text: Buffer,
    /// Unescaped values.
    pub arena: Buffer,
}

/// Rows of a block, before their values are parsed.
#[derive(Debug, Default)]
pub struct ScannedRows {
    /// Wanted values per row.
    pub width: usize,
    /// Row by row, `width` spans each.
    pub spans: Vec<Span>,
    /// Bytes of the block that each row takes, line end included.
    pub rows: Vec<RowRange>,
    /// Unescaped values.
    pub arena: Vec<u8>,
    /// Rows whose structure is broken, in order; they have no spans.
    pub broken: Vec<(RowRange, String)>,
}

/// Bytes of a block: one row with its line end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowRange {
    /// First byte.
    pub start: u32,
    /// Behind the last byte.
    pub end: u32,
}

impl ScannedRows {
    /// No rows yet, `width` wanted values in each.
    pub fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    /// Rows seen, broken ones included.
    pub fn seen(&self) -> usize {
        self.rows.len() + self.broken.len()
    }

    /// Ends the row whose spans were pushed.
    pub fn end_row(&mut self, start: usize, end: usize) {
        self.rows.push(RowRange { start: start as u32, end: end as u32 });
        debug_assert_eq!(self.spans.len(), self.rows.len() * self.width);
    }

    /// Takes back the spans of a row that has not ended.
    pub fn undo_row(&mut self) {
        self.spans.truncate(self.rows.len() * self.width);
    }

    /// Reports the row instead of keeping it.
    pub fn break_row(&mut self, start: usize, end: usize, reason: String) {
        self.undo_row();
        self.broken.push((RowRange { start: start as u32, end: end as u32 }, reason));
    }
}

/// Finds rows in text.
pub trait RowScanner: Send {
    /// Scans whole rows of `text` from byte `from`, which is the start of a row, until `max_rows` rows are in `out` or no whole row is
    /// left, and returns the byte behind the last. A row longer than [`MAX_ROW_BYTES`] counts as one that is not whole. `at_end` says that no text follows, so that a last row without line end is whole.
    fn scan(&mut self, text: &[u8], from: usize, at_end: bool, max_rows: usize, out: &mut ScannedRows) -> usize;

    /// Wanted values per row.
    fn width(&self) -> usize;
}

/// Why bytes are no text: the first byte that is not UTF-8, or a NUL, which Postgres has in no text either.
pub fn invalid_text(bytes: &[u8]) -> Option<String> {
    let at = match std::str::from_utf8(bytes) {
        Ok(_) => memchr::memchr(0, bytes)?,
        Err(error) => error.valid_up_to(),
    };
    Some(format!("invalid byte sequence for encoding \"UTF8\": 0x{:02x}", bytes[at]))
}
