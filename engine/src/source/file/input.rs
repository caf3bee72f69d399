//! Bytes of one file, local or in an object store. All calls block: readers run on blocking threads.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use datafusion::parquet::{
    errors::ParquetError,
    file::reader::{ChunkReader, Length},
};

use millpond_storage::foreign_files::ForeignFiles;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::error::{EngineError, Result};

/// Bytes that a sequential reader fetches at once.
const WINDOW_BYTES: usize = 16 << 10;

/// Bytes that are fetched from an object store at once, at least: a request costs as much as reading a few megabytes.
const REMOTE_BYTES: u64 = 8 << 20;

/// An open file. Clones share it, and must not read at the same time.
#[derive(Clone, Debug)]
pub(super) struct InputFile {
    name: Arc<str>,
    backing: Backing,
    length: u64,
}

#[derive(Clone, Debug)]
enum Backing {
    Local(Arc<File>),
    Remote(Arc<RemoteFile>),
}

/// A file in an object store, with the part of it that was read last.
#[derive(Debug)]
struct RemoteFile {
    files: ForeignFiles,
    name: String,
    runtime: Handle,
    window: Mutex<(u64, Bytes)>,
}

/// An error of the operating system with Postgres' words and SQLSTATE, 58P01 if the file does not exist.
pub(crate) fn file_error(action: &str, file: &str, error: &std::io::Error) -> EngineError {
    use std::io::ErrorKind;
    let (sqlstate, reason) = match error.kind() {
        ErrorKind::NotFound => ("58P01", "No such file or directory".to_owned()),
        ErrorKind::PermissionDenied => ("42501", "Permission denied".to_owned()),
        ErrorKind::ReadOnlyFilesystem => ("42501", "Read-only file system".to_owned()),
        ErrorKind::NotADirectory => ("42809", "Not a directory".to_owned()),
        ErrorKind::IsADirectory => ("42809", "Is a directory".to_owned()),
        ErrorKind::StorageFull => ("53100", "No space left on device".to_owned()),
        _ => ("58030", error.to_string()),
    };
    EngineError::user(sqlstate, format!("could not {action} file \"{file}\": {reason}"))
}

impl InputFile {
    /// Opens a local file.
    pub(super) fn open_local(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| file_error("open", &name, &error))?;
        let metadata = file.metadata().map_err(|error| file_error("stat", &name, &error))?;
        if metadata.is_dir() {
            return Err(EngineError::user("42809", format!("\"{name}\" is a directory")));
        }
        Ok(Self { length: metadata.len(), name: name.into(), backing: Backing::Local(Arc::new(file)) })
    }

    /// Opens a file in an object store. Must be called on a blocking thread of a runtime.
    pub(super) fn open_remote(files: ForeignFiles, name: &str) -> Result<Self> {
        let runtime = Handle::current();
        let shown = files.full_name(name);
        let length = runtime.block_on(files.length(name))?;
        let length = length.ok_or_else(|| file_error("open", &shown, &std::io::ErrorKind::NotFound.into()))?;
        let remote = RemoteFile { files, name: name.to_owned(), runtime, window: Mutex::new((0, Bytes::new())) };
        Ok(Self { name: shown.into(), backing: Backing::Remote(Arc::new(remote)), length })
    }

    /// Its name, for errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes it had when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes it has now.
    pub(super) fn length_now(&self) -> Result<u64> {
        match &self.backing {
            Backing::Local(file) => Ok(file.metadata().map_err(|error| file_error("stat", &self.name, &error))?.len()),
            Backing::Remote(remote) => Ok(remote.runtime.block_on(remote.files.length(&remote.name))?.unwrap_or(0)),
        }
    }

    /// Appends up to `most` bytes from `offset` on to `buffer`, and returns how many: fewer only at the end of the file.
    pub(super) fn read_at(&self, offset: u64, most: usize, buffer: &mut Vec<u8>) -> Result<usize> {
        let mut file = match &self.backing {
            Backing::Local(file) => &**file,
            Backing::Remote(remote) => {
                let bytes = remote.read_at(offset, most as u64, self.length)?;
                buffer.extend_from_slice(&bytes);
                return Ok(bytes.len());
            }
        };
        let failed = |error: std::io::Error| file_error("read", &self.name, &error);
        buffer.reserve_exact(most);
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        file.take(most as u64).read_to_end(buffer).map_err(failed)
    }
}

impl RemoteFile {
    /// Bytes `offset..offset + most` of a file of `length` bytes, or as many as there are. A file in an object store does not grow.
    fn read_at(&self, offset: u64, most: u64, length: u64) -> Result<Bytes> {
        let end = offset.saturating_add(most).min(length);
        if end <= offset {
            return Ok(Bytes::new());
        }
        let mut window = self.window.lock();
        if offset < window.0 || end > window.0 + window.1.len() as u64 {
            let fetched = offset..end.max(offset.saturating_add(REMOTE_BYTES)).min(length);
            *window = (offset, self.runtime.block_on(self.files.read(&self.name, fetched))?);
        }
        let (from, to) = ((offset - window.0) as usize, (end - window.0) as usize);
        if to > window.1.len() {
            return Err(EngineError::user(
                "58030",
                format!("file \"{}\" was truncated while it was read", self.files.full_name(&self.name)),
            ));
        }
        Ok(window.1.slice(from..to))
    }
}

impl Length for InputFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for InputFile {
    type T = WindowReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(WindowReader { file: self.clone(), next: start, window: Vec::new(), at: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // A corrupt footer names ranges that do not exist: they must not be allocated.
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!("{length} bytes expected at byte {start} of {}", self.length)));
        }
        let mut buffer = Vec::new();
        let read = self.read_at(start, length, &mut buffer).map_err(|error| ParquetError::General(error.to_string()))?;
        if read < length {
            return Err(ParquetError::EOF(format!("{length} bytes expected at byte {start}, {read} found")));
        }
        Ok(buffer.into())
    }
}

/// Reads on from a place, a small window at a time.
pub(super) struct WindowReader {
    file: InputFile,
    next: u64,
    window: Vec<u8>,
    at: usize,
}

impl Read for WindowReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.window.len() {
            self.window.clear();
            self.at = 0;
            let read = self.file.read_at(self.next, WINDOW_BYTES, &mut self.window).map_err(std::io::Error::other)?;
            self.next += read as u64;
        }
        let count = out.len().min(self.window.len() - self.at);
        out[..count].copy_from_slice(&self.window[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
