//! Segments of the epoch log: files `<n>.log` with consecutive numbers. The first frame of each says its number, how long the segment before it
//! is, and the highest epoch before it, so that a missing or shortened file is found, and epochs go on where they were when old
//! segments are gone. The note of a closed segment says that another one follows, that of the last one how long it was at least.

use std::{
    fs,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use super::{LogOptions, record::LogRecord, writer::Contents};
use crate::{
    durable_file::{corrupt, create_directory, io_error, remove_file, sync_directory},
    encoding::cursor::Cursor,
    epoch::Epoch,
    error::{Result, StorageError},
    frame_file::{FileFaults, FrameBuffer, FrameFile, Tail, read_frames},
};

/// Space is allocated ahead in steps of so many bytes.
const ALLOCATION_BYTES: u64 = 4 << 20;
/// When the disk is full so much is still left for what ends the open epochs, so that all that was acknowledged can be read.
const RESERVE_BYTES: u64 = 256 << 10;

const HEADER_VERSION: u8 = 1;

/// A segment that is not written any more.
#[derive(Clone, Debug)]
pub(super) struct ClosedSegment {
    number: u64,
    path: PathBuf,
    bytes: u64,
    highest_epoch: Epoch,
    /// Keys of the notes in it.
    pub(super) notes: Vec<String>,
}

/// All segments but the one that is written.
#[derive(Debug)]
pub(super) struct Segments {
    directory: PathBuf,
    closed: Vec<ClosedSegment>,
    /// Of the segment that is written.
    current_bytes: u64,
    /// Highest epoch of segments that were removed before the log was opened.
    highest_epoch_before: Epoch,
    /// There was no log before it was opened.
    is_new: bool,
}

/// The segment that is written. Belongs to the writer thread.
#[derive(Debug)]
pub(super) struct CurrentSegment {
    number: u64,
    file: FrameFile,
    contents: Contents,
    highest_epoch_before: Epoch,
    /// An fsync failed: nothing may be appended here any more.
    broken: bool,
    /// The disk is full.
    full: bool,
    options: LogOptions,
}

/// The first frame of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    number: u64,
    length_before: u64,
    highest_epoch_before: Epoch,
}

impl Header {
    fn frame(self) -> FrameBuffer {
        let mut frame = FrameBuffer::new();
        let payload = frame.payload();
        payload.push(HEADER_VERSION);
        payload.extend_from_slice(&self.number.to_le_bytes());
        payload.extend_from_slice(&self.length_before.to_le_bytes());
        payload.extend_from_slice(&self.highest_epoch_before.0.to_le_bytes());
        frame
    }

    fn read(payload: &[u8]) -> Result<Self> {
        let mut from = Cursor::new(payload, "epoch log segment header");
        let version = from.u8()?;
        if version != HEADER_VERSION {
            return Err(from.corrupt(format!("unknown version {version}")));
        }
        Ok(Self { number: from.u64()?, length_before: from.u64()?, highest_epoch_before: Epoch(from.u64()?) })
    }
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.log"))
}

/// The numbers of the segments in a directory, ascending and without a gap.
fn segment_numbers(directory: &Path) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(io_error("read", directory))? {
        let name = entry.map_err(io_error("read", directory))?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".log")).and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    match numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        Some(pair) => Err(corrupt(&segment_path(directory, pair[0] + 1), "it is missing")),
        None => Ok(numbers),
    }
}

/// A segment as it was read.
struct ReadSegment {
    header: Option<Header>,
    contents: Contents,
    records: Vec<LogRecord>,
}

impl ReadSegment {
    fn new() -> Self {
        Self { header: None, contents: Contents::default(), records: Vec::new() }
    }

    fn take(&mut self, path: &Path, offset: u64, payload: &[u8]) -> Result<()> {
        let taken = match self.header {
            None => Header::read(payload).map(|header| self.header = Some(header)),
            Some(_) => LogRecord::read_frame(payload, |record| {
                self.contents.add(&record);
                self.records.push(record);
            }),
        };
        taken.map_err(|error| match error {
            StorageError::Corrupt { file, detail } => corrupt(path, format!("{file} at offset {offset}: {detail}")),
            other => other,
        })
    }
}

impl Segments {
    /// Reads all segments; the last one is opened to be written on.
    pub(super) fn open(directory: &Path, options: LogOptions) -> Result<(Self, CurrentSegment, Vec<LogRecord>)> {
        create_directory(directory)?;
        let mut segments = Self {
            directory: directory.into(),
            closed: Vec::new(),
            current_bytes: 0,
            highest_epoch_before: Epoch::default(),
            is_new: false,
        };
        let mut records = Vec::new();
        let numbers = segment_numbers(directory)?;
        segments.is_new = numbers.is_empty();
        let mut current = None;
        let mut followed = false;
        for (index, number) in numbers.iter().enumerate() {
            let path = segment_path(directory, *number);
            let is_last = index + 1 == numbers.len();
            let mut read = ReadSegment::new();
            let take = |offset, payload: &[u8]| read.take(&path, offset, payload);
            let file = read_segment(&path, is_last, options.faults.clone(), take)?;
            match (read.header, file) {
                (Some(header), file) => {
                    segments.check_header(&path, *number, header)?;
                    match file {
                        OpenedSegment::Current(file) => {
                            followed = file.is_followed();
                            segments.current_bytes = file.length();
                            let highest_epoch_before = segments.highest_epoch();
                            let contents = read.contents;
                            current = Some(CurrentSegment {
                                number: *number,
                                file,
                                contents,
                                highest_epoch_before,
                                broken: false,
                                full: false,
                                options: options.clone(),
                            });
                        }
                        OpenedSegment::Closed { bytes, followed: expected } => {
                            followed = expected;
                            segments.close(*number, path, bytes, read.contents);
                        }
                    }
                    records.append(&mut read.records);
                }
                (None, OpenedSegment::Current(_)) if followed => return Err(corrupt(&path, "it is cut off")),
                // The crash came while the segment was begun: it is begun again.
                (None, OpenedSegment::Current(_)) => {
                    segments.is_new = numbers.len() == 1;
                    remove_file(&path)?;
                }
                (None, OpenedSegment::Closed { .. }) => return Err(corrupt(&path, "it has no header")),
            }
        }
        if followed && let Some(last) = numbers.last() {
            return Err(corrupt(&segment_path(directory, last + 1), "it is missing"));
        }
        let current = match current {
            Some(current) => current,
            None => CurrentSegment::begin(&mut segments, options)?,
        };
        Ok((segments, current, records))
    }

    fn check_header(&mut self, path: &Path, number: u64, header: Header) -> Result<()> {
        if header.number != number {
            return Err(corrupt(path, format!("it says that it is segment {}", header.number)));
        }
        match self.closed.last() {
            None => self.highest_epoch_before = header.highest_epoch_before,
            Some(before) if before.bytes != header.length_before => {
                return Err(corrupt(&before.path, format!("it has {} bytes, {} were written", before.bytes, header.length_before)));
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn close(&mut self, number: u64, path: PathBuf, bytes: u64, contents: Contents) {
        let Contents { highest_epoch, notes, .. } = contents;
        self.closed.push(ClosedSegment { number, path, bytes, highest_epoch, notes: notes.into_iter().collect() });
    }

    /// Highest epoch of the closed segments and those removed before them.
    pub(super) fn highest_epoch(&self) -> Epoch {
        self.closed.iter().map(|segment| segment.highest_epoch).max().unwrap_or_default().max(self.highest_epoch_before)
    }

    /// Highest epoch of the segments that were removed.
    pub(super) fn removed_through(&self) -> Epoch {
        self.highest_epoch_before
    }

    /// Whether there was no log before it was opened.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn bytes(&self) -> u64 {
        self.current_bytes + self.closed.iter().map(|segment| segment.bytes).sum::<u64>()
    }

    /// The segments at the front whose epochs are all below `epoch`.
    pub(super) fn closed_below(&self, epoch: Epoch) -> Vec<ClosedSegment> {
        self.closed.iter().take_while(|segment| segment.highest_epoch < epoch).cloned().collect()
    }

    /// Removes segments at the front, in order, so that at any moment those left have no gap.
    pub(super) fn remove(&mut self, cut: &[ClosedSegment]) -> Result<()> {
        for segment in cut {
            remove_file(&segment.path)?;
            self.highest_epoch_before = self.highest_epoch_before.max(segment.highest_epoch);
            self.closed.retain(|closed| closed.number != segment.number);
        }
        sync_directory(&self.directory)
    }
}

enum OpenedSegment {
    Current(FrameFile),
    Closed { bytes: u64, followed: bool },
}

fn read_segment(path: &Path, is_last: bool, faults: FileFaults, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<OpenedSegment> {
    if is_last {
        FrameFile::open(path, faults, |place, payload| take(place.offset, payload)).map(OpenedSegment::Current)
    } else {
        let read = read_frames(path, Tail::MayBeAllocated, |place, payload| take(place.offset, payload))?;
        Ok(OpenedSegment::Closed { bytes: read.length, followed: read.note.followed })
    }
}

impl CurrentSegment {
    /// Begins the segment behind the closed ones.
    fn begin(segments: &mut Segments, options: LogOptions) -> Result<Self> {
        let before = segments.closed.last();
        let number = before.map_or(1, |before| before.number + 1);
        let highest_epoch_before = segments.highest_epoch();
        let header = Header { number, length_before: before.map_or(0, |before| before.bytes), highest_epoch_before };
        let mut file = FrameFile::create(&segment_path(&segments.directory, number), options.faults.clone())?;
        file.append(header.frame())?;
        file.sync()?;
        segments.current_bytes = file.length();
        Ok(Self { number, file, contents: Contents::default(), highest_epoch_before, broken: false, full: false, options })
    }

    /// Writes a frame durably. On an error it is not in the log: its place is cut off now, or before anything else is written. A frame
    /// without changes of tables may use the reserve.
    pub(super) fn commit(&mut self, frame: FrameBuffer, contents: Contents, segments: &Mutex<Segments>) -> Result<()> {
        let bytes = frame.written_length();
        if let Err(error) = self.make_room(bytes, segments) {
            let is_probe = frame.payload_length() <= 1;
            let may_use_reserve = !contents.has_changes && !is_probe && !self.broken && self.file.allocated_ahead() >= bytes;
            if !may_use_reserve {
                return Err(error);
            }
        }
        if let Err(error) = self.file.append(frame) {
            // A segment that cannot be cut either is left behind.
            self.broken = self.file.cut_to_durable().is_err();
            return Err(error);
        }
        if let Err(error) = self.file.sync() {
            self.broken = true;
            // Tried at once, so that a crash does not bring back what was refused; and again before the next segment is begun.
            let _ = self.file.cut_to_durable();
            return Err(error);
        }
        self.contents.merge(contents);
        segments.lock().current_bytes = self.file.length();
        Ok(())
    }

    fn make_room(&mut self, bytes: u64, segments: &Mutex<Segments>) -> Result<()> {
        if self.broken || self.file.length() >= self.options.segment_bytes {
            self.roll(segments)?;
        }
        let wanted = bytes + RESERVE_BYTES;
        // On a full disk every commit tries to get more, so that the end of it is noticed.
        let tried = if self.full { wanted.max(self.file.allocated_ahead() + 1) } else { wanted };
        let allocated = self.file.allocate(tried, ALLOCATION_BYTES);
        self.full = allocated.is_err();
        if self.file.allocated_ahead() >= wanted { Ok(()) } else { allocated }
    }

    /// Whether no more space could be had for the last commit.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Notes in the file how much of it is durable, if that is not known. For when nothing is to be written: it costs a commit a second page.
    pub(super) fn note(&mut self) -> Result<()> {
        if self.broken || self.file.is_noted() { Ok(()) } else { self.file.note_durable(false) }
    }

    /// Whether the file's note is up to date, as far as it can be.
    pub(super) fn is_noted(&self) -> bool {
        self.broken || self.file.is_noted()
    }

    /// Gives back space that is allocated and not used, when nothing more is written. Only then the note is as exact as the log.
    pub(super) fn close(&mut self) -> Result<()> {
        self.note()?;
        self.file.trim()?;
        self.file.sync_all()
    }

    /// Closes this segment, cut to what is durable, and begins the next.
    fn roll(&mut self, segments: &Mutex<Segments>) -> Result<()> {
        if self.broken {
            self.file.cut_to_durable()?;
        }
        let mut segments = segments.lock();
        let before = segments.closed.len();
        let mut contents = self.contents.clone();
        contents.highest_epoch = contents.highest_epoch.max(self.highest_epoch_before);
        segments.close(self.number, self.file.path().into(), self.file.durable_length(), contents);
        match Self::begin(&mut segments, self.options.clone()) {
            Ok(next) => {
                let mut closed = std::mem::replace(self, next);
                drop(segments);
                // Zeros that stay are known to be nothing; and what is not noted is not found when it is missing, no more.
                let _ = closed.file.note_durable(true).and_then(|()| closed.file.trim()).and_then(|()| closed.file.sync_all());
                Ok(())
            }
            Err(error) => {
                segments.closed.truncate(before);
                segments.current_bytes = self.file.length();
                Err(error)
            }
        }
    }
}
