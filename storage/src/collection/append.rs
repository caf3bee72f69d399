//! The base of an append-only collection: segment files and a small index that says which of them count.
//!
//! The index is replaced whole, checksummed; it holds the epoch that the segments contain, so a crash leaves either the base before a fold or
//! the one after it. Segments that it does not name are leftovers and removed. Rows have ordinals from 0 in the order of sealing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    delta::StoredDelta,
    delta_log::{read_watermark, write_watermark},
    layout::Layout,
    segment::{Segment, SegmentWriter},
};
use crate::{
    durable_file::{corrupt, create_directory, io_error, remove_file, replace_file},
    encoding::cursor::Cursor,
    epoch::Epoch,
    error::{Result, StorageError},
};

/// Segments are merged up to so many bytes,
const SEGMENT_BYTES: u64 = 64 << 20;
/// or so many rows.
const SEGMENT_ROWS: u64 = 1 << 20;
/// A segment is merged with the one before it if that is less than this many times larger: each row is rewritten a few times at most.
const MERGE_RATIO: u64 = 2;

/// Version 2 says how many rows have been let go.
const INDEX_VERSION: u8 = 2;
const INDEX_VERSION_OF_ALL_ROWS: u8 = 1;

/// The base of an append-only collection.
#[derive(Debug)]
pub(super) struct AppendBase {
    directory: PathBuf,
    layout: Arc<Layout>,
    contents: Mutex<Arc<Segments>>,
}

/// What the base contains at one time. Readers keep one; it does not change.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments {
    pub(super) epoch: Epoch,
    pub(super) watermark_us: Option<(usize, i64)>,
    pub(super) segments: Vec<SegmentEntry>,
    /// Rows before the first segment, which are not kept.
    let_go: u64,
    next_file: u64,
}

/// A segment in the index.
#[derive(Clone, Debug)]
pub(super) struct SegmentEntry {
    number: u64,
    pub(super) first_ordinal: u64,
    pub(super) rows: u64,
    bytes: u64,
    pub(super) segment: Arc<Segment>,
}

impl SegmentEntry {
    fn end(&self) -> u64 {
        self.first_ordinal + self.rows
    }
}

impl Segments {
    /// The ordinal behind the last row.
    pub(super) fn end(&self) -> u64 {
        self.segments.last().map_or(self.let_go, SegmentEntry::end)
    }

    /// The ordinal of the first row that is kept.
    pub(super) fn start(&self) -> u64 {
        self.segments.first().map_or(self.let_go, |entry| entry.first_ordinal)
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|entry| entry.bytes).sum()
    }

    fn write(&self) -> Vec<u8> {
        let mut out = vec![if self.let_go == 0 { INDEX_VERSION_OF_ALL_ROWS } else { INDEX_VERSION }];
        out.extend_from_slice(&self.epoch.0.to_le_bytes());
        out.extend_from_slice(&self.next_file.to_le_bytes());
        if self.let_go > 0 {
            out.extend_from_slice(&self.let_go.to_le_bytes());
        }
        write_watermark(self.watermark_us, &mut out);
        out.extend_from_slice(&(self.segments.len() as u32).to_le_bytes());
        for entry in &self.segments {
            for number in [entry.number, entry.first_ordinal, entry.rows, entry.bytes] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    fn read(index: &Path, directory: &Path) -> Result<Self> {
        let bytes = fs::read(index).map_err(io_error("read", index))?;
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Err(corrupt(index, "it is cut off")) };
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err(corrupt(index, "its checksum does not match"));
        }
        let mut from = Cursor::new(body, "segment index");
        let version = from.u8()?;
        if !(INDEX_VERSION_OF_ALL_ROWS..=INDEX_VERSION).contains(&version) {
            return Err(corrupt(index, format!("unknown version {version}")));
        }
        let (epoch, next_file) = (Epoch(from.u64()?), from.u64()?);
        let let_go = if version == INDEX_VERSION_OF_ALL_ROWS { 0 } else { from.u64()? };
        let watermark_us = read_watermark(&mut from)?;
        let count = from.u32()?;
        let mut segments = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (number, first_ordinal, rows, bytes) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
            let path = segment_path(directory, number);
            let length = fs::metadata(&path).map_err(io_error("read", &path))?.len();
            if length != bytes {
                return Err(corrupt(&path, format!("it has {length} bytes, {bytes} were written")));
            }
            let segment = Arc::new(Segment::open(&path, rows)?);
            segments.push(SegmentEntry { number, first_ordinal, rows, bytes, segment });
        }
        Ok(Self { epoch, watermark_us, segments, let_go, next_file })
    }
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.segment"))
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "segment")
}

impl AppendBase {
    /// Opens the base in `directory`, empty if there is none.
    pub(super) fn open(directory: &Path, layout: Arc<Layout>) -> Result<Self> {
        create_directory(directory)?;
        let index = directory.join("segments.index");
        if !index.exists() {
            // It is written before the first segment.
            let found = fs::read_dir(directory).map_err(io_error("read", directory))?.filter_map(|entry| Some(entry.ok()?.path()));
            if found.into_iter().any(|path| is_segment(&path)) {
                return Err(corrupt(&index, "it is missing"));
            }
            replace_file(&index, &Segments::default().write())?;
        }
        let contents = Segments::read(&index, directory)?;
        let named: BTreeSet<PathBuf> = contents.segments.iter().map(|entry| segment_path(directory, entry.number)).collect();
        for entry in fs::read_dir(directory).map_err(io_error("read", directory))? {
            let path = entry.map_err(io_error("read", directory))?.path();
            if is_segment(&path) && !named.contains(&path) {
                remove_file(&path)?;
            }
        }
        Ok(Self { directory: directory.into(), layout, contents: Mutex::new(Arc::new(contents)) })
    }

    /// What it contains now.
    pub(super) fn contents(&self) -> Arc<Segments> {
        self.contents.lock().clone()
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.contents().bytes()
    }

    /// Adds the rows of deltas that follow what is there, durably. One caller at a time.
    pub(super) fn fold(&self, deltas: &[Arc<StoredDelta>], first_ordinal: u64) -> Result<()> {
        let Some(last) = deltas.last() else { return Ok(()) };
        let before = self.contents();
        if before.end() != first_ordinal {
            return Err(StorageError::Internal(format!("rows from {first_ordinal} on do not follow {} rows", before.end())));
        }
        let mut after = Segments { epoch: last.delta.to, ..(*before).clone() };
        after.watermark_us = deltas.iter().rev().find_map(|delta| delta.delta.watermark_us).or(before.watermark_us);
        let merged = self.take_mergeable(&mut after, deltas);
        self.write_segments(&mut after, &merged, deltas)?;
        replace_file(&self.directory.join("segments.index"), &after.write())?;
        *self.contents.lock() = Arc::new(after);
        // Readers that still use them keep the files open. One that cannot be removed now is removed at the next start.
        merged.iter().for_each(|entry| drop(remove_file(&segment_path(&self.directory, entry.number))));
        Ok(())
    }

    /// Removes all rows, durably.
    pub(super) fn clear(&self) -> Result<()> {
        let before = self.contents();
        self.replace_by_none(&before, Segments { next_file: before.next_file, ..Segments::default() })
    }

    /// Removes all rows, durably, and lets those go that come up to `epoch`, `let_go` in all: what follows is numbered as if they were there.
    pub(super) fn let_go(&self, epoch: Epoch, watermark_us: Option<(usize, i64)>, let_go: u64) -> Result<()> {
        let before = self.contents();
        self.replace_by_none(&before, Segments { epoch, watermark_us, segments: Vec::new(), let_go, next_file: before.next_file })
    }

    fn replace_by_none(&self, before: &Segments, after: Segments) -> Result<()> {
        replace_file(&self.directory.join("segments.index"), &after.write())?;
        *self.contents.lock() = Arc::new(after);
        before.segments.iter().for_each(|entry| drop(remove_file(&segment_path(&self.directory, entry.number))));
        Ok(())
    }

    /// Takes the last segments out that are small enough to be written again with the new rows.
    fn take_mergeable(&self, after: &mut Segments, deltas: &[Arc<StoredDelta>]) -> Vec<SegmentEntry> {
        let mut rows: u64 = deltas.iter().map(|delta| delta.rows() as u64).sum();
        // Memory against lz4 on disk: a rough half.
        let mut bytes: u64 = deltas.iter().map(|delta| delta.bytes() as u64 / 2).sum();
        let mut merged = Vec::new();
        while let Some(entry) = after.segments.last() {
            let fits = entry.bytes + bytes <= SEGMENT_BYTES && entry.rows + rows <= SEGMENT_ROWS;
            if rows == 0 || !fits || entry.bytes >= MERGE_RATIO * bytes {
                break;
            }
            rows += entry.rows;
            bytes += entry.bytes;
            merged.insert(0, after.segments.pop().expect("it was just seen"));
        }
        merged
    }

    fn write_segments(&self, after: &mut Segments, merged: &[SegmentEntry], deltas: &[Arc<StoredDelta>]) -> Result<()> {
        let mut output = Output { base: self, after, writer: None };
        for entry in merged {
            for block in 0..entry.segment.num_blocks() {
                output.push(&entry.segment.read(block, None)?)?;
            }
        }
        for batch in deltas.iter().flat_map(|delta| &delta.delta.batches) {
            output.push(&batch.batch)?;
        }
        output.finish()
    }
}

/// Segments being written, one after the other.
struct Output<'o> {
    base: &'o AppendBase,
    after: &'o mut Segments,
    writer: Option<(u64, SegmentWriter)>,
}

impl Output<'_> {
    fn push(&mut self, batch: &arrow::record_batch::RecordBatch) -> Result<()> {
        let (_, writer) = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let number = self.after.next_file;
                self.after.next_file += 1;
                let path = segment_path(&self.base.directory, number);
                self.writer.insert((number, SegmentWriter::create(&path, self.base.layout.schema.clone())?))
            }
        };
        writer.push(batch)?;
        if writer.rows() >= SEGMENT_ROWS || writer.bytes() >= SEGMENT_BYTES {
            self.finish()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Some((number, writer)) = self.writer.take() else { return Ok(()) };
        let (first_ordinal, rows) = (self.after.end(), writer.rows());
        let bytes = writer.finish()?;
        let segment = Arc::new(Segment::open(&segment_path(&self.base.directory, number), rows)?);
        self.after.segments.push(SegmentEntry { number, first_ordinal, rows, bytes, segment });
        Ok(())
    }
}
