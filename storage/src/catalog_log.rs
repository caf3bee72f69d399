//! The durable record of the catalog: opaque records in order, each on disk before `append` returns.
//!
//! What a record means is the catalog's business. The log only promises that what was acknowledged is given back, in order, or that
//! opening fails with the file's name. So the file says of itself how long it is, before an append is acknowledged: records are few.

use std::path::{Path, PathBuf};

use crate::{
    durable_file::{corrupt, create_directory, io_error, remove_file, sync_directory},
    error::{Result, StorageError},
    frame_file::{FILE_HEADER, FileFaults, FrameBuffer, FrameFile},
};

/// The longest record.
const MAX_RECORD_BYTES: usize = 256 << 20;

/// An open catalog log.
#[derive(Debug)]
pub struct CatalogLog {
    file: FrameFile,
    /// An fsync failed: only [`CatalogLog::rewrite`], into a new file, may be trusted again.
    broken: bool,
    path: PathBuf,
}

impl CatalogLog {
    /// Opens the log at `path` and gives all its records. A log that is not there, or is empty, is begun, unless it is known to have been
    /// there before. A torn tail, which no one was told of, is cut; damage before it is [`StorageError::Corrupt`].
    pub fn open(path: &Path, was_there: bool) -> Result<(Self, Vec<Vec<u8>>)> {
        let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        if was_there && length < FILE_HEADER as u64 {
            return Err(corrupt(path, if path.exists() { "it is cut off" } else { "it is missing" }));
        }
        create_directory(path.parent().expect("a file is in a directory"))?;
        remove_file(&rewritten_path(path))?;
        let mut records = Vec::new();
        let file = if path.exists() {
            FrameFile::open(path, FileFaults::default(), |_, record| {
                records.push(record.to_vec());
                Ok(())
            })?
        } else {
            FrameFile::create(path, FileFaults::default())?
        };
        Ok((Self { file, broken: false, path: path.into() }, records))
    }

    /// Appends a record durably. On an error it is not there.
    pub fn append(&mut self, record: &[u8]) -> Result<()> {
        if self.broken {
            return Err(StorageError::Internal("the catalog log cannot be appended to after a failed fsync".into()));
        }
        self.file.append(frame(record)?)?;
        if let Err(error) = self.file.sync() {
            self.broken = self.file.cut_to_durable().is_err();
            return Err(error);
        }
        self.note();
        Ok(())
    }

    /// The record is there, whatever becomes of the note.
    fn note(&mut self) {
        if let Err(error) = self.file.note_durable(false).and_then(|()| self.file.sync_all()) {
            tracing::warn!(%error, "the length of the catalog log could not be noted");
        }
    }

    /// Replaces all records, all or nothing, durably.
    pub fn rewrite(&mut self, records: &[Vec<u8>]) -> Result<()> {
        let staged = rewritten_path(&self.path);
        let mut file = FrameFile::create(&staged, FileFaults::default())?;
        for record in records {
            file.append(frame(record)?)?;
        }
        file.sync()?;
        file.note_durable(false)?;
        file.sync_all()?;
        std::fs::rename(&staged, &self.path).map_err(io_error("rename", &staged))?;
        sync_directory(self.path.parent().expect("a file is in a directory"))?;
        self.file = FrameFile::open(&self.path, FileFaults::default(), |_, _| Ok(()))?;
        self.broken = false;
        Ok(())
    }
}

fn rewritten_path(path: &Path) -> PathBuf {
    path.with_extension("rewritten")
}

fn frame(record: &[u8]) -> Result<FrameBuffer> {
    if record.len() > MAX_RECORD_BYTES {
        return Err(StorageError::Internal(format!("a catalog record of {} bytes is too long", record.len())));
    }
    let mut frame = FrameBuffer::new();
    frame.payload().extend_from_slice(record);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_in_order_and_are_replaced_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("catalog/log");
        let (mut log, records) = CatalogLog::open(&path, false).unwrap();
        assert!(records.is_empty());
        log.append(b"one").unwrap();
        log.append(b"").unwrap();
        log.append(b"three").unwrap();
        drop(log);
        let (mut log, records) = CatalogLog::open(&path, false).unwrap();
        assert_eq!(records, [&b"one"[..], b"", b"three"]);
        log.rewrite(&[b"all".to_vec()]).unwrap();
        log.append(b"more").unwrap();
        assert_eq!(CatalogLog::open(&path, false).unwrap().1, [b"all".to_vec(), b"more".to_vec()]);
    }

    #[test]
    fn a_torn_tail_is_cut_and_damage_in_the_middle_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (mut log, _) = CatalogLog::open(&path, false).unwrap();
        ["one", "two", "three"].iter().for_each(|record| log.append(record.as_bytes()).unwrap());
        drop(log);
        let bytes = std::fs::read(&path).unwrap();
        // What a crash leaves in the middle of an append.
        std::fs::write(&path, [&bytes[..], &bytes[24..44]].concat()).unwrap();
        assert_eq!(CatalogLog::open(&path, false).unwrap().1, [&b"one"[..], b"two", b"three"]);

        let mut garbled = bytes;
        garbled[40] ^= 1;
        std::fs::write(&path, &garbled).unwrap();
        let error = CatalogLog::open(&path, false).unwrap_err();
        assert!(matches!(&error, StorageError::Corrupt { file, .. } if file == &path.display().to_string()), "{error}");
    }

    #[test]
    fn a_log_that_was_cut_off_anywhere_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let (mut log, _) = CatalogLog::open(&path, false).unwrap();
        ["one", "two", "three"].iter().for_each(|record| log.append(record.as_bytes()).unwrap());
        log.rewrite(&[b"all".to_vec(), b"other".to_vec()]).unwrap();
        log.append(b"and more").unwrap();
        drop(log);
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let error = CatalogLog::open(&path, true).unwrap_err();
            assert!(matches!(&error, StorageError::Corrupt { file, .. } if file == &path.display().to_string()), "{length}: {error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(CatalogLog::open(&path, true), Err(StorageError::Corrupt { .. })));
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(CatalogLog::open(&path, true).unwrap().1.len(), 3);
    }
}
