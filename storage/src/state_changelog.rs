//! The state changelog: the ordered log of state table changes of one task, cut into a segment per checkpoint.
//!
//! A segment is a few *parts* of bounded size; each becomes one object. A part is
//!
//! ```text
//! part   = "MPSL" version u32, frame*, (table u16, offset u64, length u64)*, footer
//! frame  = (key group u16 be, key length varint, value length + 1 varint or 0 for a deletion, key, value)*
//! footer = lowest and highest key group u16 u16, count of frames u32, offset of their directory u64, "MPSE"
//! ```
//!
//! all in little endian but for the key group. The frames of a part are in the order of the changes; a frame belongs to one table, so that
//! a table reads only its own on restart. Later changes of a key win. Finished parts beyond a bound wait for their upload in a scratch file.

use std::fs::File;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::durable_file::io_error;
use crate::error::{Result, StorageError};
use crate::memory::{MemoryBudget, MemoryHandle};
use crate::state_table::TableId;

mod recent;

pub(crate) use recent::RecentChanges;

const MAGIC: &[u8; 4] = b"MPSL";
const END_MAGIC: &[u8; 4] = b"MPSE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8;
const FOOTER_BYTES: usize = 20;
const DIRECTORY_ENTRY_BYTES: usize = 18;
const FRAME_BYTES: usize = 256 << 10;
/// A restored part up to this size stays in memory.
const KEEP_BYTES: usize = 256 << 10;
/// Finished parts of a task up to these bytes wait in memory, while the budget has room for them.
const MOST_HELD_BYTES: usize = 64 << 20;

/// A finished part of a segment.
#[derive(Debug, Clone)]
pub(crate) struct SegmentPart {
    pub(crate) source: PartSource,
    pub(crate) bytes: u64,
    /// The lowest and the highest key group in it.
    pub(crate) groups: (u16, u16),
    /// What it takes of the budget, if it waits in memory.
    held: Option<Arc<MemoryHandle>>,
}

/// Where a part waits for its upload.
#[derive(Debug, Clone)]
pub(crate) enum PartSource {
    Memory(Bytes),
    /// A scratch file; whoever takes the part removes it.
    File(PathBuf),
}

impl SegmentPart {
    /// The part's bytes, read back if they are in a file.
    pub(crate) fn read(&self) -> Result<Bytes> {
        match &self.source {
            PartSource::Memory(bytes) => Ok(bytes.clone()),
            PartSource::File(path) => std::fs::read(path).map(Bytes::from).map_err(io_error("read", path)),
        }
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.source, PartSource::Memory(_))
    }

    /// Moves it out of memory, to `path`.
    pub(crate) fn spill(&mut self, path: &Path) -> Result<()> {
        if let PartSource::Memory(bytes) = &self.source {
            std::fs::write(path, bytes).map_err(io_error("write", path))?;
            (self.source, self.held) = (PartSource::File(path.to_owned()), None);
        }
        Ok(())
    }

    /// Removes the scratch file.
    pub(crate) fn discard(&self) {
        discard(&self.source);
    }
}

fn discard(source: &PartSource) {
    if let PartSource::File(path) = source
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::debug!(path = %path.display(), %error, "a scratch file was already gone");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    table: TableId,
    offset: u64,
    bytes: u64,
}

/// Collects the changes of one task since its last checkpoint.
pub(crate) struct ChangelogWriter {
    directory: PathBuf,
    name: String,
    part_bytes: usize,
    buffer: Vec<u8>,
    frames: Vec<Frame>,
    lowest_group: u16,
    highest_group: u16,
    finished: Vec<SegmentPart>,
    budget: MemoryBudget,
    files: u64,
    position: u64,
    /// Which keys have changed lately, if anybody wants to know.
    recent: Option<RecentChanges>,
}

impl ChangelogWriter {
    /// A writer whose scratch files are `directory/name-<n>`. Parts are cut at about `part_bytes`.
    pub(crate) fn new(directory: PathBuf, name: String, part_bytes: usize, budget: &MemoryBudget) -> Self {
        let mut writer = Self {
            directory,
            name,
            part_bytes,
            budget: budget.clone(),
            buffer: Vec::new(),
            frames: Vec::new(),
            lowest_group: u16::MAX,
            highest_group: 0,
            finished: Vec::new(),
            files: 0,
            position: 0,
            recent: None,
        };
        writer.start_part();
        writer
    }

    fn start_part(&mut self) {
        self.buffer.clear();
        self.buffer.extend_from_slice(MAGIC);
        self.buffer.extend_from_slice(&VERSION.to_le_bytes());
        (self.lowest_group, self.highest_group) = (u16::MAX, 0);
    }

    /// How far the task's changelog has come: grows with each change, over all segments.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Appends a change: a full key (key group, table, key) and its value, `None` for a deletion.
    pub(crate) fn append(&mut self, full_key: &[u8], value: Option<&[u8]>) {
        let (prefix, key) = full_key.split_at(4);
        let group = u16::from_be_bytes([prefix[0], prefix[1]]);
        let table = TableId(u16::from_be_bytes([prefix[2], prefix[3]]));
        self.lowest_group = self.lowest_group.min(group);
        self.highest_group = self.highest_group.max(group);
        let offset = self.buffer.len() as u64;
        match self.frames.last() {
            Some(frame) if frame.table == table && offset - frame.offset < FRAME_BYTES as u64 => {}
            _ => self.frames.push(Frame { table, offset, bytes: 0 }),
        }
        self.buffer.extend_from_slice(&group.to_be_bytes());
        put_varint(&mut self.buffer, key.len() as u64);
        put_varint(&mut self.buffer, value.map_or(0, |value| value.len() as u64 + 1));
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value.unwrap_or_default());
        let end = self.buffer.len() as u64;
        let frame = self.frames.last_mut().expect("a frame was just begun");
        frame.bytes = end - frame.offset;
        self.position += end - offset;
        if let Some(recent) = &mut self.recent {
            recent.note(full_key, self.position);
        }
        if self.buffer.len() >= self.part_bytes {
            self.finish_part();
        }
    }

    fn finish_part(&mut self) {
        if self.frames.is_empty() {
            return;
        }
        let directory = self.buffer.len() as u64;
        for frame in &self.frames {
            self.buffer.extend_from_slice(&frame.table.0.to_le_bytes());
            self.buffer.extend_from_slice(&frame.offset.to_le_bytes());
            self.buffer.extend_from_slice(&frame.bytes.to_le_bytes());
        }
        self.buffer.extend_from_slice(&self.lowest_group.to_le_bytes());
        self.buffer.extend_from_slice(&self.highest_group.to_le_bytes());
        self.buffer.extend_from_slice(&(self.frames.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&directory.to_le_bytes());
        self.buffer.extend_from_slice(END_MAGIC);
        self.frames.clear();
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let groups = (self.lowest_group, self.highest_group);
        self.finished.push(SegmentPart { bytes: bytes.len() as u64, source: PartSource::Memory(bytes), groups, held: None });
        self.start_part();
    }

    /// Finds a place for finished parts: in memory, where the budget has room for a few, for a write may have to wait for the disk and the records
    /// with it; else in scratch files. Called by tables after they may have appended much.
    pub(crate) fn spill(&mut self) -> Result<()> {
        let is_short = self.budget.used() > self.budget.limit();
        let most = MOST_HELD_BYTES.min(self.budget.limit() / 32);
        let mut held: usize = self.finished.iter().filter_map(|part| Some(part.held.as_ref()?.used())).sum();
        for part in self.finished.iter_mut().filter(|part| part.is_in_memory()) {
            let bytes = part.bytes as usize;
            if part.held.is_none() && !is_short && held + bytes <= most {
                let handle = self.budget.handle("state changelog");
                part.held = handle.try_grow(bytes).then(|| Arc::new(handle));
                held += bytes;
            }
            if part.held.is_none() || is_short {
                part.spill(&self.directory.join(format!("{}-{}", self.name, self.files)))?;
                self.files += 1;
            }
        }
        Ok(())
    }

    /// Ends the segment and begins the next one.
    pub(crate) fn finish_segment(&mut self) -> Vec<SegmentPart> {
        self.finish_part();
        if let Some(recent) = &mut self.recent {
            recent.end_segment(self.position);
        }
        std::mem::take(&mut self.finished)
    }

    /// The keys that may have changed behind `named`, a position that a segment ended at or 0. From the first call on it is noted which those are.
    pub(crate) fn changed_behind(&mut self, named: u64) -> &RecentChanges {
        let recent = self.recent.get_or_insert_with(|| RecentChanges::new(self.position));
        recent.forget(named);
        recent
    }
}

/// A part as it came back from a checkpoint, in memory if it is small, else in a scratch file.
pub(crate) struct StoredPart {
    source: PartSource,
    /// Name of the object, for errors.
    object: String,
    directory: Directory,
}

struct Directory {
    groups: RangeInclusive<u16>,
    frames: Vec<Frame>,
}

impl StoredPart {
    /// Checks a part and keeps it, in file `path` if it is not small, so that its tables can read their frames.
    pub(crate) fn keep(bytes: &Bytes, object: &str, path: &Path) -> Result<Self> {
        let directory = read_directory(bytes).ok_or_else(|| corrupt(object))?;
        let source = if bytes.len() <= KEEP_BYTES {
            PartSource::Memory(bytes.clone())
        } else {
            std::fs::write(path, bytes).map_err(io_error("write", path))?;
            PartSource::File(path.to_owned())
        };
        Ok(Self { source, object: object.to_owned(), directory })
    }

    /// Whether it may have changes of these key groups.
    pub(crate) fn overlaps(&self, groups: &Range<u16>) -> bool {
        *self.directory.groups.start() < groups.end && *self.directory.groups.end() >= groups.start
    }

    /// The tables that have changes in the part, each once.
    pub(crate) fn tables(&self) -> Vec<TableId> {
        let mut tables: Vec<TableId> = self.directory.frames.iter().map(|frame| frame.table).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// Visits the changes of `table` within `groups` in order: key group, key without group and table, value.
    pub(crate) fn for_each(&self, table: TableId, groups: &Range<u16>, f: &mut ChangeFn<'_>) -> Result<()> {
        if !self.overlaps(groups) {
            return Ok(());
        }
        let failed = |source| StorageError::Io { action: "read", file: self.object.clone(), source };
        let file = match &self.source {
            PartSource::Memory(_) => None,
            PartSource::File(path) => Some(File::open(path).map_err(failed)?),
        };
        let mut buffer = Vec::new();
        for frame in self.directory.frames.iter().filter(|frame| frame.table == table) {
            let mut rest = match (&self.source, &file) {
                (PartSource::Memory(bytes), _) => &bytes[frame.offset as usize..(frame.offset + frame.bytes) as usize],
                (PartSource::File(_), file) => {
                    buffer.resize(frame.bytes as usize, 0);
                    let file = file.as_ref().expect("the file was opened");
                    file.read_exact_at(&mut buffer, frame.offset).map_err(failed)?;
                    buffer.as_slice()
                }
            };
            while !rest.is_empty() {
                let (group, key, value) = take_change(&mut rest).ok_or_else(|| corrupt(&self.object))?;
                if groups.contains(&group) {
                    f(group, key, value)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for StoredPart {
    fn drop(&mut self) {
        discard(&self.source);
    }
}

/// Calls back with the key group, the key without group and table, and the value or `None` for a deletion.
pub(crate) type ChangeFn<'a> = dyn FnMut(u16, &[u8], Option<&[u8]>) -> Result<()> + 'a;

fn corrupt(object: &str) -> StorageError {
    StorageError::Corrupt { file: object.to_owned(), detail: "it is not a whole segment of the state changelog".into() }
}

fn read_directory(bytes: &[u8]) -> Option<Directory> {
    let body_end = bytes.len().checked_sub(FOOTER_BYTES).filter(|end| *end >= HEADER_BYTES)?;
    let header_fits = bytes[..4] == *MAGIC && bytes[4..8] == VERSION.to_le_bytes();
    let footer = &bytes[body_end..];
    let groups = u16::from_le_bytes([footer[0], footer[1]])..=u16::from_le_bytes([footer[2], footer[3]]);
    let count = u32::from_le_bytes(footer[4..8].try_into().ok()?) as usize;
    let directory = usize::try_from(u64::from_le_bytes(footer[8..16].try_into().ok()?)).ok()?;
    let directory_fits = directory.checked_add(count.checked_mul(DIRECTORY_ENTRY_BYTES)?)? == body_end;
    if !header_fits || !directory_fits || footer[16..] != *END_MAGIC {
        return None;
    }
    let frames: Vec<Frame> = bytes[directory..body_end]
        .chunks_exact(DIRECTORY_ENTRY_BYTES)
        .map(|entry| Frame {
            table: TableId(u16::from_le_bytes([entry[0], entry[1]])),
            offset: u64::from_le_bytes(entry[2..10].try_into().expect("eight bytes")),
            bytes: u64::from_le_bytes(entry[10..18].try_into().expect("eight bytes")),
        })
        .collect();
    let within = |frame: &Frame| frame.offset.checked_add(frame.bytes).is_some_and(|end| end <= directory as u64);
    frames.iter().all(within).then_some(Directory { groups, frames })
}

/// A change: key group, key, value.
type Change<'a> = (u16, &'a [u8], Option<&'a [u8]>);

fn take_change<'a>(rest: &mut &'a [u8]) -> Option<Change<'a>> {
    let (group, tail) = rest.split_at_checked(2)?;
    *rest = tail;
    let key_len = usize::try_from(take_varint(rest)?).ok()?;
    let value_len = usize::try_from(take_varint(rest)?).ok()?;
    let (key, tail) = rest.split_at_checked(key_len)?;
    let (value, tail) = tail.split_at_checked(value_len.saturating_sub(1))?;
    *rest = tail;
    Some((u16::from_be_bytes([group[0], group[1]]), key, (value_len > 0).then_some(value)))
}

/// Appends a number in as few bytes as it needs, seven bits in each.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front of `rest`; `None` if there is no whole one.
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for (index, byte) in rest.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            *rest = &rest[index + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full_key(table: u16, key: &str) -> Vec<u8> {
        [&[0, 7][..], &table.to_be_bytes(), key.as_bytes()].concat()
    }

    fn changes(part: &StoredPart, table: u16) -> String {
        let mut text = Vec::new();
        part.for_each(TableId(table), &(0..256), &mut |group, key, value| {
            assert_eq!(group, 7);
            let value = value.map_or("-".into(), String::from_utf8_lossy);
            text.push(format!("{}={value}", String::from_utf8_lossy(key)));
            Ok(())
        })
        .unwrap();
        text.join(" ")
    }

    #[test]
    fn parts_give_back_the_changes_of_each_table_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = ChangelogWriter::new(directory.path().into(), "log".into(), 1 << 20, &MemoryBudget::new(1 << 20));
        writer.append(&full_key(1, "a"), Some(b"1"));
        writer.append(&full_key(2, "b"), Some(b""));
        writer.append(&full_key(1, "a"), None);
        let parts = writer.finish_segment();
        assert_eq!(parts.len(), 1);
        let part = StoredPart::keep(&parts[0].read().unwrap(), "object", &directory.path().join("part")).unwrap();
        assert_eq!((changes(&part, 1), changes(&part, 2), changes(&part, 3)), ("a=1 a=-".into(), "b=".into(), String::new()));
        assert_eq!(part.tables(), vec![TableId(1), TableId(2)]);
        assert!(writer.finish_segment().is_empty());
    }

    #[test]
    fn big_segments_are_cut_and_spilled() {
        let directory = tempfile::tempdir().unwrap();
        let budget = MemoryBudget::new(32 * 4000);
        let mut writer = ChangelogWriter::new(directory.path().into(), "log".into(), 1000, &budget);
        for i in 0..100 {
            writer.append(&full_key(1, &format!("key {i}")), Some(&[7; 50]));
            writer.spill().unwrap();
        }
        let in_memory = |parts: &[SegmentPart]| parts.iter().take_while(|part| part.is_in_memory()).count();
        assert_eq!((in_memory(&writer.finished), writer.finished.len()), (3, 5), "a few stay in memory");
        assert!((3000..4000).contains(&budget.used()), "and are counted: {}", budget.used());
        let others = budget.handle("others");
        others.grow(budget.limit());
        writer.spill().unwrap();
        assert_eq!((in_memory(&writer.finished), budget.used()), (0, others.used()), "until memory is short");
        let parts = writer.finish_segment();
        let total: usize = parts
            .iter()
            .map(|part| StoredPart::keep(&part.read().unwrap(), "object", &directory.path().join("part")).unwrap())
            .map(|part| changes(&part, 1).split(' ').filter(|word| *word == "key").count())
            .sum();
        assert_eq!(total, 100);
        parts.iter().for_each(SegmentPart::discard);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_part_is_refused_not_misread() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = ChangelogWriter::new(directory.path().into(), "log".into(), 1 << 20, &MemoryBudget::new(1 << 20));
        writer.append(&full_key(1, "a"), Some(b"1"));
        let bytes = writer.finish_segment()[0].read().unwrap();
        for len in 0..bytes.len() {
            let result = StoredPart::keep(&bytes.slice(..len), "log/1-0-1", &directory.path().join("part"));
            assert!(matches!(result, Err(StorageError::Corrupt { file, .. }) if file == "log/1-0-1"), "cut at {len}");
        }
        for index in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[index] ^= 0x55;
            if let Ok(part) = StoredPart::keep(&Bytes::from(damaged), "object", &directory.path().join("part")) {
                let _ = part.for_each(TableId(1), &(0..256), &mut |_, _, _| Ok(()));
            }
        }
    }
}
