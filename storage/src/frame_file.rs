//! A file of checksummed frames that is only appended to: what the epoch log, the delta logs and the catalog log are made of.
//!
//! ```text
//! "mpframe2" | note | frames
//! note:  length (u64) | followed (u32) | crc32 of both (u32), or zeros
//! frame: magic (u32) | payload length (u32) | crc32 (u32) | 0 (u32) | durable length (u64) | payload | zeros up to a multiple of 8
//! ```
//!
//! The checksum covers all of the frame but magic and itself. The *durable length* is how much of the file was known to be on disk when the frame was
//! written. It tells a torn tail from damage: a power loss may keep any part of what was not fsynced, so bytes that are no frame are a torn tail, and cut,
//! unless a whole frame behind them says that they were durable. That is an error: acknowledged records would be lost.
//!
//! A file that was cut off has no frame behind the cut. So the file's *note*, which is written over now and then ([`FrameFile::note_durable`]), says how
//! much was durable, and whether another file follows: whole frames that end before that are an error, too.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    durable_file::{corrupt, io_error, sync_directory, sync_file},
    error::Result,
};

const FILE_MAGIC: &[u8; 8] = b"mpframe2";
/// Magic and note. All in one sector, which a disk writes as a whole or not at all.
pub(crate) const FILE_HEADER: usize = 24;
const FOLLOWED: u32 = 1;
const FRAME_MAGIC: u32 = 0x4d_4c_50_46;
const FRAME_HEADER: usize = 24;
const ALIGNMENT: usize = 8;

/// A frame that is being filled. One allocation is written as it is.
#[derive(Debug)]
pub(crate) struct FrameBuffer(Vec<u8>);

impl FrameBuffer {
    pub(crate) fn new() -> Self {
        Self(vec![0; FRAME_HEADER])
    }

    /// Where to append the payload.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(crate) fn payload_length(&self) -> usize {
        self.0.len() - FRAME_HEADER
    }

    /// Bytes it takes in a file.
    pub(crate) fn written_length(&self) -> u64 {
        self.0.len().next_multiple_of(ALIGNMENT) as u64
    }

    /// Fills in the header; the bytes are a whole frame then.
    fn seal(&mut self, durable: u64) {
        let length = u32::try_from(self.payload_length()).expect("frames are bounded by who fills them");
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self.0[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        self.0[4..8].copy_from_slice(&length.to_le_bytes());
        self.0[16..24].copy_from_slice(&durable.to_le_bytes());
        let crc = frame_checksum(&self.0, length as usize);
        self.0[8..12].copy_from_slice(&crc.to_le_bytes());
    }
}

fn frame_checksum(frame: &[u8], length: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[4..8]);
    hasher.update(&frame[16..FRAME_HEADER + length]);
    hasher.finalize()
}

/// Where a frame is in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FramePlace {
    pub(crate) offset: u64,
    /// Bytes of the payload.
    pub(crate) length: u32,
}

impl FramePlace {
    /// The offset behind the frame.
    pub(crate) fn end(&self) -> u64 {
        self.offset + (FRAME_HEADER + self.length as usize).next_multiple_of(ALIGNMENT) as u64
    }
}

/// Makes writes and fsyncs of files fail, for tests. Clones are switched together.
#[derive(Clone, Debug, Default)]
pub struct FileFaults {
    /// Every write fails, as on a full disk.
    pub fail_writes: Arc<AtomicBool>,
    /// Every fsync fails.
    pub fail_syncs: Arc<AtomicBool>,
    /// No file may become longer than it is: the disk is full, but what a file has it keeps.
    pub fail_growth: Arc<AtomicBool>,
}

impl FileFaults {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let grows = || file.metadata().is_ok_and(|metadata| offset + bytes.len() as u64 > metadata.len());
        if self.fail_writes.load(Ordering::Relaxed) || (self.fail_growth.load(Ordering::Relaxed) && grows()) {
            file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        file.write_all_at(bytes, offset)
    }

    /// Writes where there is something already, all or nothing.
    fn overwrite(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        file.write_all_at(bytes, offset)
    }

    pub(crate) fn sync(&self, file: &File) -> io::Result<()> {
        if self.fail_syncs.load(Ordering::Relaxed) {
            return Err(io::Error::other("injected"));
        }
        sync_file(file)
    }
}

/// Whether a file may end in the middle of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tail {
    /// It may: it was the one being written.
    MayBeTorn,
    /// It may not: it was closed.
    IsWhole,
    /// It may not, but space that was allocated behind its end may still be there, as zeros. Whoever reads it knows its length otherwise.
    MayBeAllocated,
}

/// Zeros are written in pieces of so many bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// An open file of frames.
#[derive(Debug)]
pub(crate) struct FrameFile {
    file: File,
    path: PathBuf,
    /// Length of what was written whole.
    length: u64,
    /// Length of what is known to be on disk.
    durable: u64,
    /// Length of the file: behind what was written there may be zeros.
    allocated: u64,
    /// What the file says of itself.
    noted: Note,
    faults: FileFaults,
}

impl FrameFile {
    /// A new file, durably in its directory. A leftover of the same name is replaced.
    pub(crate) fn create(path: &Path, faults: FileFaults) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).map_err(io_error("create", path))?;
        let mut header = [0; FILE_HEADER];
        header[..FILE_MAGIC.len()].copy_from_slice(FILE_MAGIC);
        faults.write(&file, &header, 0).map_err(io_error("write", path))?;
        faults.sync(&file).map_err(io_error("fsync", path))?;
        sync_directory(path.parent().expect("a file is in a directory"))?;
        let length = FILE_HEADER as u64;
        Ok(Self { file, path: path.into(), length, durable: length, allocated: length, noted: Note::default(), faults })
    }

    /// Reads the file, hands each payload to `take`, cuts a torn tail, and goes on behind it. What was read is durable afterwards.
    pub(crate) fn open(path: &Path, faults: FileFaults, take: impl FnMut(FramePlace, &[u8]) -> Result<()>) -> Result<Self> {
        let ReadFrames { length, note } = read_frames(path, Tail::MayBeTorn, take)?;
        if length == 0 {
            return Self::create(path, faults);
        }
        let file = File::options().read(true).write(true).open(path).map_err(io_error("open", path))?;
        let mut opened = Self { file, path: path.into(), length, durable: 0, allocated: length, noted: note, faults };
        opened.truncate()?;
        opened.durable = length;
        Ok(opened)
    }

    /// Whether the file's note says how much of it is durable.
    pub(crate) fn is_noted(&self) -> bool {
        self.noted.length == self.durable
    }

    /// Whether the file's note says that another one was begun behind it.
    pub(crate) fn is_followed(&self) -> bool {
        self.noted.followed
    }

    /// Writes into the file itself how much of it is durable, and whether another file follows it. The next fsync makes that durable, too; what a
    /// crash leaves is as good, for the lengths only grow.
    pub(crate) fn note_durable(&mut self, followed: bool) -> Result<()> {
        let note = Note { length: self.durable, followed };
        self.faults.overwrite(&self.file, &note.write(), FILE_MAGIC.len() as u64).map_err(io_error("write", &self.path))?;
        self.noted = note;
        Ok(())
    }

    /// Makes durable what else was changed in the file: its note, its length.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.faults.sync(&self.file).map_err(io_error("fsync", &self.path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes known to be on disk.
    pub(crate) fn durable_length(&self) -> u64 {
        self.durable
    }

    /// Bytes that can be written without the file becoming longer.
    pub(crate) fn allocated_ahead(&self) -> u64 {
        self.allocated - self.length
    }

    /// Sees to it that `ahead` bytes can be written without the file becoming longer: it is filled with zeros up to the next multiple of
    /// `step`, durably. What is written there cannot fail for lack of space, and its fsync does not have to write the file's length. On an error
    /// what was allocated before is still there.
    pub(crate) fn allocate(&mut self, ahead: u64, step: u64) -> Result<()> {
        if self.allocated_ahead() >= ahead {
            return Ok(());
        }
        let target = (self.length + ahead).next_multiple_of(step);
        let zeros = vec![0; ZEROS_BYTES.min((target - self.allocated) as usize)];
        let mut end = self.allocated;
        while end < target {
            let piece = &zeros[..zeros.len().min((target - end) as usize)];
            if let Err(error) = self.faults.write(&self.file, piece, end) {
                // Longer than known does no harm: the zeros are no frame.
                let _ = self.file.set_len(self.allocated);
                return Err(io_error("extend", &self.path)(error));
            }
            end += piece.len() as u64;
        }
        self.faults.sync(&self.file).map_err(io_error("fsync", &self.path))?;
        self.allocated = target;
        Ok(())
    }

    /// Gives back what is allocated and was not written.
    pub(crate) fn trim(&mut self) -> Result<()> {
        if self.allocated_ahead() > 0 { self.truncate() } else { Ok(()) }
    }

    /// Appends a frame, not durably. On an error nothing has been appended (what was written in part is cut off here or, if that fails
    /// too, by the next append, or as a torn tail).
    pub(crate) fn append(&mut self, mut frame: FrameBuffer) -> Result<FramePlace> {
        let place = FramePlace { offset: self.length, length: frame.payload_length() as u32 };
        frame.seal(self.durable);
        if let Err(error) = self.faults.write(&self.file, &frame.0, self.length) {
            // A failure to cut is found again by whoever writes or reads here next.
            if self.file.set_len(self.length).is_ok() {
                self.allocated = self.length;
            }
            return Err(io_error("write", &self.path)(error));
        }
        self.length = place.end();
        self.allocated = self.allocated.max(self.length);
        Ok(place)
    }

    /// Makes all that was appended durable. After an error the operating system may have dropped what it could not write: the
    /// file must not be appended to any more, only [`Self::cut_to_durable`] and closed.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.durable < self.length {
            self.faults.sync(&self.file).map_err(io_error("fsync", &self.path))?;
            self.durable = self.length;
        }
        Ok(())
    }

    /// Takes note that an fsync elsewhere has made the first `length` bytes durable.
    pub(crate) fn mark_durable(&mut self, length: u64) {
        self.durable = self.durable.max(length.min(self.length));
    }

    /// Takes back all that is not durable.
    pub(crate) fn cut_to_durable(&mut self) -> Result<()> {
        self.length = self.durable;
        self.truncate()
    }

    /// Cuts the file to its length, durably.
    fn truncate(&mut self) -> Result<()> {
        self.file.set_len(self.length).map_err(io_error("truncate", &self.path))?;
        self.allocated = self.length;
        self.faults.sync(&self.file).map_err(io_error("fsync", &self.path))
    }
}

/// The payload of one frame of a file.
pub(crate) fn read_frame(file: &File, path: &Path, place: FramePlace) -> Result<Vec<u8>> {
    let mut frame = vec![0; FRAME_HEADER + place.length as usize];
    file.read_exact_at(&mut frame, place.offset).map_err(io_error("read", path))?;
    if frame_at(&frame, 0).is_none_or(|found| found.length != place.length) {
        return Err(corrupt(path, format!("the record at offset {} is damaged", place.offset)));
    }
    frame.drain(..FRAME_HEADER);
    Ok(frame)
}

/// What a file says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// So many bytes were durable. Zero if nothing was noted yet.
    pub(crate) length: u64,
    /// Another file has been begun behind this one.
    pub(crate) followed: bool,
}

impl Note {
    fn write(self) -> [u8; FILE_HEADER - FILE_MAGIC.len()] {
        let mut bytes = [0; FILE_HEADER - FILE_MAGIC.len()];
        bytes[..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&(if self.followed { FOLLOWED } else { 0 }).to_le_bytes());
        let crc = crc32fast::hash(&bytes[..12]);
        bytes[12..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Some(Self::default());
        }
        let length = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let note = Self { length, followed: bytes.get(8..12)? == FOLLOWED.to_le_bytes() };
        (note.write()[..] == *bytes).then_some(note)
    }
}

/// A file that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadFrames {
    /// Where its whole frames end; 0 if not even the file's own header is there.
    pub(crate) length: u64,
    pub(crate) note: Note,
}

/// Reads a file and hands each payload to `take`. Damage is an error that names file and offset.
pub(crate) fn read_frames(path: &Path, tail: Tail, mut take: impl FnMut(FramePlace, &[u8]) -> Result<()>) -> Result<ReadFrames> {
    let bytes = fs::read(path).map_err(io_error("read", path))?;
    let mut offset = FILE_HEADER;
    if !bytes.starts_with(FILE_MAGIC) || bytes.len() < FILE_HEADER {
        // The header is durable before anything is written behind it.
        let never_written = FILE_MAGIC.starts_with(&bytes[..bytes.len().min(FILE_MAGIC.len())]) || bytes.iter().all(|byte| *byte == 0);
        if tail == Tail::MayBeTorn && bytes.len() <= FILE_HEADER && never_written {
            return Ok(ReadFrames { length: 0, note: Note::default() });
        }
        return Err(corrupt(path, "it does not begin as a log of this server does"));
    }
    let note = Note::read(&bytes[FILE_MAGIC.len()..FILE_HEADER]).ok_or_else(|| corrupt(path, "its header is damaged"))?;
    while let Some(frame) = frame_at(&bytes, offset) {
        take(frame.place(offset), &bytes[offset + FRAME_HEADER..][..frame.length as usize])?;
        offset = frame.place(offset).end() as usize;
    }
    // The zeros behind the last frame may be missing.
    let offset = offset.min(bytes.len().next_multiple_of(ALIGNMENT));
    let is_damaged = match tail {
        Tail::MayBeTorn => was_durable(&bytes, offset),
        Tail::IsWhole => offset < bytes.len(),
        Tail::MayBeAllocated => bytes.iter().skip(offset).any(|byte| *byte != 0),
    };
    if is_damaged {
        return Err(corrupt(path, format!("the record at offset {offset} is damaged")));
    }
    if (offset as u64) < note.length {
        return Err(corrupt(path, format!("it ends at offset {offset}, but {} bytes of it were written", note.length)));
    }
    Ok(ReadFrames { length: offset as u64, note })
}

/// Whether a whole frame behind `damaged` says that the damaged bytes were on disk.
fn was_durable(bytes: &[u8], damaged: usize) -> bool {
    let later = (damaged + ALIGNMENT..bytes.len()).step_by(ALIGNMENT);
    later.filter_map(|offset| frame_at(bytes, offset)).any(|frame| frame.durable > damaged as u64)
}

struct FrameHeader {
    length: u32,
    durable: u64,
}

impl FrameHeader {
    fn place(&self, offset: usize) -> FramePlace {
        FramePlace { offset: offset as u64, length: self.length }
    }
}

/// The frame that begins at `offset`, if it is there and whole.
fn frame_at(bytes: &[u8], offset: usize) -> Option<FrameHeader> {
    let frame = bytes.get(offset..)?;
    let header = frame.get(..FRAME_HEADER)?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if word(0) != FRAME_MAGIC {
        return None;
    }
    let length = word(4);
    if frame.len() < FRAME_HEADER + length as usize || frame_checksum(frame, length as usize) != word(8) {
        return None;
    }
    Some(FrameHeader { length, durable: u64::from_le_bytes(header[16..24].try_into().expect("eight bytes")) })
}
