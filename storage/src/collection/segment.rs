//! Segment files of an append-only base: rows in the order of their ordinals, in blocks that can be read one by one.
//!
//! ```text
//! "mpsegmt1" | blocks | table of blocks | length of the table (u32) | its crc32 (u32) | "mpsegmt1"
//! block: an Arrow IPC stream of one record batch, lz4
//! entry: offset (u64) | bytes (u32) | crc32 (u32) | rows (u32)
//! ```
//!
//! A segment never changes. It is durable, with its directory entry, before anything refers to it.

use std::{
    fs::File,
    io::{BufWriter, Cursor as IoCursor, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use arrow::{
    compute::concat_batches,
    datatypes::SchemaRef,
    ipc::{
        CompressionType,
        reader::StreamReader,
        writer::{IpcWriteOptions, StreamWriter},
    },
    record_batch::RecordBatch,
};

use super::layout::compact;
use crate::{
    durable_file::{corrupt, io_error, sync_directory, sync_file},
    encoding::cursor::Cursor,
    error::{Result, StorageError},
};

const MAGIC: &[u8; 8] = b"mpsegmt1";
const ENTRY_BYTES: usize = 20;
const FOOTER_BYTES: usize = 16;

/// Rows of a block. What a scan reads at once, whatever it wants of it.
const BLOCK_ROWS: usize = 8192;

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    offset: u64,
    bytes: u32,
    crc: u32,
    rows: u32,
    /// Rows of the blocks before.
    first_row: u64,
}

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    path: PathBuf,
    blocks: Vec<Block>,
}

impl Segment {
    /// Opens a segment of which the number of rows is known.
    pub(super) fn open(path: &Path, rows: u64) -> Result<Self> {
        let file = File::open(path).map_err(io_error("open", path))?;
        let length = file.metadata().map_err(io_error("read", path))?.len();
        let read = |offset: u64, bytes: usize| {
            let mut buffer = vec![0; bytes];
            file.read_exact_at(&mut buffer, offset).map_err(io_error("read", path))?;
            Ok::<_, StorageError>(buffer)
        };
        let damaged = |what: &str| corrupt(path, format!("{what} is damaged"));
        let footer_start = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| damaged("its end"))?;
        let footer = read(footer_start, FOOTER_BYTES)?;
        let word = |at: usize| u32::from_le_bytes(footer[at..at + 4].try_into().expect("four bytes"));
        if &footer[8..] != MAGIC {
            return Err(damaged("its end"));
        }
        let table_start = footer_start.checked_sub(u64::from(word(0))).ok_or_else(|| damaged("its end"))?;
        let table = read(table_start, word(0) as usize)?;
        if crc32fast::hash(&table) != word(4) || table.len() % ENTRY_BYTES != 0 {
            return Err(damaged("its table of blocks"));
        }
        let blocks = read_table(&table)?;
        let found = blocks.iter().map(|block| u64::from(block.rows)).sum::<u64>();
        if found != rows {
            return Err(corrupt(path, format!("it has {found} rows, {rows} were written")));
        }
        Ok(Self { file, path: path.into(), blocks })
    }

    /// The block that has row `row` of the segment, with the number of its first row.
    pub(super) fn block_of(&self, row: u64) -> Option<usize> {
        let block = self.blocks.partition_point(|block| block.first_row + u64::from(block.rows) <= row);
        (block < self.blocks.len()).then_some(block)
    }

    /// The number, in the segment, of a block's first row.
    pub(super) fn first_row(&self, block: usize) -> u64 {
        self.blocks[block].first_row
    }

    pub(super) fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The columns `projection` (ascending) of a block, or all.
    pub(super) fn read(&self, block: usize, projection: Option<&[usize]>) -> Result<RecordBatch> {
        let Block { offset, bytes, crc, rows, .. } = self.blocks[block];
        let damaged = |detail: &str| corrupt(&self.path, format!("the block at offset {offset} is damaged{detail}"));
        let mut buffer = vec![0; bytes as usize];
        self.file.read_exact_at(&mut buffer, offset).map_err(io_error("read", &self.path))?;
        if crc32fast::hash(&buffer) != crc {
            return Err(damaged(""));
        }
        let unreadable = |error: arrow::error::ArrowError| damaged(&format!(": {error}"));
        let mut reader = StreamReader::try_new(IoCursor::new(buffer), projection.map(<[usize]>::to_vec)).map_err(unreadable)?;
        let batch = reader.next().ok_or_else(|| damaged(": it is empty"))?.map_err(unreadable)?;
        if batch.num_rows() != rows as usize {
            return Err(damaged(": it has another number of rows"));
        }
        Ok(batch)
    }
}

fn read_table(table: &[u8]) -> Result<Vec<Block>> {
    let mut from = Cursor::new(table, "segment table");
    let mut first_row = 0;
    let mut blocks = Vec::with_capacity(table.len() / ENTRY_BYTES);
    while from.remaining() > 0 {
        let block = Block { offset: from.u64()?, bytes: from.u32()?, crc: from.u32()?, rows: from.u32()?, first_row };
        first_row += u64::from(block.rows);
        blocks.push(block);
    }
    Ok(blocks)
}

/// Writes a new segment. Dropped before it is finished, it leaves a file that nothing refers to.
pub(super) struct SegmentWriter {
    file: BufWriter<File>,
    path: PathBuf,
    schema: SchemaRef,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    offset: u64,
    table: Vec<u8>,
    rows: u64,
}

impl SegmentWriter {
    pub(super) fn create(path: &Path, schema: SchemaRef) -> Result<Self> {
        let file = File::create(path).map_err(io_error("create", path))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(MAGIC).map_err(io_error("write", path))?;
        let offset = MAGIC.len() as u64;
        Ok(Self { file, path: path.into(), schema, pending: Vec::new(), pending_rows: 0, offset, table: Vec::new(), rows: 0 })
    }

    /// Appends rows.
    pub(super) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = (BLOCK_ROWS - self.pending_rows).min(batch.num_rows() - from);
            self.pending.push(batch.slice(from, rows));
            self.pending_rows += rows;
            from += rows;
            if self.pending_rows == BLOCK_ROWS {
                self.write_block()?;
            }
        }
        Ok(())
    }

    /// Bytes written so far, about.
    pub(super) fn bytes(&self) -> u64 {
        self.offset
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.rows + self.pending_rows as u64
    }

    fn write_block(&mut self) -> Result<()> {
        let batch = compact(&concat_batches(&self.schema, &self.pending)?)?;
        self.pending.clear();
        self.pending_rows = 0;
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        let mut block = Vec::new();
        let mut writer = StreamWriter::try_new_with_options(&mut block, &self.schema, options)?;
        writer.write(&batch)?;
        writer.finish()?;
        drop(writer);
        self.file.write_all(&block).map_err(io_error("write", &self.path))?;
        self.table.extend_from_slice(&self.offset.to_le_bytes());
        for word in [block.len() as u32, crc32fast::hash(&block), batch.num_rows() as u32] {
            self.table.extend_from_slice(&word.to_le_bytes());
        }
        self.offset += block.len() as u64;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Ends the segment and makes it durable; returns its length in bytes.
    pub(super) fn finish(mut self) -> Result<u64> {
        if self.pending_rows > 0 {
            self.write_block()?;
        }
        let mut end = std::mem::take(&mut self.table);
        let (length, crc) = (end.len() as u32, crc32fast::hash(&end));
        end.extend_from_slice(&length.to_le_bytes());
        end.extend_from_slice(&crc.to_le_bytes());
        end.extend_from_slice(MAGIC);
        self.file.write_all(&end).map_err(io_error("write", &self.path))?;
        let file = self.file.into_inner().map_err(|error| io_error("write", &self.path)(error.into_error()))?;
        sync_file(&file).map_err(io_error("fsync", &self.path))?;
        sync_directory(self.path.parent().expect("a file is in a directory"))?;
        Ok(self.offset + end.len() as u64)
    }
}
