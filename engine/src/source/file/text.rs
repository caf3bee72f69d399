//! Reads a CSV or JSON file in blocks. The offset of a row is the byte behind it, so that reading can start at any row with one seek, and rows do not
//! depend on how blocks are cut.
//!
//! A block is about as large as a chunk of rows is expected to be; what is left of its last row is copied to the front of the next. A row
//! longer than [`MAX_ROW_BYTES`] (mostly: a quote that is never closed) is refused up to its first line end, and reading goes on there.

use arrow::buffer::Buffer;
use memchr::memchr;

use super::{
    ahead::{Block, BlockRows, RowEnds},
    input::InputFile,
};
use crate::{
    chunk::CHUNK_ROWS,
    error::{EngineError, Result},
    format::{
        block::MAX_ROW_BYTES,
        csv::{CsvFormat, CsvScanner},
        decode::{DecodedRows, TextDecoder, bad_row},
    },
    source::{BadRow, Offset},
};

/// Bytes read at once, at least and at most, while rows have usual sizes.
const BLOCK_BYTES: (usize, usize) = (64 << 10, 4 << 20);

/// Bytes a row is expected to have before one was seen.
const FIRST_ROW_BYTES: usize = 128;

/// A text file being read.
pub(super) struct TextReader {
    file: InputFile,
    decoder: TextDecoder,
    /// Bytes read and not used up.
    block: Buffer,
    /// Offset of the block's first byte.
    base: Offset,
    /// The next byte of the block to scan.
    at: usize,
    /// The file ends at this offset; `None` while it may grow.
    end: Option<Offset>,
    /// The average row so far.
    row_bytes: usize,
    /// Bytes to read next, if the last block had no whole row.
    grown: usize,
    /// The front of a row that is too long, while its end is looked for.
    skipped: Option<Vec<u8>>,
    /// Until the first row of a CSV file was read that is said to have no header line.
    headless: Option<CsvFormat>,
}

impl TextReader {
    /// A reader of the rows from byte `from` on. `end` is where the file ends, if it cannot grow.
    pub(super) fn new(file: InputFile, decoder: TextDecoder, from: Offset, end: Option<Offset>) -> Self {
        let block = Buffer::from_vec(Vec::<u8>::new());
        Self { file, decoder, block, base: from, at: 0, end, row_bytes: FIRST_ROW_BYTES, grown: 0, skipped: None, headless: None }
    }

    /// The same, at the begin of a CSV file that is said to have no header line: if it has one after all, the refusal of that line says what to do.
    pub(super) fn without_header(mut self, format: &CsvFormat) -> Self {
        self.headless = Some(format.clone());
        self
    }

    fn at_end(&self) -> bool {
        self.end.is_some_and(|end| self.base + self.block.len() as u64 >= end)
    }

    fn rest(&self) -> usize {
        self.block.len() - self.at
    }

    /// Reads more text behind what is left of the block, and says how many bytes came.
    fn refill(&mut self) -> Result<usize> {
        let read_to = self.base + self.block.len() as u64;
        let wanted = (self.row_bytes * (CHUNK_ROWS + CHUNK_ROWS / 32)).clamp(BLOCK_BYTES.0, BLOCK_BYTES.1).saturating_sub(self.rest());
        let wanted = wanted.max(self.grown).max(BLOCK_BYTES.0);
        let wanted = self.end.map_or(wanted, |end| wanted.min(usize::try_from(end - read_to).unwrap_or(usize::MAX)));
        let mut next = Vec::with_capacity(self.rest() + wanted);
        next.extend_from_slice(&self.block[self.at..]);
        let read = self.file.read_at(read_to, wanted, &mut next)?;
        if read == 0 && self.file.length_now()? < read_to {
            return Err(EngineError::user("58030", format!("file \"{}\" was truncated while it was read", self.file.name())));
        }
        if read > 0 {
            self.base += self.at as u64;
            self.at = 0;
            self.block = Buffer::from_vec(next);
        }
        Ok(read)
    }

    /// The rows of the block from its scan position on.
    fn decode(&mut self) -> Result<Option<BlockRows>> {
        let mut decoded = self.decoder.decode(&self.block, self.at, self.at_end(), CHUNK_ROWS, self.base)?;
        if decoded.consumed == self.at {
            return Ok(None);
        }
        let rows = decoded.ends.len() + decoded.bad.len();
        if rows > 0 {
            if let Some(format) = self.headless.take() {
                suspect_header(&format, &mut decoded, self.base);
            }
            self.row_bytes = (decoded.consumed - self.at).div_ceil(rows);
        }
        self.at = decoded.consumed;
        let end = self.base + self.at as u64;
        Ok(Some(BlockRows { batch: decoded.batch, ends: RowEnds::Listed { base: self.base, ends: decoded.ends }, bad: decoded.bad, end }))
    }

    /// Refuses the row at the scan position up to its first line end, or begins to look for that.
    fn refuse_line(&mut self, reason: &str) -> Result<Option<BlockRows>> {
        let line_end = memchr(b'\n', &self.block[self.at..]).map(|length| self.at + length + 1);
        let Some(end) = line_end.or(self.at_end().then_some(self.block.len())) else {
            self.skipped = Some(self.block[self.at..self.block.len().min(self.at + 4096)].to_vec());
            return Ok(None);
        };
        let report = bad_row(&self.block[self.at..end], reason, self.base + end as u64);
        self.at = end;
        self.report(report).map(Some)
    }

    fn report(&self, row: BadRow) -> Result<BlockRows> {
        let batch = arrow::record_batch::RecordBatch::new_empty(self.decoder.schema());
        let end = row.offset;
        Ok(BlockRows { batch, ends: RowEnds::Listed { base: self.base, ends: Vec::new() }, bad: vec![row], end })
    }

    /// Looks for the end of a row that is too long, block by block.
    fn skip(&mut self, front: Vec<u8>) -> Result<Block> {
        self.grown = BLOCK_BYTES.1;
        loop {
            self.at = self.block.len();
            if self.at_end() || self.refill()? == 0 {
                if self.end.is_none() {
                    self.skipped = Some(front);
                    return Ok(Block::Later);
                }
                break;
            }
            if let Some(length) = memchr(b'\n', &self.block) {
                self.at = length + 1;
                break;
            }
        }
        let report = bad_row(&front, too_long(), self.base + self.at as u64);
        self.report(report).map(Block::Rows)
    }
}

/// Adds to the refusal of the first row that it may be a header: if all its values are words.
fn suspect_header(format: &CsvFormat, decoded: &mut DecodedRows, base: Offset) {
    let first_good = decoded.ends.first().map(|end| base + u64::from(*end));
    let Some(first) = decoded.bad.first_mut().filter(|bad| first_good.is_none_or(|end| bad.offset < end)) else { return };
    let is_word = |value: &String| value.starts_with(|character: char| character.is_alphabetic() || character == '_');
    if CsvScanner::header(format, first.text.as_bytes(), true).is_some_and(|(values, _)| values.iter().all(is_word)) {
        first.reason.push_str(" (if this line names the columns, the source needs header = true)");
    }
}

fn too_long() -> String {
    format!("row is longer than {MAX_ROW_BYTES} bytes")
}

impl TextReader {
    /// The next rows.
    pub(super) fn next(&mut self) -> Result<Block> {
        if let Some(front) = self.skipped.take() {
            return self.skip(front);
        }
        loop {
            // A few rows left over are better decoded with those that follow.
            if self.rest() < self.row_bytes * CHUNK_ROWS / 4 && !self.at_end() {
                self.refill()?;
            }
            if let Some(rows) = self.decode()? {
                self.grown = 0;
                return Ok(Block::Rows(rows));
            }
            let refused = if self.rest() >= MAX_ROW_BYTES {
                self.refuse_line(&too_long())?
            } else if self.at_end() && self.rest() > 0 {
                self.refuse_line("unterminated CSV quoted field")?
            } else {
                None
            };
            if let Some(rows) = refused {
                return Ok(Block::Rows(rows));
            }
            if let Some(front) = self.skipped.take() {
                return self.skip(front);
            }
            if self.at_end() {
                return Ok(Block::End);
            }
            // No whole row is here: read on, twice as much each time.
            self.grown = self.rest();
            if self.refill()? == 0 {
                if self.end.is_some() {
                    return Err(EngineError::user("58030", format!("file \"{}\" was truncated while it was read", self.file.name())));
                }
                return Ok(Block::Later);
            }
        }
    }
}
