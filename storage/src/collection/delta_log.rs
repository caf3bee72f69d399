//! The delta log of a collection: its net deltas in files `<n>.log` of frames, appended when an epoch is sealed, fsynced when asked.
//!
//! For a view it is the durable form of what is sealed and not yet in the base. For a table the epoch log is that, and this one is only where deltas
//! go when memory runs short: it is begun anew at each start. A file goes when the base that contains all of it is on disk.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::delta::Delta;
use crate::{
    durable_file::{corrupt, create_directory, io_error, remove_file, sync_directory},
    encoding::cursor::Cursor,
    epoch::Epoch,
    error::{Result, StorageError},
    frame_file::{FileFaults, FrameBuffer, FrameFile, FramePlace, Tail, read_frame, read_frames},
    signed_batch::SignedBatch,
};

/// A file is closed when it has this many bytes.
const FILE_BYTES: u64 = 64 << 20;

/// A delta may have this many bytes: a frame has a 32-bit length.
const MAX_DELTA_BYTES: usize = u32::MAX as usize - 1024;

const RECORD_VERSION: u8 = 1;
const KIND_DELTA: u8 = 1;
const KIND_REACHED: u8 = 2;
const KIND_REWOUND: u8 = 3;

/// A record of the log.
enum Record {
    Delta {
        delta: Delta,
        links: Links,
    },
    /// Nothing changed up to this epoch.
    Reached(Epoch),
    /// What came before this record and is above this epoch was taken back.
    Rewound(Epoch),
}

/// What a delta follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    /// `to` of the delta before, however long ago: a missing one is found.
    pub(super) previous: Epoch,
    /// Ordinal of its first row, if the collection is append-only.
    pub(super) first_ordinal: u64,
}

/// Where a delta is written, for reading it back. Keeps the file open, also when it is removed.
#[derive(Clone, Debug)]
pub(super) struct DeltaPlace {
    file: Arc<ReadFile>,
    frame: FramePlace,
}

#[derive(Debug)]
struct ReadFile {
    file: File,
    path: PathBuf,
}

impl DeltaPlace {
    /// An error that says where it was found.
    pub(super) fn locate(&self, error: StorageError) -> StorageError {
        located(error, &self.file.path, self.frame)
    }

    /// Reads the delta back.
    pub(super) fn read(&self) -> Result<Delta> {
        let payload = read_frame(&self.file.file, &self.file.path, self.frame)?;
        match read_record(&payload) {
            Ok(Record::Delta { delta, .. }) => Ok(delta),
            Ok(Record::Reached(_) | Record::Rewound(_)) => {
                Err(corrupt(&self.file.path, format!("no delta at offset {}", self.frame.offset)))
            }
            Err(error) => Err(located(error, &self.file.path, self.frame)),
        }
    }
}

/// An fsync that is to be done.
#[derive(Debug)]
pub(super) struct PendingSync {
    file: Arc<ReadFile>,
    length: u64,
    faults: FileFaults,
}

impl PendingSync {
    pub(super) fn run(&self) -> Result<()> {
        self.faults.sync(&self.file.file).map_err(io_error("fsync", &self.file.path))
    }
}

/// What is found when the log is opened, in order.
pub(super) enum Recovered {
    /// A delta.
    Delta { delta: Delta, links: Links, place: DeltaPlace },
    /// All above this epoch that was found so far does not count.
    Rewound(Epoch),
}

/// The open log.
#[derive(Debug)]
pub(super) struct DeltaLog {
    directory: PathBuf,
    closed: Vec<ClosedFile>,
    current: Option<CurrentFile>,
    next_number: u64,
    /// Highest epoch that was appended and counts.
    highest: Epoch,
    /// An fsync failed: what the files hold is not known, nothing may be added.
    broken: bool,
    /// What is here need not survive a crash.
    scratch: bool,
    faults: FileFaults,
}

#[derive(Debug)]
struct ClosedFile {
    path: PathBuf,
    /// Highest epoch in it.
    to: Epoch,
}

#[derive(Debug)]
struct CurrentFile {
    file: FrameFile,
    read: Arc<ReadFile>,
    to: Epoch,
}

fn file_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:08}.log"))
}

fn file_numbers(directory: &Path) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).map_err(io_error("read", directory))? {
        let name = entry.map_err(io_error("read", directory))?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".log")).and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn read_file(path: &Path) -> Result<Arc<ReadFile>> {
    let file = File::open(path).map_err(io_error("open", path))?;
    Ok(Arc::new(ReadFile { file, path: path.into() }))
}

impl DeltaLog {
    /// Opens the log and hands over its deltas in order. A torn tail is cut.
    pub(super) fn recover(directory: &Path, faults: FileFaults, mut take: impl FnMut(Recovered) -> Result<()>) -> Result<Self> {
        create_directory(directory)?;
        let mut log = Self::new(directory, faults);
        let numbers = file_numbers(directory)?;
        for (index, number) in numbers.iter().enumerate() {
            let path = file_path(directory, *number);
            log.next_number = number + 1;
            let is_last = index + 1 == numbers.len();
            let read = read_file(&path)?;
            // Of the file: it is only removed when all that it ever held is in the base.
            let mut highest = Epoch::default();
            let reached = &mut log.highest;
            let record = |frame: FramePlace, payload: &[u8]| -> Result<()> {
                match read_record(payload).map_err(|error| located(error, &path, frame))? {
                    Record::Delta { delta, links } => {
                        highest = highest.max(delta.to);
                        *reached = (*reached).max(delta.to);
                        let place = DeltaPlace { file: read.clone(), frame };
                        take(Recovered::Delta { delta, links, place }).map_err(|error| located(error, &path, frame))
                    }
                    Record::Reached(epoch) => {
                        highest = highest.max(epoch);
                        *reached = (*reached).max(epoch);
                        Ok(())
                    }
                    Record::Rewound(epoch) => {
                        *reached = (*reached).min(epoch);
                        take(Recovered::Rewound(epoch))
                    }
                }
            };
            if is_last {
                let file = FrameFile::open(&path, log.faults.clone(), record)?;
                log.current = Some(CurrentFile { file, read, to: highest });
            } else {
                read_frames(&path, Tail::IsWhole, record)?;
                log.closed.push(ClosedFile { path, to: highest });
            }
        }
        Ok(log)
    }

    /// An empty log; files of an earlier run are removed.
    pub(super) fn scratch(directory: &Path, faults: FileFaults) -> Result<Self> {
        create_directory(directory)?;
        for number in file_numbers(directory)? {
            remove_file(&file_path(directory, number))?;
        }
        Ok(Self { scratch: true, ..Self::new(directory, faults) })
    }

    fn new(directory: &Path, faults: FileFaults) -> Self {
        Self {
            directory: directory.into(),
            closed: Vec::new(),
            current: None,
            next_number: 1,
            highest: Epoch::default(),
            broken: false,
            scratch: false,
            faults,
        }
    }

    /// Appends a delta, not durably.
    pub(super) fn append(&mut self, delta: &Delta, links: Links) -> Result<DeltaPlace> {
        let mut frame = FrameBuffer::new();
        write_delta(delta, links, frame.payload())?;
        if frame.payload_length() > MAX_DELTA_BYTES {
            return Err(StorageError::Internal(format!("the changes of an epoch take more than {MAX_DELTA_BYTES} bytes")));
        }
        self.append_frame(frame, delta.to)
    }

    /// Records that nothing changed up to `epoch`.
    pub(super) fn append_reached(&mut self, epoch: Epoch) -> Result<()> {
        self.append_epoch(KIND_REACHED, epoch)
    }

    /// Records that all above `epoch` does not count, whether it is in the log or is still missing there because the disk was full.
    pub(super) fn append_rewound(&mut self, epoch: Epoch) -> Result<()> {
        self.append_epoch(KIND_REWOUND, epoch)?;
        self.highest = self.highest.min(epoch);
        Ok(())
    }

    fn append_epoch(&mut self, kind: u8, epoch: Epoch) -> Result<()> {
        let mut frame = FrameBuffer::new();
        frame.payload().extend_from_slice(&[RECORD_VERSION, kind]);
        frame.payload().extend_from_slice(&epoch.0.to_le_bytes());
        self.append_frame(frame, epoch).map(|_| ())
    }

    fn append_frame(&mut self, frame: FrameBuffer, to: Epoch) -> Result<DeltaPlace> {
        if self.broken {
            return Err(StorageError::Internal(format!("\"{}\" cannot be written after a failed fsync", self.directory.display())));
        }
        if self.current.as_ref().is_some_and(|current| current.file.length() >= FILE_BYTES) {
            self.close_current()?;
        }
        let current = match &mut self.current {
            Some(current) => current,
            None => {
                let path = file_path(&self.directory, self.next_number);
                let file = FrameFile::create(&path, self.faults.clone())?;
                self.next_number += 1;
                self.current.insert(CurrentFile { file, read: read_file(&path)?, to })
            }
        };
        let frame = current.file.append(frame)?;
        current.to = current.to.max(to);
        self.highest = self.highest.max(to);
        Ok(DeltaPlace { file: current.read.clone(), frame })
    }

    /// What an fsync now would make durable; `None` if all is. The fsync itself ([`PendingSync::run`]) needs no lock on the log.
    pub(super) fn begin_sync(&self) -> Result<Option<PendingSync>> {
        if self.broken {
            return Err(StorageError::Internal(format!("\"{}\" cannot be trusted after a failed fsync", self.directory.display())));
        }
        let unsynced = self.current.as_ref().filter(|current| current.file.durable_length() < current.file.length());
        Ok(unsynced.map(|current| PendingSync { file: current.read.clone(), length: current.file.length(), faults: self.faults.clone() }))
    }

    /// Takes note of how an fsync ended. After a failed one nothing is written here any more.
    pub(super) fn end_sync(&mut self, sync: &PendingSync, outcome: Result<()>) -> Result<()> {
        self.broken |= outcome.is_err();
        if let (Ok(()), Some(current)) = (&outcome, &mut self.current)
            && Arc::ptr_eq(&current.read, &sync.file)
        {
            current.file.mark_durable(sync.length);
        }
        outcome
    }

    fn sync(&mut self) -> Result<()> {
        match self.begin_sync()? {
            Some(sync) => {
                let outcome = sync.run();
                self.end_sync(&sync, outcome)
            }
            None => Ok(()),
        }
    }

    /// A file that is not the last is whole, so it is durable before the next is begun.
    fn close_current(&mut self) -> Result<()> {
        if !self.scratch {
            self.sync()?;
        }
        if let Some(current) = self.current.take() {
            self.closed.push(ClosedFile { path: current.file.path().into(), to: current.to });
        }
        Ok(())
    }

    /// Removes files in which all epochs are at or below `epoch`.
    pub(super) fn remove_through(&mut self, epoch: Epoch) -> Result<()> {
        let contained = self.closed.iter().take_while(|file| file.to <= epoch).count();
        for file in self.closed.drain(..contained) {
            remove_file(&file.path)?;
        }
        // Small files would stay for ever if only full ones were removed.
        if self.closed.is_empty()
            && self.current.as_ref().is_some_and(|current| current.to <= epoch && current.file.length() > FILE_BYTES / 64)
        {
            let current = self.current.take().expect("checked above");
            remove_file(current.file.path())?;
        } else if contained == 0 {
            return Ok(());
        }
        sync_directory(&self.directory)
    }

    /// Removes all of it; the next delta is the first.
    pub(super) fn clear(&mut self) -> Result<()> {
        let current = self.current.take().map(|current| current.file.path().to_owned());
        for path in self.closed.drain(..).map(|file| file.path).chain(current) {
            remove_file(&path)?;
        }
        (self.highest, self.broken) = (Epoch::default(), false);
        sync_directory(&self.directory)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The highest epoch that was appended and counts.
    pub(super) fn highest(&self) -> Epoch {
        self.highest
    }
}

fn located(error: StorageError, path: &Path, frame: FramePlace) -> StorageError {
    match error {
        StorageError::Corrupt { file, detail } => corrupt(path, format!("{file} at offset {}: {detail}", frame.offset)),
        other => other,
    }
}

fn write_delta(delta: &Delta, links: Links, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&[RECORD_VERSION, KIND_DELTA]);
    for number in [delta.from.0, delta.to.0, links.previous.0, links.first_ordinal] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    write_watermark(delta.watermark_us, out);
    out.extend_from_slice(&(delta.batches.len() as u32).to_le_bytes());
    delta.batches.iter().try_for_each(|batch| batch.write(out))
}

fn read_record(payload: &[u8]) -> Result<Record> {
    let mut from = Cursor::new(payload, "delta log record");
    let version = from.u8()?;
    if version != RECORD_VERSION {
        return Err(from.corrupt(format!("unknown version {version}")));
    }
    match from.u8()? {
        KIND_DELTA => {
            let (start, to) = (Epoch(from.u64()?), Epoch(from.u64()?));
            let links = Links { previous: Epoch(from.u64()?), first_ordinal: from.u64()? };
            let watermark_us = read_watermark(&mut from)?;
            let count = from.u32()?;
            let batches = (0..count).map(|_| SignedBatch::read(&mut from)).collect::<Result<_>>()?;
            Ok(Record::Delta { delta: Delta { from: start, to, batches, watermark_us }, links })
        }
        KIND_REACHED => Ok(Record::Reached(Epoch(from.u64()?))),
        KIND_REWOUND => Ok(Record::Rewound(Epoch(from.u64()?))),
        kind => Err(from.corrupt(format!("unknown kind {kind}"))),
    }
}

/// Appends a watermark (column and microseconds), or that there is none.
pub(super) fn write_watermark(watermark_us: Option<(usize, i64)>, out: &mut Vec<u8>) {
    out.push(u8::from(watermark_us.is_some()));
    if let Some((column, micros)) = watermark_us {
        out.extend_from_slice(&(column as u32).to_le_bytes());
        out.extend_from_slice(&micros.to_le_bytes());
    }
}

/// Reads what [`write_watermark`] wrote.
pub(super) fn read_watermark(from: &mut Cursor<'_>) -> Result<Option<(usize, i64)>> {
    Ok(match from.u8()? {
        0 => None,
        _ => Some((from.u32()? as usize, from.i64()?)),
    })
}
